// @ts-check
'use strict';

const SVG = 'http://www.w3.org/2000/svg';
const ROW = 26; // height of a piece, in pixels
const APART = 4; // between the lines of two heads that join the same pieces
const WIDEST = 9; // of a line, in pixels, at a weight of one
const FAINT_FROM = 0.1; // so that a row has ten lines at most while nothing is chosen
const DRAWN_FROM = 0.005; // thinner lines than this cannot be seen

/** Queries on the left, keys on the right, as in the paper's figures 3 to 5. */
function renderLists() {
  const { queries, keys } = axesNow();
  fillList(byId('queries'), queries, 'query');
  fillList(byId('keys'), keys, 'key');
  byId('lines').style.setProperty('--row', `${ROW}px`);
  byId('wires').style.height = `${ROW * Math.max(queries.length, keys.length)}px`;
}

/** What is drawn between the lists: the open head, and those overlaid. */
function renderLines() {
  renderLegend();
  drawFaint();
  redrawSpot();
}

/** @param {HTMLElement} list @param {string[]} pieces @param {'query' | 'key'} side */
function fillList(list, pieces, side) {
  const items = pieces.map((piece, i) =>
    make('li', { role: 'option', 'aria-selected': false, 'data-side': side, 'data-index': i, title: piece },
      pieceNode(piece), make('span', { class: 'weight', 'aria-hidden': true })));
  list.replaceChildren(...items);
  rove(list, items.map((item) => [item]));
}

/** The open head first, in the first colour unless it has one of its own, then those kept from before. */
function shownHeads() {
  const layers = layersNow();
  const kept = [...view.pins.keys()].filter((name) => name !== nameNow() && isHere(name));
  return [nameNow(), ...kept].map((name, i) => {
    const place = placeOf(name);
    const weights = weightsOf(layers[place.layer], place.index);
    const shift = (i - kept.length / 2) * APART;
    return { name, title: headTitle(name), slot: view.pins.get(name) ?? 0, shift, weights };
  });
}

/** @param {string} name whether a head is of the attention on show, which may have fewer heads than the last */
function isHere(name) {
  const place = placeOf(name);
  return name.startsWith(`${view.kind}.`) && place.index < (layersNow()[place.layer]?.heads ?? 0);
}

function renderLegend() {
  const entries = shownHeads().map(({ name, slot, title }) => make('li', { 'data-slot': slot, 'data-head': name },
    make('span', { class: 'swatch', 'aria-hidden': true }), make('span', {}, title), make('span', { class: 'says' })));
  byId('legend').replaceChildren(...entries);
}

/** @param {Shown} shown @param {number} query @param {number} key @param {number} weight */
function wire(shown, query, key, weight) {
  const line = document.createElementNS(SVG, 'line');
  line.setAttribute('x2', '100%');
  line.setAttribute('y1', String((query + 0.5) * ROW + shown.shift));
  line.setAttribute('y2', String((key + 0.5) * ROW + shown.shift));
  line.setAttribute('stroke-width', (weight * WIDEST).toFixed(3));
  Object.assign(line.dataset, { head: shown.name, slot: shown.slot, query, key, weight: weight.toFixed(4) });
  return line;
}

function drawFaint() {
  const { keys } = axesNow();
  const lines = shownHeads().flatMap((shown) => {
    const found = [];
    for (let i = 0; i < shown.weights.length; i++) {
      const weight = shown.weights[i] / FULL;
      if (weight >= FAINT_FROM) found.push(wire(shown, Math.floor(i / keys.length), i % keys.length, weight));
    }
    return found;
  });
  byId('faint').replaceChildren(...lines);
}

/** The lines of one piece; all others step back. */
function drawSpot() {
  const spot = spotNow();
  const width = axesNow().keys.length;
  const heads = shownHeads();
  const found = spot ? heads.map((shown) => strongest(shown.weights, width, spot, DRAWN_FROM)) : [];
  const lines = found.flatMap((ends, i) => ends.map(({ index, weight }) => {
    const [query, key] = spot?.side === 'key' ? [index, spot.index] : [spot?.index ?? 0, index];
    return wire(heads[i], query, key, weight);
  }));
  byId('faint').setAttribute('visibility', spot ? 'hidden' : 'visible');
  lines.sort((a, b) => Number(b.dataset.weight) - Number(a.dataset.weight)); // a thin one lies on a wide one
  byId('drawn').replaceChildren(...lines);
  markList(byId('queries'), spot, 'query', found[0]);
  markList(byId('keys'), spot, 'key', found[0]);
  const says = [...byId('legend').querySelectorAll('.says')];
  const role = (/** @type {string} */ name) => view.doc.roles[name]?.name ?? '';
  says.forEach((node, i) => node.replaceChildren(...(spot ? sentence(heads[i], spot) : [role(heads[i].name)])));
}

/**
 * Numbers beside the pieces at the other end, of the open head alone: two of them would not fit.
 * @param {HTMLElement} list
 * @param {Spot | null} spot
 * @param {'query' | 'key'} side
 * @param {{index: number, weight: number}[]} [ends]
 */
function markList(list, spot, side, ends = []) {
  const weights = spot && spot.side !== side ? new Map(ends.map((end) => [end.index, end.weight])) : new Map();
  for (const [i, item] of /** @type {[number, HTMLElement][]} */ ([...[...list.children].entries()])) {
    const weight = weights.get(i) ?? 0;
    item.classList.toggle('lit', spot?.side === side && spot.index === i);
    item.style.setProperty('--weight', `${Math.round(weight * 40)}%`);
    /** @type {HTMLElement} */ (item.lastElementChild).textContent = weight >= 0.01 ? weight.toFixed(2) : '';
  }
}

/** @param {Shown} shown @param {Spot} spot @returns {(Node | string)[]} 'Haus' attends to 'house' 0.81, 'the' 0.07 */
function sentence(shown, spot) {
  const { queries, keys } = axesNow();
  const [own, other] = spot.side === 'query' ? [queries, keys] : [keys, queries];
  const ends = strongest(shown.weights, keys.length, spot, 0.05).slice(0, 4);
  const verb = spot.side === 'query' ? ' attends to ' : ' is attended to by ';
  const parts = ends.flatMap(({ index, weight }, i) => [i ? ', ' : '', quoted(other[index]), ` ${weight.toFixed(2)}`]);
  return [quoted(own[spot.index]), verb, ...(parts.length ? parts : ['nothing by 0.05 or more'])];
}

/** @param {string} piece */
function quoted(piece) {
  return make('bdi', {}, `'${spoken(piece)}'`);
}

/** What a screen reader says when a piece gets the focus. */
function announceSpot() {
  const spot = view.chosen;
  if (!spot) return;
  const said = shownHeads().map((shown) => `${shown.title}: ${make('p', {}, ...sentence(shown, spot)).textContent}`);
  announce(said.join('; '));
}

/** @param {EventTarget | null} target @returns {Spot | null} */
function spotOf(target) {
  const item = target instanceof Element ? target.closest('[data-side]') : null;
  if (!(item instanceof HTMLElement)) return null;
  return { side: item.dataset.side === 'key' ? 'key' : 'query', index: Number(item.dataset.index) };
}

function listenToLines() {
  const panel = byId('lines');
  panel.addEventListener('pointerover', (/** @type {PointerEvent} */ event) => hover(spotOf(event.target)));
  panel.addEventListener('pointerleave', () => hover(null));
  panel.addEventListener('focusin', (/** @type {FocusEvent} */ event) => choose(spotOf(event.target)));
  panel.addEventListener('keydown', (/** @type {KeyboardEvent} */ event) => {
    if (event.key === 'Escape') choose(null);
  });
}

/** A piece stays chosen after the focus has left it: on a phone there is no pointing. @param {Spot | null} spot */
function choose(spot) {
  view.chosen = spot;
  for (const item of byId('lines').querySelectorAll('[role=option]')) {
    const own = spotOf(item);
    item.setAttribute('aria-selected', String(own?.side === spot?.side && own?.index === spot?.index));
  }
  redrawSpot();
  announceSpot();
}
