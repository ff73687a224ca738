import { byId, showMessage } from './dom.js';

const MOST = 100;

/** @type {Record<string, string>} */
let terms = {};

/** @returns {Record<string, string>} source terms and their required translations */
export const glossary = () => terms;

/** @param {string} text @returns {{terms: Record<string, string>, problem: string}} */
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

/** @param {() => void} onChange */
export function listenToGlossary(onChange) {
  const box = byId('terms', HTMLTextAreaElement);
  box.value = localStorage.getItem('glossary') ?? '';
  useTerms(box.value);
  byId('open-glossary').addEventListener('click', () => byId('glossary', HTMLDialogElement).showModal());
  box.addEventListener('input', () => {
    localStorage.setItem('glossary', box.value);
    const before = JSON.stringify(terms);
    useTerms(box.value);
    if (JSON.stringify(terms) !== before) onChange();
  });
}

/** Uses all terms, or none while one of them is wrong. @param {string} text */
function useTerms(text) {
  const parsed = parseTerms(text);
  terms = parsed.terms;
  showMessage(byId('terms-problem'), parsed.problem);
  const count = Object.keys(terms).length;
  byId('glossary-count').textContent = parsed.problem ? '!' : String(count);
  byId('glossary-count').hidden = !count && !parsed.problem;
}
