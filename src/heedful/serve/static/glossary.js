// @ts-check
import { byId } from './heads.js';

const MOST = 100;

/** @type {Record<string, string>} */
let terms = {};

/** @returns {Record<string, string>} source terms, and what must stand for them */
export const glossary = () => terms;

/** @param {string} text @returns {{terms: Record<string, string>, problem: string}} */
export function readTerms(text) {
  /** @type {Map<string, string>} */
  const found = new Map();
  for (const [i, line] of text.split('\n').entries()) {
    if (!line.trim()) continue;
    const [source, target, ...more] = line.split(/[=\t]/).map((part) => part.trim());
    if (!source || !target || more.length) {
      return { terms: {}, problem: `Line ${i + 1} is not a term, an equals sign and a term.` };
    }
    if (found.has(source)) return { terms: {}, problem: `Line ${i + 1}: “${source}” stands above already.` };
    found.set(source, target);
  }
  if (found.size > MOST) return { terms: {}, problem: `A glossary has at most ${MOST} terms, but this one has ${found.size}.` };
  return { terms: Object.fromEntries(found), problem: '' };
}

/** @param {() => void} changed */
export function listenToGlossary(changed) {
  const box = byId('terms');
  box.value = localStorage.getItem('glossary') ?? '';
  take();
  byId('open-glossary').addEventListener('click', () => byId('glossary').showModal());
  box.addEventListener('input', () => {
    localStorage.setItem('glossary', box.value);
    const before = JSON.stringify(terms);
    take();
    if (JSON.stringify(terms) !== before) changed();
  });
}

/** What is wrong is said, and then no term counts. */
function take() {
  const read = readTerms(byId('terms').value);
  terms = read.terms;
  byId('terms-problem').textContent = read.problem;
  byId('terms-problem').hidden = !read.problem;
  const count = Object.keys(terms).length;
  byId('glossary-count').textContent = read.problem ? '!' : String(count);
  byId('glossary-count').hidden = !count && !read.problem;
}
