// The explorer of attention heads under the translation.
import { byId, make, scrollToStart } from './dom.js';
import { clearExplorer, exploreText, startExplorer } from './explorer.js';
import { ask } from './api.js';

/** @typedef {import('./glossary.js').Terms} Terms */
/** @typedef {{text: string, translation: string, source: string, target: string, terms: Terms}} Explained */

const CHANGE_PAUSE = 600; // milliseconds after the translation has changed before it is explained again

const look = {
  /** @type {Explained[]} */ sentences: [],
  number: -1, // -1: closed
  head: '',
  timer: 0,
  isExploring: false,
  /** @type {(isNew: boolean) => void} */ onChange: () => {},
};

/** @returns {{sentence: number, head: string}} the number of the sentence from 1, or 0 if none is explained */
export function currentLook() {
  return { sentence: look.number + 1, head: look.head };
}

/**
 * Explains one of the sentences, as it is shown, and scrolls to the result.
 * @param {Explained[]} sentences
 * @param {number} number
 * @param {string} [head] to open
 */
export async function lookInside(sentences, number, head = '') {
  const wasClosed = look.number < 0;
  showSentences(sentences, number);
  await explore(head, wasClosed);
  scrollToStart(byId('inside'));
  byId('inside-title').focus({ preventScroll: true });
}

/** Follows a change of the translation; closes if the sentence is gone. @param {Explained[]} sentences */
export function updateLook(sentences) {
  if (look.number < 0) return;
  const [before, now] = [look.sentences[look.number], sentences[look.number]];
  if (!now) return closeLook();
  showSentences(sentences, look.number);
  if (JSON.stringify(before) === JSON.stringify(now)) return;
  byId('inside').classList.add('outdated');
  clearTimeout(look.timer);
  look.timer = setTimeout(() => explore(look.head), CHANGE_PAUSE);
}

export function closeLook() {
  clearTimeout(look.timer);
  Object.assign(look, { number: -1, head: '' });
  byId('inside').hidden = true;
  clearExplorer();
}

/** @param {Explained[]} sentences @param {number} number */
function showSentences(sentences, number) {
  Object.assign(look, { sentences, number });
  const select = byId('which', HTMLSelectElement);
  select.replaceChildren(...sentences.map(({ text }, i) => make('option', { value: i }, text)));
  select.value = String(number);
}

/** @param {string} head @param {boolean} [isNew] whether the explorer was closed before */
async function explore(head, isNew = false) {
  byId('inside').hidden = false;
  look.isExploring = true;
  await exploreText(look.sentences[look.number].text, head);
  look.isExploring = false;
  byId('inside').classList.remove('outdated');
  look.onChange(isNew);
}

/** @param {(isNew: boolean) => void} onChange called when another sentence or head is shown, or none */
export function listenToLook(onChange) {
  look.onChange = onChange;
  startExplorer(
    async (text, off, signal) => {
      const { translation, source, target, terms } = look.sentences[look.number];
      const content = { text, translation: translation || null, source, target, glossary: terms, heads_off: off, n_best: 3 };
      return { ...(await ask('v1/attention', content, signal)), shown: translation };
    },
    {
      onOpenHead: (head) => {
        look.head = head;
        if (!look.isExploring) onChange(false);
      },
    },
  );
  const select = byId('which', HTMLSelectElement);
  select.addEventListener('change', () => {
    look.number = Number(select.value);
    explore(look.head);
  });
  byId('close-inside').addEventListener('click', () => {
    closeLook();
    onChange(true);
    byId('look').focus();
  });
}
