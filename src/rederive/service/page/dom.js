// Small helpers: elements from data. Text is always set as text, so that no value of a row is read as HTML.

/** An element with attributes, listeners (onclick and the like) and children. */
export function el(name, attributes = {}, ...children) {
  const found = document.createElement(name);
  fill(found, attributes, children);
  return found;
}

/** The same in SVG. */
export function svg(name, attributes = {}, ...children) {
  const found = document.createElementNS("http://www.w3.org/2000/svg", name);
  fill(found, attributes, children);
  return found;
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
}

/** A value of a row as a person reads it. */
export const show = (value) => (value === null ? "NULL" : typeof value === "string" ? value : JSON.stringify(value));

/** A row as an atom. */
export const fact = (relation, row) => `${relation}(${row.map((value) => JSON.stringify(value)).join(", ")})`;

/** Shows what a promise that failed says, in the place of the content. */
export function guarded(place, promise) {
  return promise.catch((error) => place.replaceChildren(el("p", { class: "problem", role: "alert" }, error.message)));
}
