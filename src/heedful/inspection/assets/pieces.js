// Subword tokens as text and as elements.
import { make } from './dom.js';

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
