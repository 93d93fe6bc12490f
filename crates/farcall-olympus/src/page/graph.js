// The graph as the page knows it: items by name, edits, and how to undo them.

/** The size of a place and of a node, in pixels. */
export const RADIUS = 20;
export const WIDTH = 124;
export const HEIGHT = 46;

/** The distance to which positions are rounded. */
export const GRID = 10;

const MAX_UNDO = 500;

export class Graph {
  constructor() {
    this.name = "";
    this.about = "";
    /** Places and nodes by name: { kind, name, x, y, data, arcs, users }. */
    this.items = new Map();
    this.problems = [];
    this.undone = [];
    this.done = [];
    /** Called with the names that changed, and a map of the old names of renamed items to the new ones. */
    this.onchange = () => {};
    /** Called with edits that the server must make. */
    this.onedit = () => {};
  }

  /** Takes over a graph in the server's JSON, in which arcs number places. */
  load(json) {
    this.name = json.name;
    this.about = json.about ?? "";
    this.items.clear();
    this.done = [];
    this.undone = [];
    for (const place of json.places) this.#set("place", place.name, place);
    const named = (arcs) => (arcs ?? []).map((arc) => ({ ...arc, place: json.places[arc.place].name }));
    for (const node of json.nodes) this.#set("node", node.name, { ...node, in: named(node.in), out: named(node.out) });
    this.onchange(null, new Map());
  }

  get(name) {
    return this.items.get(name);
  }

  /** Makes edits, here at once and then at the server. They are undone as one. */
  edit(edits) {
    this.undone = [];
    this.done.push(this.#make(edits));
    if (this.done.length > MAX_UNDO) this.done.shift();
  }

  undo() {
    const edits = this.done.pop();
    if (edits) this.undone.push(this.#make(edits));
    return Boolean(edits);
  }

  redo() {
    const edits = this.undone.pop();
    if (edits) this.done.push(this.#make(edits));
    return Boolean(edits);
  }

  /** Changes properties of an item; one that becomes `undefined` is removed. */
  change(name, properties) {
    const { kind, data } = this.get(name);
    this.edit([{ do: kind, name, [kind]: { ...data, ...properties } }]);
  }

  /** Returns a name that nothing has. */
  freshName(stem) {
    for (let number = 1; ; number += 1) {
      if (!this.items.has(`${stem}${number}`)) return `${stem}${number}`;
    }
  }

  /** Adds an arc between a place and a node, in the order given. Returns the node's name. */
  connect(from, to) {
    const [one, other] = [this.get(from), this.get(to)];
    if (!one || !other || one.kind === other.kind) return null;
    const [node, place, side] = one.kind === "node" ? [one, other, "out"] : [other, one, "in"];
    const arc = { place: place.name };
    if (side === "in") arc.as = this.#variable(node, place);
    else if (node.data.call && !node.data.out.some((arc) => arc.value === "result")) arc.value = "result";
    this.change(node.name, { [side]: [...node.data[side], arc] });
    return node.name;
  }

  /** Returns the edits that remove items. */
  removal(names) {
    return names.map((name) => ({ do: "remove", name }));
  }

  /** A variable for the tokens of a place which no other input of the node has. */
  #variable(node, place) {
    const used = new Set(node.data.in.map((arc) => arc.as));
    const plain = place.name.replace(/[^A-Za-z0-9_]/g, "_").replace(/^(?=[0-9])/, "_");
    if (!used.has(plain)) return plain;
    for (let number = 2; ; number += 1) if (!used.has(`${plain}${number}`)) return `${plain}${number}`;
  }

  /** Makes edits and returns those that undo them. */
  #make(edits) {
    const inverse = [];
    const changed = new Set();
    const renamed = new Map();
    for (const edit of edits) {
      const now = edit[edit.do]?.name;
      if (now && now !== edit.name && this.items.has(edit.name)) renamed.set(edit.name, now);
      inverse.unshift(...this.#inverse(edit));
      this.#makeOne(edit, changed);
    }
    this.onedit(edits);
    this.onchange(changed, renamed);
    return inverse;
  }

  #inverse(edit) {
    const item = this.get(edit.name);
    switch (edit.do) {
      case "graph":
        return [{ do: "graph", name: this.name, about: this.about }];
      case "move":
        return [{ do: "move", name: edit.name, at: { x: item.x, y: item.y } }];
      case "remove": {
        const users = item.kind === "place" ? [...item.users] : [];
        return [
          { do: item.kind, name: edit.name, [item.kind]: item.data },
          ...users.map((node) => ({ do: "node", name: node, node: this.get(node).data })),
        ];
      }
      default: {
        const now = edit[edit.do].name;
        return item ? [{ do: edit.do, name: now, [edit.do]: item.data }] : [{ do: "remove", name: now }];
      }
    }
  }

  #makeOne(edit, changed) {
    switch (edit.do) {
      case "graph":
        this.name = edit.name;
        this.about = edit.about;
        break;
      case "move": {
        const item = this.get(edit.name);
        item.x = edit.at.x;
        item.y = edit.at.y;
        item.data = { ...item.data, at: edit.at };
        changed.add(edit.name);
        break;
      }
      case "remove":
        this.#remove(edit.name, changed);
        break;
      default: {
        const data = edit[edit.do];
        this.#set(edit.do, edit.name, data, changed);
        changed.add(edit.name).add(data.name);
      }
    }
  }

  #set(kind, name, data, changed) {
    const old = this.items.get(name);
    if (old) this.#release(old);
    const item = { kind, name: data.name, x: data.at?.x ?? 0, y: data.at?.y ?? 0, data, arcs: [], users: old?.users ?? new Set() };
    if (name !== data.name) this.items.delete(name);
    this.items.set(data.name, item);
    if (kind === "node") {
      data.in ??= [];
      data.out ??= [];
      for (const side of ["in", "out"]) {
        data[side].forEach((arc, index) => {
          item.arcs.push({ node: item, place: arc.place, side, index, data: arc });
          this.items.get(arc.place)?.users.add(item.name);
        });
      }
    } else if (name !== data.name) {
      // The place has another name now, and so have the arcs.
      for (const user of item.users) {
        const renamed = (arcs) => arcs.map((arc) => (arc.place === name ? { ...arc, place: data.name } : arc));
        const node = this.items.get(user).data;
        this.#set("node", user, { ...node, in: renamed(node.in), out: renamed(node.out) });
        changed?.add(user);
      }
    }
  }

  #remove(name, changed) {
    const item = this.items.get(name);
    this.#release(item);
    if (item.kind === "place") {
      for (const user of [...item.users]) {
        const others = (arcs) => arcs.filter((arc) => arc.place !== name);
        const node = this.items.get(user).data;
        this.#set("node", user, { ...node, in: others(node.in), out: others(node.out) });
        changed.add(user);
      }
    }
    this.items.delete(name);
    changed.add(name);
  }

  /** Makes the places of a node forget it. */
  #release(item) {
    if (item.kind !== "node") return;
    for (const arc of item.arcs) this.items.get(arc.place)?.users.delete(item.name);
  }
}
