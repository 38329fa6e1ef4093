// The table of findings: search, roles, sorting.
(() => {
  const { byId, make } = report;
  const table = byId("finding-table");
  if (!table) return;
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row, order) => ({
    row,
    order,
    role: row.dataset.role,
    at: row.dataset.at === "" ? Infinity : Number(row.dataset.at),
    text: row.cells[2].textContent.toLowerCase(),
    title: row.querySelector("strong").textContent.toLowerCase(),
    number: Number(row.cells[3].textContent.replaceAll(",", "")),
  }));
  const find = byId("find");
  const roles = [...document.querySelectorAll("input.role")];
  const importance = roles.map((box) => box.value);

  const filter = () => {
    const wanted = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = new Set(roles.filter((box) => box.checked).map((box) => box.value));
    let count = 0;
    rows.forEach((item) => {
      const ok = shown.has(item.role) && wanted.every((word) => item.text.includes(word));
      item.row.hidden = !ok;
      count += ok;
    });
    byId("shown").textContent = `${count} of ${rows.length} findings`;
  };
  find.addEventListener("input", filter);
  roles.forEach((box) => box.addEventListener("change", filter));

  const order = {
    time: (a, b) => (a.at === b.at ? 0 : a.at - b.at),
    role: (a, b) => importance.indexOf(a.role) - importance.indexOf(b.role),
    text: (a, b) => (a.title < b.title ? -1 : a.title > b.title ? 1 : 0),
    number: (a, b) => a.number - b.number,
  };
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head) => {
    const button = make("button", head.textContent);
    button.type = "button";
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "descending" : "ascending");
      const sign = up ? -1 : 1;
      rows.sort((a, b) => sign * order[head.dataset.sort](a, b) || a.order - b.order);
      body.append(...rows.map((item) => item.row));
    });
  });
  filter();
})();
