import { byId, make } from './dom.js';
import { FULL, headTitle, weightsOf } from './attention.js';
import { paintWeights, pieceNode, quotePiece } from './drawing.js';
import { currentAxes, currentHead, currentLayers, currentSpot, hoverSpot, onSpotChange, state, writtenRows } from './state.js';

const LABELS = 128; // pixels that the longest label of a row may take

/** The axes of the heatmap, with cells as large as fit. */
export function renderMatrix() {
  const { queries, keys } = currentAxes();
  const room = (byId('matrix-box').clientWidth - LABELS) / keys.length;
  const cell = Math.floor(Math.max(keys.length > 40 ? 12 : 18, Math.min(32, room, 640 / queries.length)));
  byId('matrix').style.setProperty('--cell', `${cell}px`);
  byId('matrix-columns').replaceChildren(...keys.map(axisLabel));
  byId('matrix-rows').replaceChildren(...queries.map(axisLabel));
  const canvas = byId('matrix-canvas');
  canvas.style.width = `${cell * keys.length}px`;
  canvas.style.height = `${cell * queries.length}px`;
}

/** @param {string} piece */
function axisLabel(piece) {
  return make('span', { class: 'axis', title: piece }, pieceNode(piece));
}

/** The weights of the open head. */
export function paintMatrix() {
  const canvas = byId('matrix-canvas', HTMLCanvasElement);
  canvas.setAttribute('aria-label', `Heatmap of ${headTitle(currentHead())}; the token lists give the same values as text`);
  const layer = currentLayers()[state.open.layer];
  paintWeights(canvas, writtenRows(weightsOf(layer, state.open.index)), layer.queries, layer.keys);
}

/** Marks the row, and for a cell the column, of the current spot. */
function markMatrix() {
  const spot = currentSpot();
  const query = spot?.side === 'query' ? spot.index : spot?.other;
  const key = spot?.side === 'key' ? spot.index : spot?.other;
  markBand('row', query, 'top', 'height');
  markBand('column', key, 'left', 'width');
  byId('cell').replaceChildren(...(query === undefined || key === undefined ? [hintNode()] : describeCell(query, key)));
}

/**
 * @param {'row' | 'column'} axis
 * @param {number | undefined} index
 * @param {'top' | 'left'} edge
 * @param {'height' | 'width'} size
 */
function markBand(axis, index, edge, size) {
  const band = byId(`matrix-${axis}`);
  band.hidden = index === undefined;
  for (const [i, label] of [...byId(`matrix-${axis}s`).children].entries()) label.classList.toggle('lit', i === index);
  if (index === undefined) return;
  band.style[edge] = `calc(var(--cell) * ${index})`;
  band.style[size] = 'var(--cell)';
}

function hintNode() {
  return make('span', { class: 'muted' }, 'Point at a cell to read its weight.');
}

/** @param {number} query @param {number} key */
function describeCell(query, key) {
  const { queries, keys } = currentAxes();
  const weights = weightsOf(currentLayers()[state.open.layer], state.open.index);
  const weight = (weights[query * keys.length + key] / FULL).toFixed(4);
  return [quotePiece(queries[query]), ' attends to ', quotePiece(keys[key]), ' ', make('strong', {}, weight)];
}

export function listenToMatrix() {
  const canvas = byId('matrix-canvas');
  canvas.addEventListener('pointermove', (event) => {
    const { queries, keys } = currentAxes();
    const box = canvas.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left) / box.width) * keys.length);
    const row = Math.floor(((event.clientY - box.top) / box.height) * queries.length);
    if (queries[row] !== undefined && keys[column] !== undefined) hoverSpot({ side: 'query', index: row, other: column });
  });
  canvas.addEventListener('pointerleave', () => hoverSpot(null));
  onSpotChange(markMatrix);
}
