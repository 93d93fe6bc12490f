// Firings that stopped: the list of them, and one with its error, about which somebody decides.

import { by, field, h, notify, replace } from "./dom.js";
import { get } from "./client.js";

const MAX_SHOWN = 100;

const RAN = { no: "It did not run.", maybe: "It is not known: it may have run.", yes: "It ran." };

export class Failures {
  constructor({ live, run, onchoose, onload }) {
    Object.assign(this, { live, run, onchoose, onload });
    this.dialog = by("firing");
    this.dialog.addEventListener("close", () => (this.open = null));
  }

  /** Asks which firings are stopped, at most one time after the other. */
  async load() {
    if (this.loading) {
      this.again = true;
      return;
    }
    this.loading = true;
    do {
      this.again = false;
      this.live.failures = await get("stopped").catch(() => this.live.failures);
      this.#show();
      this.onload();
    } while (this.again);
    this.loading = false;
  }

  #show() {
    const { failures } = this.live;
    by("failures").hidden = failures.length === 0;
    by("failures-count").textContent = failures.length;
    const items = failures
      .slice(0, MAX_SHOWN)
      .map((failure) =>
        h(
          "li",
          {},
          h(
            "button",
            { class: "failure", onclick: () => this.inspect(failure.firing) },
            h("strong", {}, failure.name),
            h("span", { class: "error" }, failure.error ?? ""),
          ),
        ),
      );
    if (failures.length > MAX_SHOWN)
      items.push(h("li", { class: "hint" }, `and ${failures.length - MAX_SHOWN} more`));
    replace(by("failures-list"), items);
    if (this.open != null && !failures.some(({ firing }) => firing === this.open)) this.dialog.close();
  }

  /** Opens the first failure, if there is one. */
  inspectFirst() {
    const [first] = this.live.failures;
    if (first) this.inspect(first.firing);
    else notify("No firing has stopped.");
  }

  /** Opens a firing with its error. */
  async inspect(id) {
    let firing;
    try {
      firing = await get(`firing?id=${id}`);
    } catch (error) {
      return notify(error.message, "error");
    }
    this.open = id;
    const facts = [
      ["Whether it ran", RAN[firing.ran]],
      ["Calls", firing.attempts],
      ["Tokens", firing.tokens],
      ["Arguments", firing.arguments],
      ["Too large to show", firing.left_out],
      ["Began", `${firing.began.toFixed(3)} s after the run began`],
    ].filter(([, value]) => value != null);
    replace(by("firing-title"), `Firing ${id} of ${firing.name}`);
    replace(
      by("firing-body"),
      h("p", { class: "error whole" }, firing.error ?? ""),
      h(
        "dl",
        {},
        facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, shown(value))]),
      ),
      firing.stage === "stopped" ? this.#decisions(id, firing.name) : null,
    );
    if (!this.dialog.open) this.dialog.showModal();
  }

  #decisions(id, node) {
    const decide = async (decision) => {
      if (await this.run.command({ do: "decide", firing: id, decision })) this.dialog.close();
    };
    const value = h("input", {
      type: "text",
      value: "null",
      spellcheck: "false",
      class: "code",
      autocomplete: "off",
    });
    const returned = () => {
      try {
        return decide({ return: JSON.parse(value.value) });
      } catch {
        value.setCustomValidity("This is not JSON.");
        value.reportValidity();
        value.setCustomValidity("");
      }
    };
    return h(
      "section",
      { class: "decisions", "aria-label": "What becomes of it" },
      h(
        "div",
        { class: "row" },
        h("button", { class: "primary", onclick: () => decide("retry") }, "Call again"),
        h("button", { onclick: () => decide("put_back") }, "Put tokens back"),
        h("button", { class: "danger", onclick: () => decide("discard") }, "Discard tokens"),
        h(
          "button",
          {
            class: "plain",
            onclick: () => {
              this.dialog.close();
              this.onchoose(node);
            },
          },
          "Show the node",
        ),
      ),
      h(
        "form",
        {
          class: "row end",
          onsubmit: (event) => {
            event.preventDefault();
            returned();
          },
        },
        field("Go on as if it had returned", value),
        h("button", {}, "Go on"),
      ),
    );
  }
}

function shown(value) {
  if (typeof value !== "object") return String(value);
  return h("code", {}, JSON.stringify(value, null, 1).replaceAll(/\n */g, " "));
}
