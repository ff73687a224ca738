// The translation page.
import { announce, byId, findAll, showMessage } from './dom.js';
import { currentTheme, setTheme } from './theme.js';
import { repaint } from './explorer.js';
import { listenToAlternatives, offerAlternatives } from './alternatives.js';
import { RequestError, apiKey, ask } from './api.js';
import { listenToFiles } from './files.js';
import { glossary, listenToGlossary } from './glossary.js';
import { listenToHistory, remember } from './history.js';
import { AUTO, Languages } from './languages.js';
import { listenToLook, lookInside } from './look.js';
import { Output } from './output.js';

/** @typedef {import('./api.js').Alternative} Alternative */
/** @typedef {import('./api.js').Translation} Translation */
/** @typedef {import('./theme.js').Theme} Theme */

const TYPING_PAUSE = 250; // milliseconds without a key before a text is translated
const HISTORY_PAUSE = 1500; // milliseconds before it is remembered
/** @type {Theme[]} */
const THEMES = ['system', 'light', 'dark'];
const THEME_TITLES = { system: 'Auto', light: 'Light', dark: 'Dark' };

/** The text on show, and the request for the next one: a newer request aborts the one before. */
const current = {
  /** @type {AbortController | null} */ request: null,
  source: '',
  target: '',
  text: '',
  /** @type {string[]} */ characters: [], // the server counts code points, not UTF-16 units
  /** @type {Map<string, Alternative>} */ chosen: new Map(), // translations of sentences that the user has chosen
  maxCharacters: Infinity,
  needsKey: false,
  typingTimer: 0,
  historyTimer: 0,
};

/** @type {Languages | undefined} */
let languages; // until the server has told them
const sourceBox = byId('source', HTMLTextAreaElement);
const output = new Output(askForAlternatives);

/** @param {number} pause in milliseconds */
function translateSoon(pause) {
  clearTimeout(current.typingTimer);
  current.request?.abort();
  const text = sourceBox.value;
  const size = [...text].length;
  const limit = current.maxCharacters.toLocaleString('en');
  byId('count').textContent = text ? `${size.toLocaleString('en')} / ${limit}` : '';
  byId('count').classList.toggle('over', size > current.maxCharacters);
  byId('clear').hidden = !text;
  if (!text.trim()) return showNothing();
  if (!languages) return; // this is called again when they are there
  if (size > current.maxCharacters) {
    return showProblem(`The text is too long: the limit is ${limit} characters. Files can be longer.`);
  }
  const known = languages;
  current.typingTimer = setTimeout(() => translate(text, known), pause);
}

/** @param {string} text @param {Languages} languages */
async function translate(text, languages) {
  const request = (current.request = new AbortController());
  const { signal } = request;
  setBusy(true);
  try {
    const source = await languages.sourceOf(text, signal);
    const target = languages.into;
    const content = { text, source, target, confidence: true, glossary: glossary() };
    const translation = /** @type {Translation} */ (await ask('v1/translate', content, signal));
    if (signal.aborted) return; // there is a newer text
    Object.assign(current, { source, target, text, characters: [...text] });
    byId('detected').textContent = languages.from === AUTO ? `Detected: ${languages.nameOf(source)}` : '';
    show(translation);
    showProblem('');
  } catch (error) {
    if (signal.aborted) return;
    output.clear();
    setReady(false);
    showProblem(/** @type {Error} */ (error).message);
    const isRefused = error instanceof RequestError && (error.status === 403 || (current.needsKey && !apiKey.get()));
    if (isRefused) askForKey();
  } finally {
    if (current.request === request) setBusy(false);
  }
}

/** @param {Translation} translation */
function show(translation) {
  const [{ text, sentences }] = translation.texts;
  let [whole, last] = ['', 0];
  for (const sentence of sentences) {
    const start = Math.max(last, text.indexOf(sentence.text, last));
    const alternative = current.chosen.get(sourceTextOf(sentence));
    whole += text.slice(last, start);
    last = start + sentence.text.length;
    if (alternative) Object.assign(sentence, { text: alternative.text, alternatives: [alternative] });
    whole += sentence.text;
  }
  output.show(whole + text.slice(last), sentences);
  byId('target').lang = current.target;
  setReady(sentences.length > 0);
  rememberSoon();
}

function showNothing() {
  clearTimeout(current.historyTimer);
  current.request = null;
  current.text = '';
  output.clear();
  setBusy(false);
  setReady(false);
  showProblem('');
  byId('detected').textContent = '';
}

function rememberSoon() {
  clearTimeout(current.historyTimer);
  const { source, target, text } = current;
  current.historyTimer = setTimeout(() => {
    announce(`Translation: ${output.text}`);
    remember({ from: source, into: target, text, translation: output.text });
  }, HISTORY_PAUSE);
}

/** @param {{start: number, end: number}} sentence */
function sourceTextOf({ start, end }) {
  return current.characters.slice(start, end).join('');
}

/** @param {number} number @param {number} start @param {HTMLElement} word */
function askForAlternatives(number, start, word) {
  const { source, target } = current;
  const sentence = output.sentences[number];
  const text = sourceTextOf(sentence);
  offerAlternatives(word, { source, target, text, translation: sentence.text, start }, (alternative) => {
    current.chosen.set(text, alternative);
    const at = startOf(number);
    const rest = output.text.slice(at + sentence.text.length);
    Object.assign(sentence, { text: alternative.text, alternatives: [alternative] });
    output.show(output.text.slice(0, at) + alternative.text + rest, output.sentences);
    output.focusWord(number, start);
    rememberSoon();
  });
}

/** @param {number} number @returns {number} where this sentence starts in the whole translation */
function startOf(number) {
  let last = 0;
  for (const sentence of output.sentences.slice(0, number)) {
    last = Math.max(last, output.text.indexOf(sentence.text, last)) + sentence.text.length;
  }
  return output.text.indexOf(output.sentences[number].text, last);
}

/** @param {boolean} busy */
function setBusy(busy) {
  byId('target').setAttribute('aria-busy', String(busy));
  byId('working').textContent = busy ? 'Translating…' : '';
}

/** @param {boolean} ready */
function setReady(ready) {
  byId('copy', HTMLButtonElement).disabled = byId('look', HTMLButtonElement).disabled = !ready;
}

/** @param {string} message */
function showProblem(message) {
  showMessage(byId('problem'), message);
}

function askForKey() {
  byId('key-box').hidden = false;
  byId('key').focus();
}

/** Translates again after a change of languages or terms, without the alternatives chosen before. */
function translateAgain(pause = 0) {
  current.chosen.clear();
  translateSoon(pause);
}

/** Swaps the languages; the translation becomes the text. */
function swapLanguages() {
  if (!languages) return;
  const { from, into } = languages;
  const source = from === AUTO ? current.source : from;
  if (!languages.targetsOf(into).includes(source)) return;
  if (output.text) sourceBox.value = output.text;
  languages.select(into, source);
}

async function copyTranslation() {
  const button = byId('copy');
  try {
    await navigator.clipboard.writeText(output.text);
    button.textContent = 'Copied';
  } catch {
    getSelection()?.selectAllChildren(byId('target')); // the browser does not allow it; the user can
    button.textContent = 'Press Ctrl+C';
  }
  announce(button.textContent);
  setTimeout(() => (button.textContent = 'Copy'), 1600);
}

function lookAtFocused() {
  const [focused] = findAll('#target [tabindex="0"]');
  const { source, target } = current;
  const sentences = output.sentences.map((sentence) => ({ text: sourceTextOf(sentence), source, target }));
  lookInside(sentences, Number(focused?.dataset.sentence ?? 0));
}

/** @param {boolean} isShown */
function showConfidence(isShown) {
  localStorage.setItem('confidence', String(isShown));
  byId('confidence').setAttribute('aria-pressed', String(isShown));
  byId('target').classList.toggle('shaded', isShown);
  byId('shades').hidden = !isShown;
}

/** @param {Theme} theme */
function selectTheme(theme) {
  localStorage.setItem('theme', theme);
  setTheme(theme);
  byId('theme').textContent = THEME_TITLES[theme];
  byId('theme').setAttribute('aria-label', `Theme: ${theme}`);
  repaint();
}

function listen() {
  sourceBox.addEventListener('input', () => translateSoon(TYPING_PAUSE));
  sourceBox.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) translateSoon(0);
  });
  byId('clear').addEventListener('click', () => {
    sourceBox.value = '';
    translateSoon(0);
    sourceBox.focus();
  });
  byId('swap').addEventListener('click', swapLanguages);
  addEventListener('keydown', (event) => {
    if (event.altKey && event.code === 'KeyS') swapLanguages();
  });
  byId('copy').addEventListener('click', copyTranslation);
  byId('look').addEventListener('click', lookAtFocused);
  const confidence = byId('confidence');
  confidence.addEventListener('click', () => showConfidence(confidence.getAttribute('aria-pressed') !== 'true'));
  byId('theme').addEventListener('click', () => {
    selectTheme(THEMES[(THEMES.indexOf(currentTheme()) + 1) % THEMES.length]);
  });
  byId('key-box').addEventListener('submit', (event) => {
    event.preventDefault();
    apiKey.set(byId('key', HTMLInputElement).value.trim());
    translateSoon(0);
  });
  for (const button of findAll('[data-close]')) {
    button.addEventListener('click', () => button.closest('dialog')?.close());
  }
  for (const dialog of document.querySelectorAll('dialog')) {
    dialog.addEventListener('click', (event) => event.target === dialog && dialog.close()); // beside it
  }
}

async function start() {
  selectTheme(currentTheme());
  showConfidence(localStorage.getItem('confidence') === 'true');
  listen();
  listenToAlternatives();
  listenToLook();
  listenToHistory((entry) => {
    sourceBox.value = entry.text;
    languages?.select(entry.from, entry.into);
    sourceBox.focus();
  });
  try {
    const [known, settings] = await Promise.all([ask('languages'), ask('frontend/settings')]);
    current.maxCharacters = settings.charLimit;
    current.needsKey = settings.keyRequired;
    const selected = (languages = new Languages(known, () => translateAgain()));
    listenToGlossary(() => translateAgain(TYPING_PAUSE));
    const kinds = settings.filesTranslation ? settings.supportedFilesFormat : [];
    listenToFiles(kinds, () => ({ source: selected.from, target: selected.into }));
    if (settings.keyRequired && !apiKey.get()) byId('key-box').hidden = false;
    translateSoon(0); // the browser may have restored a text
    sourceBox.focus();
  } catch (error) {
    showProblem(/** @type {Error} */ (error).message);
  }
}

start();
