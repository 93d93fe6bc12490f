// What is exported now, and the dialog in which one picks a procedure.

import { by, h, replace } from "./dom.js";
import { get } from "./client.js";

export class Exports {
  constructor() {
    this.list = [];
    this.ready = false;
    this.dialog = by("exports");
    by("exports-refresh").addEventListener("click", () => this.load().then(() => this.#fill()));
    by("exports-filter").addEventListener("input", () => this.#fill());
    by("exports-filter").addEventListener("keydown", (event) => {
      if (event.key === "Enter") by("exports-list").querySelector("button")?.click();
      if (event.key === "ArrowDown") by("exports-list").querySelector("button")?.focus();
    });
    by("exports-list").addEventListener("keydown", (event) => {
      const next = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!next) return;
      event.preventDefault();
      const buttons = [...by("exports-list").querySelectorAll("button")];
      (buttons[buttons.indexOf(document.activeElement) + next] ?? by("exports-filter")).focus();
    });
  }

  find(server, name) {
    // The instance of a type, or the type alone; an address exports what nobody lists here.
    const type = server.split("/")[0];
    return this.list
      .find((one) => one.name === server || one.name === type)
      ?.procedures.find((procedure) => procedure.name === name);
  }

  async load() {
    try {
      this.list = await get("exports");
      this.ready = true;
      this.error = null;
    } catch (error) {
      this.error = error.message;
    }
    replace(
      by("servers"),
      this.list
        .flatMap(({ name, instances }) => [name, ...instances.map((instance) => `${name}/${instance}`)])
        .map((server) => h("option", { value: server })),
    );
  }

  async pick(onchoose) {
    this.onchoose = onchoose;
    by("exports-filter").value = "";
    this.#fill();
    this.dialog.showModal();
    by("exports-filter").focus();
    const before = JSON.stringify(this.list);
    await this.load();
    if (JSON.stringify(this.list) !== before || this.list.length === 0) this.#fill();
  }

  #fill() {
    const sought = by("exports-filter").value.trim().toLowerCase();
    const groups = [];
    for (const { name: server, procedures, error } of this.list) {
      const found = procedures.filter(({ name }) => `${server}.${name}`.toLowerCase().includes(sought));
      if (found.length === 0 && !(error && server.toLowerCase().includes(sought))) continue;
      groups.push(
        h(
          "li",
          {},
          h("h3", {}, server),
          error ? h("p", { class: "hint warning" }, error) : null,
          found.map((procedure) =>
            h(
              "button",
              {
                class: "choice code",
                onclick: () => {
                  this.dialog.close();
                  this.onchoose({ server, procedure });
                },
              },
              h(
                "span",
                {},
                procedure.signature,
                procedure.idempotent ? h("span", { class: "hint" }, " · idempotent") : null,
              ),
              procedure.docs ? h("small", { class: "hint" }, procedure.docs.split("\n")[0]) : null,
            ),
          ),
        ),
      );
    }
    const nothing =
      this.error ??
      (this.list.length === 0
        ? "Nothing is exported now."
        : "Nothing that is exported has this in its name.");
    replace(by("exports-list"), groups.length ? groups : h("li", { class: "hint" }, nothing));
  }
}
