// The translation, and the probability of each of its tokens.
import { announce, byId, make, moveByArrowKeys } from './dom.js';
import { pieceNode, pieceText, quotePiece } from './drawing.js';
import { state } from './state.js';

/** @typedef {import('./attention.js').Alternative} Alternative */
/** @typedef {import('./attention.js').Hypothesis} Hypothesis */

export function renderTranslation() {
  const { source, hypotheses } = state.doc;
  const hypothesis = hypotheses[state.hypothesis];
  byId('source-text').textContent = source.text;
  byId('target-text').textContent = hypothesis.text;
  byId('unfinished').hidden = hypothesis.finished;
  const select = byId('hypothesis', HTMLSelectElement);
  const choices = hypotheses.map((each, i) => `${i + 1}.  ${(each.score ?? each.log_prob).toFixed(3)}  ${each.text}`);
  select.replaceChildren(...choices.map((text, i) => make('option', { value: i }, text)));
  select.value = String(state.hypothesis);
  byId('hypotheses').hidden = hypotheses.length < 2;
  const score = hypothesis.score === undefined ? 'L' : `Score ${hypothesis.score.toFixed(3)}, l`;
  byId('score').textContent = `${score}og probability ${hypothesis.log_prob.toFixed(3)}`;
  const [read, written] = state.doc.titles ?? (hypothesis.read ? ['Prompt', 'Continuation'] : ['Source', 'Translation']);
  byId('source-label').textContent = read;
  byId('target-label').textContent = written;
  const { asked } = hypothesis;
  byId('tokens-title').textContent = asked ? 'Answers' : 'Tokens';
  byId('tokens-hint').textContent = asked ? 'How probable each answer is. Select one to see the alternatives.' : 'The model’s probability for each token that it generated. Select a token to see the alternatives.';
  byId('stepping').hidden = !!asked;
  renderTokens(hypothesis);
  if (asked?.length === 1) showAlternatives(0);
}

/** @param {Hypothesis} hypothesis */
function renderTokens(hypothesis) {
  const chips = hypothesis.pieces.map((piece, i) => {
    const probability = hypothesis.tokens[i].probability;
    const about = hypothesis.asked?.[i] ?? '';
    const chip = make('li', { role: 'option', class: 'chip', 'data-index': i },
      ...(about ? [make('bdi', { class: 'about' }, about)] : []), pieceNode(piece), make('span', { class: 'unseen' }, ', probability '),
      make('span', { class: 'weight' }, probability.toFixed(2)));
    chip.style.setProperty('--weight', `${Math.round(probability * 32)}%`);
    return chip;
  });
  byId('produced').replaceChildren(...chips);
  moveByArrowKeys(byId('produced'), [chips]);
  showAlternatives(-1);
}

/** @param {number} index of a token; -1 shows none */
function showAlternatives(index) {
  const { pieces, tokens, asked } = state.doc.hypotheses[state.hypothesis];
  const token = tokens[index];
  [...byId('produced').children].forEach((chip, i) => chip.setAttribute('aria-selected', String(i === index)));
  byId('alternatives').hidden = !token;
  if (!token) return;
  const about = asked ? asked[index] : pieces[index];
  byId('alternatives-of').replaceChildren(asked ? 'Most likely answers' : 'Most likely tokens', ...(about ? [asked ? ' for ' : ' at ', quotePiece(about)] : []));
  const rows = token.alternatives.map((each) => alternativeNode(each, each.piece === pieces[index]));
  byId('alternatives-list').replaceChildren(...rows);
  const told = token.alternatives.map(({ piece, probability }) => `'${pieceText(piece)}' ${probability.toFixed(2)}`);
  announce(`Most likely ${asked ? 'answers' : 'tokens'}: ${told.join(', ')}`);
}

/** @param {Alternative} alternative @param {boolean} isWritten */
function alternativeNode({ piece, probability }, isWritten) {
  const bar = make('span', { class: 'bar', 'aria-hidden': true });
  bar.style.setProperty('--weight', `${probability * 100}%`);
  const number = make('span', { class: 'weight' }, probability.toFixed(3));
  return make('li', { class: isWritten ? 'written' : '' }, pieceNode(piece), bar, number);
}

/** @param {(hypothesis: number) => void} selectHypothesis */
export function listenToTranslation(selectHypothesis) {
  byId('produced').addEventListener('focusin', (event) => {
    const chip = event.target instanceof Element ? event.target.closest('.chip') : null;
    if (chip instanceof HTMLElement) showAlternatives(Number(chip.dataset.index));
  });
  const select = byId('hypothesis', HTMLSelectElement);
  select.addEventListener('change', () => selectHypothesis(Number(select.value)));
}
