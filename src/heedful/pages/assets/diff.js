const MAX_CELLS = 4e6; // of the table; in longer lists, everything between the common ends counts as different

/**
 * Compares two lists by their longest common subsequence.
 * @param {string[]} left
 * @param {string[]} right
 * @returns {[boolean[], boolean[]]} for each entry of each list, whether the other list does not have it there
 */
export function findDifferences(left, right) {
  const differs = /** @type {[boolean[], boolean[]]} */ ([left.map(() => true), right.map(() => true)]);
  let start = 0;
  let [leftEnd, rightEnd] = [left.length, right.length];
  while (start < leftEnd && start < rightEnd && left[start] === right[start]) start += 1;
  while (leftEnd > start && rightEnd > start && left[leftEnd - 1] === right[rightEnd - 1]) {
    leftEnd -= 1;
    rightEnd -= 1;
  }
  differs[0].fill(false, 0, start).fill(false, leftEnd);
  differs[1].fill(false, 0, start).fill(false, rightEnd);
  const [rows, columns] = [leftEnd - start, rightEnd - start];
  if (rows * columns > MAX_CELLS) return differs;
  const lengths = commonLengths(left.slice(start, leftEnd), right.slice(start, rightEnd));
  for (let i = 0, j = 0; i < rows && j < columns;) {
    if (left[start + i] === right[start + j]) {
      differs[0][start + i] = differs[1][start + j] = false;
      i += 1;
      j += 1;
    } else if (lengths[i + 1][j] >= lengths[i][j + 1]) i += 1;
    else j += 1;
  }
  return differs;
}

/** The length of the longest common subsequence of every two suffixes. @param {string[]} a @param {string[]} b */
function commonLengths(a, b) {
  const table = Array.from({ length: a.length + 1 }, () => new Uint32Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      table[i][j] = a[i] === b[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
    }
  }
  return table;
}
