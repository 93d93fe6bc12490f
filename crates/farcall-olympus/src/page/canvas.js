// Draws the graph: what is in view as SVG; when that is much, all of it on a canvas; moving tokens on the
// canvas.

import { s, replace } from "./dom.js";
import { HEIGHT, RADIUS, WIDTH } from "./graph.js";
import { Overview } from "./overview.js";

/** With more places and nodes in view, they are drawn on the canvas, without names. */
const MAX_DETAILED = 500;

/** Zoom, in pixels of the screen for each of the graph. */
const MIN_ZOOM = 0.02;
const MAX_ZOOM = 3;

/** How far outside of the view things are drawn as well, so that a pan need not draw at once. */
const MARGIN = 200;

/** The most tokens that are drawn on their way, and how long they take, in milliseconds. */
const MAX_FLYING = 120;
const FLIGHT = 420;

/** The most letters of a name in a node and under a place. */
const MAX_LETTERS = 17;
const MAX_CALL = 18;

const still = matchMedia("(prefers-reduced-motion: reduce)");

export class Canvas {
  constructor(stage, graph, live) {
    this.stage = stage;
    this.graph = graph;
    this.live = live;
    this.view = { x: 0, y: 0, zoom: 1 };
    this.selected = new Set();
    this.selectedArc = null;
    /** What is drawn while the mouse draws it: an arc without an end, a box. */
    this.sketch = null;
    this.elements = new Map();
    this.far = new Overview(this, () => this.#drawCanvas());
    this.dirty = null;
    this.flying = [];
    this.arcLayer = s("g", { class: "arcs" });
    this.itemLayer = s("g", { class: "items" });
    this.sketchLayer = s("g", { class: "sketch" });
    this.world = s("g", {}, this.arcLayer, this.itemLayer, this.sketchLayer);
    this.svg = s("svg", { "aria-hidden": "false", focusable: "false" }, markers(), this.world);
    this.canvas = document.createElement("canvas");
    this.canvas.setAttribute("aria-hidden", "true");
    stage.prepend(this.svg, this.canvas);
    this.ink = this.canvas.getContext("2d");
    new ResizeObserver(() => this.#resize()).observe(stage);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.colours = null;
      this.far.note(null);
      this.draw();
    });
    this.#resize();
  }

  /** Draws before the next picture: everything, or what has these names. */
  draw(names = null) {
    if (this.dirty === undefined) {
      this.dirty = names && new Set(names);
      requestAnimationFrame(() => this.#frame());
    } else if (names && this.dirty) {
      for (const name of names) this.dirty.add(name);
    } else {
      this.dirty = null;
    }
  }

  /** Converts a position on the screen to one in the graph. */
  toGraph({ clientX, clientY }) {
    const box = this.stage.getBoundingClientRect();
    const { x, y, zoom } = this.view;
    return { x: (clientX - box.left) / zoom + x, y: (clientY - box.top) / zoom + y };
  }

  /** Returns the place or node at a position of the graph. */
  itemAt({ x, y }, slack = 3 / this.view.zoom) {
    let found = null;
    for (const item of this.graph.items.values()) {
      const [dx, dy] = [x - item.x, y - item.y];
      const within =
        item.kind === "place"
          ? Math.hypot(dx, dy) <= RADIUS + slack
          : Math.abs(dx) <= WIDTH / 2 + slack && Math.abs(dy) <= HEIGHT / 2 + slack;
      if (within) found = item;
    }
    return found;
  }

  /** Returns the arc at a position of the graph. */
  arcAt(at, slack = 7 / this.view.zoom) {
    if (this.overview) return null;
    for (const item of this.graph.items.values()) {
      for (const arc of item.arcs) {
        const place = this.graph.get(arc.place);
        if (!place || outside(at.x, item.x, place.x) || outside(at.y, item.y, place.y)) continue;
        const shape = this.shape(arc);
        if (shape && distance(at, shape) <= slack) return arc;
      }
    }
    return null;
  }

  pan(dx, dy) {
    this.fitted = false;
    this.view.x += dx / this.view.zoom;
    this.view.y += dy / this.view.zoom;
    this.draw([]);
  }

  /** Zooms by a factor around a position of the graph, or the middle of the view. */
  zoom(factor, at = this.middle()) {
    this.fitted = false;
    const zoom = Math.min(MAX_ZOOM, Math.max(MIN_ZOOM, this.view.zoom * factor));
    const ratio = this.view.zoom / zoom;
    this.view = { x: at.x + (this.view.x - at.x) * ratio, y: at.y + (this.view.y - at.y) * ratio, zoom };
    this.draw([]);
  }

  middle() {
    const { x, y, zoom } = this.view;
    return { x: x + this.width / zoom / 2, y: y + this.height / zoom / 2 };
  }

  /** Shows the whole graph, also when the view's size changes. */
  fit() {
    this.fitted = true;
    let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
    for (const { x, y } of this.graph.items.values()) {
      left = Math.min(left, x - WIDTH / 2);
      right = Math.max(right, x + WIDTH / 2);
      top = Math.min(top, y - 40);
      bottom = Math.max(bottom, y + 50);
    }
    if (left > right) [left, top, right, bottom] = [0, 0, 600, 400];
    const room = 28;
    const fitting = Math.min(
      (this.width - 2 * room) / (right - left),
      (this.height - 2 * room) / (bottom - top),
    );
    const zoom = Math.min(1.15, Math.max(MIN_ZOOM, fitting));
    this.view = {
      x: (left + right) / 2 - this.width / zoom / 2,
      y: (top + bottom) / 2 - this.height / zoom / 2,
      zoom,
    };
    this.draw([]);
  }

  /** Moves the view so that an item is in it. */
  reveal(item) {
    const { x, y, zoom } = this.view;
    const room = 80 / zoom;
    const [right, bottom] = [x + this.width / zoom, y + this.height / zoom];
    if (item.x - room >= x && item.x + room <= right && item.y - room >= y && item.y + room <= bottom)
      return this.draw([]);
    this.fitted = false;
    if (item.x - room < x || item.x + room > right) this.view.x = item.x - this.width / zoom / 2;
    if (item.y - room < y || item.y + room > bottom) this.view.y = item.y - this.height / zoom / 2;
    this.draw([]);
  }

  /** Lets tokens fly along the arcs of a node, from or to those places that changed. */
  fly(node, side, changed) {
    if (still.matches || document.hidden) return;
    for (const arc of this.graph.get(node)?.arcs ?? []) {
      const moves = arc.side === side && (arc.data.kind ?? "take") === "take" && changed.has(arc.place);
      if (moves && this.flying.length < MAX_FLYING) this.flying.push({ arc, began: performance.now() });
    }
    if (this.flying.length > 0) this.#animate();
  }

  /** Returns the ends and the middle of an arc as it is drawn: { from, via, to }. */
  shape({ node, place, side, index }) {
    const at = this.graph.get(place);
    if (!at) return null;
    const [dx, dy] = [at.x - node.x, at.y - node.y];
    const length = Math.hypot(dx, dy) || 1;
    // Several arcs between the same two bend away from each other.
    const twins = node.arcs.filter((arc) => arc.place === place);
    const order = twins.findIndex((arc) => arc.side === side && arc.index === index);
    const bend = twins.length < 2 ? 0 : 34 * (order - (twins.length - 1) / 2);
    const via = {
      x: (node.x + at.x) / 2 - (dy / length) * bend,
      y: (node.y + at.y) / 2 + (dx / length) * bend,
    };
    const [near, far] = [edge(node, via), edge(at, via)];
    return side === "in" ? { from: far, via, to: near } : { from: near, via, to: far };
  }

  #resize() {
    const { width, height } = this.stage.getBoundingClientRect();
    const was = this.width && { width: this.width, height: this.height };
    this.width = width;
    this.height = height;
    // What was in the middle stays there; the whole graph stays whole.
    if (this.fitted) this.fit();
    else if (was)
      [this.view.x, this.view.y] = [
        this.view.x + (was.width - width) / 2 / this.view.zoom,
        this.view.y + (was.height - height) / 2 / this.view.zoom,
      ];
    this.density = Math.min(2, devicePixelRatio || 1);
    this.canvas.width = Math.round(width * this.density);
    this.canvas.height = Math.round(height * this.density);
    this.#frame();
  }

  #frame() {
    const names = this.dirty ?? null;
    this.dirty = undefined;
    this.far.note(names);
    const { x, y, zoom } = this.view;
    this.world.setAttribute("transform", `scale(${zoom}) translate(${-x} ${-y})`);
    const visible = this.#visible();
    this.overview = visible === null;
    this.stage.classList.toggle("overview", this.overview);
    if (this.overview) {
      if (this.elements.size > 0) this.#clear();
    } else {
      this.#drawDetails(visible, names);
    }
    this.#drawSketch();
    this.#drawCanvas();
    this.stage.setAttribute("aria-activedescendant", this.#active() ?? "");
  }

  #active() {
    if (this.selected.size !== 1) return null;
    return this.elements.get([...this.selected][0])?.id;
  }

  /** Returns the items in view, or `null` if there are too many to draw in detail. */
  #visible() {
    const { x, y, zoom } = this.view;
    const margin = MARGIN / zoom;
    const [left, top] = [x - margin, y - margin];
    const [right, bottom] = [x + this.width / zoom + margin, y + this.height / zoom + margin];
    const items = [];
    for (const item of this.graph.items.values()) {
      if (item.x < left || item.x > right || item.y < top || item.y > bottom) continue;
      if (items.push(item) > MAX_DETAILED) return null;
    }
    this.bounds = { left, top, right, bottom };
    return items;
  }

  #clear() {
    this.elements.clear();
    replace(this.arcLayer);
    replace(this.itemLayer);
  }

  #drawDetails(items, names) {
    const arcs = this.#visibleArcs();
    const wanted = new Set();
    const touched = (arc) => !names || names.has(arc.place) || names.has(arc.node.name);
    const put = (key, layer, fresh, make) => {
      wanted.add(key);
      const old = this.elements.get(key);
      if (old && !fresh) return;
      const element = make();
      if (old) old.replaceWith(element);
      else layer.append(element);
      this.elements.set(key, element);
    };
    for (const arc of arcs) {
      const key = `${arc.node.name}\n${arc.side}\n${arc.index}`;
      put(key, this.arcLayer, touched(arc), () => this.#drawArc(arc));
    }
    for (const item of items) {
      put(item.name, this.itemLayer, !names || names.has(item.name), () => this.#drawItem(item));
    }
    for (const [key, element] of this.elements) {
      if (wanted.has(key)) continue;
      element.remove();
      this.elements.delete(key);
    }
  }

  #visibleArcs() {
    const { left, top, right, bottom } = this.bounds;
    const arcs = [];
    for (const item of this.graph.items.values()) {
      for (const arc of item.arcs) {
        const place = this.graph.get(arc.place);
        if (!place) continue;
        const outside =
          Math.max(item.x, place.x) < left ||
          Math.min(item.x, place.x) > right ||
          Math.max(item.y, place.y) < top ||
          Math.min(item.y, place.y) > bottom;
        if (!outside) arcs.push(arc);
      }
    }
    return arcs;
  }

  #drawItem(item) {
    const chosen = this.selected.has(item.name);
    const group = s("g", {
      id: `item-${item.name}`,
      class: `item ${item.kind}${chosen ? " selected" : ""}`,
      transform: `translate(${item.x} ${item.y})`,
      role: "img",
      "aria-label": describe(item, this.live),
      "data-name": item.name,
    });
    if (item.kind === "place") drawPlace(group, item, this.live.tokens(item.name));
    else drawNode(group, item, this.live.active(item.name), this.live.stopped(item.name));
    const problem = this.graph.problems.find((problem) => problem.item === item.name);
    if (problem) {
      const [x, y] = item.kind === "place" ? [-RADIUS, -RADIUS] : [-WIDTH / 2, -HEIGHT / 2];
      group.append(
        s(
          "g",
          { class: `problem${problem.warning ? " warning" : ""}`, transform: `translate(${x} ${y})` },
          s("circle", { r: 8 }),
          s("text", { y: 4 }, "!"),
          s("title", {}, problem.message),
        ),
      );
    }
    return group;
  }

  #drawArc(arc) {
    const shape = this.shape(arc);
    const { from, via, to } = shape;
    const { kind = "take", weight = 1, on, if: condition } = arc.data;
    const chosen =
      this.selectedArc &&
      this.selectedArc.node.name === arc.node.name &&
      this.selectedArc.side === arc.side &&
      this.selectedArc.index === arc.index;
    const classes = ["arc", kind, on ? "exception" : "", chosen ? "selected" : ""].filter(Boolean).join(" ");
    const marker = kind === "inhibit" ? "stop" : chosen ? "arrow-selected" : on ? "arrow-exception" : "arrow";
    const path = `M${from.x} ${from.y} Q${via.x} ${via.y} ${to.x} ${to.y}`;
    const texts = [
      weight === 1 ? "" : `×${weight}`,
      on ? `on ${short(on)}` : "",
      condition ? `if ${short(condition)}` : "",
    ];
    const text = texts.filter(Boolean).join(" ");
    const middle = along(shape, 0.5);
    return s(
      "g",
      { class: classes },
      s("path", { d: path, "marker-end": `url(#${marker})` }),
      text ? s("text", { x: middle.x, y: middle.y - 5 }, text) : null,
    );
  }

  #drawSketch() {
    const sketch = this.sketch;
    if (!sketch) return replace(this.sketchLayer);
    const { from, to } = sketch;
    replace(
      this.sketchLayer,
      sketch.kind === "arc"
        ? s("path", { d: `M${from.x} ${from.y} L${to.x} ${to.y}`, "marker-end": "url(#arrow-selected)" })
        : s("rect", {
            x: Math.min(from.x, to.x),
            y: Math.min(from.y, to.y),
            width: Math.abs(from.x - to.x),
            height: Math.abs(from.y - to.y),
          }),
    );
  }

  #drawCanvas() {
    const { ink, density } = this;
    ink.setTransform(1, 0, 0, 1, 0, 0);
    ink.clearRect(0, 0, this.canvas.width, this.canvas.height);
    this.colours ??= colours(this.stage);
    const { x, y, zoom } = this.view;
    ink.setTransform(zoom * density, 0, 0, zoom * density, -x * zoom * density, -y * zoom * density);
    if (this.overview) this.far.draw(ink);
    this.#drawFlying();
  }

  #drawFlying() {
    const now = performance.now();
    this.flying = this.flying.filter(({ began }) => now - began < FLIGHT);
    this.ink.fillStyle = this.colours.accent;
    for (const { arc, began } of this.flying) {
      const shape = this.shape(arc);
      if (!shape) continue;
      const part = (now - began) / FLIGHT;
      const { x, y } = along(shape, part * part * (3 - 2 * part));
      this.ink.beginPath();
      this.ink.arc(x, y, Math.max(5, 3 / this.view.zoom), 0, 2 * Math.PI);
      this.ink.fill();
    }
  }

  #animate() {
    if (this.animating) return;
    this.animating = true;
    const step = () => {
      this.#drawCanvas();
      this.animating = this.flying.length > 0;
      if (this.animating) requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }
}

/** Describes an item to those who do not see it. */
export function describe(item, live) {
  const { data } = item;
  if (item.kind === "place") {
    const count = live.tokens(item.name);
    return `place ${item.name}, ${count} token${count === 1 ? "" : "s"}${data.capacity ? ` of at most ${data.capacity}` : ""}`;
  }
  const call = data.call ? `, calls ${data.call.server}.${data.call.name}` : ", calls nothing";
  const from = data.in.map((arc) => arc.place).join(", ");
  const to = data.out.map((arc) => arc.place).join(", ");
  const state = live.stopped(item.name)
    ? ", stopped"
    : live.active(item.name)
      ? `, ${live.active(item.name)} under way`
      : "";
  return `node ${item.name}${call}${state}${from && `, from ${from}`}${to && `, to ${to}`}`;
}

function drawPlace(group, { name, data }, tokens) {
  group.append(s("circle", { class: "body", r: RADIUS }));
  const spots = [
    [],
    [[0, 0]],
    [
      [-6, 0],
      [6, 0],
    ],
    [
      [-6, 5],
      [6, 5],
      [0, -6],
    ],
    [
      [-6, -6],
      [6, -6],
      [-6, 6],
      [6, 6],
    ],
  ][tokens];
  if (spots) for (const [cx, cy] of spots) group.append(s("circle", { class: "token", cx, cy, r: 4.5 }));
  else
    group.append(
      s("text", { class: "count", y: 5 }, tokens > 9999 ? `${Math.floor(tokens / 1000)}k` : String(tokens)),
    );
  if (data.capacity != null)
    group.append(s("text", { class: "small", y: -RADIUS - 6 }, `≤ ${data.capacity}`));
  group.append(
    s("text", { class: "name", y: RADIUS + 16 }, short(data.label || name, 22)),
    s("title", {}, data.label || name),
  );
}

function drawNode(group, { name, data }, active, stopped) {
  if (active) group.classList.add("busy");
  if (stopped) group.classList.add("failed");
  group.append(
    s("rect", { class: "body", x: -WIDTH / 2, y: -HEIGHT / 2, width: WIDTH, height: HEIGHT, rx: 5 }),
  );
  const call = data.call ? procedure(data.call) : null;
  group.append(s("text", { class: "name", y: call ? -3 : 4 }, short(data.label || name)));
  if (call) group.append(s("text", { class: "call", y: 14 }, call));
  group.append(
    s(
      "title",
      {},
      call ? `${data.label || name}: ${data.call.server}.${data.call.name}` : data.label || name,
    ),
  );
  const conditions = [
    data.guard && `[${short(data.guard, 22)}]`,
    data.after && `after ${data.after}`,
    data.priority && `priority ${data.priority}`,
    data.join && data.join !== "all" && `join ${data.join}`,
    data.split && data.split !== "all" && `split ${data.split}`,
  ];
  const below = conditions.filter(Boolean).join(" · ");
  if (below) group.append(s("text", { class: "small", y: HEIGHT / 2 + 14 }, short(below, 34)));
  const badge = stopped ? "!" : active > 0 ? String(active) : null;
  if (badge) {
    group.append(
      s(
        "g",
        { class: "badge", transform: `translate(${WIDTH / 2 - 2} ${-HEIGHT / 2 + 2})` },
        s("circle", { r: badge.length > 2 ? 13 : 10 }),
        s("text", { y: 4 }, badge),
      ),
    );
  }
}

function markers() {
  const arrow = (id) =>
    s(
      "marker",
      {
        id,
        viewBox: "0 0 10 10",
        refX: 9,
        refY: 5,
        markerWidth: 9,
        markerHeight: 9,
        orient: "auto",
        markerUnits: "userSpaceOnUse",
      },
      s("path", { d: "M0 1 L10 5 L0 9 z" }),
    );
  return s(
    "defs",
    {},
    arrow("arrow"),
    arrow("arrow-selected"),
    arrow("arrow-exception"),
    s(
      "marker",
      {
        id: "stop",
        viewBox: "0 0 12 12",
        refX: 11,
        refY: 6,
        markerWidth: 12,
        markerHeight: 12,
        orient: "auto",
        markerUnits: "userSpaceOnUse",
      },
      s("circle", { cx: 6, cy: 6, r: 4.5 }),
    ),
  );
}

function short(text, letters = MAX_LETTERS) {
  const all = [...text];
  return all.length > letters ? `${all.slice(0, letters - 1).join("")}…` : text;
}

/** Names a procedure in the width of a node. Its own name counts more than its server's. */
function procedure({ server, name }) {
  const own = short(name, MAX_CALL - 4);
  return `${short(server, Math.max(3, MAX_CALL - 1 - own.length))}.${own}`;
}

/** Returns where the line from an item to a point leaves the item. */
function edge(item, to) {
  const [dx, dy] = [to.x - item.x, to.y - item.y];
  const length = Math.hypot(dx, dy);
  if (length === 0) return { x: item.x, y: item.y };
  const part =
    item.kind === "place"
      ? RADIUS / length
      : Math.min(WIDTH / 2 / Math.abs(dx || 1e-9), HEIGHT / 2 / Math.abs(dy || 1e-9));
  return { x: item.x + dx * part, y: item.y + dy * part };
}

/** Returns a point of an arc, 0 at its beginning and 1 at its end. */
function along({ from, via, to }, part) {
  const [a, b, c] = [(1 - part) ** 2, 2 * part * (1 - part), part ** 2];
  return { x: a * from.x + b * via.x + c * to.x, y: a * from.y + b * via.y + c * to.y };
}

/** Tells whether a coordinate is far from what is between two others. */
function outside(at, one, other) {
  return at < Math.min(one, other) - 40 || at > Math.max(one, other) + 40;
}

function distance(at, shape) {
  let least = Infinity;
  for (let step = 0; step < 12; step += 1) {
    const [one, other] = [along(shape, step / 12), along(shape, (step + 1) / 12)];
    const [dx, dy] = [other.x - one.x, other.y - one.y];
    const part = Math.max(
      0,
      Math.min(1, ((at.x - one.x) * dx + (at.y - one.y) * dy) / (dx * dx + dy * dy || 1)),
    );
    least = Math.min(least, Math.hypot(at.x - one.x - part * dx, at.y - one.y - part * dy));
  }
  return least;
}

function colours(element) {
  const style = getComputedStyle(element);
  const names = ["accent", "arc", "bad", "busy", "node", "outline", "surface", "token"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}
