// The list of sentences: sorted, filtered, with the differences between two outputs marked.
import { byId, make } from './dom.js';
import { findDifferences } from './diff.js';

/**
 * @typedef {{number: number, source: string | null, references: string[], outputs: string[], chrf: number[],
 *            gains: number[], words: number, length: string}} Sentence
 */

const PAGE = 40; // sentences shown at once
const COLOURS = 6; // of systems, in theme.css

/** @type {{names: string[], lengthOf: string, lengths: string[], sentences: Sentence[]}} */
const { names, lengthOf, lengths, sentences } = JSON.parse(byId('document').textContent ?? '');
const segmenter = new Intl.Segmenter(undefined, { granularity: 'word' });

const systemSelect = byId('with', HTMLSelectElement);
const sortSelect = byId('sort', HTMLSelectElement);
const kindSelect = byId('kind', HTMLSelectElement);
const lengthSelect = byId('length', HTMLSelectElement);
const searchInput = byId('search', HTMLInputElement);

/** @type {Record<string, (system: number) => (a: Sentence, b: Sentence) => number>} */
const ORDERS = {
  difference: (system) => (a, b) => Math.abs(b.gains[system]) - Math.abs(a.gains[system]),
  gain: (system) => (a, b) => b.gains[system] - a.gains[system],
  loss: (system) => (a, b) => a.gains[system] - b.gains[system],
  long: () => (a, b) => b.words - a.words,
  short: () => (a, b) => a.words - b.words,
  file: () => (a, b) => a.number - b.number,
};

/** @type {Record<string, (sentence: Sentence, system: number) => boolean>} */
const FILTERS = {
  all: () => true,
  better: (sentence, system) => sentence.gains[system] > 0,
  worse: (sentence, system) => sentence.gains[system] < 0,
  equal: (sentence, system) => sentence.gains[system] === 0,
  differ: (sentence, system) => sentence.outputs[system] !== sentence.outputs[0],
};

/** @param {number} system @returns {string} A to Z, then 27 */
function letterOf(system) {
  return system < 26 ? String.fromCharCode(65 + system) : String(system + 1);
}

/** @param {string} text @returns {string[]} its words and what is between them */
function splitWords(text) {
  return [...segmenter.segment(text)].map((part) => part.segment);
}

/**
 * Marks the words that differ, and tells those of the reference from others.
 * @param {string[]} parts
 * @param {boolean[]} differs
 * @param {Set<string>} known words of the references
 */
function markWords(parts, differs, known) {
  return parts.map((part, i) => {
    if (!differs[i] || !part.trim()) return part;
    return make('mark', { class: known.has(part) ? 'hit' : 'miss' }, part);
  });
}

/** @param {(Node | string)[]} term @param {(Node | string)[]} text @returns {Node[]} */
function entry(term, text) {
  return [make('dt', {}, ...term), make('dd', { dir: 'auto' }, ...text)];
}

/** @param {number} system */
function chip(system) {
  return make('b', { class: `chip slot-${system % COLOURS}` }, letterOf(system));
}

/** @param {number} gain */
function gainNode(gain) {
  const [kind, sign] = gain > 0 ? ['up', '+'] : gain < 0 ? ['down', '−'] : ['same', '±'];
  return make('span', { class: `gain ${kind}` }, `${sign}${Math.abs(gain).toFixed(1)} chrF`);
}

/** @param {Sentence} sentence @param {number} system */
function card(sentence, system) {
  const [left, right] = [splitWords(sentence.outputs[0]), splitWords(sentence.outputs[system])];
  const [leftDiffers, rightDiffers] = findDifferences(left, right);
  const known = new Set(sentence.references.flatMap(splitWords));
  const [first, second] = [0, system].map((i) => `${letterOf(i)} ${sentence.chrf[i].toFixed(1)}`);
  const facts = [`line ${sentence.number}`, `${sentence.words} ${sentence.words === 1 ? 'word' : 'words'}`, `chrF ${first}, ${second}`];
  const line = make('p', { class: 'line' }, ...facts.map((fact) => make('span', {}, fact)), gainNode(sentence.gains[system]));
  const texts = [
    ...(sentence.source === null ? [] : entry(['source'], [sentence.source])),
    ...sentence.references.flatMap((reference) => entry(['reference'], [reference])),
    ...entry([chip(0)], markWords(left, leftDiffers, known)),
    ...entry([chip(system)], markWords(right, rightDiffers, known)),
  ];
  return make('li', {}, line, make('dl', { class: 'texts' }, ...texts));
}

const searchable = new Map(sentences.map((sentence) => {
  const { source, references, outputs } = sentence;
  return [sentence, [source ?? '', ...references, ...outputs].join('\n').toLocaleLowerCase()];
}));

/** @type {Sentence[]} */
let selected = [];
let shown = 0;

function showMore() {
  const system = Number(systemSelect.value);
  const cards = selected.slice(shown, shown + PAGE).map((sentence) => card(sentence, system));
  byId('sentences').append(...cards);
  shown += cards.length;
  byId('more').hidden = shown >= selected.length;
  return cards;
}

function update() {
  const system = Number(systemSelect.value);
  const search = searchInput.value.trim().toLocaleLowerCase();
  selected = sentences
    .filter((sentence) => FILTERS[kindSelect.value](sentence, system))
    .filter((sentence) => !lengthSelect.value || sentence.length === lengthSelect.value)
    .filter((sentence) => searchable.get(sentence)?.includes(search))
    .sort(ORDERS[sortSelect.value](system));
  byId('sentences').replaceChildren();
  shown = 0;
  showMore();
  byId('found').textContent = `${selected.length} of ${sentences.length} sentences`;
}

function start() {
  names.slice(1).forEach((name, i) => systemSelect.append(new Option(`${letterOf(i + 1)} ${name}`, String(i + 1))));
  lengths.forEach((name) => lengthSelect.append(new Option(name, name)));
  byId('length-label').textContent = `Words in the ${lengthOf}`;
  byId('with-line').hidden = names.length === 2;
  byId('controls').addEventListener('input', update);
  byId('controls').addEventListener('submit', (event) => event.preventDefault());
  byId('more').addEventListener('click', () => {
    const [first] = showMore();
    first.tabIndex = -1; // a keyboard user goes on reading at the first new sentence
    first.focus();
  });
  update();
}

start();
