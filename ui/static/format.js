// Turns numbers of the API into short words for people. null (not reported) is a dash, never 0.

import { lang, t, tn } from "./text.js";

export const DASH = "–";

const locale = () => (lang() === "zh" ? "zh-CN" : "en-US");

/** Numbers the API names by words ("nan", "inf") become JavaScript's own; null stays null. */
export function toNumber(value) {
  if (value === null || value === undefined) return null;
  if (typeof value === "number") return value;
  return { nan: NaN, inf: Infinity, "-inf": -Infinity }[value] ?? Number(value);
}

/** Up to `digits` significant digits; very small and very large numbers in scientific form. */
export function number(value, digits = 4) {
  const n = toNumber(value);
  if (n === null) return DASH;
  if (Number.isNaN(n)) return "NaN";
  if (!Number.isFinite(n)) return n > 0 ? "∞" : "-∞";
  if (n === 0) return "0";
  const size = Math.abs(n);
  if (size < 1e-3 || size >= 1e9) return n.toExponential(Math.max(digits - 2, 0)).replace(/\.?0+e/, "e").replace("e+", "e");
  if (size >= 1000) return Math.round(n).toLocaleString(locale());
  return String(Number(n.toPrecision(digits)));
}

/** A loss: four decimals, so that the digits do not dance while it falls. */
export function loss(value) {
  const n = toNumber(value);
  if (n === null || !Number.isFinite(n) || (n !== 0 && Math.abs(n) < 1e-3) || Math.abs(n) >= 1e4) return number(n);
  return n.toFixed(4);
}

export function integer(value) {
  const n = toNumber(value);
  return n === null || !Number.isFinite(n) ? number(n) : Math.round(n).toLocaleString(locale());
}

/** Large counts in short form: 1.2k, 3.4M, 5.6B. */
export function compact(value) {
  const n = toNumber(value);
  if (n === null || !Number.isFinite(n)) return number(n);
  for (const [limit, unit] of [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e4, "k"]]) {
    if (Math.abs(n) >= limit) {
      const scaled = n / (unit === "k" ? 1e3 : limit);
      return `${Number(scaled.toPrecision(3))}${unit}`;
    }
  }
  return integer(n);
}

export function percent(value, digits = 0) {
  const n = toNumber(value);
  return n === null || !Number.isFinite(n) ? DASH : `${n.toFixed(digits)}%`;
}

export function bytes(value) {
  const n = toNumber(value);
  if (n === null || !Number.isFinite(n)) return DASH;
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let scaled = n;
  let unit = 0;
  while (Math.abs(scaled) >= 1024 && unit < units.length - 1) {
    scaled /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? scaled : Number(scaled.toPrecision(3))} ${units[unit]}`;
}

/** Whole GiB without the unit, for "150 / 192 GiB". */
export function gibibytes(value) {
  const n = toNumber(value);
  return n === null ? DASH : String(Number((n / 2 ** 30).toPrecision(3)));
}

/** Seconds as the two largest units: 42 s, 3 min 20 s, 2 h 5 min, 4 d 3 h. */
export function duration(value) {
  const n = toNumber(value);
  if (n === null || !Number.isFinite(n) || n < 0) return DASH;
  if (n < 10) return `${n < 0.01 && n > 0 ? "<0.01" : Number(n.toFixed(n < 1 ? 2 : 1))} ${t("unit.s")}`;
  const total = Math.round(n);
  const [d, hrs, min, s] = [Math.floor(total / 86400), Math.floor(total / 3600) % 24, Math.floor(total / 60) % 60, total % 60];
  const join = (a, ua, b, ub) => (b ? `${a} ${ua} ${b} ${ub}` : `${a} ${ua}`);
  if (d) return join(d, t("unit.d"), hrs, t("unit.h"));
  if (hrs) return join(hrs, t("unit.h"), min, t("unit.min"));
  if (min) return join(min, t("unit.min"), s, t("unit.s"));
  return `${s} ${t("unit.s")}`;
}

/** A clock time, with the date when it is not today. */
export function moment(seconds) {
  if (seconds === null || seconds === undefined) return DASH;
  const date = new Date(seconds * 1000);
  const today = new Date().toDateString() === date.toDateString();
  const clock = { hour: "2-digit", minute: "2-digit", second: today ? "2-digit" : undefined, hour12: false };
  return date.toLocaleString(locale(), today ? clock : { month: "short", day: "numeric", ...yearOf(date), ...clock });
}

function yearOf(date) {
  return date.getFullYear() === new Date().getFullYear() ? {} : { year: "numeric" };
}

export function exactMoment(seconds) {
  return seconds === null || seconds === undefined ? "" : new Date(seconds * 1000).toLocaleString(locale(), { dateStyle: "full", timeStyle: "long" });
}

/** How long ago, in one unit. */
export function ago(seconds, now = Date.now() / 1000) {
  if (seconds === null || seconds === undefined) return DASH;
  const passed = Math.max(0, now - seconds);
  if (passed < 45) return t("ago.now");
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (passed >= size * 0.95) return tn(`ago.${unit}`, Math.max(1, Math.round(passed / size)));
  }
  return t("ago.now");
}
