// Turns the keys of a run's series into the charts to draw: known ones in a fixed order, then every other logged number by itself.

import { has, t } from "./text.js";

// `smooth`: noisy enough to be read through a moving average. `log`: the axis starts logarithmic when the person never chose.
const KNOWN = [
  { id: "loss", group: "main", keys: ["loss", "eval_loss"], smooth: ["loss"], dots: ["eval_loss"], format: "loss" },
  { id: "eval_loss", group: "main", keys: ["eval_loss"], dots: ["eval_loss"], format: "loss" },
  { id: "learning_rate", group: "main", keys: ["learning_rate"] },
  { id: "grad_norm", group: "main", keys: ["grad_norm"], smooth: ["grad_norm"] },
  { id: "tokens_per_second", group: "main", keys: ["tokens_per_second"], smooth: ["tokens_per_second"], format: "compact" },
  { id: "seconds_per_step", group: "main", keys: ["seconds_per_step"], smooth: ["seconds_per_step"], format: "seconds" },
  { id: "rank_seconds", group: "main", prefix: "rank_seconds.", format: "seconds" },
  { id: "data_seconds", group: "main", keys: ["data_seconds"], smooth: ["data_seconds"], format: "seconds", zero: true },
  { id: "padding_share", group: "main", keys: ["padding_share"], smooth: ["padding_share"], format: "share", zero: true },
  { id: "memory_bytes", group: "main", keys: ["memory_bytes"], format: "bytes", zero: true },
];
const GPU_CHARTS = [["gfx_activity_percent", "percent"], ["vram_used_bytes", "bytes"], ["socket_power_watts", "watts"], ["hotspot_celsius", "celsius"]];
KNOWN.push(...GPU_CHARTS.map(([measure, format]) => ({ id: `gpu.${measure}`, group: "telemetry", prefix: `gpu.${measure}.`, least: 1, format, zero: format !== "celsius" })));
const AXES = new Set(["tokens", "elapsed_seconds", "epoch", "num_input_tokens_seen"]);
// Said once at the end, or about the machine and not the model: figures in a list, no curves.
const FIGURES = /^(train_|total_flos$|eval_(runtime|.*_per_second|model_preparation_time)$)/;
const PAIRS = ["chosen", "rejected"];
// The first group stands without a heading: what everyone looks at, in one dense grid.
export const GROUPS = ["main", "telemetry", "evaluation", "other"];

/** Charts for these keys, in the order of their groups. A chart is {id, group, title, keys, smooth, dots, format, zero}. */
export function chartsFor(keys) {
  const charts = KNOWN.map((known) => known.prefix
    ? { ...known, keys: keys.filter((key) => key.startsWith(known.prefix)) }
    : { ...known, keys: known.keys.filter((key) => keys.includes(key)) })
    .filter((chart) => (chart.id === "loss" ? keys.includes("loss") : chart.keys.length >= (chart.least ?? (chart.prefix ? 2 : 1))));
  const taken = new Set([...AXES, ...KNOWN.flatMap((known) => known.keys ?? []), ...keys.filter((key) => key.startsWith("rank_seconds.") || key.startsWith("gpu."))]);
  const rest = keys.filter((key) => !taken.has(key) && !FIGURES.test(key)).sort();
  const more = others(rest);
  const place = charts.findIndex((chart) => chart.id === "tokens_per_second");
  const training = place < 0 ? charts.length : place; // rewards and margins belong beside the loss, before speed and memory
  const all = [...charts.slice(0, training), ...more, ...charts.slice(training)];
  for (const chart of all) chart.title = has(`chart.${chart.id}`) ? t(`chart.${chart.id}`) : chart.id;
  return GROUPS.flatMap((group) => all.filter((chart) => chart.group === group));
}

/** Keys whose newest value is told as a figure. */
export function figuresOf(keys) {
  return keys.filter((key) => FIGURES.test(key)).sort();
}

/** `rewards/chosen` and `rewards/rejected` belong in one picture; everything else stands alone. */
function others(keys) {
  const charts = [];
  const used = new Set();
  for (const key of keys) {
    if (used.has(key)) continue;
    const [, stem, side] = /^(.*)\/(chosen|rejected)$/.exec(key) ?? [];
    const members = side ? PAIRS.map((name) => `${stem}/${name}`).filter((name) => keys.includes(name)) : [key];
    for (const member of members) used.add(member);
    charts.push({ id: members.length > 1 ? stem : key, group: groupOf(key), keys: members, smooth: groupOf(key) === "evaluation" ? [] : members, dots: groupOf(key) === "evaluation" ? members : [] });
  }
  return charts;
}

function groupOf(key) {
  if (key.startsWith("eval_")) return "evaluation";
  return key.includes("/") || key === "sft_loss" || key === "odds_ratio_loss" ? "main" : "other";
}

/** Name of a series in legends and hover labels. */
export function seriesName(key) {
  if (key.startsWith("rank_seconds.")) return t("series.rank", { rank: key.slice("rank_seconds.".length) });
  return has(`series.${key}`) ? t(`series.${key}`) : key;
}

export const PALETTE = ["c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8"];
const DASHES = ["solid", "dash", "dot", "dashdot"];

/** Colour and dash of the `at`-th run, or of its group: eight colours, then the same with another dash. */
export function styleOf(at, group = null) {
  const place = Math.max(0, group ?? at);
  const round = group === null ? Math.floor(place / PALETTE.length) : 0;
  return { colour: PALETTE[place % PALETTE.length], dash: DASHES[round % DASHES.length] };
}

/** One chart a key: where several runs share a picture, every series of a run needs its own. */
export function singleCharts(keys) {
  return chartsFor(keys).flatMap((chart) => {
    if (chart.id === "loss" || chart.keys.length === 1) return [{ ...chart, keys: chart.keys.slice(0, 1) }];
    return chart.keys.map((key) => ({ ...chart, id: key, title: key, keys: [key] }));
  });
}
