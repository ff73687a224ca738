// @ts-check
'use strict';

/** @param {string} text @param {string[]} off @param {AbortSignal} signal @returns {Promise<AttentionDocument>} */
async function askExplorer(text, off, signal) {
  const headers = { 'Content-Type': 'application/json', 'X-Heedful': '1' };
  const body = JSON.stringify({ text, off, n_best: Math.max(1, view.doc.hypotheses.length) });
  const answer = await fetch('attention', { method: 'POST', headers, body, signal });
  const content = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(content.error ?? `the server answered with status ${answer.status}`);
  return content;
}

/** @param {AttentionDocument} doc */
function nameDocument(doc) {
  byId('model').textContent = doc.model;
  document.title = `${doc.source.text || 'Every head'} – heedful`;
  byId('ask').hidden = !doc.live;
  byId('not-live').hidden = doc.live;
}

function labelTheme() {
  byId('theme').textContent = isDark() ? 'Light' : 'Dark';
  byId('theme').setAttribute('aria-label', `Switch to ${isDark() ? 'light' : 'dark'} colours`);
}

function listenToPage() {
  byId('ask').addEventListener('submit', (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    translate(byId('text').value);
  });
  byId('text').addEventListener('keydown', (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    translate(byId('text').value);
  });
  byId('theme').addEventListener('click', () => {
    document.documentElement.dataset.theme = isDark() ? 'light' : 'dark';
    labelTheme();
    repaint();
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', labelTheme);
}

function start() {
  Object.assign(around, { ask: askExplorer, shown: nameDocument });
  listenToAll();
  listenToPage();
  labelTheme();
  show(JSON.parse(byId('document').textContent));
  live.asked = byId('text').value = view.doc.source.text;
  repaint();
}

start();
