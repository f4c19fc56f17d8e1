// Requests to the service, and its stream of changes. Nothing else of the page knows of HTTP.

let secret = sessionStorage.getItem("token");

/** Asks for a token, and resolves when one is given. */
function askToken() {
  const dialog = document.getElementById("token");
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      secret = document.getElementById("secret").value;
      sessionStorage.setItem("token", secret);
      resolve();
    }, { once: true });
  });
}

async function send(path, options = {}) {
  const headers = { ...(options.headers || {}), ...(secret ? { Authorization: `Bearer ${secret}` } : {}) };
  const response = await fetch(path, { ...options, headers });
  if (response.status !== 401) return response;
  await askToken();
  return send(path, options);
}

/** The JSON answer of a request; a problem is thrown with its text, place and help. */
export async function ask(path, body, method = body === undefined ? "GET" : "POST") {
  const options = body === undefined ? { method } : {
    method, body: JSON.stringify(body), headers: { "Content-Type": "application/json" },
  };
  const response = await send(path, options);
  const answer = await response.json();
  if (!response.ok) {
    const lines = [`${answer.place ? `${answer.place}: ` : ""}${answer.detail || answer.title}`, answer.excerpt, answer.hint && `help: ${answer.hint}`];
    throw new Error(lines.filter(Boolean).join("\n"));
  }
  return answer;
}

/** The events of one text of Server-Sent Events, whose blocks end with an empty line. */
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

/** Follows the changes of views. A lost connection is resumed from the last position; `signal` ends it. */
export async function follow(views, position, onEvent, onState, signal) {
  let since = position;
  const path = `/v1/changes?${views.map((view) => `view=${encodeURIComponent(view)}`).join("&")}`;
  while (!signal.aborted) {
    try {
      const headers = { Accept: "text/event-stream", ...(since ? { "Last-Event-ID": since } : {}) };
      const response = await send(path, { headers, signal });
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
          onEvent(event);
        }
      }
    } catch (error) {
      if (signal.aborted) return;
    }
    onState("reconnecting");
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}
