// The explorer of attention heads under the translation.
import { byId, make, scrollToStart } from './dom.js';
import { exploreText, startExplorer } from './explorer.js';
import { ask } from './api.js';

/** @typedef {{text: string, source: string, target: string}} SourceSentence */

let pair = { source: '', target: '' };

/** @param {SourceSentence[]} sentences of the translation @param {number} number of the one to show */
export function lookInside(sentences, number) {
  const select = byId('which', HTMLSelectElement);
  select.replaceChildren(...sentences.map(({ text }, i) => make('option', { value: i }, text)));
  select.value = String(number);
  select.onchange = () => explore(sentences[Number(select.value)]);
  byId('inside').hidden = false;
  scrollToStart(byId('inside'));
  byId('inside-title').focus({ preventScroll: true });
  explore(sentences[number]);
}

/** @param {SourceSentence} sentence */
function explore({ text, source, target }) {
  pair = { source, target };
  exploreText(text);
}

export function listenToLook() {
  startExplorer((text, off, signal) => ask('v1/attention', { text, ...pair, heads_off: off, n_best: 3 }, signal));
  byId('close-inside').addEventListener('click', () => {
    byId('inside').hidden = true;
    byId('look').focus();
  });
}
