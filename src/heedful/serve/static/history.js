// @ts-check
import { byId, make } from './heads.js';

/** @typedef {{from: string, into: string, text: string, translation: string}} Past */

const MOST = 50;
const LONGEST = 2000; // characters of a text that is remembered

/** @returns {Past[]} the newest first */
function all() {
  try {
    const kept = JSON.parse(localStorage.getItem('history') ?? '[]');
    return Array.isArray(kept) ? kept.filter((past) => typeof past?.text === 'string') : [];
  } catch {
    return [];
  }
}

/** @param {Past[]} pasts */
function keep(pasts) {
  try {
    localStorage.setItem('history', JSON.stringify(pasts.slice(0, MOST)));
  } catch {
    localStorage.removeItem('history'); // there is no room: better to forget than to fail
  }
}

/** What goes on where the last one stopped takes its place. @param {Past} past */
export function remember(past) {
  if (!past.text.trim() || past.text.length > LONGEST) return;
  const before = all().filter((one) => one.text !== past.text || one.into !== past.into);
  const [last] = before;
  const grown = last && last.into === past.into && (past.text.startsWith(last.text) || last.text.startsWith(past.text));
  keep([past, ...(grown ? before.slice(1) : before)]);
}

/** @param {(past: Past) => void} chosen */
export function listenToHistory(chosen) {
  const dialog = byId('history');
  byId('open-history').addEventListener('click', () => {
    show(dialog, chosen);
    dialog.showModal();
  });
  byId('forget').addEventListener('click', () => {
    localStorage.removeItem('history');
    show(dialog, chosen);
  });
}

/** @param {HTMLDialogElement} dialog @param {(past: Past) => void} chosen */
function show(dialog, chosen) {
  const pasts = all();
  const rows = pasts.map((past) => {
    const pair = make('span', { class: 'pair-name' }, `${past.from} → ${past.into}`);
    const texts = [make('span', { dir: 'auto' }, past.text), make('span', { dir: 'auto', class: 'muted' }, past.translation)];
    const button = make('button', { type: 'button' }, pair, ...texts);
    button.onclick = () => {
      dialog.close();
      chosen(past);
    };
    return make('li', {}, button);
  });
  byId('past').replaceChildren(...rows);
  byId('no-past').hidden = byId('forget').hidden = false;
  byId('no-past').hidden = pasts.length > 0;
  byId('forget').hidden = !pasts.length;
}
