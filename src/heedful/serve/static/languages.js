// @ts-check
import { ask } from './api.js';
import { byId, make } from './heads.js';

/** @typedef {{code: string, name: string, targets: string[]}} Language */

const AUTO = 'auto';

/** The two languages, and what becomes of them. */
export class Languages {
  /** @param {Language[]} known @param {() => void} changed */
  constructor(known, changed) {
    this.known = new Map(known.map((language) => [language.code, language]));
    this.changed = changed;
    const sources = known.filter((language) => language.targets.length);
    const choices = sources.map(({ code, name }) => make('option', { value: code }, name));
    if (sources.length > 1) choices.unshift(make('option', { value: AUTO }, 'Detect language'));
    byId('from').replaceChildren(...choices);
    this.choose(localStorage.getItem('from') ?? '', localStorage.getItem('into') ?? '');
    byId('from').addEventListener('change', () => this.pick(byId('from').value, byId('into').value));
    byId('into').addEventListener('change', () => this.pick(byId('from').value, byId('into').value));
  }

  get from() {
    return byId('from').value;
  }

  get into() {
    return byId('into').value;
  }

  /** @param {string} code */
  name(code) {
    return this.known.get(code)?.name ?? code;
  }

  /** @param {string} from @param {string} into as far as there is a model for them */
  choose(from, into) {
    const options = [...byId('from').options].map((option) => option.value);
    byId('from').value = options.includes(from) ? from : this.usual(options);
    const targets = this.from === AUTO ? [...this.known.values()].flatMap((one) => one.targets) : this.targets(this.from);
    byId('into').replaceChildren(...[...new Set(targets)].map((code) => make('option', { value: code }, this.name(code))));
    if (targets.includes(into)) byId('into').value = into;
    byId('swap').disabled = this.from !== AUTO && !this.targets(this.into).includes(this.from);
  }

  /** What to begin with: the language that can become the most others. @param {string[]} options */
  usual(options) {
    const count = (/** @type {string} */ code) => this.targets(code).length;
    return options.reduce((best, code) => (count(code) > count(best) ? code : best), '');
  }

  /** @param {string} code */
  targets(code) {
    return this.known.get(code)?.targets ?? [];
  }

  /** @param {string} from @param {string} into */
  pick(from, into) {
    this.choose(from, into);
    localStorage.setItem('from', this.from);
    localStorage.setItem('into', this.into);
    this.changed();
  }

  /** The source language of a text: the one that was chosen, or the likeliest of those that can be translated. */
  async sourceOf(/** @type {string} */ text, /** @type {AbortSignal | undefined} */ signal) {
    if (this.from !== AUTO) return this.from;
    const found = await ask('detect', { q: text }, signal);
    const able = found.map((/** @type {any} */ one) => one.language);
    const fitting = (/** @type {string} */ code) => this.targets(code).includes(this.into);
    return able.find(fitting) ?? [...this.known.keys()].find(fitting) ?? '';
  }
}
