// @ts-check
'use strict';

/** @typedef {'encoder' | 'decoder' | 'cross'} Kind */
/** @typedef {{heads: number, queries: number, keys: number, weights: string}} Layer */
/** @typedef {{piece: string, probability: number}} Alternative */
/** @typedef {{probability: number, alternatives: Alternative[]}} Token */
/**
 * @typedef {{text: string, score: number, log_prob: number, finished: boolean, pieces: string[], tokens: Token[],
 *            decoder: Layer[], cross: Layer[]}} Hypothesis
 */
/**
 * @typedef {{format: number, model: string, source: {text: string, pieces: string[]}, encoder: Layer[],
 *            hypotheses: Hypothesis[], inputs_start: string, roles: Record<string, {name: string, evidence: string}>,
 *            off: string[], baseline: string | null, live: boolean}} AttentionDocument
 */
/** @typedef {{layer: number, index: number}} Place one head; index MEAN is the average of its layer */
/** @typedef {{side: 'query' | 'key', index: number, other?: number}} Spot a piece, and in the heatmap a cell */
/** @typedef {{name: string, title: string, slot: number, shift: number, weights: Uint16Array}} Shown */

/** @type {Kind[]} */
const KINDS = ['encoder', 'decoder', 'cross'];
const KIND_TITLES = { encoder: 'Encoder', decoder: 'Decoder', cross: 'Cross' };
const KIND_HINTS = {
  encoder: 'Each piece of the source looks at every piece of the source.',
  decoder: 'Each step that wrote a piece looks at what had been written before it.',
  cross: 'Each step that wrote a piece looks at the pieces of the source.',
};
const FULL = 65535;
const MEAN = -1;

/** @param {AttentionDocument} doc @param {Kind} kind @param {number} hypothesis @returns {Layer[]} */
function layersOf(doc, kind, hypothesis) {
  return kind === 'encoder' ? doc.encoder : (doc.hypotheses[hypothesis]?.[kind] ?? []);
}

/** @param {AttentionDocument} doc @param {number} hypothesis @returns {Kind[]} the attentions that this model has */
function kindsOf(doc, hypothesis) {
  return KINDS.filter((kind) => layersOf(doc, kind, hypothesis).some((layer) => layer.heads > 0));
}

/**
 * The pieces on both axes. A decoder's inputs are its outputs, one step later.
 * @param {AttentionDocument} doc
 * @param {Kind} kind
 * @param {number} hypothesis
 */
function axesOf(doc, kind, hypothesis) {
  if (kind === 'encoder') return { queries: doc.source.pieces, keys: doc.source.pieces };
  const written = doc.hypotheses[hypothesis].pieces;
  if (kind === 'cross') return { queries: written, keys: doc.source.pieces };
  return { queries: written, keys: [doc.inputs_start, ...written.slice(0, -1)] };
}

/** @type {WeakMap<Layer, Map<number, Uint16Array>>} layers that were looked at; the others stay base64 */
const decoded = new WeakMap();

/** @param {Layer} layer @returns {Map<number, Uint16Array>} heads by index, and MEAN */
function decode(layer) {
  const text = atob(layer.weights);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const all = new Uint16Array(bytes.buffer);
  const size = layer.queries * layer.keys;
  const sums = new Float64Array(size);
  const heads = new Map();
  for (let head = 0; head < layer.heads; head++) {
    const weights = all.subarray(head * size, (head + 1) * size);
    for (let i = 0; i < size; i++) sums[i] += weights[i];
    heads.set(head, weights);
  }
  return heads.set(MEAN, Uint16Array.from(sums, (sum) => Math.round(sum / layer.heads)));
}

/** @param {Layer} layer @param {number} index @returns {Uint16Array} row by row, FULL is a weight of one */
function weightsOf(layer, index) {
  let heads = decoded.get(layer);
  if (!heads) decoded.set(layer, (heads = decode(layer)));
  return /** @type {Uint16Array} */ (heads.get(index));
}

/** @param {Kind} kind @param {Place} place @returns {string} as the command line names it: cross.2.3 */
function headName(kind, { layer, index }) {
  return `${kind}.${layer + 1}.${index === MEAN ? 'mean' : index + 1}`;
}

/** @param {string} name @returns {string} */
function headTitle(name) {
  const [kind, layer, index] = name.split('.');
  return `${kind} layer ${layer} ${index === 'mean' ? 'mean' : `head ${index}`}`;
}

/**
 * One row, or one column, of a head: the pieces that matter most in it, the best first.
 * @param {Uint16Array} weights
 * @param {number} keys
 * @param {Spot} spot
 * @param {number} least
 */
function strongest(weights, keys, spot, least) {
  const found = [];
  const start = spot.side === 'query' ? spot.index * keys : spot.index;
  const step = spot.side === 'query' ? 1 : keys;
  const count = spot.side === 'query' ? keys : weights.length / keys;
  for (let i = 0; i < count; i++) {
    const weight = weights[start + i * step] / FULL;
    if (weight >= least) found.push({ index: i, weight });
  }
  return found.sort((a, b) => b.weight - a.weight);
}

/** @param {string} piece @returns {string} a piece as one would say it, without the mark of a space */
function spoken(piece) {
  return piece.replaceAll('▁', ' ').trim() || piece;
}

/**
 * An element. Strings among the children become text nodes: what a model says is never markup.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Record<string, string | number | boolean>} [attributes]
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[T]}
 */
function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  node.append(...children);
  return node;
}

/** @param {string} id @returns {any} an element of page.html */
function byId(id) {
  return document.getElementById(id);
}

/** @param {string} piece @returns {HTMLElement} isolated, so that right-to-left text turns nothing around it */
function pieceNode(piece) {
  const node = make('bdi', { class: piece === '</s>' || piece === '<s>' ? 'piece special' : 'piece' });
  const rest = piece.startsWith('▁') && piece !== '▁' ? piece.slice(1) : piece;
  if (rest !== piece) node.append(make('span', { class: 'space', 'aria-hidden': true }, '▁'));
  node.append(rest);
  return node;
}

/**
 * One tab stop for many elements: arrow keys move among them.
 * @param {HTMLElement} container
 * @param {HTMLElement[][]} rows
 * @param {HTMLElement} [current]
 */
function rove(container, rows, current = rows[0]?.[0]) {
  const items = rows.flat();
  for (const item of items) {
    item.tabIndex = item === current ? 0 : -1;
    item.addEventListener('focus', () => items.forEach((each) => (each.tabIndex = each === item ? 0 : -1)));
  }
  container.onkeydown = (event) => {
    const row = rows.findIndex((items) => items.includes(/** @type {HTMLElement} */ (event.target)));
    if (row < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    const next = neighbour(rows, row, rows[row].indexOf(/** @type {HTMLElement} */ (event.target)), event.key);
    if (!next) return;
    event.preventDefault();
    next.focus();
  };
}

/**
 * @param {HTMLElement[][]} rows
 * @param {number} row
 * @param {number} column
 * @param {string} key
 * @returns {HTMLElement | undefined}
 */
function neighbour(rows, row, column, key) {
  const upright = rows.every((items) => items.length === 1);
  const level = rows.length === 1;
  if (level && key === 'ArrowDown') key = 'ArrowRight';
  if (level && key === 'ArrowUp') key = 'ArrowLeft';
  switch (key) {
    case 'ArrowLeft': return rows[row][column - 1];
    case 'ArrowRight': return rows[row][column + 1];
    case 'ArrowUp': return rows[row - 1]?.[Math.min(column, rows[row - 1].length - 1)];
    case 'ArrowDown': return rows[row + 1]?.[Math.min(column, rows[row + 1].length - 1)];
    case 'Home': return upright ? rows[0][0] : rows[row][0];
    case 'End': return upright ? rows[rows.length - 1][0] : rows[row][rows[row].length - 1];
  }
  return undefined;
}
