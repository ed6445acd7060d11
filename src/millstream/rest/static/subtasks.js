/** One task: its operators, and its subtasks side by side, so that skew is visible. */

import { h } from "./dom.js";
import { bytes, count, percent, plural, rate, watermark, whole } from "./format.js";
import { bar, card, empty, figure, load as loadBar, pill, row, table, words } from "./parts.js";
import { isSkewed, loadSubtasks } from "./tasks.js";

const SUBTASKS = [
  figure("Subtask"),
  words("Status"),
  words("Share of records"),
  figure("Records in"),
  figure("Records out"),
  figure("In"),
  figure("Out"),
  words("Load"),
  figure("Busy"),
  figure("Backpressured"),
  figure("Watermark"),
  figure("Attempt"),
  words("Host"),
];
const OPERATORS = [
  words("Operator"),
  words("Location"),
  words("Changes"),
  figure("In"),
  figure("Out"),
  figure("Late, dropped"),
  figure("Pending commits"),
  figure("State"),
];

/** Load the subtasks. */
export async function load({ job }, [id]) {
  return loadSubtasks(job, id);
}

/** Show them. */
export function render({ job, tasks }, subtasks, [id]) {
  const task = tasks.find((each) => each.id === id);
  if (!task) return empty("The job has no such task any more.");
  const counted = subtasks.map((subtask) => Number((task.isSource ? subtask.recordsOut : subtask.recordsIn) ?? 0));
  const most = Math.max(...counted, 1);
  const total = counted.reduce((sum, each) => sum + each, 0);
  return [
    h("p", { class: "crumbs" }, h("a", { href: `#/jobs/${job.jid}` }, "Graph"), " / ", task.name),
    card("Operators", table("Operators", OPERATORS, task.operators.map((operator) => operatorLine(task, operator)))),
    card(
      `Subtasks of “${task.name}”`,
      h("p", { class: isSkewed(task) ? "warn" : "muted" }, verdict(task, subtasks)),
      table("Subtasks", SUBTASKS, subtasks.map((each, index) => line(job, each, counted[index] / most, total ? counted[index] / total : 0))),
    ),
  ];
}

function verdict(task, subtasks) {
  if (task.skew === null) return plural(subtasks.length, "subtask");
  const often = `the one with the most records has ${task.skew.toFixed(1)} times the mean`;
  return isSkewed(task)
    ? `Skewed: ${often}. Its key groups have more records than the others, and it decides how fast the task is.`
    : `Even: ${often}.`;
}

/** Return an operator's metrics: Flink replaces what is no letter or digit in names of metrics. */
function figuresOf(task, operator) {
  const plain = (name) => name.replace(/[^A-Za-z0-9]/g, "_");
  for (const [name, figures] of task.perOperator) {
    if (plain(name) === plain(operator.name)) return figures;
  }
  return {};
}

function operatorLine(task, operator) {
  const figures = figuresOf(task, operator);
  const cells = [
    operator.name,
    operator.location ? h("code", {}, operator.location) : "–",
    operator.changelog ? h("code", {}, operator.changelog) : "–",
    rate(figures.numRecordsInPerSecond),
    rate(figures.numRecordsOutPerSecond),
    count(figures.numLateRecordsDropped),
    count(figures.pendingCommittables),
    bytes(figures.lastCheckpointStateSize),
  ];
  return row(OPERATORS, cells);
}

function line(job, subtask, ofMost, ofAll) {
  const pressure = subtask.load;
  const spent = { busy: pressure.busyRatio, backpressured: pressure.ratio, idle: pressure.idleRatio };
  const cells = [
    String(subtask.subtask),
    pill(subtask.status),
    h("span", { class: "share" }, bar(ofMost), ` ${percent(ofAll)}`),
    whole(subtask.recordsIn),
    whole(subtask.recordsOut),
    rate(subtask.rateIn),
    rate(subtask.rateOut),
    loadBar(spent),
    percent(spent.busy),
    h("span", { class: spent.backpressured >= 0.5 ? "bad" : spent.backpressured >= 0.1 ? "warn" : "" }, percent(spent.backpressured)),
    watermark(subtask.watermark, job.now),
    String((subtask.attempt ?? 0) + 1),
    subtask.endpoint ?? subtask.host ?? "–",
  ];
  return row(SUBTASKS, cells, { "data-key": `subtask ${subtask.subtask}` });
}

