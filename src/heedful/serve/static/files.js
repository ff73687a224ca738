// @ts-check
import { announce, byId, make } from './heads.js';
import { Problem, send, tidy } from './api.js';
import { glossary } from './glossary.js';

/** @typedef {{source: string, target: string}} Pair */

/**
 * @param {string[]} kinds endings such as .docx
 * @param {() => Pair} pair
 */
export function listenToFiles(kinds, pair) {
  byId('files').hidden = !kinds.length;
  if (!kinds.length) return;
  byId('file').accept = kinds.join(',');
  byId('file-kinds').textContent = kinds.join(' ');
  const take = (/** @type {Iterable<File>} */ files) => {
    for (const file of files) translateFile(file, kinds, pair());
  };
  byId('file').addEventListener('change', () => {
    take([...byId('file').files]);
    byId('file').value = '';
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
    take([...(event.dataTransfer?.files ?? [])]);
  });
}

/** @param {File} file @param {string[]} kinds @param {Pair} pair */
async function translateFile(file, kinds, { source, target }) {
  const job = showJob(file.name);
  try {
    if (!kinds.some((kind) => file.name.toLowerCase().endsWith(kind))) {
      throw new Problem(`This is none of the kinds that can be translated: ${kinds.join(' ')}`);
    }
    const form = new FormData();
    form.append('file', file);
    form.append('source', source);
    form.append('target', target);
    form.append('glossary', JSON.stringify(glossary()));
    const answer = await send('translate_file', { body: form, headers: { Accept: 'text/event-stream' }, signal: job.signal });
    for await (const { name, content } of events(answer)) {
      if (name === 'progress') job.progress(content.done, content.total);
      else if (name === 'end') job.done(content.translatedFileUrl, content.notes);
      else throw new Problem(tidy(content.error));
    }
  } catch (error) {
    job.failed(job.signal.aborted ? 'Cancelled.' : /** @type {Error} */ (error).message);
  }
}

/** @param {Response} answer @returns {AsyncGenerator<{name: string, content: any}>} server-sent events */
async function* events(answer) {
  const reader = /** @type {ReadableStream<Uint8Array>} */ (answer.body).pipeThrough(new TextDecoderStream()).getReader();
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

/** A line for a file: how far it is, and in the end where it is. @param {string} name */
function showJob(name) {
  const control = new AbortController();
  const bar = make('progress', { 'aria-label': `${name}: progress` });
  const says = make('span', { class: 'muted' }, 'Sending…');
  const cancel = make('button', { type: 'button', class: 'quiet' }, 'Cancel');
  const line = make('li', {}, make('b', { dir: 'auto' }, name), bar, says, cancel);
  cancel.onclick = () => (bar.isConnected ? control.abort() : line.remove());
  byId('jobs').prepend(line);
  const end = () => {
    bar.remove();
    cancel.textContent = 'Remove';
  };
  return {
    signal: control.signal,
    /** @param {number} done @param {number} total */
    progress(done, total) {
      bar.max = Math.max(1, total);
      bar.value = done;
      says.textContent = `${done} of ${total} sentences`;
    },
    /** @param {string} url @param {string[]} notes */
    done(url, notes) {
      end();
      const translated = decodeURIComponent(new URL(url).pathname.split('/').pop() ?? name);
      says.replaceWith(make('a', { href: new URL(url).pathname, download: translated, class: 'download' }, `Download ${translated}`));
      if (notes.length) line.append(make('ul', { class: 'notes muted' }, ...notes.map((note) => make('li', {}, tidy(note)))));
      announce(`${name} is translated`);
    },
    /** @param {string} sentence */
    failed(sentence) {
      end();
      says.className = 'problem';
      says.textContent = sentence;
      announce(`${name}: ${sentence}`);
    },
  };
}
