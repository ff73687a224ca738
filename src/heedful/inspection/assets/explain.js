// The page of `heedful explain`: one step at a time, and the map that is always in view.
import { announce, byId, findAll } from './dom.js';
import { listenToAsking } from './asking.js';
import { isDark, onSystemThemeChange, setTheme } from './theme.js';
import { drawStep, listenToBeam, repaintViews, showStage } from './views.js';

/** @typedef {import('./numbers.js').ExplanationDocument} ExplanationDocument */

/** @type {ExplanationDocument} */
const doc = JSON.parse(byId('document').textContent ?? '');
const sections = new Map(findAll('.step').map((section) => [section.id, section]));
let current = 'start';
let stop = 0; // of the tour, from 1; 0: no tour

/** @param {string} name @returns {[HTMLElement, string] | undefined} the section of a step, and the stage of a head */
function findStep(name) {
  const whole = sections.get(name);
  if (whole) return [whole, ''];
  const section = sections.get(name.slice(0, name.lastIndexOf('.')));
  const stage = name.slice(name.lastIndexOf('.') + 1);
  return section?.querySelector(`.stage[data-stage="${CSS.escape(stage)}"]`) ? [section, stage] : undefined;
}

/** Shows the step that the address names. @param {boolean} focus whether the heading takes the focus */
function showAddress(focus) {
  const name = decodeURIComponent(location.hash.slice(1));
  const toured = /^tour\.(\d+)$/.exec(name);
  if (toured) stop = Math.min(doc.tour.length, Math.max(1, Number(toured[1])));
  const wanted = toured ? doc.tour[stop - 1].step : name;
  if (stop && !toured && wanted !== doc.tour[stop - 1].step && wanted !== 'steps') stop = 0;
  const found = findStep(wanted);
  if (!found) {
    if (name !== 'steps') showStep('start', focus);
    return;
  }
  showStep(wanted, focus);
}

/** @param {string} name @param {boolean} focus */
function showStep(name, focus) {
  const [section, stage] = findStep(name) ?? [byId('start'), ''];
  current = name;
  for (const other of sections.values()) other.classList.toggle('current', other === section);
  drawStep(section, doc);
  letTheKeyboardScroll(section);
  if (section.querySelector('.stage')) showStage(section, stage || 'softmax');
  lightUp(section.dataset.box ?? '');
  showProgress();
  showTour();
  repaintViews();
  scrollTo({ top: 0 });
  const heading = section.querySelector('h2');
  if (!(heading instanceof HTMLElement) || !focus) return;
  heading.focus({ preventScroll: true });
  announce(heading.textContent ?? '');
}

/** A table that is wider than the screen scrolls sideways, and the keyboard must reach it. @param {HTMLElement} section */
function letTheKeyboardScroll(section) {
  for (const [i, box] of findAll('.scroll', section).entries()) {
    const isReached = box.hasAttribute('tabindex') || box.querySelector('.heatmap');
    if (isReached || box.scrollWidth <= box.clientWidth) continue;
    box.tabIndex = 0;
    box.setAttribute('role', 'region');
    box.setAttribute('aria-label', `${section.querySelector('h2')?.textContent}: table ${i + 1}`);
  }
}

/** Lights up the box of a step on the map. @param {string} box */
function lightUp(box) {
  const links = [...document.querySelectorAll('#map a')];
  const layer = box.split('.').slice(0, 2).join('.');
  const exact = links.find((link) => link instanceof SVGElement && link.dataset.box === box);
  const lit = exact ?? links.find((link) => link instanceof SVGElement && link.dataset.box === layer);
  for (const link of links) {
    link.classList.toggle('lit', link === lit);
    link.setAttribute('tabindex', link === (lit ?? links[0]) ? '0' : '-1');
    if (link === lit) link.setAttribute('aria-current', 'step');
    else link.removeAttribute('aria-current');
  }
  byId('map').classList.remove('open');
  byId('show-map').setAttribute('aria-expanded', 'false');
}

/** @param {string} step @returns {number} its place in the walk, or that of the sub-layer that it belongs to */
function placeOnPath(step) {
  const exact = doc.path.indexOf(step);
  if (exact >= 0) return exact;
  const owner = step.split('.head.')[0];
  return Math.max(0, doc.path.indexOf(owner));
}

function showProgress() {
  const [place, count] = stop ? [stop - 1, doc.tour.length] : [placeOnPath(current), doc.path.length];
  byId('progress-text').textContent = `${stop ? 'tour ' : ''}${place + 1} / ${count}`;
  byId('progress-bar').style.width = `${(100 * (place + 1)) / count}%`;
  byId('back').toggleAttribute('disabled', place === 0);
  byId('next').toggleAttribute('disabled', place + 1 === count && !stop);
  byId('next').textContent = stop === doc.tour.length ? 'End of the tour' : 'Next →';
}

function showTour() {
  byId('tour').hidden = !stop;
  if (!stop) return;
  byId('tour-place').textContent = `Tour: ${stop}`;
  byId('tour-story').textContent = doc.tour[stop - 1].story;
}

/** @param {number} step one forwards or back */
function walk(step) {
  if (stop) {
    if (stop + step > doc.tour.length) return endTour();
    location.hash = `tour.${Math.max(1, stop + step)}`;
    return;
  }
  // The address changes at once, and `current` a moment later: two quick keys are two steps.
  const next = doc.path[placeOnPath(location.hash.slice(1) || current) + step];
  if (next) location.hash = next;
}

function endTour() {
  stop = 0;
  location.hash = current;
  showStep(current, true);
}

/** @param {KeyboardEvent} event */
function onKey(event) {
  const { target } = event;
  if (event.altKey || event.ctrlKey || event.metaKey || event.defaultPrevented) return;
  if (target instanceof Element && target.closest('input, select, textarea, .scroll')) return;
  if (event.key === 'ArrowRight' || event.key === 'PageDown' && event.shiftKey) walk(1);
  else if (event.key === 'ArrowLeft' || event.key === 'PageUp' && event.shiftKey) walk(-1);
  else if (event.key === 'Home') location.hash = 'start';
  else if (event.key === 'Escape' && stop) endTour();
  else return;
  event.preventDefault();
}

/** Moves between the boxes of the map by arrow keys: it has one tab stop. @param {KeyboardEvent} event */
function onMapKey(event) {
  const links = [...document.querySelectorAll('#map a')];
  const place = links.findIndex((link) => link === event.target);
  const step = event.key === 'ArrowUp' ? 1 : event.key === 'ArrowDown' ? -1 : 0;
  const next = links[place + step];
  if (place < 0 || !step || !(next instanceof SVGElement)) return;
  event.preventDefault();
  next.focus();
}

function labelThemeButton() {
  const other = isDark() ? 'Light' : 'Dark';
  byId('theme').textContent = other;
  byId('theme').setAttribute('aria-label', `${other} theme`);
}

/** Swiping to the side walks, except over what itself scrolls. */
function listenToSwipes() {
  let start = { x: 0, y: 0, time: 0, isOn: false };
  const steps = byId('steps');
  steps.addEventListener('touchstart', (event) => {
    const { clientX: x, clientY: y } = event.changedTouches[0];
    const isOn = event.target instanceof Element && !event.target.closest('.scroll, input, select');
    start = { x, y, time: event.timeStamp, isOn };
  }, { passive: true });
  steps.addEventListener('touchend', (event) => {
    const { clientX, clientY } = event.changedTouches[0];
    const [across, along] = [clientX - start.x, clientY - start.y];
    if (start.isOn && event.timeStamp - start.time < 600 && Math.abs(across) > 70 && Math.abs(across) > 2 * Math.abs(along)) walk(across < 0 ? 1 : -1);
  }, { passive: true });
}

function startPage() {
  document.documentElement.classList.add('live');
  for (const id of ['start-tour', 'show-map', 'theme', 'walk']) byId(id).hidden = false;
  byId('back').addEventListener('click', () => walk(-1));
  byId('next').addEventListener('click', () => walk(1));
  byId('end-tour').addEventListener('click', endTour);
  byId('show-map').addEventListener('click', () => {
    const isOpen = byId('map').classList.toggle('open');
    byId('show-map').setAttribute('aria-expanded', String(isOpen));
  });
  byId('theme').addEventListener('click', () => {
    setTheme(isDark() ? 'light' : 'dark');
    labelThemeButton();
    repaintViews();
  });
  onSystemThemeChange(() => {
    labelThemeButton();
    repaintViews();
  });
  addEventListener('hashchange', () => showAddress(true));
  addEventListener('keydown', onKey);
  byId('map').addEventListener('keydown', onMapKey);
  listenToSwipes();
  listenToBeam();
  if (doc.live) listenToAsking(doc.source.text);
  labelThemeButton();
  history.scrollRestoration = 'manual'; // a step begins at its top, wherever the browser would jump
  showAddress(false);
  addEventListener('load', () => scrollTo({ top: 0 }));
}

startPage();
