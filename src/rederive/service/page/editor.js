// A small editor: a text area over the same text in colour, with line numbers, and an error underlined where it is.

import { el } from "/page/dom.js";

const WORDS = {
  sql: /\b(CREATE|OR|REPLACE|TABLE|VIEW|AS|SELECT|FROM|WHERE|GROUP|BY|HAVING|ORDER|JOIN|LEFT|RIGHT|FULL|INNER|OUTER|ON|AND|NOT|IN|EXISTS|UNION|ALL|DISTINCT|INSERT|INTO|VALUES|UPDATE|SET|DELETE|MERGE|USING|WHEN|THEN|CASE|ELSE|END|PRIMARY|KEY|RULE|DO|WITH|RECURSIVE|NULL|IS|BETWEEN|LIKE|LIMIT|DROP|ALTER|CONSTRAINT|CHECK|WEBHOOK|CALL|INT|BIGINT|STRING|DOUBLE|DATE|TIMESTAMP|BOOLEAN)\b/gi,
  datalog: /(\.(?:decl|input|output|constraint|rule)\b|:-|\b(?:symbol|number|unsigned|float|key|count|sum|min|max|mean)\b)/g,
  changes: /(^[+\-~](?=\s*\w))/gm,
};
const PARTS = /("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|--[^\n]*|\/\/[^\n]*)/g;

/** The text as elements: strings and comments, and the words of the language elsewhere. */
export function coloured(text, language) {
  return text.split(PARTS).flatMap((part, i) => {
    if (i % 2) return [el("span", { class: /^(--|\/\/)/.test(part) ? "comment" : "string" }, part)];
    return part.split(WORDS[language]).map((piece) => (piece && piece.match(WORDS[language])?.[0] === piece ? el("span", { class: "word" }, piece) : piece)).filter(Boolean);
  });
}

/** The line and column of an error such as `body:2:14`; null where it has none. */
export function placeOf(error) {
  const found = /:(\d+):(\d+)/.exec(error.place || "");
  return found ? { line: Number(found[1]), column: Number(found[2]) } : null;
}

/** An editor. Its `text` is read and set; `mark` underlines a place; `onRun` is called by Ctrl+Enter. */
export function editor(label, { language, onRun, onInput }) {
  const area = el("textarea", { "aria-label": label, spellcheck: "false", autocapitalize: "off", autocomplete: "off", wrap: "off" }), layer = el("pre", { class: "layer", "aria-hidden": "true" }), numbers = el("pre", { class: "numbers", "aria-hidden": "true" });
  let kind = language, mark = null;
  const draw = () => {
    const lines = area.value.split("\n");
    layer.replaceChildren(...coloured(area.value, kind), "\n");
    numbers.replaceChildren(...lines.map((_, i) => el("span", { class: mark?.line === i + 1 ? "wrong" : null }, `${i + 1}\n`)));
    area.rows = Math.min(Math.max(lines.length, 6), 24);
    underline.hidden = mark === null;
    if (mark) {
      const line = lines[mark.line - 1] ?? "", length = Math.max(/^[\w.]+/.exec(line.slice(mark.column - 1))?.[0].length ?? 1, 1);
      underline.replaceChildren(`${"\n".repeat(mark.line - 1)}${" ".repeat(Math.max(mark.column - 1, 0))}`, el("mark", {}, " ".repeat(length)));
    }
  };
  const underline = el("pre", { class: "layer marks", "aria-hidden": "true", hidden: true });
  area.addEventListener("input", () => { mark = null; draw(); onInput?.(); });
  area.addEventListener("scroll", () => { for (const one of [layer, underline]) { one.scrollLeft = area.scrollLeft; one.scrollTop = area.scrollTop; } numbers.scrollTop = area.scrollTop; });
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); onRun?.(); }
  });
  draw();
  return {
    element: el("div", { class: "editor" }, numbers, el("div", { class: "stack" }, layer, underline, area)),
    area,
    get text() { return area.value; },
    set text(value) { area.value = value; mark = null; draw(); },
    set language(value) { kind = value; draw(); },
    mark(place) { mark = place; draw(); if (place) { area.focus(); const at = area.value.split("\n").slice(0, place.line - 1).join("\n").length + (place.line > 1 ? 1 : 0) + place.column - 1; area.setSelectionRange(at, at); } },
  };
}
