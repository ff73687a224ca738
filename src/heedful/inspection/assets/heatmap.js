// A matrix as a picture: one cell for each number, labels, a cursor for mouse, touch and keyboard.
import { make } from './dom.js';
import { isDark } from './theme.js';

/**
 * @typedef {{
 *   label: string,
 *   rows: string[],
 *   columns: string[] | number,
 *   value: (row: number, column: number) => number,
 *   kind: 'signed' | 'share',
 *   cell?: { width?: number, height?: number },
 *   start?: [number, number],
 *   floor?: number,
 *   onSelect?: (row: number, column: number) => void,
 * }} HeatmapOptions
 */

const RAMPS = {
  light: { none: [255, 255, 255], share: [[255, 255, 255], [205, 222, 240], [121, 170, 216], [36, 107, 176], [8, 42, 92]], low: [18, 98, 173], high: [201, 84, 0], hidden: [226, 227, 228] },
  dark: { none: [25, 29, 36], share: [[25, 29, 36], [27, 58, 94], [52, 118, 178], [148, 200, 242], [248, 252, 255]], low: [86, 180, 233], high: [255, 154, 60], hidden: [47, 54, 64] },
};
const FONT = '13px system-ui, -apple-system, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif';
const DURATION = 450;

/** @param {number[]} from @param {number[]} to @param {number} share */
function mix(from, to, share) {
  return from.map((value, i) => Math.round(value + (to[i] - value) * share));
}

export class Heatmap {
  /** @param {HeatmapOptions} options */
  constructor(options) {
    this.options = options;
    this.rows = options.rows;
    this.columnCount = typeof options.columns === 'number' ? options.columns : options.columns.length;
    this.labels = typeof options.columns === 'number' ? null : options.columns;
    const [row, column] = options.start ?? [0, 0];
    /** @type {number} */
    this.row = row;
    /** @type {number} */
    this.column = column;
    this.values = this.read(options.value);
    this.share = 1;
    this.canvas = make('canvas');
    this.node = make('div', { class: 'heatmap', tabindex: 0, role: 'application', 'aria-label': `${options.label}; arrow keys move` }, this.canvas);
    this.kind = options.kind;
    this.canvas.addEventListener('pointermove', (event) => event.pointerType === 'mouse' && this.point(event));
    this.canvas.addEventListener('pointerdown', (event) => this.point(event));
    this.node.addEventListener('keydown', (event) => this.move(event));
    this.width = 0;
    new ResizeObserver(() => {
      if (this.node.clientWidth !== this.width) this.paint();
    }).observe(this.node);
  }

  /** @param {(row: number, column: number) => number} value */
  read(value) {
    const { columnCount } = this;
    return Float64Array.from({ length: this.rows.length * columnCount }, (_, i) => value(Math.floor(i / columnCount), i % columnCount));
  }

  /**
   * Shows other numbers of the same shape; the colours move there, unless somebody asked for less motion.
   * @param {(row: number, column: number) => number} value
   * @param {'signed' | 'share'} kind
   */
  change(value, kind) {
    const colours = this.colours();
    this.values = this.read(value);
    this.kind = kind;
    this.from = colours;
    if (matchMedia('(prefers-reduced-motion: reduce)').matches) {
      this.share = 1;
      this.paint();
      return;
    }
    const began = performance.now();
    const tick = (/** @type {number} */ now) => {
      this.share = Math.min(1, Math.max(0, (now - began) / DURATION));
      this.paint();
      if (this.share < 1) requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }

  /** @returns {number[][]} */
  colours() {
    const ramp = RAMPS[isDark() ? 'dark' : 'light'];
    let largest = 1e-9;
    const floor = this.options.floor ?? 0;
    for (const value of this.values) if (Number.isFinite(value)) largest = Math.max(largest, Math.abs(value - floor));
    const paint = (/** @type {number} */ value) => {
      if (value === -Infinity) return ramp.hidden;
      if (this.kind === 'signed') return mix(ramp.none, value < 0 ? ramp.low : ramp.high, Math.sqrt(Math.abs(value) / largest));
      const place = Math.sqrt(Math.max(0, value - floor) / largest) * (ramp.share.length - 1);
      const low = Math.min(Math.floor(place), ramp.share.length - 2);
      return mix(ramp.share[low], ramp.share[low + 1], place - low);
    };
    const goal = Array.from(this.values, paint);
    const { from, share } = this;
    return from && share < 1 ? goal.map((colour, i) => mix(from[i], colour, share)) : goal;
  }

  /** @type {number[][] | undefined} */
  from;

  measure() {
    const context = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext('2d'));
    context.font = FONT;
    const widest = (/** @type {string[]} */ texts) => Math.min(120, Math.max(0, ...texts.map((text) => context.measureText(text).width)));
    const left = Math.ceil(widest(this.rows)) + 14;
    const top = this.labels ? Math.ceil(widest(this.labels) * 0.72) + 20 : 22;
    const room = Math.max(120, this.node.clientWidth - left - (this.labels ? 46 : 4));
    const wanted = room / this.columnCount;
    const zoom = Math.max(1, Math.min(1.4, this.node.clientWidth / 1000)); // a projector is seen from far away
    const cellWidth = this.options.cell?.width ?? (this.labels ? Math.max(24, Math.min(46 * zoom, wanted)) : Math.max(2.5, Math.min(24, wanted)));
    const cellHeight = this.options.cell?.height ?? (this.labels ? Math.max(24, Math.min(29 * zoom, cellWidth)) : 24);
    return { context, left, top, cellWidth, cellHeight };
  }

  paint() {
    this.width = this.node.clientWidth;
    if (!this.width) return;
    const { context, left, top, cellWidth, cellHeight } = this.measure();
    const width = left + this.columnCount * cellWidth + (this.labels ? 44 : 4);
    const height = top + this.rows.length * cellHeight + 4;
    const ratio = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const style = getComputedStyle(this.node);
    const [ink, muted, accent] = ['--ink', '--muted', '--accent'].map((name) => style.getPropertyValue(name) && resolve(this.node, name));
    const colours = this.colours();
    const gap = cellWidth > 8 ? 1.5 : 0;
    for (let row = 0; row < this.rows.length; row += 1) {
      for (let column = 0; column < this.columnCount; column += 1) {
        const [red, green, blue] = colours[row * this.columnCount + column];
        context.fillStyle = `rgb(${red} ${green} ${blue})`;
        context.fillRect(left + column * cellWidth, top + row * cellHeight, cellWidth - gap + (gap ? 0 : 0.4), cellHeight - 1.5);
        if (cellWidth < 33 || cellHeight < 20) continue;
        const value = this.values[row * this.columnCount + column];
        context.fillStyle = 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? '#101418' : '#ffffff';
        context.font = `11.5px ui-monospace, "SF Mono", "DejaVu Sans Mono", monospace`;
        context.textAlign = 'center';
        context.textBaseline = 'middle';
        context.fillText(short(value, this.kind), left + (column + 0.5) * cellWidth - 1, top + (row + 0.5) * cellHeight);
      }
    }
    context.font = FONT;
    context.textBaseline = 'middle';
    for (let row = 0; row < this.rows.length; row += 1) {
      context.textAlign = 'right';
      context.fillStyle = row === this.row ? accent : ink;
      context.font = row === this.row ? `650 ${FONT}` : FONT;
      context.fillText(fit(context, this.rows[row]), left - 8, top + (row + 0.5) * cellHeight);
    }
    for (let column = 0; column < this.columnCount; column += 1) {
      if (!this.labels && column % 32 && column !== this.column) continue;
      if (!this.labels && column !== this.column && Math.abs(column - this.column) * cellWidth < 30) continue;
      context.fillStyle = column === this.column ? accent : this.labels ? ink : muted;
      context.font = column === this.column ? `650 ${FONT}` : FONT;
      context.save();
      context.translate(left + (column + 0.5) * cellWidth, top - 8);
      if (this.labels) context.rotate(-Math.PI / 4);
      context.textAlign = this.labels ? 'left' : 'center';
      context.fillText(this.labels ? fit(context, this.labels[column]) : String(column), 0, 0);
      context.restore();
    }
    context.strokeStyle = accent;
    context.lineWidth = 2.5;
    context.strokeRect(left + this.column * cellWidth - 1.5, top + this.row * cellHeight - 1.5, Math.max(5, cellWidth + 1.5), cellHeight + 1.5);
  }

  /** @param {PointerEvent} event */
  point(event) {
    const { left, top, cellWidth, cellHeight } = this.measure();
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - left) / cellWidth);
    const row = Math.floor((event.clientY - box.top - top) / cellHeight);
    if (row < 0 || row >= this.rows.length) return;
    this.select(row, Math.max(0, Math.min(this.columnCount - 1, column)));
  }

  /** @param {KeyboardEvent} event */
  move(event) {
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    const step = event.altKey || event.ctrlKey || event.metaKey ? undefined : steps[/** @type {keyof typeof steps} */ (event.key)];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const clamp = (/** @type {number} */ value, /** @type {number} */ most) => Math.max(0, Math.min(most - 1, value));
    this.select(clamp(this.row + step[0], this.rows.length), clamp(this.column + step[1], this.columnCount));
  }

  /** @param {number} row @param {number} column */
  select(row, column) {
    if (row === this.row && column === this.column) return;
    this.row = row;
    this.column = column;
    this.paint();
    this.options.onSelect?.(row, column);
  }
}

/** @param {HTMLElement} node @param {string} name @returns {string} a colour that a canvas understands */
function resolve(node, name) {
  const probe = make('span', { class: `probe${name}` });
  node.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

/** @param {CanvasRenderingContext2D} context @param {string} text */
function fit(context, text) {
  if (context.measureText(text).width <= 120) return text;
  let shown = text;
  while (shown.length > 1 && context.measureText(`${shown}…`).width > 112) shown = shown.slice(0, -1);
  return `${shown}…`;
}

/** @param {number} value @param {'signed' | 'share'} kind */
function short(value, kind) {
  if (value === -Infinity) return '−∞';
  if (kind === 'share' && value <= 1) return value >= 0.995 ? '1' : value < 0.005 ? '' : value.toFixed(2).slice(1);
  const text = value.toFixed(Math.abs(value) < 10 ? 1 : 0);
  return text === '-0.0' ? '0.0' : text.replace('-', '−');
}
