/** Values of the last minutes, one series per metric, and the small line that shows them. */

import { svg } from "./dom.js";

const KEPT = 60;
const WIDTH = 96;
const HEIGHT = 24;

const kept = new Map();

/** Add a value of now to a series. */
export function remember(name, value) {
  const values = kept.get(name) ?? [];
  values.push(Number.isFinite(value) ? value : null);
  if (values.length > KEPT) values.shift();
  kept.set(name, values);
}

/** Draw a series; nothing as long as it has no two values. */
export function sparkline(name, label) {
  const values = kept.get(name) ?? [];
  const known = values.filter((value) => value !== null);
  if (known.length < 2) return null;
  // From zero, for a rate that halves shall look like half.
  const top = Math.max(...known, 1e-9);
  const step = WIDTH / (KEPT - 1);
  const first = KEPT - values.length;
  const points = values.flatMap((value, index) => {
    if (value === null) return [];
    const y = HEIGHT - 2 - (value / top) * (HEIGHT - 4);
    return [`${((first + index) * step).toFixed(1)},${y.toFixed(1)}`];
  });
  return svg(
    "svg",
    { class: "sparkline", preserveAspectRatio: "none", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label },
    svg("polyline", { points: points.join(" ") }),
  );
}
