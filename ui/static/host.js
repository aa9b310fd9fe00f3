// Turns /api/state and its WebSocket into one shared picture of the host: what runs, what waits, GPUs, disk, worker.

import { get } from "./api.js";
import { Live } from "./live.js";

const SLOW_MS = 30_000;

let state = null;
let live = null;
let slow = null;
let following = "";
let status = "connecting";
const listeners = new Set();
const statusListeners = new Set();

/** `listener(state, changedKeys)` is called at once when a picture exists; returns the way to stop. */
export function onState(listener) {
  listeners.add(listener);
  if (state) listener(state, Object.keys(state));
  return () => listeners.delete(listener);
}

export function onStatus(listener) {
  statusListeners.add(listener);
  listener(status, live);
  return () => statusListeners.delete(listener);
}

export function setStatus(next, connection = live) {
  status = next;
  for (const listener of statusListeners) listener(next, connection);
}

/** Every page but a run's own follows the host live; a run's page has its own socket and looks at the host now and then. */
export function followHost(mode) {
  if (mode === following) return;
  following = mode;
  clearInterval(slow);
  live?.close();
  live = null;
  if (mode === "live") {
    get("/api/state").then((answer) => state ?? merge(answer), () => undefined); // may be here before the socket is open
    live = new Live({ params: () => ({}), poll: () => "/api/state", onMessage: merge, onStatus: (next) => setStatus(next, live) });
  } else {
    const look = () => get("/api/state").then(merge, () => undefined); // the run's own pill reports an unreachable server
    look();
    slow = setInterval(look, SLOW_MS);
  }
}

/** Fresh numbers for everyone after the page itself changed something. */
export async function refreshHost() {
  merge(await get("/api/state"));
}

export function mergeGpus(gpus) {
  merge({ gpus });
}

/** Identity and newest reading of a GPU as one record; what was not reported stays missing. */
function flatten({ reading, ...device }) {
  const { device: _id, ...measured } = reading ?? {};
  return { ...device, ...measured, vram_total_bytes: measured.vram_total_bytes ?? device.vram_total_bytes ?? null };
}

function merge(message) {
  if (message.beat && Object.keys(message).length <= 2) return;
  const { c: _cursor, beat: _beat, ...changes } = message;
  if (changes.gpus) changes.gpus = changes.gpus.map(flatten);
  state = { ...(state ?? {}), ...changes };
  for (const listener of listeners) listener(state, Object.keys(changes));
}
