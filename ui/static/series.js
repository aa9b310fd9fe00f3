// Turns snapshots and increments into series, and series into what a chart draws: smoothed, mapped to time or tokens, thinned. Pure.

const MOST_POINTS = 6_000; // of one series in the page; above it the older part is thinned (exact values come back by zooming)
const KEPT_EXACT = 1_500;
const THINNED_TO = 1_500;

/** Parallel arrays; `y` null is a gap. `odd` maps an x to the word of a value that is not finite. */
export function makeSeries({ x = [], y = [], odd = [] } = {}) {
  return { x: [...x], y: [...y], odd: new Map(odd) };
}

/** Appends points; one at the last x replaces it (a rank reported late), older ones change nothing: a message may come twice. */
export function appendPoints(series, { x, y, odd = [] }) {
  for (let i = 0; i < x.length; i += 1) {
    const last = series.x.length ? series.x[series.x.length - 1] : -Infinity;
    if (x[i] < last) continue;
    const at = x[i] === last ? series.x.length - 1 : series.x.length;
    series.x[at] = x[i];
    series.y[at] = y[i];
  }
  for (const [at, word] of odd) series.odd.set(at, word);
  if (series.x.length > MOST_POINTS) thinOlder(series);
}

/** Keeps the newest points exact and the smallest and largest of each bucket of the older ones: spikes stay. */
function thinOlder(series) {
  const cut = series.x.length - KEPT_EXACT;
  const older = minMax(series.x.slice(0, cut), series.y.slice(0, cut), THINNED_TO);
  series.x = [...older.x, ...series.x.slice(cut)];
  series.y = [...older.y, ...series.y.slice(cut)];
}

/** Smallest and largest value of each of `points / 2` buckets, at their own x; a gap inside a bucket stays a gap. */
export function minMax(x, y, points) {
  const out = { x: [], y: [] };
  const size = Math.max(1, Math.ceil((x.length * 2) / points));
  for (let start = 0; start < x.length; start += size) {
    const kept = new Set();
    let low = -1;
    let high = -1;
    for (let i = start; i < Math.min(start + size, x.length); i += 1) {
      if (y[i] === null) kept.add(i);
      else {
        if (low < 0 || y[i] < y[low]) low = i;
        if (high < 0 || y[i] > y[high]) high = i;
      }
    }
    const gap = [...kept][0];
    for (const i of [...new Set([low, high, gap ?? -1])].filter((at) => at >= 0).sort((a, b) => a - b)) {
      out.x.push(x[i]);
      out.y.push(y[i]);
    }
  }
  return out;
}

/**
 * Exponentially weighted mean of both sides, `span` steps wide: no lag behind a falling loss, and at the newest point it is the usual
 * moving average. It works in the domain of x, so that thinned and exact parts are smoothed alike. Gaps stay gaps and do not reset it.
 */
export function smooth(x, y, span) {
  if (!(span > 0)) return y;
  const known = y.map((value, i) => i).filter((i) => y[i] !== null && Number.isFinite(y[i]));
  const left = decayingSums(known, x, y, span);
  const right = decayingSums([...known].reverse(), x, y, span);
  const out = y.map(() => null);
  for (const i of known) out[i] = (left.sum[i] + right.sum[i] - y[i]) / (left.weight[i] + right.weight[i] - 1);
  return out;
}

function decayingSums(order, x, y, span) {
  const sums = { sum: [], weight: [] };
  let sum = 0;
  let weight = 0;
  let before = null;
  for (const i of order) {
    const keep = before === null ? 0 : Math.exp(-Math.abs(x[i] - before) / span);
    before = x[i];
    sum = keep * sum + y[i];
    weight = keep * weight + 1;
    sums.sum[i] = sum;
    sums.weight[i] = weight;
  }
  return sums;
}

/** Neighbouring values that are not finite, as spans [{word, from, to}] in the order of x. */
export function oddSpans(series) {
  const spans = [];
  const order = new Map(series.x.map((step, i) => [step, i]));
  for (const step of [...series.odd.keys()].sort((a, b) => a - b)) {
    const word = series.odd.get(step);
    const last = spans.at(-1);
    const touching = last && last.word === word && (order.get(step) ?? -9) - (order.get(last.to) ?? -9) === 1;
    if (touching) last.to = step;
    else spans.push({ word, from: step, to: step });
  }
  return spans;
}

/** Width in steps of a smoothing strength 0..99: a share of the drawn range, so the same strength looks the same on short and long runs. */
export function smoothingSpan(strength, firstX, lastX) {
  const share = (strength / 100) ** 2 * 0.1;
  return Math.max(0, (lastX - firstX) * share);
}

/** Positions of steps on another axis (`axis`: series of seconds or tokens over steps), straight between known points. */
export function mapSteps(steps, axis) {
  if (!axis || axis.x.length === 0) return steps.map(() => null);
  let at = 0;
  const end = axis.x.length - 1;
  return steps.map((step) => {
    while (at < end && axis.x[at + 1] < step) at += 1;
    if (step <= axis.x[at] || at === end) return axis.y[at];
    const share = (step - axis.x[at]) / (axis.x[at + 1] - axis.x[at]);
    return axis.y[at] + share * (axis.y[at + 1] - axis.y[at]);
  });
}

/** The step at a position of another axis: the inverse of `mapSteps`. */
export function stepAt(position, axis) {
  if (!axis || axis.x.length === 0) return position;
  const at = axis.y.findIndex((value) => value >= position);
  if (at < 0) return axis.x[axis.x.length - 1];
  if (at === 0) return axis.x[0];
  const share = (position - axis.y[at - 1]) / (axis.y[at] - axis.y[at - 1] || 1);
  return axis.x[at - 1] + share * (axis.x[at] - axis.x[at - 1]);
}

/** Lowest and highest value of the middle 98 %, with a margin: a view that one spike cannot flatten. null: too few points to tell. */
export function clippedRange(values) {
  const known = values.filter((value) => value !== null && Number.isFinite(value)).sort((a, b) => a - b);
  if (known.length < 20) return null;
  const low = known[Math.floor(known.length * 0.01)];
  const high = known[Math.ceil(known.length * 0.99) - 1];
  const margin = (high - low || Math.abs(high) || 1) * 0.08;
  return [low - margin, high + margin];
}

/** Rows of a table or CSV: one per step that any series has. */
export function joinByStep(named) {
  const rows = new Map();
  for (const [name, series] of named) {
    series.x.forEach((step, i) => {
      if (!rows.has(step)) rows.set(step, { step });
      rows.get(step)[name] = series.y[i] ?? series.odd?.get?.(step) ?? "";
    });
  }
  return [...rows.values()].sort((a, b) => a.step - b.step);
}

/** CSV with a header; values are numbers or words without commas, names of columns may be anything. */
export function toCsv(rows, columns) {
  return [columns.map((name) => (/[",\n\r]/.test(name) ? `"${name.replaceAll('"', '""')}"` : name)).join(","), ...rows.map((row) => columns.map((name) => row[name] ?? "").join(","))].join("\n") + "\n";
}
