// Layered drawings: nodes in columns from left to right, or upright in rows from top to bottom, and arcs on ways around the nodes
// between them. dagre computes the places (Sugiyama's method); it comes in a wheel, and is read when the first drawing needs it.

/** Places boxes {name, width, height} and arcs {source, target}. The place of a box is its centre; the way of an arc is the points
 *  between its ends, and the place of its label. An arc from a box to itself has no way. */
export async function layered(boxes, arcs, { across, down, margin, label = 0, isUpright = false }) {
  const { layout } = await import("/library/dagre.js");
  const number = new Map(boxes.map((box, i) => [box.name, String(i)])), drawn = arcs.filter((arc) => arc.source !== arc.target);
  const nodes = boxes.map(({ name, width, height }) => ({ v: number.get(name), width, height }));
  const lines = drawn.map((arc) => ({ v: number.get(arc.source), w: number.get(arc.target), width: isUpright ? 0 : label, height: isUpright ? label : 0 }));
  layout(nodes, lines, { rankdir: isUpright ? "TB" : "LR", nodesep: down, edgesep: down / 2, ranksep: across }, {});
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

/** The path of an arc: it leaves and enters a box in the middle of a side, and passes each point between them along the layers. */
export function curve({ between }, from, to, isUpright = false) {
  const [along, across, length] = isUpright ? ["y", "x", "height"] : ["x", "y", "width"];
  const sign = Math.sign(to[along] - from[along]) || 1, side = (box, by) => ({ [along]: box[along] + (by * sign * box[length]) / 2, [across]: box[across] });
  const all = [side(from, 1), ...between, side(to, -1)];
  return all.slice(1).reduce((text, point, i) => {
    const middle = (all[i][along] + point[along]) / 2, bend = (one) => (isUpright ? `${one.x},${middle}` : `${middle},${one.y}`);
    return `${text}C${bend(all[i])} ${bend(point)} ${point.x},${point.y}`;
  }, `M${all[0].x},${all[0].y}`);
}
