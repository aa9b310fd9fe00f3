// Turns page code's wishes into requests to the API of the same origin, and refusals into readable errors.

import { t } from "./text.js";

/** Prefix of the service's public address: "" at the root of a host. Set by the server in every page. */
export function root() {
  return window.tunedeck?.root ?? "";
}

export class ApiError extends Error {
  constructor(status, code, field, message) {
    super(message);
    Object.assign(this, { status, code, field });
  }
}

const early = new Map();
const EARLY_MS = 5_000;

/** Asks before anyone needs the answer: the next `get` of the same path takes it. */
export function ask(path) {
  const answer = request(path, {});
  answer.catch(() => undefined); // told to the one who takes it
  early.set(path, { answer, at: performance.now() });
}

export async function get(path, { signal } = {}) {
  const asked = early.get(path);
  early.delete(path);
  if (asked && performance.now() - asked.at < EARLY_MS) return asked.answer;
  return request(path, { signal });
}

export async function post(path, body = {}) {
  return request(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
}

async function request(path, options) {
  let response;
  try {
    response = await fetch(root() + path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "", t("error.unreachable"));
  }
  if (response.ok) return response.json();
  const answer = await response.json().catch(() => ({}));
  const detail = answer.error ?? {};
  if (response.status === 401) toLogin();
  throw new ApiError(response.status, detail.code ?? "internal", detail.field ?? "", detail.message || t("error.status", { status: response.status }));
}

function toLogin() {
  location.href = `${root()}/login?next=${encodeURIComponent(location.pathname.slice(root().length) + location.search)}`;
}

export function runPath(id, rest = "") {
  return `/api/runs/${encodeURIComponent(id)}${rest}`;
}

/** What a run's page asks for first: its record, thinned series, the end of its log. */
export function snapshotPaths(id) {
  return { detail: runPath(id), series: runPath(id, "/series?px=1200"), log: runPath(id, "/log?offset=-500") };
}

/** Address of a file of a run's output folder. */
export function fileUrl(id, path) {
  return root() + runPath(id, `/files/${path.split("/").map(encodeURIComponent).join("/")}`);
}

export function archiveUrl(id, checkpoint, what = "") {
  return root() + runPath(id, `/archive/${encodeURIComponent(checkpoint)}.tar${what ? `?what=${what}` : ""}`);
}
