import { sessionStore } from './storage.js';

/** @typedef {{word: string, mean: number, least: number}} Word */
/**
 * @typedef {{text: string, log_prob: number, words?: Word[], finished: boolean, repeats: boolean,
 *            unsure: boolean}} Alternative
 */
/** @typedef {{start: number, end: number, text: string, pivot?: string, failed_terms?: string[],
 *           alternatives: Alternative[]}} Sentence */
/** @typedef {{via?: string, texts: {text: string, sentences: Sentence[]}[]}} Translation */

const TEMPORARY = [0, 429, 502, 503, 504]; // statuses after which the same request may succeed; 0: no answer at all

/** A failed request, with a message for people. */
export class RequestError extends Error {
  /** @param {string} message @param {number} [status] @param {number} [retryAfter] in seconds, if the server says */
  constructor(message, status = 400, retryAfter = 0) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }

  get isTemporary() {
    return TEMPORARY.includes(this.status);
  }
}

/** The API key is stored until the tab is closed, and nowhere else. */
export const apiKey = {
  get: () => sessionStore.get('key') ?? '',
  set: (/** @type {string} */ value) => sessionStore.set('key', value),
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
    throw new RequestError('The server is not responding.', 0);
  }
  if (response.ok) return response;
  const { error } = await response.json().catch(() => ({}));
  const seconds = Number(response.headers.get('Retry-After')) || 0;
  throw new RequestError(describeFailure(error, response.status), response.status, seconds);
}

/** @param {string} path @param {object} [content] @param {AbortSignal} [signal] @returns {Promise<any>} */
export async function ask(path, content, signal) {
  return (await send(path, content && { ...asJson(content), signal })).json();
}

/**
 * Asks for server-sent events, and yields them as they arrive; an event that reports an error throws it.
 * @param {string} path
 * @param {{body: BodyInit, headers?: Record<string, string>, signal?: AbortSignal}} request
 * @returns {AsyncGenerator<{name: string, content: any}>}
 */
export async function* askForEvents(path, { body, headers = {}, signal }) {
  const response = await send(path, { body, headers: { ...headers, Accept: 'text/event-stream' }, signal });
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read().catch((error) => {
      if (signal?.aborted) throw error;
      throw new RequestError('The server stopped in the middle of its answer.', 0);
    });
    rest += value ?? '';
    const blocks = rest.split('\n\n');
    rest = blocks.pop() ?? '';
    for (const block of blocks) {
      const [, name, data] = block.match(/^event: (\w+)\ndata: (.*)$/s) ?? [];
      if (!name) continue;
      const content = JSON.parse(data);
      if (name === 'error') throw new RequestError(toSentence(content.error));
      yield { name, content };
    }
    if (done) return;
  }
}

/** @param {object} content @returns {{body: string, headers: Record<string, string>}} */
export function asJson(content) {
  return { body: JSON.stringify(content), headers: { 'Content-Type': 'application/json' } };
}

/** @param {string | undefined} error @param {number} status */
function describeFailure(error, status) {
  if (status === 503 && (!error || error.startsWith('Slowdown'))) return 'The server is busy.';
  if (status === 429) return 'This key has reached its rate limit.';
  return error ? toSentence(error) : `The server returned status ${status}.`;
}

/** @param {string} message @returns {string} with a capital letter and a full stop */
export function toSentence(message) {
  const plain = message.replace(/^Invalid request: /, '');
  return plain.charAt(0).toUpperCase() + plain.slice(1) + (/[.!?]$/.test(plain) ? '' : '.');
}
