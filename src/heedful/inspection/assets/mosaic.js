// A picture and its patches, on the page of `heedful explain`.
import { findAll, make, moveByArrowKeys } from './dom.js';
import { Heatmap } from './heatmap.js';
import { matrixOf, show } from './numbers.js';

/** @typedef {import('./numbers.js').ExplanationDocument} ExplanationDocument */
/** @typedef {import('./numbers.js').Matrix} Matrix */
/** @typedef {import('./numbers.js').Picture} Picture */

const STRONGEST = 0.85; // opacity of the largest weight

/** @param {string} name of a patch: its row and its column */
function placeOf(name) {
  const [row, column] = name.split(',');
  return column ? `row ${row}, column ${column}` : name;
}

/** @param {Picture} picture @param {(HTMLElement)[]} cells @param {string} label */
function mosaic(picture, cells, label) {
  const box = make('div', { class: 'mosaic', role: 'group', 'aria-label': label }, make('img', { alt: '', src: `data:image/png;base64,${picture.png}` }), ...cells);
  box.style.setProperty('--across', String(picture.across));
  return box;
}

/** A small picture of one head: where it looks first. @param {HTMLElement} node @param {Picture} picture @param {Matrix} weights */
export function paintMini(node, picture, weights) {
  const rows = picture.from < 0 ? Array.from({ length: weights.rows }, (_, i) => i) : [picture.from];
  const shares = Array.from({ length: weights.columns - 1 }, (_, k) => rows.reduce((sum, row) => sum + weights.at(row, k + 1), 0) / rows.length);
  const largest = Math.max(...shares, 1e-9);
  const cells = shares.map((share) => {
    const cell = make('span');
    cell.style.setProperty('--share', ((STRONGEST * share) / largest).toFixed(3));
    return cell;
  });
  node.append(mosaic(picture, cells, `Most: ${largest.toFixed(2)}`));
}

/**
 * Where one patch looks, over the picture; another patch can be chosen.
 * @param {HTMLElement} box
 * @param {Picture} picture
 * @param {string[]} pieces
 * @param {number} row the patch that looks, or [CLS]
 * @param {number[]} weights
 * @param {(row: number) => void} choose
 */
export function drawMosaic(box, picture, pieces, row, weights, choose) {
  if (!box.firstElementChild) {
    const cells = pieces.slice(1).map(() => make('button', { type: 'button' }));
    const first = make('button', { type: 'button', class: 'button' }, pieces[0]);
    box.append(make('p', {}, first), mosaic(picture, cells, 'The weights of the patches'), make('p', { class: 'muted' }));
    first.addEventListener('click', () => choose(0));
    for (const [i, cell] of cells.entries()) cell.addEventListener('click', () => choose(i + 1));
    const lines = Array.from({ length: picture.across }, (_, i) => cells.slice(i * picture.across, (i + 1) * picture.across));
    const grid = /** @type {HTMLElement} */ (box.children[1]);
    moveByArrowKeys(grid, lines);
    grid.addEventListener('keydown', (event) => event.key.startsWith('Arrow') && event.stopPropagation());
  }
  const largest = Math.max(...weights.slice(1), 1e-9);
  const cells = findAll('button', box.children[1]);
  for (const [i, cell] of cells.entries()) {
    cell.style.setProperty('--share', ((STRONGEST * weights[i + 1]) / largest).toFixed(3));
    cell.classList.toggle('chosen', i + 1 === row);
    cell.setAttribute('aria-label', `${placeOf(pieces[i + 1])}: ${weights[i + 1].toFixed(3)}`);
    cell.title = `${placeOf(pieces[i + 1])}: ${weights[i + 1].toFixed(3)}`;
  }
  const best = weights.indexOf(largest, 1);
  box.children[2].textContent = `${placeOf(pieces[row])} looks most at ${placeOf(pieces[best] ?? '')}: ${largest.toFixed(3)}. The strongest colour is the largest weight; click a patch to see where it looks.`;
}

/** The picture cut into patches, and the numbers of one. @param {HTMLElement} figure @param {ExplanationDocument} doc */
export function drawPatches(figure, doc) {
  const { picture } = doc;
  if (!picture) return;
  const values = matrixOf(doc, 'encoder.patches');
  const side = Math.round(Math.sqrt(values.columns / (doc.source.channels ?? 1)));
  const names = doc.source.pieces.slice(1);
  const title = make('h3');
  const readout = make('p', { class: 'readout', role: 'status' });
  let chosen = Math.floor(names.length / 2);
  const at = (/** @type {number} */ row, /** @type {number} */ column) => values.at(chosen, row * side + column);
  const labels = Array.from({ length: side }, (_, i) => String(i + 1));
  const say = () => {
    const value = at(map.row, map.column);
    readout.replaceChildren(`pixel in row ${map.row + 1}, column ${map.column + 1}: ${Math.round((value + 1) * 127.5)} / 127.5 − 1 = `, make('strong', {}, show(value)));
  };
  const map = new Heatmap({ label: 'The pixels of the patch', rows: labels, columns: labels, value: at, kind: 'signed', onSelect: say });
  const cells = names.map((name) => make('button', { type: 'button', 'aria-label': placeOf(name) }));
  const grid = mosaic(picture, cells, 'The patches');
  const choose = (/** @type {number} */ number) => {
    chosen = number;
    cells.forEach((cell, i) => cell.classList.toggle('chosen', i === chosen));
    title.textContent = `The patch in ${placeOf(names[chosen])}${values.columns > side * side ? ', its red' : ''}`;
    map.change(at, 'signed');
    say();
  };
  for (const [i, cell] of cells.entries()) cell.addEventListener('click', () => choose(i));
  moveByArrowKeys(grid, Array.from({ length: picture.across }, (_, i) => cells.slice(i * picture.across, (i + 1) * picture.across)), cells[chosen]);
  grid.addEventListener('keydown', (event) => event.key.startsWith('Arrow') && event.stopPropagation());
  figure.append(make('div', { class: 'beside' }, grid, make('div', {}, title, make('div', { class: 'scroll' }, map.node), readout)));
  choose(chosen);
}
