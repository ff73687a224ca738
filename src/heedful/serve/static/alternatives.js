// Other ways to continue a sentence from one of its words.
import { announce, byId, make, moveByArrowKeys } from './dom.js';
import { ask } from './api.js';

/** @typedef {import('./api.js').Alternative} Alternative */
/** @typedef {import('./api.js').Translation} Translation */
/** @typedef {import('./glossary.js').Terms} Terms */
/**
 * @typedef {{source: string, target: string, terms: Terms, text: string, translation: string,
 *            start: number}} WordPlace a word of a translation, by where it starts
 */
/**
 * @typedef {{alternative: Alternative, word: string, rest: string, probability: number | undefined,
 *            restProbability: number | undefined}} Choice probabilities of the word, and of the rarest from there on
 */

const MOST = 6;
const LEAST_PROBABILITY = 0.01; // of the new word; rarer ones are mostly nonsense
const LEAST_LOG_PROB = -6; // of the whole sentence, compared with the best one
const NONE = 'The model has no good alternative here.';

/** @type {AbortController | null} */
let request = null;

/**
 * Opens a list of alternatives to a word; choosing one replaces the rest of its sentence.
 * @param {HTMLElement} word
 * @param {WordPlace} place
 * @param {(alternative: Alternative) => void} onChoose
 */
export async function offerAlternatives(word, place, onChoose) {
  request?.abort();
  const own = (request = new AbortController());
  const box = byId('choices');
  byId('choices-title').textContent = `Alternatives to “${word.textContent}”`;
  byId('choices-list').replaceChildren(make('li', { class: 'muted' }, '…'));
  word.classList.add('asked');
  box.showPopover();
  moveBeside(box, word);
  try {
    const choices = await findChoices(place, own.signal);
    if (own.signal.aborted) return;
    listChoices(choices, (alternative) => {
      box.hidePopover();
      onChoose(alternative);
    });
  } catch (error) {
    if (own.signal.aborted) return;
    byId('choices-list').replaceChildren(make('li', {}, /** @type {Error} */ (error).message));
  }
  moveBeside(box, word);
}

/** @param {WordPlace} place @param {AbortSignal} signal @returns {Promise<Choice[]>} */
async function findChoices({ source, target, terms, text, translation, start }, signal) {
  const prefix = translation.slice(0, start).trimEnd();
  const diverse = !Object.keys(terms).length; // diverse search and a glossary exclude each other
  const content = { text, source, target, prefix, n_best: MOST, diverse, confidence: true, glossary: terms };
  const answer = /** @type {Translation} */ (await ask('v1/translate', content, signal));
  const found = answer.texts[0].sentences[0]?.alternatives ?? [];
  const best = Math.max(...found.map((each) => each.log_prob));
  const good = found
    .filter((each) => each.text !== translation && each.text.startsWith(prefix))
    .filter((each) => each.finished && !each.repeats && !each.unsure && each.log_prob - best >= LEAST_LOG_PROB)
    .map((each) => choiceAt(each, start))
    .filter(({ probability }) => probability === undefined || probability >= LEAST_PROBABILITY);
  const [current] = splitAt(translation, start);
  /** @type {Map<string, Choice>} */
  const byWord = new Map();
  for (const each of [...good].reverse()) byWord.set(each.word, each); // the best one for each word
  byWord.delete(current);
  const others = [...byWord.values()].sort((a, b) => (b.probability ?? 0) - (a.probability ?? 0));
  return others.length ? others : good.filter((each) => (each.restProbability ?? 1) >= LEAST_PROBABILITY).map(asRest);
}

/** The same word with another rest, whose rarest word counts. @param {Choice} choice @returns {Choice} */
function asRest(choice) {
  return { ...choice, probability: choice.restProbability };
}

/** @param {Alternative} alternative @param {number} start @returns {Choice} */
function choiceAt(alternative, start) {
  const [word, rest] = splitAt(alternative.text, start);
  const index = alternative.text.slice(0, start).split(/\s+/).filter(Boolean).length;
  const probabilities = alternative.words?.slice(index).map((each) => each.least) ?? [];
  const restProbability = probabilities.length ? Math.min(...probabilities) : undefined;
  return { alternative, word, rest, probability: probabilities[0], restProbability };
}

/** @param {string} text @param {number} start @returns {[string, string]} the word at this place, and the rest */
function splitAt(text, start) {
  const [, word, rest] = text.slice(start).match(/^\s*(\S*)(.*)$/s) ?? ['', '', ''];
  return [word, rest];
}

/** @param {Choice[]} choices @param {(alternative: Alternative) => void} onChoose */
function listChoices(choices, onChoose) {
  const buttons = choices.map(({ alternative, word, rest, probability }) => {
    const button = make('button', { type: 'button' }, make('b', {}, word || '(nothing)'), make('span', {}, rest));
    if (probability !== undefined) button.append(' ', make('small', {}, `${Math.round(100 * probability)} %`));
    button.onclick = () => onChoose(alternative);
    return button;
  });
  const rows = buttons.length ? buttons.map((button) => make('li', {}, button)) : [make('li', { class: 'muted' }, NONE)];
  byId('choices-list').replaceChildren(...rows);
  moveByArrowKeys(byId('choices-list'), buttons.map((button) => [button]));
  buttons[0]?.focus();
  announce(buttons.length ? `Alternatives: ${buttons.length}` : NONE);
}

/** Puts the box under the word, or above it, inside the window. @param {HTMLElement} box @param {HTMLElement} word */
function moveBeside(box, word) {
  const at = word.getBoundingClientRect();
  const left = Math.min(at.left, innerWidth - box.offsetWidth - 12);
  const below = at.bottom + 6;
  const fits = below + box.offsetHeight < innerHeight || at.top < box.offsetHeight + 12;
  box.style.left = `${Math.max(12, left)}px`;
  box.style.top = `${fits ? below : at.top - box.offsetHeight - 6}px`;
}

export function listenToAlternatives() {
  byId('choices').addEventListener('toggle', (event) => {
    if (!(event instanceof ToggleEvent) || event.newState === 'open') return;
    request?.abort();
    for (const word of document.querySelectorAll('.word.asked')) word.classList.remove('asked');
  });
}
