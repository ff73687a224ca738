// The recorded numbers of a page.

/**
 * @typedef {{ shape: number[], scale: number, data: string }} PackedMatrix
 * @typedef {{ piece: string, probability: number, logit?: number }} Likely
 * @typedef {{ piece: string, probability: number, share: number, kept: boolean, scaled: number, noise: number, won: boolean }} Draw
 * @typedef {{
 *   model: string,
 *   live: boolean,
 *   source: { text: string, pieces: string[] },
 *   target: { text: string, pieces: string[] },
 *   inputs: string[],
 *   norm: 'pre' | 'post',
 *   activation: string,
 *   scale: number,
 *   columns: { d_model: number, d_ff: number },
 *   likeliest: Likely[][],
 *   first_written: number,
 *   draws?: Draw[][],
 *   matrices: Record<string, PackedMatrix>,
 *   path: string[],
 *   tour: { step: string, story: string }[],
 * }} ExplanationDocument
 */

/** A matrix of numbers, or one head of several. */
export class Matrix {
  /** @param {Int16Array} values @param {number} scale @param {number} rows @param {number} columns @param {number} start */
  constructor(values, scale, rows, columns, start) {
    this.values = values;
    this.scale = scale;
    this.rows = rows;
    this.columns = columns;
    this.start = start;
  }

  /** @param {number} row @param {number} column */
  at(row, column) {
    return this.values[this.start + row * this.columns + column] * this.scale;
  }

  /** @param {number} row @returns {number[]} */
  row(row) {
    return Array.from({ length: this.columns }, (_, column) => this.at(row, column));
  }
}

/** @type {Map<string, Int16Array>} */
const unpacked = new Map();

/** @param {string} text */
function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Int16Array.from({ length: bytes.length / 2 }, (_, i) => view.getInt16(2 * i, true));
}

/**
 * @param {ExplanationDocument} doc
 * @param {string} name
 * @param {number} [head]
 * @returns {Matrix | undefined}
 */
export function findMatrix(doc, name, head = 0) {
  const packed = doc.matrices[name];
  if (!packed) return undefined;
  let values = unpacked.get(name);
  if (!values) {
    values = unpack(packed.data);
    unpacked.set(name, values);
  }
  const [rows, columns] = packed.shape.slice(-2);
  return new Matrix(values, packed.scale, rows, columns, packed.shape.length === 3 ? head * rows * columns : 0);
}

/** @param {ExplanationDocument} doc @param {string} name @param {number} [head] @returns {Matrix} */
export function matrixOf(doc, name, head = 0) {
  const found = findMatrix(doc, name, head);
  if (!found) throw new Error(`the page has no numbers with the name ${name}`);
  return found;
}

/** @param {number} value @param {number} [digits] */
export function show(value, digits = 3) {
  if (value === -Infinity) return '−∞';
  const size = Math.abs(value);
  const written = value.toFixed(size < 10 ? digits : size < 100 ? Math.min(digits, 2) : Math.min(digits, 1));
  return Number(written) ? written.replace('-', '−') : written.replace('-', ''); // no minus before a zero
}
