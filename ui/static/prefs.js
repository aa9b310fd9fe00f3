// Turns what a person set in the charts (smoothing, hidden lines, zooms) into a record kept in this browser at once and on the server soon after.

import { get, root } from "./api.js";

const KEY = "tunedeck.charts";
const SAVE_MS = 400;
const MOST_ZOOMS = 40;
let asked = null;
let timer = null;

/** `defaults`, with what is kept in this browser over them. */
export function loadPrefs(defaults) {
  return { ...defaults, zooms: {}, ...stored() };
}

/** Keeps all of `prefs`; the newest writer wins, in whichever browser. */
export function savePrefs(prefs) {
  const record = { ...prefs, zooms: Object.fromEntries(Object.entries(prefs.zooms).slice(-MOST_ZOOMS)), at: Date.now() };
  localStorage.setItem(KEY, JSON.stringify(record));
  clearTimeout(timer);
  timer = setTimeout(send, SAVE_MS);
}

/** Asks the server once a page load; calls `changed` when it knew something newer than this browser. */
export function followPrefs(changed) {
  asked ??= get("/api/preferences").catch(() => ({})); // charts work with what this browser keeps
  asked.then((record) => {
    if (!(record.at > (stored().at ?? 0))) return;
    localStorage.setItem(KEY, JSON.stringify(record));
    changed();
  });
}

function stored() {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? "{}");
  } catch {
    return {}; // written by something else: start anew
  }
}

function send() {
  timer = null;
  const body = localStorage.getItem(KEY);
  // `keepalive`: a person who closes the tab right after still has it on the server. Losing it is no loss of data.
  fetch(`${root()}/api/preferences`, { method: "POST", headers: { "Content-Type": "application/json" }, body, keepalive: true, credentials: "same-origin" }).catch(() => undefined);
}

window.addEventListener("pagehide", () => timer && send());
