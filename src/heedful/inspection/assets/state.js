// What the explorer shows now.
import { axesOf, headName, kindsOf, layersOf } from './attention.js';

/** @typedef {import('./attention.js').AttentionDocument} AttentionDocument */
/** @typedef {import('./attention.js').Kind} Kind */
/** @typedef {import('./attention.js').Place} Place */
/** @typedef {{side: 'query' | 'key', index: number, other?: number}} Spot a token, and in the heatmap a cell */

/**
 * @type {{doc: AttentionDocument, kind: Kind, hypothesis: number, open: Place, pins: Map<string, number>,
 *         off: Set<string>, hovered: Spot | null, selected: Spot | null, written: number}}
 */
export const state = {
  doc: /** @type {any} */ (null), // until the first document is shown
  kind: 'encoder',
  hypothesis: 0,
  open: { layer: 0, index: 0 },
  pins: new Map(), // heads whose lines are overlaid, and the slots of their colours
  off: new Set(),
  hovered: null,
  selected: null,
  written: Infinity, // pieces of the translation that are shown: the decoder's steps after them are blank
};

export const currentLayers = () => layersOf(state.doc, state.kind, state.hypothesis);
export const currentAxes = () => axesOf(state.doc, state.kind, state.hypothesis);
export const currentHead = () => headName(state.kind, state.open);
export const currentSpot = () => state.hovered ?? state.selected;
export const hasHeads = () => state.doc !== null && kindsOf(state.doc, state.hypothesis).length > 0;

/** The rows before the one that writes the first token: those of a prompt. */
export const rowsBefore = () => currentAxes().queries.length - state.doc.hypotheses[state.hypothesis].pieces.length;

/** @param {Uint16Array} weights @returns {Uint16Array} without the rows of steps that are not shown yet */
export function writtenRows(weights) {
  const shown = state.kind === 'encoder' ? weights.length : (rowsBefore() + state.written) * currentAxes().keys.length;
  if (shown >= weights.length) return weights;
  const rows = weights.slice();
  return rows.fill(0, shown);
}

/** @type {(() => void)[]} */
const spotListeners = [];
let isScheduled = false;

/** @param {() => void} listener called before the next frame after the spot has changed */
export function onSpotChange(listener) {
  spotListeners.push(listener);
}

/** Redraws what depends on the spot, once for each frame: a pointer moves more often. */
export function redrawSpot() {
  if (isScheduled) return;
  isScheduled = true;
  requestAnimationFrame(() => {
    isScheduled = false;
    if (hasHeads()) spotListeners.forEach((listener) => listener());
  });
}

/** @param {Spot | null} spot */
export function hoverSpot(spot) {
  const { hovered } = state;
  if (spot?.side === hovered?.side && spot?.index === hovered?.index && spot?.other === hovered?.other) return;
  state.hovered = spot;
  redrawSpot();
}
