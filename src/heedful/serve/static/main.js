// The translation page.
import { announce, byId, findAll, showMessage } from './dom.js';
import { currentTheme, setTheme } from './theme.js';
import { repaint } from './explorer.js';
import { readAddress, writeAddress } from './address.js';
import { listenToAlternatives, offerAlternatives } from './alternatives.js';
import { RequestError, apiKey, asJson, ask, askForEvents } from './api.js';
import { listenToFiles } from './files.js';
import { glossary, listenToGlossary, showGlossaryCount } from './glossary.js';
import { listenToHistory, remember } from './history.js';
import { AUTO, Languages } from './languages.js';
import { closeLook, currentLook, listenToLook, lookInside, updateLook } from './look.js';
import { Output, joinSentences } from './output.js';
import { localStore } from './storage.js';

/** @typedef {import('./address.js').Address} Address */
/** @typedef {import('./api.js').Alternative} Alternative */
/** @typedef {import('./api.js').Sentence} Sentence */
/** @typedef {import('./output.js').ShownSentence} ShownSentence */
/** @typedef {import('./theme.js').Theme} Theme */

const FIRST_PAUSE = 150; // milliseconds that a change waits for more of them
const THROTTLE = 400; // milliseconds between two requests while somebody types
const STOPPED = 400; // milliseconds without a key after which a request for an older text is dropped
const HISTORY_PAUSE = 1500; // milliseconds before a translation is remembered
const LONGEST_RETRY = 30; // seconds between two attempts
const MOST_RETRIES = 8;
/** @type {Theme[]} */
const THEMES = ['system', 'light', 'dark'];
const THEME_TITLES = { system: 'Auto', light: 'Light', dark: 'Dark' };

/** What is on show, and the request for the next text. */
const current = {
  /** @type {AbortController | null} */ request: null,
  changedAt: 0, // when the text first differed from the one that was last sent; 0: it does not
  startedAt: 0,
  retries: 0,
  source: '',
  via: '', // the language that two models go through
  target: '',
  text: '',
  /** @type {Map<string, Alternative>} */ chosen: new Map(), // translations of sentences that the user has chosen
  /** @type {{before: ShownSentence, chosen: Alternative | undefined}[]} */ undo: [],
  /** @type {Address | null} */ wanted: null, // the head to open when the translation is there
  maxCharacters: Infinity,
  needsKey: false,
  timer: 0,
  historyTimer: 0,
};

/** @type {Languages | undefined} */
let languages; // until the server has told them
const sourceBox = byId('source', HTMLTextAreaElement);
const output = new Output(askForAlternatives);

// Translating

/** Translates while somebody types: at most every THROTTLE milliseconds, and without waiting until they stop. */
function translateSoon() {
  const now = performance.now();
  current.changedAt ||= now;
  current.retries = 0;
  clearTimeout(current.timer);
  if (!checkText()) return;
  const due = Math.max(current.changedAt + FIRST_PAUSE, current.startedAt + THROTTLE) - now;
  current.timer = setTimeout(startTranslating, current.request ? STOPPED : Math.max(0, due));
}

function translateNow() {
  current.retries = 0;
  if (checkText()) startTranslating();
}

/** Shows what is wrong with the text, or whether it can be translated. */
function checkText() {
  const text = sourceBox.value;
  const size = [...text].length;
  const limit = current.maxCharacters.toLocaleString('en');
  byId('count').textContent = text ? `${size.toLocaleString('en')} / ${limit}` : '';
  byId('count').classList.toggle('over', size > current.maxCharacters);
  byId('clear').hidden = !text;
  if (!text.trim()) showNothing();
  else if (size > current.maxCharacters) showProblem(`The text is too long: the limit is ${limit} characters. Files can be longer.`);
  else return languages !== undefined; // without them, this is called again when they are there
  return false;
}

async function startTranslating() {
  if (!languages) return;
  clearTimeout(current.timer);
  current.request?.abort();
  const request = (current.request = new AbortController());
  Object.assign(current, { changedAt: 0, startedAt: performance.now() });
  setBusy(true);
  try {
    await translate(sourceBox.value, languages, request.signal);
    current.retries = 0;
    showProblem('');
  } catch (error) {
    if (!request.signal.aborted) showFailure(/** @type {Error} */ (error));
  }
  if (current.request !== request) return;
  current.request = null;
  setBusy(false);
  if (current.changedAt) translateSoon(); // the text has changed meanwhile
}

/** @param {string} text @param {Languages} languages @param {AbortSignal} signal */
async function translate(text, languages, signal) {
  const { code: source, note } = await languages.sourceOf(text, signal);
  const target = languages.into;
  if (!source) {
    showUnchanged(text, target, note);
    return;
  }
  const content = { text, source, target, confidence: true, glossary: glossary({ source, target }), stream: true };
  const characters = [...text];
  const before = output.sentences;
  /** @type {Sentence[]} */
  const sentences = [];
  for await (const event of askForEvents('v1/translate', { ...asJson(content), signal })) {
    if (signal.aborted) return; // there is a newer text
    if (event.name === 'sentence') {
      sentences.push(event.content);
      const done = joinSentences(characters, sentences).sentences;
      const stale = before.slice(done.length).map((each) => ({ ...each, isStale: true }));
      output.show([...withChosen(done), ...stale]);
      continue;
    }
    const { via = '' } = event.content;
    Object.assign(current, { source, via, target, text });
    byId('detected').textContent = note;
    byId('via').textContent = via && `Through ${languages.nameOf(via)}`;
    byId('target').lang = target;
    showGlossaryCount({ source, target });
    const [whole] = event.content.texts;
    showFailedTerms(whole.sentences.flatMap((/** @type {{failed_terms?: string[]}} */ each) => each.failed_terms ?? []));
    const joined = joinSentences(characters, whole.sentences, whole.text);
    output.show(withChosen(joined.sentences), joined.end);
    showDone();
  }
}

/** Names the terms of the glossary that the translation does not have. @param {string[]} terms */
function showFailedTerms(terms) {
  const unique = [...new Set(terms)];
  byId('failed-terms').textContent = unique.length ? `Terms that do not fit this text and were left out: ${unique.join('; ')}` : '';
  byId('failed-terms').hidden = !unique.length;
}

/** Shows a text that is not translated. @param {string} text @param {string} target @param {string} note */
function showUnchanged(text, target, note) {
  Object.assign(current, { source: '', via: '', target, text });
  byId('detected').textContent = note;
  byId('via').textContent = '';
  byId('target').lang = '';
  showFailedTerms([]);
  output.show([], text);
  closeLook();
  setReady(false);
}

/** @param {ShownSentence[]} sentences @returns {ShownSentence[]} with the translations that the user has chosen */
function withChosen(sentences) {
  return sentences.map((each) => {
    const alternative = current.chosen.get(each.source);
    return alternative ? { ...each, text: alternative.text, alternative } : each;
  });
}

/** The translation has changed and is complete. */
function showDone() {
  const isEmpty = !output.sentences.length;
  setReady(!isEmpty);
  byId('undo').hidden = !current.undo.length;
  updateLook(explained());
  rememberSoon();
  const { wanted } = current;
  current.wanted = null;
  if (wanted?.sentence && wanted.sentence <= output.sentences.length) {
    lookInside(explained(), wanted.sentence - 1, wanted.head);
  }
}

/** The old translation stays. If the failure is temporary, the page tries again by itself. @param {Error} error */
function showFailure(error) {
  output.show(output.sentences.map((each) => ({ ...each, isStale: true })), output.end);
  const isRefused = error instanceof RequestError && (error.status === 403 || (current.needsKey && !apiKey.get()));
  if (isRefused) askForKey();
  if (!(error instanceof RequestError) || !error.isTemporary || isRefused || current.retries >= MOST_RETRIES) {
    return showProblem(error.message);
  }
  const seconds = error.retryAfter || Math.min(2 ** current.retries, LONGEST_RETRY);
  current.retries += 1;
  showProblem(`${error.message} Trying again in ${seconds} s.`);
  clearTimeout(current.timer);
  current.timer = setTimeout(startTranslating, 1000 * seconds);
}

function showNothing() {
  clearTimeout(current.historyTimer);
  clearTimeout(current.timer);
  current.request?.abort();
  Object.assign(current, { request: null, changedAt: 0, text: '', undo: [] });
  output.clear();
  closeLook();
  setBusy(false);
  setReady(false);
  showProblem('');
  byId('undo').hidden = true;
  showFailedTerms([]);
  byId('detected').textContent = byId('via').textContent = '';
  if (readAddress(location.hash)?.text) showAddress(true);
}

function rememberSoon() {
  clearTimeout(current.historyTimer);
  const { source, target, text } = current;
  current.historyTimer = setTimeout(() => {
    announce(`Translation: ${output.text}`);
    remember({ from: source, into: target, text, translation: output.text });
    const shown = readAddress(location.hash);
    const isContinued = shown && (text.startsWith(shown.text) || shown.text.startsWith(text)) && shown.into === target;
    showAddress(shown !== null && !isContinued);
  }, HISTORY_PAUSE);
}

/** @param {boolean} isNew whether the browser keeps the old address in its history */
function showAddress(isNew) {
  if (!languages) return;
  writeAddress({ from: languages.from, into: languages.into, text: current.text, ...currentLook() }, isNew);
}

/** Shows what an address says, when the page starts and when somebody goes back or forward. */
function followAddress() {
  const address = readAddress(location.hash);
  if (!address || !languages) return;
  current.chosen.clear();
  languages.show(address.from, address.into);
  sourceBox.value = current.text = address.text;
  if (!address.sentence) closeLook();
  current.wanted = address;
  translateNow();
}

// The translation

/** @returns {import('./look.js').Explained[]} */
function explained() {
  const { source, via, target } = current;
  const terms = glossary({ source, target });
  return output.sentences.map((each) => {
    const whole = { text: each.source, translation: each.text, source, target, terms };
    if (!via || each.pivot === undefined) return { ...whole, steps: [whole] };
    const first = { ...whole, translation: each.pivot, target: via, terms: {} };
    const second = { ...whole, text: each.pivot, source: via, terms: {} };
    return { ...whole, steps: [first, second] };
  });
}

/** @param {import('./look.js').Step} step @returns {string} such as "French to English" */
function nameStep({ source, target }) {
  return languages ? `${languages.nameOf(source)} to ${languages.nameOf(target)}` : '';
}

/** @param {number} number @param {number} start @param {HTMLElement} word */
function askForAlternatives(number, start, word) {
  const before = output.sentences[number];
  offerAlternatives(word, { ...explained()[number], start }, (alternative) => {
    current.undo.push({ before, chosen: current.chosen.get(before.source) });
    current.chosen.set(before.source, alternative);
    output.replace(number, { text: alternative.text, alternative });
    output.focusWord(number, start);
    showDone();
  });
}

/** Takes back the alternative that was chosen last. */
function undoChoice() {
  const last = current.undo.pop();
  if (!last) return;
  const { source, text, alternative } = last.before;
  if (last.chosen) current.chosen.set(source, last.chosen);
  else current.chosen.delete(source);
  const number = output.sentences.findIndex((each) => each.source === source);
  if (number >= 0) {
    output.replace(number, { text, alternative });
    output.focusWord(number, 0);
  }
  announce('The last choice is undone');
  showDone();
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
function translateAgain() {
  current.chosen.clear();
  current.undo = [];
  if (languages) showGlossaryCount(languages.pairOf(current.source));
  translateNow();
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
  lookInside(explained(), Number(focused?.dataset.sentence ?? 0));
}

// The page

/** @param {boolean} isShown */
function showConfidence(isShown) {
  localStore.set('confidence', String(isShown));
  byId('confidence').setAttribute('aria-pressed', String(isShown));
  byId('target').classList.toggle('shaded', isShown);
  byId('shades').hidden = !isShown;
}

/** @param {Theme} theme */
function selectTheme(theme) {
  localStore.set('theme', theme);
  setTheme(theme);
  byId('theme').textContent = THEME_TITLES[theme];
  byId('theme').setAttribute('aria-label', `Theme: ${THEME_TITLES[theme]}`);
  repaint();
}

/** Alt+S, but not AltGr+S or Option+S, which type a letter. @param {KeyboardEvent} event */
function isSwapKey(event) {
  if (!event.altKey || event.ctrlKey || event.metaKey || event.getModifierState('AltGraph')) return false;
  return event.key.toLowerCase() === 's';
}

function listen() {
  sourceBox.addEventListener('input', translateSoon);
  sourceBox.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) translateNow();
  });
  byId('clear').addEventListener('click', () => {
    sourceBox.value = '';
    translateNow();
    sourceBox.focus();
  });
  byId('swap').addEventListener('click', swapLanguages);
  addEventListener('keydown', (event) => {
    if (!isSwapKey(event)) return;
    event.preventDefault();
    swapLanguages();
  });
  addEventListener('popstate', followAddress);
  byId('copy').addEventListener('click', copyTranslation);
  byId('undo').addEventListener('click', undoChoice);
  byId('look').addEventListener('click', lookAtFocused);
  byId('skip').addEventListener('click', (event) => {
    event.preventDefault(); // its address would replace the one of the text
    sourceBox.focus();
  });
  const confidence = byId('confidence');
  confidence.addEventListener('click', () => showConfidence(confidence.getAttribute('aria-pressed') !== 'true'));
  byId('theme').addEventListener('click', () => {
    selectTheme(THEMES[(THEMES.indexOf(currentTheme()) + 1) % THEMES.length]);
  });
  byId('key-box').addEventListener('submit', (event) => {
    event.preventDefault();
    apiKey.set(byId('key', HTMLInputElement).value.trim());
    translateNow();
  });
  for (const button of findAll('[data-close]')) {
    button.addEventListener('click', () => button.closest('dialog')?.close());
  }
  for (const dialog of document.querySelectorAll('dialog')) {
    dialog.addEventListener('click', (event) => event.target === dialog && dialog.close()); // beside it
  }
}

/** Asks the server what it can do, again and again if it does not answer. @param {number} [attempt] */
async function connect(attempt = 0) {
  try {
    const [known, settings] = await Promise.all([ask('languages'), ask('frontend/settings')]);
    showProblem('');
    useServer(known, settings);
  } catch (error) {
    const { message } = /** @type {Error} */ (error);
    if (!(error instanceof RequestError) || !error.isTemporary) return showProblem(message);
    const seconds = error.retryAfter || Math.min(2 ** attempt, LONGEST_RETRY);
    showProblem(`${message} Trying again in ${seconds} s.`);
    setTimeout(() => connect(attempt + 1), 1000 * seconds);
  }
}

/** @param {import('./languages.js').Language[]} known @param {any} settings */
function useServer(known, settings) {
  current.maxCharacters = settings.charLimit;
  current.needsKey = settings.keyRequired;
  const selected = (languages = new Languages(known, translateAgain));
  const currentPair = () => selected.pairOf(current.source);
  listenToGlossary(currentPair, (code) => selected.nameOf(code), () => {
    current.chosen.clear();
    current.undo = [];
    translateSoon();
  });
  showGlossaryCount(currentPair());
  const fileOptions = () => ({ source: selected.from, target: selected.into, terms: glossary(currentPair()) });
  const takeText = (/** @type {string} */ text) => {
    sourceBox.value = sourceBox.value.trim() ? `${sourceBox.value.trimEnd()}\n${text}` : text;
    translateNow();
    sourceBox.focus();
  };
  listenToFiles(settings.filesTranslation ? settings.supportedFilesFormat : [], fileOptions, takeText, showProblem);
  if (settings.keyRequired && !apiKey.get()) byId('key-box').hidden = false;
  if (readAddress(location.hash)) followAddress();
  else if (sourceBox.value) translateNow(); // the browser may have restored a text
  sourceBox.focus();
}

function start() {
  selectTheme(currentTheme());
  showConfidence(localStore.get('confidence') === 'true');
  listen();
  listenToAlternatives();
  listenToLook(showAddress, nameStep);
  listenToHistory((entry) => {
    sourceBox.value = entry.text;
    languages?.select(entry.from, entry.into);
    sourceBox.focus();
  });
  connect();
}

start();
