// The form for another sentence, on a page that `heedful explain --serve` serves.
import { byId } from './dom.js';

/** @param {string} text @param {string} translation @returns {Promise<string>} the address of the new page */
async function askServer(text, translation) {
  const headers = { 'Content-Type': 'application/json', 'X-Heedful': '1' };
  const response = await fetch('/explanations', { method: 'POST', headers, body: JSON.stringify({ text, translation }) }).catch(() => {
    throw new Error('The server is not responding. Check that it is still running.');
  });
  const content = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(content.error ?? `The server returned status ${response.status}.`);
  return content.page;
}

/** @param {string} text the sentence that the page explains */
export function listenToAsking(text) {
  const [form, button, says] = ['ask', 'show-ask', 'ask-says'].map((id) => byId(id));
  const sentence = byId('ask-text', HTMLInputElement);
  const submit = /** @type {HTMLButtonElement} */ (form.querySelector('[type=submit]'));
  sentence.value = text;
  button.hidden = false;
  button.addEventListener('click', () => {
    form.hidden = !form.hidden;
    button.setAttribute('aria-expanded', String(!form.hidden));
    if (!form.hidden) sentence.select();
  });
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    submit.disabled = true;
    const began = Date.now();
    const tell = () => { says.textContent = `Running every experiment on it … ${Math.round((Date.now() - began) / 1000)} s`; };
    tell();
    const timer = setInterval(tell, 1000);
    try {
      const page = await askServer(sentence.value, byId('ask-translation', HTMLInputElement).value);
      location.assign(`${page}${location.hash}`);
    } catch (error) {
      says.textContent = /** @type {Error} */ (error).message;
    } finally {
      clearInterval(timer);
      submit.disabled = false;
    }
  });
}
