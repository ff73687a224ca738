// @ts-check
'use strict';

// From no weight, which is the colour of the paper, to all of it.
const RAMPS = {
  light: [[255, 255, 255], [205, 222, 240], [121, 170, 216], [36, 107, 176], [8, 42, 92]],
  dark: [[25, 29, 36], [27, 58, 94], [52, 118, 178], [148, 200, 242], [248, 252, 255]],
};

/** @type {Map<string, Uint32Array>} a colour for each of the 65536 weights, so that a pixel costs one lookup */
const palettes = new Map();

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
}

/** @returns {Uint32Array} */
function palette() {
  const theme = isDark() ? 'dark' : 'light';
  let colours = palettes.get(theme);
  if (colours) return colours;
  colours = Uint32Array.from({ length: FULL + 1 }, (_, i) => shade(RAMPS[theme], i));
  palettes.set(theme, colours);
  return colours;
}

/**
 * The square root lifts small weights, of which a broad head is made, out of the paper.
 * @param {number[][]} ramp
 * @param {number} value
 */
function shade(ramp, value) {
  const place = Math.sqrt(value / FULL) * (ramp.length - 1);
  const low = Math.min(Math.floor(place), ramp.length - 2);
  const mixed = ramp[low].map((from, i) => Math.round(from + (ramp[low + 1][i] - from) * (place - low)));
  const [red, green, blue] = mixed;
  return (255 << 24) | (blue << 16) | (green << 8) | red; // a canvas keeps its bytes in this order
}

/**
 * One pixel a weight; CSS makes it large.
 * @param {HTMLCanvasElement} canvas
 * @param {ArrayLike<number>} weights
 * @param {number} rows
 * @param {number} columns
 */
function paint(canvas, weights, rows, columns) {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext('2d');
  if (!context || !rows || !columns) return;
  const image = context.createImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  const colours = palette();
  for (let i = 0; i < pixels.length; i++) pixels[i] = colours[weights[i]];
  context.putImageData(image, 0, 0);
}

/** The scale beside the grid: every colour that a weight can have. */
function paintScale() {
  paint(byId('scale'), Uint16Array.from({ length: 101 }, (_, i) => Math.round((i / 100) * FULL)), 1, 101);
}

/** Pixels do not follow a style sheet. */
function repaint() {
  paintScale();
  if (!isShown()) return;
  paintGrid();
  paintMatrix();
}
