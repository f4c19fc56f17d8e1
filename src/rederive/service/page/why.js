// Why a row is there, why it entered or left, and why it is absent: trees of rules and facts, one level at a time.

import { el, empty, fact, guarded } from "/page/dom.js";
import { ask, path } from "/page/server.js";

const question = (relation, row, more) => ask(path(["views", relation, "why"], { row: JSON.stringify(row), width: 3, depth: 1, ...more }));

/** A line of a tree with a button that opens what is below; `load` is asked once, when it is opened first. */
function branch(title, note, load, isOpen = false) {
  const below = el("ul"), arrow = el("span", { class: "arrow", "aria-hidden": "true" }, "▸");
  let isLoaded = false;
  const toggle = async () => {
    const opens = below.hidden;
    below.hidden = !opens;
    button.setAttribute("aria-expanded", String(opens));
    if (!opens || isLoaded) return;
    isLoaded = true;
    below.replaceChildren(el("li", { class: "quiet" }, "…"));
    await guarded(below, load().then((items) => below.replaceChildren(...items)));
  };
  const button = el("button", { class: "branch", "aria-expanded": "false", onclick: toggle }, arrow, el("code", {}, title), note);
  below.hidden = true;
  const item = el("li", {}, button, below);
  if (isOpen) toggle();
  return item;
}

const leaf = (title, note, kind = "") => el("li", { class: `leaf ${kind}` }, el("code", {}, title), " ", note ? el("span", { class: "note" }, note) : null);

function premise(one, more) {
  if (one.condition !== undefined) return leaf(one.condition, "holds", "condition");
  const title = fact(one.relation, one.row);
  if (one.base) return leaf(title, "base row", "base");
  return branch(title, null, async () => derivations(await question(one.relation, one.row, more), more));
}

/** The derivations of a row: under each rule, its premises; those are explained when they are opened. */
function derivations(found, more) {
  const steps = (found.derivations || []).map((step) => el("li", { class: "step" }, el("p", { class: "by" }, step.rule),
    el("ul", {}, step.premises.map((one) => premise(one, more)), step.left_out ? leaf(`and ${step.left_out} more rows of the group`, null, "quiet") : null)));
  return [...steps, found.further ? el("li", { class: "quiet" }, "There are other derivations.") : null].filter(Boolean);
}

function changed(one, version) {
  const title = fact(one.relation, one.row), entered = one.change === "entered";
  const note = el("span", { class: entered ? "plus-ink" : "minus-ink" }, one.base ? (entered ? " inserted" : " deleted") : ` ${one.change}`);
  if (one.base) return leaf(title, note, "base");
  return branch(title, note, async () => brokenSteps(await question(one.relation, one.row, { changed: true, version }), version));
}

/** The derivations that a version made or broke. */
function brokenSteps(found, version) {
  return (found.derivations || []).map((step) => el("li", { class: "step" },
    el("p", { class: "by" }, el("b", { class: found.change === "entered" ? "plus-ink" : "minus-ink" }, found.change === "entered" ? "made: " : "broken: "), step.rule),
    el("ul", {}, step.changed.map((one) => changed(one, version)), step.left_out ? leaf(`and ${step.left_out} more rows changed`, null, "quiet") : null,
      step.unchanged.map((one) => leaf(one.condition ?? fact(one.relation, one.row), "unchanged", "quiet")))));
}

function absence(found) {
  if (!found.rules.length) return [empty("It is a base relation, and no transaction inserted the row.")];
  return [el("ul", { class: "tree" }, found.rules.map((rule) => el("li", { class: "step" }, el("p", { class: "by" }, rule.rule),
    el("ul", {}, rule.holds.map((one) => leaf(one.condition ?? fact(one.relation, one.row), "holds", "base")), leaf(rule.fails, "fails", "fails")))))];
}

async function presence(relation, row, version) {
  const more = version === null ? {} : { version };
  const found = await question(relation, row, more);
  if (!found.present) return { title: "Why not", content: absence(found) };
  if (found.base) return { title: "Why", content: [empty("A base row.", "A transaction inserted it.")] };
  return { title: "Why", content: [el("ul", { class: "tree" }, derivations(found, more))] };
}

async function change(relation, row, version) {
  const found = await question(relation, row, { changed: true, version });
  const content = found.base ? [empty(`A transaction ${found.change === "entered" ? "inserted" : "deleted"} it at version ${version}.`)]
    : [el("ul", { class: "tree" }, brokenSteps(found, version))];
  return { title: `Why it ${found.change} at version ${version}`, content };
}

/** The panel that explains a row. `entered` and `left`: the version at which it did, if that is known. */
export function explain(panel, relation, row, { at = null, entered = null, left = null, onClose }) {
  const body = el("div", { class: "body" }), title = el("h2"), close = el("button", { class: "icon", "aria-label": "close", onclick: onClose }, "✕");
  const show = async (question) => {
    body.replaceChildren(el("p", { class: "quiet" }, "…"));
    await guarded(body, question().then((found) => { title.textContent = found.title; body.replaceChildren(...found.content); }));
  };
  const why = () => show(() => presence(relation, row, at)), changing = (version) => () => show(() => change(relation, row, version));
  const others = el("div", { class: "row" },
    entered !== null ? el("button", { class: "small", onclick: changing(entered) }, `why it entered at ${entered}`) : null,
    entered !== null || left !== null ? el("button", { class: "small", onclick: why }, left !== null ? "why it is not there" : "why it is there") : null,
    left !== null ? el("button", { class: "small", onclick: changing(left) }, `why it left at ${left}`) : null);
  panel.hidden = false;
  panel.replaceChildren(el("div", { class: "row" }, title, close), el("p", { class: "fact" }, el("code", {}, fact(relation, row))), others, body);
  return left !== null ? changing(left)() : why();
}
