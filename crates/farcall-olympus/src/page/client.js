// Speaks with the server: requests with the token, edits in their order, and the stream of changes.

const RETRY_AFTER = 1000;

// The token is in the fragment of the URL that opens the page. It stays in this tab and leaves the address.
const token = (() => {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem("token", given);
    history.replaceState(null, "", "/");
  }
  return given ?? sessionStorage.getItem("token") ?? "";
})();

/** Sends a request. Throws an error with the server's words if it is refused. */
export async function request(method, path, body, type) {
  const headers = { Authorization: `Bearer ${token}` };
  if (body !== undefined) headers["Content-Type"] = type ?? "application/json";
  let answer;
  try {
    answer = await fetch(`/api/${path}`, { method, headers, body: type ? body : JSON.stringify(body) });
  } catch {
    throw new Error("the program does not answer");
  }
  if (answer.ok) return answer;
  const error = new Error((await answer.text()).trim() || answer.statusText);
  error.status = answer.status;
  throw error;
}

export async function get(path) {
  return (await request("GET", path)).json();
}

export async function post(path, body) {
  return (await request("POST", path, body)).json();
}

/** Sends edits one after the other; those that are made meanwhile go together. */
export class Edits {
  constructor({ ondone, onfail }) {
    this.version = 0;
    this.waiting = [];
    this.sending = false;
    this.ondone = ondone;
    this.onfail = onfail;
  }

  add(edits) {
    this.waiting.push(...edits);
    if (!this.sending) this.#send();
  }

  /** Tells whether the server has all edits. */
  get settled() {
    return !this.sending && this.waiting.length === 0;
  }

  async #send() {
    this.sending = true;
    try {
      while (this.waiting.length > 0) {
        const edits = this.waiting.splice(0, 1000);
        const done = await post("edit", { version: this.version, edits });
        this.version = done.version;
        this.ondone(done);
      }
    } catch (error) {
      this.waiting = [];
      this.onfail(error);
    } finally {
      this.sending = false;
    }
  }
}

/** Calls `onchange` with each change of the run, and `onstate` when the connection comes and goes. */
export async function follow(onchange, onstate) {
  for (let since = 0; ;) {
    try {
      const answer = await request("GET", `changes?since=${since}`);
      onstate("connected");
      for await (const line of lines(answer.body)) {
        const change = JSON.parse(line);
        since = change.number;
        onchange(change);
      }
    } catch (error) {
      onstate(error.status === 401 ? "refused" : "away", error.message);
      if (error.status === 401) return;
    }
    // Ask for everything: the program may have been started again.
    since = 0;
    await new Promise((done) => setTimeout(done, RETRY_AFTER));
  }
}

async function* lines(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    yield* parts;
  }
}
