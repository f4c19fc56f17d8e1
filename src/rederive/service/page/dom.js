// Small helpers: elements from data. Text is always set as text, so that no value of a row is read as HTML.

/** An element with attributes, listeners (onclick and the like) and children. */
export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** The same in SVG. */
export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** A value of a row as a person reads it. */
export const show = (value) => (value === null ? "NULL" : typeof value === "string" ? value : JSON.stringify(value));

/** A row as an atom. A recursion in WITH is lowered to the view, a dot, its name and a digit. */
export const fact = (relation, row) => `${relation.includes(".") ? relation.split(".")[1].slice(0, -1) : relation}(${row.map((value) => JSON.stringify(value)).join(", ")})`;

/** A number with separators; with a noun, in its singular or plural. */
export const count = (number, noun) => `${number.toLocaleString("en")}${noun ? ` ${noun}${number === 1 ? "" : "s"}` : ""}`;

/** A large number in few characters: 3.4M. */
export const short = (number) => Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(number);

/** Microseconds as a person reads them. */
export function duration(microseconds) {
  if (microseconds < 1000) return `${microseconds} µs`;
  return microseconds < 1e6 ? `${(microseconds / 1000).toPrecision(3)} ms` : `${(microseconds / 1e6).toPrecision(3)} s`;
}

/** The sign and number of the rows that entered and left. */
export function signs(plus, minus) {
  return [plus ? el("span", { class: "plus-ink" }, `+${count(plus)}`) : null, plus && minus ? " " : null,
    minus ? el("span", { class: "minus-ink" }, `−${count(minus)}`) : null];
}

/** A number that matters, under its title. */
export const tile = (title, value, note) => el("div", { class: "tile" }, el("p", { class: "quiet" }, title), el("p", { class: "value" }, value), note ? el("p", { class: "quiet" }, note) : null);

/** Whether the page has the width of a phone; the same width as in the style sheet. */
export const isNarrow = window.matchMedia("(max-width: 44rem)");

/** A place without content says what will be there, or what to do. */
export const empty = (title, text) => el("div", { class: "empty" }, el("p", {}, title), text ? el("p", { class: "quiet" }, text) : null);

/** What a request that failed says: its text, the place, what to do. */
export function problem(error) {
  return el("div", { class: "problem", role: "alert" }, el("p", {}, error.message),
    error.excerpt ? el("pre", {}, error.excerpt) : null, error.hint ? el("p", { class: "quiet" }, `help: ${error.hint}`) : null);
}

/** Shows a promise that failed in the place of the content. */
export function guarded(place, promise) {
  return promise.catch((error) => { if (error.name !== "AbortError") place.replaceChildren(problem(error)); });
}

/** A group of buttons of which one is pressed. */
export function choice(label, options, chosen, onChoose) {
  return el("div", { class: "choice", role: "group", "aria-label": label }, Object.entries(options).map(([key, title]) =>
    el("button", { type: "button", "aria-pressed": String(key === chosen), onclick: () => onChoose(key) }, title)));
}
