// @ts-check
import { Problem, ask, key } from './api.js';
import { listenToChoices, offer } from './choices.js';
import { listenToFiles } from './files.js';
import { glossary, listenToGlossary } from './glossary.js';
import { announce, byId, listenToAll, repaint } from './heads.js';
import { listenToHistory, remember } from './history.js';
import { Languages } from './languages.js';
import { listenToLook, lookInside } from './look.js';
import { Output } from './output.js';

/** @typedef {import('./api.js').Option} Option */
/** @typedef {import('./api.js').Answer} Answer */

const PAUSE = 250; // milliseconds without a key before a text is translated
const REST = 1500; // and before it is remembered
const THEMES = ['system', 'light', 'dark'];

/** What is translated now: the newest request counts, and cuts off the one before. */
const now = {
  /** @type {AbortController | null} */ request: null,
  source: '',
  target: '',
  text: '',
  /** @type {string[]} */ characters: [], // the server counts these, and not halves of them
  /** @type {Map<string, Option>} */ chosen: new Map(), // ways to say a sentence that were chosen by hand
  most: Infinity,
  keyed: false,
  timer: 0,
  resting: 0,
};

/** @type {Languages} */
let languages;
const output = new Output(askForOthers);

/** @param {number} pause in milliseconds */
function translateSoon(pause) {
  clearTimeout(now.timer);
  now.request?.abort();
  const text = byId('source').value;
  const size = [...text].length;
  byId('count').textContent = text ? `${size.toLocaleString('en')} / ${now.most.toLocaleString('en')}` : '';
  byId('count').classList.toggle('over', size > now.most);
  byId('clear').hidden = !text;
  if (!text.trim()) return showNothing();
  if (!languages) return; // they are on their way, and will come back here
  if (size > now.most) {
    const most = now.most.toLocaleString('en');
    return showProblem(`This text is too long: a text has at most ${most} characters. A file may have more.`);
  }
  now.timer = setTimeout(() => translate(text), pause);
}

/** @param {string} text */
async function translate(text) {
  const request = (now.request = new AbortController());
  const { signal } = request;
  setWorking(true);
  try {
    const source = await languages.sourceOf(text, signal);
    const target = languages.into;
    const wanted = { text, source, target, confidence: true, glossary: glossary() };
    const answer = /** @type {Answer} */ (await ask('v1/translate', wanted, signal));
    if (signal.aborted) return; // a newer text is on its way
    Object.assign(now, { source, target, text, characters: [...text] });
    show(answer);
    showProblem('');
  } catch (error) {
    if (signal.aborted) return;
    output.clear();
    setReady(false);
    showProblem(/** @type {Error} */ (error).message);
    if (error instanceof Problem && (error.status === 403 || (now.keyed && !key.get()))) askForKey();
  } finally {
    if (now.request === request) setWorking(false);
  }
}

/** @param {Answer} answer */
function show(answer) {
  const [{ text, sentences }] = answer.texts;
  let [whole, last] = ['', 0];
  for (const sentence of sentences) {
    const start = Math.max(last, text.indexOf(sentence.text, last));
    const option = now.chosen.get(sourceOf(sentence));
    whole += text.slice(last, start);
    last = start + sentence.text.length;
    if (option) Object.assign(sentence, { text: option.text, alternatives: [option] });
    whole += sentence.text;
  }
  output.show(whole + text.slice(last), sentences);
  byId('target').lang = now.target;
  byId('detected').textContent = languages.from === 'auto' ? `${languages.name(now.source)}, detected` : '';
  setReady(sentences.length > 0);
  rest();
}

function showNothing() {
  clearTimeout(now.resting);
  now.request = null;
  now.text = '';
  output.clear();
  setWorking(false);
  setReady(false);
  showProblem('');
  byId('detected').textContent = '';
}

/** What stands still for a while is worth remembering. */
function rest() {
  clearTimeout(now.resting);
  const { source, target, text } = now;
  now.resting = setTimeout(() => {
    announce(`Translation: ${output.text}`);
    remember({ from: source, into: target, text, translation: output.text });
  }, REST);
}

/** @param {{start: number, end: number}} sentence */
function sourceOf({ start, end }) {
  return now.characters.slice(start, end).join('');
}

/** @param {number} number @param {number} start @param {HTMLElement} word */
function askForOthers(number, start, word) {
  const sentence = output.sentences[number];
  const text = sourceOf(sentence);
  const place = { source: now.source, target: now.target, text, translation: sentence.text, start };
  offer(word, place, (option) => {
    now.chosen.set(text, option);
    const before = sentence.text;
    const at = placeOf(number);
    sentence.alternatives = [option];
    sentence.text = option.text;
    output.show(output.text.slice(0, at) + option.text + output.text.slice(at + before.length), output.sentences);
    output.wordAt(number, start)?.focus();
    rest();
  });
}

/** Where a sentence begins in the whole translation. @param {number} number */
function placeOf(number) {
  let last = 0;
  for (const sentence of output.sentences.slice(0, number)) {
    last = Math.max(last, output.text.indexOf(sentence.text, last)) + sentence.text.length;
  }
  return output.text.indexOf(output.sentences[number].text, last);
}

/** @param {boolean} working */
function setWorking(working) {
  byId('target').setAttribute('aria-busy', String(working));
  byId('working').textContent = working ? 'Translating…' : '';
}

/** @param {boolean} ready */
function setReady(ready) {
  byId('copy').disabled = byId('look').disabled = !ready;
}

/** @param {string} sentence */
function showProblem(sentence) {
  byId('problem').textContent = sentence;
  byId('problem').hidden = !sentence;
}

function askForKey() {
  byId('key-box').hidden = false;
  byId('key').focus();
}

/** Other languages or terms: what was chosen by hand no longer holds. */
function translateAnew(pause = 0) {
  now.chosen.clear();
  translateSoon(pause);
}

/** What was the translation is the text now. */
function swap() {
  const { from, into } = languages;
  const source = from === 'auto' ? now.source : from;
  if (!languages.targets(into).includes(source)) return;
  if (output.text) byId('source').value = output.text;
  languages.pick(into, source);
}

async function copy() {
  try {
    await navigator.clipboard.writeText(output.text);
    byId('copy').textContent = 'Copied';
  } catch {
    getSelection()?.selectAllChildren(byId('target')); // a browser may forbid it; then a key press is left to do
    byId('copy').textContent = 'Press Ctrl+C';
  }
  announce(byId('copy').textContent);
  setTimeout(() => (byId('copy').textContent = 'Copy'), 1600);
}

function look() {
  const focused = /** @type {HTMLElement | null} */ (document.querySelector('#target [tabindex="0"]'));
  const { source, target } = now;
  const sentences = output.sentences.map((sentence) => ({ text: sourceOf(sentence), source, target }));
  lookInside(sentences, Number(focused?.dataset.sentence ?? 0));
}

/** @param {boolean} shaded */
function shade(shaded) {
  localStorage.setItem('confidence', String(shaded));
  byId('confidence').setAttribute('aria-pressed', String(shaded));
  byId('target').classList.toggle('shaded', shaded);
  byId('shades').hidden = !shaded;
}

/** @param {string} theme */
function setTheme(theme) {
  localStorage.setItem('theme', theme);
  if (theme === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  byId('theme').textContent = { system: 'Auto', light: 'Light', dark: 'Dark' }[theme];
  byId('theme').setAttribute('aria-label', `Colours: ${theme}`);
  repaint();
}

function listen() {
  byId('source').addEventListener('input', () => translateSoon(PAUSE));
  byId('source').addEventListener('keydown', (/** @type {KeyboardEvent} */ event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) translateSoon(0);
  });
  byId('clear').addEventListener('click', () => {
    byId('source').value = '';
    translateSoon(0);
    byId('source').focus();
  });
  byId('swap').addEventListener('click', swap);
  addEventListener('keydown', (event) => {
    if (event.altKey && event.code === 'KeyS') swap();
  });
  byId('copy').addEventListener('click', copy);
  byId('look').addEventListener('click', look);
  byId('confidence').addEventListener('click', () => shade(byId('confidence').getAttribute('aria-pressed') !== 'true'));
  byId('theme').addEventListener('click', () => {
    const chosen = THEMES.indexOf(localStorage.getItem('theme') ?? 'system');
    setTheme(THEMES[(chosen + 1) % THEMES.length]);
  });
  byId('key-box').addEventListener('submit', (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    key.set(byId('key').value.trim());
    translateSoon(0);
  });
  for (const button of document.querySelectorAll('[data-close]')) {
    button.addEventListener('click', () => button.closest('dialog')?.close());
  }
  for (const dialog of document.querySelectorAll('dialog')) {
    dialog.addEventListener('click', (event) => event.target === dialog && dialog.close()); // beside it
  }
}

/** @param {import('./history.js').Past} past */
function goBack(past) {
  byId('source').value = past.text;
  languages.pick(past.from, past.into);
  byId('source').focus();
}

async function start() {
  setTheme(localStorage.getItem('theme') ?? 'system');
  shade(localStorage.getItem('confidence') === 'true');
  listen();
  listenToAll();
  listenToChoices();
  listenToLook();
  listenToHistory(goBack);
  try {
    const [known, settings] = await Promise.all([ask('languages'), ask('frontend/settings')]);
    now.most = settings.charLimit;
    now.keyed = settings.keyRequired;
    languages = new Languages(known, () => translateAnew());
    listenToGlossary(() => translateAnew(PAUSE));
    const kinds = settings.filesTranslation ? settings.supportedFilesFormat : [];
    listenToFiles(kinds, () => ({ source: languages.from, target: languages.into }));
    if (settings.keyRequired && !key.get()) byId('key-box').hidden = false;
    translateSoon(0); // a browser may have kept what was typed
    byId('source').focus();
  } catch (error) {
    showProblem(/** @type {Error} */ (error).message);
  }
}

start();
