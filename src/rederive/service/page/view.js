// One relation: a page of its rows, sorted and filtered by the server, the rows that enter and leave, and why a row is there.

import { el, fact, guarded, show, svg } from "/page/dom.js";
import { ask } from "/page/server.js";

const PAGE = 100, MARKED_MS = 4000, POINTS = 200;

/** A derivation tree. A premise that was cut is asked for when it is opened. */
function tree(node) {
  const title = fact(node.relation, node.row);
  if (node.base) return el("li", {}, el("span", {}, title), el("span", { class: "quiet" }, "  base row"));
  if (node.repeated) return el("li", {}, title, el("span", { class: "quiet" }, "  (see above)"));
  if (node.cut) {
    const item = el("li", {}, el("button", { onclick: async () => item.replaceWith(tree(await why(node.relation, node.row, 1))) }, `${title} …`));
    return item;
  }
  return el("li", {}, title, el("ul", {}, (node.derivations || []).map(step), node.further ? el("li", { class: "quiet" }, "or by other derivations") : null));
}

function step(derivation) {
  const premises = derivation.premises.map((one) => (one.condition ? el("li", {}, one.condition) : tree(one)));
  const more = derivation.left_out ? el("li", { class: "quiet" }, `and ${derivation.left_out} more rows`) : null;
  return el("li", {}, el("span", { class: "quiet" }, `by ${derivation.rule}`), el("ul", {}, premises, more));
}

const why = (relation, row, depth) =>
  ask(`/v1/views/${encodeURIComponent(relation)}/why?depth=${depth}&row=${encodeURIComponent(JSON.stringify(row))}`);

async function explain(place, relation, row) {
  const found = await why(relation, row, 2);
  const content = found.present
    ? el("ul", { class: "tree" }, tree(found))
    : el("ul", { class: "tree" }, (found.rules.length ? found.rules : [{ rule: "a base relation", holds: [], fails: "nobody inserted the row" }]).map((rule) =>
      el("li", {}, el("span", { class: "quiet" }, rule.rule), el("ul", {},
        rule.holds.map((one) => el("li", {}, "holds: ", one.condition || fact(one.relation, one.row))),
        el("li", { class: "minus-ink" }, `fails: ${rule.fails}`)))));
  place.replaceChildren(el("h2", {}, found.present ? `Why ${fact(relation, row)}` : `Why not ${fact(relation, row)}`), content);
}

/** The number of rows over the versions that were seen while the page is open. */
function chart(points) {
  const sizes = points.map((point) => point.size), low = Math.min(...sizes), high = Math.max(...sizes);
  const x = (i) => 5 + (i * 390) / Math.max(points.length - 1, 1), y = (size) => 55 - ((size - low) * 50) / Math.max(high - low, 1);
  return svg("svg", { viewBox: "0 0 400 60", width: 400, height: 60, role: "img", "aria-label": "rows over versions" },
    svg("polyline", { class: "chart", points: points.map((point, i) => `${x(i)},${y(point.size)}`).join(" ") }));
}

/** The view of one relation. Its `apply` takes the changes of an event. */
export function relationView(relation, columns) {
  const state = { offset: 0, order: null, descending: false, where: {}, marks: new Map(), points: [], request: 0 };
  const body = el("tbody"), caption = el("p", { class: "quiet" }), drawing = el("div"), reason = el("section", { hidden: true });
  const key = (row) => JSON.stringify(row);

  const line = (row, sign) => el("tr", { class: sign || state.marks.get(key(row)) || null, tabindex: 0,
    onclick: () => ask_why(row), onkeydown: (event) => { if (event.key === "Enter") ask_why(row); } }, row.map((value) => el("td", {}, show(value))));
  const ask_why = (row) => { reason.hidden = false; guarded(reason, explain(reason, relation, row)); };

  async function load() {
    const request = ++state.request;
    const parameters = new URLSearchParams({ offset: state.offset, limit: PAGE, where: JSON.stringify(state.where) });
    if (state.order !== null) parameters.set("order", (state.descending ? "-" : "") + state.order);
    const found = await ask(`/v1/relations/${encodeURIComponent(relation)}/page?${parameters}`);
    if (request !== state.request) return;  // answers may overtake each other: only the newest request is shown
    const left = [...state.marks].filter(([, sign]) => sign === "minus").map(([row]) => line(JSON.parse(row), "minus"));
    body.replaceChildren(...found.rows.map((row) => line(row)), ...left);
    const last = state.offset + found.rows.length;
    caption.textContent = `version ${found.version}: rows ${found.rows.length ? state.offset + 1 : 0} to ${last} of ${found.total.toLocaleString("en")}`
      + (found.complete ? "" : `; sorted and paged among the first ${found.read.toLocaleString("en")}, filter by a value to see others`);
    back.disabled = state.offset === 0;
    next.disabled = last >= found.read;
    state.points = [...state.points.filter((point) => point.version !== found.version), { version: found.version, size: found.total }].slice(-POINTS);
    drawing.replaceChildren(state.points.length > 1 ? chart(state.points) : "");
  }
  const reload = () => guarded(caption, load());
  const move = (pages) => () => { state.offset = Math.max(0, state.offset + pages * PAGE); reload(); };
  const back = el("button", { onclick: move(-1) }, "Previous"), next = el("button", { onclick: move(1) }, "Next");

  const sort = (column) => () => {
    state.descending = state.order === column && !state.descending;
    state.order = column;
    state.offset = 0;
    reload();
  };
  const filter = (column) => (event) => {
    const text = event.target.value;
    if (text === "") delete state.where[column.name];
    else state.where[column.name] = column.type === "symbol" ? text : parse(text);
    state.offset = 0;
    reload();
  };
  const head = el("thead", {},
    el("tr", {}, columns.map((column) => el("th", { scope: "col" }, el("button", { onclick: sort(column.name), title: `sort by ${column.name}` }, column.name)))),
    el("tr", {}, columns.map((column) => el("th", {}, el("input", { size: 8, "aria-label": `filter ${column.name}`, placeholder: column.type, onchange: filter(column) })))));
  const absent = el("input", { size: 30, placeholder: '["a", "c"]', "aria-label": "a row as JSON" });
  const section = el("div", {},
    el("section", {}, el("h2", {}, relation), el("div", { class: "row" }, back, next, caption), drawing, el("table", {}, head, body)),
    el("section", {}, el("div", { class: "row" }, el("label", {}, "Why, or why not, this row? ", absent), el("button", { onclick: () => ask_why(parse(absent.value)) }, "Ask"))),
    reason);
  reload();

  const apply = (change) => {
    for (const row of change.plus) state.marks.set(key(row), "plus");
    for (const row of change.minus) state.marks.set(key(row), "minus");
    reload();
    setTimeout(() => { for (const row of [...change.plus, ...change.minus]) state.marks.delete(key(row)); reload(); }, MARKED_MS);
  };
  return { section, apply };
}

/** JSON where it is JSON, text elsewhere. */
function parse(text) {
  try { return JSON.parse(text); } catch { return text; }
}
