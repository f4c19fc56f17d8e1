// A binary relation as a graph around chosen nodes. A node that is chosen brings its neighbours; what enters and leaves is marked.

import { count, el, empty, guarded, show, svg } from "/page/dom.js";
import { curve, layered } from "/page/layout.js";
import { ask } from "/page/server.js";

const HEIGHT = 24, CHARACTER = 7.2, LONGEST = 30, MOST_CHOSEN = 12, GAPS = { across: 70, down: 6, margin: 14 }, MARKED_MS = 4000;
const clipped = (name) => (name.length > LONGEST ? `${name.slice(0, LONGEST - 1)}…` : name);

/** The graph of a relation. `passed` reads it again when a version changed it. */
export function graphView(page, relation) {
  const drawing = el("div", { class: "picture scroller" }, el("p", { class: "quiet" }, "Reading…")), note = el("p", { class: "quiet", role: "status" }), box = el("input", { "aria-label": "node", placeholder: "a node", size: 18 });
  let chosen = [], before = null, request = 0;
  const parse = (text) => { if (relation.columns[0].type === "symbol" || relation.columns[0].type === "string") return text; try { return JSON.parse(text); } catch { return text; } };
  const choose = (nodes) => { chosen = nodes; guarded(drawing, load()); };
  const add = (node) => choose([...chosen.filter((one) => show(one) !== show(node)), node].slice(-MOST_CHOSEN));

  function drawNode(name, value, { x, y, width }, isChosen) {
    return svg("g", { class: `dot${isChosen ? " chosen" : ""}`, transform: `translate(${x - width / 2},${y - HEIGHT / 2})`, tabindex: 0, role: "button", "aria-label": `node ${name}`, onclick: () => add(value),
      onkeydown: (event) => { if (event.key === "Enter") add(value); } },
      svg("title", {}, name), svg("rect", { width, height: HEIGHT, rx: 6 }), svg("text", { x: width / 2, y: HEIGHT / 2 + 4, "text-anchor": "middle" }, clipped(name)));
  }
  function drawEdge(edge, places, way, isNew) {
    const from = places.get(edge.source), shape = { class: `edge${isNew ? " plus" : ""}` };
    if (!way) return svg("circle", { ...shape, cx: from.x, cy: from.y - HEIGHT / 2 - 4, r: 7 });
    return svg("path", { ...shape, d: curve(way, from, places.get(edge.target)), "marker-end": "url(#head)" });
  }
  async function load() {
    const mine = ++request, parameters = new URLSearchParams(chosen.map((node) => ["node", JSON.stringify(node)]));
    if (page.at !== null) parameters.set("version", page.at);
    const found = await ask(`/v1/relations/${encodeURIComponent(relation.name)}/graph?${parameters}`);
    if (mine !== request) return;
    chosen = found.nodes;
    const values = new Map([...chosen, ...found.edges.flat()].map((value) => [show(value), value])), edges = found.edges.map(([a, b]) => ({ source: show(a), target: show(b) }));
    if (!values.size) { drawing.replaceChildren(empty("There is no row yet.", "Rows that enter appear here at once.")); return; }
    const key = ({ source, target }) => JSON.stringify([source, target]), keys = new Set(edges.map(key)), known = before;
    const boxes = [...values.keys()].map((name) => ({ name, width: clipped(name).length * CHARACTER + 16, height: HEIGHT })), { places, ways, width, height } = await layered(boxes, edges, GAPS);
    if (mine !== request) return;
    const centre = new Set(chosen.map(show));
    // Only around nodes that were chosen before it is known which rows were there.
    const isNew = (edge) => known !== null && [edge.source, edge.target].some((name) => known.centre.has(name)) && !known.keys.has(key(edge));
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "graph", role: "group", "aria-label": `${relation.name} as a graph` },
      svg("defs", {}, svg("marker", { id: "head", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, svg("path", { d: "M0,0 L8,4 L0,8 z", class: "head" }))),
      edges.map((edge) => drawEdge(edge, places, ways.get(edge), isNew(edge))), [...values].map(([name, value]) => drawNode(name, value, places.get(name), centre.has(name))));
    drawing.replaceChildren(picture);
    const centred = places.get(show(chosen.at(-1)));
    if (!known?.centre.has(show(chosen.at(-1)))) drawing.scrollTo(centred.x - drawing.clientWidth / 2, centred.y - drawing.clientHeight / 2);
    const more = Object.values(found.more).reduce((sum, one) => sum + one, 0);
    note.textContent = `${count(values.size, "node")}, ${count(edges.length, "row")} around ${chosen.map(show).join(", ")}${more ? `; ${count(more)} more rows are not drawn` : ""}`;
    before = { keys, centre };
    if (edges.some(isNew)) setTimeout(() => drawing.querySelectorAll(".edge.plus").forEach((one) => one.classList.remove("plus")), MARKED_MS);
  }
  const section = el("div", {}, el("form", { class: "row", onsubmit: (event) => { event.preventDefault(); if (box.value) add(parse(box.value)); box.value = ""; } },
    box, el("button", {}, "Add"), el("button", { type: "button", onclick: () => choose(chosen.slice(-1)) }, "Only the last"), note), drawing);
  guarded(drawing, load());
  return { section, passed: () => guarded(drawing, load()), again: () => guarded(drawing, load()), travel: () => { before = null; guarded(drawing, load()); } };
}
