"use strict";
// Every sentence: in which order, which of them, and where the two outputs differ. All text is set as text.
{
  const { names, lengthOf, lengths, sentences } = JSON.parse(document.getElementById("document").textContent);
  const PAGE = 40; // sentences that are shown at once
  const MOST_CELLS = 4e6; // of the table that differences are found by; beyond, all counts as different
  const byId = (id) => document.getElementById(id);
  const letter = (system) => (system < 26 ? String.fromCharCode(65 + system) : String(system + 1));
  const segmenter = new Intl.Segmenter(undefined, { granularity: "word" });
  const collator = (text) => text.toLocaleLowerCase();

  const make = (tag, className, ...inside) => {
    const node = document.createElement(tag);
    if (className) node.className = className;
    node.append(...inside);
    return node;
  };

  // Words and what is between them, each as a string.
  const segments = (text) => [...segmenter.segment(text)].map((part) => part.segment);

  // For each list, which of its entries are not in a longest common subsequence of both.
  const differing = (left, right) => {
    const other = [left.map(() => true), right.map(() => true)];
    let start = 0;
    let [endLeft, endRight] = [left.length, right.length];
    while (start < endLeft && start < endRight && left[start] === right[start]) start += 1;
    while (endLeft > start && endRight > start && left[endLeft - 1] === right[endRight - 1]) { endLeft -= 1; endRight -= 1; }
    other[0].fill(false, 0, start).fill(false, endLeft);
    other[1].fill(false, 0, start).fill(false, endRight);
    const [rows, columns] = [endLeft - start, endRight - start];
    if (rows * columns > MOST_CELLS) return other;
    const table = Array.from({ length: rows + 1 }, () => new Uint32Array(columns + 1));
    for (let i = rows - 1; i >= 0; i -= 1) {
      for (let j = columns - 1; j >= 0; j -= 1) {
        table[i][j] = left[start + i] === right[start + j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
      }
    }
    for (let i = 0, j = 0; i < rows && j < columns;) {
      if (left[start + i] === right[start + j]) { other[0][start + i] = other[1][start + j] = false; i += 1; j += 1; }
      else if (table[i + 1][j] >= table[i][j + 1]) i += 1;
      else j += 1;
    }
    return other;
  };

  // A text whose differing words are marked; those of the reference otherwise than others.
  const marked = (parts, differs, known) => parts.map((part, place) => {
    if (!differs[place] || !part.trim()) return part;
    return make("mark", known.has(part) ? "hit" : "miss", part);
  });

  const entry = (list, title, chip, ...inside) => {
    const term = make("dt", "", ...(chip === null ? [] : [make("b", `chip slot-${chip % 6}`, letter(chip)), " "]), title);
    const text = make("dd", "", ...inside);
    text.dir = "auto";
    list.append(term, text);
  };

  const card = (sentence, system) => {
    const [left, right] = [segments(sentence.outputs[0]), segments(sentence.outputs[system])];
    const [leftDiffers, rightDiffers] = differing(left, right);
    const known = new Set(sentence.references.flatMap(segments));
    const gain = sentence.gains[system];
    const sign = gain > 0 ? "up" : gain < 0 ? "down" : "same";
    const change = make("span", `gain ${sign}`, `${gain > 0 ? "+" : gain < 0 ? "−" : "±"}${Math.abs(gain).toFixed(1)} chrF`);
    const scores = `chrF ${letter(0)} ${sentence.chrf[0].toFixed(1)}, ${letter(system)} ${sentence.chrf[system].toFixed(1)}`;
    const line = make("p", "line", make("span", "", `line ${sentence.number}`), make("span", "", `${sentence.words} words`), make("span", "", scores), change);
    const list = make("dl", "texts");
    if (sentence.source !== null) entry(list, "source", null, sentence.source);
    sentence.references.forEach((reference) => entry(list, "reference", null, reference));
    entry(list, "", 0, ...marked(left, leftDiffers, known));
    entry(list, "", system, ...marked(right, rightDiffers, known));
    return make("li", "", line, list);
  };

  const orders = {
    difference: (system) => (a, b) => Math.abs(b.gains[system]) - Math.abs(a.gains[system]),
    gain: (system) => (a, b) => b.gains[system] - a.gains[system],
    loss: (system) => (a, b) => a.gains[system] - b.gains[system],
    long: () => (a, b) => b.words - a.words,
    short: () => (a, b) => a.words - b.words,
    file: () => (a, b) => a.number - b.number,
  };
  const kinds = {
    all: () => true,
    better: (sentence, system) => sentence.gains[system] > 0,
    worse: (sentence, system) => sentence.gains[system] < 0,
    equal: (sentence, system) => sentence.gains[system] === 0,
    differ: (sentence, system) => sentence.outputs[system] !== sentence.outputs[0],
  };
  const texts = sentences.map((sentence) => collator([sentence.source ?? "", ...sentence.references, ...sentence.outputs].join("\n")));

  let chosen = [];
  let shown = 0;

  const showMore = () => {
    const system = Number(byId("with").value);
    const some = chosen.slice(shown, shown + PAGE).map((sentence) => card(sentence, system));
    byId("sentences").append(...some);
    shown += some.length;
    byId("more").hidden = shown >= chosen.length;
    return some[0];
  };

  const renew = () => {
    const system = Number(byId("with").value);
    const [kind, length, search] = [byId("kind").value, byId("length").value, collator(byId("search").value.trim())];
    chosen = sentences
      .filter((sentence, place) => kinds[kind](sentence, system) && (!length || sentence.length === length) && texts[place].includes(search))
      .sort(orders[byId("sort").value](system));
    byId("sentences").replaceChildren();
    shown = 0;
    showMore();
    byId("found").textContent = `${chosen.length} of ${sentences.length} sentences`;
  };

  names.slice(1).forEach((name, place) => byId("with").append(new Option(`${letter(place + 1)} ${name}`, String(place + 1))));
  lengths.forEach((name) => byId("length").append(new Option(name, name)));
  byId("length-label").textContent = `Words of the ${lengthOf}`;
  byId("with-line").hidden = names.length === 2;
  byId("controls").addEventListener("input", renew);
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("more").addEventListener("click", () => {
    const first = showMore();
    first.tabIndex = -1; // who came here by keyboard goes on reading where the new ones begin
    first.focus();
  });
  renew();
}
