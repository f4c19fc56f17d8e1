// A binary relation as a graph around chosen nodes. A node that is chosen brings its neighbours; what enters and leaves is marked.

import { count, el, empty, guarded, show, svg } from "/page/dom.js";
import { ask } from "/page/server.js";

const WIDTH = 900, HEIGHT = 560, ROUNDS = 220, MARKED_MS = 4000;

/** Places by springs: nodes repel each other, rows attract. Those that have a place keep close to it. */
function place(names, edges, known) {
  const points = new Map(names.map((name, i) => {
    const angle = i * 2.399963; // the golden angle spreads any number of points evenly
    const radius = 40 + 22 * Math.sqrt(i);
    return [name, { ...(known.get(name) || { x: WIDTH / 2 + radius * Math.cos(angle), y: HEIGHT / 2 + radius * Math.sin(angle) }) }];
  }));
  const list = [...points.values()], ideal = Math.min(120, 0.85 * Math.sqrt((WIDTH * HEIGHT) / Math.max(list.length, 1)));
  for (let round = 0; round < ROUNDS; round += 1) {
    const heat = 14 * (1 - round / ROUNDS);
    for (const one of list) { one.dx = (WIDTH / 2 - one.x) * 0.004; one.dy = (HEIGHT / 2 - one.y) * 0.006; }
    for (let i = 0; i < list.length; i += 1) {
      for (let j = i + 1; j < list.length; j += 1) {
        const dx = list[i].x - list[j].x || 0.1, dy = list[i].y - list[j].y || 0.1, square = dx * dx + dy * dy, push = (ideal * ideal) / square / 14;
        list[i].dx += dx * push; list[i].dy += dy * push; list[j].dx -= dx * push; list[j].dy -= dy * push;
      }
    }
    for (const [a, b] of edges) {
      const from = points.get(a), to = points.get(b), dx = to.x - from.x, dy = to.y - from.y, length = Math.hypot(dx, dy) || 1, pull = (length - ideal) / length / 12;
      from.dx += dx * pull; from.dy += dy * pull; to.dx -= dx * pull; to.dy -= dy * pull;
    }
    for (const one of list) {
      const length = Math.hypot(one.dx, one.dy) || 1, by = Math.min(length, heat) / length;
      one.x = Math.min(WIDTH - 60, Math.max(60, one.x + one.dx * by));
      one.y = Math.min(HEIGHT - 24, Math.max(24, one.y + one.dy * by));
    }
  }
  return points;
}

/** The graph of a relation. `passed` reads it again when a version changed it. */
export function graphView(page, relation) {
  const drawing = el("div", { class: "picture" }), note = el("p", { class: "quiet", role: "status" }), box = el("input", { "aria-label": "node", placeholder: "a node", size: 18 });
  let chosen = [], known = new Map(), before = null, request = 0;
  const parse = (text) => { if (relation.columns[0].type === "symbol" || relation.columns[0].type === "string") return text; try { return JSON.parse(text); } catch { return text; } };
  const add = (node) => { if (!chosen.some((one) => show(one) === show(node))) chosen = [...chosen, node].slice(-12); guarded(drawing, load()); };

  async function load() {
    const mine = ++request, parameters = new URLSearchParams(chosen.map((node) => ["node", JSON.stringify(node)]));
    if (page.at !== null) parameters.set("version", page.at);
    const found = await ask(`/v1/relations/${encodeURIComponent(relation.name)}/graph?${parameters}`);
    if (mine !== request) return;
    chosen = found.nodes;
    const edges = found.edges.map((row) => row.map(show)), keys = new Set(edges.map((edge) => edge.join("\u0000")));
    const names = [...new Set([...chosen.map(show), ...edges.flat()])], values = new Map(found.edges.flatMap((row) => row.map((value) => [show(value), value])));
    if (!names.length) { drawing.replaceChildren(empty("There is no row yet.")); return; }
    const came = before ? [...keys].filter((key) => !before.has(key)) : [];
    known = place(names, edges.filter(([a, b]) => a !== b), known);
    const centre = new Set(chosen.map(show));
    const line = ([a, b]) => {
      const from = known.get(a), to = known.get(b), length = Math.hypot(to.x - from.x, to.y - from.y) || 1, isNew = came.includes([a, b].join("\u0000"));
      if (a === b) return svg("circle", { class: `edge${isNew ? " plus" : ""}`, cx: from.x, cy: from.y - 12, r: 10 });
      return svg("line", { class: `edge${isNew ? " plus" : ""}`, x1: from.x, y1: from.y, x2: to.x - ((to.x - from.x) / length) * 9, y2: to.y - ((to.y - from.y) / length) * 9, "marker-end": "url(#head)" });
    };
    const dot = (name) => {
      const { x, y } = known.get(name), choose = () => add(values.get(name) ?? name);
      return svg("g", { class: `dot${centre.has(name) ? " chosen" : ""}`, transform: `translate(${x},${y})`, tabindex: 0, role: "button", "aria-label": `node ${name}`, onclick: choose,
        onkeydown: (event) => { if (event.key === "Enter") choose(); } },
        svg("circle", { r: centre.has(name) ? 7 : 5 }), svg("text", { x: 9, y: 4 }, name.length > 24 ? `${name.slice(0, 23)}…` : name));
    };
    drawing.replaceChildren(svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "graph", role: "group", "aria-label": `${relation.name} as a graph` },
      svg("defs", {}, svg("marker", { id: "head", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse" }, svg("path", { d: "M0,0 L8,4 L0,8 z", class: "head" }))),
      edges.map(line), names.map(dot)));
    const more = Object.values(found.more).reduce((sum, one) => sum + one, 0);
    note.textContent = `${count(names.length, "node")}, ${count(edges.length, "row")} around ${chosen.map(show).join(", ")}${more ? `; ${count(more)} more rows are not drawn` : ""}`;
    before = keys;
    if (came.length) setTimeout(() => drawing.querySelectorAll(".edge.plus").forEach((one) => one.classList.remove("plus")), MARKED_MS);
  }
  const section = el("div", {}, el("form", { class: "row", onsubmit: (event) => { event.preventDefault(); if (box.value) add(parse(box.value)); box.value = ""; } },
    box, el("button", {}, "Add"), el("button", { type: "button", onclick: () => { chosen = []; known = new Map(); before = null; guarded(drawing, load()); } }, "Start again"), note), drawing);
  guarded(drawing, load());
  return { section, passed: () => guarded(drawing, load()), travel: () => { before = null; guarded(drawing, load()); } };
}
