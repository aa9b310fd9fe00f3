// Turns the telemetry in a run's folder into series on the run's own steps, throttled spans, and one card per device.

import { get, runPath } from "./api.js";
import { h, icon } from "./dom.js";
import * as f from "./format.js";
import { makeSeries } from "./series.js";
import { t } from "./text.js";

export const MEASURES = ["gfx_activity_percent", "vram_used_bytes", "socket_power_watts", "hotspot_celsius"];
const LIMITS = ["power_violation_percent", "thermal_violation_percent"];
const THROTTLED = 5; // percent of a sample's time
const HOST = "host";
const IDLE = 50; // percent of the run

/** Key of a series on the run page: `gpu.<measure>.<device>`. */
export const keyOf = (measure, device) => `gpu.${measure}.${device}`;

/** `{devices, series: {key: series over steps}, summary, throttled: [{from, to, device}]}`. `clock`: {x: steps, y: elapsed seconds}; `zero`: Unix seconds of its 0. */
export async function fetchTelemetry(id, clock, zero) {
  const found = await get(runPath(id, `/telemetry?keys=${[...MEASURES, ...LIMITS].join(",")}`));
  const devices = (found.devices ?? []).filter((device) => device !== HOST);
  const series = {};
  const throttled = [];
  for (const device of devices) {
    for (const measure of MEASURES) {
      const placed = onSteps(found.series[device]?.[measure], clock, zero);
      if (placed.y.some((value) => value !== null)) series[keyOf(measure, device)] = makeSeries(placed);
    }
    for (const limit of LIMITS) throttled.push(...spans(onSteps(found.series[device]?.[limit], clock, zero), device, limit));
  }
  return { devices, series, summary: found.summary ?? [], throttled };
}

/** Samples at the (fractional) steps of their times; those before the first step and after the last one are left out. */
function onSteps(history, clock, zero) {
  const placed = { x: [], y: [] };
  if (!history || !(clock?.x.length > 1)) return placed;
  let at = 0;
  history.times.forEach((time, i) => {
    const elapsed = time - zero;
    if (elapsed < clock.y[0] || elapsed > clock.y[clock.y.length - 1]) return;
    while (at < clock.y.length - 2 && clock.y[at + 1] < elapsed) at += 1;
    const width = clock.y[at + 1] - clock.y[at];
    placed.x.push(clock.x[at] + (width > 0 ? (elapsed - clock.y[at]) / width : 0) * (clock.x[at + 1] - clock.x[at]));
    placed.y.push(history.mean[i] ?? null);
  });
  return placed;
}

function spans({ x, y }, device, limit) {
  const found = [];
  x.forEach((step, i) => {
    if (!(y[i] >= THROTTLED)) return;
    const last = found[found.length - 1];
    const end = x[i + 1] ?? step;
    if (last && last.end === i) Object.assign(last, { to: end, end: i + 1 });
    else found.push({ from: step, to: end, end: i + 1, device, limit });
  });
  return found;
}

/** What each device did in the run; a missing value is a dash, never 0. */
export function deviceCards(summary, names, ended) {
  if (!summary.length) return [];
  const pair = (name, value) => h("div", {}, h("dt", {}, t(`device.${name}`)), h("dd", {}, value));
  const both = (mean, most, unit) => (mean === null && most === null ? f.DASH : t("device.mean_max", { mean: unit(mean), max: unit(most) }));
  const percent = (value) => f.percent(value, value > 0 && value < 10 ? 1 : 0);
  const known = (value, unit) => (value === null || value === undefined ? f.DASH : unit(value));
  const card = (row) => h("article", { class: "td-card td-device-card" }, h("h3", { title: row.device }, names(row.device)), h("dl", { class: "td-gpu-rows" },
    pair("activity", both(row.mean_activity_percent, row.max_activity_percent, percent)), pair("memory", known(row.max_vram_bytes, f.bytes)),
    pair("power", both(row.mean_power_watts, row.max_power_watts, (value) => known(value, (w) => `${f.integer(w)} W`))),
    pair("heat", known(row.max_hotspot_celsius, (value) => `${f.integer(value)} °C`)), pair("memory_heat", known(row.max_memory_celsius, (value) => `${f.integer(value)} °C`)),
    pair("energy", row.energy_kwh === null ? f.DASH : t(row.energy_is_estimate ? "device.kwh_estimate" : "device.kwh", { kwh: f.number(row.energy_kwh, 3) })),
    pair("limited", row.power_limited_percent === null && row.heat_limited_percent === null ? f.DASH : t("device.limited_by", { power: known(row.power_limited_percent, percent), heat: known(row.heat_limited_percent, percent) })),
    pair("errors", known(row.new_uncorrectable_errors, f.integer))));
  const idle = summary.filter((row) => row.idle_percent !== null && row.idle_percent > IDLE);
  const warn = idle.length > 0 && h("div", { class: "td-note td-note-warn", role: ended ? null : "alert" }, icon("warning"), h("div", {}, h("strong", {}, t("device.idle", { names: idle.map((row) => names(row.device)).join(", ") })), h("p", {}, t("device.idle.help"))));
  return [h("h2", {}, t("device.title")), warn, h("div", { class: "td-device-cards" }, summary.map(card))].filter(Boolean);
}
