/** Write figures and times so that a column of them can be compared at a glance. */

const NONE = "–";
const UNITS = [["k", 1e3], ["M", 1e6], ["G", 1e9], ["T", 1e12]];
const AGES = [[172_800, 86_400, "d"], [7_200, 3_600, "h"], [120, 60, "min"], [0, 1, "s"]];
const BYTES = ["B", "KB", "MB", "GB", "TB"];
// The smallest and largest times of the engine: before the first watermark, after the last.
const BEFORE = -9e15;
const AFTER = 9e15;

/** Return whether a value is a figure at all: Flink writes NaN or -1 for what is not known. */
export function isKnown(value) {
  return value !== null && value !== undefined && value !== "" && Number.isFinite(Number(value));
}

/** Write a count: 950, 12.3 k, 4.56 M. */
export function count(value) {
  if (!isKnown(value)) return NONE;
  const number = Number(value);
  const unit = UNITS.findLast(([, size]) => Math.abs(number) >= size);
  if (!unit) return Number.isInteger(number) ? String(number) : number.toFixed(Math.abs(number) < 10 ? 1 : 0);
  const scaled = number / unit[1];
  return `${scaled.toPrecision(scaled >= 1000 ? 4 : 3)} ${unit[0]}`;
}

/** Write a whole number with separators. */
export function whole(value) {
  return isKnown(value) ? Number(value).toLocaleString("en") : NONE;
}

/** Write a rate per second. */
export function rate(value) {
  return isKnown(value) ? `${count(Number(value))}/s` : NONE;
}

/** Write a size in bytes. */
export function bytes(value) {
  if (!isKnown(value) || value < 0) return NONE;
  let size = Number(value);
  let unit = 0;
  while (size >= 1000 && unit < BYTES.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return unit === 0 ? `${size} B` : `${size.toPrecision(3)} ${BYTES[unit]}`;
}

/** Write a duration of milliseconds with two units at most: 12 ms, 4.2 s, 3 min 20 s, 5 d 3 h. */
export function duration(milliseconds) {
  if (!isKnown(milliseconds) || milliseconds < 0) return NONE;
  const value = Number(milliseconds);
  if (value < 1000) return `${Math.round(value)} ms`;
  if (value < 60_000) return `${(value / 1000).toFixed(1)} s`;
  const seconds = Math.floor(value / 1000);
  const [days, hours] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24];
  const minutes = Math.floor(seconds / 60) % 60;
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  return `${minutes} min ${seconds % 60} s`;
}

/** Write a share of 1 as a percentage. */
export function percent(share) {
  return isKnown(share) ? `${Math.round(Number(share) * 100)} %` : NONE;
}

/** Write a time in the reader's zone; the date only if it is not today. */
export function moment(milliseconds, now = Date.now()) {
  if (!isKnown(milliseconds) || milliseconds <= 0) return NONE;
  const time = new Date(Number(milliseconds));
  const clock = time.toLocaleTimeString("en-GB");
  if (time.toDateString() === new Date(now).toDateString()) return clock;
  const pad = (number) => String(number).padStart(2, "0");
  return `${time.getFullYear()}-${pad(time.getMonth() + 1)}-${pad(time.getDate())} ${clock}`;
}

/** Write how long ago something was, roughly: a figure that changes every second says no more. */
export function ago(milliseconds, now) {
  if (!isKnown(milliseconds) || milliseconds <= 0) return NONE;
  const seconds = Math.max(0, Math.round((now - milliseconds) / 1000));
  if (seconds < 1) return "just now";
  const [, size, unit] = AGES.find(([most]) => seconds >= most);
  return `${Math.floor(seconds / size)} ${unit} ago`;
}

/** Write a watermark, which may be before all time or after it. */
export function watermark(milliseconds, now) {
  if (!isKnown(milliseconds)) return NONE;
  if (milliseconds < BEFORE) return "none yet";
  return milliseconds > AFTER ? "end of input" : moment(milliseconds, now);
}

/** Return whether a watermark is a time between the first and the last. */
export function isTime(milliseconds) {
  return isKnown(milliseconds) && milliseconds > BEFORE && milliseconds < AFTER;
}

/** Write a noun with its number. */
export function plural(number, noun) {
  return `${whole(number)} ${noun}${number === 1 ? "" : "s"}`;
}
