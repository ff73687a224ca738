// What the browser remembers. It may refuse: then a page remembers until it is closed, and works all the same.

/** @param {() => Storage} open which throws if the user blocks storage */
function makeStore(open) {
  /** @type {Map<string, string>} */
  const unsaved = new Map();
  return {
    /** @param {string} name @returns {string | null} */
    get(name) {
      try {
        return unsaved.get(name) ?? open().getItem(name);
      } catch {
        return unsaved.get(name) ?? null;
      }
    },
    /** @param {string} name @param {string} value */
    set(name, value) {
      unsaved.delete(name);
      try {
        open().setItem(name, value);
      } catch {
        unsaved.set(name, value); // blocked, or there is no room
      }
    },
    /** @param {string} name */
    remove(name) {
      unsaved.delete(name);
      try {
        open().removeItem(name);
      } catch {
        // it was never stored
      }
    },
  };
}

export const localStore = makeStore(() => localStorage);
export const sessionStore = makeStore(() => sessionStorage); // until the tab is closed
