// What the pages for labels and for finding do alike: failures are shown, and a key is asked for.
import { byId, showMessage } from './dom.js';
import { apiKey } from './api.js';

/** @param {() => Promise<void>} work whose failure is shown */
export async function attempt(work) {
  showMessage(byId('problem'), '');
  try {
    await work();
  } catch (error) {
    const { message } = /** @type {Error} */ (error);
    showMessage(byId('problem'), message);
    if (/API key/.test(message)) byId('key-box').hidden = false;
  }
}

export function listenForKey() {
  byId('key-box').addEventListener('submit', (event) => {
    event.preventDefault();
    apiKey.set(byId('key', HTMLInputElement).value.trim());
    byId('key-box').hidden = true;
    showMessage(byId('problem'), '');
  });
}
