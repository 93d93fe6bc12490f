// Edits the drawing: with the mouse, with fingers, and with the keyboard alone.

import { announce, by, notify } from "./dom.js";
import { describe } from "./canvas.js";
import { GRID } from "./graph.js";

/** How far the mouse must move before a press becomes a drag, in pixels. */
const DRAG_AFTER = 4;

/** Where a new item stands beside the selected one, in pixels. */
const BESIDE = 150;

export class Editor {
  constructor({ stage, graph, canvas, run, onselect, oninspect }) {
    Object.assign(this, { stage, graph, canvas, run, onselect, oninspect });
    this.tool = "select";
    this.pointers = new Map();
    this.gesture = null;
    /** Where an arc begins whose end is being chosen with the keyboard. */
    this.arcFrom = null;
    stage.addEventListener("pointerdown", (event) => this.#down(event));
    stage.addEventListener("pointermove", (event) => this.#move(event));
    stage.addEventListener("pointerup", (event) => this.#up(event));
    stage.addEventListener("pointercancel", () => this.#cancel());
    stage.addEventListener("dblclick", (event) => this.#open(event));
    stage.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    stage.addEventListener("keydown", (event) => this.#key(event));
    for (const button of document.querySelectorAll("[data-tool]")) {
      button.addEventListener("click", () => this.use(button.dataset.tool));
    }
  }

  /** Chooses a tool: what a press on the drawing does. */
  use(tool) {
    this.tool = tool;
    this.stage.dataset.tool = tool;
    for (const button of document.querySelectorAll("[data-tool]")) {
      button.setAttribute("aria-pressed", String(button.dataset.tool === tool));
    }
  }

  select(names, arc = null) {
    const before = [...this.canvas.selected, this.canvas.selectedArc?.node.name].filter(Boolean);
    this.canvas.selected = new Set(names);
    this.canvas.selectedArc = arc;
    this.canvas.draw([...before, ...names, arc?.node.name].filter(Boolean));
    if (names.length === 1) announce(describe(this.graph.get(names[0]), this.canvas.live));
    this.onselect();
  }

  /** The one item that is selected. */
  get only() {
    const { selected } = this.canvas;
    return selected.size === 1 ? this.graph.get([...selected][0]) : undefined;
  }

  add(kind, at) {
    const place = at ?? this.#freeSpot();
    const position = { x: snap(place.x), y: snap(place.y) };
    const name = this.graph.freshName(kind);
    this.graph.edit([{ do: kind, name, [kind]: kind === "place" ? { name, at: position } : { name, in: [], out: [], at: position } }]);
    this.select([name]);
    if (!at) this.canvas.reveal(this.graph.get(name));
  }

  remove() {
    const { selected, selectedArc } = this.canvas;
    if (selectedArc) {
      const { node, side, index } = selectedArc;
      this.select([node.name]);
      this.graph.change(node.name, { [side]: node.data[side].filter((_, at) => at !== index) });
      return announce("arc deleted");
    }
    if (selected.size === 0) return;
    const names = [...selected];
    this.select([]);
    this.graph.edit(this.graph.removal(names));
    announce(names.length === 1 ? `${names[0]} deleted` : `${names.length} items deleted`);
  }

  undo(again = false) {
    this.select([]);
    const done = again ? this.graph.redo() : this.graph.undo();
    announce(done ? (again ? "done again" : "undone") : `nothing to ${again ? "redo" : "undo"}`);
  }

  /** Joins two items by an arc. */
  connect(from, to) {
    const node = this.graph.connect(from, to);
    if (!node) {
      notify("An arc goes from a place to a node, or from a node to a place.");
      return;
    }
    this.select([to]);
    announce(`arc from ${from} to ${to}`);
  }

  #down(event) {
    this.stage.focus({ preventScroll: true });
    this.pointers.set(event.pointerId, event);
    if (this.pointers.size === 2) return this.#pinchBegin();
    if (event.button > 1) return;
    // Throws for a pointer that is gone already, as those of tests are.
    try { this.stage.setPointerCapture(event.pointerId); } catch {}
    const at = this.canvas.toGraph(event);
    const item = this.canvas.itemAt(at, event.pointerType === "touch" ? 10 / this.canvas.view.zoom : undefined);
    const begin = { at, x: event.clientX, y: event.clientY, item, moved: false };
    if (event.button === 1) this.gesture = { ...begin, kind: "pan" };
    else if (this.tool === "place" || this.tool === "node") this.gesture = { ...begin, kind: item ? "item" : "add" };
    else if (this.tool === "arc" && item) this.gesture = { ...begin, kind: "arc" };
    else if (item) this.gesture = { ...begin, kind: "item", toggle: event.shiftKey };
    else this.gesture = { ...begin, kind: event.shiftKey ? "box" : "pan" };
    if (this.gesture.kind === "item" && !this.canvas.selected.has(item.name) && !event.shiftKey) this.select([item.name]);
  }

  #move(event) {
    if (!this.pointers.has(event.pointerId)) return;
    const last = this.pointers.get(event.pointerId);
    this.pointers.set(event.pointerId, event);
    if (this.pointers.size === 2) return this.#pinch();
    const { gesture } = this;
    if (!gesture) return;
    gesture.moved ||= Math.hypot(event.clientX - gesture.x, event.clientY - gesture.y) > DRAG_AFTER;
    if (!gesture.moved) return;
    const at = this.canvas.toGraph(event);
    switch (gesture.kind) {
      case "pan":
        return this.canvas.pan(last.clientX - event.clientX, last.clientY - event.clientY);
      case "item":
        return this.#drag(gesture, at);
      case "arc":
        this.canvas.sketch = { kind: "arc", from: gesture.item, to: at };
        return this.canvas.draw([]);
      case "box":
        this.canvas.sketch = { kind: "box", from: gesture.at, to: at };
        return this.canvas.draw([]);
    }
  }

  #up(event) {
    this.pointers.delete(event.pointerId);
    const { gesture } = this;
    this.gesture = null;
    if (!gesture) return;
    const at = this.canvas.toGraph(event);
    this.canvas.sketch = null;
    switch (gesture.kind) {
      case "add":
        this.add(this.tool, gesture.at);
        return;
      case "item":
        if (gesture.from) return this.#drop(gesture);
        if (gesture.toggle) {
          const names = new Set(this.canvas.selected);
          if (!names.delete(gesture.item.name)) names.add(gesture.item.name);
          this.select([...names]);
        }
        return;
      case "arc": {
        const target = this.canvas.itemAt(at, 12 / this.canvas.view.zoom);
        this.canvas.draw([]);
        if (gesture.moved) return target && this.connect(gesture.item.name, target.name);
        // A press on one item and then on another draws an arc too.
        if (!this.arcFrom) return this.#beginArc(gesture.item.name);
        return this.#endArc(gesture.item.name);
      }
      case "box":
        return this.select(this.#within(gesture.at, at));
      case "pan":
        if (gesture.moved || event.button === 1) return;
        this.#leaveArc();
        return this.#press(gesture.at);
    }
  }

  /** A press beside all items chooses the arc that is there, or nothing. */
  #press(at) {
    const arc = this.canvas.arcAt(at);
    this.select([], arc);
  }

  #cancel() {
    this.pointers.clear();
    if (this.gesture?.from) this.#drop(this.gesture);
    this.gesture = null;
    this.canvas.sketch = null;
    this.canvas.draw([]);
  }

  /** Moves the selected items in the drawing only; the edit is made when they are let go. */
  #drag(gesture, at) {
    gesture.from ??= new Map([...this.canvas.selected].map((name) => {
      const { x, y } = this.graph.get(name);
      return [name, { x, y }];
    }));
    for (const [name, from] of gesture.from) {
      const item = this.graph.get(name);
      if (!item) continue;
      item.x = snap(from.x + at.x - gesture.at.x);
      item.y = snap(from.y + at.y - gesture.at.y);
    }
    this.canvas.draw(gesture.from.keys());
  }

  #drop({ from }) {
    const edits = [];
    for (const [name, before] of from) {
      const item = this.graph.get(name);
      if (!item || (item.x === before.x && item.y === before.y)) continue;
      edits.push({ do: "move", name, at: { x: item.x, y: item.y } });
      Object.assign(item, before);
    }
    if (edits.length > 0) this.graph.edit(edits);
  }

  #pinchBegin() {
    if (this.gesture?.from) this.#drop(this.gesture);
    this.gesture = null;
    this.pinched = spread(this.pointers);
  }

  #pinch() {
    const now = spread(this.pointers);
    this.canvas.pan(this.pinched.clientX - now.clientX, this.pinched.clientY - now.clientY);
    this.canvas.zoom(now.distance / (this.pinched.distance || 1), this.canvas.toGraph(now));
    this.pinched = now;
  }

  #wheel(event) {
    event.preventDefault();
    if (event.shiftKey) return this.canvas.pan(event.deltaX || event.deltaY, 0);
    this.canvas.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), this.canvas.toGraph(event));
  }

  #open(event) {
    const item = this.canvas.itemAt(this.canvas.toGraph(event));
    if (item && this.tool === "select") this.oninspect();
  }

  #within(one, other) {
    const between = (at, a, b) => at >= Math.min(a, b) && at <= Math.max(a, b);
    const items = [...this.graph.items.values()];
    return items.filter(({ x, y }) => between(x, one.x, other.x) && between(y, one.y, other.y)).map(({ name }) => name);
  }

  #key(event) {
    if (event.target !== this.stage) return;
    const command = event.ctrlKey || event.metaKey;
    if (event.altKey || (command && !["a", "d"].includes(event.key.toLowerCase()))) return;
    const act = command ? { a: () => this.select([...this.graph.items.keys()]) }[event.key.toLowerCase()] : this.#action(event);
    if (!act) return;
    event.preventDefault();
    act();
  }

  #action({ key, shiftKey }) {
    const arrow = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key];
    if (arrow) return shiftKey ? () => this.#nudge(...arrow) : () => this.#go(...arrow);
    if (key.length === 1 && shiftKey && key !== "T" && key !== "+" && key !== "?" && key !== "/") return undefined;
    return {
      Enter: () => (this.arcFrom ? this.#endArc(this.only?.name) : this.oninspect()),
      F2: () => this.oninspect("name"),
      Delete: () => this.remove(),
      Backspace: () => this.remove(),
      Escape: () => this.#escape(),
      a: () => (this.arcFrom ? this.#endArc(this.only?.name) : this.#beginArc(this.only?.name)),
      n: () => this.add("node"),
      p: () => this.add("place"),
      v: () => this.use("select"),
      t: () => this.#token(1),
      T: () => this.#token(-1),
      "]": () => this.#step(1),
      "[": () => this.#step(-1),
      "+": () => this.canvas.zoom(1.25),
      "=": () => this.canvas.zoom(1.25),
      "-": () => this.canvas.zoom(0.8),
      0: () => this.canvas.fit(),
    }[key];
  }

  #escape() {
    if (this.arcFrom) return this.#leaveArc();
    if (this.tool !== "select") return this.use("select");
    this.select([]);
  }

  #beginArc(name) {
    if (!name) return notify("Choose the place or the node where the arc begins first.");
    this.#leaveArc();
    this.arcFrom = name;
    this.stage.classList.add("choosing");
    this.hint = notify(`Arc from ${name}: choose where it ends, then press Enter. Escape gives it up.`);
    announce(`arc from ${name}: choose where it ends, then press Enter`);
  }

  #endArc(name) {
    const from = this.arcFrom;
    this.#leaveArc();
    if (name && this.graph.get(from)) this.connect(from, name);
  }

  #leaveArc() {
    this.arcFrom = null;
    this.hint?.remove();
    this.stage.classList.remove("choosing");
  }

  /** Puts a token into the selected place, or takes one away. */
  #token(change) {
    const place = this.only;
    if (place?.kind !== "place") return notify("Choose a place first.");
    if (change > 0) this.run.command({ do: "put", place: place.name });
    else this.run.command({ do: "take", place: place.name, count: 1 });
  }

  #nudge(dx, dy) {
    const names = [...this.canvas.selected];
    if (names.length === 0) return this.canvas.pan(-60 * dx, -60 * dy);
    this.graph.edit(names.map((name) => {
      const { x, y } = this.graph.get(name);
      return { do: "move", name, at: { x: x + dx * GRID, y: y + dy * GRID } };
    }));
  }

  /** Selects the nearest item in a direction. */
  #go(dx, dy) {
    const from = this.only ?? this.canvas.middle();
    let [best, least] = [null, Infinity];
    for (const item of this.graph.items.values()) {
      if (item === from) continue;
      const [x, y] = [item.x - from.x, item.y - from.y];
      const ahead = x * dx + y * dy;
      const aside = Math.abs(x * dy) + Math.abs(y * dx);
      if (this.only && (ahead <= 0 || aside > 2.5 * ahead)) continue;
      const cost = this.only ? ahead + 2 * aside : Math.hypot(x, y);
      if (cost < least) [best, least] = [item, cost];
    }
    if (!best) return;
    this.select([best.name]);
    this.canvas.reveal(best);
  }

  /** Selects the next item in the order in which they were made. */
  #step(by) {
    const names = [...this.graph.items.keys()];
    if (names.length === 0) return;
    const at = this.only ? names.indexOf(this.only.name) : -1;
    const name = names[(at + by + names.length + (at < 0 && by < 0 ? 1 : 0)) % names.length];
    this.select([name]);
    this.canvas.reveal(this.graph.get(name));
  }

  /** A spot beside the selected item, or in the middle of the view, where nothing is. */
  #freeSpot() {
    const spot = this.only ? { x: this.only.x + BESIDE, y: this.only.y } : this.canvas.middle();
    const taken = () => [...this.graph.items.values()].some(({ x, y }) => Math.abs(x - spot.x) < 100 && Math.abs(y - spot.y) < 50);
    while (taken()) spot.y += 90;
    return spot;
  }
}

/** Puts the focus on the drawing. */
export function focusStage() {
  by("stage").focus({ preventScroll: true });
}

function snap(value) {
  return Math.round(value / GRID) * GRID;
}

function spread(pointers) {
  const [one, other] = [...pointers.values()];
  return {
    clientX: (one.clientX + other.clientX) / 2,
    clientY: (one.clientY + other.clientY) / 2,
    distance: Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY),
  };
}
