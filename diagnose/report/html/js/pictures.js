// Progress, the wait-for graph and the grid of ranks.
(() => {
  const { data, byId, make, place, redraws } = report;
  if (typeof echarts === "undefined") return;
  const watch = (element, chart, draw) => {
    draw();
    redraws.push(draw);
    report.onResize(element, () => { chart.resize(); draw(); });
  };
  const tips = (chart, describe) => {
    chart.on("mousemove", (event) => {
      const lines = describe(event);
      if (lines) report.showTip(event.event.event.clientX, event.event.event.clientY, lines);
      else report.hideTip();
    });
    chart.on("mouseout", report.hideTip);
    chart.on("globalout", report.hideTip);
  };
  const fill = (state, colors) => ({
    culprit: colors.accent, missing: colors.accent, waiting: colors.shade, ended: colors.soft,
    idle: report.color("phase-0"), done: report.color("phase-5"), seen: report.color("phase-3"),
    "no dump": colors.wait, "no log": colors.wait,
  }[state] || colors.shade);

  const steps = byId("steps");
  const drawSteps = () => {
    const chart = report.chart(steps);
    const choice = byId("counter");
    const draw = () => {
      const colors = report.fonts();
      const { lines } = data.progress[Number(choice.value)];
      const all = lines.flatMap((line) => line.points.map(([at]) => at));
      let low = Math.min(...all);
      let high = Math.max(...all);
      const onset = data.lanes ? data.lanes.onset : null;
      if (onset !== null && onset > low) high = Math.max(high, onset);
      const span = Math.max(1, high - low);
      [low, high] = [low - span * 0.02, high + span * 0.04];
      const marks = report.ticks(low, high, steps.clientWidth / 110);
      const plain = lines.filter((line) => !line.culprit);
      chart.setOption({
        animation: false,
        grid: { left: 58, right: steps.clientWidth > 600 ? 150 : 16, top: 22, bottom: 28 },
        xAxis: {
          type: "value", min: low, max: high,
          axisLine: { lineStyle: { color: colors.rule } },
          axisTick: { customValues: marks, lineStyle: { color: colors.rule } },
          axisLabel: { customValues: marks, color: colors.soft, fontFamily: colors.sans, fontSize: 11, hideOverlap: true, formatter: (at) => place(at, span) },
          splitLine: { show: false },
        },
        yAxis: {
          type: "value", scale: true, minInterval: 1,
          axisLabel: { color: colors.soft, fontFamily: colors.sans, fontSize: 11, formatter: (step) => step.toLocaleString("en") },
          splitLine: { lineStyle: { color: colors.rule } },
        },
        series: lines.map((line, index) => ({
          id: `line ${index}`, name: line.name, type: "line", data: line.points, showSymbol: line.points.length < 40,
          symbol: "circle", symbolSize: 4, triggerLineEvent: true,
          lineStyle: { width: line.culprit ? 2.5 : 1.5, color: line.culprit ? colors.accent : report.color(`phase-${[3, 2, 5, 1, 4, 6, 0][plain.indexOf(line) % 7]}`) },
          itemStyle: { color: line.culprit ? colors.accent : report.color(`phase-${[3, 2, 5, 1, 4, 6, 0][plain.indexOf(line) % 7]}`) },
          endLabel: {
            show: lines.length <= 12 && steps.clientWidth > 600, formatter: line.name.length > 22 ? `${line.name.slice(0, 21)}…` : line.name,
            color: line.culprit ? colors.accent : colors.soft, fontFamily: colors.sans, fontSize: 11, lineHeight: 15, distance: 6,
          },
          labelLayout: { moveOverlap: "shiftY" },
          z: line.culprit ? 4 : 3,
          markLine: index || onset === null ? undefined : {
            symbol: "none", silent: true, animation: false,
            data: [{ xAxis: onset, lineStyle: { color: colors.accent, width: 1.5, type: "solid" }, label: { formatter: "onset", color: colors.accent, fontFamily: colors.sans, fontSize: 11, position: "end" } }],
          },
        })),
      }, { replaceMerge: ["series"] });
    };
    choice.addEventListener("change", draw);
    tips(chart, (event) => {
      const line = data.progress[Number(choice.value)].lines[event.seriesIndex];
      if (!line) return null;
      const point = line.points[event.dataIndex === undefined ? line.points.length - 1 : event.dataIndex];
      return [line.name, `step ${point[1].toLocaleString("en")} at ${place(point[0])}`];
    });
    watch(steps, chart, draw);
  };
  if (steps && data.progress.length) report.whenNear(steps, drawSteps);

  // Heights are set before anything is drawn, so that links lead where they should.
  const graph = byId("graph");
  const drawGraph = (rowHeight, height) => {
    const { nodes, edges } = data.graph;
    const levels = Math.max(...nodes.map((node) => node.level)) + 1;
    const chart = report.chart(graph);
    const bad = (node) => node.state === "culprit" || node.state === "missing";
    const radius = (node) => (bad(node) ? 9 : 7) + Math.min(5, Math.log2(node.count));
    const draw = () => {
      const colors = report.fonts();
      const width = graph.clientWidth;
      const margin = Math.min(130, width / 5);
      const step = levels > 1 ? Math.min(380, (width - 2 * margin) / (levels - 1)) : 0;
      const at = (node) => [margin + (levels - 1 - node.level) * step, height / 2 + node.row * rowHeight - 10];
      const letters = Math.max(6, Math.floor((levels > 1 ? step : width) / 8));
      const short = (text) => (text.length > letters ? `${text.slice(0, letters - 1)}…` : text);
      const edge = (params) => {
        const [from, to, operation] = edges[params.dataIndex];
        const [x0, y0] = at(nodes[from]);
        const [x1, y1] = at(nodes[to]);
        const length = Math.hypot(x1 - x0, y1 - y0) || 1;
        const [dx, dy] = [(x1 - x0) / length, (y1 - y0) / length];
        const bend = nodes[from].level === nodes[to].level ? 40 : 0;
        const begin = [x0 + dx * (radius(nodes[from]) + 3), y0 + dy * (radius(nodes[from]) + 3)];
        const end = [x1 - dx * (radius(nodes[to]) + 4), y1 - dy * (radius(nodes[to]) + 4)];
        const middle = [(begin[0] + end[0]) / 2 + dy * bend, (begin[1] + end[1]) / 2 - dx * bend];
        const [tx, ty] = bend ? [end[0] - middle[0], end[1] - middle[1]] : [dx, dy];
        const size = Math.hypot(tx, ty) || 1;
        const [ux, uy] = [tx / size, ty / size];
        const style = { stroke: colors.soft, lineWidth: 1.25, fill: "none", opacity: edges.length > 60 ? 0.5 : 1 };
        const children = [
          { type: "bezierCurve", shape: { x1: begin[0], y1: begin[1], x2: end[0], y2: end[1], cpx1: middle[0], cpy1: middle[1] }, style },
          { type: "polygon", shape: { points: [end, [end[0] - ux * 9 - uy * 4, end[1] - uy * 9 + ux * 4], [end[0] - ux * 9 + uy * 4, end[1] - uy * 9 - ux * 4]] }, style: { fill: colors.soft } },
        ];
        if (edges.length <= 4 && step > 260 && Math.abs(y1 - y0) < 4) {
          children.push({ type: "text", silent: true, style: { text: operation, x: middle[0], y: middle[1] - 6, align: "center", verticalAlign: "bottom", fill: colors.soft, font: `11px ${colors.sans}`, width: step - 60, overflow: "truncate", backgroundColor: colors.paper } });
        }
        return { type: "group", children };
      };
      const dot = (params) => {
        const node = nodes[params.dataIndex];
        const [x, y] = at(node);
        const r = radius(node);
        const style = { fill: fill(node.state, colors), stroke: colors.ink, lineWidth: 1 };
        const shape = bad(node)
          ? { type: "polygon", shape: { points: [[x, y - r], [x + r, y], [x, y + r], [x - r, y]] }, style }
          : { type: "circle", shape: { cx: x, cy: y, r }, style };
        return { type: "group", children: [shape, { type: "text", style: { text: short(node.label), x, y: y + r + 5, align: "center", verticalAlign: "top", fill: bad(node) ? colors.accent : colors.ink, font: `${bad(node) ? "bold " : ""}12px ${colors.sans}` } }] };
      };
      chart.setOption({
        animation: false,
        grid: { left: 0, right: 0, top: 0, bottom: 0 },
        xAxis: { type: "value", min: 0, max: 1, show: false },
        yAxis: { type: "value", min: 0, max: 1, show: false },
        series: [
          { id: "edges", type: "custom", data: edges.map(() => [0, 0]), renderItem: edge },
          { id: "nodes", type: "custom", z: 4, data: nodes.map(() => [0, 0]), renderItem: dot },
        ],
      }, { replaceMerge: ["series"] });
    };
    tips(chart, (event) => {
      if (event.seriesId === "edges") {
        const [from, to, operation] = edges[event.dataIndex];
        return [`${nodes[from].label} → ${nodes[to].label}`, operation];
      }
      const node = nodes[event.dataIndex];
      return [node.label, data.stateNames[node.state]];
    });
    watch(graph, chart, draw);
  };
  if (graph && data.graph) {
    const tall = Math.max(...data.graph.nodes.map((node) => Math.abs(node.row))) * 2 + 1;
    const rowHeight = tall > 12 ? 44 : 76;
    const height = tall * rowHeight + 8;
    graph.style.height = `${height}px`;
    report.whenNear(graph, () => drawGraph(rowHeight, height));
  }

  const grid = byId("grid");
  const gridLayout = () => {
    const { columns, rows } = data.grid;
    const left = Math.min(150, 14 + 7 * Math.max(2, ...rows.map((text) => text.length)));
    const side = Math.max(4, Math.min(34, (grid.clientWidth - left - 8) / columns));
    const tall = Math.max(5, Math.min(side, 26));
    grid.style.height = `${22 + Math.round(rows.length * tall) + 4}px`;
    return { left, side, tall };
  };
  const drawGrid = () => {
    const { columns, rows, cells, hosts, across, down } = data.grid;
    const states = Object.keys(data.stateNames);
    const bad = (number) => states[number] === "culprit" || states[number] === "missing";
    const used = [...new Set(cells.map((cell) => cell[3]))].sort((a, b) => a - b);
    const byPlace = new Map(cells.map((cell) => [cell[1] * columns + cell[0], cell]));
    const parts = [...cells.reduce((found, cell) => {
      const key = cell[1] * states.length + cell[3];
      if (!found.has(key)) found.set(key, []);
      found.get(key).push(cell);
      return found;
    }, new Map()).values()];
    let size;
    const chart = report.chart(grid);
    const draw = () => {
      const colors = report.fonts();
      const before = grid.style.height;
      size = gridLayout();
      if (grid.style.height !== before) chart.resize();
      const { left, side, tall } = size;
      const gap = side > 8 ? 2 : 1;
      const marked = side < 10 ? [] : cells.filter((cell) => bad(cell[3]) || (side >= 24 && cells.length <= 256));
      const every = Math.ceil(14 / tall);
      chart.setOption({
        animation: false,
        grid: { left, top: 22, width: side * columns, height: rows.length * tall },
        xAxis: { type: "value", min: 0, max: columns, position: "top", axisLine: { show: false }, axisTick: { show: false }, splitLine: { show: false },
          name: across, nameLocation: "middle", nameGap: 6, nameTextStyle: { color: colors.soft, fontFamily: colors.sans, fontSize: 11 }, axisLabel: { show: false } },
        yAxis: { type: "value", min: 0, max: rows.length, inverse: true, axisLine: { show: false }, axisTick: { show: false }, splitLine: { show: false },
          axisLabel: { show: false } },
        series: [
          {
            id: "rows", type: "custom", clip: false, silent: true,
            data: rows.map((text, index) => [0, index]).filter(([, index]) => index % every === 0),
            renderItem: (params, api) => {
              const index = api.value(1);
              const [x, y] = api.coord([0, index + 0.5]);
              return { type: "text", style: { text: rows[index], x: x - 8, y, align: "right", verticalAlign: "middle", fill: colors.soft, font: `11px ${colors.sans}`, width: left - 10, overflow: "truncate" } };
            },
          },
          {
            // One path per row and state: ten thousand elements, or one huge path, would take seconds.
            id: "cells", type: "custom", silent: true, data: parts.map(() => [0, 0]),
            renderItem: (params, api) => {
              const mine = parts[params.dataIndex];
              const number = mine[0][3];
              const [x0, y0] = api.coord([0, 0]);
              const [w, h] = [side - gap, tall - gap];
              const pathData = mine
                .map(([column, row]) => `M${x0 + column * side} ${y0 + row * tall}h${w}v${h}h${-w}z`).join("");
              return { type: "path", shape: { pathData }, style: { fill: fill(states[number], colors) } };
            },
          },
          {
            id: "numbers", type: "custom", silent: true, z: 4, data: marked.map(([column, row]) => [column, row]),
            renderItem: (params, api) => {
              const [column, row, rank, number] = marked[params.dataIndex];
              const [x, y] = api.coord([column, row]);
              const dark = ["culprit", "missing", "ended", "seen", "idle", "done"].includes(states[number]);
              return { type: "text", style: {
                text: side >= 24 ? String(rank) : "×", x: x + (side - gap) / 2, y: y + (tall - gap) / 2, align: "center", verticalAlign: "middle",
                fill: dark ? colors.paper : colors.ink, font: `${bad(number) ? "bold " : ""}${side >= 24 ? 11 : 9}px ${colors.sans}`,
              } };
            },
          },
        ],
      }, { replaceMerge: ["series"] });
    };
    chart.getZr().on("mousemove", (event) => {
      const { left, side, tall } = size;
      const [column, row] = [Math.floor((event.offsetX - left) / side), Math.floor((event.offsetY - 22) / tall)];
      const cell = column >= 0 && column < columns ? byPlace.get(row * columns + column) : undefined;
      if (!cell) { report.hideTip(); return; }
      const [, , rank, number, host] = cell;
      report.showTip(event.event.clientX, event.event.clientY, [`rank ${rank}`, data.stateNames[states[number]]]
        .concat(host >= 0 ? [hosts[host]] : [])
        .concat(down === "rank" || down === "host" ? [] : [`${down}: ${rows[row]}`]));
    });
    chart.getZr().on("globalout", report.hideTip);
    const legend = byId("grid-legend");
    used.forEach((number) => {
      const item = make("span", data.stateNames[states[number]]);
      const shades = { culprit: "accent", missing: "accent", waiting: "shade", ended: "soft", idle: "phase-0", done: "phase-5", seen: "phase-3" };
      item.style.setProperty("--key", `var(--${shades[states[number]] || "wait"})`);
      legend.append(item);
    });
    watch(grid, chart, draw);
  };
  if (grid && data.grid) {
    gridLayout();
    report.whenNear(grid, drawGrid);
  }
})();
document.documentElement.dataset.ready = "yes";
