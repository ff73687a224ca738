// Decoding step by step: a slider over the written pieces, which can play by itself.
import { byId, findAll } from './dom.js';
import { pieceText } from './drawing.js';
import { redrawSpot, rowsBefore, state } from './state.js';

const PAUSE = 700; // milliseconds between two steps

let timer = 0;
/** @type {() => void} */
let repaint = () => {};

/** The slider for the hypothesis that is shown, at its end. */
export function renderStepping() {
  stop();
  const slider = byId('written', HTMLInputElement);
  const { pieces } = state.doc.hypotheses[state.hypothesis];
  slider.max = String(pieces.length);
  slider.value = slider.max;
  state.written = Infinity;
  say(pieces.length);
}

/** @param {number} count of written pieces */
function say(count) {
  const { pieces } = state.doc.hypotheses[state.hypothesis];
  const all = count >= pieces.length;
  const text = all ? 'all steps' : `step ${count} of ${pieces.length}: writes '${pieceText(pieces[count - 1])}'`;
  byId('written-says').textContent = text;
  byId('written').setAttribute('aria-valuetext', text);
  findAll('#produced .chip').forEach((chip, i) => chip.classList.toggle('later', i >= count));
}

/** @param {number} count */
function show(count) {
  const { pieces } = state.doc.hypotheses[state.hypothesis];
  byId('written', HTMLInputElement).value = String(count);
  state.written = count >= pieces.length ? Infinity : count;
  state.hovered = null;
  state.selected = state.kind === 'encoder' || count >= pieces.length ? null : { side: 'query', index: rowsBefore() + count - 1 };
  say(count);
  repaint();
  redrawSpot();
}

function stop() {
  clearInterval(timer);
  timer = 0;
  byId('play').textContent = 'Play';
}

function play() {
  const slider = byId('written', HTMLInputElement);
  if (timer) return stop();
  byId('play').textContent = 'Pause';
  show(Number(slider.value) >= Number(slider.max) ? 1 : Number(slider.value));
  timer = setInterval(() => {
    show(Number(slider.value) + 1);
    if (Number(slider.value) >= Number(slider.max)) stop();
  }, PAUSE);
}

/** @param {() => void} onChange paints the heads again */
export function listenToStepping(onChange) {
  repaint = onChange;
  const slider = byId('written', HTMLInputElement);
  slider.addEventListener('input', () => {
    stop();
    show(Number(slider.value));
  });
  byId('play').addEventListener('click', play);
}
