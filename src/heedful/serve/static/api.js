/** @typedef {{word: string, mean: number, least: number}} Word */
/** @typedef {{text: string, words?: Word[], finished: boolean, repeats: boolean, unsure: boolean}} Alternative */
/** @typedef {{start: number, end: number, text: string, alternatives: Alternative[]}} Sentence */
/** @typedef {{texts: {text: string, sentences: Sentence[]}[]}} Translation */

/** A failed request, with a message for people. */
export class RequestError extends Error {
  /** @param {string} message @param {number} [status] */
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

/** The API key is stored until the tab is closed, and nowhere else. */
export const apiKey = {
  get: () => sessionStorage.getItem('key') ?? '',
  set: (/** @type {string} */ value) => sessionStorage.setItem('key', value),
};

/**
 * @param {string} path
 * @param {{body?: BodyInit, headers?: Record<string, string>, signal?: AbortSignal}} [request]
 * @returns {Promise<Response>} whose status is a success
 */
export async function send(path, { body, headers = {}, signal } = {}) {
  const key = apiKey.get();
  const allHeaders = key ? { ...headers, Authorization: `Bearer ${key}` } : headers;
  let response;
  try {
    response = await fetch(path, { method: body === undefined ? 'GET' : 'POST', body, headers: allHeaders, signal });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new RequestError('The server is not responding. Check that it is still running.');
  }
  if (response.ok) return response;
  const { error } = await response.json().catch(() => ({}));
  throw new RequestError(describeFailure(error, response), response.status);
}

/** @param {string} path @param {object} [content] @param {AbortSignal} [signal] @returns {Promise<any>} */
export async function ask(path, content, signal) {
  const body = content && JSON.stringify(content);
  const headers = content && { 'Content-Type': 'application/json' };
  return (await send(path, { body, headers, signal })).json();
}

/** @param {string | undefined} error @param {Response} response */
function describeFailure(error, response) {
  const seconds = response.headers.get('Retry-After');
  if (response.status === 503 && seconds) return `The server is busy. Try again in ${seconds} s.`;
  if (response.status === 429 && seconds) return `This key has reached its rate limit. Try again in ${seconds} s.`;
  return error ? toSentence(error) : `The server returned status ${response.status}.`;
}

/** @param {string} message @returns {string} with a capital letter and a full stop */
export function toSentence(message) {
  const plain = message.replace(/^Invalid request: /, '');
  return plain.charAt(0).toUpperCase() + plain.slice(1) + (/[.!?]$/.test(plain) ? '' : '.');
}
