// A picture in place of a text: where a head looks from one of its patches, drawn over the picture itself.
import { announce, byId, make, moveByArrowKeys } from './dom.js';
import { FULL, headTitle, weightsOf } from './attention.js';
import { currentHead, currentLayers, state } from './state.js';

/** @typedef {import('./attention.js').Layer} Layer */

export const ALL = -1; // the mean over all patches and the class token, in place of one of them
const SMALL = 64; // pixels of a head in the grid
const HEAT = '255 106 0'; // seen on white and on black, in both themes
const STRONGEST = 0.85; // opacity of the largest weight

/** @type {HTMLImageElement | null} */
let image = null;
let from = 0; // whose weights are drawn; the class token has number 0

/** @param {() => void} repaint called when the picture can be drawn */
export function renderPicture(repaint) {
  const { picture } = state.doc;
  byId('picture-box').hidden = !picture;
  byId('lines-box').hidden = !!picture;
  document.body.classList.toggle('is-picture', !!picture);
  byId('ranked-noun').textContent = picture ? 'picture' : 'sentence';
  byId('row-noun').textContent = picture ? 'patch' : 'token';
  byId('seen').hidden = !picture;
  if (!picture) return;
  const source = `data:image/png;base64,${picture.png}`;
  if (image?.src === source) return;
  from = picture.from;
  const loading = new Image();
  loading.src = source;
  loading.decode().then(() => {
    image = loading;
    repaint();
  }, () => {});
  byId('seen').replaceChildren(make('img', { src: source, alt: 'The picture' }));
  byId('picture-image').replaceChildren(make('img', { src: source, alt: '' }));
  const grid = byId('picture');
  grid.style.setProperty('--across', String(picture.across));
  const rows = Array.from({ length: picture.across }, (_, row) => Array.from({ length: picture.across }, (__, column) => patchNode(row * picture.across + column + 1)));
  grid.replaceChildren(...rows.map((patches) => make('div', { role: 'row' }, ...patches.map((patch) => make('div', { role: 'gridcell' }, patch)))));
  moveByArrowKeys(grid, rows);
}

/** @param {number} number of a patch, from 1 */
function patchNode(number) {
  return make('button', { type: 'button', class: 'patch', 'data-patch': number });
}

/** @param {number} number */
function nameOf(number) {
  if (number === ALL) return 'all patches, on average';
  const piece = state.doc.source.pieces[number];
  const place = /^(\d+),(\d+)$/.exec(piece);
  return place ? `row ${place[1]}, column ${place[2]}` : piece;
}

/** What one patch gives to all, or all on average. @param {Layer} layer @param {number} index @returns {number[]} */
function sharesOf(layer, index) {
  const weights = weightsOf(layer, index);
  const { keys, queries } = layer;
  if (from !== ALL) return Array.from({ length: keys }, (_, key) => weights[from * keys + key] / FULL);
  return Array.from({ length: keys }, (_, key) => {
    let sum = 0;
    for (let query = 0; query < queries; query++) sum += weights[query * keys + key];
    return sum / queries / FULL;
  });
}

/** A head in the grid: the picture, and its weights over it. @param {HTMLCanvasElement} canvas @param {Layer} layer @param {number} index */
export function paintSmall(canvas, layer, index) {
  const { across } = state.doc.picture ?? { across: 1 };
  const cell = Math.max(1, Math.round(SMALL / across));
  canvas.width = canvas.height = cell * across;
  const context = canvas.getContext('2d');
  if (!context || !image) return;
  context.imageSmoothingEnabled = false;
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  const shares = sharesOf(layer, index).slice(1);
  const largest = Math.max(...shares, 1e-9);
  shares.forEach((share, i) => {
    context.fillStyle = `rgb(${HEAT} / ${((STRONGEST * share) / largest).toFixed(3)})`;
    context.fillRect((i % across) * cell, Math.floor(i / across) * cell, cell, cell);
  });
}

/** The open head, large. */
export function paintPicture() {
  if (!state.doc.picture) return;
  const { across } = state.doc.picture;
  const shares = sharesOf(currentLayers()[state.open.layer], state.open.index);
  const largest = Math.max(...shares.slice(1), 1e-9);
  for (const button of byId('picture').querySelectorAll('button')) {
    const number = Number(button.dataset.patch);
    button.style.setProperty('--share', ((STRONGEST * shares[number]) / largest).toFixed(3));
    button.setAttribute('aria-label', `${nameOf(number)}: ${shares[number].toFixed(3)}`);
    button.title = `${nameOf(number)}: ${shares[number].toFixed(3)}`;
    button.setAttribute('aria-pressed', String(number === from));
  }
  byId('from-class').setAttribute('aria-pressed', String(from === 0));
  byId('from-all').setAttribute('aria-pressed', String(from === ALL));
  const best = shares.indexOf(largest, 1);
  byId('picture-says').replaceChildren(
    'From ', make('strong', {}, nameOf(from)), `, ${headTitle(currentHead())} gives most to ${nameOf(best)}: `, make('strong', {}, largest.toFixed(3)),
    `. To [CLS] it gives ${shares[0].toFixed(3)}. If it looked everywhere alike, each would get ${(1 / (across * across + 1)).toFixed(3)}.`,
  );
}

/** @param {() => void} repaint called when another patch was chosen */
export function listenToPicture(repaint) {
  const choose = (/** @type {number} */ number) => {
    from = number;
    repaint();
    announce(byId('picture-says').textContent ?? '');
  };
  byId('picture').addEventListener('click', (event) => {
    const button = event.target instanceof Element ? event.target.closest('.patch') : null;
    if (button instanceof HTMLElement) choose(Number(button.dataset.patch));
  });
  byId('from-class').addEventListener('click', () => choose(0));
  byId('from-all').addEventListener('click', () => choose(ALL));
}
