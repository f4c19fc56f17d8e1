// The number of rows of a relation over versions, and the values of a numeric column: one line for each group of the other columns.

import { choice, count, el, empty, guarded, short, show, svg } from "/page/dom.js";
import { ask, path } from "/page/server.js";

const WIDTH = 900, HEIGHT = 300, LEFT = 56, RIGHT = 16, TOP = 14, BOTTOM = 28, TICKS = 4;

/** Round numbers that cover a range. */
function ticks(low, high) {
  const span = high - low || 1, power = 10 ** Math.floor(Math.log10(span / TICKS)), step = [1, 2, 5, 10].map((one) => one * power).find((one) => span / one <= TICKS + 1) || span;
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step / 1e6; at += step) found.push(Number(at.toPrecision(10)));
  return found;
}

function draw(lines, at, onChoose) {
  const points = lines.flatMap((line) => line.points).filter(([, value]) => value !== null), versions = points.map(([version]) => version), values = points.map(([, value]) => value);
  const [first, last, low, high] = [Math.min(...versions), Math.max(...versions), Math.min(0, ...values), Math.max(1, ...values) * 1.06];
  const x = (version) => LEFT + ((version - first) * (WIDTH - LEFT - RIGHT)) / Math.max(last - first, 1), y = (value) => HEIGHT - BOTTOM - ((value - low) * (HEIGHT - TOP - BOTTOM)) / (high - low || 1);
  // A value holds until the next version changes it: steps, not slopes.
  const steps = (line) => {
    let text = "", isDown = false;
    for (const [version, value] of line.points) {
      if (value === null) { if (isDown) text += `H${x(version)}`; isDown = false; continue; }
      text += isDown ? `H${x(version)}V${y(value)}` : `M${x(version)},${y(value)}`;
      isDown = true;
    }
    return text;
  };
  const choose = (event) => {
    const box = event.currentTarget.getBoundingClientRect(), place = ((event.clientX - box.left) / box.width) * WIDTH;
    onChoose(Math.round(first + ((place - LEFT) * Math.max(last - first, 1)) / (WIDTH - LEFT - RIGHT)));
  };
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart", role: "img", "aria-label": "values over versions", onclick: choose },
    ticks(low, high).map((value) => [svg("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }), svg("text", { x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, short(value))]),
    ticks(first, last).filter(Number.isInteger).map((version) => svg("text", { x: x(version), y: HEIGHT - 8, "text-anchor": "middle" }, count(version))),
    svg("text", { x: WIDTH - RIGHT, y: HEIGHT - BOTTOM - 6, "text-anchor": "end" }, "version"),
    at === null ? null : svg("line", { class: "now", x1: x(at), x2: x(at), y1: TOP, y2: HEIGHT - BOTTOM }),
    lines.map((line, i) => svg("path", { class: `line c${i % 8}`, d: steps(line) }, svg("title", {}, line.label))));
}

/** The value of a line at a version; null is the last one. A value holds until the next point. */
function valueAt({ points }, at) {
  const value = points.filter(([version]) => at === null || version <= at).at(-1)?.[1] ?? null;
  return value === null ? "none" : value.toLocaleString("en");
}

/** The chart of a relation: its size, or a numeric column. */
export function chartView(page, relation) {
  const drawing = el("div", { class: "picture" }, el("p", { class: "quiet" }, "Reading…")), bar = el("div", { class: "row" }), names = el("ul", { class: "legend" });
  let kind = null, request = 0;
  async function load() {
    const mine = ++request, found = await ask(path(["relations", relation.name, "series"], { column: kind === "rows" ? null : kind }));
    if (mine !== request) return;
    kind ||= found.series.length ? found.column : "rows";
    const lines = kind === "rows" ? [{ label: "rows", points: found.sizes }] : found.series.map((one) => ({ ...one, label: one.label.map(show).join(", ") || found.column }));
    bar.replaceChildren(choice("what is charted", { rows: "number of rows", ...Object.fromEntries(found.columns.map((name) => [name, name])) }, kind, (key) => { kind = key; guarded(drawing, load()); }));
    const isDrawn = lines.some((line) => line.points.length > 1);
    drawing.replaceChildren(isDrawn ? draw(lines, page.at, page.travel) : empty("There is no version to chart yet.", kind === "rows" ? null : "Of a large view, only the number of rows is charted."));
    // Lines may lie on one another: the legend has their values.
    names.replaceChildren(...lines.map((line, i) => el("li", {}, el("span", { class: `swatch c${i % 8}` }), line.label, el("b", {}, valueAt(line, page.at)))));
  }
  guarded(drawing, load());
  const again = () => guarded(drawing, load());
  return { section: el("div", {}, bar, drawing, names), passed: again, travel: again, again };
}
