/** Failures of a job, the newest first, with the line of the program that raised them. */

import { h } from "./dom.js";
import { ago, moment } from "./format.js";
import { headline } from "./job.js";
import { card, empty, facts } from "./parts.js";

// Written by the engine into errors of functions, and by Python into tracebacks.
const NAMED = /\(([^\s()]+\.py:\d+)\)/;
const TRACED = /File "([^"]+\.py)", line (\d+)/g;
const OWN = "/millstream/";

/** Show them. */
export function render({ job, errors }) {
  if (!errors.length) return empty("Nothing has failed since the driver started.");
  return errors.map((error, index) => entry(job, error, index === 0));
}

function entry(job, error, isNewest) {
  const place = location(error.stacktrace ?? "");
  return h(
    "section",
    { class: "card", "aria-label": error.exceptionName, "data-key": `${error.timestamp} ${error.exceptionName}` },
    h("h2", {}, error.exceptionName.split(".").at(-1)),
    h("p", { class: "bad" }, headline(error)),
    facts([
      ["When", `${moment(error.timestamp, job.now)} (${ago(error.timestamp, job.now)})`],
      place ? ["Program", h("code", {}, place)] : null,
      error.taskName ? ["Task", error.taskName] : null,
      (error.endpoint ?? error.location) ? ["Host", error.endpoint ?? error.location] : null,
      ...Object.entries(error.failureLabels ?? {}),
    ]),
    h(
      "details",
      { open: isNewest },
      h("summary", {}, "Traceback"),
      h("pre", { tabindex: "0" }, error.stacktrace),
    ),
    (error.concurrentExceptions ?? []).map((other) => card(`At the same time: ${other.exceptionName}`, h("pre", { tabindex: "0" }, other.stacktrace))),
  );
}

/** Return the file and line of the program: of the deepest frame that is not the engine's. */
export function location(stacktrace) {
  const named = NAMED.exec(stacktrace);
  if (named) return named[1];
  const frames = [...stacktrace.matchAll(TRACED)].filter(([, file]) => !file.includes(OWN) && !file.includes("/lib/python"));
  const last = frames.at(-1);
  return last ? `${last[1]}:${last[2]}` : null;
}
