// Operations: rules and their firings, constraints, webhooks, the lake, tables in place, and subscribers: who is behind.

import { count, el, empty, fact, guarded, tile } from "/page/dom.js";
import { ask } from "/page/server.js";

const REFRESH_MS = 3000;

const table = (head, rows, none) => (rows.length ? el("div", { class: "scroller" }, el("table", { class: "plain" }, el("thead", {}, el("tr", {}, head.map((title) => el("th", { scope: "col" }, title)))), el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell) => el("td", {}, cell)))))))
  : empty(none));
const mark = (isGood, good, bad) => el("span", { class: `tag ${isGood ? "good" : "bad"}` }, isGood ? good : bad);
const behind = (by) => (by > 0 ? el("span", { class: "tag bad" }, `${count(by, "version")} behind`) : el("span", { class: "tag good" }, "up to date"));

/** How long ago a moment was, in the largest unit that fits. */
function ago(at) {
  const seconds = Math.max(0, (Date.now() - new Date(at)) / 1000), [size, unit] = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]].find(([least]) => seconds >= least) || [1, "second"];
  return `${count(Math.floor(seconds / size), unit)} ago`;
}

/** A stream: whether it runs in this process, how far it is, how long ago its last batch was, and what stopped it. */
function stream(one) {
  const rows = one.rows === undefined ? "" : `${count(one.rows)} in ${one.batches === 1 ? "1 batch" : `${count(one.batches)} batches`}${one.quarantined ? `, ${count(one.quarantined)} in quarantine` : ""}`;
  const kind = { running: "good", failed: "bad" }[one.state] || "";
  return [one.source, el("span", { class: `tag ${kind}`, title: one.id }, one.state === "not here" ? "not in this process" : one.state), one.at ? ago(one.at) : "none yet", one.version === null ? "" : count(one.version), rows, one.error || ""];
}

function cards(status, rules, firings, subscriptions, health) {
  const hooks = status.webhooks;
  const tiles = [tile("Service", mark(health.status === "ok", "ok", "look here"), health.status === "ok" ? null : health.status), tile("Version", count(status.version), status.store ? `recorded from ${count(status.store.first)}` : null),
    tile("Engine", status.engine, status.memory || status.reason), tile("Writer", status.writer.busy >= 1 ? `busy for ${Math.round(status.writer.busy)} s` : "idle", `${count(status.writer.waiting, "request")} waiting`),
    tile("Webhooks", hooks.waiting ? `${count(hooks.waiting)} waiting` : "none waiting", hooks.error || (hooks.parked ? `${count(hooks.parked)} given up` : hooks.waiting ? `oldest ${hooks.lag} s` : null)),
    tile("Lake", status.lake ? behind(status.lake.behind) : "none", status.lake ? status.lake.error || status.lake.address : "the journal has everything")];
  const section = (title, ...content) => el("section", { class: "card" }, el("h2", {}, title), ...content);
  const constraints = status.constraints.map((one) => [one.text || one.view, one.mode, one.violations ? el("a", { href: `#view=${encodeURIComponent(one.view)}`, class: "tag bad" }, count(one.violations, "violation")) : mark(true, "holds")]);
  const active = rules.rules.map((one) => [one.name, one.action, one.mode, one.on.join(", "), mark(one.active, "active", "inactive")]);
  const fired = firings.firings.slice(-50).reverse().map((one) => [count(one.version), one.rule, [...one.plus.map((row) => el("div", { class: "plus-ink" }, el("code", {}, `+${fact("", row)}`))), ...one.minus.map((row) => el("div", { class: "minus-ink" }, el("code", {}, `−${fact("", row)}`)))].slice(0, 5),
    el("span", { class: `tag ${one.outcome === "failed" ? "bad" : one.outcome === "waiting" ? "" : "good"}`, title: one.detail }, one.outcome)]);
  const live = subscriptions.subscriptions.map((one) => [`#${one.id}`, one.token || "anyone", one.views.map((view) => view.view).join(", "), count(one.version), one.behind ? el("span", { class: "tag bad" }, `behind, ${count(one.waiting, "event")} waiting`) : behind(0)]);
  const named = (status.cursors || []).map((one) => [one.name, "named", "", count(one.version), behind(status.version - one.version)]);
  return [el("div", { class: "tiles" }, tiles), section("Constraints", table(["condition", "mode", "state"], constraints, "No constraint is defined.")), section("Rules", table(["rule", "action", "mode", "on", "state"], active, "No active rule is defined.")),
    section("Firings", table(["version", "rule", "rows", "outcome"], fired, "No rule has fired.")), section("Subscribers", table(["subscriber", "token", "views", "version", "state"], [...live, ...named], "Nobody is subscribed.")),
    section("Streams", table(["source", "state", "last batch", "version", "rows", "error"], (status.streams || []).map(stream), "No stream was ingested.")),
    status.sources.length ? section("Tables in place", table(["relation", "commit"], status.sources.map((one) => [one.relation, count(one.version)]), "")) : null].filter(Boolean);
}

/** The part of the page for those who run the service. */
export function operations(page) {
  const section = el("div", { class: "operations" }, el("p", { class: "quiet" }, "…"));
  let last = "";
  const load = async () => {
    const [status, rules, firings, subscriptions, health] = await Promise.all(["status", "rules", "firings", "subscriptions", "health"].map((name) => ask(`/v1/${name}`)));
    const text = JSON.stringify([status, rules, firings, subscriptions, health]);
    if (text !== last) section.replaceChildren(...cards(status, rules, firings, subscriptions, health));
    last = text;
  };
  const refresh = () => guarded(section, load());
  const timer = setInterval(() => { if (!document.hidden) refresh(); }, REFRESH_MS);
  refresh();
  return { section, passed: refresh, leave: () => clearInterval(timer) };
}
