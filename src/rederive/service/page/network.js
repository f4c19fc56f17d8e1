// The propagation network: base relations on the left, each view right of what it reads, then rules and subscribers.
// When a version passes, its arcs light up with the number of rows, and its nodes with the time that they took.

import { duration, el, empty, guarded, short, svg } from "/page/dom.js";
import { curve, layered } from "/page/layout.js";
import { ask, path } from "/page/server.js";

const WIDTH = 190, HEIGHT = 52, GAPS = { across: 24, down: 24, margin: 26, label: 30 }, LIT_MS = 4000, LEAST_SCALE = 0.8;

function drawArc(arc, places, ways) {
  const from = places.get(arc.source), way = ways.get(arc);
  const d = way ? curve(way, from, places.get(arc.target)) : `M${from.x + 44},${from.y + HEIGHT / 2} c0,20 30,20 30,0`;
  const label = way?.label ?? { x: from.x + 59, y: from.y + HEIGHT };
  return svg("g", { class: `arc${arc.negative ? " negative" : ""}`, "data-source": arc.source, "data-target": arc.target },
    svg("path", { d }), svg("text", { x: label.x, y: label.y - 4 }));
}

const MARKS = { base: "▤", view: "ƒ", constraint: "!", rule: "⚡", subscriber: "◉" };

function subtitle(node) {
  if (node.kind === "subscriber") return `${node.count} connected${node.behind ? `, ${node.behind} behind` : ""}`;
  if (node.kind === "rule") return node.active ? "active rule" : "inactive rule";
  const size = node.size === null ? "not stored" : `${short(node.size)} ${node.size === 1 ? "row" : "rows"}`;
  if (node.kind === "constraint") return node.size ? `${short(node.size)} violations` : "constraint holds";
  return [size, node.strategy?.replace("_", " ")].filter(Boolean).join(" · ");
}

function drawNode(node, place, open) {
  const title = node.text || node.name, isRelation = ["base", "view", "constraint"].includes(node.kind) && !node.name.includes(".");
  const choose = () => { if (isRelation) open(node.name); else location.hash = "operations"; };
  return svg("g", {
    class: `node ${node.kind}${node.kind === "constraint" && node.size ? " violated" : ""}${node.behind ? " behind" : ""}`, "data-name": node.name,
    transform: `translate(${place.x - WIDTH / 2},${place.y - HEIGHT / 2})`, tabindex: 0, role: "link", "aria-label": `${node.kind} ${node.name}, ${subtitle(node)}`,
    onclick: choose, onkeydown: (event) => { if (event.key === "Enter") choose(); },
  },
    svg("title", {}, [node.name, node.kind, node.strategy, node.reason].filter(Boolean).join("\n")),
    svg("rect", { width: WIDTH, height: HEIGHT, rx: node.kind === "subscriber" ? HEIGHT / 2 : 10 }),
    svg("text", { x: 17, y: HEIGHT / 2 + 5, class: "mark", "text-anchor": "middle" }, MARKS[node.kind]),
    svg("text", { x: 32, y: 22, class: "name" }, title.length > 19 ? `${title.slice(0, 18)}…` : title),
    svg("text", { x: 32, y: 39, class: "size" }, subtitle(node)),
    svg("text", { x: WIDTH - 8, y: -6, class: "badge", "text-anchor": "end" }));
}

const amount = (change) => [change.plus ? `+${short(change.plus)}` : "", change.minus ? `−${short(change.minus)}` : ""].filter(Boolean).join(" ");

/** The relations that a version may have passed: reached from a changed base, and leading to a changed relation. */
function passedNodes(arcs, changed) {
  const spread = (start, from, to) => {
    const found = new Set(start), waiting = [...start];
    while (waiting.length) {
      const name = waiting.pop();
      for (const arc of arcs) if (arc[from] === name && !found.has(arc[to])) { found.add(arc[to]); waiting.push(arc[to]); }
    }
    return found;
  };
  const names = [...changed.keys()], down = spread(names, "source", "target"), up = spread(names, "target", "source");
  return new Set([...down].filter((name) => up.has(name)));
}

/** The overview. `passed` lights up a version; `travel` draws the network of another one. */
export function overview(page) {
  const picture = el("div", { class: "picture" }, el("p", { class: "quiet" }, "Reading…")), note = el("p", { class: "passing quiet", role: "status" });
  const section = el("section", { class: "card" }, el("div", { class: "row" }, el("h2", {}, "Propagation network"), note), picture,
    el("ul", { class: "legend" }, [["base", "base relation"], ["view", "view"], ["constraint", "constraint"], ["rule", "active rule"], ["subscriber", "subscribers"]]
      .map(([kind, text]) => el("li", { class: kind }, el("span", {}, MARKS[kind]), text)), el("li", {}, el("span", { class: "dash" }), "read negatively or by an aggregate")));
  let nodes = [], arcs = [], timer = null, request = 0, lit = null;

  const draw = async () => {
    const mine = ++request;
    const found = await ask(path(["network"], { version: page.at }));
    if (mine !== request) return;
    ({ nodes, arcs } = found);
    if (!found.nodes.length) {
      picture.replaceChildren(empty("Nothing is defined yet.", "Create tables and views under Work."));
      return;
    }
    const known = new Set(found.nodes.map((node) => node.name));
    arcs = arcs.filter((arc) => known.has(arc.source) && known.has(arc.target));
    const { places, ways, width, height } = await layered(found.nodes.map(({ name }) => ({ name, width: WIDTH, height: HEIGHT })), arcs, GAPS);
    if (mine !== request) return;
    const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "network", role: "group", "aria-label": "propagation network" },
      arcs.map((arc) => drawArc(arc, places, ways)), found.nodes.map((node) => drawNode(node, places.get(node.name), page.open)));
    // A wide network is drawn smaller, but not so small that it cannot be read; then it scrolls.
    drawing.style.maxWidth = `${width}px`;
    drawing.style.minWidth = `${width * LEAST_SCALE}px`;
    picture.replaceChildren(drawing);
    picture.dataset.version = found.version;
    if (lit) light(lit);
  };
  const light = (version) => {
    const changed = new Map(version.changes.map((change) => [change.relation, change]));
    const passed = passedNodes(arcs, changed);
    for (const node of picture.querySelectorAll(".node")) {
      const change = changed.get(node.dataset.name);
      node.classList.toggle("lit", passed.has(node.dataset.name));
      node.querySelector(".badge").textContent = change ? [amount(change), change.microseconds !== undefined ? duration(change.microseconds) : ""].filter(Boolean).join(" · ") : "";
    }
    for (const arc of picture.querySelectorAll(".arc")) {
      const isLit = passed.has(arc.dataset.source) && passed.has(arc.dataset.target), change = changed.get(arc.dataset.source);
      arc.classList.toggle("lit", isLit);
      arc.querySelector("text").textContent = isLit && change && arc.dataset.source !== arc.dataset.target ? amount(change) : "";
    }
    note.textContent = `version ${version.version}${version.microseconds !== undefined ? `: ${duration(version.microseconds)}, ${version.engine} engine` : ""}`;
  };
  /** A version says by how much sizes change: the network need not be read again. */
  const resize = (version) => {
    for (const change of version.changes) {
      const node = nodes.find((one) => one.name === change.relation);
      if (node.size === null) continue;
      node.size += change.plus - change.minus;
      const drawn = picture.querySelector(`.node[data-name="${CSS.escape(node.name)}"]`);
      drawn.querySelector(".size").textContent = subtitle(node);
      drawn.classList.toggle("violated", node.kind === "constraint" && node.size > 0);
    }
  };
  const dim = () => {
    lit = null;
    note.textContent = "";
    for (const one of picture.querySelectorAll(".lit")) one.classList.remove("lit");
    for (const one of picture.querySelectorAll(".badge, .arc text")) one.textContent = "";
  };
  const passed = (version) => {
    if (page.at !== null) return;
    lit = version;
    const isKnown = version.changes.every((change) => nodes.some((node) => node.name === change.relation));
    if (isKnown) resize(version);
    else guarded(picture, draw());
    light(version);
    clearTimeout(timer);
    timer = setTimeout(dim, LIT_MS);
  };
  const travel = async () => {
    clearTimeout(timer);
    dim();
    await guarded(picture, draw());
    const at = page.at;
    if (at === null || at === 0) return;
    const found = await ask(path(["versions"], { before: at + 1, limit: 1 }));
    // As it was: what led to this version stays lit as long as one looks at it.
    if (page.at === at && found.versions.length) { [lit] = found.versions; light(lit); }
  };
  travel();
  return { section, passed, travel, leave: () => clearTimeout(timer) };
}
