// The address of what the page shows, to share and to go back to: #en/de/text, and #en/de/text/1/cross.2.3 for a head.
// A browser does not send this part of an address to the server.

/** @typedef {{from: string, into: string, text: string, sentence: number, head: string}} Address `sentence` from 1; 0: none */

const LONGEST = 2000; // characters of a text that is put into an address

/** @param {string} hash @returns {Address | null} null if it is not such an address */
export function readAddress(hash) {
  const parts = hash.replace(/^#/, '').split('/');
  if (parts.length < 3) return null;
  try {
    const [from, into, text, sentence = '', head = ''] = parts.map(decodeURIComponent);
    return { from, into, text, sentence: Number.parseInt(sentence, 10) || 0, head };
  } catch {
    return null; // a percent sign that escapes nothing
  }
}

/** @param {Address} address @returns {string} */
function formatAddress({ from, into, text, sentence, head }) {
  const parts = text.length > LONGEST ? [from, into, ''] : [from, into, text, ...(sentence ? [sentence, head] : [])];
  return `#${parts.map((part) => encodeURIComponent(String(part).replace(/\p{Surrogate}/gu, '\ufffd'))).join('/')}`;
}

/** Changes the address; `isNew` keeps the old one in the browser's history. @param {Address} address @param {boolean} isNew */
export function writeAddress(address, isNew) {
  const hash = formatAddress(address);
  if (hash === location.hash) return;
  if (isNew) history.pushState(null, '', hash);
  else history.replaceState(null, '', hash);
}
