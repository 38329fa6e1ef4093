"use strict";
// Shared by the scripts after this one. Text of logs reaches the page by textContent only.
const report = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const redraws = [];
  const wide = window.matchMedia("(prefers-color-scheme: dark)");

  const byId = (id) => document.getElementById(id);
  const make = (tag, text, kind) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (kind) element.className = kind;
    return element;
  };
  const color = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  const dark = () => (root.dataset.theme || (wide.matches ? "dark" : "light")) === "dark";
  const redraw = () => redraws.forEach((draw) => draw());

  // Whatever needs a script is hidden until there is one.
  document.querySelectorAll(".script").forEach((element) => { element.hidden = false; });

  const theme = byId("theme");
  const label = () => { theme.textContent = dark() ? "Light" : "Dark"; };
  theme.setAttribute("aria-label", "Switch between light and dark");
  theme.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    label();
    redraw();
  });
  wide.addEventListener("change", () => { label(); redraw(); });
  label();

  // Starts a picture when it comes near the screen, or is to be printed: a large one takes time.
  const waiting = new Map();
  const begin = (element) => {
    const start = waiting.get(element);
    if (!start) return;
    waiting.delete(element);
    near.unobserve(element);
    start();
  };
  const near = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => begin(entry.target)),
    { rootMargin: "500px" },
  );
  const whenNear = (element, start) => {
    waiting.set(element, start);
    near.observe(element);
  };

  const onResize = (element, act) => {
    let size = `${element.clientWidth} ${element.clientHeight}`;
    new ResizeObserver(() => {
      const now = `${element.clientWidth} ${element.clientHeight}`;
      if (now === size) return;
      size = now;
      act();
    }).observe(element);
  };

  let before;
  let closed = [];
  window.addEventListener("beforeprint", () => {
    [...waiting.keys()].forEach(begin);
    before = root.dataset.theme;
    root.dataset.theme = "light";
    closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((element) => { element.open = true; });
    redraw();
  });
  window.addEventListener("afterprint", () => {
    if (before) root.dataset.theme = before;
    else delete root.dataset.theme;
    closed.forEach((element) => { element.open = false; });
    redraw();
  });

  document.querySelectorAll(".copy").forEach((button) => {
    const command = button.previousElementSibling;
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(command.textContent);
        button.textContent = "Copied";
      } catch {
        // A page from a file may not be allowed to: select it, so that Ctrl-C does.
        getSelection().selectAllChildren(command);
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  });

  // A box beside the pointer: a heading, lines under it, and a line of the log.
  const tip = byId("tip");
  const showTip = (x, y, lines, log) => {
    tip.replaceChildren();
    lines.forEach((text, index) => tip.append(make(index ? "div" : "strong", text)));
    if (log) tip.append(make("span", log, "line"));
    tip.hidden = false;
    const width = tip.offsetWidth;
    const left = Math.min(x + 14, document.documentElement.clientWidth - width - 8);
    const below = y + 16 + tip.offsetHeight < window.innerHeight;
    tip.style.left = `${Math.max(8, left) + window.scrollX}px`;
    tip.style.top = `${(below ? y + 16 : Math.max(8, y - tip.offsetHeight - 12)) + window.scrollY}px`;
  };
  const hideTip = () => { tip.hidden = true; };
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });

  const pad = (number, digits = 2) => String(number).padStart(digits, "0");
  const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
  // Job time is handled as if it were UTC, so that the reader's own zone plays no part.
  const clock = (at, span = 0) => {
    const date = new Date(at);
    const time = `${pad(date.getUTCHours())}:${pad(date.getUTCMinutes())}:${pad(date.getUTCSeconds())}`;
    if (span > 0 && span < 20_000) return `${time}.${pad(date.getUTCMilliseconds(), 3)}`;
    if (span > 2 * 86_400_000) return `${date.getUTCDate()} ${MONTHS[date.getUTCMonth()]} ${time.slice(0, 5)}`;
    return time;
  };
  const lanes = data.lanes;
  const place = (at, span) => (lanes && lanes.clocked ? clock(lanes.begin + at, span) : `line ${Math.round(at)}`);

  // Ticks at round times (or line numbers) between two places.
  const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5,
    18e5, 36e5, 72e5, 108e5, 216e5, 432e5, 864e5, 1728e5, 4320e5, 8640e5];
  const interval = (from, to, count) => {
    const wanted = (to - from) / Math.max(1, count);
    if (!lanes || !lanes.clocked) {
      const power = 10 ** Math.floor(Math.log10(Math.max(1, wanted)));
      return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= wanted) || power * 10;
    }
    return STEPS.find((step) => step >= wanted) || 8640e5 * Math.ceil(wanted / 8640e5);
  };
  const ticks = (from, to, count) => {
    const step = interval(from, to, count);
    const shift = lanes && lanes.clocked ? lanes.begin % step : 0;
    const found = [];
    for (let at = Math.ceil((from + shift) / step) * step - shift; at <= to; at += step) found.push(at);
    const edge = (to - from) * 0.02; // a label there would be cut
    return found.filter((at) => at >= from + edge && at <= to - edge);
  };

  const fonts = () => ({
    sans: getComputedStyle(document.body).fontFamily,
    ink: color("ink"), soft: color("soft"), rule: color("rule"), paper: color("paper"),
    accent: color("accent"), shade: color("shade"), wait: color("wait"), well: color("well"),
  });
  // At least two dots a pixel, so that print is sharp too.
  const chart = (element) => echarts.init(element, null, {
    renderer: "canvas", devicePixelRatio: Math.max(2, window.devicePixelRatio || 1),
  });
  const goTo = (id) => {
    const row = byId(id);
    if (!row) return;
    row.hidden = false;
    document.querySelectorAll(".found").forEach((other) => other.classList.remove("found"));
    row.classList.add("found");
    row.tabIndex = -1;
    row.scrollIntoView({ block: "start" });
    row.focus({ preventScroll: true });
  };
  return { data, byId, make, color, dark, redraws, showTip, hideTip, whenNear, onResize, place, ticks, fonts, chart, goTo };
})();
