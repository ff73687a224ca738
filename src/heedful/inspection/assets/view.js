// @ts-check
'use strict';

const SLOTS = [1, 2, 3, 4, 5]; // colours of overlaid heads; the open one has colour 0

/**
 * @type {{doc: AttentionDocument, kind: Kind, hypothesis: number, open: Place, pins: Map<string, number>,
 *         off: Set<string>, pointed: Spot | null, chosen: Spot | null}}
 */
const view = {
  doc: /** @type {any} */ (null), // nothing was looked into yet
  kind: 'encoder',
  hypothesis: 0,
  open: { layer: 0, index: 0 },
  pins: new Map(),
  off: new Set(),
  pointed: null,
  chosen: null,
};

const layersNow = () => layersOf(view.doc, view.kind, view.hypothesis);
const axesNow = () => axesOf(view.doc, view.kind, view.hypothesis);
const nameNow = () => headName(view.kind, view.open);
const spotNow = () => view.pointed ?? view.chosen;
const isShown = () => view.doc !== null && kindsOf(view.doc, view.hypothesis).length > 0;

/** @param {string} text for screen readers */
function announce(text) {
  byId('status').textContent = text;
}

let waiting = false;

/** A pointer moves more often than a screen is drawn. */
function redrawSpot() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    if (!isShown()) return;
    drawSpot();
    markMatrix();
  });
}

/** @param {Spot | null} spot */
function hover(spot) {
  const { pointed } = view;
  if (spot?.side === pointed?.side && spot?.index === pointed?.index && spot?.other === pointed?.other) return;
  view.pointed = spot;
  redrawSpot();
}

/** @param {AttentionDocument} doc */
function show(doc) {
  // What the last attention is about is what most people come to see.
  if (view.doc === null) view.kind = kindsOf(doc, 0).at(-1) ?? 'encoder';
  view.doc = doc;
  view.off = new Set(doc.off);
  view.hypothesis = 0;
  render();
}

/** Everything that depends on document, hypothesis or attention. The focus stays where it was, if that still is. */
function render() {
  const focused = document.activeElement?.id;
  const kinds = kindsOf(view.doc, view.hypothesis);
  view.pointed = view.chosen = null;
  around.shown(view.doc);
  renderLive();
  byId('translation').hidden = !view.doc.hypotheses.length;
  if (view.doc.hypotheses.length) renderTranslation();
  byId('heads').hidden = !kinds.length;
  if (kinds.length) {
    if (!kinds.includes(view.kind)) view.kind = kinds[0];
    renderTabs(kinds);
    renderAttention();
  }
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

/** @param {Kind[]} kinds */
function renderTabs(kinds) {
  const tabs = kinds.map((kind) => make('button', { type: 'button', role: 'tab', id: `tab-${kind}`,
    'aria-selected': kind === view.kind, 'aria-controls': 'panel' }, KIND_TITLES[kind]));
  for (const [i, tab] of tabs.entries()) {
    tab.onclick = () => chooseKind(kinds[i]);
    tab.onfocus = () => chooseKind(kinds[i]);
  }
  byId('tabs').replaceChildren(...tabs);
  rove(byId('tabs'), [tabs], tabs[kinds.indexOf(view.kind)]);
}

/** @param {Kind} kind */
function chooseKind(kind) {
  if (kind === view.kind) return;
  view.kind = kind;
  view.pointed = view.chosen = null;
  for (const tab of byId('tabs').children) tab.setAttribute('aria-selected', String(tab.id === `tab-${kind}`));
  renderAttention();
}

function renderAttention() {
  byId('panel').setAttribute('aria-labelledby', `tab-${view.kind}`);
  byId('kind-hint').textContent = KIND_HINTS[view.kind];
  const layer = layersNow()[view.open.layer];
  if (!layer?.heads || view.open.index >= layer.heads) {
    view.open = { layer: layersNow().findIndex((each) => each.heads > 0), index: 0 };
  }
  renderGrid();
  renderLists();
  renderMatrix();
  renderHead();
}

/** The open head, large. */
function renderHead() {
  const name = nameNow();
  const role = view.doc.roles[name];
  byId('head-title').textContent = headTitle(name);
  byId('head-role').textContent = role ? `${role.name}: ${role.evidence}` : '';
  byId('open-pin').dataset.head = byId('open-power').dataset.head = name;
  byId('open-power').hidden = !view.doc.live || view.open.index === MEAN;
  markGrid();
  paintMatrix();
  renderLines();
}

/** @param {Place} place */
function openHead(place) {
  view.open = place;
  renderHead();
  announce(`${headTitle(nameNow())} is open below`);
  const still = matchMedia('(prefers-reduced-motion: reduce)').matches;
  // On a wide screen it stands beside the grid.
  const far = byId('one').getBoundingClientRect().top > innerHeight * 0.6;
  if (far) byId('one').scrollIntoView({ block: 'start', behavior: still ? 'auto' : 'smooth' });
}

/** @param {string} name */
function togglePin(name) {
  const used = [...view.pins].filter(([pinned]) => pinned.startsWith(`${view.kind}.`)).map(([, slot]) => slot);
  const free = SLOTS.find((slot) => !used.includes(slot));
  if (view.pins.delete(name)) announce(`${headTitle(name)} is no longer overlaid`);
  else if (free === undefined) announce('Five heads are overlaid, and more could not be told apart; take one away');
  else {
    view.pins.set(name, free);
    announce(`${headTitle(name)} is overlaid`);
  }
  markGrid();
  renderLines();
}

function listenToAll() {
  for (const listen of [listenToGrid, listenToMatrix, listenToLines, listenToTranslation, listenToOff]) listen();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', repaint);
}
