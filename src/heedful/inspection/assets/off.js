// Heads that are switched off, and how the translation changes without them.
import { byId, make } from './dom.js';
import { findDifferences } from './diff.js';
import { headTitle } from './attention.js';
import { state } from './state.js';

/** The list of heads that are off, each with a button to switch it on. */
export function renderOff() {
  const names = [...state.off];
  byId('off-bar').hidden = !names.length;
  const tags = names.map((name) => make('button', { type: 'button', class: 'tag', 'data-on': name,
    'aria-label': `Switch on ${headTitle(name)}`, title: 'Switch on' }, name));
  byId('off-names').replaceChildren(...tags);
}

/** The translation with all heads beside the one without some, with the words that differ marked. */
export function renderComparison() {
  const { off, baseline, hypotheses } = state.doc;
  byId('comparison').hidden = baseline === null;
  if (baseline === null) return;
  const { text } = hypotheses[0];
  const [before, after] = [baseline.split(/\s+/), text.split(/\s+/)];
  const [beforeDiffers, afterDiffers] = findDifferences(before, after);
  byId('all-on').replaceChildren(...markWords(before, beforeDiffers));
  byId('some-off').replaceChildren(...markWords(after, afterDiffers));
  byId('some-off-title').textContent = `Without ${off.join(', ')}`;
  byId('unchanged').hidden = baseline !== text;
}

/** @param {string[]} words @param {boolean[]} differs @returns {(Node | string)[]} */
function markWords(words, differs) {
  return words.flatMap((word, i) => [differs[i] ? make('mark', {}, word) : word, ' ']);
}

/** @param {(name: string) => void} toggle @param {() => void} switchAllOn */
export function listenToOff(toggle, switchAllOn) {
  byId('off-names').addEventListener('click', (event) => {
    const name = event.target instanceof HTMLElement ? event.target.dataset.on : undefined;
    if (name) toggle(name);
  });
  byId('all-heads-on').addEventListener('click', switchAllOn);
}
