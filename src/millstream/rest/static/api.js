/** Requests to the REST API, with the token and a limit of requests at a time. */

const AT_A_TIME = 6;
const PATIENCE = 10_000;
const TOKEN = "millstream-token";

let waiting = [];
let running = 0;

/** An answer that is not 2xx. */
export class RestError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Keep a token for this tab. */
export function keepToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

/** Take the token out of the address, where it would be seen and copied. */
export function takeTokenFromAddress() {
  const found = /^#token=([^&]+)(?:&(.*))?$/.exec(location.hash);
  if (!found) return;
  keepToken(decodeURIComponent(found[1]));
  history.replaceState(null, "", `#${found[2] ?? "/"}`);
}

async function take() {
  if (running >= AT_A_TIME) await new Promise((resolve) => waiting.push(resolve));
  running += 1;
}

function give() {
  running -= 1;
  waiting.shift()?.();
}

async function request(method, path, body) {
  await take();
  try {
    const headers = { Accept: "application/json" };
    const token = sessionStorage.getItem(TOKEN);
    if (token) headers.Authorization = `Bearer ${token}`;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const answer = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      signal: AbortSignal.timeout(PATIENCE),
    });
    if (!answer.ok) throw new RestError(answer.status, await reason(answer));
    return answer;
  } finally {
    give();
  }
}

async function reason(answer) {
  const text = await answer.text();
  try {
    const { errors } = JSON.parse(text);
    return errors.join("\n");
  } catch {
    return text || `${answer.status} ${answer.statusText}`;
  }
}

/** Return the JSON at a path of the API. */
export async function get(path) {
  return (await request("GET", path)).json();
}

/** Return the JSON at a path, or a value in its place if the server has nothing there. */
export async function getOr(otherwise, path) {
  try {
    return await get(path);
  } catch (error) {
    if (error instanceof RestError && [404, 405, 501].includes(error.status)) return otherwise;
    throw error;
  }
}

/** Return the text at a path. */
export async function text(path) {
  return (await request("GET", path)).text();
}

/** Send JSON and return the answer's. */
export async function post(path, body) {
  return (await request("POST", path, body)).json();
}

/** Ask a job to end. */
export async function patch(path) {
  await request("PATCH", path);
}
