// Turns alert events into words (what, since when, what proves it, what to do), into notes and into markers of the charts.

import { h, icon, replace, show } from "./dom.js";
import * as f from "./format.js";
import { has, t, tn } from "./text.js";

const MARKERS_SHOWN = 60;
const NOTES_OPEN = 2;
/** Charts on which an alarm of this kind can be seen; all others are about the loss and what drives it. */
const ON_PACE = { codes: new Set(["stalled", "slow_drift", "data_starved", "straggler", "remaining_time_unreliable"]), charts: ["tokens_per_second", "seconds_per_step", "rank_seconds", "data_seconds"] };
const ON_NUMBERS = ["loss", "eval_loss", "grad_norm", "learning_rate"];
const LEAST = new Set(["remaining_time_unreliable"]);

export const isAlarm = (event) => event.kind === "alert" && has(`alarm.${event.code}`);

export const alarmTitle = (alarm) => t(`alarm.${alarm.code}`);

/** "since step 41", or the time where no step is known. */
export function alarmSince(alarm) {
  return Number.isInteger(alarm.step) ? t("alarm.step", { step: f.integer(alarm.step) }) : f.moment(alarm.at);
}

/** What proves it, in the page's language; alarms of an older version have only the English sentence. */
export function alarmProof(alarm) {
  const key = `alarm.${alarm.form || alarm.code}.proof`;
  const numbers = Object.entries(alarm.numbers ?? {});
  const words = has(key) ? t(key, Object.fromEntries(numbers.map(([name, value]) => [name, spell(name, value)]))) : "{";
  return /\{\w*/.test(words) ? alarm.evidence ?? "" : words;
}

/** The name of a number tells its unit (backend/parsing/alarms.py). */
function spell(name, value) {
  if (typeof value !== "number") return value;
  if (name.endsWith("_seconds")) return f.duration(value);
  if (name.endsWith("_share")) return f.percent(100 * value);
  return Number.isInteger(value) ? f.integer(value) : f.number(value);
}

/** Any alert in one line: the title of an alarm, or what happened around the run. */
export function alertTitle(event) {
  if (isAlarm(event)) return alarmTitle(event);
  return has(`notice.${event.code}`) ? t(`notice.${event.code}`, event.numbers ?? {}) : event.message;
}

/** The newest alarm of each kind that still counts, the worst first. `lastStepAt`: a run that goes on has stalled no more. */
export function presentAlarms(events = [], { segments = [], lastStepAt = null } = {}) {
  const counting = events.filter((event) => isAlarm(event) && event.severity !== "note" && !isAbandoned(event, segments) && !(event.code === "stalled" && lastStepAt > event.at));
  const newest = [...new Map(counting.map((alarm) => [alarm.code, alarm])).values()].reverse();
  const weight = (alarm) => (alarm.severity === "error" ? 2 : Number(!LEAST.has(alarm.code)));
  return newest.sort((a, b) => weight(b) - weight(a));
}

/** One marker a step: {kind, step, severity, lines, charts: ids of those that get a line across}. */
export function alarmMarkers(events = [], segments = []) {
  const bySteps = new Map();
  for (const alarm of events) {
    if (!isAlarm(alarm) || alarm.severity === "note" || !Number.isInteger(alarm.step) || isAbandoned(alarm, segments)) continue;
    const marker = bySteps.get(alarm.step) ?? { kind: "alarm", step: alarm.step, severity: "warning", lines: [], charts: [] };
    if (alarm.severity === "error") marker.severity = "error";
    const line = t("marker.alarm", { step: f.integer(alarm.step), title: alarmTitle(alarm) });
    if (!marker.lines.includes(line)) marker.lines.push(line);
    marker.charts.push(...(ON_PACE.codes.has(alarm.code) ? ON_PACE.charts : ON_NUMBERS));
    bySteps.set(alarm.step, marker);
  }
  return [...bySteps.values()].slice(-MARKERS_SHOWN);
}

/** A later start of the trainer went back to before that step: those numbers are gone. */
function isAbandoned(alarm, segments) {
  return Number.isInteger(alarm.step) && segments.some((segment) => segment.started_at > alarm.at && segment.begin_step !== null && segment.begin_step < alarm.step);
}

/** Fills `node` with the alarms that count; it hides when there are none. */
export function drawAlarms(node, alarms) {
  const shown = JSON.stringify(alarms.map((alarm) => [alarm.code, alarm.at]));
  if (node.dataset.shown === shown) return;
  const open = node.querySelector("details")?.open ?? false;
  node.dataset.shown = shown;
  const notes = alarms.map(alarmNote);
  show(node, notes.length > 0);
  const rest = notes.length - NOTES_OPEN;
  replace(node, notes.slice(0, NOTES_OPEN), rest > 0 && h("details", { open }, h("summary", {}, tn("alarm.more", rest)), notes.slice(NOTES_OPEN)));
}

function alarmNote(alarm) {
  const proof = alarmProof(alarm);
  return h("section", { class: `td-note td-note-${alarm.severity === "error" ? "bad" : "warn"}`, role: "status", dataset: { alarm: alarm.code } }, icon("warning"),
    h("div", {}, h("div", { class: "td-alarm-head" }, h("strong", {}, alarmTitle(alarm)), " ", h("span", { class: "td-muted" }, alarmSince(alarm))),
      proof && h("p", { class: "td-alarm-proof" }, proof), h("p", {}, t(`alarm.${alarm.code}.do`))));
}

/** Those of a row of a list, which has only the newest of each kind. */
export function alarmsOf(job) {
  return presentAlarms(job.alarms, { lastStepAt: job.state === "succeeded" ? job.ended_at : job.headline?.last_step_at });
}

/** One line for lists and cards: the worst alarm, and how many more. `alarms`: as `presentAlarms` gives them. */
export function drawAlarmLine(node, alarms) {
  const [worst, ...others] = alarms;
  const shown = worst ? `${worst.code} ${worst.at} ${others.length}` : "";
  if (node.dataset.shown === shown) return;
  node.dataset.shown = shown;
  show(node, Boolean(worst));
  if (!worst) return;
  node.className = `td-alarm-line td-alarm-${worst.severity}`;
  node.title = alarms.map((alarm) => `${alarmTitle(alarm)} (${alarmSince(alarm)})\n${alarmProof(alarm)}`).join("\n\n");
  replace(node, icon("warning"), h("span", {}, alarmTitle(worst)), others.length > 0 && h("span", { class: "td-muted" }, t("alarm.others", { n: others.length })));
}
