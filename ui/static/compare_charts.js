// Turns the series of several runs into charts with one line a run: by step, time, tokens or energy, one zoom for all.

import { rememberInAddress } from "./app.js";
import { get, runPath } from "./api.js";
import { singleCharts, styleOf } from "./chart_defs.js";
import { ChartGrid } from "./chart_grid.js";
import { h, setText, show } from "./dom.js";
import { Live } from "./live.js";
import { appendPoints, makeSeries, stepAt } from "./series.js";
import { t, tn } from "./text.js";
import { toast } from "./widgets.js";

const AXES = { step: null, tokens: "tokens", time: "elapsed_seconds", energy: "energy_kwh" };
const MOST_PIXELS = 1_200;
const LEAST_PIXELS = 150;
const ALL_PIXELS = 20_000; // of one series over all runs: fifty runs stay as light as a few
const AT_ONCE = 4;
const EVERY_POINT = 0;
const BETWEEN = "\u0000"; // between a series' name and its run: in no name

/** `state`: {hidden: Set of run ids, group(run) -> number or null} of the page, which owns the legend. */
export class CompareCharts extends ChartGrid {
  constructor(state) {
    super();
    this.ownLegend = true; // the runs are named once, in the table above
    this.state = state;
    this.runs = []; // {id, name, isActive, base: {key: series}, zoomed: {key: series} or null, live}
    this.zoomed = null; // {from, to} on the present axis
    const asked = new URLSearchParams(location.search).get("axis");
    if (asked in AXES) this.prefs.axis = asked; // a shared link shows what its sender saw
    this.absentNote = h("p", { class: "td-muted", role: "status" });
    this.buildToolbar();
    this.node = h("div", { class: "td-charts" }, this.toolbar, this.absentNote, this.groups);
    show(this.toolbar, false);
    this.markAxis();
    this.watch();
  }

  /** `runs`: [{job, keys}] of the comparison, in its order. Known runs keep their points. */
  async setRuns(runs) {
    const kept = new Map(this.runs.map((run) => [run.id, run]));
    this.runs = runs.map(({ job, keys }) => Object.assign(kept.get(job.id) ?? { id: job.id, base: {}, zoomed: null, fresh: true }, { name: job.name, keys, isFinal: ["succeeded", "failed", "cancelled", "lost"].includes(job.state) }));
    for (const run of kept.values()) if (!this.runs.includes(run)) run.live?.close();
    const fresh = this.runs.filter((run) => run.fresh);
    await inTurns(fresh, AT_ONCE, (run) => this.load(run));
    if (this.closed) return;
    this.layRuns();
    if (this.zoomed) await this.fetchZoom();
    this.everything();
    this.drawSoon();
  }

  async load(run) {
    run.fresh = false;
    const keys = [...run.keys.filter((key) => !key.startsWith("rank_seconds.")), AXES.energy];
    try {
      const answer = await get(runPath(run.id, `/series?keys=${keys.map(encodeURIComponent).join(",")}&px=${this.pixels()}`));
      run.base = seriesOf(answer);
      if (!run.isFinal && !this.closed) this.follow(run, answer.cursor);
    } catch (error) {
      run.fresh = true; // asked again with the next change
      toast(t("compare.load_failed", { name: run.name, why: error.message }), "bad");
    }
  }

  /** A running one goes on by itself; its energy comes with the next look at the table. */
  follow(run, cursor) {
    let at = cursor;
    run.live?.close();
    run.live = new Live({
      params: () => ({ run: run.id, after: at }),
      poll: () => runPath(run.id, `/since?c=${encodeURIComponent(at)}`),
      onMessage: (message) => {
        if (message.reset) return void this.again(run);
        at = message.c ?? at;
        if (message.rows) this.append(run, message.rows);
      },
      onStatus: () => undefined, // the pill in the frame tells of the host's own line
    });
  }

  async again(run) {
    run.live?.close();
    await this.load(run);
    this.everything();
  }

  append(run, rows) {
    for (const [key, points] of Object.entries(rows)) {
      run.base[key] ??= makeSeries();
      appendPoints(run.base[key], points);
    }
    for (const card of this.cards.values()) if (card.chart.base in rows) this.mark(card);
  }

  async refreshEnergy() {
    for (const run of this.runs.filter((each) => !each.isFinal)) {
      const answer = await get(runPath(run.id, `/series?keys=${AXES.energy}&px=${this.pixels()}`)).catch(() => null); // the next turn asks again
      if (answer) Object.assign(run.base, seriesOf(answer));
    }
  }

  pixels() {
    return Math.round(Math.min(MOST_PIXELS, Math.max(LEAST_PIXELS, ALL_PIXELS / Math.max(1, this.runs.length))));
  }

  layRuns() {
    const known = [...new Set(this.runs.flatMap((run) => Object.keys(run.base).filter((key) => run.base[key].x.length && key !== AXES.energy)))];
    const single = singleCharts(known);
    const charts = single.map((chart) => {
      const [base] = chart.keys;
      const keys = this.runs.filter((run) => run.base[base]?.x.length).map((run) => base + BETWEEN + run.id);
      return { ...chart, base, keys, smooth: chart.smooth?.includes(base) ? keys : [], dots: chart.dots?.includes(base) ? keys : [] };
    });
    this.lay(charts);
    for (const item of this.axisButtons) item.disabled = !this.has(item.dataset.axis);
  }

  has(axis) {
    return !AXES[axis] || this.runs.some((run) => run.base[AXES[axis]]?.x.length);
  }

  everything() {
    const key = AXES[this.axis()];
    const left = key ? this.runs.filter((run) => !run.base[key]?.x.length && Object.keys(run.base).length) : [];
    setText(this.absentNote, left.length ? tn(`compare.no_axis.${this.axis()}`, left.length, { names: left.map((run) => run.name).join(", ") }) : "");
    show(this.absentNote, left.length > 0);
    super.everything();
  }

  // What a card asks its owner for.
  axisNames() {
    return Object.keys(AXES);
  }

  axis() {
    const wanted = super.axis();
    return this.has(wanted) ? wanted : "step";
  }

  isZoomed() {
    return Boolean(this.zoomed);
  }

  find(key) {
    const [base, id] = key.split(BETWEEN);
    return { base, at: this.runs.findIndex((run) => run.id === id), run: this.runs.find((run) => run.id === id) };
  }

  whole(key) {
    const { base, run } = this.find(key);
    return run?.base[base];
  }

  source(key) {
    const { base, run } = this.find(key);
    if (!run || this.isHidden(key)) return makeSeries();
    const axis = AXES[this.axis()];
    if (axis && !run.base[axis]?.x.length) return makeSeries(); // it has no place on this axis
    return (this.zoomed && run.zoomed ? run.zoomed[base] : run.base[base]) ?? makeSeries();
  }

  isHidden(key) {
    return this.state.hidden.has(this.find(key).run?.id);
  }

  nameOf(key) {
    const { run, base } = this.find(key);
    return run ? run.name : base;
  }

  styleOf(key) {
    return styleOf(this.find(key).at, this.state.group(this.find(key).run?.id));
  }

  axisSeries(key) {
    const name = AXES[this.axis()];
    const series = name && key ? this.find(key).run?.base[name] : null;
    if (!series?.x.length) return null;
    const scale = this.axisScale();
    return scale === 1 ? series : { x: series.x, y: series.y.map((value) => value / scale) };
  }

  axisScale() {
    if (this.axis() !== "time") return 1;
    const total = Math.max(0, ...this.runs.map((run) => run.base.elapsed_seconds?.y.at(-1) ?? 0));
    return total > 180 * 60 ? 3_600 : total > 180 ? 60 : 1;
  }

  axisTitle() {
    if (this.axis() !== "time") return t(`axis.${this.axis()}.title`);
    return t("axis.time.title", { unit: t({ 1: "unit.s", 60: "unit.min", 3600: "unit.h" }[this.axisScale()]) });
  }

  /** The zoom, or the longest of the runs that are drawn. */
  range() {
    if (this.zoomed) return [this.zoomed.from, this.zoomed.to];
    const name = AXES[this.axis()];
    const scale = this.axisScale();
    const ends = this.runs.filter((run) => !this.state.hidden.has(run.id)).flatMap((run) => {
      if (name) return run.base[name]?.x.length ? [run.base[name].y[0] / scale, run.base[name].y.at(-1) / scale] : [];
      return Object.entries(run.base).flatMap(([key, series]) => (key === AXES.energy || !series.x.length ? [] : [series.x[0], series.x.at(-1)]));
    });
    const low = Math.min(...ends);
    const high = Math.max(...ends);
    return high > low ? [low - (high - low) * 0.01, high + (high - low) * 0.01] : null;
  }

  zoomName() {
    return this.zoomed ? `${this.axis()} ${this.zoomed.from} ${this.zoomed.to}` : this.axis();
  }

  markers() {
    return [];
  }

  name() {
    return t("compare.title");
  }

  /** Every point, in the present zoom; a line's column is named by its series and its run's id. */
  async exact(keys) {
    const found = await Promise.all(keys.filter((key) => !this.isHidden(key)).map(async (key) => {
      const { base, run } = this.find(key);
      const answer = await get(runPath(run.id, `/series?keys=${encodeURIComponent(base)}&px=${EVERY_POINT}${this.span(run)}`));
      return [key, makeSeries(answer.series[base])];
    }));
    return Object.fromEntries(found);
  }

  columnOf(key) {
    const { base, run } = this.find(key);
    return run ? `${base} ${run.id}` : key;
  }

  setAxis(name) {
    this.zoomed = null; // a range of steps is none of hours
    super.setAxis(name);
    rememberInAddress({ axis: name === "step" ? "" : name });
  }

  onZoom(range) {
    this.zoom(range);
  }

  async zoom(range) {
    if (!range && !this.zoomed) return;
    this.zoomed = range ? { from: Math.min(...range), to: Math.max(...range) } : null;
    for (const run of this.runs) run.zoomed = null;
    this.markAxis();
    this.everything();
    if (!this.zoomed) return;
    await this.fetchZoom();
    this.everything();
  }

  /** Exact values of the range, each run in its own steps. */
  async fetchZoom() {
    const { zoomed } = this;
    await inTurns(this.runs.filter((run) => !this.state.hidden.has(run.id)), AT_ONCE, async (run) => {
      const keys = Object.keys(run.base).map(encodeURIComponent).join(",");
      const answer = await get(runPath(run.id, `/series?keys=${keys}&px=${this.pixels()}${this.span(run)}`)).catch(() => null); // the thinned picture stays
      if (answer && this.zoomed === zoomed) run.zoomed = seriesOf(answer);
    });
  }

  span(run) {
    if (!this.zoomed) return "";
    const name = AXES[this.axis()];
    const scale = this.axisScale();
    const steps = [this.zoomed.from, this.zoomed.to].map((position) => (name && run.base[name]?.x.length ? stepAt(position * scale, run.base[name]) : position));
    return `&from=${Math.max(0, Math.floor(steps[0]))}&to=${Math.max(0, Math.ceil(steps[1]))}`;
  }

  close() {
    for (const run of this.runs) run.live?.close();
    super.close();
  }
}

function seriesOf(answer) {
  return Object.fromEntries(Object.entries(answer.series).map(([key, value]) => [key, makeSeries(value)]));
}

/** `work` on every item, `most` at a time. */
async function inTurns(items, most, work) {
  const waiting = [...items];
  const worker = async () => {
    while (waiting.length) await work(waiting.shift());
  };
  await Promise.all(Array.from({ length: Math.min(most, waiting.length) }, worker));
}
