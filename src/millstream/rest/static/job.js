/** The frame of a job: its name and status, what needs attention, key figures and sections. */

import { get, getOr } from "./api.js";
import { buttons } from "./actions.js";
import { h } from "./dom.js";
import { ago, bytes, count, duration, moment, percent, plural, rate } from "./format.js";
import { pill } from "./parts.js";
import { remember, sparkline } from "./series.js";
import { bottleneck, isSkewed, loadTasks } from "./tasks.js";

const ENDED = new Set(["FINISHED", "CANCELED", "FAILED"]);
const RECENT = 600_000;
const SECTIONS = [
  ["", "Overview"],
  ["checkpoints", "Checkpoints"],
  ["exceptions", "Exceptions"],
  ["state", "State"],
  ["sources", "Sources"],
  ["plan", "Plan"],
  ["configuration", "Configuration"],
  ["logs", "Logs"],
];

/** Load what every section of a job shows. */
export async function loadJob(id) {
  const [job, checkpoints, exceptions, metrics] = await Promise.all([
    get(`jobs/${id}`),
    getOr(null, `jobs/${id}/checkpoints`),
    getOr({ exceptionHistory: { entries: [] } }, `jobs/${id}/exceptions`),
    getOr([], `jobs/${id}/metrics?get=numRestarts,downtime`),
  ]);
  const tasks = await loadTasks(job);
  const values = new Map(metrics.map((metric) => [metric.id, Number(metric.value)]));
  const loaded = {
    job,
    tasks,
    checkpoints,
    errors: exceptions.exceptionHistory?.entries ?? [],
    restarts: values.get("numRestarts") ?? null,
    isOver: ENDED.has(job.state),
  };
  remember(`${id}/in`, inflow(tasks));
  remember(`${id}/lag`, lag(tasks));
  return loaded;
}

function inflow(tasks) {
  const sources = tasks.filter((task) => task.isSource);
  const known = sources.map((task) => task.rateOut ?? task.rateIn).filter((value) => value !== null);
  return known.length ? known.reduce((sum, value) => sum + value, 0) : null;
}

function lag(tasks) {
  const known = tasks.map((task) => task.lag).filter((value) => value !== null);
  return known.length ? Math.max(...known) : null;
}

/** Show the frame around a section. */
export function frame(loaded, section, content, settings) {
  const { job } = loaded;
  return [
    h("p", { class: "crumbs" }, h("a", { href: "#/jobs" }, "Jobs"), " / ", h("span", { class: "mono" }, job.jid)),
    h(
      "div",
      { class: "title" },
      h("h1", {}, job.name),
      pill(job.state),
      h("span", { class: "muted" }, `${loaded.isOver ? "ran" : "for"} ${duration(job.duration)}, since ${moment(job["start-time"])}`),
      settings.mayControl && !loaded.isOver ? buttons(job) : null,
    ),
    attention(loaded),
    figures(loaded, section),
    h(
      "nav",
      { class: "sections", "aria-label": "Sections of the job" },
      SECTIONS.map(([name, title]) =>
        h(
          "a",
          {
            href: `#/jobs/${job.jid}${name ? `/${name}` : ""}`,
            "aria-current": name === section || (name === "" && section === "tasks") ? "page" : null,
          },
          title,
          name === "exceptions" && loaded.errors.length ? h("span", { class: "badge" }, loaded.errors.length) : null,
        ),
      ),
    ),
    h("div", { class: "content", "data-key": `section ${section}` }, content),
  ];
}

/** List what an operator should read first; the worst before the others. */
function attention(loaded) {
  const notes = [...statusNotes(loaded), ...checkpointNotes(loaded), ...taskNotes(loaded)];
  const order = ["bad", "warn"];
  notes.sort((a, b) => order.indexOf(a.level) - order.indexOf(b.level));
  if (!notes.length) return null;
  return h(
    "ul",
    { class: "attention", "aria-label": "Needs attention" },
    notes.map(({ level, text, section }) =>
      h("li", { class: level }, h("a", { href: `#/jobs/${loaded.job.jid}/${section}` }, text)),
    ),
  );
}

function* statusNotes({ job, errors, restarts }) {
  const last = errors[0];
  if (["FAILED", "FAILING", "RESTARTING"].includes(job.state)) {
    const why = last ? `: ${headline(last)}` : "";
    yield { level: "bad", section: "exceptions", text: `The job ${doing(job.state)}${why}` };
  } else if (last && job.now - last.timestamp < RECENT) {
    const times = restarts ? `, ${plural(restarts, "restart")} since the driver started` : "";
    yield { level: "warn", section: "exceptions", text: `Failed ${ago(last.timestamp, job.now)}${times}: ${headline(last)}` };
  }
}

function doing(state) {
  return { FAILED: "has failed", FAILING: "is failing", RESTARTING: "is restarting" }[state];
}

/** Return the first line of an error. */
export function headline(error) {
  const [first] = (error.stacktrace || "").trim().split("\n", 1);
  const message = first && !first.startsWith("Traceback") ? first : error.exceptionName;
  return message.length > 160 ? `${message.slice(0, 159)}…` : message;
}

function* checkpointNotes({ job, checkpoints, isOver }) {
  if (!checkpoints || isOver) return;
  const { completed, failed } = checkpoints.latest ?? {};
  if (failed && (!completed || failed.id > completed.id)) {
    const why = failed.failure_message ? `: ${failed.failure_message.split("\n", 1)[0]}` : "";
    yield { level: "bad", section: "checkpoints", text: `Checkpoint ${failed.id} failed${why}` };
  }
}

function* taskNotes({ tasks, isOver }) {
  if (isOver) return;
  const slow = bottleneck(tasks);
  if (slow) {
    yield { level: "warn", section: `tasks/${slow.id}`, text: `“${slow.name}” holds up the tasks before it (busy ${percent(slow.busy)})` };
  }
  for (const task of tasks.filter(isSkewed)) {
    yield { level: "warn", section: `tasks/${task.id}`, text: `“${task.name}” is skewed: one subtask has ${task.skew.toFixed(1)} times the mean` };
  }
}

function figures(loaded, section) {
  const { job, tasks, checkpoints, restarts, errors, isOver } = loaded;
  const done = checkpoints?.latest?.completed;
  const counts = checkpoints?.counts;
  const pending = tasks.map((task) => task.pendingRecords).filter((value) => value !== null);
  const shown = [
    isOver ? null : tile("Records in", rate(inflow(tasks)), sparkline(`${job.jid}/in`, "records per second of the last minutes")),
    isOver ? null : tile("Watermark lag", duration(lag(tasks)), sparkline(`${job.jid}/lag`, "watermark lag of the last minutes")),
    tile("Last checkpoint", done ? ago(done.latest_ack_timestamp, job.now) : "none", done ? `took ${duration(done.end_to_end_duration)}, ${bytes(done.state_size)} of state` : null),
    counts ? tile("Checkpoints", count(counts.completed), counts.failed ? `${counts.failed} failed` : "none failed", counts.failed ? "warn" : "") : null,
    tile("Restarts", count(restarts ?? errors.length), errors.length ? `last failure ${ago(errors[0].timestamp, job.now)}` : "no failure", restarts ? "warn" : ""),
    pending.length ? tile("Source lag", `${count(pending.reduce((sum, each) => sum + each, 0))} records`) : null,
  ];
  // On a phone, sections begin with what they are about.
  return h("div", { class: section ? "tiles beside" : "tiles" }, shown);
}

function tile(title, value, extra = null, level = "") {
  return h("div", { class: `tile ${level}` }, h("div", { class: "muted" }, title), h("div", { class: "value" }, value), h("div", { class: "extra" }, extra));
}
