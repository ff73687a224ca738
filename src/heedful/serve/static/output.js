// The translation on show: its sentences, their words, and what the user has chosen for them.
import { byId, findAll, make, moveByArrowKeys } from './dom.js';

/** @typedef {import('./api.js').Alternative} Alternative */
/** @typedef {import('./api.js').Sentence} Sentence */
/** @typedef {import('./api.js').Word} Word */
/**
 * @typedef {{source: string, text: string, alternative: Alternative | undefined, gap: string,
 *            pivot?: string, isStale?: boolean}} ShownSentence a sentence, its translation, the white space before
 *            that, and the sentence that it went through
 */

const SHADES = [0.25, 0.5, 0.8]; // probabilities; a word below the first has the strongest shade

/**
 * The sentences of a text with what stands between them: as the server joins them, or as the source does.
 * @param {string[]} characters of the source; the server counts code points, not UTF-16 units
 * @param {Sentence[]} sentences
 * @param {string} [joined] the whole translation; until it is there, the gaps are those of the source
 * @returns {{sentences: ShownSentence[], end: string}}
 */
export function joinSentences(characters, sentences, joined) {
  let [last, lastJoined] = [0, 0];
  const shown = sentences.map(({ start, end, text, pivot, alternatives }) => {
    let gap = characters.slice(last, start).join('');
    if (joined !== undefined) {
      const at = Math.max(lastJoined, joined.indexOf(text, lastJoined)); // an empty translation has no place
      gap = joined.slice(lastJoined, at);
      lastJoined = at + text.length;
    }
    last = end;
    return { source: characters.slice(start, end).join(''), text, alternative: alternatives[0], gap, pivot };
  });
  return { sentences: shown, end: joined === undefined ? '' : joined.slice(lastJoined) };
}

/** The translation, whose words can be clicked for alternatives. */
export class Output {
  /** @param {(sentence: number, start: number, word: HTMLElement) => void} onWord */
  constructor(onWord) {
    /** @type {ShownSentence[]} */
    this.sentences = [];
    this.end = '';
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

  get text() {
    return this.sentences.map(({ gap, text }) => gap + text).join('') + this.end;
  }

  /** @param {ShownSentence[]} sentences @param {string} [end] white space after the last one */
  show(sentences, end = '') {
    this.sentences = sentences;
    this.end = end;
    const nodes = sentences.flatMap((sentence, number) => [sentence.gap, sentenceNode(sentence, number)]);
    this.target.replaceChildren(...nodes, end);
    moveByArrowKeys(this.target, [findAll('.word', this.target)]);
    byId('unsure-legend').hidden = !sentences.some((sentence) => sentence.alternative?.unsure);
  }

  /** Replaces one sentence. @param {number} number @param {{text: string, alternative: Alternative | undefined}} content */
  replace(number, content) {
    this.show(this.sentences.map((each, i) => (i === number ? { ...each, ...content } : each)), this.end);
  }

  clear() {
    this.show([]);
  }

  /** @param {number} sentence @param {number} start */
  focusWord(sentence, start) {
    const words = findAll(`[data-sentence="${sentence}"]`, this.target);
    (words.find((word) => Number(word.dataset.start) >= start) ?? words.at(-1))?.focus();
  }
}

/** @param {ShownSentence} sentence @param {number} number */
function sentenceNode({ text, alternative, isStale }, number) {
  const matches = [...text.matchAll(/\S+/g)];
  const words = alternative?.words ?? [];
  const known = words.length === matches.length ? words : [];
  const node = make('span', { class: isStale ? 'sentence-text stale' : 'sentence-text' });
  if (alternative?.unsure) {
    node.classList.add('unsure');
    node.title = 'Low confidence: check this sentence';
  }
  let last = 0;
  matches.forEach((match, i) => {
    node.append(text.slice(last, match.index), wordNode(match[0], known[i], number, match.index));
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
