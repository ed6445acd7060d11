/** How large the state of each operator is. */

import { h } from "./dom.js";
import { bytes, percent } from "./format.js";
import { bar, card, empty, figure, row, table, words } from "./parts.js";

const COLUMNS = [words("Operator"), words("Task"), words("Share"), figure("State"), figure("Of all")];

/** Show them, the largest first. */
export function render({ tasks, checkpoints, job }) {
  const found = tasks
    .flatMap((task) =>
      [...task.perOperator].map(([name, figures]) => ({ name: title(task, name), task, size: figures.lastCheckpointStateSize })),
    )
    .filter(({ size }) => size !== null && size !== undefined);
  if (!found.length) return empty("No operator has state in a checkpoint yet.");
  const total = found.reduce((sum, { size }) => sum + size, 0);
  const most = Math.max(...found.map(({ size }) => size), 1);
  found.sort((a, b) => b.size - a.size);
  const id = checkpoints?.latest?.completed?.id;
  return card(
    "State by operator",
    h("p", { class: "muted" }, `${bytes(total)} in ${id === undefined ? "the last checkpoint" : `checkpoint ${id}`}`),
    table("State by operator", COLUMNS, found.map(({ name, task, size }) => {
      const cells = [
        name,
        h("a", { href: `#/jobs/${job.jid}/tasks/${task.id}` }, task.name),
        bar(size / most),
        bytes(size),
        total ? percent(size / total) : "–",
      ];
      return row(COLUMNS, cells, { "data-key": name });
    })),
  );
}

function title(task, metricName) {
  const plain = (name) => name.replace(/[^A-Za-z0-9]/g, "_");
  return task.operators.find((operator) => plain(operator.name) === plain(metricName))?.name ?? metricName;
}
