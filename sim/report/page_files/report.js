"use strict";
// Makes a report's figures and tables interactive. Without it the page shows pictures and tables.

const MARKERS = {o: "circle", s: "square", "^": "triangle-up", D: "diamond", v: "triangle-down",
  P: "cross", X: "x", _: "line-ew-open"};
// How markers are filled: see Fill of marks.py. Plotly has no halves: a dot or a ring with one.
const FILLS = {full: "", none: "-open", left: "-dot", top: "-open-dot", hollow: "-open"};
// Marks have widths and sizes in typographic points.
const POINT_PX = 4 / 3;
// Colours for white ground, and what stands for them on dark ground.
const ON_DARK = {"#b2182b": "#ff8a80", "#000000": "#ffffff", "#222222": "#ffffff", "#333333": "#d0d0d0",
  "#6b6b6b": "#a3adb8", "#0072b2": "#4ba6e8", "#d55e00": "#ff8c42", "#009e73": "#2fc79a",
  "#dddddd": "#4a525b"};
const LATENCIES_MS = [...Array(11).keys()].flatMap((n) => [1, 2, 5].map((d) => d * 10 ** (n - 3)));
// By default Plotly also offers to send the figure to its makers' servers.
const OPTIONS = {responsive: true, displaylogo: false, plotlyServerURL: "",
  modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]]};
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const isDark = () => getComputedStyle(document.documentElement).colorScheme === "dark";
const shade = (colour) => (isDark() && ON_DARK[colour.toLowerCase()]) || colour;
// Plotly reads texts as HTML.
const plain = (text) => text.replace(/[&<>]/g, (one) => `&#${one.charCodeAt(0)};`);
const number = (value) => value == null ? "–"
  : Number(value.toPrecision(4)).toLocaleString("en", {maximumSignificantDigits: 4});
const latency = (ms) => ms < 1000 ? `${number(ms)} ms` : `${number(ms / 1000)} s`;

function make(tag, content = {}, ...children) {
  const made = Object.assign(document.createElement(tag), content);
  made.append(...children);
  return made;
}

function download(name, rows) {
  const cell = (value) => {
    const text = value == null ? "" : String(value);
    // A leading apostrophe keeps spreadsheets from taking a name for a formula.
    const safe = typeof value === "string" && /^[=+@\t\r]|^-(?![\d.])/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const text = rows.map((row) => `${row.map(cell).join(",")}\n`).join("");
  const link = make("a", {download: name,
    href: URL.createObjectURL(new Blob([text], {type: "text/csv"}))});
  link.click();
  URL.revokeObjectURL(link.href);
  return text;
}

// ---- figures ------------------------------------------------------------------------------------

const named = (axis, value, reach = 0) =>
  (axis.ticks.find(([at]) => Math.abs(at - value) <= reach + 1e-9 * Math.abs(at)) ?? [])[1];
const written = (axis, value, reach) => value == null ? "–"
  : named(axis, value, reach) ?? (axis.is_latency ? latency(value) : number(value));

function plotlyAxis(axis) {
  const wanted = {title: {text: plain(axis.label), font: {size: 12}}, gridcolor: css("--line"),
    linecolor: css("--line"), zeroline: false, automargin: true,
    type: axis.is_log ? "log" : "linear",
    range: axis.is_log ? axis.limits.map(Math.log10) : axis.limits};
  if (axis.ticks.length) {
    wanted.tickvals = axis.ticks.map(([at]) => at);
    wanted.ticktext = axis.ticks.map(([, text]) => plain(text));
    if (axis.is_slanted) wanted.tickangle = -40;
  } else if (axis.is_latency) {
    const shown = Math.log10(axis.limits[1] / axis.limits[0]) > 2.5
      ? LATENCIES_MS.filter((ms) => /^1/.test(ms.toExponential())) : LATENCIES_MS;
    wanted.tickvals = shown;
    wanted.ticktext = shown.map(latency);
  } else {
    wanted.tickformat = axis.is_log ? "~r" : "";
    wanted.separatethousands = true;
    if (axis.is_log) wanted.dtick = axis.limits[1] > 50 * axis.limits[0] ? 1 : "D2";
  }
  return wanted;
}

const dashes = (dash, width) =>
  dash.map((part) => `${Math.max(1, part * width * POINT_PX).toPrecision(3)}px`).join(",") || "solid";
// The values of a band are its heights, which have no intervals.
const valuesOf = (mark) => mark.kind === "band"
  ? mark.high.map((high, place) => high == null ? null : high - mark.low[place]) : mark.y;
const endsOf = (mark) => mark.kind === "band" ? [[], []] : [mark.low, mark.high];
const reachOf = (mark) => mark.kind === "bars" ? 0.5 : 0;

// What the reader sees when pointing at a mark; nothing at one that shows no values.
function hoverOf(mark, panel) {
  const {line, x} = mark;
  const [low, high] = endsOf(mark);
  if (!mark.has_values) return {hoverinfo: "skip"};
  return {
    customdata: valuesOf(mark).map((y, place) => [written(panel.x, x[place], reachOf(mark)),
      written(panel.y, y),
      low[place] != null ? ` (${number(low[place])} to ${number(high[place])})` : ""]),
    hovertemplate: `${line ? `<b>${plain(line)}</b><br>` : ""}${plain(panel.x.label)}: `
      + `%{customdata[0]}<br>${plain(panel.y.label)}: %{customdata[1]}%{customdata[2]}<extra></extra>`,
  };
}

// The outline of a band, along its lower curve and back along the upper one.
function outline({x, low, high, steps}) {
  const path = (y) => x.flatMap((at, place) =>
    steps && place ? [[at, y[place - 1]], [at, y[place]]] : [[at, y[place]]]);
  const points = [...path(low), ...path(high).reverse()];
  return {x: points.map(([at]) => at), y: points.map(([, y]) => y)};
}

const TRACES = {
  line(mark, panel) {
    const {x, y, width, marker, fill, opacity} = mark;
    const colour = shade(mark.colour);
    const isOpen = /open/.test((FILLS[fill] ?? "") + MARKERS[marker]);
    return [{type: "scatter", x, y, name: mark.line, opacity, showlegend: false,
      mode: [width ? "lines" : "", marker ? "markers" : ""].filter(Boolean).join("+") || "none",
      connectgaps: false, ...hoverOf(mark, panel),
      line: {color: colour, width: width * POINT_PX, dash: dashes(mark.dash, width),
        shape: mark.steps ? "hv" : "linear"},
      marker: {symbol: (MARKERS[marker] ?? "circle") + FILLS[fill], size: mark.size * POINT_PX,
        color: colour,
        line: isOpen ? {color: colour, width: 1.6} : {color: css("--ground"), width: 0.6}}}];
  },
  band(mark, panel) {
    const common = {type: "scatter", name: mark.line, showlegend: false};
    const area = {...common, ...outline(mark), mode: "lines", fill: "toself", line: {width: 0},
      fillcolor: rgba(shade(mark.colour), mark.opacity), hoverinfo: "skip"};
    return [area, ...(mark.has_values ? [{...common, x: mark.x, y: mark.high, mode: "lines",
      opacity: 0, line: {width: 1}, ...hoverOf(mark, panel)}] : [])];
  },
  bars(mark, panel) {
    const pattern = {shape: mark.hatch ? "/" : "", fgcolor: css("--ground"), size: 8, solidity: 0.25};
    return [{type: "bar", x: mark.x, y: mark.y, width: mark.width, name: mark.line,
      showlegend: false, ...hoverOf(mark, panel), marker: {color: shade(mark.colour), pattern}}];
  },
  cells(mark, panel) {
    const {values, texts, colours} = mark;
    const [columns, rows] = [panel.x, panel.y].map(({ticks}) => ticks.map(([, text]) => text));
    const share = (value) => {
      if (value == null) return null;
      const scale = colours.is_log ? Math.log10 : (one) => one;
      const [at, low, high] = [value, ...colours.limits].map(scale);
      return (at - low) / (high - low);
    };
    return [{type: "heatmap", x: columns.map((_, place) => place), y: rows.map((_, place) => place),
      z: values.map((row) => row.map(share)), zmin: 0, zmax: 1, xgap: 1, ygap: 1,
      colorscale: mark.is_diverging ? "RdBu" : "Cividis",
      customdata: values.map((row, i) =>
        row.map((value, j) => [plain(columns[j]), plain(rows[i]), number(value)])),
      text: texts, texttemplate: texts.length ? "%{text}" : "",
      hovertemplate: `%{customdata[0]}, %{customdata[1]}<br><b>%{customdata[2]}</b><extra></extra>`,
      hoverongaps: false,
      colorbar: {tickvals: colours.ticks.map(([at]) => share(at)),
        ticktext: colours.ticks.map(([, text]) => text),
        title: {text: plain(colours.label), side: "right"}, thickness: 12, outlinewidth: 0}}];
  },
};

function rgba(colour, opacity) {
  const parts = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return `rgba(${parts.join(",")},${opacity})`;
}

function layoutOf(panel, marks) {
  const at = (axis, value) => axis.is_log ? Math.log10(value) : value;
  const shapes = marks.filter(({kind}) => kind === "guide").map((guide) => ({
    type: "line", layer: "above",
    line: {color: shade(guide.colour), width: 1, dash: dashes(guide.dash, guide.width)},
    ...(guide.axis === "x"
      ? {x0: guide.at, x1: guide.at, yref: "y domain", y0: 0, y1: 1}
      : {y0: guide.at, y1: guide.at, xref: "x domain", x0: 0, x1: 1})}));
  const notes = marks.filter(({kind}) => kind === "note");
  const annotations = notes.map((note) => {
    const [dx, dy] = [note.dx * POINT_PX, note.dy * POINT_PX];
    return {
      text: note.is_bold ? `<b>${plain(note.text)}</b>` : plain(note.text),
      x: note.x_is_share ? note.x : at(panel.x, note.x), xref: note.x_is_share ? "x domain" : "x",
      y: note.y_is_share ? note.y : at(panel.y, note.y), yref: note.y_is_share ? "y domain" : "y",
      ...(note.is_far ? {ax: dx, ay: -dy, arrowwidth: 0.6, arrowhead: 0}
        : {showarrow: false, xshift: dx, yshift: dy}),
      textangle: note.is_upright ? -90 : 0,
      xanchor: dx > 0 ? "left" : dx < 0 ? "right" : "center",
      yanchor: dy > 0 ? "bottom" : dy < 0 ? "top" : "middle",
      font: {size: 11, color: shade(note.colour)}, arrowcolor: shade(note.colour)};
  });
  return {
    margin: {l: 55, r: notes.some((note) => note.x_is_share && note.x === 1) ? 34 : 12, t: 30, b: 45},
    paper_bgcolor: css("--ground"), plot_bgcolor: css("--ground"), hovermode: "closest",
    font: {color: css("--text"), size: 12}, showlegend: false, barmode: "overlay", shapes,
    annotations, xaxis: plotlyAxis(panel.x), yaxis: plotlyAxis(panel.y),
    modebar: {bgcolor: "rgba(0,0,0,0)", color: css("--soft"), activecolor: css("--text")},
  };
}

function dataRows({panels}) {
  const rows = [["panel", "line", "x", "x value", "y", "y value", "low", "high"]];
  for (const {title, x, y, marks} of panels) {
    for (const mark of marks.filter((one) => one.has_values)) {
      valuesOf(mark).forEach((value, place) => {
        const at = mark.x[place];
        if (at == null) return;
        const [low, high] = endsOf(mark).map((ends) => ends[place]);
        rows.push([title, mark.line, x.label, named(x, at, reachOf(mark)) ?? at, y.label, value,
          low, high]);
      });
    }
    for (const {values, colours} of marks.filter(({kind}) => kind === "cells")) {
      values.forEach((row, i) => row.forEach((value, j) => {
        rows.push([title, colours.label, x.label, x.ticks[j][1], y.label, y.ticks[i][1], value, ""]);
      }));
      rows[0] = [...rows[0].slice(0, 6), "value", ""];
    }
  }
  return rows;
}

// An entry of the legend: its colour, dashes and marker, as in matplotlib's legend.
function sample(entry) {
  const colour = shade(entry.colour);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  for (const [name, value] of [["width", 34], ["height", 14], ["aria-hidden", true]]) {
    svg.setAttribute(name, value);
  }
  const add = (tag, values) => {
    const part = document.createElementNS(svg.namespaceURI, tag);
    Object.entries(values).forEach(([name, value]) => part.setAttribute(name, value));
    svg.append(part);
  };
  if (entry.is_area) {
    add("rect", {x: 4, y: 1, width: 26, height: 12, fill: colour});
    if (entry.hatch) {
      add("path", {d: "M6 13L14 1M14 13L22 1M22 13L30 1", stroke: css("--ground"), "stroke-width": 1.5});
    }
    return svg;
  }
  if (entry.is_joined) {
    add("line", {x1: 0, y1: 7, x2: 34, y2: 7, stroke: colour, "stroke-width": 2,
      "stroke-dasharray": entry.dash.map((part) => 2 * part).join(",")});
  }
  if (entry.marker) {
    const shapes = {o: "M17 3a4 4 0 1 0 .01 0Z", s: "M13 3h8v8h-8Z", "^": "M17 2l5 9h-10Z",
      D: "M17 2l5 5-5 5-5-5Z", v: "M17 12l5-9h-10Z", P: "M15 2h4v3h3v4h-3v3h-4v-3h-3v-4h3Z",
      X: "M14 2l3 3 3-3 2 2-3 3 3 3-2 2-3-3-3 3-2-2 3-3-3-3Z"};
    const isOpen = /open/.test(FILLS[entry.fill]);
    add("path", {d: shapes[entry.marker] ?? shapes.o, fill: isOpen ? css("--ground") : colour,
      stroke: colour, "stroke-width": 1.3});
    if (/dot/.test(FILLS[entry.fill])) {
      add("circle", {cx: 17, cy: 7, r: 1.3, fill: isOpen ? colour : css("--ground")});
    }
  }
  return svg;
}

function enliven(node, figure, name) {
  const hidden = new Set();
  const plots = figure.panels.map((panel) => [panel, make("div", {className: "plot"})]);
  const legend = make("div", {className: "legend"});
  const draw = () => {
    for (const [panel, plot] of plots) {
      const marks = panel.marks.filter((mark) => !mark.line || !hidden.has(mark.line));
      const traces = marks.flatMap((mark) => TRACES[mark.kind]?.(mark, panel) ?? []);
      Plotly.react(plot, traces, layoutOf(panel, marks), OPTIONS);
    }
    if (figure.legend.length < 2) return;
    legend.replaceChildren(...figure.legend.map((shown) => {
      const line = shown.label;
      const entry = make("button", {type: "button", title: "show or hide"}, sample(shown), line);
      entry.setAttribute("aria-pressed", !hidden.has(line));
      entry.addEventListener("click", () => {
        if (!hidden.delete(line)) hidden.add(line);
        draw();
      });
      return entry;
    }));
  };
  const image = node.querySelector("img");
  const save = make("button", {type: "button", textContent: "Data (CSV)"});
  save.addEventListener("click", () => download(`${name}.csv`, dataRows(figure)));
  const still = make("button", {type: "button", textContent: "Picture"});
  still.setAttribute("aria-pressed", false);
  still.addEventListener("click", () => {
    still.setAttribute("aria-pressed", !node.classList.toggle("live"));
    live.hidden = !node.classList.contains("live");
    if (!live.hidden) draw();
  });
  const panels = plots.map(([panel, plot]) =>
    make("div", {}, ...(panel.title ? [make("h4", {textContent: panel.title})] : []), plot));
  const live = make("div", {}, legend, make("div",
    {className: [2, 4].includes(panels.length) ? "panels pairs" : "panels"}, ...panels));
  image.before(make("h3", {textContent: image.alt}), live);
  image.after(make("div", {className: "tools"}, save, still));
  node.classList.add("live");
  draw();
  return draw;
}

// ---- tables -------------------------------------------------------------------------------------

// A number at the beginning of a cell, or the cell's text; cells without a value come last.
function keyOf(text) {
  if (text === "∞") return [0, Infinity];
  if (/^[–—-]?$/.test(text)) return [2, 0];
  const found = text.replaceAll(",", "").match(/^[≥<>~ ]*(-?\d+(\.\d+)?(e[-+]?\d+)?)/i);
  return found ? [0, Number(found[1])] : [1, text];
}

function compare([firstKind, first], [secondKind, second]) {
  if (firstKind !== secondKind) return firstKind - secondKind;
  return typeof first === "string" ? first.localeCompare(second, "en", {numeric: true})
    : first === second ? 0 : first - second;
}

function enlivenTable(table, place) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const original = [...body.rows];
  const sort = (head) => {
    const column = heads.indexOf(head);
    const next = {none: "ascending", ascending: "descending", descending: "none"}[
      head.getAttribute("aria-sort") ?? "none"];
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    if (next !== "none") head.setAttribute("aria-sort", next);
    const keyed = original.map((row) => [keyOf(row.cells[column].textContent.trim()), row]);
    if (next !== "none") {
      const sign = next === "ascending" ? 1 : -1;
      keyed.sort(([a], [b]) => a[0] === 2 || b[0] === 2 ? a[0] - b[0] : sign * compare(a, b));
    }
    body.append(...keyed.map(([, row]) => row));
  };
  for (const head of heads) {
    head.tabIndex = 0;
    head.title = "sort";
    head.addEventListener("click", () => sort(head));
    head.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(head); }
    });
  }
  const box = make("input", {type: "search", placeholder: "filter rows"});
  box.setAttribute("aria-label", "filter rows");
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of original) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  });
  const save = make("button", {type: "button", textContent: "Data (CSV)"});
  const cells = (row) => [...row.cells].map((cell) => cell.textContent);
  save.addEventListener("click", () => download(`table-${place + 1}.csv`,
    [cells(table.tHead.rows[0]), ...[...body.rows].filter((row) => !row.hidden).map(cells)]));
  table.parentElement.before(make("div", {className: "tools"}, box, save));
}

// ---- the page -----------------------------------------------------------------------------------

// Plotly's script is in the page as base64 of gzip, which browsers can unpack.
async function loadPlotly() {
  const packed = Uint8Array.from(atob(document.getElementById("plotly").textContent),
    (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const text = await new Response(stream).text();
  document.head.append(make("script", {textContent: text}));
}

async function start() {
  document.querySelectorAll(".scroll > table").forEach(enlivenTable);
  const {figures} = JSON.parse(document.getElementById("data").textContent);
  const theme = make("button", {type: "button", id: "theme", textContent: "Light or dark"});
  const redraw = [];
  const redrawAll = () => redraw.forEach((draw) => draw());
  theme.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    redrawAll();
  });
  document.body.prepend(theme);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
  if (figures.length) await loadPlotly();
  figures.forEach(({name, data}, place) => {
    redraw.push(enliven(document.getElementById(`figure-${place + 1}`), data, name));
  });
  document.body.dataset.ready = true;
}

start();
