"use strict";
// Draws a log: steps, queue and KV pool of one server above, its requests as lanes below.

const data = JSON.parse(document.getElementById("data").textContent);
const KINDS = ["queued", "prefill", "between chunks", "decode", "put back", "transfer"];
const [QUEUED, PREFILL, , DECODE] = KINDS.keys();
const LANE_PX = 12, EDGE_PX = 62, AXIS_PX = 22;
const STEP_PX = 16, CHART_PX = 64, GAP_PX = 20;
const whole = [data.begin_ns, Math.max(data.end_ns, data.begin_ns + 1)];
const state = {view: [...whole], server: 0, drag: null, found: -1};
const stepsCanvas = document.getElementById("steps");
const lanesCanvas = document.getElementById("requests");
const lanes = document.getElementById("lanes");
const tip = document.getElementById("tip");
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const server = () => data.servers[state.server];

function make(tag, content = {}, ...children) {
  const made = Object.assign(document.createElement(tag), content);
  made.append(...children);
  return made;
}

// ---- numbers --------------------------------------------------------------------------------------

const count = (value) => value.toLocaleString("en");
function duration(ns) {
  const [unit, factor] = ns >= 1e9 ? ["s", 1e9] : ns >= 1e6 ? ["ms", 1e6] : ["µs", 1e3];
  return `${Number((ns / factor).toPrecision(4))} ${unit}`;
}
// A time of the run in seconds, with as many digits as the view needs.
function moment(ns, step = (state.view[1] - state.view[0]) / 1000) {
  const digits = Math.min(9, Math.max(0, Math.ceil(-Math.log10(step / 1e9))));
  return `${(ns / 1e9).toFixed(digits)} s`;
}
function ticks(low, high, most) {
  const rough = Math.max((high - low) / most, 1e-9), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) found.push(at);
  return [found, step];
}

// ---- drawing --------------------------------------------------------------------------------------

function prepared(canvas, width, height) {
  const scale = devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  Object.assign(canvas.style, {width: `${width}px`, height: `${height}px`});
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  return pen;
}
// Both canvases are as wide as the lanes without their scroll bar: so their times are aligned.
const width = () => lanes.clientWidth;
const plotWidth = () => Math.max(1, width() - EDGE_PX - 8);
const place = (ns) => EDGE_PX + (ns - state.view[0]) / (state.view[1] - state.view[0]) * plotWidth();
const timeAt = (px) => state.view[0]
  + Math.min(1, Math.max(0, (px - EDGE_PX) / plotWidth())) * (state.view[1] - state.view[0]);

function bar(pen, begin, end, top, height, colour) {
  const left = Math.max(place(begin), EDGE_PX), right = Math.min(place(end), width() - 8);
  if (right < EDGE_PX || left > width() - 8) return;
  pen.fillStyle = colour;
  pen.fillRect(left, top, Math.max(right - left, 1), height);
}

function grid(pen, top, bottom, labelled) {
  const [times, step] = ticks(...state.view, Math.max(3, plotWidth() / 100));
  for (const at of times) {
    pen.fillStyle = css("--line");
    pen.fillRect(place(at), top, 1, bottom - top);
    if (!labelled) continue;
    pen.fillStyle = css("--soft");
    pen.textAlign = "center";
    pen.fillText(moment(at, step), Math.min(place(at), width() - 30), bottom + AXIS_PX / 2);
  }
}

// A chart of columns of the steps, as steps of a staircase; each [column, colour, label].
function chart(pen, top, title, columns, stacked) {
  const {steps} = server(), total = (step) => columns.reduce((sum, [at]) => sum + step[at], 0);
  const one = (step) => Math.max(...columns.map(([at]) => step[at]));
  const highest = steps.reduce((most, step) => Math.max(most, (stacked ? total : one)(step)), 1);
  const y = (value) => top + CHART_PX * (1 - value / highest);
  pen.textAlign = "right";
  pen.fillStyle = css("--soft");
  pen.fillText(count(highest), EDGE_PX - 6, top + 6);
  pen.fillText("0", EDGE_PX - 6, top + CHART_PX - 4);
  pen.textAlign = "left";
  let left = EDGE_PX + 4;
  pen.fillText(title, left, top - GAP_PX / 2);
  left += pen.measureText(title).width + 14;
  for (const [, colour, label] of columns) {
    pen.fillStyle = colour;
    pen.fillRect(left, top - GAP_PX / 2 - 5, 10, 10);
    pen.fillStyle = css("--soft");
    pen.fillText(label, left + 14, top - GAP_PX / 2);
    left += pen.measureText(label).width + 28;
  }
  pen.save();
  pen.beginPath();
  pen.rect(EDGE_PX, top - 2, plotWidth(), CHART_PX + 4);
  pen.clip();
  steps.forEach((step, number) => {
    const end = number + 1 < steps.length ? steps[number + 1][0] : step[1];
    if (end < state.view[0] || step[0] > state.view[1]) return;
    let floor = 0;
    for (const [at, colour] of columns) {
      pen.fillStyle = colour;
      const x = place(step[0]), wide = Math.max(place(end) - x, 1);
      if (stacked) pen.fillRect(x, y(floor + step[at]), wide + 0.5, y(floor) - y(floor + step[at]));
      else pen.fillRect(x, y(step[at]) - 1, wide + 0.5, 2);
      floor += step[at];
    }
  });
  pen.restore();
}

const modeColour = (mode) => css({extend: "--kind-1", decode: "--kind-3"}[mode] ?? "--mixed");

function drawSteps() {
  const height = STEP_PX + 2 * (GAP_PX + CHART_PX) + AXIS_PX;
  const pen = prepared(stepsCanvas, width(), height);
  grid(pen, 0, height - AXIS_PX, true);
  pen.textAlign = "right";
  pen.fillStyle = css("--soft");
  pen.fillText("steps", EDGE_PX - 6, STEP_PX / 2);
  const colours = Object.fromEntries(["extend", "decode", "mixed"].map((m) => [m, modeColour(m)]));
  for (const step of server().steps) bar(pen, step[0], step[1], 0, STEP_PX, colours[step[2]]);
  chart(pen, STEP_PX + GAP_PX, "requests",
    [[9, css("--kind-3"), "running"], [8, css("--kind-4"), "waiting"]], false);
  const pool = STEP_PX + 2 * GAP_PX + CHART_PX;
  chart(pen, pool, "KV tokens", [[10, css("--kind-1"), "used"], [11, css("--kind-2"), "cached"],
    [12, css("--line"), "free"]], true);
  drawDrag(pen, height);
}

function drawLanes() {
  const {requests} = server();
  document.getElementById("height").style.height =
    `${Math.max(requests.length * LANE_PX, lanes.clientHeight)}px`;
  const pen = prepared(lanesCanvas, width(), lanes.clientHeight);
  grid(pen, 0, lanes.clientHeight, false);
  const colours = KINDS.map((_, kind) => css(`--kind-${kind}`));
  const first = Math.floor(lanes.scrollTop / LANE_PX);
  const last = Math.min(requests.length, first + Math.ceil(lanes.clientHeight / LANE_PX) + 1);
  for (let row = first; row < last; row++) {
    const [rid, status, arrival, end, , spans] = requests[row];
    const top = row * LANE_PX - lanes.scrollTop;
    if (row === state.found) {
      pen.fillStyle = css("--panel");
      pen.fillRect(0, top, width(), LANE_PX);
    }
    for (const [kind, from, to] of spans)
      bar(pen, from, to, top + 2, LANE_PX - 4, colours[kind]);
    if (status === "rejected" || status === "aborted") {
      pen.fillStyle = css("--bad");
      pen.textAlign = "center";
      if (end >= state.view[0] && arrival <= state.view[1]) pen.fillText("×", place(end), top + 6);
    }
    pen.fillStyle = css("--soft");
    pen.textAlign = "left";
    if (row % 2 === 0 || row === state.found) pen.fillText(rid.slice(0, 8), 4, top + LANE_PX / 2);
  }
  drawDrag(pen, lanes.clientHeight);
}

function drawDrag(pen, height) {
  if (!state.drag) return;
  const [from, to] = [Math.min(...state.drag), Math.max(...state.drag)];
  pen.globalAlpha = 0.25;
  pen.fillStyle = css("--mark");
  pen.fillRect(from, 0, to - from, height);
  pen.globalAlpha = 1;
}

let waiting = 0;
function draw() {
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(() => {
    drawSteps();
    drawLanes();
    range.textContent = `${moment(state.view[0])} to ${moment(state.view[1])}`;
    document.body.dataset.view = state.view.map((ns) => Math.round(ns)).join(" ");
    document.body.dataset.lane = String(Math.round(lanes.scrollTop / LANE_PX));
    document.body.dataset.ready = "true";
  });
}

// ---- what the reader does -----------------------------------------------------------------------

function show(from, to) {
  const least = 1000, [low, high] = whole;
  const wide = Math.min(Math.max(to - from, least), high - low);
  const begin = Math.min(Math.max(from, low), high - wide);
  state.view = [begin, begin + wide];
  follow();
  draw();
}
// If no lane on the screen has anything in the view, scroll to one that has.
function follow() {
  const {requests} = server(), [from, to] = state.view;
  const inView = ([, , arrival, end]) => arrival <= to && end >= from;
  const first = Math.floor(lanes.scrollTop / LANE_PX);
  const many = Math.ceil(lanes.clientHeight / LANE_PX);
  if (requests.slice(first, first + many).some(inView)) return;
  const found = requests.findIndex(inView);
  if (found >= 0) lanes.scrollTop = found * LANE_PX;
}
function zoom(factor, at = (state.view[0] + state.view[1]) / 2) {
  show(at - (at - state.view[0]) / factor, at + (state.view[1] - at) / factor);
}
function move(share) {
  const by = share * (state.view[1] - state.view[0]);
  show(state.view[0] + by, state.view[1] + by);
}

function aboutRequest(number, ns) {
  const one = server().requests[number];
  if (!one) return "";
  const [rid, status, arrival, end, cached, spans] = one;
  const lines = [`request ${rid}: ${status}`, `arrived at ${moment(arrival, 1e6)}`];
  const span = spans.find(([, from, to]) => from <= ns && ns < to);
  if (span) {
    const tokens = span[3] ? ` of ${count(span[3])} tokens` : "";
    lines.push(`${KINDS[span[0]]}${tokens}: ${duration(span[2] - span[1])}`);
  }
  const sum = (kind) => spans.reduce((all, [k, from, to]) => all + (k === kind ? to - from : 0), 0);
  lines.push(`in all: queue ${duration(sum(QUEUED))}, prefill ${duration(sum(PREFILL))},`
    + ` decode ${duration(sum(DECODE))}, ${duration(end - arrival)} to its end`);
  if (cached) lines.push(`${count(cached)} prompt tokens were cached`);
  const put = spans.filter(([kind]) => kind === 4).length;
  if (put) lines.push(`put back ${put === 1 ? "once" : `${put} times`}`);
  return lines.join("\n");
}

function aboutStep(ns) {
  const {steps} = server();
  // The last that began before.
  let low = 0, high = steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle][0] <= ns) low = middle + 1; else high = middle;
  }
  if (!low) return "";
  const [from, to, mode, number, rows, tokens, decoding, context, queue, running, used, cached, free]
    = steps[low - 1];
  const name = number > 1 ? `${count(number)} decode steps` : `step: ${mode}`;
  const lines = [ns < to ? `${name}, ${duration(to - from)}` : `idle since ${moment(to, 1e6)}`];
  if (ns < to && rows) lines.push(`prefill: ${count(tokens)} tokens of ${count(rows)} requests`);
  if (ns < to && decoding) lines.push(`decode: ${count(decoding)} requests`);
  if (ns < to && context) lines.push(`context: ${count(context)} tokens`);
  lines.push(`${count(queue)} waiting, ${count(running)} running`,
    `KV tokens: ${count(used)} used, ${count(cached)} cached, ${count(free)} free`);
  return lines.join("\n");
}

function laneAt(event) {
  const top = event.clientY - lanes.getBoundingClientRect().top + lanes.scrollTop;
  return Math.floor(top / LANE_PX);
}

function showTip(event, text) {
  tip.hidden = !text;
  tip.textContent = text;
  const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
  const below = event.clientY + 14 + tip.offsetHeight < innerHeight;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${below ? event.clientY + 14 : event.clientY - 14 - tip.offsetHeight}px`;
}

for (const canvas of [stepsCanvas, lanesCanvas]) {
  const x = (event) => event.clientX - canvas.getBoundingClientRect().left;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "touch" || event.button) return;
    canvas.setPointerCapture(event.pointerId);
    state.drag = [x(event), x(event)];
  });
  canvas.addEventListener("pointermove", (event) => {
    if (state.drag) {
      state.drag[1] = x(event);
      draw();
    }
    const ns = timeAt(x(event));
    const text = canvas === stepsCanvas ? aboutStep(ns) : aboutRequest(laneAt(event), ns);
    showTip(event, text && `${moment(ns)}\n${text}`);
  });
  canvas.addEventListener("pointerup", () => {
    if (!state.drag) return;
    const [from, to] = [Math.min(...state.drag), Math.max(...state.drag)].map(timeAt);
    const pixels = Math.abs(state.drag[1] - state.drag[0]);
    state.drag = null;
    if (pixels > 4) show(from, to); else draw();
  });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("dblclick", () => show(...whole));
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(Math.exp(-event.deltaY / 300), timeAt(x(event)));
  }, {passive: false});
}

addEventListener("keydown", (event) => {
  if (["INPUT", "SELECT"].includes(event.target.tagName) || event.ctrlKey || event.metaKey) return;
  const does = {"+": () => zoom(1.5), "=": () => zoom(1.5), "-": () => zoom(1 / 1.5),
    0: () => show(...whole), ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2)}[event.key];
  if (!does) return;
  event.preventDefault();
  does();
});

// A request whose name is, or begins with, what was typed: its lane, and its time.
function find(text) {
  const {requests} = server();
  const at = (test) => requests.findIndex(([rid]) => test(rid));
  const exact = at((rid) => rid === text);
  state.found = text ? (exact >= 0 ? exact : at((rid) => rid.startsWith(text))) : -1;
  if (state.found >= 0) {
    const [, , arrival, end] = requests[state.found], rest = 0.1 * (end - arrival) + 1e6;
    lanes.scrollTop = state.found * LANE_PX - lanes.clientHeight / 2;
    show(arrival - rest, end + rest);
  } else draw();
}

const range = make("output");
const box = make("input", {type: "search", placeholder: "find a request", ariaLabel: "find a request",
  oninput: () => find(box.value.trim())});
const choice = make("select", {ariaLabel: "server", onchange: () => {
  Object.assign(state, {server: Number(choice.value), found: -1});
  lanes.scrollTop = 0;
  draw();
}}, ...data.servers.map((one, number) => make("option", {value: number, textContent: one.label})));
const theme = make("button", {textContent: "Light or dark", onclick: () => {
  const isDark = getComputedStyle(document.documentElement).colorScheme === "dark";
  document.documentElement.dataset.theme = isDark ? "light" : "dark";
  draw();
}});
document.getElementById("tools").append(
  ...(data.servers.length > 1 ? [choice] : []),
  make("button", {textContent: "+", ariaLabel: "zoom in", onclick: () => zoom(2)}),
  make("button", {textContent: "−", ariaLabel: "zoom out", onclick: () => zoom(0.5)}),
  make("button", {textContent: "←", ariaLabel: "earlier", onclick: () => move(-0.4)}),
  make("button", {textContent: "→", ariaLabel: "later", onclick: () => move(0.4)}),
  make("button", {textContent: "Whole", onclick: () => show(...whole)}),
  box, theme, range);
lanes.addEventListener("scroll", draw);
addEventListener("resize", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
draw();
