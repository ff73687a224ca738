/**
 * Creates an element. Strings among the children become text nodes: what a model writes is never markup.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, string | number | boolean>} [attributes]
 * @param {...(Node | string)} children
 */
export function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  node.append(...children);
  return node;
}

/**
 * Finds an element that the page must have.
 * @template {Element} [Type=HTMLElement]
 * @param {string} id
 * @param {new () => Type} [type]
 */
export function byId(id, type = /** @type {any} */ (HTMLElement)) {
  const node = document.getElementById(id);
  if (!(node instanceof type)) throw new Error(`the page has no ${type.name} with the id ${id}`);
  return node;
}

/** @param {string} selector @param {ParentNode} [root] */
export function findAll(selector, root = document) {
  return [...root.querySelectorAll(selector)].filter((node) => node instanceof HTMLElement);
}

/** Says something to screen readers. @param {string} text */
export function announce(text) {
  byId('status').textContent = text;
}

/** Shows an error message, or hides the element if there is none. @param {HTMLElement} node @param {string} message */
export function showMessage(node, message) {
  node.textContent = message;
  node.hidden = !message;
}

/** Scrolls to the beginning of an element, without an animation for people who do not want any. @param {Element} node */
export function scrollToStart(node) {
  const still = matchMedia('(prefers-reduced-motion: reduce)').matches;
  node.scrollIntoView({ block: 'start', behavior: still ? 'auto' : 'smooth' });
}

/**
 * Gives many elements a single tab stop: arrow keys move between them (a roving tabindex).
 * @param {HTMLElement} container
 * @param {HTMLElement[][]} rows
 * @param {HTMLElement} [current]
 */
export function moveByArrowKeys(container, rows, current = rows[0]?.[0]) {
  const items = rows.flat();
  for (const item of items) {
    item.tabIndex = item === current ? 0 : -1;
    item.addEventListener('focus', () => items.forEach((each) => (each.tabIndex = each === item ? 0 : -1)));
  }
  container.onkeydown = (event) => {
    const { target } = event;
    if (!(target instanceof HTMLElement) || event.altKey || event.ctrlKey || event.metaKey) return;
    const row = rows.findIndex((items) => items.includes(target));
    if (row < 0) return;
    const next = findNeighbour(rows, row, rows[row].indexOf(target), event.key);
    if (!next) return;
    event.preventDefault();
    next.focus();
  };
}

/**
 * @param {HTMLElement[][]} rows
 * @param {number} row
 * @param {number} column
 * @param {string} key
 * @returns {HTMLElement | undefined}
 */
function findNeighbour(rows, row, column, key) {
  const isColumn = rows.every((items) => items.length === 1);
  const isRow = rows.length === 1;
  if (isRow && key === 'ArrowDown') key = 'ArrowRight';
  if (isRow && key === 'ArrowUp') key = 'ArrowLeft';
  switch (key) {
    case 'ArrowLeft': return rows[row][column - 1];
    case 'ArrowRight': return rows[row][column + 1];
    case 'ArrowUp': return rows[row - 1]?.[Math.min(column, rows[row - 1].length - 1)];
    case 'ArrowDown': return rows[row + 1]?.[Math.min(column, rows[row + 1].length - 1)];
    case 'Home': return isColumn ? rows[0][0] : rows[row][0];
    case 'End': return isColumn ? rows[rows.length - 1][0] : rows[row][rows[row].length - 1];
    default: return undefined;
  }
}
