// Turns a run's series into the grid of charts: one axis, one zoom, one smoothing for all, drawn only where they can be seen.

import { alarmMarkers } from "./alarms.js";
import { href, rememberInAddress } from "./app.js";
import { get, runPath } from "./api.js";
import { chartsFor, figuresOf } from "./chart_defs.js";
import { ChartGrid } from "./chart_grid.js";
import { h, icon, replace, setText, show } from "./dom.js";
import * as f from "./format.js";
import { onState } from "./host.js";
import { isActive, isFinal, partOf } from "./jobs.js";
import { deviceCards, fetchTelemetry } from "./run_telemetry.js";
import { appendPoints, makeSeries, stepAt } from "./series.js";
import { t } from "./text.js";
import { button, emptyNote, linkButton, toast } from "./widgets.js";

const PIXELS = 1_200;
const TELEMETRY_MS = 10_000;
const SPANS_SHOWN = 60;
const isGpu = (key) => key.startsWith("gpu.");
const EVERY_POINT = 0;
const START = ["importing", "parsing", "tokenizing", "loading", "training"];
const AXES = { step: null, time: "elapsed_seconds", tokens: "tokens" };

export function chartsSection(id) {
  return new Charts(id);
}

class Charts extends ChartGrid {
  constructor(id) {
    super();
    this.id = id;
    this.base = {}; // key -> series of the whole run, thinned
    this.zoomed = null; // {from, to, series} in steps, exact at this zoom
    this.marks = [];
    this.alarms = [];
    this.throttled = []; // spans of steps in which a limit held a clock down
    this.names = new Map(); // PCI address -> number of the device on this host
    this.recallZoom();
    this.build();
    this.watch();
  }

  build() {
    this.buildToolbar();
    this.empty = h("div", {});
    this.readingText = h("div", {});
    this.reading = h("div", { class: "td-note td-note-info", role: "status", hidden: true }, icon("chart"), this.readingText);
    this.tailText = h("pre", { class: "td-tail-lines", tabindex: 0, "aria-label": t("log.latest") });
    this.tailMore = button(t("log.open"), { kind: "quiet", iconName: "log" });
    this.tail = h("section", { class: "td-section td-tail", hidden: true }, h("div", { class: "td-section-head" }, h("h2", {}, icon("log"), h("span", {}, t("log.latest"))), this.tailMore), this.tailText);
    this.figures = h("section", { class: "td-section", hidden: true });
    this.devices = h("section", { class: "td-section", hidden: true });
    this.stopState = onState((state) => { for (const gpu of state.gpus ?? []) this.names.set(gpu.id, gpu.hip_id ?? gpu.smi_index ?? gpu.id); });
    this.node = h("div", { class: "td-charts" }, this.reading, this.toolbar, this.empty, this.groups, this.devices, this.figures, this.tail);
    this.markAxis();
  }

  axisNames() {
    return Object.keys(AXES);
  }

  isZoomed() {
    return Boolean(this.zoomed);
  }

  setDetail(detail) {
    this.job = detail.job;
    this.detail = detail;
    this.takeAlarms();
    this.drawEmpty();
  }

  /** Alarms are events of the job: the record of the run brings them, and each live message that holds a new one. */
  takeAlarms() {
    const alarms = alarmMarkers(this.detail.events, this.detail.segments);
    const shown = JSON.stringify(alarms);
    if (shown === this.alarmsShown) return;
    this.alarmsShown = shown;
    this.alarms = alarms;
    this.everything();
  }

  /** For the head of the page: mean seconds per step with pauses, first step whose loss is not a number. */
  facts() {
    const { x, y } = this.base.elapsed_seconds ?? { x: [], y: [] };
    const steps = x.length > 1 ? x[x.length - 1] - x[0] : 0;
    const odd = this.base.loss?.odd.keys() ?? [];
    return { meanSeconds: steps > 0 ? (y[y.length - 1] - y[0]) / steps : null, oddFrom: [...odd].reduce((a, b) => Math.min(a, b), Infinity) };
  }

  /** A snapshot replaces everything, zoom and taste stay. */
  reset({ series, markers, reading }) {
    this.sayReading(reading);
    this.base = Object.fromEntries(Object.entries(series).map(([key, value]) => [key, makeSeries(value)]));
    this.marks = [...(markers ?? [])];
    this.layCards();
    if (this.zoomed) this.fetchZoom();
    this.everything();
    this.drawEmpty();
    this.fetchRanks();
    this.telemetryAt = undefined;
    this.fetchGpus();
    this.drawSoon();
  }

  /** `share` of a long run's records that the server has read; null when the curves are all of them. */
  sayReading(share) {
    const known = Number.isFinite(share);
    show(this.reading, known);
    if (known) setText(this.readingText, t("chart.reading", { share: f.percent(100 * share) }));
  }

  append(rows, markers) {
    let fresh = false;
    for (const [key, points] of Object.entries(rows)) {
      fresh ||= !(key in this.base);
      this.base[key] ??= makeSeries();
      appendPoints(this.base[key], points);
      this.appendZoomed(key, points);
    }
    this.marks.push(...markers);
    this.fetchGpus();
    if (fresh) this.layCards();
    else if (Object.keys(rows).some((key) => figuresOf([key]).length)) this.drawFigures();
    for (const card of this.cards.values()) if (markers.length || card.chart.keys.some((key) => key in rows)) this.mark(card);
    this.drawEmpty();
  }

  appendZoomed(key, { x, y, odd }) {
    const zoomed = this.zoomed?.series?.[key];
    if (!zoomed) return;
    const inside = x.map((step, i) => i).filter((i) => x[i] >= this.zoomed.from && x[i] <= this.zoomed.to);
    appendPoints(zoomed, { x: inside.map((i) => x[i]), y: inside.map((i) => y[i]), odd });
  }

  /** Per-rank step times are many series: asked for once, after the rest is drawn. */
  async fetchRanks() {
    if ((this.job?.processes ?? 1) < 2) return;
    const answer = await get(runPath(this.id, `/series?keys=rank_seconds&px=${PIXELS}`)).catch(() => null); // the chart of the slowest rank is there
    if (!answer || this.closed) return;
    for (const [key, value] of Object.entries(answer.series)) {
      const newer = this.base[key];
      this.base[key] = makeSeries(value);
      if (newer) appendPoints(this.base[key], newer);
    }
    this.layCards();
    this.everything();
  }

  /** What the run's devices did, on the run's own steps; asked again while it goes on. */
  async fetchGpus() {
    if (!this.job?.devices?.length || performance.now() - (this.telemetryAt ?? -1e9) < TELEMETRY_MS) return;
    this.telemetryAt = performance.now();
    const clock = this.base.elapsed_seconds;
    const zero = (this.detail.headline?.last_step_at ?? NaN) - (clock?.y.at(-1) ?? NaN);
    const found = await fetchTelemetry(this.id, Number.isFinite(zero) ? clock : null, zero).catch(() => null); // the next turn asks again
    if (!found || this.closed) return;
    const known = Object.keys(found.series).every((key) => key in this.base);
    Object.assign(this.base, found.series);
    this.throttled = found.throttled.slice(-SPANS_SHOWN);
    if (!known) {
      this.layCards();
      this.everything();
    }
    for (const card of this.cards.values()) if (card.chart.group === "telemetry") this.mark(card);
    const cards = deviceCards(found.summary, (device) => this.deviceName(device), isFinal(this.job));
    show(this.devices, cards.length > 0);
    replace(this.devices, cards);
  }

  deviceName(device) {
    return t("gpus.place", { n: this.names.get(device) ?? device });
  }

  nameOf(key) {
    return isGpu(key) ? this.deviceName(key.split(".").slice(2).join(".")) : null;
  }

  /** Throttling is painted where its cause can be seen, and under the loss. */
  spans(chart) {
    return chart.group === "telemetry" || chart.id === "tokens_per_second" ? this.throttled : [];
  }

  layCards() {
    this.lay(chartsFor(Object.keys(this.base).filter((key) => this.base[key].x.length > 0)));
    this.drawFigures();
  }

  drawFigures() {
    const rows = figuresOf(Object.keys(this.base)).map((key) => [key, this.base[key].y.findLast((value) => value !== null)]).filter(([, value]) => value !== undefined);
    const shown = JSON.stringify(rows);
    if (shown === this.figuresShown) return;
    this.figuresShown = shown;
    show(this.figures, rows.length > 0);
    replace(this.figures, h("h2", {}, t("chart.figures")), h("dl", { class: "td-pairs" }, rows.map(([key, value]) => h("div", {}, h("dt", {}, key), h("dd", {}, f.number(value, 6))))));
  }

  // What a card asks its owner for.
  whole(key) {
    return this.base[key];
  }

  source(key) {
    return this.zoomed?.series && !isGpu(key) ? this.zoomed.series[key] ?? makeSeries() : this.base[key];
  }

  axisSeries() {
    const key = AXES[this.axis()];
    if (!key) return null;
    const series = this.base[key];
    if (!series?.x.length) return null;
    const scale = this.axisScale();
    return scale === 1 ? series : { x: series.x, y: series.y.map((value) => value / scale) };
  }

  axisScale() {
    if (this.axis() !== "time") return 1;
    const total = this.base.elapsed_seconds?.y.at(-1) ?? 0;
    return total > 3 * 86_400 ? 86_400 : total > 2 * 3_600 ? 3_600 : total > 180 ? 60 : 1;
  }

  axisTitle() {
    if (this.axis() !== "time") return t(`axis.${this.axis()}.title`);
    return t("axis.time.title", { unit: t({ 1: "unit.s", 60: "unit.min", 3600: "unit.h", 86400: "unit.d" }[this.axisScale()]) });
  }

  /** What every chart shows of its horizontal axis, in the axis' unit: the zoom, or the whole run, so that all stand in line. */
  range() {
    const axis = this.axisSeries();
    if (this.zoomed) {
      if (!axis) return [this.zoomed.from, this.zoomed.to];
      const at = (step) => axis.y[Math.max(0, axis.x.findLastIndex((x) => x <= step))];
      return [at(this.zoomed.from), at(this.zoomed.to)];
    }
    const known = axis ? [axis.y] : Object.values(this.base).map((series) => series.x).filter((x) => x.length);
    const first = Math.min(...known.map((x) => x[0]));
    const last = Math.max(...known.map((x) => x[x.length - 1]));
    if (!(last > first)) return null;
    const margin = (last - first) * 0.01;
    return [first - margin, last + margin];
  }

  /** Changes with every zoom: tells the chart library to take our range instead of its own memory of a drag. */
  zoomName() {
    return this.zoomed ? `${this.axis()} ${this.zoomed.from} ${this.zoomed.to}` : this.axis();
  }

  markers() {
    const kept = [...this.marks.filter((marker) => marker.kind !== "evaluation" && marker.kind !== "save"), ...this.alarms];
    return this.zoomed ? kept.filter((marker) => marker.step >= this.zoomed.from && marker.step <= this.zoomed.to) : kept;
  }

  name() {
    return this.job?.name ?? this.id;
  }

  async exact(keys) {
    const span = this.zoomed ? `&from=${this.zoomed.from}&to=${this.zoomed.to}` : "";
    if (keys.every(isGpu)) return Object.fromEntries(keys.map((key) => [key, this.base[key]])); // all that the run's folder keeps
    const answer = await get(runPath(this.id, `/series?keys=${keys.map(encodeURIComponent).join(",")}&px=${EVERY_POINT}${span}`));
    return Object.fromEntries(Object.entries(answer.series).map(([key, value]) => [key, makeSeries(value)]));
  }

  onZoom(range) {
    const axis = this.axisSeries();
    this.zoom(range && (axis ? range.map((position) => stepAt(position, axis)) : range));
  }

  /** `range` in steps or null. Every chart follows, with exact values of the range from the server. */
  zoom(range) {
    if (!range && !this.zoomed) return;
    this.zoomed = range ? { from: Math.floor(Math.min(...range)), to: Math.ceil(Math.max(...range)), series: null } : null;
    this.rememberZoom();
    rememberInAddress({ x: this.zoomed ? `${this.zoomed.from}-${this.zoomed.to}` : "" });
    show(this.resetButton, Boolean(this.zoomed));
    if (!this.zoomed || !this.reading.hidden) this.everything(); // exact values have to wait until the whole run is read
    if (this.zoomed) this.fetchZoom();
  }

  /** From the address (a shared link), else where this person left the run. */
  recallZoom() {
    const found = /^(\d+)-(\d+)$/.exec(new URLSearchParams(location.search).get("x") ?? "");
    const [from, to] = found ? found.slice(1).map(Number) : this.prefs.zooms[this.id] ?? [];
    if (Number.isFinite(from) && from < to) this.zoomed = { from, to, series: null };
  }

  takePrefs() {
    super.takePrefs();
    if (this.zoomed || this.closed) return; // an address wins over memory
    this.recallZoom();
    if (!this.zoomed) return;
    this.markAxis();
    if (Object.keys(this.base).length) this.fetchZoom(); // else with the first points
  }

  rememberZoom() {
    const { [this.id]: _, ...others } = this.prefs.zooms;
    this.setPref("zooms", this.zoomed ? { ...others, [this.id]: [this.zoomed.from, this.zoomed.to] } : others);
  }

  async fetchZoom() {
    const { zoomed } = this;
    const keys = Object.keys(this.base).filter((key) => !isGpu(key)).join(",");
    try {
      const answer = await get(runPath(this.id, `/series?keys=${encodeURIComponent(keys)}&from=${zoomed.from}&to=${zoomed.to}&px=${PIXELS}`));
      if (this.zoomed !== zoomed) return;
      zoomed.series = Object.fromEntries(Object.entries(answer.series).map(([key, value]) => [key, makeSeries(value)]));
    } catch (error) {
      toast(error.message, "bad"); // the thinned picture of the range stays
    }
    this.everything();
  }

  close() {
    this.stopState();
    super.close();
  }

  drawEmpty() {
    const some = Object.values(this.base).some((series) => series.x.length > 0);
    show(this.empty, !some);
    show(this.toolbar, some);
    if (some || !this.job) return;
    const { kind, page, query } = partOf(this.job);
    const elsewhere = kind === "check" || kind === "trial";
    const key = elsewhere ? kind : this.job.state === "queued" ? "queued" : isActive(this.job) ? "soon" : "never";
    const phases = key === "soon" ? phaseSteps(this.detail) : [];
    const shown = JSON.stringify([key, phases]);
    if (this.emptyKey === shown) return;
    this.emptyKey = shown;
    replace(this.empty, emptyNote(t(`chart.none.${key}`), t(`chart.none.${key}.help`), phases.length > 0 && phaseList(phases), elsewhere && linkButton(t(`job.part.${kind}`), href(page, query))));
  }

  onLogTail(open) {
    this.tailMore.addEventListener("click", open);
  }

  logTail(lines) {
    show(this.tail, lines.length > 0);
    replace(this.tailText, lines.map((line) => h("div", { class: line.level ? `td-log-${line.level}` : "" }, line.text || "\u00a0")));
  }
}

/** The way to the first step: [{phase, seconds, state: done, now or next}]. */
function phaseSteps({ headline = {}, segments = [], job }) {
  const past = segments.at(-1)?.phases ?? [];
  const now = headline.phase || job.phase || past.at(-1)?.phase || START[0];
  const at = START.indexOf(now);
  if (at < 0) return [];
  return START.map((phase, i) => ({ phase, seconds: i < at ? past.find((item) => item.phase === phase)?.seconds ?? null : null, state: i < at ? "done" : i === at ? "now" : "next" }));
}

function phaseList(phases) {
  return h("ol", { class: "td-steps" }, phases.map(({ phase, seconds, state }) => h("li", { class: `td-step-${state}`, "aria-current": state === "now" ? "step" : null },
    icon({ done: "succeeded", now: "starting", next: "queued" }[state]), h("span", {}, t(`phase.${phase}`)), h("span", { class: "td-muted" }, seconds === null ? "" : f.duration(seconds)))));
}
