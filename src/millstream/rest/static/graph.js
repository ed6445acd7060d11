/** The graph of a job: tasks as boxes with live figures, and the exchanges between them. */

import { h, svg } from "./dom.js";
import { duration, percent, plural, rate, watermark } from "./format.js";
import { layOut } from "./layout.js";
import { load } from "./parts.js";
import { sparkline } from "./series.js";

const WIDTH = 248;
const HEIGHT = 150;
const MARGIN = 8;
const NARROW = 700;
const SHOWN_OPERATORS = 2;

/** Draw the graph; from left to right, or downwards where it is narrow. */
export function graph(job, tasks) {
  const down = window.innerWidth < NARROW;
  const edges = tasks.flatMap((task) =>
    task.inputs.map((input) => ({ source: input.id, target: task.id, strategy: input.ship_strategy })),
  );
  const sides = down ? { along: HEIGHT, across: WIDTH } : { along: WIDTH, across: HEIGHT };
  const gaps = down ? { gapAlong: 44, gapAcross: 16 } : { gapAlong: 84, gapAcross: 24 };
  const plan = layOut(tasks.map(({ id }) => id), edges, { ...sides, ...gaps });
  const turn = ([along, across]) => (down ? [across + MARGIN, along + MARGIN] : [along + MARGIN, across + MARGIN]);
  const [width, height] = turn([plan.along, plan.across]).map((value) => Math.ceil(value + MARGIN));
  const boxes = tasks.map((task) => {
    const { along, across } = plan.boxes.get(task.id);
    return box(job, task, turn([along, across]));
  });
  return h(
    "div",
    { class: "graph-scroll", role: "region", "aria-label": "Job graph", tabindex: "0" },
    h(
      "div",
      { class: "graph", style: { width: `${width}px`, height: `${height}px` } },
      svg(
        "svg",
        { width, height, "aria-hidden": "true" },
        plan.paths.map(({ edge, points }) => path(edge, points.map(turn), down)),
      ),
      boxes,
    ),
  );
}

function path({ strategy }, points, down) {
  const [start, ...rest] = points;
  let line = `M${start}`;
  let [x, y] = start;
  for (const [nextX, nextY] of rest) {
    const [middleX, middleY] = [(x + nextX) / 2, (y + nextY) / 2];
    line += down
      ? ` C${x},${middleY} ${nextX},${middleY} ${nextX},${nextY}`
      : ` C${middleX},${y} ${middleX},${nextY} ${nextX},${nextY}`;
    [x, y] = [nextX, nextY];
  }
  const [endX, endY] = points.at(-1);
  const head = down
    ? `M${endX - 4},${endY - 7} L${endX},${endY} L${endX + 4},${endY - 7}`
    : `M${endX - 7},${endY - 4} L${endX},${endY} L${endX - 7},${endY + 4}`;
  const label = down ? { x: endX + 8, y: endY - 12 } : { x: endX - 10, y: endY - 7, "text-anchor": "end" };
  return svg(
    "g",
    { class: "edge" },
    svg("path", { d: line }),
    svg("path", { d: head }),
    strategy ? svg("text", label, strategy.toLowerCase()) : null,
  );
}

function box(job, task, [left, top]) {
  return h(
    "a",
    {
      class: `box ${task.level}`,
      href: `#/jobs/${job.jid}/tasks/${task.id}`,
      "data-key": task.id,
      "aria-label": spoken(task),
      style: { left: `${left}px`, top: `${top}px`, width: `${WIDTH}px`, height: `${HEIGHT}px` },
    },
    title(task),
    h(
      "div",
      { class: "flow" },
      h("span", {}, h("small", {}, task.isSink ? "in" : "out"), ` ${rate(task.isSink ? task.rateIn : task.rateOut)}`),
      sparkline(`${job.jid}/${task.id}/out`, "records per second of the last minutes"),
    ),
    load(task),
    h(
      "div",
      { class: "flow" },
      h("span", {}, h("small", {}, "busy"), ` ${percent(task.busy)}`),
      h("span", { class: task.backpressured >= 0.1 ? task.level : "" }, h("small", {}, "backpressured"), ` ${percent(task.backpressured)}`),
    ),
  );
}

function title(task) {
  const shown = task.operators.slice(0, SHOWN_OPERATORS);
  const more = task.operators.length - shown.length;
  const lag = task.lag === null ? watermark(task.watermark) : duration(task.lag);
  const notes = [more > 0 ? `and ${more} more` : null, `× ${task.parallelism}`, `watermark lag ${lag}`];
  return h(
    "div",
    { class: "names" },
    shown.map((operator) => h("div", { class: "name", title: operator.name }, operator.name)),
    h("small", {}, notes.filter(Boolean).join(" · ")),
  );
}

function spoken(task) {
  return [
    task.name,
    plural(task.parallelism, "subtask"),
    `busy ${percent(task.busy)}`,
    `backpressured ${percent(task.backpressured)}`,
  ].join(", ");
}
