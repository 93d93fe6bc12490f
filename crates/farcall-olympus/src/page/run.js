// The run: start, pause, step, pace, and what is known of it now.

import { announce, by, notify } from "./dom.js";
import { post } from "./client.js";

const WORDS = { paused: "Paused", running: "Running", quiet: "Nothing to do", stopped: "Waits for a decision", ended: "Ended" };

const NOTHING = { begun: 0, ended: 0, under_way: 0, stopped: 0 };

/** How tokens and firings stand, as the stream of changes says. */
export class Live {
  constructor() {
    this.state = "paused";
    this.pace = "fast";
    this.places = new Map();
    this.nodes = new Map();
    /** The firings that are stopped now. */
    this.failures = [];
  }

  tokens(place) {
    return this.places.get(place) ?? 0;
  }

  node(name) {
    return this.nodes.get(name) ?? NOTHING;
  }

  active(node) {
    return this.node(node).under_way;
  }

  stopped(node) {
    return this.node(node).stopped > 0;
  }

  /**
   * Takes a change over. Returns the names of what looks different, or `null` for everything; the nodes whose
   * firings began and ended; and whether the stopped firings are others now.
   */
  update(change) {
    const names = change.complete ? null : new Set();
    const before = change.complete ? new Map() : this.nodes;
    const [began, ended] = [[], []];
    let decided = change.complete;
    if (change.complete) {
      this.places = new Map();
      this.nodes = new Map();
    }
    for (const [name, count] of Object.entries(change.places)) {
      this.places.set(name, count);
      names?.add(name);
    }
    for (const [name, counts] of Object.entries(change.nodes)) {
      const old = before.get(name) ?? NOTHING;
      if (counts.begun > old.begun) began.push(name);
      if (counts.ended > old.ended) ended.push(name);
      decided ||= counts.stopped !== old.stopped || counts.stopped > 0;
      this.nodes.set(name, counts);
      names?.add(name);
    }
    this.state = change.state;
    this.pace = change.pace;
    this.last = change;
    return { names, began, ended, decided };
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
    return ["running", "quiet", "stopped"].includes(this.live.state);
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
    const { counts, note } = last;
    const failed = counts.not_run + counts.repeated + counts.stopped;
    by("under-way").textContent = counts.under_way.toLocaleString("en");
    by("rate").textContent = rounded(last.firings_per_second);
    by("ended").textContent = counts.ended.toLocaleString("en");
    by("failed").textContent = failed.toLocaleString("en");
    by("failed").parentElement.classList.toggle("bad", failed > 0);
    by("waits").textContent = note ? `The run still has the graph as it was: ${note}` : "";
    by("waits").hidden = !note;
  }
}

function rounded(number) {
  return number >= 100 ? Math.round(number).toLocaleString("en") : number.toFixed(number >= 10 || number === 0 ? 0 : 1);
}
