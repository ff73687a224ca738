// All heads of a sentence, as part of a page that decides where documents come from.
import { announce, byId, make, moveByArrowKeys, scrollToStart, showMessage } from './dom.js';
import { findDifferences } from './diff.js';
import { onSystemThemeChange } from './theme.js';
import { MEAN, headTitle, kindsOf, layersOf, placeOf } from './attention.js';
import { paintScale } from './drawing.js';
import { KIND_TITLES, listenToGrid, markGrid, paintGrid, rankedHeads, renderGrid } from './grid.js';
import { listenToLines, renderLines, renderLists } from './lines.js';
import { listenToPicture, paintPicture, renderPicture } from './picture.js';
import { listenToStepping, renderStepping } from './stepping.js';
import { listenToMatrix, paintMatrix, renderMatrix } from './matrix.js';
import { currentHead, currentLayers, hasHeads, state } from './state.js';
import { listenToTranslation, renderTranslation } from './tokens.js';

/** @typedef {import('./attention.js').AttentionDocument} AttentionDocument */
/** @typedef {import('./attention.js').Kind} Kind */
/** @typedef {import('./attention.js').Place} Place */
/** @typedef {(text: string, off: string[], signal: AbortSignal) => Promise<AttentionDocument>} AskForDocument */

const SLOTS = [1, 2, 3, 4, 5]; // colours of overlaid heads; the open head has colour 0
const KIND_HINTS = {
  encoder: 'Each source token attends to all source tokens.',
  decoder: 'Each decoding step attends to the tokens generated before it.',
  cross: 'Each decoding step attends to the source tokens.',
};

/** The page around the explorer, and the last request that it was asked for. */
const page = {
  /** @type {AskForDocument} */ ask: () => Promise.reject(new Error('The explorer has not been started.')),
  /** @type {(doc: AttentionDocument) => void} */ onShow: () => {},
  /** @type {(name: string) => void} */ onOpenHead: () => {},
  /** @type {AbortController | null} */ request: null,
  text: '',
  hasHead: false, // whether the page has said which head to open
};

/** Repaints the canvases, which do not follow a style sheet. */
export function repaint() {
  paintScale();
  if (!hasHeads()) return;
  paintGrid();
  paintMatrix();
  paintPicture();
}

/** @param {AttentionDocument} doc */
export function showDocument(doc) {
  // The last attention, cross-attention, is what most people come to see.
  if (state.doc === null && !page.hasHead) state.kind = kindsOf(doc, 0).at(-1) ?? 'encoder';
  state.doc = doc;
  state.off = new Set(doc.off);
  state.hypothesis = 0;
  page.text = doc.source.text;
  page.onShow(doc);
  render();
}

/** Renders everything that depends on the document or the hypothesis. The focus stays on the same element, if it still exists. */
function render() {
  const focused = document.activeElement?.id;
  const kinds = kindsOf(state.doc, state.hypothesis);
  state.hovered = state.selected = null;
  byId('power-hint').hidden = !state.doc.live;
  renderPicture(repaint);
  renderComparison();
  if (state.doc.live) renderOff();
  byId('translation').hidden = !state.doc.hypotheses.length;
  if (state.doc.hypotheses.length) {
    renderTranslation();
    renderStepping();
  }
  renderRanking();
  byId('heads').hidden = !kinds.length;
  if (kinds.length) {
    if (!kinds.includes(state.kind)) state.kind = kinds[0];
    renderTabs(kinds);
    renderAttention();
  }
  const next = focused?.startsWith('tab-') ? `tab-${state.kind}` : focused; // a tab that gets the focus is selected
  if (next) document.getElementById(next)?.focus({ preventScroll: true });
}

/** The heads by their effect on this sentence. */
function renderRanking() {
  const { costs = {}, roles } = state.doc;
  const names = rankedHeads();
  byId('ranking').hidden = !names.length;
  byId('ranked').replaceChildren(...names.map((name) => make('li', {},
    make('button', { type: 'button', class: 'plain', 'data-ranked': name }, headTitle(name)), ' ',
    make('span', { class: 'weight' }, `${costs[name] < 0 ? '+' : '−'}${Math.abs(costs[name]).toFixed(2)}`), ' ',
    make('span', { class: 'muted' }, roles[name]?.name ?? ''))));
}

/** @param {Kind[]} kinds */
function renderTabs(kinds) {
  const tabs = kinds.map((kind) => make('button', { type: 'button', role: 'tab', id: `tab-${kind}`,
    'aria-selected': kind === state.kind, 'aria-controls': 'panel' }, KIND_TITLES[kind]));
  for (const [i, tab] of tabs.entries()) {
    tab.onclick = () => selectKind(kinds[i]);
    tab.onfocus = () => selectKind(kinds[i]);
  }
  byId('tabs').replaceChildren(...tabs);
  moveByArrowKeys(byId('tabs'), [tabs], tabs[kinds.indexOf(state.kind)]);
}

/** @param {Kind} kind */
function selectKind(kind) {
  if (kind === state.kind) return;
  state.kind = kind;
  state.hovered = state.selected = null;
  for (const tab of byId('tabs').children) tab.setAttribute('aria-selected', String(tab.id === `tab-${kind}`));
  renderAttention();
}

function renderAttention() {
  byId('panel').setAttribute('aria-labelledby', `tab-${state.kind}`);
  byId('kind-hint').textContent = hintOf(state.kind);
  byId('map-hint').textContent = state.doc.picture ? 'Each map shows where a head looks from the patch that is chosen, over the picture; the strongest colour is its own largest weight.' : 'In each map, a row shows where one token attends; a stronger colour means a higher weight.';
  byId('pin-hint').hidden = !!state.doc.picture;
  const layer = currentLayers()[state.open.layer];
  if (!layer?.heads || state.open.index >= layer.heads) {
    state.open = { layer: currentLayers().findIndex((each) => each.heads > 0), index: 0 };
  }
  renderGrid();
  renderLists();
  renderMatrix();
  renderHead();
}

/** @param {Kind} kind */
function hintOf(kind) {
  const hypothesis = state.doc.hypotheses[state.hypothesis];
  if (hypothesis?.read) return 'Each token attends to itself and the tokens before it; the last one of the prompt writes the first new token.';
  if (state.doc.picture) return 'Each patch attends to all patches and to [CLS].';
  return hypothesis?.asked ? 'Each token attends to all tokens.' : KIND_HINTS[kind];
}

/** The open head, large. */
function renderHead() {
  const name = currentHead();
  const role = state.doc.roles[name];
  byId('head-title').textContent = headTitle(name);
  byId('head-role').textContent = role ? `${role.name}: ${role.evidence}` : '';
  byId('open-pin').dataset.head = byId('open-power').dataset.head = name;
  byId('open-pin').hidden = !!state.doc.picture;
  byId('open-power').hidden = !state.doc.live || state.open.index === MEAN;
  markGrid();
  paintMatrix();
  paintPicture();
  renderLines();
  page.onOpenHead(name);
}

/** Opens this head, now or with the first document; a name that the model does not have changes nothing. @param {string} name */
export function openNamedHead(name) {
  const kind = /** @type {Kind} */ (name.split('.')[0]);
  const place = placeOf(name);
  const isName = KIND_HINTS[kind] && place.layer >= 0 && place.index >= MEAN;
  const isThere = state.doc === null || layersOf(state.doc, kind, state.hypothesis)[place.layer]?.heads > place.index;
  if (!isName || !isThere) return;
  Object.assign(state, { kind, open: place });
  page.hasHead = true;
  if (state.doc !== null) render();
}

/** @param {Place} place */
function openHead(place) {
  state.open = place;
  renderHead();
  announce(`${headTitle(currentHead())} is open below`);
  const isFarDown = byId('one').getBoundingClientRect().top > innerHeight * 0.6; // on a wide screen it is beside the grid
  if (isFarDown) scrollToStart(byId('one'));
}

/** @param {string} name */
function togglePin(name) {
  const used = [...state.pins].filter(([pinned]) => pinned.startsWith(`${state.kind}.`)).map(([, slot]) => slot);
  const free = SLOTS.find((slot) => !used.includes(slot));
  if (state.pins.delete(name)) announce(`${headTitle(name)} is no longer overlaid`);
  else if (free === undefined) announce('You can overlay at most five heads; remove one first');
  else {
    state.pins.set(name, free);
    announce(`${headTitle(name)} is overlaid`);
  }
  markGrid();
  renderLines();
}

/** The list of heads that are off, each with a button to switch it on. */
function renderOff() {
  const names = [...state.off];
  byId('off-bar').hidden = !names.length;
  const tags = names.map((name) => make('button', { type: 'button', class: 'tag', 'data-on': name,
    'aria-label': `${name}: switch on`, title: 'Switch on' }, name));
  byId('off-names').replaceChildren(...tags);
}

/** The translation with all heads beside the one without some, with the words that differ marked. */
function renderComparison() {
  const { off, baseline, hypotheses, shown } = state.doc;
  byId('comparison').hidden = baseline === null;
  if (baseline === null) return;
  const { text } = hypotheses[0];
  const [before, after] = [baseline.split(/\s+/), text.split(/\s+/)];
  const [beforeDiffers, afterDiffers] = findDifferences(before, after);
  byId('all-on').replaceChildren(...markWords(before, beforeDiffers));
  byId('some-off').replaceChildren(...markWords(after, afterDiffers));
  byId('some-off-title').textContent = `Without ${off.join(', ')}`;
  byId('unchanged').textContent = hypotheses[0].asked ? 'The answer did not change.' : 'The translation did not change.';
  byId('unchanged').hidden = baseline !== text;
  byId('other-baseline').hidden = shown === undefined || shown === baseline;
}

/** @param {string[]} words @param {boolean[]} differs @returns {(Node | string)[]} */
function markWords(words, differs) {
  return words.flatMap((word, i) => [differs[i] ? make('mark', {}, word) : word, ' ']);
}

/** @param {string} name */
function toggleHead(name) {
  if (!state.off.delete(name)) state.off.add(name);
  applyOff();
}

function switchAllOn() {
  state.off.clear();
  applyOff();
}

function applyOff() {
  markGrid();
  renderOff();
  requestDocument(page.text);
}

/**
 * Asks for a text with the heads that are off now. A newer request aborts the one before.
 * @param {string} text
 */
export async function requestDocument(text) {
  page.request?.abort();
  const request = (page.request = new AbortController());
  page.text = text;
  setBusy(true);
  try {
    const doc = await page.ask(text, [...state.off], request.signal);
    if (request.signal.aborted) return; // after the response had begun
    showDocument(doc);
    announce(`Done: ${doc.hypotheses[0]?.text ?? ''}`);
  } catch (error) {
    if (request.signal.aborted) return;
    restoreShown();
    showMessage(byId('error'), /** @type {Error} */ (error).message);
  } finally {
    if (page.request === request) setBusy(false);
  }
}

/** After a failed request, the page still shows the text and heads of the one before. */
function restoreShown() {
  state.off = new Set(state.doc?.off);
  page.text = state.doc?.source.text ?? '';
  markGrid();
  renderOff();
}

/** @param {boolean} busy */
function setBusy(busy) {
  byId('busy').textContent = busy ? 'Running the model…' : '';
  document.body.setAttribute('aria-busy', String(busy));
  if (busy) showMessage(byId('error'), '');
}

/** Explores another text, with all heads on. @param {string} text @param {string} [head] to open */
export function exploreText(text, head = '') {
  state.off.clear();
  if (head) openNamedHead(head);
  return requestDocument(text);
}

/** Drops the request and shows nothing. */
export function clearExplorer() {
  page.request?.abort();
  page.request = null;
  setBusy(false);
  state.doc = /** @type {any} */ (null);
  for (const id of ['translation', 'heads', 'comparison', 'off-bar']) byId(id).hidden = true;
}

/**
 * @param {AskForDocument} ask
 * @param {{onShow?: (doc: AttentionDocument) => void, onOpenHead?: (name: string) => void}} [listeners] to every
 *   document that is shown, and to every head that is opened
 */
export function startExplorer(ask, listeners = {}) {
  Object.assign(page, { ask, ...listeners });
  listenToGrid({ open: openHead, pin: togglePin, power: toggleHead });
  listenToMatrix();
  listenToLines();
  listenToTranslation((hypothesis) => {
    state.hypothesis = hypothesis;
    render();
  });
  byId('off-names').addEventListener('click', (event) => {
    const name = event.target instanceof HTMLElement ? event.target.dataset.on : undefined;
    if (name) toggleHead(name);
  });
  byId('all-heads-on').addEventListener('click', switchAllOn);
  byId('ranking', HTMLDetailsElement).open = matchMedia('(min-width: 75rem)').matches; // where there is room beside the head
  byId('ranked').addEventListener('click', (event) => {
    const name = event.target instanceof HTMLElement ? event.target.dataset.ranked : undefined;
    if (!name) return;
    openNamedHead(name);
    announce(`${headTitle(name)} is open below`);
    scrollToStart(byId('one'));
  });
  listenToStepping(() => {
    paintGrid();
    paintMatrix();
    renderLines();
  });
  listenToPicture(() => {
    paintGrid();
    paintPicture();
  });
  onSystemThemeChange(repaint);
}
