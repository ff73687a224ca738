// Pictures that are drawn, and files that are dropped or chosen.
import { byId } from './dom.js';

/** Draws a picture, no larger than it has to be. @param {HTMLCanvasElement} canvas @param {Blob} blob @param {number} side */
export async function draw(canvas, blob, side) {
  const image = await createImageBitmap(blob);
  const scale = Math.min(1, side / Math.max(image.width, image.height));
  canvas.width = Math.max(1, Math.round(image.width * scale));
  canvas.height = Math.max(1, Math.round(image.height * scale));
  canvas.getContext('2d')?.drawImage(image, 0, 0, canvas.width, canvas.height);
  image.close();
}

/** @param {HTMLElement} box files can be dropped while it is shown @param {(files: File[]) => void} take */
export function listenForFiles(box, take) {
  const input = byId('file', HTMLInputElement);
  input.addEventListener('change', () => {
    const files = [...(input.files ?? [])];
    input.value = '';
    take(files);
  });
  const takesFiles = (/** @type {DragEvent} */ event) => !box.hidden && event.dataTransfer?.types.includes('Files');
  addEventListener('dragover', (event) => {
    if (!takesFiles(event)) return;
    event.preventDefault();
    document.body.classList.add('dragging');
  });
  addEventListener('dragleave', (event) => {
    if (!event.relatedTarget) document.body.classList.remove('dragging');
  });
  addEventListener('drop', (event) => {
    document.body.classList.remove('dragging');
    if (!takesFiles(event)) return;
    event.preventDefault();
    take([...(event.dataTransfer?.files ?? [])]);
  });
}
