"use strict";
// Sorting: by the number that a cell begins with in a column of numbers, else by text; what has none stays at the end.
function keyOf(row, column, numeric) {
  const text = row.children[column].textContent.trim();
  const number = numeric ? Number.parseFloat(text.replace(/,/g, "")) : NaN;
  return Number.isNaN(number) ? text.toLowerCase() : number;
}
function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a === "number") return -1;
  if (typeof b === "number") return 1;
  return a.localeCompare(b);
}
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const original = [...body.rows];
  table.addEventListener("click", (event) => {
    const button = event.target.closest("button.sort");
    if (!button) return;
    const head = button.closest("th");
    const column = [...head.parentElement.children].indexOf(head);
    const rows = original.filter((row) => !row.classList.contains("group"));
    const numeric = head.classList.contains("number");
    const turns = numeric ? ["descending", "ascending", "none"] : ["ascending", "descending", "none"];
    const now = head.getAttribute("aria-sort");
    const next = now && now !== "none" ? turns[turns.indexOf(now) + 1] : turns[0];
    for (const other of table.tHead.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
    table.classList.toggle("sorted", next !== "none");
    if (next === "none") {
      body.append(...original);
      return;
    }
    head.setAttribute("aria-sort", next);
    const sign = next === "ascending" ? 1 : -1;
    const keyed = rows.map((row) => [keyOf(row, column, numeric), row]);
    keyed.sort(([a], [b]) => (numeric && typeof a !== typeof b ? compare(a, b) : sign * compare(a, b)));
    body.append(...original.filter((row) => row.classList.contains("group")), ...keyed.map(([, row]) => row));
  });
}
// Filters of the ledger: by table, by verdict and by any text of a row.
for (const form of document.querySelectorAll("form.filters")) {
  const rows = [...document.getElementById(form.dataset.for).tBodies[0].rows];
  const apply = () => {
    const { table, verdict, text } = Object.fromEntries(new FormData(form));
    let shown = 0;
    for (const row of rows) {
      const fits =
        (!table || row.dataset.table === table) &&
        (!verdict || row.dataset.verdict === verdict) &&
        row.textContent.toLowerCase().includes(text.toLowerCase());
      row.hidden = !fits;
      shown += fits;
    }
    form.querySelector("output").textContent = `${shown} of ${rows.length} numbers`;
  };
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
}
// Figures: a click or Enter shows one in full size, to be scrolled, and again as wide as the page.
for (const picture of document.querySelectorAll(".picture")) {
  picture.addEventListener("click", () => picture.classList.toggle("large"));
  picture.addEventListener("keydown", (event) => {
    if (event.key === "Enter") picture.classList.toggle("large");
  });
}
