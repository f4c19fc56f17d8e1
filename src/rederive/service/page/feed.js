// The feed: versions with what they changed, by which engine and at what cost. It can be paused; nothing is lost meanwhile.

import { count, duration, el, empty, fact, guarded, signs } from "/page/dom.js";
import { ask, path } from "/page/server.js";

const KEPT = 500, LATEST = 6, TIMED = 20;
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

/** Reads versions before those that are known. */
async function readEarlier() {
  const found = await ask(path(["versions"], { before: versions.at(-1)?.version ?? null, limit: 50 })), least = versions.at(-1)?.version ?? Infinity;
  const earlier = found.versions.filter((version) => version.version < least);  // the stream may have brought some meanwhile
  versions = [...versions, ...earlier];
  isComplete = !found.versions.length || found.versions.at(-1).version <= found.first + 1;
  return earlier;
}

/** A list that shows versions as they pass, newest first, up to a number of them. */
function listing(page, most) {
  const list = el("ol", { class: "feed" });
  let shownTo = 0;
  const draw = () => {
    const fresh = versions.filter((version) => version.version > shownTo).slice(0, most).reverse();
    if (fresh.length) list.querySelector(".empty")?.remove();
    for (const version of fresh) list.prepend(entry(page, version));
    while (list.childElementCount > most) list.lastChild.remove();
    shownTo = versions[0]?.version ?? 0;
    if (!list.childElementCount) list.replaceChildren(empty("No version yet.", ["Commit a transaction under ", el("a", { href: "#work" }, "Work"), ", or with rederive apply."]));
  };
  return { list, draw, shownTo: () => shownTo };
}

/** The latest versions, for the overview. `median`: the microseconds that they took. */
export function latestVersions(page) {
  const { list, draw } = listing(page, LATEST);
  const read = async () => { if (versions.length < LATEST && !isComplete) await readEarlier(); draw(); };
  const median = () => {
    const times = versions.slice(0, TIMED).map((version) => version.microseconds).filter((one) => one !== undefined).sort((a, b) => a - b);
    return times.length ? times[Math.floor(times.length / 2)] : null;
  };
  return { list, draw, read, median };
}

/** The feed as a part of the page. */
export function feed(page) {
  const { list, draw: show, shownTo } = listing(page, KEPT), more = el("button", {}, "Earlier versions"), pause = el("button", { "aria-pressed": "false" }, "Pause"), note = el("span", { class: "quiet", role: "status" });
  let isPaused = false;
  const draw = () => {
    const waiting = (versions[0]?.version ?? 0) - shownTo();
    note.textContent = isPaused && waiting > 0 ? `${count(waiting, "version")} waiting` : isPaused ? "paused" : "";
    if (!isPaused) show();
  };
  pause.addEventListener("click", () => {
    isPaused = !isPaused;
    pause.textContent = isPaused ? "Resume" : "Pause";
    pause.setAttribute("aria-pressed", String(isPaused));
    draw();
  });
  const earlier = async () => {
    const isFirst = !shownTo(), found = await readEarlier();
    more.hidden = isComplete;
    if (!isFirst) list.append(...found.map((version) => entry(page, version)));
    draw();
  };
  more.addEventListener("click", () => guarded(note, earlier()));
  if (versions.length < 20 && !isComplete) guarded(note, earlier()); else draw();
  more.hidden = isComplete;
  return { section: el("section", { class: "card" }, el("div", { class: "row heading" }, el("h2", {}, "Feed"), pause, note), list, more), passed: draw, key: (name) => { if (name === "p") { pause.click(); return true; } return false; } };
}
