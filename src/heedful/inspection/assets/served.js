// @ts-check
'use strict';

/**
 * Looks into a text on somebody else's page; nothing is off at first.
 * @param {string} text
 * @param {(text: string, off: string[], signal: AbortSignal) => Promise<AttentionDocument>} ask
 */
function lookInto(text, ask) {
  around.ask = ask;
  view.off.clear();
  return translate(text);
}

export { announce, byId, listenToAll, lookInto, make, repaint, rove };
