// The feed: versions with what they changed, by which engine and at what cost. It can be paused; nothing is lost meanwhile.

import { count, duration, el, empty, fact, guarded, signs } from "/page/dom.js";
import { ask, path } from "/page/server.js";

const KEPT = 500;
let versions = [], isComplete = false;

/** Takes a version that the stream brought. Those of a feed that is not shown, or paused, are here when it is. */
export function remember(version) {
  if (!versions.length || versions[0].version < version.version) versions = [version, ...versions].slice(0, KEPT);
}

const rowsOf = (change) => [...change.minus.map((row) => el("li", { class: "minus-ink" }, "− ", el("code", {}, fact(change.relation, row)))),
  ...change.plus.map((row) => el("li", { class: "plus-ink" }, "+ ", el("code", {}, fact(change.relation, row)))),
  change.more.plus + change.more.minus ? el("li", { class: "quiet" }, `and ${count(change.more.plus + change.more.minus, "more row")}`) : null];

function entry(page, version) {
  const details = el("ul", { class: "rows" });
  const opened = (event) => {
    if (!event.target.open || details.childElementCount) return;
    guarded(details, ask(path(["versions", String(version.version)])).then((found) => details.replaceChildren(...found.changes.flatMap(rowsOf).filter(Boolean))));
  };
  const cost = version.microseconds === undefined ? [version.engine] : [`${version.engine}, ${version.strategy}`, duration(version.microseconds), count(version.touched, "tuple")];
  return el("li", { "data-version": version.version }, el("details", { ontoggle: opened }, el("summary", {},
    el("b", {}, `version ${count(version.version)}`), el("span", { class: "changes" }, version.changes.length
      ? version.changes.map((change) => el("span", { class: "tag" }, change.relation, " ", signs(change.plus, change.minus))) : el("span", { class: "quiet" }, "no change")),
    el("span", { class: "cost" }, cost.join(" · ")), el("time", { datetime: version.at }, new Date(version.at).toLocaleTimeString())), details,
    el("button", { class: "small", onclick: () => { location.hash = "overview"; setTimeout(() => page.travel(version.version)); } }, "look at this version")));
}

/** The feed as a part of the page. */
export function feed(page) {
  const list = el("ol", { class: "feed" }), more = el("button", {}, "Earlier versions"), pause = el("button", { "aria-pressed": "false" }, "Pause"), note = el("span", { class: "quiet", role: "status" });
  let isPaused = false, shownTo = 0;
  const draw = () => {
    const top = versions[0]?.version ?? 0;
    note.textContent = isPaused && top > shownTo ? `${count(top - shownTo, "version")} waiting` : isPaused ? "paused" : "";
    if (isPaused) return;
    const fresh = versions.filter((version) => version.version > shownTo).reverse();
    if (fresh.length && list.querySelector(".empty")) list.replaceChildren();
    for (const version of fresh) list.prepend(entry(page, version));
    while (list.childElementCount > KEPT) list.lastChild.remove();
    shownTo = top;
    if (!list.childElementCount) list.replaceChildren(empty("No version yet.", "Commit a transaction under Work, or with rederive apply."));
  };
  pause.addEventListener("click", () => {
    isPaused = !isPaused;
    pause.textContent = isPaused ? "Resume" : "Pause";
    pause.setAttribute("aria-pressed", String(isPaused));
    draw();
  });
  const earlier = async () => {
    const before = versions.length ? versions[versions.length - 1].version : null, found = await ask(path(["versions"], { before, limit: 50 }));
    versions = [...versions, ...found.versions];
    isComplete = !found.versions.length || found.versions[found.versions.length - 1].version <= found.first + 1;
    more.hidden = isComplete;
    if (shownTo) list.append(...found.versions.map((version) => entry(page, version)));
    draw();
  };
  more.addEventListener("click", () => guarded(note, earlier()));
  if (versions.length < 20 && !isComplete) guarded(note, earlier()); else draw();
  more.hidden = isComplete;
  return { section: el("section", { class: "card" }, el("div", { class: "row heading" }, el("h2", {}, "Feed"), pause, note), list, more), passed: draw, key: (name) => { if (name === "p") { pause.click(); return true; } return false; } };
}
