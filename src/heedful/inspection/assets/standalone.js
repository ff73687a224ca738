// The page of all heads: one file, or served by `heedful heads --serve`.
import { byId, make } from './dom.js';
import { isDark, onSystemThemeChange, setTheme } from './theme.js';
import { openNamedHead, repaint, requestDocument, showDocument, startExplorer } from './explorer.js';
import { state } from './state.js';

/** @typedef {import('./attention.js').AttentionDocument} AttentionDocument */

/** @param {string} text @param {string[]} off @param {AbortSignal} signal @returns {Promise<AttentionDocument>} */
async function askServer(text, off, signal) {
  const headers = { 'Content-Type': 'application/json', 'X-Heedful': '1' };
  const body = JSON.stringify({ text, off, n_best: Math.max(1, state.doc.hypotheses.length) });
  const response = await fetch('attention', { method: 'POST', headers, body, signal }).catch(() => {
    throw new Error('The server is not responding. Check that it is still running.');
  });
  const content = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(content.error ?? `The server returned status ${response.status}.`);
  return content;
}

/** @param {AttentionDocument} doc */
function showNames(doc) {
  byId('model').textContent = doc.model;
  document.title = `${doc.source.text || 'All attention heads'} – heedful`;
  byId('ask').hidden = !doc.live || !!doc.picture; // a page names no files
  byId('not-live').hidden = doc.live;
  const { examples = [] } = doc;
  byId('examples').hidden = !examples.length;
  byId('examples').replaceChildren('Try: ', ...examples.flatMap((text) => [make('button', { type: 'button', class: 'tag', lang: '' }, text), ' ']));
}

function labelThemeButton() {
  const other = isDark() ? 'Light' : 'Dark';
  byId('theme').textContent = other;
  byId('theme').hidden = false;
  byId('theme').setAttribute('aria-label', `${other} theme`);
}

function listenToPage() {
  const text = byId('text', HTMLTextAreaElement);
  byId('ask').addEventListener('submit', (event) => {
    event.preventDefault();
    requestDocument(text.value);
  });
  byId('examples').addEventListener('click', (event) => {
    if (!(event.target instanceof HTMLButtonElement)) return;
    text.value = event.target.textContent ?? '';
    requestDocument(text.value);
  });
  text.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    requestDocument(text.value);
  });
  byId('theme').addEventListener('click', () => {
    setTheme(isDark() ? 'light' : 'dark');
    labelThemeButton();
    repaint();
  });
  onSystemThemeChange(labelThemeButton);
  addEventListener('popstate', () => openNamedHead(location.hash.slice(1)));
}

let hasStarted = false;

/** The address names the head that is open, to share it and to go back. @param {string} name */
function showAddress(name) {
  if (hasStarted && location.hash !== `#${name}`) history.pushState(null, '', `#${name}`);
}

function start() {
  startExplorer(askServer, { onShow: showNames, onOpenHead: showAddress });
  listenToPage();
  labelThemeButton();
  openNamedHead(location.hash.slice(1));
  showDocument(JSON.parse(byId('document').textContent ?? ''));
  byId('text', HTMLTextAreaElement).value = state.doc.source.text;
  repaint();
  hasStarted = true;
}

start();
