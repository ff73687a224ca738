"use strict";
// Sort the table of numbers: from largest to smallest first, words and heads in their order.
{
  const table = document.querySelector(".numbers");
  const body = table.tBodies[0];
  const titles = [...table.tHead.rows[0].cells];
  const valueOf = (row, column) => row.cells[column].dataset.value ?? row.cells[column].textContent;
  const compare = (a, b) => (Number.isNaN(Number(a)) ? a.localeCompare(b) : Number(a) - Number(b));

  titles.forEach((title, column) => {
    title.querySelector("button")?.addEventListener("click", () => {
      const before = title.getAttribute("aria-sort");
      const first = column < 2 ? "ascending" : "descending";
      const order = before === null ? first : before === "ascending" ? "descending" : "ascending";
      titles.forEach((other) => other.removeAttribute("aria-sort"));
      title.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      body.append(...[...body.rows].sort((a, b) => sign * compare(valueOf(a, column), valueOf(b, column))));
    });
  });
}
