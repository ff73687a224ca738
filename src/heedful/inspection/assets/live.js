// @ts-check
'use strict';

/** What was asked last. @type {{request: AbortController | null, asked: string}} */
const live = { request: null, asked: '' };

/**
 * What the page around it does: it gets documents, and is told of those that are shown.
 * @type {{ask: (text: string, off: string[], signal: AbortSignal) => Promise<AttentionDocument>,
 *         shown: (doc: AttentionDocument) => void}}
 */
const around = { ask: () => Promise.reject(new Error('there is no server')), shown: () => {} };

function renderLive() {
  byId('power-hint').hidden = !view.doc.live;
  renderComparison();
  if (view.doc.live) renderOff();
}

/** The bar of heads that are off. */
function renderOff() {
  const names = [...view.off];
  byId('off-bar').hidden = !names.length;
  const tags = names.map((name) => make('button', { type: 'button', class: 'tag', 'data-on': name,
    'aria-label': `Switch on ${headTitle(name)}`, title: 'Switch on' }, name));
  byId('off-names').replaceChildren(...tags);
}

/** The translation with all heads beside the one without some, words that differ marked. */
function renderComparison() {
  const { off, baseline, hypotheses } = view.doc;
  byId('comparison').hidden = baseline === null;
  if (baseline === null) return;
  const now = hypotheses[0].text;
  const [before, after] = differences(baseline.split(/\s+/), now.split(/\s+/));
  byId('all-on').replaceChildren(...before);
  byId('some-off').replaceChildren(...after);
  byId('some-off-title').textContent = `Without ${off.join(', ')}`;
  byId('unchanged').hidden = baseline !== now;
}

/** Words outside of the longest common subsequence are marked. @param {string[]} a @param {string[]} b */
function differences(a, b) {
  const table = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      table[i][j] = a[i] === b[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
    }
  }
  /** @type {(Node | string)[][]} */
  const out = [[], []];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      out[0].push(a[i++], ' ');
      out[1].push(b[j++], ' ');
    } else if (j >= b.length || (i < a.length && table[i + 1][j] >= table[i][j + 1])) {
      out[0].push(make('mark', {}, a[i++]), ' ');
    } else out[1].push(make('mark', {}, b[j++]), ' ');
  }
  return out;
}

/** Only the newest question counts: it cuts off the one before. @param {string} text */
async function translate(text) {
  live.request?.abort();
  live.asked = text;
  const request = (live.request = new AbortController());
  setBusy(true);
  try {
    const doc = await around.ask(text, [...view.off], request.signal);
    if (request.signal.aborted) return; // cut off after the head of an answer and before its end
    show(doc);
    announce(`Translated: ${doc.hypotheses[0]?.text ?? ''}`);
  } catch (error) {
    if (request.signal.aborted) return;
    backToShown();
    const gone = error instanceof TypeError; // what fetch throws where nobody listens
    showError(gone ? 'The server does not answer; is it still running?' : /** @type {Error} */ (error).message);
  } finally {
    if (live.request === request) setBusy(false);
  }
}

/** What is shown still is of the text and the heads of before. */
function backToShown() {
  view.off = new Set(view.doc?.off);
  live.asked = view.doc?.source.text ?? '';
  markGrid();
  renderOff();
}

/** @param {boolean} busy */
function setBusy(busy) {
  byId('busy').textContent = busy ? 'Translating…' : '';
  document.body.setAttribute('aria-busy', String(busy));
  if (busy) showError('');
}

/** @param {string} message */
function showError(message) {
  byId('error').textContent = message;
  byId('error').hidden = !message;
}

/** @param {string} name */
function toggleOff(name) {
  if (!view.off.delete(name)) view.off.add(name);
  offChanged();
}

function offChanged() {
  markGrid();
  renderOff();
  translate(live.asked);
}

function listenToOff() {
  byId('off-names').addEventListener('click', (/** @type {MouseEvent} */ event) => {
    const tag = event.target instanceof HTMLElement ? event.target.dataset.on : undefined;
    if (tag) toggleOff(tag);
  });
  byId('all-heads-on').addEventListener('click', () => {
    view.off.clear();
    offChanged();
  });
}
