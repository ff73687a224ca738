// The pictures of the steps, each with the arithmetic of the cell that is chosen.
import { byId, findAll, make } from './dom.js';
import { Heatmap } from './heatmap.js';
import { findMatrix, matrixOf, show } from './numbers.js';

/** @typedef {import('./numbers.js').ExplanationDocument} ExplanationDocument */
/** @typedef {import('./numbers.js').Matrix} Matrix */

/** @type {Set<Heatmap>} */
const shown = new Set();

/** Draws everything again, as after a change of the theme. */
export function repaintViews() {
  for (const map of shown) map.paint();
}

/** @param {ExplanationDocument} doc @param {string} side */
function labelsOf(doc, side) {
  return side === 'source' ? doc.source.pieces : side === 'target' ? doc.target.pieces : doc.inputs;
}

/** @param {HTMLElement} figure @param {import('./heatmap.js').HeatmapOptions} options */
function addMap(figure, options) {
  const map = new Heatmap(options);
  shown.add(map);
  figure.append(make('div', { class: 'scroll' }, map.node));
  return map;
}

/** @param {HTMLElement} figure */
function addReadout(figure) {
  const node = make('p', { class: 'readout', role: 'status' });
  figure.append(node);
  return node;
}

/** @param {string} text */
function piece(text) {
  return make('bdi', { class: 'piece' }, text);
}

/** @param {string} text */
function strong(text) {
  return make('strong', {}, text);
}

/** Fills the figures of a step, once. @param {HTMLElement} section @param {ExplanationDocument} doc */
export function drawStep(section, doc) {
  for (const figure of findAll('.figure, .mini', section)) {
    if (figure.dataset.drawn) continue;
    figure.dataset.drawn = '1';
    if (figure.classList.contains('mini')) drawMini(figure, doc);
    else draw(figure, doc);
  }
}

/** @param {HTMLElement} figure @param {ExplanationDocument} doc */
function draw(figure, doc) {
  switch (figure.dataset.view) {
    case 'head': return drawHead(figure, doc);
    case 'residual': return drawResidual(figure, doc);
    case 'logits': return drawLogits(figure, doc);
    case 'draws': return drawDraws(figure, doc);
    case 'weights': return drawWeights(figure, doc);
    case 'products': return drawProducts(figure, doc);
    case 'shares': return drawShares(figure, doc);
    case 'bias': return drawBias(figure, doc);
    default: return drawMatrix(figure, doc);
  }
}

/** A small picture of one head. @param {HTMLElement} node @param {ExplanationDocument} doc */
function drawMini(node, doc) {
  const weights = matrixOf(doc, node.dataset.matrix ?? '', Number(node.dataset.head));
  const canvas = make('canvas', { width: weights.columns, height: weights.rows });
  const context = canvas.getContext('2d');
  if (!context) return;
  for (let row = 0; row < weights.rows; row += 1) {
    for (let column = 0; column < weights.columns; column += 1) {
      context.fillStyle = `rgb(10 92 158 / ${Math.sqrt(weights.at(row, column))})`;
      context.fillRect(column, row, 1, 1);
    }
  }
  node.append(canvas);
}

/** A matrix with a row for each piece. @param {HTMLElement} figure @param {ExplanationDocument} doc */
function drawMatrix(figure, doc) {
  const name = figure.dataset.matrix ?? '';
  const values = matrixOf(doc, name);
  const rows = labelsOf(doc, figure.dataset.rows ?? '');
  const inner = figure.dataset.arithmetic === 'units' ? findMatrix(doc, name.replace('.active', '.inner')) : undefined;
  const whole = figure.dataset.arithmetic === 'units' ? doc.columns.d_ff : doc.columns.d_model;
  const say = (/** @type {number} */ row, /** @type {number} */ column) => {
    const value = values.at(row, column);
    readout.replaceChildren(piece(rows[row]), `, ${inner ? 'unit' : 'number'} ${column}: `);
    switch (figure.dataset.arithmetic) {
      case 'embedding':
        return readout.append(`${show(value)} × √${doc.columns.d_model} = ${show(value)} × ${show(doc.scale, 2)} = `, strong(show(value * doc.scale)));
      case 'positions': {
        const angle = row / 10000 ** ((column - (column % 2)) / doc.columns.d_model);
        const computed = column % 2 ? Math.cos(angle) : Math.sin(angle);
        const isSine = Math.abs(computed - value) < 1e-3;
        return readout.append(isSine ? `${column % 2 ? 'cos' : 'sin'}(${row} / 10000^(${column - (column % 2)}/${doc.columns.d_model})) = ` : 'learned, ', strong(show(value)));
      }
      case 'units':
        return readout.append(
          doc.activation === 'relu'
            ? `max(0, ${show(inner?.at(row, column) ?? 0)}) = `
            : `${doc.activation}(${show(inner?.at(row, column) ?? 0)}) = `,
          strong(show(value)), value === 0 ? ', asleep' : ', awake',
        );
      default:
        return readout.append(strong(show(value)));
    }
  };
  const kind = figure.dataset.arithmetic === 'units' && doc.activation === 'relu' ? 'share' : 'signed';
  const map = addMap(figure, {
    label: `${values.rows} × ${values.columns} numbers`, rows, columns: values.columns,
    value: (row, column) => values.at(row, column), kind, start: [Math.min(1, values.rows - 1), 0], onSelect: say,
  });
  const readout = addReadout(figure);
  if (values.columns < whole) figure.append(make('p', { class: 'muted' }, `The first ${values.columns} of ${whole} columns.`));
  say(map.row, map.column);
}

/** How alike the vectors of two positions are. @param {HTMLElement} figure @param {ExplanationDocument} doc */
function drawProducts(figure, doc) {
  const values = matrixOf(doc, figure.dataset.matrix ?? '');
  const rows = labelsOf(doc, figure.dataset.rows ?? '').map((_, i) => String(i));
  const products = rows.map((_, i) => rows.map((__, j) => values.row(i).reduce((sum, value, k) => sum + value * values.at(j, k), 0)));
  const say = (/** @type {number} */ i, /** @type {number} */ j) => {
    readout.replaceChildren(`position ${i} · position ${j}, at a distance of ${Math.abs(i - j)}: `, strong(show(products[i][j], 2)));
  };
  const map = addMap(figure, {
    label: 'Dot products of positions', rows, columns: rows, value: (i, j) => products[i][j], kind: 'share',
    floor: Math.min(...products.flat()) - 1, start: [Math.min(2, rows.length - 1), Math.min(5, rows.length - 1)], onSelect: say,
  });
  const readout = addReadout(figure);
  say(map.row, map.column);
}

/** The bias of each head for each distance. @param {HTMLElement} figure @param {ExplanationDocument} doc */
function drawBias(figure, doc) {
  const name = figure.dataset.matrix ?? '';
  const [heads, rows] = doc.matrices[name].shape;
  const distances = Array.from({ length: 2 * rows - 1 }, (_, i) => i + 1 - rows);
  const value = (/** @type {number} */ head, /** @type {number} */ column) => {
    const distance = distances[column];
    return matrixOf(doc, name, head).at(Math.max(0, -distance), Math.max(0, distance));
  };
  const say = (/** @type {number} */ head, /** @type {number} */ column) => {
    const distance = distances[column];
    const side = distance ? `${Math.abs(distance)} to the ${distance < 0 ? 'left' : 'right'}` : 'the piece itself';
    readout.replaceChildren(`head ${head + 1} adds `, strong(show(value(head, column))), ` to the score of ${side}`);
  };
  const map = addMap(figure, {
    label: 'The bias of each head by distance', rows: Array.from({ length: heads }, (_, i) => `head ${i + 1}`),
    columns: distances.map(String), value, kind: 'signed', start: [0, rows - 1], onSelect: say,
  });
  const readout = addReadout(figure);
  say(map.row, map.column);
}

/** The part of each head in the result. @param {HTMLElement} figure @param {ExplanationDocument} doc */
function drawShares(figure, doc) {
  const values = matrixOf(doc, figure.dataset.matrix ?? '');
  const rows = labelsOf(doc, figure.dataset.rows ?? '');
  const say = (/** @type {number} */ row, /** @type {number} */ head) => {
    const sum = values.row(row).reduce((total, value) => total + value, 0);
    readout.replaceChildren(
      piece(rows[row]), `: the part of head ${head + 1} has length `, strong(show(values.at(row, head))),
      `, ${show((100 * values.at(row, head)) / (sum || 1), 0)} % of all lengths`,
    );
  };
  const map = addMap(figure, {
    label: 'Length of each head’s part', rows, columns: Array.from({ length: values.columns }, (_, i) => `head ${i + 1}`),
    value: (row, column) => values.at(row, column), kind: 'share', onSelect: say,
  });
  const readout = addReadout(figure);
  say(map.row, map.column);
}

/** One row of a residual connection. @param {HTMLElement} figure @param {ExplanationDocument} doc */
function drawResidual(figure, doc) {
  const name = figure.dataset.matrix ?? '';
  const labels = labelsOf(doc, figure.dataset.rows ?? '');
  const [x, input, output, sum, result, gain, shift, rows] = ['before', 'input', 'output', 'sum', 'result', 'gain', 'shift', 'rows']
    .map((part) => matrixOf(doc, `${name}.${part}`));
  const pre = doc.norm === 'pre';
  const strips = pre ? [x, input, output, result] : [x, output, sum, result];
  const names = pre ? ['x', 'LayerNorm(x)', 'Sublayer(…)', 'x + Sublayer(…)'] : ['x', 'Sublayer(x)', 'x + Sublayer(x)', 'LayerNorm(…)'];
  let chosen = Math.min(1, labels.length - 1);
  const choice = make('select', { 'aria-label': 'Piece' });
  labels.forEach((label, i) => choice.append(make('option', { value: i }, label)));
  choice.value = String(chosen);
  figure.append(make('p', { class: 'choice' }, make('label', {}, 'Piece ', choice)));
  const value = (/** @type {number} */ strip, /** @type {number} */ column) => strips[strip].at(chosen, column);
  const say = () => {
    const column = map.column;
    const [mean, spread, meanAfter, spreadAfter, kept] = rows.row(chosen);
    const [a, y, c] = [x.at(chosen, column), output.at(chosen, column), (pre ? x : sum).at(chosen, column)];
    const normal = (c - mean) / Math.sqrt(spread * spread + 1e-6);
    const normed = `(${show(c)} − mean ${show(mean)}) / spread ${show(spread)} × gain ${show(gain.at(0, column))} + shift ${show(shift.at(0, column))} = `;
    readout.replaceChildren(
      make('span', {}, `number ${column}: ${show(a)} + ${show(y)} = `, strong(show(a + y))), make('br'),
      make('span', {}, `norm: ${normed}`, strong(show(normal * gain.at(0, column) + shift.at(0, column)))), make('br'),
      make('span', { class: 'muted' }, `mean ${show(mean)} and spread ${show(spread)} before the norm, 0 and 1 within it, ${show(meanAfter)} and ${show(spreadAfter)} after gain and shift; cosine between x and the result ${show(kept, 2)}`),
    );
  };
  const map = addMap(figure, { label: 'x, sub-layer, sum and norm', rows: names, columns: x.columns, value, kind: 'signed', cell: { height: 34 }, onSelect: say });
  const readout = addReadout(figure);
  choice.addEventListener('change', () => {
    chosen = Number(choice.value);
    map.change(value, 'signed');
    say();
  });
  say();
}

/** The stage of a head that the address names. @param {HTMLElement} section @param {string} stage */
export function showStage(section, stage) {
  for (const node of findAll('.stage, .after', section)) node.hidden = node.dataset.stage !== stage;
  for (const tab of findAll('.tab', section)) {
    const isCurrent = tab.getAttribute('href')?.endsWith(`.${stage}`) ?? false;
    if (isCurrent) tab.setAttribute('aria-current', 'step');
    else tab.removeAttribute('aria-current');
  }
  for (const figure of findAll('.figure[data-view=head]', section)) figure.dispatchEvent(new CustomEvent('stage', { detail: stage }));
}

/** Equation 1, stage by stage. @param {HTMLElement} figure @param {ExplanationDocument} doc */
function drawHead(figure, doc) {
  const name = figure.dataset.matrix ?? '';
  const head = Number(figure.dataset.head);
  const part = (/** @type {string} */ which) => matrixOf(doc, `${name}.${which}`, head);
  const [query, key, value, scores, weights, results] = ['query', 'key', 'value', 'scores', 'weights', 'heads'].map(part);
  const bias = findMatrix(doc, `${name}.bias`, head);
  const mask = matrixOf(doc, `${name}.mask`);
  const rows = labelsOf(doc, figure.dataset.rows ?? '');
  const columns = labelsOf(doc, figure.dataset.columns ?? '');
  const root = Math.sqrt(query.columns);
  const scaled = (/** @type {number} */ i, /** @type {number} */ j) => scores.at(i, j) / root + (bias?.at(i, j) ?? 0);
  const masked = (/** @type {number} */ i, /** @type {number} */ j) => (mask.at(i, j) ? scaled(i, j) : -Infinity);
  /** @type {Record<string, (i: number, j: number) => number>} */
  const stages = { scores: (i, j) => scores.at(i, j), scaled, mask: masked, softmax: (i, j) => weights.at(i, j), values: (i, j) => weights.at(i, j) };
  const [i, j] = (figure.dataset.cell ?? '0,0').split(',').map(Number);
  let stage = 'softmax';

  const say = () => {
    const [row, column] = [map.row, map.column];
    const pair = [piece(rows[row]), ' looks at ', piece(columns[column]), ': '];
    const products = query.row(row).map((each, k) => each * key.at(column, k));
    bars.hidden = stage !== 'scores';
    mean.hidden = stage !== 'values';
    looks.hidden = !['softmax', 'values'].includes(stage);
    if (stage === 'scores') {
      readout.replaceChildren(...pair, `${query.columns} products add up to `, strong(show(scores.at(row, column))));
      drawBars(bars, products, (k) => `${show(query.at(row, k))} × ${show(key.at(column, k))} = ${show(products[k])}`);
    } else if (stage === 'scaled') {
      readout.replaceChildren(...pair, `${show(scores.at(row, column))} / √${query.columns}`, bias ? ` + ${show(bias.at(row, column))}` : '', ' = ', strong(show(scaled(row, column))));
    } else if (stage === 'mask') {
      readout.replaceChildren(...pair, mask.at(row, column) ? `allowed, ${show(scaled(row, column))} stays` : `later, so ${show(scaled(row, column))} becomes −∞`);
    } else {
      const powers = columns.map((_, k) => Math.exp(masked(row, k)));
      const sum = powers.reduce((total, each) => total + each, 0);
      readout.replaceChildren(...pair, `e^${show(masked(row, column))} / ${show(sum)} = ${show(powers[column])} / ${show(sum)} = `, strong(show(weights.at(row, column))));
      drawLooks(looks, rows[row], columns, weights.row(row));
      if (stage === 'values') drawMean(mean, row);
    }
  };
  const strips = make('div', { class: 'strips' });
  figure.append(strips);
  const sides = [['Q', query, rows], ['K', key, columns], ['V', value, columns]];
  const single = make('div');
  figure.append(single);
  const readout = addReadout(single);
  const map = addMap(single, { label: 'Scores or weights, queries × keys', rows, columns, value: stages.softmax, kind: 'share', start: [i, j], onSelect: say });
  const bars = make('div', { class: 'bars' });
  const looks = make('p', { class: 'looks' });
  const mean = make('div');
  single.insertBefore(looks, single.lastElementChild);
  single.append(bars, mean);

  /** @param {HTMLElement} box @param {number} row */
  const drawMean = (box, row) => {
    box.replaceChildren(make('h3', {}, 'The values, each times its share, and their sum'));
    const labels = [...columns, 'sum'];
    const at = (/** @type {number} */ r, /** @type {number} */ c) => (r < columns.length ? weights.at(row, r) * value.at(r, c) : results.at(row, c));
    const tell = (/** @type {number} */ r, /** @type {number} */ c) => {
      const shown = columns.map((_, k) => [k, weights.at(row, k) * value.at(k, c)]).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, 4)
        .map(([k]) => `${show(weights.at(row, k), 2)} × ${show(value.at(k, c), 2)}`).join(' + ');
      said.replaceChildren(
        r < columns.length ? piece(columns[r]) : 'sum', `, number ${c}: `,
        r < columns.length ? `${show(weights.at(row, r))} × ${show(value.at(r, c))} = ` : `${shown} + … = `, strong(show(at(r, c))),
      );
    };
    const sums = addMap(box, { label: 'Weighted values', rows: labels, columns: value.columns, value: at, kind: 'signed', cell: { height: 22 }, start: [labels.length - 1, 0], onSelect: tell });
    const said = addReadout(box);
    tell(sums.row, sums.column);
  };

  figure.addEventListener('stage', (event) => {
    stage = event instanceof CustomEvent ? event.detail : stage;
    strips.hidden = stage !== 'projections';
    single.hidden = stage === 'projections';
    if (stage === 'projections') {
      if (!strips.childElementCount) {
        for (const [title, matrix, labels] of /** @type {[string, Matrix, string[]][]} */ (sides)) {
          const box = make('div', {}, make('h3', {}, `${title}, ${matrix.rows} × ${matrix.columns}`));
          strips.append(box);
          const tell = (/** @type {number} */ r, /** @type {number} */ c) => said.replaceChildren(piece(labels[r]), `, ${title} number ${c}: `, strong(show(matrix.at(r, c))));
          const strip = addMap(box, { label: title, rows: labels, columns: matrix.columns, value: (r, c) => matrix.at(r, c), kind: 'signed', cell: { height: 22 }, onSelect: tell });
          const said = addReadout(box);
          tell(strip.row, strip.column);
        }
      }
    } else {
      map.change(stages[stage], stage === 'softmax' || stage === 'values' ? 'share' : 'signed');
      say();
    }
  });
}

/** @param {HTMLElement} box @param {number[]} values @param {(k: number) => string} title */
function drawBars(box, values, title) {
  const largest = Math.max(...values.map(Math.abs), 1e-9);
  box.replaceChildren(...values.map((value, k) => {
    const bar = make('span', { class: value < 0 ? 'bar low' : 'bar high', title: title(k) }, make('span', { class: 'fill' }));
    const fill = /** @type {HTMLElement} */ (bar.firstElementChild);
    fill.style.height = `${(50 * Math.abs(value)) / largest}%`;
    return bar;
  }));
  const first = values.map((_, k) => k).sort((a, b) => Math.abs(values[b]) - Math.abs(values[a])).slice(0, 3);
  box.append(make('p', { class: 'muted' }, `The largest products: ${first.map(title).join(';  ')}. Bars above the line add, bars below take away.`));
}

/** A sentence, shaded by where one piece looks. @param {HTMLElement} box @param {string} from @param {string[]} pieces @param {number[]} weights */
function drawLooks(box, from, pieces, weights) {
  box.replaceChildren(piece(from), ' looks at ', ...pieces.flatMap((text, k) => {
    const node = make('bdi', { class: 'look' }, text);
    node.style.setProperty('--share', `${Math.round(100 * Math.sqrt(weights[k]))}%`);
    if (weights[k] > 0.05) node.append(make('small', {}, ` ${Math.round(100 * weights[k])} %`));
    return [node, ' '];
  }));
}

/** The likeliest pieces at one position. @param {HTMLElement} figure @param {ExplanationDocument} doc */
function drawLogits(figure, doc) {
  const places = doc.target.pieces.length;
  const slider = make('input', { type: 'range', min: 0, max: places - 1, 'aria-label': 'Position in the translation' });
  const table = make('table', { class: 'likely' });
  const line = make('p', { class: 'readout', role: 'status' });
  figure.append(slider, line, table);
  const written = byId('written');
  const update = () => {
    const place = Number(slider.value);
    for (const chip of findAll('.chip', written)) chip.setAttribute('aria-pressed', String(Number(chip.dataset.place) === place));
    line.replaceChildren('after ', ...doc.inputs.slice(0, place + 1).flatMap((text) => [piece(text), ' ']), 'comes ', strong(doc.target.pieces[place]));
    table.replaceChildren(make('tbody', {}, ...doc.likeliest[place].map((each) => {
      const bar = make('span', { class: 'meter' }, make('span', { class: 'fill' }));
      /** @type {HTMLElement} */ (bar.firstElementChild).style.width = `${100 * each.probability}%`;
      const isOwn = each.piece === doc.target.pieces[place];
      return make('tr', { class: isOwn ? 'own' : '' }, make('th', { scope: 'row' }, piece(each.piece)), make('td', { class: 'wide' }, bar),
        make('td', { class: 'n' }, `${show(100 * each.probability, 1)} %`), make('td', { class: 'n muted' }, `logit ${show(each.logit ?? 0, 2)}`));
    })));
  };
  slider.value = figure.dataset.cell ?? '0';
  slider.addEventListener('input', update);
  slider.addEventListener('keydown', (event) => event.stopPropagation());
  written.addEventListener('click', (event) => {
    const chip = event.target instanceof Element ? event.target.closest('.chip') : null;
    if (!(chip instanceof HTMLElement)) return;
    slider.value = chip.dataset.place ?? '0';
    update();
  });
  update();
}

/** Scores that become shares, of attention with one head. @param {HTMLElement} figure @param {ExplanationDocument} doc */
function drawWeights(figure, doc) {
  const name = figure.dataset.matrix ?? '';
  const [weights, scores] = ['weights', 'scores'].map((part) => matrixOf(doc, `${name}.${part}`));
  const rows = labelsOf(doc, figure.dataset.rows ?? '');
  const columns = labelsOf(doc, figure.dataset.columns ?? '');
  const [i, j] = (figure.dataset.cell ?? '0,0').split(',').map(Number);
  const say = (/** @type {number} */ row, /** @type {number} */ column) => {
    const powers = scores.row(row).map(Math.exp);
    const sum = powers.reduce((total, each) => total + each, 0);
    readout.replaceChildren(piece(rows[row]), ' looks at ', piece(columns[column]), `: e^${show(scores.at(row, column))} / ${show(sum)} = `, strong(show(weights.at(row, column))));
    drawLooks(looks, rows[row], columns, weights.row(row));
  };
  const readout = addReadout(figure);
  const looks = make('p', { class: 'looks' });
  figure.append(looks);
  const map = addMap(figure, { label: 'Weights, queries × keys', rows, columns, value: (row, column) => weights.at(row, column), kind: 'share', start: [i, j], onSelect: say });
  say(map.row, map.column);
}

/** How each piece was drawn. @param {HTMLElement} figure @param {ExplanationDocument} doc */
function drawDraws(figure, doc) {
  const { draws = [], first_written: first } = doc;
  const slider = make('input', { type: 'range', min: 0, max: draws.length - 1, 'aria-label': 'Position in the continuation' });
  const line = make('p', { class: 'readout', role: 'status' });
  const table = make('table', { class: 'draws' });
  const titles = ['piece', 'p', 'p at T', 'log p / T', 'g', 'sum'];
  figure.append(slider, line, make('div', { class: 'scroll' }, table));
  const update = () => {
    const rows = draws[Number(slider.value)];
    const place = first + Number(slider.value);
    const won = rows.find((each) => each.won);
    line.replaceChildren(`${Number(slider.value) + 1} of ${draws.length}: after `, ...doc.inputs.slice(Math.max(0, place - 11), place + 1).flatMap((text) => [piece(text), ' ']),
      'the draw is ', strong(won?.piece ?? ''), `, with p = ${show(100 * (won?.probability ?? 0), 1)} %`);
    table.replaceChildren(
      make('thead', {}, make('tr', {}, ...titles.map((title, i) => make('th', { scope: 'col', class: i ? 'n' : '' }, title)))),
      make('tbody', {}, ...rows.map((each) => make('tr', { class: each.won ? 'own' : each.kept ? '' : 'muted' }, make('th', { scope: 'row' }, piece(each.piece)),
        make('td', { class: 'n' }, `${show(100 * each.probability, 1)} %`), make('td', { class: 'n' }, each.kept ? `${show(100 * each.share, 1)} %` : 'dropped'),
        make('td', { class: 'n' }, show(each.scaled, 2)), make('td', { class: 'n' }, show(each.noise, 2)), make('td', { class: 'n' }, each.kept ? show(each.scaled + each.noise, 2) : '–')))),
    );
  };
  slider.value = figure.dataset.cell ?? '0';
  slider.addEventListener('input', update);
  slider.addEventListener('keydown', (event) => event.stopPropagation());
  update();
}

/** What a candidate of the beam is: by pointing at it, or by the arrow keys. */
export function listenToBeam() {
  const said = document.getElementById('candidate');
  if (!said) return; // a model that draws has no beam
  /** @param {SVGElement} node */
  const tell = (node) => {
    for (const other of document.querySelectorAll('.tree .chosen')) other.classList.remove('chosen');
    node.classList.add('chosen');
    const { said: text = '', log = '', score = '', fate = '', step = '' } = node.dataset;
    const fates = { kept: 'kept', pruned: 'dropped: others were better', finished: 'finished' };
    said.replaceChildren(
      make('bdi', {}, text || '(nothing yet)'), ` after ${step} ${step === '1' ? 'piece' : 'pieces'}: log P = ${log.replace('-', '−')}, score = `,
      strong(score.replace('-', '−')), `, ${fates[/** @type {keyof typeof fates} */ (fate)]}`,
    );
  };
  const point = (/** @type {Event} */ event) => {
    const node = event.target instanceof Element ? event.target.closest('.node[data-said]') : null;
    if (node instanceof SVGElement) tell(node);
  };
  for (const tree of findAll('.tree')) {
    tree.addEventListener('pointerover', point);
    tree.addEventListener('click', point);
    tree.addEventListener('keydown', (event) => {
      if (event.key.startsWith('Arrow')) event.preventDefault();
      const node = neighbourInTree(tree, event.key);
      if (!node) return;
      tell(node);
      node.scrollIntoView({ block: 'nearest', inline: 'nearest' });
    });
  }
}

/** The candidate that a key leads to: to its parent, its best child, or up and down in its step. @param {HTMLElement} tree @param {string} key */
function neighbourInTree(tree, key) {
  const nodes = [...tree.querySelectorAll('.node[data-said]')].filter((node) => node instanceof SVGElement);
  const chosen = nodes.find((node) => node.classList.contains('chosen'));
  const { place, parent, step, row } = chosen?.dataset ?? { place: '-1', parent: '', step: '', row: '' };
  const beside = (/** @type {number} */ by) => nodes.find((node) => node.dataset.step === step && Number(node.dataset.row) === Number(row) + by);
  switch (key) {
    case 'ArrowRight': return nodes.filter((node) => node.dataset.parent === place).sort((a, b) => Number(a.dataset.row) - Number(b.dataset.row))[0];
    case 'ArrowLeft': return nodes.find((node) => node.dataset.place === parent);
    case 'ArrowUp': return beside(-1);
    case 'ArrowDown': return beside(1);
    default: return undefined;
  }
}
