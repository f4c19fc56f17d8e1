// The propagation network: base relations on the left, each view right of what it reads. A transaction lights up what it changed.

import { el, guarded, svg } from "/page/dom.js";
import { ask } from "/page/server.js";

const WIDTH = 170, HEIGHT = 44, GAP_X = 70, GAP_Y = 22, MARGIN = 22, LIT_MS = 1500;

/** The level of each node: one more than the highest that it reads; a recursion does not raise itself. */
function levels(nodes, arcs) {
  const level = new Map(nodes.map((node) => [node.name, 0]));
  for (let round = 0; round < nodes.length; round += 1) {
    let changed = false;
    for (const { source, target } of arcs) {
      const least = level.get(source) + 1;
      if (source !== target && level.get(target) < least && least < nodes.length) {
        level.set(target, least);
        changed = true;
      }
    }
    if (!changed) break;
  }
  return level;
}

/** Places nodes in columns by level; within a column by the mean height of what they read, so that few arcs cross. */
function layout(nodes, arcs) {
  const level = levels(nodes, arcs), places = new Map(), columns = [];
  for (const node of nodes) (columns[level.get(node.name)] ||= []).push(node);
  columns.forEach((column, x) => {
    const height = (node) => {
      const read = arcs.filter((arc) => arc.target === node.name && places.has(arc.source)).map((arc) => places.get(arc.source).y);
      return read.length ? read.reduce((sum, y) => sum + y, 0) / read.length : 0;
    };
    [...column].sort((a, b) => height(a) - height(b)).forEach((node, row) => {
      places.set(node.name, { x: 10 + x * (WIDTH + GAP_X), y: MARGIN + row * (HEIGHT + GAP_Y) });
    });
  });
  const rows = Math.max(...columns.map((column) => column.length), 1);
  return { places, width: 20 + columns.length * (WIDTH + GAP_X), height: MARGIN + rows * (HEIGHT + GAP_Y) };
}

function drawArc(arc, places) {
  const from = places.get(arc.source), to = places.get(arc.target);
  const [x1, y1, x2, y2] = [from.x + WIDTH, from.y + HEIGHT / 2, to.x, to.y + HEIGHT / 2];
  const path = arc.source === arc.target
    ? `M${x1 - 40},${from.y} C${x1 - 40},${from.y - 16} ${x1 - 10},${from.y - 16} ${x1 - 10},${from.y}`
    : `M${x1},${y1} C${x1 + GAP_X / 2},${y1} ${x2 - GAP_X / 2},${y2} ${x2},${y2}`;
  return svg("path", { class: `arc${arc.negative ? " negative" : ""}`, d: path, "data-source": arc.source, "data-target": arc.target });
}

function drawNode(node, place, open) {
  const size = node.size === null ? "not stored" : `${node.size.toLocaleString("en")} ${node.size === 1 ? "row" : "rows"}`;
  const choose = () => open(node.name);
  return svg("g", {
    class: `node ${node.kind}`, "data-name": node.name, transform: `translate(${place.x},${place.y})`, tabindex: 0, role: "link",
    "aria-label": `${node.kind} ${node.name}`, onclick: choose, onkeydown: (event) => { if (event.key === "Enter") choose(); },
  },
    svg("title", {}, [node.kind, node.strategy, node.reason].filter(Boolean).join(": ")),
    svg("rect", { width: WIDTH, height: HEIGHT, rx: node.kind === "base" ? 2 : 10 }),
    svg("text", { x: 10, y: 18 }, node.name.length > 21 ? `${node.name.slice(0, 20)}…` : node.name),
    svg("text", { x: 10, y: 35, class: "size" }, [size, node.strategy].filter(Boolean).join(", ")));
}

/** The overview. Its `light` shows which views an event changed. */
export function overview(open) {
  const picture = el("div"), section = el("section", {}, el("h2", {}, "Propagation network"), picture,
    el("p", { class: "quiet" }, "Square: base relation. Round: view. Dashed: read negatively or by an aggregate. Choose a node to see its rows."));
  const draw = async () => {
    const { nodes, arcs } = await ask("/v1/network");
    if (!nodes.length) {
      picture.replaceChildren(el("p", {}, "Nothing is defined yet: define tables and views under Work."));
      return;
    }
    const { places, width, height } = layout(nodes, arcs);
    picture.replaceChildren(svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "propagation network" },
      arcs.map((arc) => drawArc(arc, places)), nodes.map((node) => drawNode(node, places.get(node.name), open))));
  };
  guarded(picture, draw());
  let timer = null;
  const light = (views) => {
    const changed = new Set(views);
    for (const node of picture.querySelectorAll(".node")) node.classList.toggle("lit", changed.has(node.dataset.name));
    for (const arc of picture.querySelectorAll(".arc")) arc.classList.toggle("lit", changed.has(arc.dataset.target));
    clearTimeout(timer);
    timer = setTimeout(() => guarded(picture, draw()), LIT_MS);
  };
  return { section, light };
}
