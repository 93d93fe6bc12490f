// Puts the page together.

import { announce, by, notify } from "./dom.js";
import { Edits, follow, get, request } from "./client.js";
import { Canvas } from "./canvas.js";
import { Editor, focusStage } from "./editor.js";
import { Exports, Inspector } from "./inspector.js";
import { Failures } from "./failures.js";
import { Graph } from "./graph.js";
import { Live, Run } from "./run.js";

const graph = new Graph();
const live = new Live();
const run = new Run(live);
const exports = new Exports();
const stage = by("stage");
const canvas = new Canvas(stage, graph, live);
const editor = new Editor({ stage, graph, canvas, run, onselect: () => inspector.show(), oninspect: (name) => inspector.focus(name) });
const failures = new Failures({ live, run, onchoose: (name) => choose(name), onload: () => inspector.refresh(null) });
const inspector = new Inspector({ graph, live, run, editor, failures, exports });
const edits = new Edits({
  ondone: (done) => checked(done),
  onfail: async (error) => {
    notify(`The edit was not made: ${error.message}`, "error");
    await load();
  },
});

graph.onedit = (made) => edits.add(made);
graph.onchange = (names, renamed) => {
  canvas.selected = new Set([...canvas.selected].map((name) => renamed.get(name) ?? name).filter((name) => graph.get(name)));
  if (canvas.selectedArc && !graph.get(canvas.selectedArc.node.name)) canvas.selectedArc = null;
  canvas.draw(names);
  showName();
  inspector.showLater(renamed);
};

/** Takes over what the server says of the graph: its version and its problems. */
function checked({ version, problems, refused }) {
  edits.version = version;
  const concerned = [...graph.problems, ...problems].map(({ item }) => item).filter(Boolean);
  const differ = JSON.stringify(graph.problems) !== JSON.stringify(problems);
  graph.problems = problems;
  const errors = problems.filter(({ warning }) => !warning).length;
  const shown = by("problems");
  shown.textContent = problems.length === 0 ? "No problems" : `${problems.length} problem${problems.length === 1 ? "" : "s"}`;
  shown.classList.toggle("bad", errors > 0);
  shown.classList.toggle("warning", errors === 0 && problems.length > 0);
  if (refused && errors === 0) notify(`The run goes on with the graph as it was: ${refused}`, "error");
  if (!differ) return;
  canvas.draw(concerned);
  inspector.show();
}

async function load() {
  const drawn = await get("graph");
  take(drawn);
}

function take(drawn) {
  editor.select([]);
  graph.load(drawn.graph);
  checked(drawn);
}

function showName() {
  by("graph-name").textContent = graph.name || "graph";
  document.title = `${graph.name || "graph"} – Olympus`;
}

function choose(name) {
  const item = graph.get(name);
  if (!item) return;
  editor.select([name]);
  canvas.reveal(item);
  focusStage();
}

/** What the run does, at most once for each picture. */
let pending = null;
function changed(change) {
  const { names, began, ended, decided } = live.update(change);
  if (names) {
    for (const node of began) canvas.fly(node, "in", names);
    for (const node of ended) canvas.fly(node, "out", names);
  }
  if (decided) failures.load();
  if (pending) {
    pending.names = pending.names && names ? new Set([...pending.names, ...names]) : null;
    return;
  }
  pending = { names };
  requestAnimationFrame(() => {
    const { names } = pending;
    pending = null;
    if (names === null || names.size > 0) canvas.draw(names);
    run.show();
    inspector.refresh(names);
  });
}

function connection(state, message) {
  const shown = by("connection");
  shown.hidden = state === "connected";
  shown.textContent = state === "refused" ? message : "The program does not answer. Trying again…";
  stage.classList.toggle("away", state !== "connected");
}

async function save(extension) {
  while (!edits.settled) await new Promise((done) => setTimeout(done, 20));
  try {
    const answer = await request("GET", `graph.${extension}`);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await answer.blob());
    link.download = `${graph.name || "graph"}.${extension}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  } catch (error) {
    notify(error.message, "error");
  }
}

async function open(file) {
  try {
    const answer = await request("PUT", "graph", await file.text(), "text/plain");
    take(await answer.json());
    canvas.fit();
    announce(`opened ${file.name}`);
  } catch (error) {
    notify(`${file.name} was not opened: ${error.message}`, "error");
  }
}

function menu() {
  const file = by("file");
  by("open").addEventListener("click", () => file.click());
  file.addEventListener("change", () => {
    if (file.files[0]) open(file.files[0]);
    file.value = "";
  });
  for (const button of document.querySelectorAll("[data-save]")) {
    button.addEventListener("click", () => save(button.dataset.save));
  }
  for (const button of by("menu").querySelectorAll("button")) {
    button.addEventListener("click", () => by("menu").hidePopover());
  }
  stage.addEventListener("dragover", (event) => event.preventDefault());
  stage.addEventListener("drop", (event) => {
    event.preventDefault();
    if (event.dataTransfer.files[0]) open(event.dataTransfer.files[0]);
  });
  by("undo").addEventListener("click", () => editor.undo());
  by("redo").addEventListener("click", () => editor.undo(true));
  by("fit").addEventListener("click", () => canvas.fit());
  by("zoom-in").addEventListener("click", () => canvas.zoom(1.25));
  by("zoom-out").addEventListener("click", () => canvas.zoom(0.8));
  by("help").addEventListener("click", () => by("keys").showModal());
  by("problems").addEventListener("click", () => {
    editor.select([]);
    inspector.panel.scrollIntoView({ block: "nearest" });
  });
  for (const button of document.querySelectorAll("dialog [data-close]")) {
    button.addEventListener("click", () => button.closest("dialog").close());
  }
}

/** Keys that work everywhere but in fields. */
function keys(event) {
  const typing = event.target.closest("input, textarea, select, dialog, [popover]");
  const command = event.ctrlKey || event.metaKey;
  const key = event.key.toLowerCase();
  if (command && !event.altKey && !typing) {
    const act = { z: () => editor.undo(event.shiftKey), y: () => editor.undo(true), s: () => save("olympus"), o: () => by("file").click() }[key];
    if (!act) return;
    event.preventDefault();
    return act();
  }
  if (typing || command || event.altKey) return;
  const pressing = event.target.closest("button");
  const act = {
    " ": pressing ? undefined : () => run.toggle(),
    ".": () => run.command({ do: "step" }),
    "/": () => { editor.select([]); inspector.focus("find"); },
    f: () => failures.inspectFirst(),
    "?": () => by("keys").showModal(),
  }[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

async function begin() {
  editor.use("select");
  menu();
  document.addEventListener("keydown", keys);
  follow(changed, connection);
  try {
    await load();
    canvas.fit();
    focusStage();
  } catch (error) {
    connection("refused", error.message);
  }
  await exports.load();
  inspector.show();
}

// For tests of the page, and for whoever looks into it with the browser's tools.
window.olympus = { graph, live, canvas, editor, edits };

begin();
