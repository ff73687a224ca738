// @ts-check
'use strict';

/** The sentence, the chosen hypothesis, and how sure the model was of each of its pieces. */
function renderTranslation() {
  const hypothesis = view.doc.hypotheses[view.hypothesis];
  byId('source-text').textContent = view.doc.source.text;
  byId('target-text').textContent = hypothesis.text;
  byId('unfinished').hidden = hypothesis.finished;
  const select = byId('hypothesis');
  const choices = view.doc.hypotheses.map((each, i) => `${i + 1}.  ${each.score.toFixed(3)}  ${each.text}`);
  select.replaceChildren(...choices.map((text, i) => make('option', { value: i }, text)));
  select.value = String(view.hypothesis);
  byId('hypotheses').hidden = view.doc.hypotheses.length < 2;
  byId('score').textContent = `score ${hypothesis.score.toFixed(3)}, log-probability ${hypothesis.log_prob.toFixed(3)}`;
  renderProduced(hypothesis);
}

/** @param {Hypothesis} hypothesis */
function renderProduced(hypothesis) {
  const chips = hypothesis.pieces.map((piece, i) => {
    const probability = hypothesis.tokens[i].probability;
    const label = `${spoken(piece)}, probability ${probability.toFixed(2)}`;
    const chip = make('li', { role: 'option', class: 'chip', 'aria-label': label, 'data-index': i },
      pieceNode(piece), make('span', { class: 'weight' }, probability.toFixed(2)));
    chip.style.setProperty('--weight', `${Math.round(probability * 32)}%`);
    return chip;
  });
  byId('produced').replaceChildren(...chips);
  rove(byId('produced'), [chips]);
  showAlternatives(-1);
}

/** @param {number} index of a piece; any other number shows none */
function showAlternatives(index) {
  const { pieces, tokens } = view.doc.hypotheses[view.hypothesis];
  const token = tokens[index];
  [...byId('produced').children].forEach((chip, i) => chip.setAttribute('aria-selected', String(i === index)));
  byId('alternatives').hidden = !token;
  if (!token) return;
  byId('alternatives-of').replaceChildren('Where it wrote ', quoted(pieces[index]), ' the model considered');
  const rows = token.alternatives.map((each) => alternative(each, each.piece === pieces[index]));
  byId('alternatives-list').replaceChildren(...rows);
  const said = token.alternatives.map(({ piece, probability }) => `'${spoken(piece)}' ${probability.toFixed(2)}`);
  announce(`The model considered ${said.join(', ')}`);
}

/** @param {Alternative} each @param {boolean} written */
function alternative({ piece, probability }, written) {
  const bar = make('span', { class: 'bar', 'aria-hidden': true });
  bar.style.setProperty('--weight', `${probability * 100}%`);
  const number = make('span', { class: 'weight' }, probability.toFixed(3));
  return make('li', { class: written ? 'written' : '' }, pieceNode(piece), bar, number);
}

function listenToTranslation() {
  byId('produced').addEventListener('focusin', (/** @type {FocusEvent} */ event) => {
    const chip = event.target instanceof Element ? event.target.closest('.chip') : null;
    if (chip instanceof HTMLElement) showAlternatives(Number(chip.dataset.index));
  });
  byId('hypothesis').addEventListener('change', () => {
    view.hypothesis = Number(byId('hypothesis').value);
    render();
  });
}
