// The timeline: a line per rank. Names are HTML beside a canvas that only draws the rows in view, so
// ten thousand ranks cost no more than fifty.
(() => {
  const { data, byId, make, place, redraws } = report;
  const lanes = data.lanes;
  if (!lanes || typeof echarts === "undefined") return;
  const AXIS = 26;
  const TOP = 20;
  const ROWS = 40;
  const holder = byId("lanes");
  const state = (lane) => lanes.states[lanes.state[lane]];
  const blamed = (name) => name === "culprit" || name === "missing";
  const count = lanes.label.length;
  const open = new Set();
  let rows = [];

  const laneRow = (lane, inside) => ({
    lane,
    key: `lane ${lane}`,
    inside,
    text: typeof lanes.label[lane] === "number" ? `rank ${lanes.label[lane]}` : lanes.label[lane],
    state: state(lane),
  });
  const build = () => {
    rows = [];
    const grouped = (begin, end, inside) => {
      const several = new Set(lanes.host.slice(begin, end)).size > 1;
      let host = -1;
      for (let lane = begin; lane < end; lane += 1) {
        const ranked = typeof lanes.label[lane] === "number";
        if (several && ranked && lanes.host[lane] !== host) {
          host = lanes.host[lane];
          rows.push({ key: `host ${begin} ${host}`, heading: lanes.hosts[host] || "host not known" });
        }
        rows.push(laneRow(lane, inside));
      }
    };
    if (!lanes.classes.length) { grouped(0, count, false); return; }
    lanes.classes.forEach((kind, index) => {
      rows.push({
        key: `class ${index}`, kind, index, lane: kind.begin,
        text: kind.label, state: lanes.states[kind.state],
      });
      if (open.has(index)) grouped(kind.begin, kind.end, true);
    });
    const last = lanes.classes[lanes.classes.length - 1].end;
    for (let lane = last; lane < count; lane += 1) rows.push(laneRow(lane, false));
  };
  build();

  const height = rows.length > 40 ? 18 : rows.length > 16 ? 22 : 28;
  const scroller = make("div", undefined, "scroller");
  const spacer = make("div", undefined, "spacer");
  const canvas = make("div", undefined, "canvas");
  const names = make("div", undefined, "names");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "Timeline of the ranks; the table below says the same in words.");
  spacer.append(names, canvas);
  scroller.append(spacer);
  holder.append(scroller);

  const everything = lanes.span.reduce(
    (found, [first, last]) => (first === null ? found : [Math.min(found[0], first), Math.max(found[1], last)]),
    [lanes.onset === null ? Infinity : lanes.onset, -Infinity],
  );
  if (everything[0] >= everything[1]) everything[1] = everything[0] + 1000;
  let view = lanes.view[1] > lanes.view[0] ? [...lanes.view] : [...everything];
  let chart;
  let first = 0;

  const inView = () => rows.slice(first, first + ROWS);
  const layout = () => {
    const shown = Math.min(rows.length, ROWS);
    const tall = rows.length > ROWS;
    holder.classList.toggle("tall", tall);
    scroller.style.height = `${TOP + shown * height + AXIS}px`;
    scroller.tabIndex = tall ? 0 : -1;
    if (!tall) scroller.scrollTop = 0;
    spacer.style.height = `${TOP + rows.length * height + AXIS}px`;
    canvas.style.height = `${TOP + shown * height + AXIS}px`;
  };

  const toggle = (index) => {
    if (open.has(index)) open.delete(index);
    else open.add(index);
    build();
    layout();
    draw();
  };
  const label = (row, index) => {
    let element;
    if (row.kind) {
      element = make("button", row.text);
      element.type = "button";
      element.setAttribute("aria-expanded", String(open.has(row.index)));
      element.addEventListener("click", () => toggle(row.index));
    } else {
      element = make("div", row.heading === undefined ? row.text : row.heading, row.heading === undefined ? "" : "host");
    }
    if (blamed(row.state)) element.classList.add("blame");
    element.dataset.key = row.key;
    element.title = row.kind ? `${element.textContent}, ${row.kind.end - row.kind.begin} in all` : element.textContent;
    element.style.top = `${TOP + (first + index) * height}px`;
    element.style.height = `${height}px`;
    element.style.lineHeight = `${height}px`;
    if (row.inside) element.style.paddingLeft = "1.1em";
    return element;
  };
  const nameRows = () => {
    const active = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.key : null;
    names.replaceChildren(...inView().map(label));
    if (active) {
      const again = [...names.children].find((element) => element.dataset.key === active);
      if (again) again.focus({ preventScroll: true });
    }
  };

  // What the canvas draws: [row, begin, end, kind, lane, extra], then marks.
  const shapes = () => {
    const bars = [];
    const marks = [];
    inView().forEach((row, index) => {
      if (row.lane === undefined) return;
      const lane = row.lane;
      const [begin, end] = lanes.span[lane];
      if (begin !== null) bars.push([index, begin, Math.max(end, begin), "seen", lane, -1]);
      const phases = lanes.bars[lane];
      for (let at = 0; at < phases.length; at += 3) {
        bars.push([index, phases[at], phases[at + 1], "phase", lane, phases[at + 2]]);
      }
      const wait = lanes.wait[lane];
      if (wait) bars.push([index, wait[0], wait[1], "wait", lane, -1]);
      const found = lanes.marks[lane];
      // From the last to the first: what was said first lies on top.
      for (let at = found.length - 5; at >= 0; at -= 5) {
        const [x, finding, variant, source, line] = found.slice(at, at + 5);
        marks.push([index, x, finding, variant, source, line, lane]);
      }
    });
    return { bars, marks };
  };

  const drawBar = (bar, colors) => (params, api) => {
    const [row, begin, end, kind, lane, phase] = bar[params.dataIndex];
    const [x0, y] = api.coord([begin, row]);
    const [x1] = api.coord([end, row]);
    const box = params.coordSys;
    const left = Math.max(x0, box.x);
    const right = Math.min(Math.max(x1, x0 + 3), box.x + box.width);
    if (right <= left) return null;
    const thick = kind === "seen" ? 2 : height * 0.5;
    const rect = { x: left, y: y - thick / 2, width: right - left, height: thick };
    if (kind === "seen") return { type: "rect", shape: rect, style: { fill: colors.shade } };
    if (kind === "wait") {
      const bad = blamed(state(lane));
      const style = bad
        ? { fill: colors.accentWell, stroke: colors.accent, lineWidth: 1.5 }
        : { fill: colors.wait, stroke: colors.shade, lineWidth: 1 };
      const children = [{ type: "rect", shape: rect, style }];
      const text = bad ? { missing: "did not join", culprit: lanes.blame }[state(lane)] : "waits";
      if (rect.width > 70 && height > 18) {
        children.push({
          type: "text", silent: true,
          style: { text, x: left + 6, y, verticalAlign: "middle", fill: bad ? colors.accent : colors.soft, font: `11px ${colors.sans}` },
        });
      }
      return { type: "group", children };
    }
    return { type: "rect", shape: rect, style: { fill: report.color(`phase-${phase}`) } };
  };

  const SYMBOL = {
    cause: (x, y, r) => ({ type: "polygon", shape: { points: [[x, y - r], [x + r, y], [x, y + r], [x - r, y]] } }),
    effect: (x, y, r) => ({ type: "circle", shape: { cx: x, cy: y, r: r * 0.8 } }),
    aftermath: (x, y, r) => ({ type: "rect", shape: { x: x - 1, y: y - r, width: 2, height: 2 * r } }),
  };
  const drawMark = (mark, colors) => (params, api) => {
    const [row, at, finding] = mark[params.dataIndex];
    const [x, y] = api.coord([at, row]);
    const box = params.coordSys;
    if (x < box.x - 1 || x > box.x + box.width + 1) return null;
    const role = (data.findings[finding] || {}).role;
    const shape = (SYMBOL[role] || SYMBOL.aftermath)(x, y, Math.min(6, height * 0.26));
    const fill = role === "cause" ? colors.accent : role === "effect" ? colors.ink : colors.soft;
    return { ...shape, z2: role === "cause" ? 3 : role === "effect" ? 2 : 1, style: { fill, stroke: colors.paper, lineWidth: role === "aftermath" ? 0 : 1.5 } };
  };

  const lines = (colors) => {
    const found = [];
    const span = view[1] - view[0];
    const { onset, message } = lanes;
    const far = onset !== null && message !== null && (message - onset) / span > 0.16;
    const line = (at, name, shade, align) => ({
      xAxis: at,
      lineStyle: { color: shade, width: 1.5, type: "solid" },
      label: { formatter: name, color: shade, position: "start", align, distance: [4, 5], fontSize: 11, fontFamily: colors.sans },
    });
    if (onset !== null) {
      const same = message !== null && !far;
      found.push(line(onset, same ? "onset, then the first message" : "onset", colors.accent, onset > view[0] + span * 0.7 ? "right" : "left"));
      if (same) found.push({ xAxis: message, lineStyle: { color: colors.soft, width: 1, type: "dashed" }, label: { show: false } });
    }
    if (far) found.push({ ...line(message, "first message", colors.soft, message > view[0] + span * 0.7 ? "right" : "left"), lineStyle: { color: colors.soft, width: 1, type: "dashed" } });
    return found.filter((item) => item.xAxis >= view[0] && item.xAxis <= view[1]);
  };

  let current = { bars: [], marks: [] };
  const draw = () => {
    nameRows();
    if (!chart) return;
    current = shapes();
    const colors = { ...report.fonts(), accentWell: report.color("accent-well") };
    const shown = Math.min(rows.length, ROWS);
    const width = canvas.clientWidth;
    const marks = report.ticks(view[0], view[1], width / 110);
    chart.setOption({
      animation: false,
      grid: { left: 0, right: 10, top: TOP, bottom: AXIS },
      xAxis: {
        type: "value", min: view[0], max: view[1],
        axisLine: { onZero: false, lineStyle: { color: colors.rule } },
        axisTick: { customValues: marks, lineStyle: { color: colors.rule } },
        axisLabel: {
          customValues: marks, color: colors.soft, fontFamily: colors.sans, fontSize: 11, hideOverlap: true,
          formatter: (at) => place(at, view[1] - view[0]),
        },
        splitLine: { show: false },
      },
      yAxis: { type: "value", min: -0.5, max: shown - 0.5, inverse: true, show: false },
      series: [
        {
          id: "bars", type: "custom", clip: true, renderItem: drawBar(current.bars, colors),
          data: current.bars.map(([row, begin, end]) => [begin, row, end]), encode: { x: [0, 2], y: 1 },
          markLine: { symbol: "none", silent: true, animation: false, data: lines(colors) },
        },
        {
          id: "marks", type: "custom", clip: true, z: 5, renderItem: drawMark(current.marks, colors),
          data: current.marks.map(([row, at]) => [at, row]), encode: { x: 0, y: 1 },
        },
      ],
    }, { replaceMerge: ["series"] });
  };

  const describe = (event) => {
    if (event.seriesId === "marks") {
      const [, at, finding, variant, source, line, lane] = current.marks[event.dataIndex];
      const found = data.findings[finding];
      const texts = found.texts;
      const near = 4 * (view[1] - view[0]) / Math.max(1, canvas.clientWidth);
      const row = current.marks[event.dataIndex][0];
      const more = current.marks.filter((mark) => mark[0] === row && Math.abs(mark[1] - at) <= near).length - 1;
      return {
        id: found.id,
        lines: [found.title, ...(more ? [`and ${more} more here: zoom in`] : []), `${laneRow(lane).text} · ${place(at)} · ${lanes.sources[source]}:${line}`],
        log: variant >= 0 ? texts[variant] : texts[0],
      };
    }
    const [, begin, end, kind, lane, phase] = current.bars[event.dataIndex];
    const name = state(lane);
    const what = kind === "phase" ? lanes.phases[phase] : kind === "wait" ? data.stateNames[name] : "its log";
    return {
      lines: [laneRow(lane).text, `${what}: ${place(begin)} – ${place(end)}`]
        .concat(lanes.step[lane] === null ? [] : [`last step ${lanes.step[lane].toLocaleString("en")}`])
        .concat(lanes.hosts[lanes.host[lane]] ? [lanes.hosts[lanes.host[lane]]] : []),
    };
  };

  const limit = (from, to) => {
    const span = Math.max(20, Math.min(to - from, (everything[1] - everything[0]) * 1.2));
    const low = everything[0] - (everything[1] - everything[0]) * 0.1;
    const high = everything[1] + (everything[1] - everything[0]) * 0.1;
    const start = Math.min(Math.max(from, low), high - span);
    view = [start, start + span];
    holder.dataset.view = view.map(Math.round).join(" ");
    draw();
  };
  const zoom = (factor, middle = (view[0] + view[1]) / 2) =>
    limit(middle - (middle - view[0]) * factor, middle + (view[1] - middle) * factor);

  const start = () => {
    layout();
    chart = report.chart(canvas);
    holder.dataset.view = view.map(Math.round).join(" ");
    draw();
    chart.on("mousemove", (event) => {
      if (!event.event || event.seriesId === undefined || dragging) return;
      const { lines: text, log } = describe(event);
      report.showTip(event.event.event.clientX, event.event.event.clientY, text, log);
    });
    chart.on("mouseout", report.hideTip);
    chart.on("globalout", report.hideTip);
    chart.on("click", (event) => {
      const { id } = event.seriesId ? describe(event) : {};
      if (id && !moved) report.goTo(id);
    });
    report.onResize(canvas, () => { chart.resize(); draw(); });
  };

  let dragging = null;
  let moved = false;
  canvas.addEventListener("pointerdown", (event) => {
    dragging = { x: event.clientX, view: [...view] };
    moved = false;
  });
  window.addEventListener("pointermove", (event) => {
    if (!dragging) return;
    const shift = event.clientX - dragging.x;
    if (Math.abs(shift) < 4 && !moved) return;
    moved = true;
    report.hideTip();
    const by = (shift / canvas.clientWidth) * (dragging.view[1] - dragging.view[0]);
    limit(dragging.view[0] - by, dragging.view[1] - by);
  });
  window.addEventListener("pointerup", () => { dragging = null; });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return; // the page scrolls
    event.preventDefault();
    const box = canvas.getBoundingClientRect();
    const middle = view[0] + ((event.clientX - box.left) / box.width) * (view[1] - view[0]);
    zoom(event.deltaY > 0 ? 1.25 : 0.8, middle);
  }, { passive: false });
  scroller.addEventListener("scroll", () => {
    const now = Math.min(Math.max(0, Math.floor(scroller.scrollTop / height)), Math.max(0, rows.length - ROWS));
    if (now !== first) { first = now; draw(); }
  });
  byId("zoom-in").addEventListener("click", () => zoom(0.5));
  byId("zoom-out").addEventListener("click", () => zoom(2));
  byId("zoom-all").addEventListener("click", () => limit(...everything));
  byId("zoom-onset").addEventListener("click", () => {
    const until = lanes.message === null ? lanes.onset : lanes.message;
    const margin = Math.max(2000, (until - lanes.onset) * 0.15);
    limit(lanes.onset - margin, until + margin);
  });

  const legend = byId("lanes-legend");
  const key = (text, shade, edge, glyph) => {
    const item = make("span", text);
    item.style.setProperty("--key", shade || "transparent");
    if (edge) item.style.setProperty("--edge", `1px solid ${edge}`);
    if (glyph) item.style.setProperty("--glyph", `"${glyph}"`);
    legend.append(item);
  };
  const used = new Set();
  lanes.bars.forEach((bars) => { for (let at = 2; at < bars.length; at += 3) used.add(bars[at]); });
  [...used].sort().forEach((phase) => key(lanes.phases[phase], `var(--phase-${phase})`));
  if (lanes.wait.some((wait, lane) => wait && !blamed(state(lane)))) key("waits", "var(--wait)", "var(--shade)");
  if (lanes.wait.some((wait, lane) => wait && blamed(state(lane)))) key(lanes.blame, "var(--accent-well)", "var(--accent)");
  const roles = new Set();
  lanes.marks.forEach((marks) => { for (let at = 1; at < marks.length; at += 5) roles.add(data.findings[marks[at]].role); });
  if (roles.has("cause")) key("cause", "", "", "◆");
  if (roles.has("effect")) key("effect", "", "", "●");
  if (roles.has("aftermath")) key("aftermath", "", "", "❙");
  redraws.push(draw);
  start();
})();
