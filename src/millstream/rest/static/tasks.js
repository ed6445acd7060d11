/** The tasks of a job with their metrics, from Flink's names of them. */

import { get, getOr } from "./api.js";
import { isKnown, isTime } from "./format.js";
import { remember } from "./series.js";

const TASK_METRICS = [
  "numRecordsInPerSecond",
  "numRecordsOutPerSecond",
  "numRecordsIn",
  "busyTimeMsPerSecond",
  "idleTimeMsPerSecond",
  "backPressuredTimeMsPerSecond",
];
// Of operators; their ids begin with the operator's name.
const OPERATOR_METRICS = [
  "currentInputWatermark",
  "currentOutputWatermark",
  "numRecordsInPerSecond",
  "numRecordsOutPerSecond",
  "numLateRecordsDropped",
  "lastCheckpointStateSize",
  "pendingCommittables",
  "pendingRecords",
  "records-lag-max",
  "records-lag",
  "committed-offset",
];
// Which metrics there are changes seldom: with the first record, with a new partition.
const LISTED_FOR = 30_000;
const BUSY = 0.8;
const BACKPRESSURED = [0.1, 0.5];
const SKEWED = 2;

const listed = new Map();

/** Load the tasks of a job, in the order of the plan. */
export async function loadTasks(job) {
  const nodes = new Map(job.plan.nodes.map((node) => [node.id, node]));
  const tasks = await Promise.all(
    job.vertices.map(async (vertex) => describe(job, vertex, nodes.get(vertex.id), await metricsOf(job, vertex))),
  );
  for (const task of tasks) {
    remember(`${job.jid}/${task.id}/out`, task.isSink ? task.rateIn : task.rateOut);
    remember(`${job.jid}/${task.id}/busy`, task.busy);
  }
  return tasks;
}

async function metricsOf(job, vertex) {
  const path = `jobs/${job.jid}/vertices/${vertex.id}/subtasks/metrics`;
  const wanted = await wantedIds(path);
  if (!wanted.length) return new Map();
  const ids = wanted.map(encodeURIComponent).join(",");
  const found = await getOr([], `${path}?get=${ids}`);
  return new Map(found.map((metric) => [metric.id, metric]));
}

async function wantedIds(path) {
  const known = listed.get(path);
  if (known && Date.now() - known.at < LISTED_FOR) return known.ids;
  const all = await getOr([], path);
  const ids = all.map(({ id }) => id).filter((id) => TASK_METRICS.includes(id) || metricName(id));
  listed.set(path, { at: Date.now(), ids });
  return ids;
}

/** Return the name of an operator's metric, without the operator's; null if no view shows it. */
function metricName(id) {
  return OPERATOR_METRICS.find((name) => id.endsWith(`.${name}`)) ?? null;
}

function describe(job, vertex, node, metrics) {
  const value = (id, how = "sum") => {
    const found = metrics.get(id)?.[how];
    return isKnown(found) ? Number(found) : null;
  };
  const [busy, idle, backpressured] = ["busy", "idle", "backPressured"].map((kind) => {
    const milliseconds = value(`${kind}TimeMsPerSecond`, "avg");
    return milliseconds === null ? null : milliseconds / 1000;
  });
  const most = value("backPressuredTimeMsPerSecond", "max");
  const inputs = node?.inputs ?? [];
  const task = {
    id: vertex.id,
    name: vertex.name,
    parallelism: vertex.parallelism,
    status: vertex.status,
    operators: operatorsOf(vertex, node),
    inputs,
    isSource: inputs.length === 0,
    isSink: !job.plan.nodes.some((each) => (each.inputs ?? []).some(({ id }) => id === vertex.id)),
    recordsIn: vertex.metrics?.["read-records"],
    recordsOut: vertex.metrics?.["write-records"],
    rateIn: value("numRecordsInPerSecond"),
    rateOut: value("numRecordsOutPerSecond"),
    busy,
    idle,
    backpressured,
    mostBackpressured: most === null ? null : most / 1000,
    skew: skew(metrics.get("numRecordsIn"), vertex.parallelism),
    ...operatorFigures(metrics, value),
  };
  task.lag = isTime(task.watermark) ? Math.max(0, job.now - task.watermark) : null;
  task.level = level(task);
  return task;
}

function operatorsOf(vertex, node) {
  const known = node?.operators ?? vertex.operators;
  if (known) return known;
  return vertex.name.split(" -> ").map((name) => ({ name }));
}

function operatorFigures(metrics, value) {
  const figures = { perOperator: new Map(), watermark: null, stateSize: null, late: null, pendingRecords: null };
  for (const id of metrics.keys()) {
    const name = metricName(id);
    if (!name) continue;
    const operator = id.slice(0, -name.length - 1);
    const isTimeOf = name.endsWith("Watermark");
    const found = value(id, isTimeOf ? "min" : "sum");
    const kept = figures.perOperator.get(operator) ?? {};
    kept[name] = found;
    figures.perOperator.set(operator, kept);
    if (found === null) continue;
    // A source has only what it emits; of the others it is what they have received.
    if (isTimeOf) figures.watermark = Math.min(figures.watermark ?? Infinity, found);
    else if (name === "lastCheckpointStateSize") figures.stateSize = (figures.stateSize ?? 0) + found;
    else if (name === "numLateRecordsDropped") figures.late = (figures.late ?? 0) + found;
    else if (name === "pendingRecords") figures.pendingRecords = (figures.pendingRecords ?? 0) + found;
  }
  return figures;
}

/** Return how much more the subtask with the most records has than the mean of all. */
function skew(metric, parallelism) {
  if (!metric || parallelism < 2 || !metric.avg) return null;
  return metric.max / metric.avg;
}

/** Return how a task is: "bad" holds others up or is held up, "warn" will be soon. */
export function level(task) {
  if (["FAILED", "FAILING"].includes(task.status)) return "bad";
  const waits = task.mostBackpressured ?? task.backpressured ?? 0;
  if (waits >= BACKPRESSURED[1]) return "bad";
  if (waits >= BACKPRESSURED[0] || (task.busy ?? 0) >= BUSY) return "warn";
  return task.status === "RUNNING" ? "ok" : "quiet";
}

/** Return whether the records of a task are spread so unevenly that one subtask decides. */
export function isSkewed(task) {
  return task.skew !== null && task.skew >= SKEWED;
}

/** Return the task that holds the job up: busy itself, with backpressure before it. */
export function bottleneck(tasks) {
  const byId = new Map(tasks.map((task) => [task.id, task]));
  const held = new Set(tasks.filter((task) => (task.backpressured ?? 0) >= BACKPRESSURED[0]).map(({ id }) => id));
  const found = tasks.filter(
    (task) => !held.has(task.id) && task.inputs.some(({ id }) => held.has(id) && byId.has(id)),
  );
  return found.sort((a, b) => (b.busy ?? 0) - (a.busy ?? 0))[0] ?? null;
}

/** Load one task with its subtasks. */
export async function loadSubtasks(job, id) {
  const path = `jobs/${job.jid}/vertices/${id}`;
  const [vertex, pressure, watermarks, ids] = await Promise.all([
    get(path),
    getOr({ subtasks: [] }, `${path}/backpressure`),
    getOr([], `${path}/watermarks`),
    getOr([], `${path}/metrics`),
  ]);
  const wanted = ids.map((each) => each.id).filter((each) => /^\d+\.numRecords(In|Out)(PerSecond)?$/.test(each));
  const metrics = wanted.length
    ? await getOr([], `${path}/metrics?get=${wanted.map(encodeURIComponent).join(",")}`)
    : [];
  const byId = new Map(metrics.map((metric) => [metric.id, Number(metric.value)]));
  const times = new Map(watermarks.map((each) => [Number.parseInt(each.id, 10), Number(each.value)]));
  const loads = new Map((pressure.subtasks ?? []).map((each) => [each.subtask, each]));
  return vertex.subtasks.map((subtask) => ({
    ...subtask,
    recordsIn: byId.get(`${subtask.subtask}.numRecordsIn`) ?? subtask.metrics?.["read-records"],
    recordsOut: byId.get(`${subtask.subtask}.numRecordsOut`) ?? subtask.metrics?.["write-records"],
    rateIn: byId.get(`${subtask.subtask}.numRecordsInPerSecond`),
    rateOut: byId.get(`${subtask.subtask}.numRecordsOutPerSecond`),
    load: loads.get(subtask.subtask) ?? {},
    watermark: times.get(subtask.subtask),
  }));
}
