/** The history of checkpoints: durations, sizes, alignment, failures and their cause. */

import { getOr } from "./api.js";
import { h } from "./dom.js";
import { ago, bytes, duration, moment, whole } from "./format.js";
import { bar, card, empty, facts, figure, pill, row, table, words } from "./parts.js";

const HISTORY = [
  figure("Id"),
  words("Status"),
  words("Kind"),
  figure("Triggered"),
  figure("Duration"),
  { title: "Duration, compared", class: "words wide" },
  figure("State"),
  figure("Uploaded"),
  figure("In flight"),
  figure("Subtasks"),
];
const SUMMARY = [words("Completed checkpoints"), figure("Shortest"), figure("Mean"), figure("99 %"), figure("Longest")];
const DETAILS = [words("Task"), figure("Duration"), figure("State"), figure("Uploaded"), figure("Alignment, longest"), figure("Start delay, longest"), figure("Acknowledged")];

/** Load the configuration, and the details of a checkpoint if one is opened. */
export async function load({ job }, [id]) {
  const path = `jobs/${job.jid}/checkpoints`;
  const config = await getOr(null, `${path}/config`);
  if (!id) return { config, details: null };
  const details = await getOr(null, `${path}/details/${id}`);
  const tasks = Object.keys(details?.tasks ?? {});
  const subtasks = await Promise.all(tasks.map((task) => getOr(null, `${path}/details/${id}/subtasks/${task}`)));
  return { config, details, subtasks: new Map(tasks.map((task, index) => [task, subtasks[index]])) };
}

/** Show them. */
export function render(loaded, { config, details, subtasks }, [id]) {
  const { checkpoints, job } = loaded;
  if (!checkpoints) return empty("This job has no checkpoints.");
  return [
    id ? detailCard(loaded, details, subtasks, id) : null,
    card("History", history(job, checkpoints.history ?? [], id)),
    summary(checkpoints.summary),
    config ? card("Configuration", settings(config)) : null,
  ];
}

function history(job, checkpoints, opened) {
  if (!checkpoints.length) return empty("No checkpoint has been triggered yet.");
  // A failed one took as long as its timeout, beside which the others could not be told apart.
  const completed = checkpoints.filter(({ status }) => status === "COMPLETED");
  const longest = Math.max(...completed.map((each) => each.end_to_end_duration ?? 0), 1);
  return table("History of checkpoints", HISTORY, checkpoints.map((each) => line(job, each, longest, opened)));
}

function line(job, checkpoint, longest, opened) {
  const failed = checkpoint.status === "FAILED";
  const cells = [
    h("a", { href: `#/jobs/${job.jid}/checkpoints/${checkpoint.id}`, "aria-current": String(checkpoint.id) === opened ? "true" : null }, String(checkpoint.id)),
    [pill(checkpoint.status), failed && checkpoint.failure_message ? h("div", { class: "cause bad" }, checkpoint.failure_message) : null],
    kind(checkpoint),
    moment(checkpoint.trigger_timestamp, job.now),
    duration(checkpoint.end_to_end_duration),
    bar(checkpoint.end_to_end_duration / longest, failed ? "bad" : ""),
    bytes(checkpoint.state_size),
    bytes(checkpoint.checkpointed_size),
    bytes(checkpoint.persisted_data),
    checkpoint.num_subtasks ? `${checkpoint.num_acknowledged_subtasks} of ${checkpoint.num_subtasks}` : "–",
  ];
  return row(HISTORY, cells, { "data-key": `checkpoint ${checkpoint.id}` });
}

function kind(checkpoint) {
  if (checkpoint.is_savepoint) return "savepoint";
  return (checkpoint.checkpoint_type ?? "CHECKPOINT").toLowerCase().replaceAll("_", " ");
}

function summary(found) {
  if (!found) return null;
  const lines = [
    ["Duration", found.end_to_end_duration, duration],
    ["State", found.state_size, bytes],
    ["Uploaded", found.checkpointed_size, bytes],
    ["In flight", found.persisted_data, bytes],
  ];
  const rows = lines
    .filter(([, figures]) => figures)
    .map(([title, { min, avg, p99, max }, write]) => row(SUMMARY, [title, write(min), write(avg), write(p99), write(max)]));
  return card("Summary", table("Summary", SUMMARY, rows));
}

function detailCard({ job, tasks }, details, subtasks, id) {
  const title = `Checkpoint ${id}`;
  if (!details) return card(title, empty("Its details are not kept any more."));
  const names = new Map(tasks.map((task) => [task.id, task.name]));
  const rows = Object.entries(details.tasks ?? {}).map(([task, figures]) => {
    const found = subtasks.get(task)?.summary;
    const cells = [
      names.get(task) ?? task,
      duration(figures.end_to_end_duration),
      bytes(figures.state_size),
      bytes(figures.checkpointed_size),
      duration(found?.alignment?.duration?.max),
      duration(found?.start_delay?.max),
      `${figures.num_acknowledged_subtasks} of ${figures.num_subtasks}`,
    ];
    return row(DETAILS, cells, { "data-key": task });
  });
  return card(
    title,
    facts([
      ["Status", pill(details.status)],
      ["Triggered", `${moment(details.trigger_timestamp, job.now)} (${ago(details.trigger_timestamp, job.now)})`],
      ["Duration", duration(details.end_to_end_duration)],
      details.external_path ? ["Path", h("code", {}, details.external_path)] : null,
      details.failure_message ? ["Cause", h("span", { class: "bad" }, details.failure_message)] : null,
    ]),
    rows.length ? table(`Tasks in checkpoint ${id}`, DETAILS, rows) : null,
    h("p", {}, h("a", { href: `#/jobs/${job.jid}/checkpoints` }, "Close")),
  );
}

function settings(config) {
  return facts([
    ["Mode", (config.mode ?? "").toLowerCase().replaceAll("_", " ")],
    ["Interval", duration(config.interval)],
    ["Timeout", duration(config.timeout)],
    ["Minimum pause", duration(config.min_pause)],
    ["Unaligned", config.unaligned_checkpoints ? "yes" : "no"],
    ["Tolerated failures", whole(config.tolerable_failed_checkpoints)],
    ["State backend", config.state_backend],
    ["Retained at cancellation", config.externalization?.enabled ? (config.externalization.delete_on_cancellation ? "no" : "yes") : "no"],
  ]);
}

