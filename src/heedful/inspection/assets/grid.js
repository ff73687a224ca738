// @ts-check
'use strict';

/** All heads of the chosen attention: a row for each layer, its average at the end. */
function renderGrid() {
  const layers = layersNow();
  const most = Math.max(...layers.map((layer) => layer.heads));
  const titles = [...Array.from({ length: most }, (_, i) => `head ${i + 1}`), 'mean'];
  const head = make('tr', {}, make('td'), ...titles.map((title) => make('th', { scope: 'col' }, title)));
  const rows = layers.map((layer, i) => gridRow(layer, i, most));
  byId('grid').replaceChildren(make('thead', {}, head), make('tbody', {}, ...rows));
  byId('grid').style.setProperty('--columns', String(most + 1));
  byId('grid').setAttribute('aria-label', `${KIND_TITLES[view.kind]} attention, all layers and heads`);
  const buttons = rows.map((row) => /** @type {HTMLElement[]} */ ([...row.querySelectorAll('.head')]));
  rove(byId('grid'), buttons.filter((row) => row.length), byId(`open-${nameNow()}`));
  paintGrid();
  markGrid();
}

/** @param {Layer} layer @param {number} index @param {number} most */
function gridRow(layer, index, most) {
  const row = make('tr', {}, make('th', { scope: 'row' }, `layer ${index + 1}`));
  for (let head = 0; head < most; head++) {
    row.append(head < layer.heads ? gridCell({ layer: index, index: head }, layer) : make('td', { class: 'none' }));
  }
  row.append(layer.heads ? gridCell({ layer: index, index: MEAN }, layer) : make('td', { class: 'none' }));
  return row;
}

/** @param {Place} place @param {Layer} layer */
function gridCell(place, layer) {
  const name = headName(view.kind, place);
  const role = view.doc.roles[name];
  const switchable = view.doc.live && place.index !== MEAN;
  const canvas = make('canvas', { 'aria-hidden': true });
  // A shape between 1:2 and 2:1 keeps the rows alike, however unlike the two sentences are.
  canvas.style.aspectRatio = String(Math.min(2, Math.max(0.5, layer.keys / layer.queries)));
  // Cells smaller than a pixel have to be mixed: left out, a diagonal would become dots.
  if (Math.max(layer.keys, layer.queries) > 48) canvas.style.imageRendering = 'auto';
  const open = make('button', { type: 'button', id: `open-${name}`, class: 'head', 'data-head': name }, canvas);
  open.ariaLabel = headTitle(name) + (role ? `, ${role.name}` : '');
  open.setAttribute('aria-keyshortcuts', switchable ? 'P O' : 'P');
  if (role) open.title = `${role.name}: ${role.evidence}`;
  const tools = make('span', { class: 'tools' }, tool('pin', name));
  if (switchable) tools.append(tool('power', name));
  return make('td', {}, open, tools, make('span', { class: 'role' }, role?.name ?? ''));
}

/**
 * A small switch under a head. Arrow keys pass it by: the keys P and O do the same.
 * @param {'pin' | 'power'} what
 * @param {string} name
 */
function tool(what, name) {
  const id = `${what}-${name}`;
  return make('button', { type: 'button', id, class: `tool ${what}`, 'data-head': name, tabindex: -1 });
}

function paintGrid() {
  const layers = layersNow();
  for (const button of byId('grid').querySelectorAll('.head')) {
    const place = placeOf(button.dataset.head);
    const layer = layers[place.layer];
    paint(button.firstElementChild, weightsOf(layer, place.index), layer.queries, layer.keys);
  }
}

/** What is open, overlaid or off may change without a new grid. */
function markGrid() {
  for (const button of document.querySelectorAll('.head')) {
    const name = /** @type {HTMLElement} */ (button).dataset.head ?? '';
    if (name === nameNow()) button.setAttribute('aria-current', 'true');
    else button.removeAttribute('aria-current');
    button.parentElement?.classList.toggle('off', view.off.has(name));
  }
  for (const button of document.querySelectorAll('.tool')) markTool(/** @type {HTMLElement} */ (button));
}

/** @param {HTMLElement} button */
function markTool(button) {
  const name = button.dataset.head ?? '';
  const large = button.classList.contains('large');
  if (button.classList.contains('pin')) {
    const slot = view.pins.get(name);
    button.setAttribute('aria-pressed', String(slot !== undefined));
    button.setAttribute('aria-label', `overlay ${headTitle(name)}`);
    button.title = slot === undefined ? 'Keep its lines, in a colour of their own' : 'Take its lines away';
    button.dataset.slot = String(slot ?? '');
    button.textContent = large ? (slot === undefined ? 'Overlay' : 'Overlaid') : '';
  } else {
    const off = view.off.has(name);
    button.setAttribute('role', 'switch');
    button.setAttribute('aria-checked', String(!off));
    button.setAttribute('aria-label', headTitle(name));
    button.title = off ? 'Switch on' : 'Switch off';
    button.textContent = large ? (off ? 'Switch on' : 'Switch off') : '';
  }
}

/** @param {string} name @returns {Place} */
function placeOf(name) {
  const [, layer, index] = name.split('.');
  return { layer: Number(layer) - 1, index: index === 'mean' ? MEAN : Number(index) - 1 };
}

function listenToGrid() {
  document.addEventListener('click', (event) => {
    const button = /** @type {HTMLElement} */ (event.target).closest?.('button[data-head]');
    if (!(button instanceof HTMLElement)) return;
    const name = button.dataset.head ?? '';
    if (button.classList.contains('pin')) togglePin(name);
    else if (button.classList.contains('power')) toggleOff(name);
    else openHead(placeOf(name));
  });
  document.addEventListener('keydown', (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (!target.classList?.contains('head') || event.ctrlKey || event.metaKey || event.altKey) return;
    const name = target.dataset.head ?? '';
    if (event.key.toLowerCase() === 'p') togglePin(name);
    if (event.key.toLowerCase() === 'o' && view.doc.live && !name.endsWith('mean')) toggleOff(name);
  });
}
