/** Logs of the driver and of the slots. */

import { getOr, text } from "./api.js";
import { h } from "./dom.js";
import { bytes, moment } from "./format.js";
import { card, empty } from "./parts.js";

const SHOWN = 2000;
const scrolled = new WeakSet();
let wanted = "";

/** Load the list of files, and the one that is opened. */
export async function load({ job }, [owner, file]) {
  const base = `jobs/${job.jid}`;
  const driver = await getOr({ logs: [] }, `${base}/jobmanager/logs`);
  const { taskmanagers } = await getOr({ taskmanagers: [] }, `${base}/taskmanagers`);
  const slots = await Promise.all(taskmanagers.map(async ({ id }) => ({
    id,
    logs: (await getOr({ logs: [] }, `${base}/taskmanagers/${encodeURIComponent(id)}/logs`)).logs,
  })));
  const owners = [{ id: "driver", logs: driver.logs ?? [] }, ...slots].filter(({ logs }) => logs.length);
  const opened = owners.find(({ id }) => id === owner) ?? owners[0];
  const name = opened?.logs.find((each) => each.name === file)?.name ?? opened?.logs[0]?.name;
  if (!name) return { owners };
  const where = opened.id === "driver" ? "jobmanager" : `taskmanagers/${encodeURIComponent(opened.id)}`;
  const content = await text(`${base}/${where}/logs/${encodeURIComponent(name)}`);
  return { owners, opened: { owner: opened.id, name, content } };
}

/** Show them. */
export function render({ job }, { owners, opened }, rest, again) {
  if (!owners.length) return empty("There are no log files: the driver writes its log to standard error only.");
  const lines = opened.content.split("\n");
  const matching = lines.filter((line) => line.toLowerCase().includes(wanted.toLowerCase()));
  const shown = matching.slice(-SHOWN);
  requestAnimationFrame(showEnd);
  return card(
    "Logs",
    h("ul", { class: "files" }, owners.flatMap(({ id, logs }) => logs.map(({ name, size, mtime }) =>
      h("li", {}, h("a", {
        href: `#/jobs/${job.jid}/logs/${encodeURIComponent(id)}/${encodeURIComponent(name)}`,
        "aria-current": id === opened.owner && name === opened.name ? "true" : null,
      }, `${id}: ${name}`), h("span", { class: "muted" }, ` ${bytes(size)}, ${moment(mtime, job.now)}`))))),
    h("label", { class: "filter" }, "Filter ", h("input", { type: "search", oninput: (event) => {
      wanted = event.target.value;
      again();
    } })),
    shown.length < matching.length ? h("p", { class: "muted" }, `The last ${SHOWN} of ${matching.length} lines`) : null,
    h("pre", { class: "log", tabindex: "0", "data-key": `${opened.owner}/${opened.name}` }, shown.map(colored)),
  );
}

/** Begin with the newest lines; later, where the reader has scrolled to. */
function showEnd() {
  const log = document.querySelector(".log");
  if (!log || scrolled.has(log)) return;
  scrolled.add(log);
  log.scrollTop = log.scrollHeight;
}

function colored(line) {
  const level = /\b(ERROR|CRITICAL)\b/.test(line) ? "bad" : /\bWARN(ING)?\b/.test(line) ? "warn" : null;
  return level ? h("span", { class: level }, `${line}\n`) : `${line}\n`;
}
