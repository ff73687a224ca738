// Required translations of terms, for each pair of languages.
import { byId, showMessage } from './dom.js';
import { localStore } from './storage.js';

/** @typedef {{source: string, target: string}} LanguagePair */
/** @typedef {Record<string, string>} Terms source terms and their required translations */

const MOST = 100;

/** @param {LanguagePair} pair @returns {string} */
function keyOf({ source, target }) {
  return `glossary ${source} ${target}`;
}

/** All terms of a pair, or none while one of them is wrong. @param {LanguagePair} pair @returns {Terms} */
export function glossary(pair) {
  return parseTerms(localStore.get(keyOf(pair)) ?? '').terms;
}

/** @param {string} text @returns {{terms: Terms, problem: string}} */
function parseTerms(text) {
  /** @type {Map<string, string>} */
  const found = new Map();
  for (const [i, line] of text.split('\n').entries()) {
    if (!line.trim()) continue;
    const [source, target, ...more] = line.split(/[=\t]/).map((part) => part.trim());
    if (!source || !target || more.length) {
      return { terms: {}, problem: `Line ${i + 1} must be a term, an equals sign and its translation.` };
    }
    if (found.has(source)) return { terms: {}, problem: `Line ${i + 1} repeats the term “${source}”.` };
    found.set(source, target);
  }
  if (found.size > MOST) return { terms: {}, problem: `A glossary can have at most ${MOST} terms; this one has ${found.size}.` };
  return { terms: Object.fromEntries(found), problem: '' };
}

/** Shows how many terms of this pair are in use. @param {LanguagePair} pair */
export function showGlossaryCount(pair) {
  const { terms, problem } = parseTerms(localStore.get(keyOf(pair)) ?? '');
  const count = Object.keys(terms).length;
  byId('glossary-count').textContent = problem ? '!' : String(count);
  byId('glossary-count').hidden = !count && !problem;
}

/**
 * @param {() => LanguagePair} currentPair
 * @param {(code: string) => string} nameOf
 * @param {() => void} onChange
 */
export function listenToGlossary(currentPair, nameOf, onChange) {
  const box = byId('terms', HTMLTextAreaElement);
  adoptOldGlossary(currentPair());
  byId('open-glossary').addEventListener('click', () => {
    const { source, target } = currentPair();
    byId('glossary-pair').textContent = `${nameOf(source)} to ${nameOf(target)}`;
    box.value = localStore.get(keyOf({ source, target })) ?? '';
    showMessage(byId('terms-problem'), parseTerms(box.value).problem);
    byId('glossary', HTMLDialogElement).showModal();
  });
  box.addEventListener('input', () => {
    const pair = currentPair();
    const before = JSON.stringify(glossary(pair));
    localStore.set(keyOf(pair), box.value);
    showMessage(byId('terms-problem'), parseTerms(box.value).problem);
    showGlossaryCount(pair);
    if (JSON.stringify(glossary(pair)) !== before) onChange();
  });
}

/** A glossary used to hold for all languages; it becomes that of the current pair. @param {LanguagePair} pair */
function adoptOldGlossary(pair) {
  const old = localStore.get('glossary');
  if (old === null) return;
  if (localStore.get(keyOf(pair)) === null) localStore.set(keyOf(pair), old);
  localStore.remove('glossary');
}
