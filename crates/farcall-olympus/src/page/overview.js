// Draws a large graph without names. What was drawn is kept as a picture, which a pan moves and an edit is drawn upon.

import { HEIGHT, RADIUS, WIDTH } from "./graph.js";

/** The lines that are drawn at a time. Many short paths are faster than a long one. */
const LINES_A_PATH = 200;

/** With more changed items, everything is drawn. */
const MAX_CHANGED = 1000;

/** How long the kept picture may be out of date, in milliseconds. Drawing everything takes a part of that. */
const REDRAW_AFTER = 250;

export class Overview {
  /** `redraw` has the canvas drawn again. */
  constructor(canvas, redraw) {
    this.owner = canvas;
    this.redraw = redraw;
    this.kept = document.createElement("canvas");
    this.view = null;
    this.changed = new Set();
  }

  /** Notes that items with these names look different, or everything for `null`. */
  note(names) {
    if (names === null || this.changed.size + names.size > MAX_CHANGED) this.view = null;
    else for (const name of names) this.changed.add(name);
  }

  /** Draws everything. */
  draw(ink) {
    const { graph, view, canvas } = this.owner;
    const same = this.view && this.kept.width === canvas.width && this.kept.height === canvas.height;
    if (!same) this.#keep();
    this.#blit(ink);
    if (this.changed.size > 0) this.#paint(ink, [...this.changed].map((name) => graph.get(name)).filter(Boolean));
    const moved = this.view.x !== view.x || this.view.y !== view.y || this.view.zoom !== view.zoom;
    if (moved || this.changed.size > 0) this.#later();
  }

  #later() {
    this.timer ??= setTimeout(() => {
      this.timer = null;
      this.view = null;
      this.redraw();
    }, REDRAW_AFTER);
  }

  #keep() {
    const { graph, view, canvas, density } = this.owner;
    this.kept.width = canvas.width;
    this.kept.height = canvas.height;
    const ink = this.kept.getContext("2d");
    ink.setTransform(view.zoom * density, 0, 0, view.zoom * density, -view.x * view.zoom * density, -view.y * view.zoom * density);
    this.#paint(ink, graph.items.values());
    this.view = { ...view };
    this.changed.clear();
  }

  /** Draws what is kept where it belongs in the view as it is now. */
  #blit(ink) {
    const { x, y, zoom } = this.view;
    const { density } = this.owner;
    ink.imageSmoothingEnabled = true;
    ink.drawImage(this.kept, x, y, this.kept.width / zoom / density, this.kept.height / zoom / density);
  }

  /** Draws items and the arcs of the nodes among them, those of one colour at once. */
  #paint(ink, items) {
    const { graph, live, view: { x, y, zoom }, width: wide, height: high, selected, colours } = this.owner;
    const [right, bottom] = [x + wide / zoom, y + high / zoom];
    const inView = (item) => item.x > x - WIDTH && item.x < right + WIDTH && item.y > y - HEIGHT && item.y < bottom + HEIGHT;
    const groups = new Map();
    ink.lineWidth = Math.max(1, 0.8 / zoom);
    ink.strokeStyle = colours.arc;
    ink.beginPath();
    let lines = 0;
    for (const item of items) {
      const seen = inView(item);
      for (const arc of item.arcs) {
        const place = graph.get(arc.place);
        if (!place || !(seen || inView(place))) continue;
        ink.moveTo(item.x, item.y);
        ink.lineTo(place.x, place.y);
        if ((lines += 1) % LINES_A_PATH !== 0) continue;
        ink.stroke();
        ink.beginPath();
      }
      if (!seen) continue;
      const colour = selected.has(item.name) ? colours.accent
        : item.kind === "place" ? (live.tokens(item.name) > 0 ? colours.token : colours.surface)
        : live.stopped(item.name) ? colours.bad
        : live.active(item.name) > 0 ? colours.busy : colours.node;
      if (!groups.has(colour)) groups.set(colour, []);
      groups.get(colour).push(item);
    }
    ink.stroke();
    ink.strokeStyle = colours.outline;
    for (const [colour, group] of groups) this.#shapes(ink, colour, group, zoom * RADIUS < 4);
  }

  #shapes(ink, colour, items, small) {
    const { colours } = this.owner;
    ink.fillStyle = colour === colours.surface && small ? colours.outline : colour;
    for (const item of items) {
      const [width, height] = item.kind === "place" ? [RADIUS * 1.8, RADIUS * 1.8] : [WIDTH, HEIGHT];
      if (small) {
        ink.fillRect(item.x - width / 2, item.y - height / 2, width, height);
        continue;
      }
      ink.beginPath();
      if (item.kind === "place") ink.arc(item.x, item.y, RADIUS, 0, 2 * Math.PI);
      else ink.rect(item.x - width / 2, item.y - height / 2, width, height);
      ink.fill();
      ink.stroke();
    }
  }
}
