import { byId, make } from './dom.js';
import { ask } from './api.js';

/** @typedef {{code: string, name: string, targets: string[]}} Language */

export const AUTO = 'auto';

/** The two selected languages. */
export class Languages {
  /** @param {Language[]} known @param {() => void} onChange */
  constructor(known, onChange) {
    this.known = new Map(known.map((language) => [language.code, language]));
    this.onChange = onChange;
    this.fromSelect = byId('from', HTMLSelectElement);
    this.intoSelect = byId('into', HTMLSelectElement);
    const sources = known.filter((language) => language.targets.length);
    const options = sources.map(({ code, name }) => make('option', { value: code }, name));
    if (sources.length > 1) options.unshift(make('option', { value: AUTO }, 'Detect language'));
    this.fromSelect.replaceChildren(...options);
    this.show(localStorage.getItem('from') ?? '', localStorage.getItem('into') ?? '');
    this.fromSelect.addEventListener('change', () => this.select(this.from, this.into));
    this.intoSelect.addEventListener('change', () => this.select(this.from, this.into));
  }

  get from() {
    return this.fromSelect.value;
  }

  get into() {
    return this.intoSelect.value;
  }

  /** @param {string} code */
  nameOf(code) {
    return this.known.get(code)?.name ?? code;
  }

  /** @param {string} code */
  targetsOf(code) {
    return this.known.get(code)?.targets ?? [];
  }

  /** Selects these languages, as far as there is a model for them. @param {string} from @param {string} into */
  show(from, into) {
    const sources = [...this.fromSelect.options].map((option) => option.value);
    this.fromSelect.value = sources.includes(from) ? from : this.defaultSource(sources);
    const targets = this.from === AUTO ? [...this.known.values()].flatMap((each) => each.targets) : this.targetsOf(this.from);
    const options = [...new Set(targets)].map((code) => make('option', { value: code }, this.nameOf(code)));
    this.intoSelect.replaceChildren(...options);
    if (targets.includes(into)) this.intoSelect.value = into;
    byId('swap', HTMLButtonElement).disabled = this.from !== AUTO && !this.targetsOf(this.into).includes(this.from);
  }

  /** @param {string[]} sources @returns {string} the one with the most target languages */
  defaultSource(sources) {
    const count = (/** @type {string} */ code) => this.targetsOf(code).length;
    return sources.reduce((best, code) => (count(code) > count(best) ? code : best), '');
  }

  /** Selects these languages and remembers them. @param {string} from @param {string} into */
  select(from, into) {
    this.show(from, into);
    localStorage.setItem('from', this.from);
    localStorage.setItem('into', this.into);
    this.onChange();
  }

  /**
   * The selected source language, or else the most likely one that can be translated into the target language.
   * @param {string} text
   * @param {AbortSignal} [signal]
   * @returns {Promise<string>}
   */
  async sourceOf(text, signal) {
    if (this.from !== AUTO) return this.from;
    /** @type {{language: string}[]} */
    const detected = await ask('detect', { q: text }, signal);
    const candidates = [...detected.map((each) => each.language), ...this.known.keys()];
    return candidates.find((code) => this.targetsOf(code).includes(this.into)) ?? '';
  }
}
