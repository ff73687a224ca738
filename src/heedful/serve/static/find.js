// Pictures that fit words, or are like one of them or like your own. The address keeps words and names, so Back works.
import { announce, byId, findAll, make } from './dom.js';
import { ask, send } from './api.js';
import { attempt, listenForKey } from './attempts.js';
import { draw, listenForFiles } from './pictures.js';

/** @typedef {{picture: string, score: number, thumbnail: string}} Found */
/** @typedef {{text: string} | {like: string} | {own: File}} Query */

const SHOWN = 24; // pictures
const SIDE = 320; // pixels of a picture on this page
const LONGEST_ADDRESS = 2000; // characters

const choice = byId('model', HTMLSelectElement);
const found = byId('found');
let search = new AbortController();
/** @type {Query | undefined} */
let latest;

/** @param {Query} query */
function describe(query) {
  if ('own' in query) return `Pictures like your ${query.own.name}`;
  return 'like' in query ? `Pictures like ${query.like}` : query.text.trim();
}

/** @param {Query} query @param {AbortSignal} signal @returns {Promise<{pictures: Found[]}>} */
async function request(query, signal) {
  if (!('own' in query)) return ask('v1/find', { model: choice.value, n: SHOWN, ...query }, signal);
  const form = new FormData();
  form.append('model', choice.value);
  form.append('n', String(SHOWN));
  form.append('picture', query.own);
  return (await send('v1/find', { body: form, signal })).json();
}

/** @param {Found} one @param {number} place @param {AbortSignal} signal */
function row({ picture, score, thumbnail }, place, signal) {
  const canvas = make('canvas');
  const button = make('button', { type: 'button', 'aria-label': `Find pictures like ${picture}` }, canvas);
  button.addEventListener('click', () => askFor({ like: picture }));
  // A request of our own can send the key, which that of an <img> cannot.
  send(thumbnail, { signal }).then((answer) => answer.blob()).then((blob) => draw(canvas, blob, SIDE)).catch(() => {});
  const line = make('span', { class: 'line' }, make('b', {}, String(place + 1)), make('span', {}, score.toFixed(4)));
  const caption = make('figcaption', {}, line, make('span', { class: 'name', dir: 'auto' }, picture));
  return make('li', {}, make('figure', {}, button, caption));
}

/** Shows what is found; a later search ends this one. @param {Query} query */
async function show(query) {
  search.abort();
  const { signal } = (search = new AbortController());
  found.setAttribute('aria-busy', 'true');
  await attempt(async () => {
    try {
      const { pictures } = await request(query, signal);
      byId('asked').textContent = describe(query);
      for (const id of ['asked', 'method']) byId(id).hidden = false;
      found.replaceChildren(...pictures.map((one, place) => row(one, place, signal)));
      announce(`${describe(query)}: ${pictures.length} ${pictures.length === 1 ? 'picture' : 'pictures'}`);
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      if (!signal.aborted) found.removeAttribute('aria-busy');
    }
  });
}

/** Shows what is found, and keeps it in the address. @param {Query} query */
async function askFor(query) {
  latest = query;
  const address = 'own' in query ? '#' : `#${new URLSearchParams(query)}`;
  if (address !== location.hash && address.length <= LONGEST_ADDRESS) history.pushState(null, '', address);
  if (!('text' in query)) byId('text', HTMLInputElement).value = '';
  await show(query);
  if (!('like' in query)) return;
  scrollTo({ top: 0 });
  if (document.activeElement === document.body) found.focus({ preventScroll: true }); // the clicked picture is gone
}

/** Shows what the address asks for, if anything. */
async function showAddress() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const [text, like] = [asked.get('text'), asked.get('like')];
  byId('text', HTMLInputElement).value = text ?? '';
  latest = text !== null ? { text } : like !== null ? { like } : undefined;
  if (latest) await show(latest);
}

function listen() {
  byId('search').addEventListener('submit', (event) => {
    event.preventDefault();
    askFor({ text: byId('text', HTMLInputElement).value });
  });
  choice.addEventListener('change', () => latest && show(latest));
  addEventListener('popstate', showAddress);
  listenForKey();
  listenForFiles(byId('search'), ([own]) => own && askFor({ own }));
  byId('skip').addEventListener('click', (event) => {
    event.preventDefault(); // the address is the query
    found.focus();
  });
}

async function start() {
  listen();
  await attempt(async () => {
    const { finding } = await ask('v1/models');
    for (const name of finding) choice.append(make('option', { value: name }, name));
    byId('none').hidden = finding.length > 0;
    byId('search').hidden = finding.length === 0;
    for (const box of findAll('header .row')) box.hidden = finding.length < 2;
  });
  if (choice.options.length) await showAddress();
}

start();
