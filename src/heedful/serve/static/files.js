import { announce, byId, make } from './dom.js';
import { RequestError, askForEvents, toSentence } from './api.js';

/** @typedef {import('./glossary.js').Terms} Terms */
/** @typedef {{source: string, target: string, terms: Terms}} FileOptions whose source may be "auto" */

/**
 * Translates files that are chosen or dropped anywhere. Dropped text goes to `onText`; a text box takes it by itself.
 * @param {string[]} kinds extensions such as .docx; none if the server translates no files
 * @param {() => FileOptions} currentOptions
 * @param {(text: string) => void} onText
 * @param {(problem: string) => void} onRefuse
 */
export function listenToFiles(kinds, currentOptions, onText, onRefuse) {
  byId('files').hidden = !kinds.length;
  const input = byId('file', HTMLInputElement);
  input.accept = kinds.join(',');
  byId('file-kinds').textContent = `Supported: ${kinds.join(' ')}`;
  const translateAll = (/** @type {File[]} */ files) => {
    if (files.length && !kinds.length) onRefuse('This server does not translate files.');
    else for (const file of files) translateFile(file, kinds, currentOptions());
  };
  const goesIntoBox = (/** @type {DragEvent} */ event) => event.target instanceof HTMLTextAreaElement
    && !event.dataTransfer?.types.includes('Files');
  input.addEventListener('change', () => {
    translateAll([...(input.files ?? [])]);
    input.value = '';
  });
  addEventListener('dragover', (event) => {
    if (goesIntoBox(event)) return;
    event.preventDefault();
    document.body.classList.add('dragging');
  });
  addEventListener('dragleave', (event) => {
    if (!event.relatedTarget) document.body.classList.remove('dragging');
  });
  addEventListener('drop', (event) => {
    document.body.classList.remove('dragging');
    if (goesIntoBox(event)) return;
    event.preventDefault();
    const files = [...(event.dataTransfer?.files ?? [])];
    const text = event.dataTransfer?.getData('text/plain') ?? '';
    if (files.length) translateAll(files);
    else if (text) onText(text);
  });
}

/** @param {File} file @param {string[]} kinds @param {FileOptions} options */
async function translateFile(file, kinds, { source, target, terms }) {
  const job = showJob(file.name);
  try {
    if (!kinds.some((kind) => file.name.toLowerCase().endsWith(kind))) {
      throw new RequestError(`Unsupported file type; supported: ${kinds.join(' ')}`);
    }
    const form = new FormData();
    form.append('file', file);
    form.append('source', source);
    form.append('target', target);
    form.append('glossary', JSON.stringify(terms));
    for await (const { name, content } of askForEvents('translate_file', { body: form, signal: job.signal })) {
      if (name === 'progress') job.showProgress(content.done, content.total);
      else job.finish(content.translatedFileUrl, content.notes);
    }
  } catch (error) {
    job.fail(job.signal.aborted ? 'Cancelled.' : /** @type {Error} */ (error).message);
  }
}

/** A line for a file, with its progress and in the end its download. @param {string} name */
function showJob(name) {
  const control = new AbortController();
  const bar = make('progress', { 'aria-label': `${name}: progress` });
  const note = make('span', { class: 'muted' }, 'Uploading…');
  const cancel = make('button', { type: 'button', class: 'quiet' }, 'Cancel');
  const line = make('li', {}, make('b', { dir: 'auto' }, name), bar, note, cancel);
  cancel.onclick = () => (bar.isConnected ? control.abort() : line.remove());
  byId('jobs').prepend(line);
  const end = () => {
    bar.remove();
    cancel.textContent = 'Remove';
  };
  return {
    signal: control.signal,
    /** @param {number} done @param {number} total */
    showProgress(done, total) {
      bar.max = Math.max(1, total);
      bar.value = done;
      note.textContent = `${done} of ${total} sentences`;
    },
    /** @param {string} url @param {string[]} notes */
    finish(url, notes) {
      end();
      const { pathname } = new URL(url);
      const translated = decodeURIComponent(pathname.split('/').pop() ?? name);
      note.replaceWith(make('a', { href: pathname, download: translated, class: 'download' }, `Download ${translated}`));
      const items = notes.map((each) => make('li', {}, toSentence(each)));
      if (items.length) line.append(make('ul', { class: 'notes muted' }, ...items));
      announce(`${name} is translated`);
    },
    /** @param {string} message */
    fail(message) {
      end();
      note.className = 'problem';
      note.textContent = message;
      announce(`${name}: ${message}`);
    },
  };
}
