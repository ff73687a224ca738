// @ts-check
import { byId, make, rove } from './heads.js';

/** @typedef {import('./api.js').Sentence} Sentence */
/** @typedef {import('./api.js').Word} Word */

const SURE = [0.25, 0.5, 0.8]; // below each of them a word is shaded more

/** The translation: every word can be asked for others. */
export class Output {
  /** @param {(sentence: number, start: number, word: HTMLElement) => void} asked */
  constructor(asked) {
    /** @type {Sentence[]} */
    this.sentences = [];
    this.text = '';
    const target = byId('target');
    target.addEventListener('click', (/** @type {MouseEvent} */ event) => {
      const word = wordOf(event.target);
      if (word && !getSelection()?.toString()) asked(Number(word.dataset.sentence), Number(word.dataset.start), word);
    });
    target.addEventListener('keydown', (/** @type {KeyboardEvent} */ event) => {
      const word = wordOf(event.target);
      if (!word || (event.key !== 'Enter' && event.key !== ' ')) return;
      event.preventDefault();
      asked(Number(word.dataset.sentence), Number(word.dataset.start), word);
    });
  }

  /**
   * @param {string} text the whole, with all white space between sentences
   * @param {Sentence[]} sentences
   */
  show(text, sentences) {
    this.text = text;
    this.sentences = sentences;
    const nodes = [];
    let last = 0;
    for (const [number, sentence] of sentences.entries()) {
      const start = text.indexOf(sentence.text, last);
      if (start < 0) continue; // an empty translation has no place
      nodes.push(text.slice(last, start), sentenceNode(sentence, number));
      last = start + sentence.text.length;
    }
    byId('target').replaceChildren(...nodes, text.slice(last));
    const words = /** @type {HTMLElement[]} */ ([...byId('target').querySelectorAll('.word')]);
    rove(byId('target'), [words]);
  }

  clear() {
    this.show('', []);
  }

  /** @param {number} sentence @param {number} start @returns {HTMLElement | null} */
  wordAt(sentence, start) {
    return byId('target').querySelector(`[data-sentence="${sentence}"][data-start="${start}"]`);
  }
}

/** @param {Sentence} sentence @param {number} number */
function sentenceNode(sentence, number) {
  const found = [...sentence.text.matchAll(/\S+/g)];
  const words = sentence.alternatives[0]?.words ?? [];
  const known = words.length === found.length ? words : [];
  const node = make('span', { class: 'sentence-text' });
  if (sentence.alternatives[0]?.unsure) {
    node.classList.add('unsure');
    node.title = 'The model is not sure of this sentence; check it';
  }
  let last = 0;
  found.forEach((match, i) => {
    node.append(sentence.text.slice(last, match.index), wordNode(match[0], known[i], number, match.index));
    last = match.index + match[0].length;
  });
  return node;
}

/** @param {string} text @param {Word | undefined} known @param {number} sentence @param {number} start */
function wordNode(text, known, sentence, start) {
  const places = { 'data-sentence': sentence, 'data-start': start };
  const node = make('span', { class: 'word', role: 'button', 'aria-haspopup': 'dialog', ...places }, text);
  const level = known ? SURE.findIndex((most) => known.least < most) : -1;
  if (level >= 0) node.classList.add(`sure-${level}`);
  if (known) node.title = `probability ${known.least.toFixed(2)}; click for other words`;
  return node;
}

/** @param {EventTarget | null} target @returns {HTMLElement | null} */
function wordOf(target) {
  return target instanceof Element ? target.closest('#target .word') : null;
}
