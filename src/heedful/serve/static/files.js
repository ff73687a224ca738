import { announce, byId, make } from './dom.js';
import { RequestError, send, toSentence } from './api.js';
import { glossary } from './glossary.js';

/** @typedef {{source: string, target: string}} LanguagePair */

/**
 * @param {string[]} kinds extensions such as .docx; none if the server translates no files
 * @param {() => LanguagePair} currentPair
 */
export function listenToFiles(kinds, currentPair) {
  byId('files').hidden = !kinds.length;
  if (!kinds.length) return;
  const input = byId('file', HTMLInputElement);
  input.accept = kinds.join(',');
  byId('file-kinds').textContent = `Supported: ${kinds.join(' ')}`;
  const translateAll = (/** @type {Iterable<File>} */ files) => {
    for (const file of files) translateFile(file, kinds, currentPair());
  };
  input.addEventListener('change', () => {
    translateAll([...(input.files ?? [])]);
    input.value = '';
  });
  addEventListener('dragover', (event) => {
    event.preventDefault();
    document.body.classList.add('dragging');
  });
  addEventListener('dragleave', (event) => {
    if (!event.relatedTarget) document.body.classList.remove('dragging');
  });
  addEventListener('drop', (event) => {
    event.preventDefault();
    document.body.classList.remove('dragging');
    translateAll([...(event.dataTransfer?.files ?? [])]);
  });
}

/** @param {File} file @param {string[]} kinds @param {LanguagePair} pair */
async function translateFile(file, kinds, { source, target }) {
  const job = showJob(file.name);
  try {
    if (!kinds.some((kind) => file.name.toLowerCase().endsWith(kind))) {
      throw new RequestError(`Unsupported file type; supported: ${kinds.join(' ')}`);
    }
    const form = new FormData();
    form.append('file', file);
    form.append('source', source);
    form.append('target', target);
    form.append('glossary', JSON.stringify(glossary()));
    const headers = { Accept: 'text/event-stream' };
    const response = await send('translate_file', { body: form, headers, signal: job.signal });
    for await (const { name, content } of readEvents(response)) {
      if (name === 'progress') job.showProgress(content.done, content.total);
      else if (name === 'end') job.finish(content.translatedFileUrl, content.notes);
      else throw new RequestError(toSentence(content.error));
    }
  } catch (error) {
    job.fail(job.signal.aborted ? 'Cancelled.' : /** @type {Error} */ (error).message);
  }
}

/** @param {Response} response @returns {AsyncGenerator<{name: string, content: any}>} server-sent events */
async function* readEvents(response) {
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    rest += value ?? '';
    const blocks = rest.split('\n\n');
    rest = blocks.pop() ?? '';
    for (const block of blocks) {
      const [, name, data] = block.match(/^event: (\w+)\ndata: (.*)$/s) ?? [];
      if (name) yield { name, content: JSON.parse(data) };
    }
    if (done) return;
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
