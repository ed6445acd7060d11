/** The options of a job; secrets are hidden by the server. */

import { getOr } from "./api.js";
import { h } from "./dom.js";
import { card, empty, facts, row, table, words } from "./parts.js";

const COLUMNS = [words("Option"), words("Value")];
let wanted = "";

/** Load them. */
export async function load({ job }) {
  const [execution, all] = await Promise.all([
    getOr(null, `jobs/${job.jid}/config`),
    getOr([], `jobs/${job.jid}/jobmanager/config`),
  ]);
  return { execution: execution?.["execution-config"], all };
}

/** Show them. */
export function render(loaded, { execution, all }, rest, again) {
  const text = wanted.toLowerCase();
  const options = [...all, ...Object.entries(execution?.["user-config"] ?? {}).map(([key, value]) => ({ key, value }))];
  const shown = options.filter(({ key, value }) => `${key} ${value}`.toLowerCase().includes(text));
  shown.sort((a, b) => a.key.localeCompare(b.key));
  return [
    execution ? card("Execution", facts([
      ["Mode", execution["execution-mode"]],
      ["Restart strategy", execution["restart-strategy"]],
      ["Parallelism", String(execution["job-parallelism"])],
    ])) : null,
    card(
      "Options",
      h("label", { class: "filter" }, "Filter ", h("input", { type: "search", oninput: (event) => {
        wanted = event.target.value;
        again();
      } })),
      shown.length
        ? table("Options", COLUMNS, shown.map(({ key, value }) => row(COLUMNS, [h("code", {}, key), h("code", {}, String(value))], { "data-key": key })))
        : empty(wanted ? `No option contains “${wanted}”.` : "No options are set."),
    ),
  ];
}
