/** Take a savepoint, stop or cancel a job, each after a question. */

import { get, patch, post } from "./api.js";
import { h } from "./dom.js";

const PAUSE = 1000;

/** The buttons of a job that runs. */
export function buttons(job) {
  return h(
    "span",
    { class: "buttons" },
    h("button", { type: "button", onclick: () => ask(savepoint(job)) }, "Savepoint"),
    h("button", { type: "button", onclick: () => ask(stop(job)) }, "Stop"),
    h("button", { type: "button", class: "danger", onclick: () => ask(cancel(job)) }, "Cancel"),
  );
}

function savepoint(job) {
  return {
    title: `Take a savepoint of “${job.name}”?`,
    text: "The job continues. Leave the directory empty to use execution.checkpointing.savepoint-dir.",
    fields: [directory(), format()],
    button: "Take savepoint",
    act: (values, report) =>
      follow(job, post(`jobs/${job.jid}/savepoints`, {
        "cancel-job": false,
        formatType: values.format,
        ...(values.directory ? { "target-directory": values.directory } : {}),
      }), report),
    done: (location) => `Savepoint: ${location}`,
  };
}

function stop(job) {
  return {
    title: `Stop “${job.name}”?`,
    text: "The job takes a last savepoint, commits its output and ends. It continues from there when it is started again.",
    fields: [directory(), format(), { name: "drain", label: "Let event time end, so that all windows and timers fire", type: "checkbox" }],
    button: "Stop job",
    act: (values, report) =>
      follow(job, post(`jobs/${job.jid}/stop`, {
        drain: values.drain === "on",
        formatType: values.format,
        ...(values.directory ? { targetDirectory: values.directory } : {}),
      }), report),
    done: (location) => `Stopped. Savepoint: ${location}`,
  };
}

function cancel(job) {
  return {
    title: `Cancel “${job.name}”?`,
    text: "The job ends now, without a savepoint. Records since its last checkpoint are read again when it is started again.",
    fields: [],
    button: "Cancel job",
    danger: true,
    act: () => patch(`jobs/${job.jid}?mode=cancel`),
    done: () => "The job is cancelling.",
  };
}

function directory() {
  return { name: "directory", label: "Directory", type: "text", placeholder: "/savepoints or s3://bucket/savepoints" };
}

function format() {
  return { name: "format", label: "Format", options: ["CANONICAL", "NATIVE"] };
}

/** Wait for what was triggered; returns where the savepoint is. */
async function follow(job, triggered, report) {
  const { "request-id": id } = await triggered;
  report("In progress…");
  for (;;) {
    const { status, operation } = await get(`jobs/${job.jid}/savepoints/${id}`);
    if (status.id === "COMPLETED") {
      const cause = operation?.["failure-cause"];
      if (cause) throw new Error(cause["stack-trace"] ?? cause.class ?? String(cause));
      return operation.location;
    }
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
  }
}

/** Open a dialog with a question; it stays open with what came of it. */
function ask(question) {
  const status = h("p", { role: "status", class: "outcome" });
  const confirm = h("button", { type: "submit", class: question.danger ? "danger" : "primary" }, question.button);
  const close = h("button", { type: "button", onclick: () => dialog.close() }, "Back");
  const form = h(
    "form",
    { method: "dialog", onsubmit: (event) => {
      event.preventDefault();
      run(question, form, { status, confirm, close });
    } },
    h("h2", { id: "question" }, question.title),
    h("p", {}, question.text),
    question.fields.map(field),
    status,
    h("div", { class: "buttons" }, close, confirm),
  );
  const dialog = h("dialog", { "aria-labelledby": "question" }, form);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  // Enter must not end a job by mistake.
  close.focus();
}

async function run(question, form, { status, confirm, close }) {
  const report = (text, level = "") => {
    status.textContent = text;
    status.className = `outcome ${level}`;
  };
  confirm.disabled = true;
  report("Asking the driver…");
  try {
    const result = await question.act(Object.fromEntries(new FormData(form)), report);
    report(question.done(result), "ok");
    confirm.remove();
  } catch (error) {
    report(error.message, "bad");
    confirm.disabled = false;
  }
  close.textContent = "Close";
}

function field({ name, label, type, options, placeholder }) {
  if (options) {
    return h("label", { class: "field" }, label, h("select", { name }, options.map((each) => h("option", { value: each }, each.toLowerCase()))));
  }
  const input = h("input", { name, type, placeholder });
  return type === "checkbox" ? h("label", { class: "check" }, input, ` ${label}`) : h("label", { class: "field" }, label, input);
}
