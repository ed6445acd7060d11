/** What the operators compute, with their changelog modes, and the plan of a SQL job. */

import { getOr } from "./api.js";
import { h } from "./dom.js";
import { card, row, table, words } from "./parts.js";

const COLUMNS = [words("Operator"), words("Location"), words("Changelog mode"), words("Guarantee"), words("Uid")];

/** Load the text of the plan. */
export async function load({ job }) {
  const found = await getOr({}, `jobs/${job.jid}/plan`);
  return found.text ?? found.plan?.text ?? null;
}

/** Show it. */
export function render({ tasks }, text) {
  const operators = tasks.flatMap((task) => task.operators);
  return [
    card("Operators", table("Operators", COLUMNS, operators.map(line))),
    text ? card("Plan", h("pre", { tabindex: "0" }, text)) : null,
  ];
}

function line(operator) {
  const details = Object.entries(operator.details ?? {});
  const cells = [
    [
      h("div", { class: "strong" }, operator.name),
      details.map(([name, values]) => h("div", { class: "muted" }, `${name}: ${[values].flat().join(", ")}`)),
    ],
    operator.location ? h("code", {}, operator.location) : "–",
    operator.changelog ? h("code", {}, `[${operator.changelog}]`) : "–",
    operator.guarantee ?? "–",
    operator.uid ? h("code", {}, operator.uid) : "–",
  ];
  return row(COLUMNS, cells);
}
