// The explorer of attention heads under the translation.
import { byId, make, scrollToStart } from './dom.js';
import { clearExplorer, exploreText, startExplorer } from './explorer.js';
import { ask } from './api.js';

/** @typedef {import('./glossary.js').Terms} Terms */
/** @typedef {{text: string, translation: string, source: string, target: string, terms: Terms}} Step by one model */
/** @typedef {Step & {steps: Step[]}} Explained a sentence; if two models translated it, it has two steps */

const CHANGE_PAUSE = 600; // milliseconds after the translation has changed before it is explained again

const look = {
  /** @type {Explained[]} */ sentences: [],
  number: -1, // -1: closed
  step: 0,
  head: '',
  timer: 0,
  isExploring: false,
  /** @type {(isNew: boolean) => void} */ onChange: () => {},
  /** @type {(step: Step) => string} */ nameOf: () => '',
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
  Object.assign(look, { number: -1, step: 0, head: '' });
  byId('inside').hidden = true;
  clearExplorer();
}

/** @param {Explained[]} sentences @param {number} number */
function showSentences(sentences, number) {
  Object.assign(look, { sentences, number });
  const select = byId('which', HTMLSelectElement);
  select.replaceChildren(...sentences.map(({ text }, i) => make('option', { value: i }, text)));
  select.value = String(number);
  const { steps } = sentences[number];
  const step = byId('step', HTMLSelectElement);
  byId('step-box').hidden = steps.length < 2;
  step.replaceChildren(...steps.map((each, i) => make('option', { value: i }, `${i + 1}: ${look.nameOf(each)}`)));
  look.step = Math.min(look.step, steps.length - 1);
  step.value = String(look.step);
}

/** @returns {Step} the one that is explained */
function currentStep() {
  return look.sentences[look.number].steps[look.step];
}

/** @param {string} head @param {boolean} [isNew] whether the explorer was closed before */
async function explore(head, isNew = false) {
  byId('inside').hidden = false;
  look.isExploring = true;
  await exploreText(currentStep().text, head);
  look.isExploring = false;
  byId('inside').classList.remove('outdated');
  look.onChange(isNew);
}

/**
 * @param {(isNew: boolean) => void} onChange called when another sentence or head is shown, or none
 * @param {(step: Step) => string} nameOf
 */
export function listenToLook(onChange, nameOf) {
  Object.assign(look, { onChange, nameOf });
  startExplorer(
    async (text, off, signal) => {
      const { translation, source, target, terms } = currentStep();
      const content = { text, translation: translation || null, source, target, glossary: terms, heads_off: off, n_best: 3, rank: true };
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
    showSentences(look.sentences, Number(select.value));
    explore(look.head);
  });
  const step = byId('step', HTMLSelectElement);
  step.addEventListener('change', () => {
    look.step = Number(step.value);
    explore(look.head);
  });
  byId('close-inside').addEventListener('click', () => {
    closeLook();
    onChange(true);
    byId('look').focus();
  });
}
