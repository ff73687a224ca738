import { byId, findAll, make, moveByArrowKeys } from './dom.js';
import { MEAN, headName, headTitle, placeOf, weightsOf } from './attention.js';
import { paintWeights } from './drawing.js';
import { paintSmall } from './picture.js';
import { currentHead, currentLayers, state, writtenRows } from './state.js';

/** @typedef {import('./attention.js').Layer} Layer */
/** @typedef {import('./attention.js').Place} Place */
/** @typedef {{open: (place: Place) => void, pin: (name: string) => void, power: (name: string) => void}} HeadActions */

const LARGEST_SHARP = 48; // tokens; larger maps have cells smaller than a pixel

export const KIND_TITLES = { encoder: 'Encoder', decoder: 'Decoder', cross: 'Cross' };

/** All heads of the current attention: a row for each layer, with its mean at the end. */
export function renderGrid() {
  const grid = byId('grid', HTMLTableElement);
  const layers = currentLayers();
  const most = Math.max(...layers.map((layer) => layer.heads));
  const titles = [...Array.from({ length: most }, (_, i) => `head ${i + 1}`), 'mean'];
  const head = make('tr', {}, make('td'), ...titles.map((title) => make('th', { scope: 'col' }, title)));
  const rows = layers.map((layer, i) => gridRow(layer, i, most));
  grid.replaceChildren(make('thead', {}, head), make('tbody', {}, ...rows));
  grid.style.setProperty('--columns', String(most + 1));
  grid.setAttribute('aria-label', `${KIND_TITLES[state.kind]} attention, all layers and heads`);
  const buttons = rows.map((row) => findAll('.head', row));
  moveByArrowKeys(grid, buttons.filter((row) => row.length), byId(`open-${currentHead()}`));
  paintGrid();
  markGrid();
}

/** @param {Layer} layer @param {number} index @param {number} most */
function gridRow(layer, index, most) {
  const row = make('tr', {}, make('th', { scope: 'row' }, `layer ${index + 1}`));
  for (let head = 0; head < most; head++) {
    row.append(head < layer.heads ? gridCell({ layer: index, index: head }, layer) : make('td', { class: 'none' }));
  }
  row.append(layer.heads ? gridCell({ layer: index, index: MEAN }, layer) : make('td', { class: 'none' }));
  return row;
}

/** @param {Place} place @param {Layer} layer */
function gridCell(place, layer) {
  const name = headName(state.kind, place);
  const role = state.doc.roles[name];
  const canSwitch = state.doc.live && place.index !== MEAN;
  const canvas = make('canvas', { 'aria-hidden': true });
  // A shape between 1:2 and 2:1 keeps the rows similar, even if one sentence is much longer than the other.
  canvas.style.aspectRatio = String(Math.min(2, Math.max(0.5, layer.keys / layer.queries)));
  // Cells smaller than a pixel have to be blended: if they were dropped, a diagonal would become dots.
  if (Math.max(layer.keys, layer.queries) > LARGEST_SHARP) canvas.style.imageRendering = 'auto';
  const open = make('button', { type: 'button', id: `open-${name}`, class: 'head', 'data-head': name }, canvas);
  open.ariaLabel = headTitle(name) + (role ? `, ${role.name}` : '');
  const hasPin = !state.doc.picture; // the lines of several heads can be drawn over each other, but not several pictures
  const keys = [hasPin ? 'P' : '', canSwitch ? 'O' : ''].filter(Boolean).join(' ');
  if (keys) open.setAttribute('aria-keyshortcuts', keys);
  if (role) open.title = `${role.name}: ${role.evidence}`;
  const tools = make('span', { class: 'tools' }, ...(hasPin ? [toolButton('pin', name)] : []));
  if (canSwitch) tools.append(toolButton('power', name));
  const said = [role?.name, rankOf(name)].filter(Boolean).join(' · ');
  return make('td', {}, open, tools, make('span', { class: 'role' }, said));
}

/** @returns {string[]} the heads of this sentence, those first without which it loses most */
export function rankedHeads() {
  const { costs = {} } = state.doc;
  return Object.keys(costs).sort((a, b) => costs[b] - costs[a]);
}

/** @param {string} name */
function rankOf(name) {
  const place = rankedHeads().indexOf(name);
  return place < 0 ? '' : `no.\u00a0${place + 1}`;
}

/**
 * A small button under a head. It has no tab stop: the keys P and O do the same.
 * @param {'pin' | 'power'} kind
 * @param {string} name
 */
function toolButton(kind, name) {
  const id = `${kind}-${name}`;
  return make('button', { type: 'button', id, class: `tool ${kind}`, 'data-head': name, tabindex: -1 });
}

export function paintGrid() {
  const layers = currentLayers();
  for (const button of findAll('#grid .head')) {
    const place = placeOf(button.dataset.head ?? '');
    const layer = layers[place.layer];
    const canvas = button.firstElementChild;
    if (!(canvas instanceof HTMLCanvasElement)) continue;
    if (state.doc.picture) paintSmall(canvas, layer, place.index);
    else paintWeights(canvas, writtenRows(weightsOf(layer, place.index)), layer.queries, layer.keys);
  }
}

/** Shows which heads are open, overlaid or off, without building a new grid. */
export function markGrid() {
  for (const button of findAll('.head')) {
    const name = button.dataset.head ?? '';
    if (name === currentHead()) button.setAttribute('aria-current', 'true');
    else button.removeAttribute('aria-current');
    button.parentElement?.classList.toggle('off', state.off.has(name));
  }
  for (const button of findAll('.tool')) {
    if (button.classList.contains('pin')) markPin(button);
    else markPower(button);
  }
}

/** @param {HTMLElement} button */
function markPin(button) {
  const name = button.dataset.head ?? '';
  const slot = state.pins.get(name);
  const isPinned = slot !== undefined;
  button.setAttribute('aria-pressed', String(isPinned));
  button.setAttribute('aria-label', `overlay ${headTitle(name)}`);
  button.title = isPinned ? 'Remove the lines of this head' : 'Overlay the lines of this head in a separate colour';
  button.dataset.slot = String(slot ?? '');
  if (button.classList.contains('large')) button.textContent = isPinned ? 'Overlaid' : 'Overlay';
}

/** @param {HTMLElement} button */
function markPower(button) {
  const name = button.dataset.head ?? '';
  const isOff = state.off.has(name);
  button.setAttribute('role', 'switch');
  button.setAttribute('aria-checked', String(!isOff));
  button.setAttribute('aria-label', headTitle(name));
  button.title = isOff ? 'Switch on' : 'Switch off';
  if (button.classList.contains('large')) button.textContent = isOff ? 'Switch it on again' : 'Try it: switch this head off';
}

/** @param {HeadActions} actions */
export function listenToGrid({ open, pin, power }) {
  document.addEventListener('click', (event) => {
    const button = event.target instanceof Element ? event.target.closest('button[data-head]') : null;
    if (!(button instanceof HTMLElement)) return;
    const name = button.dataset.head ?? '';
    if (button.classList.contains('pin')) pin(name);
    else if (button.classList.contains('power')) power(name);
    else open(placeOf(name));
  });
  document.addEventListener('keydown', (event) => {
    const { target } = event;
    if (!(target instanceof HTMLElement) || !target.classList.contains('head')) return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const name = target.dataset.head ?? '';
    if (event.key.toLowerCase() === 'p' && !state.doc.picture) pin(name);
    if (event.key.toLowerCase() === 'o' && state.doc.live && !name.endsWith('mean')) power(name);
  });
}
