// One relation: a live table that the server pages, sorts and filters; the same as a graph or a chart; and why a row is there.

import { chartView } from "/page/chart.js";
import { choice, count, el, empty, fact, guarded, show } from "/page/dom.js";
import { coloured } from "/page/editor.js";
import { graphView } from "/page/graph.js";
import { ask, path } from "/page/server.js";
import { explain } from "/page/why.js";

const PAGE = 50, MARKED_MS = 6000;
const key = (row) => JSON.stringify(row);

/** A value as its column takes it: text as it is, anything else as JSON where it is JSON. */
function typed(text, type) {
  if (type === "symbol" || type === "string") return text;
  try { return JSON.parse(text); } catch { return text; }
}

/** The table of a relation, and the panel that explains its rows. */
function tableView(page, relation) {
  const state = { offset: 0, order: null, descending: false, where: {}, since: page.version, marks: new Map(), shown: [], request: 0, busy: false, again: false };
  const body = el("tbody", {}, el("tr", {}, el("td", { colspan: relation.columns.length + 1, class: "quiet" }, "Reading…"))), caption = el("p", { class: "quiet", role: "status" }), panel = el("aside", { class: "panel", hidden: true, "aria-label": "explanation" });
  const columns = relation.columns;

  const close = () => { panel.hidden = true; body.querySelector("[aria-selected]")?.removeAttribute("aria-selected"); };
  const why = (row, line) => {
    body.querySelector("[aria-selected]")?.removeAttribute("aria-selected");
    line?.setAttribute("aria-selected", "true");
    const mark = state.marks.get(key(row)), isLeft = line?.classList.contains("minus");
    explain(panel, relation.name, row, { at: page.at, onClose: close, entered: mark && !isLeft ? mark.version : null, left: isLeft ? mark.version : null });
    if (window.matchMedia("(max-width: 60rem)").matches) panel.scrollIntoView({ behavior: "smooth", block: "start" });
  };
  const line = (row, sign) => {
    const mark = state.marks.get(key(row)), kind = sign || (mark?.sign === "plus" ? "plus" : null);
    const found = el("tr", { class: kind, tabindex: 0, onclick: () => why(row, found), onkeydown: (event) => { if (event.key === "Enter") why(row, found); } },
      el("td", { class: "gutter" }, kind && mark ? el("span", { title: `${kind === "plus" ? "entered" : "left"} at version ${mark.version}` }, `${kind === "plus" ? "+" : "−"}${mark.version}`) : null),
      row.map((value) => el("td", { class: value === null ? "null" : typeof value === "number" ? "number" : null }, show(value))));
    return found;
  };

  /** The rows of the page, with those that just left where they were before. */
  function draw(rows) {
    const lines = rows.map((row) => [key(row), line(row)]), there = new Set(lines.map(([name]) => name));
    for (const [i, row] of state.shown.entries()) {
      const mark = state.marks.get(key(row));
      if (mark?.sign === "minus" && !there.has(key(row))) lines.splice(Math.min(i, lines.length), 0, [key(row), line(row, "minus")]);
    }
    const others = [...state.marks].filter(([name, mark]) => mark.sign === "minus" && !lines.some(([known]) => known === name)).slice(0, 5).map(([name]) => [name, line(JSON.parse(name), "minus")]);
    const all = [...others, ...lines];
    state.shown = all.map(([name]) => JSON.parse(name));
    body.replaceChildren(...all.map(([, found]) => found));
    if (!all.length) body.append(el("tr", {}, el("td", { colspan: columns.length + 1 }, empty(Object.keys(state.where).length ? "No row passes the filter." : "There is no row.",
      Object.keys(state.where).length ? null : "Rows that enter appear here at once."))));
  }

  async function load() {
    const mine = ++state.request, isLive = page.at === null;
    const found = await ask(path(["relations", relation.name, "page"], {
      offset: state.offset, limit: PAGE, where: JSON.stringify(state.where), order: state.order === null ? null : (state.descending ? "-" : "") + state.order,
      version: page.at, since: isLive ? state.since : null,
    }));
    if (mine !== state.request) return;  // answers may overtake each other: only the newest request is shown
    if (isLive) {
      const until = Date.now() + MARKED_MS;
      found.rows.forEach((row, i) => { if (found.entered[i] !== null) state.marks.set(key(row), { sign: "plus", version: found.entered[i], until }); });
      for (const { row, version } of found.left) state.marks.set(key(row), { sign: "minus", version, until });
      state.since = Math.max(state.since, found.version);
      if (found.left.length || found.entered.some((one) => one !== null)) setTimeout(fade, MARKED_MS + 50);
    } else state.marks.clear();
    draw(found.rows);
    const last = state.offset + found.rows.length;
    caption.textContent = `${found.rows.length ? `${count(state.offset + 1)}–${count(last)}` : "0"} of ${count(found.total, "row")}${found.complete ? "" : ", sorted among the first 50,000"}`;
    body.dataset.version = found.version;
    back.disabled = state.offset === 0;
    next.disabled = last >= found.total || !found.rows.length;
  }
  const fade = () => {
    const now = Date.now();
    for (const [name, mark] of state.marks) if (mark.until <= now) state.marks.delete(name);
    for (const row of body.querySelectorAll("tr.plus, tr.minus")) {
      const name = key(state.shown[[...body.children].indexOf(row)]);
      if (state.marks.has(name)) continue;
      if (row.classList.contains("minus")) { state.shown.splice([...body.children].indexOf(row), 1); row.remove(); } else { row.classList.remove("plus"); row.firstChild.replaceChildren(); }
    }
  };
  // One request at a time: while versions arrive faster than pages are drawn, the last one counts.
  const reload = async () => {
    if (state.busy) { state.again = true; return; }
    state.busy = true;
    do { state.again = false; await guarded(caption, load()); } while (state.again);
    state.busy = false;
  };
  const move = (pages) => () => { state.offset = Math.max(0, state.offset + pages * PAGE); reload(); };
  const back = el("button", { onclick: move(-1), "aria-label": "previous page" }, "‹ Previous"), next = el("button", { onclick: move(1), "aria-label": "next page" }, "Next ›");

  const sort = (column) => {
    state.descending = state.order === column && !state.descending;
    state.order = column;
    state.offset = 0;
    for (const one of head.querySelectorAll("th[data-column]")) {
      one.setAttribute("aria-sort", one.dataset.column === column ? (state.descending ? "descending" : "ascending") : "none");
    }
    reload();
  };
  let typing = null;
  const filter = (column) => (event) => {
    const text = event.target.value.trim();
    if (text === "") delete state.where[column.name];
    else if (text.startsWith("=")) state.where[column.name] = typed(text.slice(1), column.type);
    else if (text === "NULL") state.where[column.name] = null;
    else state.where[column.name] = { contains: text };
    state.offset = 0;
    clearTimeout(typing);
    typing = setTimeout(reload, 150);
  };
  const head = el("thead", {},
    el("tr", {}, el("th", { class: "gutter" }), columns.map((column) => el("th", { scope: "col", "data-column": column.name, "aria-sort": "none" },
      el("button", { onclick: () => sort(column.name), title: `sort by ${column.name}` }, column.name, el("small", {}, column.type))))),
    el("tr", { class: "filters" }, el("th", { class: "gutter" }), columns.map((column) => el("th", {}, el("input", { "aria-label": `filter ${column.name}`, placeholder: "contains, or =value", oninput: filter(column) })))));

  const asked = columns.map((column) => el("input", { "aria-label": `value of ${column.name}`, placeholder: column.name, required: true, size: 10 }));
  const asking = el("form", { class: "row asking", onsubmit: (event) => { event.preventDefault(); why(asked.map((input, i) => typed(input.value, columns[i].type))); } },
    el("span", { class: "quiet" }, "Why, or why not:"), el("code", {}, `${relation.name}(`), asked, el("code", {}, ")"), el("button", {}, "Ask"));
  const section = el("div", { class: "split" },
    el("div", { class: "wide" }, el("div", { class: "scroller" }, el("table", {}, head, body)), el("div", { class: "row pager" }, back, next, caption), asking), panel);
  reload();

  const go = (by) => {
    const rows = [...body.querySelectorAll("tr[tabindex]")], at = rows.indexOf(document.activeElement);
    rows[Math.min(rows.length - 1, Math.max(0, at + by))]?.focus();
    return true;
  };
  const keys = { j: () => go(1), k: () => go(-1), "/": () => { head.querySelector("input")?.focus(); return true; }, Escape: () => { close(); return true; } };
  return { section, passed: reload, again: reload, travel: () => { close(); state.shown = []; state.since = page.version; reload(); }, key: (name) => keys[name]?.() };
}

function definitionView(page, relation) {
  const written = el("pre", { class: "definition" }, "Reading…"), text = el("pre", { class: "definition" }, "Reading…");
  // The text has a part for each relation that the view is computed from; its own is the last.
  const read = async () => (await ask(path(["views", relation.name, "explain"]))).trim().split(/\n\n(?=\.decl)/).reverse().join("\n\n");
  const again = () => {
    guarded(written, ask(path(["relations", relation.name, "definition"])).then((found) => { written.replaceChildren(...coloured(found, /^\s*create\b/i.test(found) ? "sql" : "datalog")); }));
    if (relation.kind === "view") guarded(text, read().then((found) => { text.textContent = found; }));
  };
  again();
  return { section: el("div", {}, written, relation.kind === "view" ? [el("h2", {}, "Maintenance program"), text] : null), again };
}

/** The part of the page about one relation. */
export function relationPart(page, name) {
  const chosen = page.relations.find((one) => one.name === name) || page.relations.find((one) => one.kind === "view") || page.relations[0];
  if (!chosen) return { section: el("section", { class: "card" }, empty("Nothing is defined yet.", ["Create tables and views under ", el("a", { href: "#work" }, "Work"), "."])) };
  const select = el("select", { "aria-label": "relation", onchange: (event) => page.open(event.target.value) },
    ["view", "base"].map((kind) => el("optgroup", { label: kind === "view" ? "Views" : "Base relations" },
      page.relations.filter((one) => one.kind === kind).map((one) => el("option", { value: one.name, selected: one === chosen }, one.name)))));
  const isGraph = chosen.columns.length === 2 && chosen.columns[0].type === chosen.columns[1].type;
  const forms = { table: "Table", ...(isGraph ? { graph: "Graph" } : {}), chart: "Chart", definition: "Definition" };
  const makers = { table: tableView, graph: graphView, chart: chartView, definition: definitionView };
  const place = el("div"), bar = el("div", { class: "row heading" });
  let form = "table", shown = null;
  const draw = () => {
    shown = makers[form](page, chosen);
    bar.replaceChildren(select, el("span", { class: `tag ${chosen.kind}` }, chosen.kind === "base" ? "base relation" : chosen.monitored ? "monitored view" : "view"),
      choice("form", forms, form, (key) => { form = key; draw(); }));
    place.replaceChildren(shown.section);
  };
  draw();
  return {
    section: el("section", { class: "card" }, bar, place),
    passed: (version) => { if (page.at === null && version.changes.some((change) => change.relation === chosen.name)) shown.passed?.(version); },
    travel: () => shown.travel?.(), again: () => shown.again?.(), key: (name) => shown.key?.(name),
  };
}
