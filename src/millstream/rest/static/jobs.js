/** All jobs: those that run first, then those that have ended. */

import { get, getOr } from "./api.js";
import { h } from "./dom.js";
import { duration, moment, plural } from "./format.js";
import { empty, figure, pill, row, table, words } from "./parts.js";

const ENDED = new Set(["FINISHED", "CANCELED", "FAILED"]);
const COLUMNS = [words("Job"), words("Status"), figure("Started"), figure("Duration"), figure("Tasks")];

/** Load the list of jobs. */
export async function load() {
  const [{ jobs }, overview] = await Promise.all([get("jobs/overview"), getOr({}, "overview")]);
  return { jobs, overview };
}

/** Show it. */
export function render({ jobs, overview }) {
  const newest = [...jobs].sort((a, b) => b["start-time"] - a["start-time"]);
  const running = newest.filter((job) => !ENDED.has(job.state));
  const ended = newest.filter((job) => ENDED.has(job.state));
  return [
    h("h1", {}, "Jobs"),
    h("p", { class: "summary" }, summary(running, ended, overview)),
    list("Running", running, "No job is running. A job shows up here when it starts."),
    ended.length ? list("Ended", ended, "") : null,
  ];
}

function summary(running, ended, overview) {
  const troubled = running.filter((job) => job.state !== "RUNNING").length;
  const failed = ended.filter((job) => job.state === "FAILED").length;
  const parts = [plural(running.length, "job") + " running"];
  if (troubled) parts.push(`${troubled} not in state running`);
  if (failed) parts.push(`${failed} failed`);
  if (overview["slots-total"]) parts.push(plural(overview["slots-total"], "slot"));
  return parts.join(" · ");
}

function list(title, jobs, otherwise) {
  return h(
    "section",
    { class: "card", "aria-label": title, "data-key": title },
    h("h2", {}, title),
    jobs.length ? table(title, COLUMNS, jobs.map(line)) : empty(otherwise),
  );
}

function line(job) {
  const cells = [
    h("a", { class: "strong", href: `#/jobs/${job.jid}` }, job.name),
    pill(job.state),
    moment(job["start-time"]),
    duration(job.duration),
    tasks(job.tasks),
  ];
  return row(COLUMNS, cells, { "data-key": job.jid });
}

function tasks({ total, running, failed }) {
  if (!total) return "–";
  return failed ? `${failed} of ${total} failed` : `${running ?? 0} of ${total} running`;
}
