// Requests to the service, and its stream of versions. Nothing else of the page knows of HTTP.

let secret = sessionStorage.getItem("token");
let asking = null;

/** Asks for a token, once for all requests that need one, and resolves when it is given. */
function askToken() {
  asking ||= new Promise((resolve) => {
    const dialog = document.getElementById("token"), box = document.getElementById("secret");
    document.getElementById("refused").hidden = secret === null;
    dialog.showModal();
    box.select();
    dialog.addEventListener("close", () => {
      secret = box.value;
      sessionStorage.setItem("token", secret);
      asking = null;
      resolve();
    }, { once: true });
  });
  return asking;
}

async function send(path, options = {}) {
  const headers = { ...(options.headers || {}), ...(secret ? { Authorization: `Bearer ${secret}` } : {}) };
  const response = await fetch(path, { ...options, headers }).catch((error) => {
    throw error.name === "AbortError" ? error : new Error("The service does not answer. The page goes on when it does.");
  });
  if (response.status !== 401) return response;
  await askToken();
  return send(path, options);
}

/** What the service refused: its code and place, so that an editor can show it there. */
export class Refused extends Error {
  constructor(answer, status) {
    super(answer.detail || answer.title || `HTTP ${status}`);
    Object.assign(this, { status, code: answer.code, place: answer.place, excerpt: answer.excerpt, hint: answer.hint, violations: answer.violations });
  }
}

/** The answer of a request: JSON, or a text. A body is JSON, or a text of the given type. */
export async function ask(path, { body, type = "application/json", method = body === undefined ? "GET" : "POST", signal } = {}) {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  const response = await send(path, { method, signal, ...(body === undefined ? {} : { body: text, headers: { "Content-Type": type } }) });
  const answer = await (response.headers.get("Content-Type")?.includes("json") ? response.json() : response.text());
  if (!response.ok) throw new Refused(answer, response.status);
  return answer;
}

/** A path with the parameters that are there. */
export function path(parts, parameters = {}) {
  const found = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined));
  const query = found.toString();
  return `/v1/${parts.map(encodeURIComponent).join("/")}${query ? `?${query}` : ""}`;
}

/** The events of whole blocks of Server-Sent Events. */
function* parseEvents(blocks) {
  for (const block of blocks) {
    const event = { event: "message", data: "", id: null };
    for (const line of block.split("\n")) {
      const at = line.indexOf(": ");
      if (at > 0) event[line.slice(0, at)] = line.slice(at + 2);
    }
    if (event.data) yield { name: event.event, id: event.id, data: JSON.parse(event.data) };
  }
}

const RETRY_MS = 1000;

/** Follows the versions of the service. A lost connection is resumed after the last version that arrived; `signal` ends it. */
export async function follow(position, onEvent, onState, signal) {
  let since = position;
  while (!signal.aborted) {
    try {
      const response = await send("/v1/versions", { headers: { Accept: "text/event-stream", "Last-Event-ID": since }, signal });
      if (!response.ok) throw new Error(`HTTP ${response.status}`);
      onState("live");
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const blocks = (rest + value).split("\n\n");
        rest = blocks.pop();
        for (const event of parseEvents(blocks)) {
          if (event.id) since = event.id;
          try { onEvent(event); } catch (error) { reportError(error); }  // a mistake of ours is not a lost connection
        }
      }
    } catch (error) {
      if (signal.aborted) return;
    }
    onState("reconnecting");
    await new Promise((resolve) => { setTimeout(resolve, RETRY_MS); });
  }
}
