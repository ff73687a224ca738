// The document that Python gives to the page, and the weights in it.

/** @typedef {'encoder' | 'decoder' | 'cross'} Kind */
/** @typedef {{heads: number, queries: number, keys: number, weights: string}} Layer */
/** @typedef {{piece: string, probability: number}} Alternative */
/** @typedef {{probability: number, alternatives: Alternative[]}} Token */
/**
 * @typedef {{text: string, score?: number, log_prob: number, finished: boolean, pieces: string[], tokens: Token[],
 *            read?: string[], asked?: string[], decoder: Layer[], cross: Layer[]}} Hypothesis `read` are the tokens that
 *            a model without an encoder reads as one text: its prompt, and its continuation except for the last token;
 *            `asked` is what each answer of a model without a decoder is about, or nothing if it is about the whole
 */
/**
 * @typedef {{format: number, model: string, source: {text: string, pieces: string[]}, encoder: Layer[],
 *            hypotheses: Hypothesis[], inputs_start: string, roles: Record<string, {name: string, evidence: string}>,
 *            off: string[], baseline: string | null, live: boolean, examples?: string[],
 *            costs?: Record<string, number>, titles?: [string, string],
 *            picture?: {png: string, across: number, from: number},
 *            shown?: string}} AttentionDocument `shown` is the translation on the page around the explorer, `costs`
 *            what the translation loses without each head, as a difference of log-probabilities; `titles` are those of
 *            what is read and written; `picture` has the number of its patches in each direction, and whose weights are
 *            shown first
 */
/** @typedef {{layer: number, index: number}} Place one head; the index MEAN is the average of its layer */

/** @type {Kind[]} */
const KINDS = ['encoder', 'decoder', 'cross'];
export const FULL = 65535; // a weight of one
export const MEAN = -1;

/** @param {AttentionDocument} doc @param {Kind} kind @param {number} hypothesis @returns {Layer[]} */
export function layersOf(doc, kind, hypothesis) {
  return kind === 'encoder' ? doc.encoder : (doc.hypotheses[hypothesis]?.[kind] ?? []);
}

/** @param {AttentionDocument} doc @param {number} hypothesis the attention kinds that this model has */
export function kindsOf(doc, hypothesis) {
  return KINDS.filter((kind) => layersOf(doc, kind, hypothesis).some((layer) => layer.heads > 0));
}

/**
 * The tokens on both axes. The inputs of a decoder are its outputs, one step later.
 * @param {AttentionDocument} doc
 * @param {Kind} kind
 * @param {number} hypothesis
 */
export function axesOf(doc, kind, hypothesis) {
  if (kind === 'encoder') return { queries: doc.source.pieces, keys: doc.source.pieces };
  const { pieces, read } = doc.hypotheses[hypothesis];
  if (read) return { queries: read, keys: read }; // prompt and continuation are one text
  if (kind === 'cross') return { queries: pieces, keys: doc.source.pieces };
  return { queries: pieces, keys: [doc.inputs_start, ...pieces.slice(0, -1)] };
}

/** @type {WeakMap<Layer, Map<number, Uint16Array>>} layers that were shown; the others stay base64 */
const decoded = new WeakMap();

/** @param {Layer} layer @returns {Map<number, Uint16Array>} heads by index, and MEAN */
function decodeLayer(layer) {
  const text = atob(layer.weights);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const all = new Uint16Array(bytes.buffer);
  const size = layer.queries * layer.keys;
  const sums = new Float64Array(size);
  /** @type {Map<number, Uint16Array>} */
  const heads = new Map();
  for (let head = 0; head < layer.heads; head++) {
    const weights = all.subarray(head * size, (head + 1) * size);
    for (let i = 0; i < size; i++) sums[i] += weights[i];
    heads.set(head, weights);
  }
  return heads.set(MEAN, Uint16Array.from(sums, (sum) => Math.round(sum / layer.heads)));
}

/** @param {Layer} layer @param {number} index @returns {Uint16Array} row by row, FULL is a weight of one */
export function weightsOf(layer, index) {
  let heads = decoded.get(layer);
  if (!heads) decoded.set(layer, (heads = decodeLayer(layer)));
  return /** @type {Uint16Array} */ (heads.get(index));
}

/** @param {Kind} kind @param {Place} place @returns {string} as on the command line: cross.2.3 */
export function headName(kind, { layer, index }) {
  return `${kind}.${layer + 1}.${index === MEAN ? 'mean' : index + 1}`;
}

/** @param {string} name @returns {Place} */
export function placeOf(name) {
  const [, layer, index] = name.split('.');
  return { layer: Number(layer) - 1, index: index === 'mean' ? MEAN : Number(index) - 1 };
}

/** @param {string} name @returns {string} */
export function headTitle(name) {
  const [kind, layer, index] = name.split('.');
  return `${kind} layer ${layer} ${index === 'mean' ? 'mean' : `head ${index}`}`;
}

/**
 * The highest weights in one row or one column of a head, the highest first.
 * @param {Uint16Array} weights
 * @param {number} keys
 * @param {{side: 'query' | 'key', index: number}} spot
 * @param {number} least
 */
export function findStrongest(weights, keys, spot, least) {
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
