// @ts-check
import { byId, lookInto, make } from './heads.js';
import { ask } from './api.js';

/** @typedef {{text: string, source: string, target: string}} Looked */

/**
 * The explorer under the translation, for one sentence of it.
 * @param {Looked[]} sentences
 * @param {number} [number]
 */
export function lookInside(sentences, number = 0) {
  const which = byId('which');
  which.replaceChildren(...sentences.map(({ text }, i) => make('option', { value: i }, text)));
  which.value = String(number);
  which.onchange = () => look(sentences[Number(which.value)]);
  byId('inside').hidden = false;
  const still = matchMedia('(prefers-reduced-motion: reduce)').matches;
  byId('inside').scrollIntoView({ block: 'start', behavior: still ? 'auto' : 'smooth' });
  byId('inside-title').focus({ preventScroll: true });
  return look(sentences[number]);
}

/** @param {Looked} sentence */
function look({ text, source, target }) {
  return lookInto(text, (asked, off, signal) =>
    ask('v1/attention', { text: asked, source, target, heads_off: off, n_best: 3 }, signal));
}

export function listenToLook() {
  byId('close-inside').addEventListener('click', () => {
    byId('inside').hidden = true;
    byId('look').focus();
  });
}
