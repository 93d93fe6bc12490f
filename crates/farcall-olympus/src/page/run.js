// The run: start, pause, step, pace, and what is known of it now.

import { announce, by, notify } from "./dom.js";
import { post } from "./client.js";

const WORDS = { paused: "Paused", running: "Running", idle: "Nothing to do", ended: "Ended" };

/** How tokens and firings stand, as the stream of changes says. */
export class Live {
  constructor() {
    this.state = "paused";
    this.pace = "fast";
    this.counts = new Map();
    this.under = new Map();
    this.failures = [];
    this.failed = new Set();
  }

  tokens(place) {
    return this.counts.get(place) ?? 0;
  }

  active(node) {
    return this.under.get(node) ?? 0;
  }

  stopped(node) {
    return this.failed.has(node);
  }

  /** Takes a change over. Returns the names of what looks different, or `null` for everything. */
  update(change) {
    const names = change.complete ? null : new Set();
    if (change.complete) {
      this.counts.clear();
      this.under.clear();
    }
    for (const [map, changes] of [[this.counts, change.marking], [this.under, change.active]]) {
      for (const [name, count] of Object.entries(changes)) {
        map.set(name, count);
        names?.add(name);
      }
    }
    if (change.stopped) {
      this.failures = change.stopped;
      const failed = new Set(change.stopped.map(({ node }) => node));
      for (const node of [...failed, ...this.failed]) if (failed.has(node) !== this.failed.has(node)) names?.add(node);
      this.failed = failed;
    }
    this.state = change.state;
    this.pace = change.pace ?? this.pace;
    this.last = change;
    return names;
  }
}

export class Run {
  constructor(live) {
    this.live = live;
    by("start").addEventListener("click", () => this.toggle());
    by("step").addEventListener("click", () => this.command({ do: "step" }));
    by("reset").addEventListener("click", () => this.command({ do: "reset" }));
    by("pace").addEventListener("change", (event) => {
      const value = event.target.value;
      this.command({ do: "pace", pace: value === "fast" ? "fast" : { scaled: Number(value) } });
    });
  }

  get running() {
    return this.live.state === "running" || this.live.state === "idle";
  }

  toggle() {
    return this.command({ do: this.running ? "pause" : "resume" });
  }

  /** Sends a command. Returns whether it was carried out. */
  async command(command) {
    try {
      await post("command", command);
      return true;
    } catch (error) {
      notify(error.message, "error");
      return false;
    }
  }

  /** Shows how the run stands. */
  show() {
    const { state, pace, last } = this.live;
    const start = by("start");
    start.setAttribute("aria-pressed", String(this.running));
    start.querySelector(".word").textContent = this.running ? "Pause" : "Start";
    start.classList.toggle("running", this.running);
    for (const id of ["start", "step", "reset"]) by(id).disabled = state === "ended";
    const chosen = typeof pace === "object" ? String(pace.scaled) : "fast";
    const select = by("pace");
    if (document.activeElement !== select && [...select.options].some((option) => option.value === chosen)) select.value = chosen;
    const shown = by("state");
    if (shown.textContent !== WORDS[state]) {
      shown.textContent = WORDS[state];
      shown.dataset.state = state;
      announce(WORDS[state]);
    }
    if (!last) return;
    const under = [...this.live.under.values()].reduce((sum, count) => sum + count, 0);
    by("under-way").textContent = under.toLocaleString("en");
    by("rate").textContent = rounded(last.per_second);
    by("ended").textContent = last.ended.toLocaleString("en");
    by("failed").textContent = last.failed.toLocaleString("en");
    by("failed").parentElement.classList.toggle("bad", last.failed > 0);
  }
}

function rounded(number) {
  return number >= 100 ? Math.round(number).toLocaleString("en") : number.toFixed(number >= 10 || number === 0 ? 0 : 1);
}
