"use strict";
// Tables sort by a click on a column's head, and a search thins out the long ones.
(() => {
  const { make } = report;
  document.querySelectorAll("table.sortable").forEach((table) => {
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row, order) => ({ row, order, text: row.textContent.toLowerCase() }));
    const heads = [...table.tHead.rows[0].cells];
    const value = (row, at) => {
      const cell = row.cells[at];
      return cell.dataset.value === undefined ? cell.textContent.trim().toLowerCase() : Number(cell.dataset.value);
    };
    heads.forEach((head, at) => {
      if (head.classList.contains("fixed")) return;
      const button = make("button", head.textContent);
      button.type = "button";
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const before = head.getAttribute("aria-sort");
        const falling = before ? before === "ascending" : head.classList.contains("number");
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", falling ? "descending" : "ascending");
        const sign = falling ? -1 : 1;
        const keyed = rows.map((item) => ({ ...item, key: value(item.row, at) }));
        keyed.sort((a, b) => (a.key < b.key ? -sign : a.key > b.key ? sign : a.order - b.order));
        body.append(...keyed.map((item) => item.row));
      });
    });
    const find = document.querySelector(`input[data-table="${table.id}"]`);
    if (!find) return;
    const shown = document.querySelector(`[data-shown="${table.id}"]`);
    const filter = () => {
      const wanted = find.value.toLowerCase().split(/\s+/).filter(Boolean);
      let count = 0;
      rows.forEach((item) => {
        item.row.hidden = !wanted.every((word) => item.text.includes(word));
        count += !item.row.hidden;
      });
      shown.textContent = `${count} of ${rows.length}`;
    };
    find.addEventListener("input", filter);
    filter();
  });
})();
document.documentElement.dataset.ready = "yes";
