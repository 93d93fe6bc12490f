// The panel beside the drawing: everything about what is selected, to read and to change.

import { by, field, h, notify, replace } from "./dom.js";
import { get } from "./client.js";

const MAX_FOUND = 30;
const MAX_LISTED = 60;
const MAX_CHOICES = 2000;

export class Inspector {
  constructor({ graph, live, run, editor, failures, exports }) {
    Object.assign(this, { graph, live, run, editor, failures, exports });
    this.panel = by("inspector");
    this.panel.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      // What was typed counts.
      document.activeElement?.blur();
      by("stage").focus();
    });
  }

  /** Shows what is selected now, after the event that brought the change has moved the focus. */
  showLater(renamed) {
    this.shown = renamed.get(this.shown) ?? this.shown;
    this.later ??= setTimeout(() => this.show());
  }

  /** Shows what is selected now. What is being typed stays. */
  show() {
    clearTimeout(this.later);
    this.later = null;
    const {
      only,
      canvas: { selected, selectedArc },
    } = this.editor;
    const active = this.panel.contains(document.activeElement) ? document.activeElement : null;
    const scroll = this.panel.scrollTop;
    const subject = selectedArc ? this.graph.get(selectedArc.node.name) : only;
    const same = this.shown === (subject?.name ?? "");
    this.shown = subject?.name ?? "";
    this.now = null;
    if (subject) this.#item(subject, selectedArc);
    else if (selected.size > 1) this.#several(selected);
    else this.#whole();
    if (same) this.panel.scrollTop = scroll;
    if (active?.dataset.field && same)
      resume(this.panel.querySelector(`[data-field="${CSS.escape(active.dataset.field)}"]`), active);
  }

  /** Shows the numbers that change while the graph runs. */
  refresh(names) {
    const { only } = this.editor;
    if (!only || !this.now || (names && !names.has(only.name))) return;
    this.now();
  }

  /** Puts the focus on a field. */
  focus(name) {
    const input = name
      ? this.panel.querySelector(`[data-field="${name}"]`)
      : this.panel.querySelector("input, select, textarea, button");
    input?.focus();
    if (name) input?.select?.();
  }

  #title(text, kind) {
    replace(by("inspector-title"), kind ? h("span", { class: "kind" }, kind) : null, text);
  }

  #item(item, arc) {
    this.#title(item.name, item.kind);
    const { data } = item;
    const problems = this.graph.problems.filter((problem) => problem.item === item.name);
    replace(
      this.panel,
      problems.map(problemLine),
      h(
        "div",
        { class: "pair" },
        field(
          "Name",
          this.#text(item, "name", data.name, (name) => this.#rename(item, name.trim())),
        ),
        field(
          "Label",
          this.#text(item, "label", data.label, (label) =>
            this.#set(item, { label: label.trim() || undefined }),
          ),
        ),
      ),
      item.kind === "place" ? this.#place(item) : this.#node(item, arc),
      h(
        "div",
        { class: "row end" },
        h(
          "button",
          {
            class: "danger plain",
            onclick: () => {
              this.editor.remove();
              by("stage").focus();
            },
          },
          arc ? "Delete the arc" : `Delete the ${item.kind}`,
        ),
      ),
    );
  }

  #place(item) {
    const { data } = item;
    const tokens = (data.tokens ?? []).map((token) => JSON.stringify(token)).join("\n");
    const users = [...item.users].map((name) => this.graph.get(name));
    const takers = users.filter((node) => node.data.in.some((arc) => arc.place === item.name));
    const givers = users.filter((node) => node.data.out.some((arc) => arc.place === item.name));
    return [
      h(
        "div",
        { class: "pair" },
        field(
          "Type",
          this.#text(item, "type", data.type, (type) => this.#set(item, { type: type.trim() || undefined }), {
            placeholder: "any",
          }),
        ),
        field(
          "Capacity",
          this.#number(item, "capacity", data.capacity, (capacity) => this.#set(item, { capacity }), {
            min: 1,
            placeholder: "no bound",
          }),
        ),
      ),
      this.#tokensNow(item),
      field(
        "Tokens at the beginning",
        this.#area(item, "tokens", tokens, (text) => this.#initialTokens(item, text)),
        "JSON, one token a line; null is a plain token",
      ),
      h(
        "section",
        { class: "group" },
        h("h3", {}, "Arcs"),
        givers.length + takers.length === 0
          ? h("p", { class: "hint" }, "None. Draw one with the arc tool, or press A.")
          : null,
        givers.length ? h("p", { class: "links" }, "From ", this.#links(givers)) : null,
        takers.length ? h("p", { class: "links" }, "To ", this.#links(takers)) : null,
      ),
    ];
  }

  #tokensNow(item) {
    const count = h("strong", {});
    const list = h("ol", {
      class: "tokens code",
      "aria-label": "Tokens, those that leave first at the beginning",
    });
    const value = h("input", {
      type: "text",
      class: "code",
      value: "null",
      spellcheck: "false",
      autocomplete: "off",
      "aria-label": "Value of a new token, in JSON",
      "data-field": "put",
    });
    const put = async (event) => {
      event.preventDefault();
      const token = this.#json(value);
      if (token !== undefined) await this.run.command({ do: "put", place: item.name, token });
    };
    let asked = 0;
    this.now = async () => {
      const number = (asked += 1);
      const there = this.live.tokens(item.name);
      count.textContent = `${there} now`;
      const tokens =
        there === 0 ? [] : await get(`tokens?place=${encodeURIComponent(item.name)}`).catch(() => []);
      if (number !== asked) return;
      replace(
        list,
        tokens.slice(0, MAX_LISTED).map((token) => h("li", {}, JSON.stringify(token))),
        there > MAX_LISTED ? h("li", { class: "hint" }, `and ${there - MAX_LISTED} more`) : null,
      );
    };
    this.now();
    return h(
      "section",
      { class: "group" },
      h("h3", {}, "Tokens ", count),
      list,
      h(
        "form",
        { class: "row", onsubmit: put },
        value,
        h("button", { title: "T" }, "Put"),
        h(
          "button",
          {
            type: "button",
            title: "Shift+T",
            onclick: () => this.run.command({ do: "take", place: item.name, count: 1 }),
          },
          "Take first",
        ),
      ),
    );
  }

  #initialTokens(item, text) {
    const tokens = [];
    for (const [index, line] of text.split("\n").entries()) {
      if (!line.trim()) continue;
      try {
        tokens.push(JSON.parse(line));
      } catch {
        return notify(`Line ${index + 1} is not JSON: ${line}`, "error");
      }
    }
    this.#set(item, { tokens: tokens.length ? tokens : undefined });
  }

  #node(item, arc) {
    const { data } = item;
    const expression = (name, value, change, more) =>
      this.#text(item, name, value, (text) => change(text.trim() || undefined), { class: "code", ...more });
    return [
      this.#stopped(item),
      this.#procedure(item),
      h(
        "section",
        { class: "group" },
        h("h3", {}, "Fires when"),
        field(
          "Guard",
          expression("guard", data.guard, (guard) => this.#set(item, { guard }), { placeholder: "always" }),
        ),
        h(
          "div",
          { class: "pair" },
          field(
            "Join",
            this.#choice(
              item,
              "join",
              data.join ?? "all",
              { all: "all inputs", any: "any inputs", one: "one input" },
              (join) => this.#set(item, { join }),
            ),
          ),
          field(
            "Split",
            this.#choice(
              item,
              "split",
              data.split ?? "all",
              { all: "all outputs", any: "each that is true", one: "the first true" },
              (split) => this.#set(item, { split }),
            ),
          ),
        ),
        h(
          "div",
          { class: "pair" },
          field(
            "Priority",
            this.#number(item, "priority", data.priority ?? 0, (priority) =>
              this.#set(item, { priority: priority || undefined }),
            ),
          ),
          field(
            "After",
            this.#text(
              item,
              "after",
              data.after,
              (after, input) => {
                if (!input.checkValidity()) return input.reportValidity();
                this.#set(item, { after: after || undefined });
              },
              {
                pattern: "[0-9]+(\\.[0-9]{1,9})?(ns|us|ms|s|min|h)",
                title: "a time, as 10ms, 1.5s, 2min or 1h",
                placeholder: "0, or as 10ms",
              },
            ),
          ),
        ),
      ),
      this.#arcs(item, "in", arc),
      this.#arcs(item, "out", arc),
    ];
  }

  #stopped(item) {
    const box = h("div", { class: "stopped" });
    this.now = () => {
      const failures = this.live.failures.filter((failure) => failure.name === item.name).slice(0, 5);
      const { error, begun, ended } = this.live.node(item.name);
      replace(
        box,
        h("p", { class: "hint" }, `${begun} begun, ${ended} ended`),
        failures.length === 0 && error ? h("p", { class: "problem-line warning" }, error) : null,
        failures.map((failure) =>
          h(
            "button",
            { class: "failure", onclick: () => this.failures.inspect(failure.firing) },
            h("strong", {}, "Stopped"),
            h("span", { class: "error" }, failure.error ?? ""),
          ),
        ),
      );
    };
    this.now();
    return box;
  }

  #procedure(item) {
    const call = item.data.call;
    const change = (properties) => {
      const next = { server: "", name: "", ...call, ...properties };
      this.#set(item, { call: next.server || next.name ? next : undefined });
    };
    const pick = h(
      "button",
      {
        type: "button",
        "data-field": "pick",
        onclick: () => this.exports.pick((choice) => this.#annotate(item, choice)),
      },
      "Pick…",
    );
    const known = call && this.exports.find(call.server, call.name);
    const note = !call
      ? "The node only moves tokens."
      : known
        ? known.signature
        : this.exports.ready && !call.definition
          ? "Nobody exports this now. It is looked for each time that the node fires."
          : "";
    return h(
      "section",
      { class: "group" },
      h("h3", {}, "Procedure ", pick),
      h(
        "div",
        { class: "pair" },
        field(
          "Server",
          this.#text(item, "server", call?.server, (server) => change({ server: server.trim() }), {
            class: "code",
            list: "servers",
          }),
        ),
        field(
          "Name",
          this.#text(item, "procedure", call?.name, (name) => change({ name: name.trim() }), {
            class: "code",
          }),
        ),
      ),
      note ? h("p", { class: call && !known ? "hint warning" : "hint code" }, note) : null,
      call
        ? [
            field(
              "Arguments",
              this.#text(
                item,
                "arguments",
                call.arguments,
                (text) => change({ arguments: text.trim() || undefined }),
                { class: "code", placeholder: "none" },
              ),
            ),
            field(
              "Definition",
              this.#text(
                item,
                "definition",
                call.definition,
                (text) => change({ definition: text.trim() || undefined }),
                { class: "code", placeholder: "a .x or .cr file, if the server needs one" },
              ),
            ),
            h(
              "label",
              { class: "check" },
              h("input", {
                type: "checkbox",
                "data-field": "idempotent",
                ...(call.idempotent ? { checked: true } : {}),
                onchange: (event) => change({ idempotent: event.target.checked || undefined }),
              }),
              "May be called again when it is not known whether it ran",
            ),
          ]
        : null,
    );
  }

  /** Annotates a node with a procedure that is exported now. */
  #annotate(item, { server, procedure }) {
    const variables = item.data.in.filter((arc) => (arc.kind ?? "take") !== "inhibit").map((arc) => arc.as);
    const all = procedure.arguments.map(
      (name, index) => variables[index] ?? (variables.includes(name) ? name : "null"),
    );
    const call = { server, name: procedure.name, arguments: all.length ? `[${all.join(", ")}]` : undefined };
    const out = !/\) -> /.test(procedure.signature)
      ? item.data.out
      : item.data.out.map((arc, index) =>
          index === 0 && arc.value == null && !arc.on ? { ...arc, value: "result" } : arc,
        );
    this.#set(item, { call, out });
    this.show();
    this.focus("arguments");
  }

  #arcs(item, side, chosen) {
    const names = side === "in" ? ["Takes from", "From"] : ["Puts into", "To"];
    const arcs = item.data[side];
    const change = (index, properties) =>
      this.#set(item, {
        [side]: arcs.map((arc, at) => (at === index ? clean({ ...arc, ...properties }) : arc)),
      });
    const rows = arcs.map((arc, index) => {
      const key = `${side}${index}`;
      const text = (name, value, then, more) =>
        this.#text(item, `${key}-${name}`, value, (text) => then(text.trim() || undefined), {
          class: "code",
          ...more,
        });
      const weight = field(
        "Weight",
        this.#number(
          item,
          `${key}-weight`,
          arc.weight ?? 1,
          (weight) => change(index, { weight: weight > 1 ? weight : undefined }),
          { min: 1 },
        ),
      );
      const fields =
        side === "in"
          ? [
              weight,
              field(
                "Does",
                this.#choice(
                  item,
                  `${key}-kind`,
                  arc.kind ?? "take",
                  { take: "take", read: "read", inhibit: "inhibit" },
                  (kind) => change(index, { kind: kind === "take" ? undefined : kind }),
                ),
              ),
              field(
                "As",
                text("as", arc.as, (as) => change(index, { as })),
              ),
            ]
          : [
              weight,
              field(
                "Value",
                text("value", arc.value, (value) => change(index, { value }), { placeholder: "null" }),
              ),
              field(
                "If",
                text("if", arc.if, (condition) => change(index, { if: condition })),
              ),
              field(
                "On exception",
                text("on", arc.on, (on) => change(index, { on })),
              ),
            ];
      const is = chosen?.side === side && chosen.index === index;
      return h(
        "li",
        { class: `arc-row${is ? " chosen" : ""}` },
        h(
          "div",
          { class: "row" },
          h("span", { class: "links" }, `${names[1]} `, this.#links([this.graph.get(arc.place)])),
          h(
            "button",
            {
              class: "plain",
              "aria-label": `Delete the arc ${side === "in" ? "from" : "to"} ${arc.place}`,
              onclick: () => this.#set(item, { [side]: arcs.filter((_, at) => at !== index) }),
            },
            "×",
          ),
        ),
        h("div", { class: "fields" }, fields),
      );
    });
    const add = h(
      "select",
      {
        "data-field": `add-${side}`,
        "aria-label": `Add an arc ${side === "in" ? "from" : "to"} a place`,
        onchange: (event) => {
          const place = event.target.value;
          if (place && side === "in") this.graph.connect(place, item.name);
          else if (place) this.graph.connect(item.name, place);
        },
        onfocus: (event) => {
          // Only when they are wanted: a graph may have thousands of places.
          const places = [...this.graph.items.values()]
            .filter(({ kind }) => kind === "place")
            .slice(0, MAX_CHOICES);
          if (event.target.options.length === 1)
            event.target.append(...places.map(({ name }) => h("option", { value: name }, name)));
        },
      },
      h("option", { value: "" }, "Add an arc…"),
    );
    return h(
      "section",
      { class: "group" },
      h("h3", {}, names[0]),
      rows.length ? h("ul", { class: "arc-rows" }, rows) : null,
      add,
    );
  }

  #several(selected) {
    this.#title(`${selected.size} items`);
    replace(
      this.panel,
      h("p", { class: "hint" }, "Drag them, or press Shift and an arrow, to move them together."),
      h(
        "div",
        { class: "row end" },
        h("button", { class: "danger plain", onclick: () => this.editor.remove() }, "Delete them"),
      ),
    );
  }

  #whole() {
    const { graph } = this;
    this.#title(graph.name || "Graph", "graph");
    const items = [...graph.items.values()];
    const places = items.filter(({ kind }) => kind === "place").length;
    const edit = (properties) =>
      graph.edit([{ do: "graph", name: graph.name, about: graph.about, ...properties }]);
    const found = h("ul", { class: "found" });
    const find = h("input", {
      type: "search",
      "data-field": "find",
      autocomplete: "off",
      placeholder: "/",
      oninput: () => this.#find(find.value, found),
      onkeydown: (event) => {
        if (event.key === "Enter") found.querySelector("button")?.click();
      },
    });
    const name = h("input", {
      type: "text",
      "data-field": "graph-name",
      ...typed(graph.name, (name) => edit({ name: name.trim() || "graph" })),
    });
    const about = h("textarea", {
      rows: 2,
      "data-field": "about",
      ...typed(graph.about, (about) => edit({ about: about.trim() })),
    });
    replace(
      this.panel,
      field("Name", name),
      field("What it is for", about),
      h("p", { class: "hint" }, `${count(places, "place")}, ${count(items.length - places, "node")}`),
      field("Find", find),
      found,
      graph.problems.length
        ? h(
            "section",
            { class: "group" },
            h("h3", {}, "Problems"),
            graph.problems.map((problem) =>
              h(
                "div",
                { class: "problem-of" },
                problem.item && graph.get(problem.item)
                  ? h("button", { class: "link", onclick: () => this.#go(problem.item) }, problem.item)
                  : null,
                problemLine(problem),
              ),
            ),
          )
        : null,
      items.length === 0
        ? h(
            "p",
            { class: "hint" },
            "Press P for a place, N for a node, and A for an arc from what is selected. ? shows all keys.",
          )
        : null,
    );
  }

  #find(text, list) {
    const sought = text.trim().toLowerCase();
    const items = sought
      ? [...this.graph.items.values()].filter(({ name, data }) =>
          `${name} ${data.label ?? ""}`.toLowerCase().includes(sought),
        )
      : [];
    replace(
      list,
      items
        .slice(0, MAX_FOUND)
        .map(({ name, kind }) =>
          h(
            "li",
            {},
            h(
              "button",
              { class: "plain", onclick: () => this.#go(name) },
              name,
              h("span", { class: "kind" }, kind),
            ),
          ),
        ),
    );
  }

  #go(name) {
    this.editor.select([name]);
    this.editor.canvas.reveal(this.graph.get(name));
    by("stage").focus();
  }

  #links(items) {
    return items
      .filter(Boolean)
      .flatMap((item, index) => [
        index ? ", " : "",
        h("button", { class: "link", onclick: () => this.#go(item.name) }, item.name),
      ]);
  }

  #rename(item, name) {
    if (!name || name === item.name) return;
    if (this.graph.get(name)) {
      notify(`There is a place or a node ${name} already.`, "error");
      return this.show();
    }
    this.graph.edit([{ do: item.kind, name: item.name, [item.kind]: { ...item.data, name } }]);
  }

  #set(item, properties) {
    const now = this.graph.get(item.name);
    if (!now) return;
    this.graph.edit([{ do: now.kind, name: now.name, [now.kind]: clean({ ...now.data, ...properties }) }]);
  }

  #text(item, name, value, change, more = {}) {
    return h("input", {
      type: "text",
      spellcheck: "false",
      autocomplete: "off",
      "data-field": name,
      ...typed(value ?? "", change),
      ...more,
    });
  }

  #area(item, name, value, change) {
    return h("textarea", {
      rows: Math.min(6, 1 + value.split("\n").length),
      class: "code",
      spellcheck: "false",
      "data-field": name,
      ...typed(value, change),
    });
  }

  #number(item, name, value, change, more = {}) {
    return h("input", {
      type: "number",
      step: 1,
      "data-field": name,
      ...typed(value ?? "", (text, input) => {
        if (!input.checkValidity()) return input.reportValidity();
        change(text === "" ? undefined : Number(text));
      }),
      ...more,
    });
  }

  #choice(item, name, value, choices, change) {
    return h(
      "select",
      { "data-field": name, onchange: (event) => change(event.target.value) },
      Object.entries(choices).map(([key, text]) =>
        h("option", { value: key, ...(key === value ? { selected: true } : {}) }, text),
      ),
    );
  }

  #json(input) {
    try {
      return JSON.parse(input.value || "null");
    } catch {
      input.setCustomValidity("This is not JSON. Text needs quotes.");
      input.reportValidity();
      input.setCustomValidity("");
      return undefined;
    }
  }
}

function count(number, what) {
  return `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;
}

/** The properties of a field that has a value, and calls `change` when what was typed is left or entered. */
function typed(value, change) {
  const commit = ({ target }) => {
    if (!target.isConnected || target.value === target.dataset.was) return;
    target.dataset.was = target.value;
    change(target.value, target);
  };
  return { value, "data-was": String(value), onchange: commit, onblur: commit };
}

/** Puts the focus on a field that replaces another, with what was being typed there. */
function resume(field, old) {
  if (!field) return;
  field.focus();
  if (old.dataset.was === undefined || field.dataset.was === undefined) return;
  if (old.value === old.dataset.was) return field.select?.();
  field.value = old.value;
  if (old.selectionStart != null) field.setSelectionRange(old.selectionStart, old.selectionEnd);
}

function problemLine({ message, warning }) {
  return h("p", { class: warning ? "problem-line warning" : "problem-line" }, message);
}

/** Leaves out what is undefined. */
function clean(object) {
  return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined));
}
