import { announce, byId, findAll, make, moveByArrowKeys } from './dom.js';
import { FULL, findStrongest, headTitle, placeOf, weightsOf } from './attention.js';
import { pieceNode, quotePiece } from './drawing.js';
import { currentAxes, currentHead, currentLayers, currentSpot, hoverSpot, onSpotChange, redrawSpot, state, writtenRows } from './state.js';

/** @typedef {import('./state.js').Spot} Spot */
/** @typedef {{name: string, title: string, slot: number, shift: number, weights: Uint16Array}} DrawnHead */

const SVG = 'http://www.w3.org/2000/svg';
const ROW = 26; // height of a token in pixels
const APART = 4; // pixels between the lines of two heads that join the same tokens
const WIDEST = 9; // width in pixels of a line with a weight of one
const FAINT_FROM = 0.1; // so that a row has ten lines at most while nothing is selected
const DRAWN_FROM = 0.005; // thinner lines cannot be seen
const TOLD_FROM = 0.05; // weights that are put into words
const MOST_TOLD = 4;

/** Queries on the left, keys on the right, as in figures 3 to 5 of the paper. */
export function renderLists() {
  if (state.doc.picture) return;
  const { queries, keys } = currentAxes();
  fillList(byId('queries'), queries, 'query');
  fillList(byId('keys'), keys, 'key');
  byId('lines').style.setProperty('--row', `${ROW}px`);
  byId('wires', SVGElement).style.height = `${ROW * Math.max(queries.length, keys.length)}px`;
}

/** The lines of the open head and of those overlaid. */
export function renderLines() {
  if (state.doc.picture) return;
  renderLegend();
  drawFaintLines();
  redrawSpot();
}

/** @param {HTMLElement} list @param {string[]} pieces @param {'query' | 'key'} side */
function fillList(list, pieces, side) {
  const items = pieces.map((piece, i) =>
    make('li', { role: 'option', 'aria-selected': false, 'data-side': side, 'data-index': i, title: piece },
      pieceNode(piece), make('span', { class: 'weight', 'aria-hidden': true })));
  list.replaceChildren(...items);
  moveByArrowKeys(list, items.map((item) => [item]));
}

/** The open head, in the first colour unless it is overlaid and has its own, then the other overlaid heads. */
function drawnHeads() {
  const layers = currentLayers();
  const others = [...state.pins.keys()].filter((name) => name !== currentHead() && isInCurrentAttention(name));
  return [currentHead(), ...others].map((name, i) => {
    const place = placeOf(name);
    const weights = writtenRows(weightsOf(layers[place.layer], place.index));
    const shift = (i - others.length / 2) * APART;
    return { name, title: headTitle(name), slot: state.pins.get(name) ?? 0, shift, weights };
  });
}

/** @param {string} name of a head, which another document may not have */
function isInCurrentAttention(name) {
  const place = placeOf(name);
  return name.startsWith(`${state.kind}.`) && place.index < (currentLayers()[place.layer]?.heads ?? 0);
}

function renderLegend() {
  const entries = drawnHeads().map(({ name, slot, title }) => make('li', { 'data-slot': slot, 'data-head': name },
    make('span', { class: 'swatch', 'aria-hidden': true }), make('span', {}, title), make('span', { class: 'says' })));
  byId('legend').replaceChildren(...entries);
}

/** @param {DrawnHead} head @param {number} query @param {number} key @param {number} weight */
function lineNode(head, query, key, weight) {
  const line = document.createElementNS(SVG, 'line');
  line.setAttribute('x2', '100%');
  line.setAttribute('y1', String((query + 0.5) * ROW + head.shift));
  line.setAttribute('y2', String((key + 0.5) * ROW + head.shift));
  line.setAttribute('stroke-width', (weight * WIDEST).toFixed(3));
  Object.assign(line.dataset, { head: head.name, slot: head.slot, query, key, weight: weight.toFixed(4) });
  return line;
}

function drawFaintLines() {
  const { keys } = currentAxes();
  const lines = drawnHeads().flatMap((head) => {
    const found = [];
    for (let i = 0; i < head.weights.length; i++) {
      const weight = head.weights[i] / FULL;
      if (weight >= FAINT_FROM) found.push(lineNode(head, Math.floor(i / keys.length), i % keys.length, weight));
    }
    return found;
  });
  byId('faint', SVGElement).replaceChildren(...lines);
}

/** The lines of one token; all others are hidden. */
function drawSpot() {
  if (state.doc.picture) return;
  const spot = currentSpot();
  const width = currentAxes().keys.length;
  const heads = drawnHeads();
  const found = spot ? heads.map((head) => findStrongest(head.weights, width, spot, DRAWN_FROM)) : [];
  const lines = found.flatMap((ends, i) => ends.map(({ index, weight }) => {
    const [query, key] = spot?.side === 'key' ? [index, spot.index] : [spot?.index ?? 0, index];
    return lineNode(heads[i], query, key, weight);
  }));
  byId('faint', SVGElement).setAttribute('visibility', spot ? 'hidden' : 'visible');
  lines.sort((a, b) => Number(b.dataset.weight) - Number(a.dataset.weight)); // thin lines lie on wide ones
  byId('drawn', SVGElement).replaceChildren(...lines);
  markList(byId('queries'), spot, 'query', found[0]);
  markList(byId('keys'), spot, 'key', found[0]);
  const notes = findAll('.says', byId('legend'));
  const roleOf = (/** @type {string} */ name) => state.doc.roles[name]?.name ?? '';
  notes.forEach((node, i) => node.replaceChildren(...(spot ? describeSpot(heads[i], spot) : [roleOf(heads[i].name)])));
}

/**
 * Writes weights beside the tokens at the other end, of the open head only: there is no room for more.
 * @param {HTMLElement} list
 * @param {Spot | null} spot
 * @param {'query' | 'key'} side
 * @param {{index: number, weight: number}[]} [ends]
 */
function markList(list, spot, side, ends = []) {
  const weights = new Map(spot && spot.side !== side ? ends.map((end) => [end.index, end.weight]) : []);
  for (const [i, item] of findAll('li', list).entries()) {
    const weight = weights.get(i) ?? 0;
    item.classList.toggle('lit', spot?.side === side && spot.index === i);
    item.style.setProperty('--weight', `${Math.round(weight * 40)}%`);
    if (item.lastElementChild) item.lastElementChild.textContent = weight >= 0.01 ? weight.toFixed(2) : '';
  }
}

/** @param {DrawnHead} head @param {Spot} spot @returns {(Node | string)[]} 'Haus' attends to 'house' 0.81, 'the' 0.07 */
function describeSpot(head, spot) {
  const { queries, keys } = currentAxes();
  const [own, other] = spot.side === 'query' ? [queries, keys] : [keys, queries];
  const ends = findStrongest(head.weights, keys.length, spot, TOLD_FROM).slice(0, MOST_TOLD);
  const verb = spot.side === 'query' ? ' attends to ' : ' is attended to by ';
  const parts = ends.flatMap(({ index, weight }, i) => [i ? ', ' : '', quotePiece(other[index]), ` ${weight.toFixed(2)}`]);
  return [quotePiece(own[spot.index]), verb, ...(parts.length ? parts : [`no token with a weight of ${TOLD_FROM} or more`])];
}

function announceSelected() {
  const spot = state.selected;
  if (!spot) return;
  const notes = drawnHeads().map((head) => `${head.title}: ${make('p', {}, ...describeSpot(head, spot)).textContent}`);
  announce(notes.join('; '));
}

/** @param {EventTarget | null} target @returns {Spot | null} */
function spotOf(target) {
  const item = target instanceof Element ? target.closest('[data-side]') : null;
  if (!(item instanceof HTMLElement)) return null;
  return { side: item.dataset.side === 'key' ? 'key' : 'query', index: Number(item.dataset.index) };
}

export function listenToLines() {
  const panel = byId('lines');
  panel.addEventListener('pointerover', (event) => hoverSpot(spotOf(event.target)));
  panel.addEventListener('pointerleave', () => hoverSpot(null));
  panel.addEventListener('focusin', (event) => selectSpot(spotOf(event.target)));
  panel.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') selectSpot(null);
  });
  onSpotChange(drawSpot);
}

/** A token stays selected after it loses the focus: a phone has no pointer to hover with. @param {Spot | null} spot */
function selectSpot(spot) {
  state.selected = spot;
  for (const item of findAll('[role=option]', byId('lines'))) {
    const own = spotOf(item);
    item.setAttribute('aria-selected', String(own?.side === spot?.side && own?.index === spot?.index));
  }
  redrawSpot();
  announceSelected();
}
