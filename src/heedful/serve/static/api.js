// @ts-check
/** @typedef {{word: string, mean: number, least: number}} Word */
/** @typedef {{text: string, words?: Word[], finished: boolean, repeats: boolean, unsure: boolean}} Option */
/** @typedef {{start: number, end: number, text: string, alternatives: Option[]}} Sentence */
/** @typedef {{texts: {text: string, sentences: Sentence[]}[]}} Answer */

/** What went wrong, in a sentence for people. */
export class Problem extends Error {
  /** @param {string} sentence @param {number} [status] */
  constructor(sentence, status = 0) {
    super(sentence);
    this.status = status;
  }
}

/** A key is kept as long as the tab is open, and nowhere else. */
export const key = {
  get: () => sessionStorage.getItem('key') ?? '',
  set: (/** @type {string} */ value) => sessionStorage.setItem('key', value),
};

/**
 * @param {string} path
 * @param {{body?: BodyInit, headers?: Record<string, string>, signal?: AbortSignal}} [request]
 * @returns {Promise<Response>} a good one
 */
export async function send(path, { body, headers = {}, signal } = {}) {
  const keyed = key.get() ? { ...headers, Authorization: `Bearer ${key.get()}` } : headers;
  let answer;
  try {
    answer = await fetch(path, { method: body === undefined ? 'GET' : 'POST', body, headers: keyed, signal });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem('The server does not answer; is it still running?');
  }
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => ({}));
  throw new Problem(sentence(said.error, answer), answer.status);
}

/** @param {string} path @param {object} [content] @param {AbortSignal} [signal] @returns {Promise<any>} */
export async function ask(path, content, signal) {
  const body = content && JSON.stringify(content);
  const headers = content && { 'Content-Type': 'application/json' };
  return (await send(path, { body, headers, signal })).json();
}

/** @param {string | undefined} said @param {Response} answer */
function sentence(said, answer) {
  const seconds = answer.headers.get('Retry-After');
  if (answer.status === 503 && seconds) return `The server has too much to do; try again in ${seconds} s.`;
  if (answer.status === 429 && seconds) return `This key was used too often; try again in ${seconds} s.`;
  if (!said) return `The server answered with status ${answer.status}.`;
  return tidy(said);
}

/** @param {string} said @returns {string} with a capital and a full stop */
export function tidy(said) {
  const plain = said.replace(/^Invalid request: /, '');
  return plain.charAt(0).toUpperCase() + plain.slice(1) + (/[.!?]$/.test(plain) ? '' : '.');
}
