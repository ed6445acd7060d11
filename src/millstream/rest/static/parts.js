/** Parts that several views are made of. */

import { h } from "./dom.js";
import { percent } from "./format.js";

// A shape beside the colour, for readers who do not see the difference.
const STATES = {
  RUNNING: ["ok", "●"],
  FINISHED: ["ok", "✓"],
  COMPLETED: ["ok", "✓"],
  FAILED: ["bad", "✕"],
  FAILING: ["bad", "✕"],
  RESTARTING: ["warn", "↻"],
  INITIALIZING: ["warn", "…"],
  CREATED: ["quiet", "…"],
  IN_PROGRESS: ["quiet", "…"],
  CANCELLING: ["warn", "■"],
  CANCELED: ["quiet", "■"],
  SUSPENDED: ["warn", "‖"],
};

/** Write a status with its colour and shape. */
export function pill(status) {
  const [level, shape] = STATES[status] ?? ["quiet", "?"];
  const text = status.charAt(0) + status.slice(1).toLowerCase().replaceAll("_", " ");
  return h("span", { class: `pill ${level}` }, h("span", { "aria-hidden": "true" }, shape), ` ${text}`);
}

/** Make a table whose rows become cards where it is narrow. */
export function table(label, columns, rows, properties = {}) {
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      { "aria-label": label, ...properties },
      h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col", class: column.class }, column.title)))),
      h("tbody", {}, rows),
    ),
  );
}

/** Make a row; the titles of columns are shown beside the cells where rows are cards. */
export function row(columns, cells, properties = {}) {
  return h(
    "tr",
    properties,
    cells.map((cell, index) =>
      h("td", { class: columns[index].class, "data-title": columns[index].title }, h("div", {}, cell)),
    ),
  );
}

/** Make a column of figures. */
export function figure(title) {
  return { title, class: "figure" };
}

/** Make a column of text. */
export function words(title) {
  return { title, class: "words" };
}

/** Make a card with a heading. */
export function card(title, ...content) {
  return h("section", { class: "card", "aria-label": title }, h("h2", {}, title), content);
}

/** Say that there is nothing, and why. */
export function empty(text) {
  return h("p", { class: "empty" }, text);
}

/** Draw how a second is spent: busy, backpressured, idle. */
export function load({ busy, backpressured, idle }) {
  if (busy === null || busy === undefined) return h("span", { class: "load-unknown" }, "–");
  const share = (name, value) => h("span", { class: name, style: { width: `${Math.min(100, (value ?? 0) * 100)}%` } });
  const label = `busy ${percent(busy)}, backpressured ${percent(backpressured ?? 0)}, idle ${percent(idle ?? 0)}`;
  return h(
    "span",
    { class: "load", role: "img", "aria-label": label, title: label },
    share("busy", busy),
    share("backpressured", backpressured),
  );
}

/** Draw a bar of a share of 1. */
export function bar(share, level = "") {
  const width = `${Math.max(0, Math.min(1, share || 0)) * 100}%`;
  return h("span", { class: "bar", "aria-hidden": "true" }, h("span", { class: level, style: { width } }));
}

/** List names with their values. */
export function facts(pairs) {
  return h(
    "dl",
    { class: "facts" },
    pairs.filter(Boolean).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
  );
}
