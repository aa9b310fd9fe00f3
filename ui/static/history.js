// Turns a run's events and phases into its history, newest first.

import { alarmProof, alertTitle, isAlarm } from "./alarms.js";
import { h, icon, keyed, replace } from "./dom.js";
import * as f from "./format.js";
import { profileSection } from "./profile.js";
import { has, t } from "./text.js";
import { emptyNote } from "./widgets.js";

const ICONS = { checkpoint: "save", stop_requested: "stop", save_requested: "save", profile_requested: "chart", alert: "warning" };

export function historySection(id) {
  const profile = profileSection(id);
  const list = h("ol", { class: "td-history" });
  const phases = h("div", {});
  const empty = h("div", {});
  return {
    node: h("div", { class: "td-history-box" }, h("section", { class: "td-section" }, h("h2", {}, t("history.events")), list, empty), h("div", { class: "td-history-side" }, phases, profile.node)),
    visible: (shown) => profile.visible(shown),
    close: () => profile.close(),
    update({ job, events = [], segments = [], can = {} }) {
      profile.update(job, can);
      // An event names the reason; the exit code and signal that its sentence tells stand in the job's record.
      const rows = events.map((event, index) => ({ exit_code: job.exit_code, signal: job.signal, ...event, key: index })).reverse();
      keyed(list, rows, (row) => row.key, eventRow);
      replace(empty, rows.length ? [] : emptyNote(t("history.none"), ""));
      replace(phases, phaseTable(segments));
    },
  };
}

function eventRow(event) {
  const name = event.kind === "state" ? event.state : ICONS[event.kind] ?? "info";
  return h("li", { class: `td-event td-event-${event.kind === "state" ? event.state : event.kind}` }, icon(name),
    h("div", {}, h("strong", {}, title(event)), body(event) && h("p", {}, body(event))), h("time", { title: f.exactMoment(event.at) }, f.moment(event.at)));
}

function title(event) {
  switch (event.kind) {
    case "state": return t(`state.${event.state}`);
    case "checkpoint": return t("event.checkpoint", { step: f.integer(event.step) });
    case "stop_requested": return t("event.stop_requested", { how: t(`stop.${event.mode}`) });
    case "save_requested": return t("event.save_requested");
    case "profile_requested": return t("event.profile_requested");
    case "alert": return alertTitle(event);
    default: return event.kind;
  }
}

function body(event) {
  const reason = event.reason && has(`reason.${event.reason}`) ? t(`reason.${event.reason}`, { code: event.exit_code ?? "?", signal: event.signal ?? "?" }) : "";
  if (event.kind === "state") return [reason, event.message].filter(Boolean).join(" ");
  if (event.kind === "alert") return isAlarm(event) ? alarmProof(event) : "";
  return event.kind === "checkpoint" ? event.path : "";
}

function phaseTable(segments) {
  const rows = sums(segments.flatMap((segment) => segment.phases ?? []));
  if (!rows.length) return [];
  const total = Math.max(...rows.map((row) => row.seconds ?? 0), 1e-9);
  const item = (row) => {
    const fill = h("i", {});
    fill.style.width = `${(100 * (row.seconds ?? 0)) / total}%`;
    return h("li", {}, h("span", {}, t(`phase.${row.phase}`), row.times > 1 && h("span", { class: "td-muted" }, ` ×${row.times}`)), h("span", { class: "td-phase-bar" }, fill), h("span", {}, [row.open ? t("history.now") : "", row.seconds > 0 ? f.duration(row.seconds) : ""].filter(Boolean).join(" · ") || f.duration(0)));
  };
  return h("section", { class: "td-section" }, h("h2", {}, t("history.phases")), h("ul", { class: "td-phases" }, rows.map(item)));
}

/** One row a phase, in the order of their first begin: how often, how long together, and whether it goes on. */
function sums(phases) {
  const found = new Map();
  for (const { phase, seconds } of phases) {
    const row = found.get(phase) ?? { phase, seconds: 0, times: 0, open: false };
    found.set(phase, { ...row, seconds: row.seconds + (seconds ?? 0), times: row.times + 1, open: row.open || seconds === null });
  }
  return [...found.values()];
}
