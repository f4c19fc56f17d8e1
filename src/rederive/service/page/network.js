// The propagation network: base relations first, each view after what it reads, then rules and subscribers; what it sums up to, and
// the latest versions.
// When a version passes, its arcs light up with the number of rows, and its nodes with the time that they took.

import { count, duration, el, empty, guarded, isNarrow, short, svg, tile } from "/page/dom.js";
import { latestVersions } from "/page/feed.js";
import { curve, layered } from "/page/layout.js";
import { ask, path } from "/page/server.js";

const LINE = 17, LEFT = 32, LEAST_WIDTH = 120, LONGEST = 24, GAPS = { across: 24, down: 24, margin: 26, label: 34 }, LIT_MS = 4000, LEAST_SCALE = 0.8;
const CHARACTER = { name: 9, note: 6.5 };  // pixels, of the widest usual letters in the sizes of the style sheet

function drawArc(arc, places, ways, isUpright) {
  const from = places.get(arc.source), way = ways.get(arc), below = { x: from.x + from.width / 2 - 44, y: from.y + from.height / 2 };
  const d = way ? curve(way, from, places.get(arc.target), isUpright) : `M${below.x},${below.y} c0,20 30,20 30,0`;
  const label = way?.label ?? { x: below.x + 15, y: below.y + 26 };
  return svg("g", { class: `arc${arc.negative ? " negative" : ""}`, "data-source": arc.source, "data-target": arc.target },
    svg("path", { d }), svg("text", { x: label.x, y: label.y - 4 }));
}

const MARKS = { base: "▤", view: "ƒ", constraint: "!", rule: "⚡", subscriber: "◉" };

/** The lines below the name of a node. */
function notes(node) {
  if (node.kind === "subscriber") return [`${node.count} connected`, ...(node.behind ? [`${node.behind} behind`] : [])];
  if (node.kind === "rule") return [node.active ? "active rule" : "inactive rule"];
  if (node.kind === "constraint") return [node.size ? `${short(node.size)} ${node.size === 1 ? "violation" : "violations"}` : "constraint holds"];
  return [node.size === null ? "not stored" : `${short(node.size)} ${node.size === 1 ? "row" : "rows"}`, ...(node.strategy ? [node.strategy.replace("_", " ")] : [])];
}

const clipped = (node) => { const title = node.text || node.name; return title.length > LONGEST ? `${title.slice(0, LONGEST - 1)}…` : title; };

/** The box of a node, with place for a size that grows. */
function boxOf(node) {
  const lines = notes(node), longest = Math.max(clipped(node).length * CHARACTER.name, ...lines.map((line) => line.length * CHARACTER.note));
  return { name: node.name, width: Math.max(LEAST_WIDTH, Math.ceil(LEFT + longest + 10)), height: 34 + lines.length * LINE };
}

function drawNode(node, place, open) {
  const { width, height } = place, isRelation = ["base", "view", "constraint"].includes(node.kind) && !node.name.includes(".");
  const choose = () => { if (isRelation) open(node.name); else location.hash = "operations"; };
  return svg("g", {
    class: `node ${node.kind}${node.kind === "constraint" && node.size ? " violated" : ""}${node.behind ? " behind" : ""}`, "data-name": node.name,
    transform: `translate(${place.x - width / 2},${place.y - height / 2})`, tabindex: 0, role: "link", "aria-label": `${[`${node.kind} ${node.name}`, ...notes(node)].join(", ")}`,
    onclick: choose, onkeydown: (event) => { if (event.key === "Enter") choose(); },
  },
    svg("title", {}, [node.name, node.kind, node.strategy, node.reason].filter(Boolean).join("\n")),
    svg("rect", { width, height, rx: node.kind === "subscriber" ? height / 2 : 10 }),
    svg("text", { x: 17, y: height / 2 + 5, class: "mark", "text-anchor": "middle" }, MARKS[node.kind]),
    svg("text", { x: LEFT, y: 22, class: "name" }, clipped(node)),
    notes(node).map((line, i) => svg("text", { x: LEFT, y: 22 + (i + 1) * LINE, class: "size" }, line)),
    svg("text", { x: width - 4, y: -6, class: "badge", "text-anchor": "end" }));
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
  const sums = el("div", { class: "tiles sums" }), latest = latestVersions(page);
  const network = el("section", { class: "card" }, el("div", { class: "row" }, el("h2", {}, "Propagation network"), note), picture,
    el("ul", { class: "legend" }, [["base", "base relation"], ["view", "view"], ["constraint", "constraint"], ["rule", "active rule"], ["subscriber", "subscribers"]]
      .map(([kind, text]) => el("li", { class: kind }, el("span", {}, MARKS[kind]), text)), el("li", {}, el("span", { class: "dash" }), "read negatively or by an aggregate")));
  const section = el("div", {}, sums, network, el("section", { class: "card" }, el("div", { class: "row heading" }, el("h2", {}, "Latest versions"), el("a", { href: "#feed" }, "all")), latest.list));
  let nodes = [], arcs = [], readAt = 0, timer = null, request = 0, lit = null;

  const draw = async () => {
    const mine = ++request;
    const found = await ask(path(["network"], { version: page.at }));
    if (mine !== request) return;
    ({ nodes, arcs, version: readAt } = found);
    if (!found.nodes.length) {
      picture.replaceChildren(empty("Nothing is defined yet.", ["Create tables and views under ", el("a", { href: "#work" }, "Work"), "."]));
      return;
    }
    const known = new Set(found.nodes.map((node) => node.name));
    arcs = arcs.filter((arc) => known.has(arc.source) && known.has(arc.target));
    const isUpright = isNarrow.matches;
    const { places, ways, width, height } = await layered(found.nodes.map(boxOf), arcs, { ...GAPS, isUpright });
    if (mine !== request) return;
    const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "network", role: "group", "aria-label": "propagation network" },
      arcs.map((arc) => drawArc(arc, places, ways, isUpright)), found.nodes.map((node) => drawNode(node, places.get(node.name), page.open)));
    // A wide network is drawn smaller, but not so small that it cannot be read; then it scrolls.
    drawing.style.maxWidth = `${width}px`;
    drawing.style.minWidth = `${width * LEAST_SCALE}px`;
    picture.replaceChildren(drawing);
    const top = [...places.values()].reduce((one, other) => (other.y < one.y ? other : one));
    if (isUpright) picture.scrollLeft = (top.x / width) * drawing.getBoundingClientRect().width - picture.clientWidth / 2;
    picture.dataset.version = found.version;
    sumUp();
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
  /** A version says by how much sizes change: the network need not be read again, unless its sizes are those of this version. */
  const resize = (version) => {
    if (version.version <= readAt) return;
    for (const change of version.changes) {
      const node = nodes.find((one) => one.name === change.relation);
      if (node.size === null) continue;
      node.size += change.plus - change.minus;
      const drawn = picture.querySelector(`.node[data-name="${CSS.escape(node.name)}"]`);
      if (!drawn) continue;  // it is being drawn, with the new size
      drawn.querySelectorAll(".size").forEach((line, i) => { line.textContent = notes(node)[i] ?? ""; });
      drawn.classList.toggle("violated", node.kind === "constraint" && node.size > 0);
    }
    sumUp();
  };
  /** What somebody looks for first: how much there is, whether it is in order, and how fast it is. */
  const sumUp = () => {
    const of = (kind) => nodes.filter((node) => node.kind === kind), rows = (found) => found.reduce((sum, node) => sum + (node.size ?? 0), 0);
    const bases = of("base"), views = of("view"), stored = views.filter((node) => node.size !== null), constraints = of("constraint"), broken = constraints.filter((node) => node.size);
    const subscribers = of("subscriber").reduce((sum, node) => sum + node.count, 0), behind = of("subscriber").reduce((sum, node) => sum + node.behind, 0);
    const median = latest.median();
    sums.replaceChildren(
      tile("Base relations", count(bases.length), `${count(rows(bases))} ${rows(bases) === 1 ? "row" : "rows"}`),
      tile("Views", count(views.length), `${count(rows(stored), "row")}${stored.length < views.length ? ` in ${count(stored.length)} that ${stored.length === 1 ? "is" : "are"} stored` : ""}`),
      tile("Constraints", broken.length ? el("span", { class: "tag bad" }, count(rows(broken), "violation")) : constraints.length ? el("span", { class: "tag good" }, "hold") : "none", constraints.length ? `${count(constraints.length)} defined` : null),
      tile("Subscribers", count(subscribers), behind ? el("span", { class: "tag bad" }, `${count(behind)} behind`) : subscribers ? "up to date" : null),
      tile("Maintenance", median === null ? "none yet" : duration(median), median === null ? null : "median of the latest versions"));
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
    latest.draw();
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
  latest.read().then(sumUp, () => {});
  const turned = () => guarded(picture, draw());
  isNarrow.addEventListener("change", turned);
  travel();
  return { section, passed, travel, again: travel, leave: () => { clearTimeout(timer); isNarrow.removeEventListener("change", turned); } };
}
