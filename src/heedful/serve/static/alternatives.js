// Other ways to continue a sentence from one of its words.
import { announce, byId, make, moveByArrowKeys } from './dom.js';
import { ask } from './api.js';
import { glossary } from './glossary.js';

/** @typedef {import('./api.js').Alternative} Alternative */
/** @typedef {import('./api.js').Translation} Translation */
/** @typedef {{source: string, target: string, text: string, translation: string, start: number}} WordPlace */

const MOST = 6;
const NONE = 'The model has no alternatives here.';

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
    const alternatives = await findAlternatives(place, own.signal);
    if (own.signal.aborted) return;
    listAlternatives(alternatives, place, (alternative) => {
      box.hidePopover();
      onChoose(alternative);
    });
  } catch (error) {
    if (own.signal.aborted) return;
    byId('choices-list').replaceChildren(make('li', {}, /** @type {Error} */ (error).message));
  }
  moveBeside(box, word);
}

/** @param {WordPlace} place @param {AbortSignal} signal @returns {Promise<Alternative[]>} */
async function findAlternatives({ source, target, text, translation, start }, signal) {
  const prefix = translation.slice(0, start).trimEnd();
  const terms = glossary();
  const diverse = !Object.keys(terms).length; // diverse search and a glossary exclude each other
  const content = { text, source, target, prefix, n_best: MOST, diverse, confidence: true, glossary: terms };
  const answer = /** @type {Translation} */ (await ask('v1/translate', content, signal));
  const found = (answer.texts[0].sentences[0]?.alternatives ?? []).filter(
    (each) => each.text !== translation && each.text.startsWith(prefix) && each.finished && !each.repeats);
  const [current] = splitAt(translation, start);
  /** @type {Map<string, Alternative>} */
  const byWord = new Map();
  for (const each of [...found].reverse()) byWord.set(splitAt(each.text, start)[0], each); // the best one for each word
  byWord.delete(current);
  const others = [...byWord.values()].reverse();
  return others.length ? others : found; // otherwise the same word with another rest
}

/** @param {string} text @param {number} start @returns {[string, string]} the word at this place, and the rest */
function splitAt(text, start) {
  const [, word, rest] = text.slice(start).match(/^\s*(\S*)(.*)$/s) ?? ['', '', ''];
  return [word, rest];
}

/** @param {Alternative[]} alternatives @param {WordPlace} place @param {(alternative: Alternative) => void} onChoose */
function listAlternatives(alternatives, place, onChoose) {
  const buttons = alternatives.map((alternative) => {
    const [word, rest] = splitAt(alternative.text, place.start);
    const button = make('button', { type: 'button' }, make('b', {}, word || '(nothing)'), make('span', {}, rest));
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
