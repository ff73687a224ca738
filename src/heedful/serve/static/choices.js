// @ts-check
import { announce, byId, make, rove } from './heads.js';
import { ask } from './api.js';
import { glossary } from './glossary.js';

/** @typedef {import('./api.js').Option} Option */
/** @typedef {import('./api.js').Answer} Answer */
/** @typedef {{source: string, target: string, text: string, translation: string, start: number}} Place */

const MOST = 6;

/** @type {AbortController | null} */
let request = null;

/**
 * What could stand in the place of a word; who chooses gets the whole sentence in another way.
 * @param {HTMLElement} word
 * @param {Place} place
 * @param {(option: Option) => void} chosen
 */
export async function offer(word, place, chosen) {
  request?.abort();
  const mine = (request = new AbortController());
  const box = byId('choices');
  byId('choices-title').textContent = `Instead of “${word.textContent}”`;
  byId('choices-list').replaceChildren(make('li', { class: 'muted' }, '…'));
  word.classList.add('asked');
  box.showPopover();
  beside(box, word);
  try {
    const options = await others(place, mine.signal);
    if (mine.signal.aborted) return;
    list(options, place, (option) => {
      box.hidePopover();
      chosen(option);
    });
  } catch (error) {
    if (mine.signal.aborted) return;
    byId('choices-list').replaceChildren(make('li', {}, /** @type {Error} */ (error).message));
  }
  beside(box, word);
}

/** @param {Place} place @param {AbortSignal} signal @returns {Promise<Option[]>} */
async function others({ source, target, text, translation, start }, signal) {
  const prefix = translation.slice(0, start).trimEnd();
  const terms = glossary();
  const diverse = !Object.keys(terms).length; // a search that holds to terms cannot be that, too
  const wanted = { text, source, target, prefix, n_best: MOST, diverse, confidence: true, glossary: terms };
  const answer = /** @type {Answer} */ (await ask('v1/translate', wanted, signal));
  const found = (answer.texts[0].sentences[0]?.alternatives ?? []).filter(
    (option) => option.text !== translation && option.text.startsWith(prefix) && option.finished && !option.repeats);
  const [now] = split(translation, start);
  const other = new Map(found.map((option) => [split(option.text, start)[0], option]).reverse()); // the best of each
  other.delete(now);
  const ways = [...other.values()].reverse();
  return ways.length ? ways : found; // else the rest of the sentence may go on otherwise
}

/** The word at a place, and what follows it. @param {string} text @param {number} start */
function split(text, start) {
  const [, first, rest] = text.slice(start).match(/^\s*(\S*)(.*)$/s) ?? ['', '', ''];
  return [first, rest];
}

/** @param {Option[]} options @param {Place} place @param {(option: Option) => void} chosen */
function list(options, place, chosen) {
  const rows = options.map((option) => {
    const [first, rest] = split(option.text, place.start);
    const button = make('button', { type: 'button' }, make('b', {}, first || '(nothing)'), make('span', {}, rest));
    button.onclick = () => chosen(option);
    return button;
  });
  const none = make('li', { class: 'muted' }, 'The model has nothing else for this place.');
  byId('choices-list').replaceChildren(...(rows.length ? rows.map((row) => make('li', {}, row)) : [none]));
  rove(byId('choices-list'), rows.map((row) => [row]));
  rows[0]?.focus();
  announce(rows.length ? `${rows.length} other ways` : 'The model has nothing else for this place.');
}

/** Under the word, inside of the window. @param {HTMLElement} box @param {HTMLElement} word */
function beside(box, word) {
  const at = word.getBoundingClientRect();
  const left = Math.min(at.left, innerWidth - box.offsetWidth - 12);
  const below = at.bottom + 6;
  const fits = below + box.offsetHeight < innerHeight || at.top < box.offsetHeight + 12;
  box.style.left = `${Math.max(12, left)}px`;
  box.style.top = `${fits ? below : at.top - box.offsetHeight - 6}px`;
}

export function listenToChoices() {
  byId('choices').addEventListener('toggle', (/** @type {ToggleEvent} */ event) => {
    if (event.newState === 'open') return;
    request?.abort();
    for (const word of document.querySelectorAll('.word.asked')) word.classList.remove('asked');
  });
}
