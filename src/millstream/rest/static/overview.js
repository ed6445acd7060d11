/** The graph of a job, and its tasks as a table. */

import { h } from "./dom.js";
import { bytes, duration, percent, rate, watermark } from "./format.js";
import { graph } from "./graph.js";
import { card, empty, figure, load as loadBar, pill, row, table, words } from "./parts.js";
import { isSkewed } from "./tasks.js";

const COLUMNS = [
  words("Task"),
  words("Status"),
  figure("Subtasks"),
  figure("In"),
  figure("Out"),
  words("Load"),
  figure("Busy"),
  figure("Backpressured"),
  figure("Watermark lag"),
  figure("Skew"),
  figure("State"),
];

/** Show it. */
export function render({ job, tasks }) {
  if (!tasks.length) return empty("The job has no tasks yet.");
  return [
    h("section", { class: "card flush", "aria-label": "Graph" }, graph(job, tasks), legend()),
    card("Tasks", table("Tasks", COLUMNS, tasks.map((task) => line(job, task)))),
  ];
}

function legend() {
  const entry = (name, text) => h("span", {}, h("span", { class: `key ${name}`, "aria-hidden": "true" }), text);
  return h("p", { class: "legend" }, entry("busy", "busy"), entry("backpressured", "backpressured"), entry("idle", "idle"), h("span", { class: "muted" }, "rates are of the last minute"));
}

function line(job, task) {
  const cells = [
    h("a", { href: `#/jobs/${job.jid}/tasks/${task.id}` }, task.name),
    pill(task.status),
    String(task.parallelism),
    rate(task.rateIn),
    rate(task.rateOut),
    loadBar(task),
    percent(task.busy),
    h("span", { class: task.backpressured >= 0.1 ? task.level : "" }, percent(task.backpressured)),
    task.lag === null ? watermark(task.watermark) : duration(task.lag),
    task.skew === null ? "–" : h("span", { class: isSkewed(task) ? "warn" : "" }, `${task.skew.toFixed(1)} ×`),
    bytes(task.stateSize),
  ];
  return row(COLUMNS, cells, { "data-key": task.id });
}

