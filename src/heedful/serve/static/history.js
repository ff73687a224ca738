import { byId, make } from './dom.js';
import { localStore } from './storage.js';

/** @typedef {{from: string, into: string, text: string, translation: string}} HistoryEntry */

const MOST = 50;
const LONGEST = 2000; // characters of a text that is remembered

/** @returns {HistoryEntry[]} the newest first */
function loadHistory() {
  try {
    const entries = JSON.parse(localStore.get('history') ?? '[]');
    return Array.isArray(entries) ? entries.filter((entry) => typeof entry?.text === 'string') : [];
  } catch {
    return [];
  }
}

/** @param {HistoryEntry[]} entries */
function saveHistory(entries) {
  localStore.set('history', JSON.stringify(entries.slice(0, MOST)));
}

/** Adds an entry. A text that continues the last one replaces it. @param {HistoryEntry} entry */
export function remember(entry) {
  if (!entry.text.trim() || entry.text.length > LONGEST) return;
  const others = loadHistory().filter((each) => each.text !== entry.text || each.into !== entry.into);
  const [last] = others;
  const isContinued = last?.into === entry.into && (entry.text.startsWith(last.text) || last.text.startsWith(entry.text));
  saveHistory([entry, ...(isContinued ? others.slice(1) : others)]);
}

/** @param {(entry: HistoryEntry) => void} onChoose */
export function listenToHistory(onChoose) {
  const dialog = byId('history', HTMLDialogElement);
  byId('open-history').addEventListener('click', () => {
    showHistory(dialog, onChoose);
    dialog.showModal();
  });
  byId('forget').addEventListener('click', () => {
    localStore.remove('history');
    showHistory(dialog, onChoose);
  });
}

/** @param {HTMLDialogElement} dialog @param {(entry: HistoryEntry) => void} onChoose */
function showHistory(dialog, onChoose) {
  const rows = loadHistory().map((entry) => {
    const pair = make('span', { class: 'pair-name' }, `${entry.from} → ${entry.into}`);
    const text = make('span', { dir: 'auto' }, entry.text);
    const translation = make('span', { dir: 'auto', class: 'muted' }, entry.translation);
    const button = make('button', { type: 'button' }, pair, text, translation);
    button.onclick = () => {
      dialog.close();
      onChoose(entry);
    };
    return make('li', {}, button);
  });
  byId('past').replaceChildren(...rows);
  byId('no-past').hidden = rows.length > 0;
  byId('forget').hidden = !rows.length;
}
