// Labels of texts and pictures, with a bar for each.
import { announce, byId, findAll, make } from './dom.js';
import { ask, send } from './api.js';
import { attempt, listenForKey } from './attempts.js';
import { draw, listenForFiles } from './pictures.js';

/** @typedef {{text?: string, picture?: string, label?: string, probabilities?: Record<string, number>,
 *            words?: {word: string, tag: string, probability: number}[]}} Labelled */

const SHOWN = 5; // labels of each text or picture
const SIDE = 160; // pixels of a picture on this page
const MOST_PICTURES = 16; // in a request

const choice = byId('model', HTMLSelectElement);

/** @param {number} probability */
function percent(probability) {
  return `${(100 * probability).toFixed(1)} %`;
}

/** A row for each label. @param {Record<string, number>} probabilities the likeliest first */
function bars(probabilities) {
  const rows = Object.entries(probabilities).slice(0, SHOWN).map(([label, probability]) => make(
    'li',
    {},
    make('span', { class: 'label', dir: 'auto' }, label),
    make('meter', { min: 0, max: 1, value: probability, 'aria-label': label }, percent(probability)),
    make('span', { class: 'share' }, percent(probability)),
  ));
  return make('ul', { class: 'bars' }, ...rows);
}

/** @param {Labelled} found */
function describe(found) {
  if (found.words) {
    const words = found.words.flatMap(({ word, tag }) => [make('ruby', {}, word, make('rt', {}, tag)), ' ']);
    return make('p', { class: 'words', dir: 'auto' }, ...words);
  }
  return bars(found.probabilities ?? {});
}

/** The picture itself; nothing if this browser cannot draw it. @param {File} file */
async function canvasOf(file) {
  const canvas = make('canvas', { role: 'img', 'aria-label': file.name });
  try {
    await draw(canvas, file, SIDE);
    return [canvas];
  } catch {
    return [];
  }
}

/** Adds results above earlier ones. @param {HTMLElement[]} rows @param {string} said */
function add(rows, said) {
  byId('found').prepend(...rows);
  announce(said);
}

/** @param {string[]} texts */
async function classifyTexts(texts) {
  const answer = await ask('v1/classify', { model: choice.value, text: texts });
  const rows = answer.texts.map((/** @type {Labelled} */ found) => make(
    'li', {}, make('p', { class: 'of', dir: 'auto' }, found.text ?? ''), describe(found),
  ));
  add(rows, answer.texts.map((/** @type {Labelled} */ found) => found.label ?? found.text).join(', '));
}

/** @param {File[]} files */
async function classifyPictures(files) {
  for (let first = 0; first < files.length; first += MOST_PICTURES) {
    const some = files.slice(first, first + MOST_PICTURES);
    const form = new FormData();
    form.append('model', choice.value);
    for (const file of some) form.append('picture', file);
    const answer = await (await send('v1/classify', { body: form })).json();
    const rows = await Promise.all(answer.pictures.map(async (/** @type {Labelled} */ found, /** @type {number} */ i) => make(
      'li', {}, ...(await canvasOf(some[i])), make('div', {}, make('p', { class: 'of', dir: 'auto' }, found.picture ?? ''), describe(found)),
    )));
    add(rows, answer.pictures.map((/** @type {Labelled} */ found) => `${found.picture}: ${found.label}`).join(', '));
  }
}

function showKind() {
  const reads = choice.selectedOptions[0]?.dataset.reads;
  byId('pictures').hidden = reads !== 'pictures';
  byId('texts').hidden = reads !== 'texts';
}

function listen() {
  choice.addEventListener('change', showKind);
  byId('texts').addEventListener('submit', (event) => {
    event.preventDefault();
    const texts = byId('text', HTMLTextAreaElement).value.split('\n').filter((line) => line.trim());
    if (texts.length) attempt(() => classifyTexts(texts));
  });
  listenForKey();
  listenForFiles(byId('pictures'), (files) => attempt(() => classifyPictures(files)));
}

async function start() {
  listen();
  await attempt(async () => {
    const models = await ask('v1/models');
    for (const [reads, names] of [['pictures', models.pictures], ['texts', models.classification]]) {
      for (const name of names) choice.append(make('option', { value: name, 'data-reads': reads }, name));
    }
    byId('none').hidden = choice.options.length > 0;
    for (const box of findAll('header .row')) box.hidden = choice.options.length < 2;
    showKind();
  });
}

start();
