// Work: definitions and transactions, with a dry run: the exact change of every monitored view, then apply or discard.

import { choice, count, el, empty, fact, problem, signs } from "/page/dom.js";
import { editor, placeOf } from "/page/editor.js";
import { ask } from "/page/server.js";

const SHOWN = 50;

/** What can be written: the language of the editor, how it is sent, and an example. */
const KINDS = {
  sql_changes: { title: "Change data, SQL", language: "sql", example: (page) => `INSERT INTO ${table(page)} VALUES (${values(page)});` },
  changes: { title: "Change data, Datalog", language: "changes", example: (page) => `+${table(page)}(${values(page, '"')}).\n` },
  sql: { title: "Define, SQL", language: "sql", example: (page) => (base(page) ? `CREATE VIEW latest AS\nSELECT *\nFROM ${table(page)};` : "CREATE TABLE stock (item STRING PRIMARY KEY, n INT);") },
  datalog: { title: "Define, Datalog", language: "datalog", example: () => ".decl reached(x: symbol)\nreached(y) :- edge(_, y).\n.output reached\n" },
};
const base = (page) => page.relations.find((one) => one.kind === "base");
const table = (page) => base(page)?.name ?? "stock";
const values = (page, quote = "'") => (base(page)?.columns ?? []).map((column) => (["symbol", "string"].includes(column.type) ? `${quote}${column.name}${quote}` : "1")).join(", ");

/** Lines such as `+edge("a", "b").`, `-edge("b", "c").` and `~stock("bolt", 2).` (upsert) as the body of a transaction. */
export function parseChanges(text) {
  const actions = { "+": "insert", "-": "delete", "~": "upsert" }, body = {};
  text.split("\n").forEach((line, i) => {
    const rest = line.trim(), wrong = (detail, column = line.search(/\S/) + 1) => Object.assign(new Error(detail), { place: `body:${i + 1}:${column}`, hint: 'write +edge("a", "b"). or -edge("a", "b").' });
    if (!rest || rest.startsWith("//")) return;
    const found = /^([+\-~])\s*(\w+)\s*\((.*)\)\s*\.?$/.exec(rest);
    if (!found) throw wrong("this is not a change of a row");
    let row;
    try { row = JSON.parse(`[${found[3].replace(/\bNULL\b/g, "null")}]`); } catch { throw wrong("the values are not numbers, texts in double quotes, true, false or null", line.indexOf("(") + 2); }
    ((body[actions[found[1]]] ||= {})[found[2]] ||= []).push(row);
  });
  return body;
}

function changeCard(change) {
  const lines = (rows, sign) => rows.map((row) => el("li", { class: `${sign}-ink` }, sign === "plus" ? "+ " : "− ", el("code", {}, fact(change.view, row))));
  const more = change.more.plus + change.more.minus;
  return el("article", { class: "change" }, el("h3", {}, change.view, " ", signs(change.plus.length + change.more.plus, change.minus.length + change.more.minus)),
    el("ul", { class: "rows" }, lines(change.minus, "minus"), lines(change.plus, "plus"), more > 0 ? el("li", { class: "quiet" }, `and ${count(more, "more row")}`) : null));
}

/** What there is to read and change: every relation with its columns. */
const schema = (page) => el("section", { class: "card" }, el("h2", {}, "Relations"), page.relations.length ? el("ul", { class: "rows schema" }, page.relations.map((relation) => el("li", {},
  el("a", { href: `#view=${encodeURIComponent(relation.name)}` }, relation.name), el("code", {}, `(${relation.columns.map((column) => `${column.name} ${column.type}`).join(", ")})`),
  el("span", { class: "quiet" }, relation.kind === "base" ? (relation.key.length ? ` key ${relation.key.join(", ")}` : " base") : " view")))) : empty("Nothing is defined yet.", "Write a CREATE TABLE, and apply it."));

/** The part of the page where one works. */
export function work(page) {
  const answer = el("div", { class: "answer", role: "status" }), bar = el("div", { class: "row heading" });
  let kind = sessionStorage.getItem("kind") || (base(page) ? "sql_changes" : "sql");
  const texts = JSON.parse(sessionStorage.getItem("texts") || "{}");
  const box = editor("text", { language: KINDS[kind].language, onRun: () => run(true), onInput: () => { texts[kind] = box.text; sessionStorage.setItem("texts", JSON.stringify(texts)); } });
  const choose = (key) => {
    kind = key;
    sessionStorage.setItem("kind", kind);
    box.language = KINDS[kind].language;
    box.text = texts[kind] ?? KINDS[kind].example(page);
    bar.replaceChildren(choice("what to do", Object.fromEntries(Object.entries(KINDS).map(([name, one]) => [name, one.title])), kind, choose));
    answer.replaceChildren(empty("A dry run shows the exact change of every monitored view.", "Nothing is changed before you apply it."));
  };
  const send = (isPreview) => {
    const suffix = isPreview ? `?preview=true&limit=${SHOWN}` : "";
    if (kind === "sql_changes") return ask(`/v1/transactions${suffix}`, { body: box.text, type: "application/sql" });
    if (kind === "changes") return ask(`/v1/transactions${suffix}`, { body: parseChanges(box.text) });
    return ask(`/v1/views${suffix}`, { body: { language: kind, text: box.text } });
  };
  const refuse = (error) => {
    box.mark(placeOf(error));
    const rows = (error.violations?.rows ?? []).map((row) => el("li", { class: "minus-ink" }, el("code", {}, fact(error.violations.view, row))));
    answer.replaceChildren(problem(error), el("ul", { class: "rows" }, rows));
  };
  async function run(isPreview) {
    box.mark(null);
    answer.replaceChildren(el("p", { class: "quiet" }, "…"));
    try {
      const made = await send(isPreview);
      if (!isPreview) {
        answer.replaceChildren(el("p", { class: "done" }, `Committed as version ${count(made.version)}.`));
        if (kind === "sql" || kind === "datalog") page.reload();
        return;
      }
      const discard = () => { answer.replaceChildren(el("p", { class: "quiet" }, "Discarded. Nothing was changed.")); box.area.focus(); };
      // The buttons come first: a change may be longer than the page.
      answer.replaceChildren(el("p", {}, made.changes.length ? `It would change ${count(made.changes.length, "view")}.` : "It would change no monitored view."),
        el("div", { class: "row" }, el("button", { class: "primary", onclick: () => run(false) }, "Apply"), el("button", { onclick: discard }, "Discard")), ...made.changes.map(changeCard));
    } catch (error) { refuse(error); }
  }
  choose(kind);
  const section = el("div", { class: "columns" },
    el("section", { class: "card" }, bar, box.element, el("div", { class: "row" }, el("button", { class: "primary", onclick: () => run(true) }, "Dry run"), el("button", { onclick: () => run(false) }, "Apply at once"), el("span", { class: "quiet" }, "Ctrl+Enter: dry run"))),
    el("section", { class: "card" }, el("h2", {}, "What it does"), answer), schema(page));
  return { section };
}
