// Layered drawings, left to right: nodes in columns, and arcs on ways around the nodes between them. dagre computes the places
// (Sugiyama's method); it comes in a wheel, and is read when the first drawing needs it.

/** Places boxes {name, width, height} and arcs {source, target}. The place of a box is its centre; the way of an arc is the points
 *  between its ends, and the place of its label. An arc from a box to itself has no way. */
export async function layered(boxes, arcs, { across, down, margin, label = 0 }) {
  const { layout } = await import("/library/dagre.js");
  const number = new Map(boxes.map((box, i) => [box.name, String(i)])), drawn = arcs.filter((arc) => arc.source !== arc.target);
  const nodes = boxes.map(({ name, width, height }) => ({ v: number.get(name), width, height }));
  const lines = drawn.map((arc) => ({ v: number.get(arc.source), w: number.get(arc.target), width: label }));
  layout(nodes, lines, { rankdir: "LR", nodesep: down, edgesep: down / 2, ranksep: across }, {});
  const bends = lines.flatMap((line) => line.points.slice(1, -1));
  const edge = (axis, length, sign) => Math.max(...nodes.map((one) => sign * one[axis] + one[length] / 2), ...bends.map((one) => sign * one[axis])) + margin;
  const left = -edge("x", "width", -1), top = -edge("y", "height", -1), moved = ({ x, y }) => ({ x: x - left, y: y - top });
  return {
    places: new Map(boxes.map((box, i) => [box.name, { ...moved(nodes[i]), width: box.width, height: box.height }])),
    ways: new Map(drawn.map((arc, i) => [arc, wayOf(lines[i].points.map(moved))])),
    width: edge("x", "width", 1) - left, height: edge("y", "height", 1) - top,
  };
}

// dagre puts one point between neighbouring columns for the label; there is nothing to go around.
function wayOf(points) {
  const between = points.length > 3 ? points.slice(1, -1) : [], [first, last] = [points[0], points.at(-1)];
  return { between, label: between[Math.floor(between.length / 2)] ?? { x: (first.x + last.x) / 2, y: (first.y + last.y) / 2 } };
}

/** The path of an arc: it leaves and enters a box in the middle of a side, and passes each point between them horizontally. */
export function curve({ between }, from, to) {
  const sign = Math.sign(to.x - from.x) || 1;
  const all = [{ x: from.x + (sign * from.width) / 2, y: from.y }, ...between, { x: to.x - (sign * to.width) / 2, y: to.y }];
  return all.slice(1).reduce((text, point, i) => {
    const middle = (all[i].x + point.x) / 2;
    return `${text}C${middle},${all[i].y} ${middle},${point.y} ${point.x},${point.y}`;
  }, `M${all[0].x},${all[0].y}`);
}
