// Work: definitions and transactions, with a dry run that shows the exact change of every view before it is applied.

import { el, fact } from "/page/dom.js";
import { ask } from "/page/server.js";

/** A change as rows that enter and leave. */
export function changeList(change) {
  const lines = (rows, sign) => rows.slice(0, 50).map((row) => el("li", { class: `${sign}-ink` }, `${sign === "plus" ? "+" : "-"} ${fact(change.view, row)}`));
  const more = change.plus.length + change.minus.length - Math.min(change.plus.length, 50) - Math.min(change.minus.length, 50);
  return [...lines(change.minus, "minus"), ...lines(change.plus, "plus"), more > 0 ? el("li", { class: "quiet" }, `and ${more} more rows`) : null];
}

export function work(onDefined) {
  const answer = el("div", { role: "status" });
  const language = el("select", { "aria-label": "language" }, el("option", { value: "sql" }, "SQL"), el("option", { value: "datalog" }, "Datalog"));
  const definition = el("textarea", { "aria-label": "definition", spellcheck: "false", placeholder: "CREATE VIEW low AS SELECT item FROM stock WHERE n < 3" });
  const transaction = el("textarea", { "aria-label": "transaction", spellcheck: "false", placeholder: '{"insert": {"edge": [["a", "b"]]}, "delete": {}}' });
  const attempt = async (run) => {
    try { answer.replaceChildren(...await run()); } catch (error) { answer.replaceChildren(el("p", { class: "problem", role: "alert" }, error.message)); }
  };
  const define = () => attempt(async () => {
    const made = await ask("/v1/views", { language: language.value, text: definition.value });
    onDefined();
    return [el("p", {}, `defined; version ${made.version}, changed: ${made.changed.join(", ") || "no view"}`)];
  });
  const commit = (isPreview) => () => attempt(async () => {
    const body = JSON.parse(transaction.value);
    const made = await ask(`/v1/transactions${isPreview ? "?preview=true" : ""}`, body);
    if (!isPreview) return [el("p", {}, `committed as version ${made.version}`)];
    const lists = made.changes.map((change) => el("ul", {}, changeList(change)));
    return [el("p", {}, lists.length ? "It would change:" : "It would change no view."), ...lists, el("button", { onclick: commit(false) }, "Apply")];
  });
  return el("div", {},
    el("section", {}, el("h2", {}, "Transaction"), transaction, el("div", { class: "row" },
      el("button", { onclick: commit(true) }, "Dry run"), el("button", { onclick: commit(false) }, "Commit"))),
    el("section", {}, el("h2", {}, "Definition"), el("div", { class: "row" }, language), definition, el("div", { class: "row" }, el("button", { onclick: define }, "Define"))),
    el("section", {}, el("h2", {}, "Answer"), answer));
}
