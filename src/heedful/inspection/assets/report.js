// Sorts the table of numbers: largest first, but names in alphabetical order.
const NAME_COLUMNS = 2;

/** @param {HTMLTableRowElement} row @param {number} column */
function valueOf(row, column) {
  const cell = row.cells[column];
  return cell.dataset.value ?? cell.textContent ?? '';
}

/** @param {string} a @param {string} b */
function compare(a, b) {
  return Number.isNaN(Number(a)) ? a.localeCompare(b) : Number(a) - Number(b);
}

/** @param {HTMLTableElement} table */
function makeSortable(table) {
  const body = table.tBodies[0];
  const titles = [...(table.tHead?.rows[0].cells ?? [])];
  titles.forEach((title, column) => {
    title.querySelector('button')?.addEventListener('click', () => {
      const before = title.getAttribute('aria-sort');
      const first = column < NAME_COLUMNS ? 'ascending' : 'descending';
      const order = before === null ? first : before === 'ascending' ? 'descending' : 'ascending';
      titles.forEach((other) => other.removeAttribute('aria-sort'));
      title.setAttribute('aria-sort', order);
      const sign = order === 'ascending' ? 1 : -1;
      body.append(...[...body.rows].sort((a, b) => sign * compare(valueOf(a, column), valueOf(b, column))));
    });
  });
}

for (const table of document.querySelectorAll('table.numbers')) {
  if (table instanceof HTMLTableElement) makeSortable(table);
}
