// Turns the figures of several runs into cells, groups, an order and a CSV. Pure.

import * as f from "./format.js";
import { t } from "./text.js";

export const FIGURES = ["final_loss", "best_loss", "final_eval_loss", "best_eval_loss", "tokens_per_second", "mfu", "peak_memory_bytes", "tokens", "hours", "kwh", "cost"];
const FORMATS = {
  final_loss: f.loss, best_loss: f.loss, final_eval_loss: f.loss, best_eval_loss: f.loss, tokens_per_second: f.compact, mfu: (value) => f.percent(100 * value, 1),
  peak_memory_bytes: f.bytes, tokens: f.compact, hours: (value) => f.duration(value * 3600), kwh: (value) => f.number(value, 3), cost: (value) => f.number(value, 3),
};

/** A dash for what is not known (its title says why), `≈` before an estimate. */
export function figureText(name, figure) {
  if (figure.value === null) return f.DASH;
  return `${figure.estimate ? "≈ " : ""}${FORMATS[name](figure.value)}`;
}

/** Mean of the known values of a group, with how far they lie apart: `1.234 ± 0.05`. */
export function meanText(name, runs) {
  const known = runs.map((run) => run.figures[name].value).filter(Number.isFinite);
  if (!known.length) return f.DASH;
  const mean = known.reduce((sum, value) => sum + value, 0) / known.length;
  if (known.length < 2) return FORMATS[name](mean);
  const spread = Math.sqrt(known.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (known.length - 1));
  return `${FORMATS[name](mean)} ± ${FORMATS[name](spread)}`;
}

export function settingText(value) {
  if (value.given) return value.text;
  return value.default ? t("compare.default", { value: value.default }) : t("compare.not_set");
}

/** Runs of equal effective value of `key` together, in the order of the values; one group without a label when there is no key. */
export function groupRuns(data, key) {
  const row = data.differences.find((each) => each.key === key);
  if (!row) return [{ label: null, runs: data.runs }];
  const groups = new Map();
  data.runs.forEach((run, i) => {
    const value = row.values[i];
    const label = value.given ? value.text : value.default || t("compare.not_set");
    if (!groups.has(label)) groups.set(label, { label: `${key} = ${label}`, value: label, runs: [] });
    groups.get(label).runs.push(run);
  });
  return [...groups.values()].sort((a, b) => compareWords(a.value, b.value));
}

function compareWords(a, b) {
  const [x, y] = [Number(a), Number(b)];
  return Number.isFinite(x) && Number.isFinite(y) ? x - y : String(a).localeCompare(String(b));
}

/** By name or a figure; what is not known comes last in either direction, a diverged loss counts as the highest. */
export function sortRuns(runs, { sort, order }) {
  const side = order === "desc" ? -1 : 1;
  if (sort === "name") return [...runs].sort((a, b) => side * a.job.name.localeCompare(b.job.name));
  if (!FIGURES.includes(sort)) return runs;
  const value = (run) => {
    const found = f.toNumber(run.figures[sort].value);
    return Number.isNaN(found) ? Infinity : found;
  };
  return [...runs].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === null || y === null) return (x === null) - (y === null);
    return side * (x === y ? 0 : x < y ? -1 : 1);
  });
}

/** One sentence for each reason why figures are missing, with the figures' names. */
export function reasonsOf(data) {
  const found = new Map();
  for (const run of data.runs) {
    for (const name of FIGURES) {
      const { value, missing } = run.figures[name];
      if (value !== null) continue;
      if (!found.has(missing)) found.set(missing, new Set());
      found.get(missing).add(name);
    }
  }
  return [...found].map(([missing, names]) => t("compare.why", { names: [...names].map((name) => t(`figure.${name}`)).join(t("list.separator")), why: t(`missing.${missing}`) }));
}

/** Every figure in plain numbers and every differing setting, one row a run. */
export function tableCsv(data) {
  const keys = data.differences.map((row) => row.key);
  const rows = data.runs.map((run, i) => [run.job.id, run.job.name, run.job.state, ...FIGURES.map((name) => run.figures[name].value ?? ""), ...data.differences.map((row) => row.values[i].text || row.values[i].default), (run.job.tags ?? []).join(" "), run.job.notes ?? ""]);
  return [["id", "name", "state", ...FIGURES, ...keys, "tags", "notes"], ...rows].map((row) => row.map(csvCell).join(",")).join("\n") + "\n";
}

/** Quoted where needed; a text that a spreadsheet would take for a formula is kept a text. */
function csvCell(value) {
  const text = typeof value === "string" && /^[=+@-]/.test(value) && !Number.isFinite(Number(value)) ? `'${value}` : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
