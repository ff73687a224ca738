// @ts-check
'use strict';

const LABELS = 128; // pixels that the longest label of a row may take

/** The heatmap's axes: the pieces, and cells as large as there is room for. */
function renderMatrix() {
  const { queries, keys } = axesNow();
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

/** The open head itself. */
function paintMatrix() {
  const said = `Heatmap of ${headTitle(nameNow())}; the lists of pieces say the same in words`;
  byId('matrix-canvas').setAttribute('aria-label', said);
  const layer = layersNow()[view.open.layer];
  paint(byId('matrix-canvas'), weightsOf(layer, view.open.index), layer.queries, layer.keys);
}

/** The row, and where a cell is meant the column, that is being looked at. */
function markMatrix() {
  const spot = spotNow();
  const query = spot?.side === 'query' ? spot.index : spot?.other;
  const key = spot?.side === 'key' ? spot.index : spot?.other;
  markBand('row', query, 'top', 'height');
  markBand('column', key, 'left', 'width');
  byId('cell').replaceChildren(...(query === undefined || key === undefined ? [hint()] : cellText(query, key)));
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

function hint() {
  return make('span', { class: 'muted' }, 'Point at a cell to read its weight.');
}

/** @param {number} query @param {number} key */
function cellText(query, key) {
  const { queries, keys } = axesNow();
  const weights = weightsOf(layersNow()[view.open.layer], view.open.index);
  const weight = (weights[query * keys.length + key] / FULL).toFixed(4);
  return [quoted(queries[query]), ' attends to ', quoted(keys[key]), ' ', make('strong', {}, weight)];
}

function listenToMatrix() {
  const canvas = byId('matrix-canvas');
  canvas.addEventListener('pointermove', (/** @type {PointerEvent} */ event) => {
    const { queries, keys } = axesNow();
    const box = canvas.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left) / box.width) * keys.length);
    const row = Math.floor(((event.clientY - box.top) / box.height) * queries.length);
    if (queries[row] !== undefined && keys[column] !== undefined) hover({ side: 'query', index: row, other: column });
  });
  canvas.addEventListener('pointerleave', () => hover(null));
}
