/** The page: which view the address names, polling, and what to do when nobody answers. */

import { get, getOr, keepToken, RestError, takeTokenFromAddress } from "./api.js";
import * as checkpoints from "./checkpoints.js";
import * as configuration from "./configuration.js";
import { h, show } from "./dom.js";
import * as exceptions from "./exceptions.js";
import { moment } from "./format.js";
import { frame, loadJob } from "./job.js";
import * as jobs from "./jobs.js";
import * as logs from "./logs.js";
import * as overview from "./overview.js";
import * as plan from "./plan.js";
import * as sources from "./sources.js";
import * as state from "./state.js";
import * as subtasks from "./subtasks.js";

const SECTIONS = { "": overview, tasks: subtasks, checkpoints, exceptions, state, sources, plan, configuration, logs };
const LONGEST_WAIT = 30_000;

const main = document.getElementById("main");
const connection = document.getElementById("connection");
const settings = { interval: 3000, mayControl: false, version: "" };
/** Counts addresses: an answer to an older one is dropped. */
let visit = 0;
let timer = 0;
let failures = 0;
let lastAnswer = 0;

function route() {
  const [kind, id, section = "", ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  return kind === "jobs" && id ? { id, section, rest } : { id: null, section: "", rest: [] };
}

async function view({ id, section, rest }) {
  if (!id) {
    const found = await jobs.load();
    return { title: "Jobs", draw: () => jobs.render(found) };
  }
  const loaded = await loadJob(id);
  const chosen = SECTIONS[section];
  if (!chosen) return { title: loaded.job.name, draw: () => frame(loaded, section, h("p", { class: "empty" }, "There is no such page."), settings) };
  const data = chosen.load ? await chosen.load(loaded, rest) : null;
  const draw = () => {
    const content = chosen.load ? chosen.render(loaded, data, rest, () => show(main, ...draw())) : chosen.render(loaded);
    return frame(loaded, section, content, settings);
  };
  return { title: loaded.job.name, draw };
}

async function refresh() {
  clearTimeout(timer);
  const mine = visit;
  try {
    if (!settings.version) await loadSettings();
    const { title, draw } = await view(route());
    if (mine !== visit) return;
    document.title = `${title} · Millstream`;
    show(main, ...draw());
    answered();
  } catch (error) {
    if (mine !== visit) return;
    failed(error);
  }
  timer = setTimeout(refresh, wait());
}

async function loadSettings() {
  const config = await get("config");
  settings.interval = config["refresh-interval"] ?? settings.interval;
  settings.mayControl = config.features?.["web-cancel"] ?? false;
  settings.version = config["millstream-version"] ?? config["flink-version"] ?? "?";
  const { "flink-commit": commit } = await getOr({}, "overview");
  showTop(commit);
}

function showTop() {
  show(
    document.getElementById("top"),
    h("a", { class: "brand", href: "#/jobs" }, h("img", { src: "static/icon.svg", alt: "", width: "20", height: "20" }), "Millstream"),
    h("span", { class: "muted" }, settings.version),
  );
}

function wait() {
  return failures ? Math.min(LONGEST_WAIT, settings.interval * 2 ** (failures - 1)) : settings.interval;
}

function answered() {
  failures = 0;
  lastAnswer = Date.now();
  main.classList.remove("stale");
  connection.classList.remove("shown");
  show(connection);
}

function failed(error) {
  if (error instanceof RestError && error.status === 401) return askForToken();
  if (error instanceof RestError && error.status === 404) {
    lastAnswer = Date.now();
    return show(main, h("p", { class: "empty" }, error.message), h("p", { class: "empty" }, h("a", { href: "#/jobs" }, "All jobs")));
  }
  failures += 1;
  main.classList.add("stale");
  connection.classList.add("shown");
  const what = error instanceof RestError ? `The server answers with an error: ${error.message}` : "The driver does not answer.";
  const since = lastAnswer ? ` What you see is of ${moment(lastAnswer)}.` : "";
  const retry = ` It may have ended or be restarting; trying again every ${Math.round(wait() / 1000) || 1} s.`;
  return show(connection, h("strong", {}, what), since, error instanceof RestError ? "" : retry);
}

function askForToken() {
  if (document.getElementById("token")) return;
  const input = h("input", { id: "token", type: "password", autocomplete: "off" });
  const enter = (event) => {
    event.preventDefault();
    keepToken(input.value);
    visit += 1;
    show(main);
    refresh();
  };
  show(
    main,
    h(
      "form",
      { class: "card token", onsubmit: enter },
      h("h1", {}, "Token"),
      h("p", {}, "The REST API of this job asks for a token. It is kept for this tab only."),
      h("label", { class: "field", for: "token" }, "Token"),
      input,
      h("div", { class: "buttons" }, h("button", { type: "submit", class: "primary" }, "Continue")),
    ),
  );
  input.focus();
}

function go() {
  visit += 1;
  takeTokenFromAddress();
  refresh();
}

window.addEventListener("hashchange", () => {
  go();
  window.scrollTo(0, 0);
});
window.addEventListener("resize", refresh);
// A page that nobody sees asks nothing.
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : refresh()));
showTop();
go();
