"use strict";
// The page's controls and curves. The server simulates; this file sends settings and draws answers.

const CHARTS = {
  ttft: {x: "log scale", y: "requests (%)", log: true, range: [0, 101]},
  hits: {x: "s", y: "prompt tokens (%)", range: [0, 101]},
  queue: {x: "s", y: "requests"},
  kv: {x: "s", y: "KV tokens (%)", range: [0, 101]},
};
// 0.1 ms to 5,000 s.
const LATENCIES_MS = [...Array(8).keys()].flatMap((n) => [1, 2, 5].map((d) => d * 10 ** (n - 1)));
const LATENCY_TICKS = {tickvals: LATENCIES_MS, ticktext: LATENCIES_MS.map((ms) =>
  ms < 1000 ? `${ms} ms` : `${(ms / 1000).toLocaleString("en")} s`)};
const REQUESTS = "num_requests";
const byId = (id) => document.getElementById(id);
let scenario = null;   // what the server says about the scenario
let boxes = new Map(); // for each key: how to show a value
let moved = new Map(); // the settings that differ from the scenario's
let runs = [];         // the newest answer, and the one before
let before = [];
let isBusy = false;
let isStale = false;

function make(tag, content = {}, ...children) {
  const made = Object.assign(document.createElement(tag), content);
  made.append(...children);
  return made;
}

function addControl(control) {
  const {key, label, value, stops, is_choice: isChoice} = control;
  const names = control.names ?? {};
  const nameOf = (text) => names[text] ?? text;
  const textOf = (shown) => Object.keys(names).find((text) => names[text] === shown) ?? shown;
  const title = make("label", {textContent: label, htmlFor: `box-${key}`, title: key});
  const set = (text) => {
    if (text === value) moved.delete(key); else moved.set(key, text);
    show(text);
    keepLink();
    simulate();
  };
  let show;
  if (isChoice) {
    const list = make("select", {id: `box-${key}`},
      ...stops.map((stop) => make("option", {value: stop, textContent: nameOf(stop)})));
    show = (text) => { list.value = text; };
    list.addEventListener("change", () => set(list.value));
    byId("list").append(make("div", {className: "control"}, title, list));
  } else {
    const box = make("input", {type: "text", id: `box-${key}`, inputMode: "decimal"});
    const slider = make("input", {type: "range", min: 0, max: stops.length - 1, step: 1});
    slider.setAttribute("aria-label", label);
    show = (text) => {
      box.value = nameOf(text);
      slider.value = nearest(stops, text);
      slider.setAttribute("aria-valuetext", nameOf(text));
    };
    slider.addEventListener("input", () => set(stops[slider.value]));
    box.addEventListener("change", () => set(textOf(box.value.trim())));
    byId("list").append(make("div", {className: "control"}, title,
      make("div", {className: "row"}, slider, box)));
  }
  boxes.set(key, {show, value});
  show(value);
}

// The place of the stop that is nearest to a value; a value that is no number is the last stop.
function nearest(stops, text) {
  const exact = stops.indexOf(text);
  if (exact >= 0) return exact;
  const far = stops.map((stop) => Math.abs(Number(stop) - Number(text)));
  const least = Math.min(...far.filter((number) => !Number.isNaN(number)));
  return Math.max(0, far.indexOf(least));
}

function keepLink() {
  const link = new URLSearchParams([...moved]).toString();
  history.replaceState(null, "", link ? `#${link}` : location.pathname);
}

function readLink() {
  moved = new Map([...new URLSearchParams(location.hash.slice(1))]
    .filter(([key, text]) => boxes.has(key) && boxes.get(key).value !== text));
  for (const [key, {show, value}] of boxes) show(moved.get(key) ?? value);
}

async function ask(path) {
  const settings = Object.fromEntries([...moved].filter(([key]) => key !== REQUESTS));
  const typed = moved.get(REQUESTS) ?? boxes.get(REQUESTS).value;
  const number = /^\d+$/.test(typed) ? Number(typed) : typed;
  const response = await fetch(path, {
    method: "POST",
    headers: {"Content-Type": "application/json"},
    body: JSON.stringify({settings, num_requests: number}),
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

// One request at a time; while it is under way, moves are gathered for the next one.
async function simulate() {
  if (isBusy) { isStale = true; return; }
  isBusy = true;
  document.body.classList.add("busy");
  do {
    isStale = false;
    try {
      const answer = await ask("simulate");
      before = runs;
      runs = answer.runs;
      complain("");
      byId("traffic").textContent = `${trafficText(answer)} ${answer.seconds.toFixed(2)} s.`;
      draw();
    } catch (error) {
      complain(error instanceof TypeError ? "The server is gone: start simulate play again."
        : error.message);
    }
  } while (isStale);
  isBusy = false;
  document.body.classList.remove("busy");
  document.body.dataset.moves = Number(document.body.dataset.moves ?? 0) + 1;
}

function trafficText({num_requests: shown, num_all: all, runs: {length}}) {
  const some = shown < all ? `the first ${shown.toLocaleString("en")} of ` : "";
  const times = length > 1 ? "once with each policy" : "once";
  return `Simulated ${some}${all.toLocaleString("en")} requests, ${times}, in`;
}

function complain(message) {
  byId("error").textContent = message;
  byId("error").hidden = !message;
}

function styleOf(place, number) {
  const names = number > 1 ? ["--first", "--second"] : ["--second"];
  const colour = getComputedStyle(document.documentElement).getPropertyValue(names[place]).trim();
  return {colour, dash: number > 1 && place === 0 ? "dash" : "solid"};
}

function draw() {
  const css = getComputedStyle(document.documentElement);
  const [text, line] = ["--text", "--line"].map((name) => css.getPropertyValue(name).trim());
  for (const [id, chart] of Object.entries(CHARTS)) {
    const axis = {gridcolor: line, zeroline: false, linecolor: line, automargin: true};
    const layout = {
      margin: {l: 50, r: 10, t: 8, b: 40}, showlegend: false, hovermode: "closest",
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: {color: text, size: 12},
      xaxis: {...axis, title: {text: chart.x}, type: chart.log ? "log" : "linear",
        ...(chart.log ? LATENCY_TICKS : {rangemode: "tozero"})},
      yaxis: {...axis, title: {text: chart.y}, rangemode: "tozero",
        ...(chart.range ? {range: chart.range} : {})},
    };
    const faint = before.map((run, place) => trace(run, id, place, before.length, true));
    const clear = runs.map((run, place) => trace(run, id, place, runs.length, false));
    Plotly.react(id, [...faint, ...clear], layout, {responsive: true, displayModeBar: false, plotlyServerURL: ""});
  }
  byId("legend").replaceChildren(...runs.map((run, place) => {
    const {colour, dash} = styleOf(place, runs.length);
    const entry = make("span", {textContent: run.name});
    entry.style.setProperty("--colour", colour);
    entry.style.setProperty("--dash", dash === "dash" ? "dashed" : "solid");
    return entry;
  }), make("small", {textContent: before.length ? "faint: the move before" : ""}));
  tabulate();
}

function trace(run, id, place, number, isFaint) {
  const {colour, dash} = styleOf(place, number);
  return {
    type: "scatter", mode: "lines", name: run.name, x: run.curves[id].x, y: run.curves[id].y,
    line: {color: colour, dash, width: isFaint ? 1 : 2, shape: id === "queue" ? "hv" : "linear"},
    opacity: isFaint ? 0.3 : 1, hoverinfo: isFaint ? "skip" : "x+y+name",
  };
}

function tabulate() {
  const head = make("tr", {}, make("th"), ...runs.map((run) => make("th", {textContent: run.name})));
  const rows = runs[0].figures.map(([label], row) => make("tr", {},
    make("td", {textContent: label}),
    ...runs.map((run) => make("td", {textContent: run.figures[row][1]}))));
  byId("figures").replaceChildren(make("thead", {}, head), make("tbody", {}, ...rows));
  const {name, trust} = runs.at(-1);
  byId("trust").textContent = `${name}, ${trust.join("\n")}`;
}

async function save() {
  try {
    const {yaml} = await ask("yaml");
    const link = make("a", {download: `${scenario.name}-play.yaml`,
      href: URL.createObjectURL(new Blob([yaml], {type: "application/yaml"}))});
    link.click();
    URL.revokeObjectURL(link.href);
    complain("");
  } catch (error) {
    complain(error.message);
  }
}

async function copyLink() {
  await navigator.clipboard.writeText(location.href);
  byId("link").textContent = "Copied";
  setTimeout(() => { byId("link").textContent = "Copy link"; }, 1500);
}

async function start() {
  scenario = await (await fetch("scenario")).json();
  document.title = `${scenario.name}: playground`;
  byId("name").textContent = scenario.name;
  scenario.controls.forEach(addControl);
  addControl({key: REQUESTS, label: "requests to simulate", value: String(scenario.num_requests),
    stops: ["100", "200", "400", "800", "1600", "3200", "6400", "12800", "20000"]});
  readLink();
  addEventListener("hashchange", () => { readLink(); simulate(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  byId("save").addEventListener("click", save);
  byId("link").addEventListener("click", copyLink);
  byId("reset").addEventListener("click", () => {
    moved.clear();
    keepLink();
    readLink();
    simulate();
  });
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  await simulate();
}

start();
