import { byId, findAll, make, moveByArrowKeys } from './dom.js';

/** @typedef {import('./api.js').Sentence} Sentence */
/** @typedef {import('./api.js').Word} Word */

const SHADES = [0.25, 0.5, 0.8]; // probabilities; a word below the first has the strongest shade

/** The translation, whose words can be clicked for alternatives. */
export class Output {
  /** @param {(sentence: number, start: number, word: HTMLElement) => void} onWord */
  constructor(onWord) {
    /** @type {Sentence[]} */
    this.sentences = [];
    this.text = '';
    this.target = byId('target');
    this.target.addEventListener('click', (event) => {
      const word = wordOf(event.target);
      if (word && !getSelection()?.toString()) onWord(Number(word.dataset.sentence), Number(word.dataset.start), word);
    });
    this.target.addEventListener('keydown', (event) => {
      const word = wordOf(event.target);
      if (!word || (event.key !== 'Enter' && event.key !== ' ')) return;
      event.preventDefault();
      onWord(Number(word.dataset.sentence), Number(word.dataset.start), word);
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
    this.target.replaceChildren(...nodes, text.slice(last));
    moveByArrowKeys(this.target, [findAll('.word', this.target)]);
  }

  clear() {
    this.show('', []);
  }

  /** @param {number} sentence @param {number} start */
  focusWord(sentence, start) {
    const word = this.target.querySelector(`[data-sentence="${sentence}"][data-start="${start}"]`);
    if (word instanceof HTMLElement) word.focus();
  }
}

/** @param {Sentence} sentence @param {number} number */
function sentenceNode(sentence, number) {
  const matches = [...sentence.text.matchAll(/\S+/g)];
  const words = sentence.alternatives[0]?.words ?? [];
  const known = words.length === matches.length ? words : [];
  const node = make('span', { class: 'sentence-text' });
  if (sentence.alternatives[0]?.unsure) {
    node.classList.add('unsure');
    node.title = 'Low confidence: check this sentence';
  }
  let last = 0;
  matches.forEach((match, i) => {
    node.append(sentence.text.slice(last, match.index), wordNode(match[0], known[i], number, match.index));
    last = match.index + match[0].length;
  });
  return node;
}

/** @param {string} text @param {Word | undefined} known @param {number} sentence @param {number} start */
function wordNode(text, known, sentence, start) {
  const places = { 'data-sentence': sentence, 'data-start': start };
  const node = make('span', { class: 'word', role: 'button', 'aria-haspopup': 'dialog', ...places }, text);
  const shade = known ? SHADES.findIndex((limit) => known.least < limit) : -1;
  if (shade >= 0) node.classList.add(`sure-${shade}`);
  if (known) node.title = `Probability ${known.least.toFixed(2)}. Click for alternatives.`;
  return node;
}

/** @param {EventTarget | null} target @returns {HTMLElement | null} */
function wordOf(target) {
  return target instanceof Element ? target.closest('#target .word') : null;
}
