import { byId, make } from './dom.js';
import { ask } from './api.js';
import { localStore } from './storage.js';

/** @typedef {{code: string, name: string, targets: string[]}} Language */
/** @typedef {{language: string, confidence: number}} DetectedLanguage with its probability in percent */
/** @typedef {{code: string, note: string}} SourceLanguage the language to translate from, and what detection says;
 *           the code is empty if the text stays as it is */

export const AUTO = 'auto';
const SURE = 90; // percent, to call a language detected
const LIKELY = 50; // percent, of all languages together, to take the text for one of them
const PLAUSIBLE = 10; // percent, to prefer a language to the one to translate into

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
    this.show(localStore.get('from') ?? '', localStore.get('into') ?? '');
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

  /**
   * @param {string[]} sources
   * @returns {string} the one with the most target languages; of several, the one that most others come first to
   */
  defaultSource(sources) {
    const all = [...this.known.values()];
    const count = (/** @type {string} */ code) =>
      this.targetsOf(code).length + all.filter((each) => each.targets[0] === code).length / (all.length + 1);
    return sources.reduce((best, code) => (count(code) > count(best) ? code : best), '');
  }

  /** Selects these languages and remembers them. @param {string} from @param {string} into */
  select(from, into) {
    this.show(from, into);
    localStore.set('from', this.from);
    localStore.set('into', this.into);
    this.onChange();
  }

  /**
   * The selected source language, or else the most likely one that can be translated into the target language.
   * @param {string} text
   * @param {AbortSignal} [signal]
   * @returns {Promise<SourceLanguage>}
   */
  async sourceOf(text, signal) {
    if (this.from !== AUTO) return { code: this.from, note: '' };
    return this.chooseSource(await ask('detect', { q: text }, signal));
  }

  /** @param {DetectedLanguage[]} detected the likeliest first @returns {SourceLanguage} */
  chooseSource(detected) {
    const possible = detected.filter((each) => this.targetsOf(each.language).includes(this.into));
    const [best] = detected;
    const total = detected.reduce((sum, each) => sum + each.confidence, 0);
    if (!best || total < LIKELY) return { code: '', note: 'Not a language that is known here. Choose it to translate.' };
    if (best.language === this.into) {
      const other = possible.find((each) => each.confidence >= PLAUSIBLE);
      if (best.confidence >= SURE || !other) return { code: '', note: `Already ${this.nameOf(this.into)}` };
      return { code: other.language, note: `Perhaps ${this.nameOf(other.language)}: a guess` };
    }
    const name = this.nameOf(best.language);
    const isSure = best.confidence >= SURE;
    if (best === possible[0]) return { code: best.language, note: isSure ? `Detected: ${name}` : `Perhaps ${name}: a guess` };
    return { code: '', note: `${isSure ? 'Detected:' : 'Perhaps'} ${name}, which cannot be translated into ${this.nameOf(this.into)}` };
  }

  /** The pair whose glossary applies; an undetected language is the first that can be translated. @param {string} source */
  pairOf(source) {
    const from = this.from === AUTO ? source : this.from;
    const first = [...this.known.keys()].find((code) => this.targetsOf(code).includes(this.into)) ?? '';
    return { source: from || first, target: this.into };
  }
}
