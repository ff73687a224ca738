// Weights as colours, and subword tokens as text and elements.
import { byId, make } from './dom.js';
import { isDark } from './theme.js';
import { FULL } from './attention.js';

// From no weight, which has the colour of the background, to all of it.
const RAMPS = {
  light: [[255, 255, 255], [205, 222, 240], [121, 170, 216], [36, 107, 176], [8, 42, 92]],
  dark: [[25, 29, 36], [27, 58, 94], [52, 118, 178], [148, 200, 242], [248, 252, 255]],
};

/** @type {Map<string, Uint32Array>} a colour for each of the 65536 weights, so that a pixel costs one lookup */
const palettes = new Map();

function currentPalette() {
  const theme = isDark() ? 'dark' : 'light';
  let colours = palettes.get(theme);
  if (!colours) {
    colours = Uint32Array.from({ length: FULL + 1 }, (_, i) => mixColour(RAMPS[theme], i));
    palettes.set(theme, colours);
  }
  return colours;
}

/**
 * The square root makes small weights visible: a broad head has no others.
 * @param {number[][]} ramp
 * @param {number} value
 */
function mixColour(ramp, value) {
  const place = Math.sqrt(value / FULL) * (ramp.length - 1);
  const low = Math.min(Math.floor(place), ramp.length - 2);
  const mixed = ramp[low].map((from, i) => Math.round(from + (ramp[low + 1][i] - from) * (place - low)));
  const [red, green, blue] = mixed;
  return (255 << 24) | (blue << 16) | (green << 8) | red; // the byte order of a canvas
}

/**
 * Paints one pixel for each weight; CSS scales it up.
 * @param {HTMLCanvasElement} canvas
 * @param {ArrayLike<number>} weights
 * @param {number} rows
 * @param {number} columns
 */
export function paintWeights(canvas, weights, rows, columns) {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext('2d');
  if (!context || !rows || !columns) return;
  const image = context.createImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  const colours = currentPalette();
  for (let i = 0; i < pixels.length; i++) pixels[i] = colours[weights[i]];
  context.putImageData(image, 0, 0);
}

/** The colour scale beside the grid. */
export function paintScale() {
  const steps = Uint16Array.from({ length: 101 }, (_, i) => Math.round((i / 100) * FULL));
  paintWeights(byId('scale', HTMLCanvasElement), steps, 1, 101);
}

/** @param {string} piece @returns {string} without the mark that stands for a space */
export function pieceText(piece) {
  return piece.replaceAll('▁', ' ').trim() || piece;
}

/** @param {string} piece @returns {HTMLElement} isolated, so that right-to-left text does not reorder what is around it */
export function pieceNode(piece) {
  const node = make('bdi', { class: piece === '</s>' || piece === '<s>' ? 'piece special' : 'piece' });
  const rest = piece.startsWith('▁') && piece !== '▁' ? piece.slice(1) : piece;
  if (rest !== piece) node.append(make('span', { class: 'space', 'aria-hidden': true }, '▁'));
  node.append(rest);
  return node;
}

/** @param {string} piece */
export function quotePiece(piece) {
  return make('bdi', {}, `'${pieceText(piece)}'`);
}
