// Turns a run's series into the grid of charts: one axis, one zoom, one smoothing for all, drawn only where they can be seen.

import { asset, rememberInAddress } from "./app.js";
import { get, runPath } from "./api.js";
import { ChartCard } from "./chart_card.js";
import { chartsFor, figuresOf, GROUPS } from "./chart_defs.js";
import { h, icon, keyed, replace, setAttr, setText, show } from "./dom.js";
import * as f from "./format.js";
import { isActive } from "./jobs.js";
import { appendPoints, makeSeries, stepAt } from "./series.js";
import { t } from "./text.js";
import { onTheme } from "./theme.js";
import { button, emptyNote, toast } from "./widgets.js";

const PREFS = "tunedeck.charts";
const DEFAULTS = { smoothing: 50, axis: "step", clip: false, hidden: {}, log: {} };
const PIXELS = 1_200;
const EXACT_PIXELS = 20_000;
const FASTEST_MS = 300;
const BUSY_SHARE = 5; // drawing may take one fifth of the time: a slow machine gets fewer pictures, never a frozen page
const START = ["importing", "parsing", "tokenizing", "loading", "training"];
const AXES = { step: null, time: "elapsed_seconds", tokens: "tokens" };

export function chartsSection(id) {
  return new Charts(id);
}

class Charts {
  constructor(id) {
    this.id = id;
    this.base = {}; // key -> series of the whole run, thinned
    this.zoomed = null; // {from, to, series} in steps, exact at this zoom
    this.marks = [];
    this.cards = new Map();
    this.dirty = new Set();
    this.inView = new Set();
    this.isVisible = true;
    this.cost = 0;
    this.prefs = { ...DEFAULTS, ...JSON.parse(localStorage.getItem(PREFS) ?? "{}") };
    this.zoomFromAddress();
    this.build();
    this.watch();
    fetchPlotly();
  }

  build() {
    const strength = h("output", { class: "td-muted" });
    const slider = h("input", { type: "range", min: 0, max: 99, value: this.prefs.smoothing, "aria-label": t("chart.smoothing") });
    const say = () => setText(strength, slider.value === "0" ? t("chart.smoothing.off") : slider.value);
    slider.addEventListener("input", () => {
      this.setPref("smoothing", Number(slider.value));
      say();
      this.everything();
    });
    say();
    const clip = h("input", { type: "checkbox", checked: this.prefs.clip, onchange: () => {
      this.setPref("clip", clip.checked);
      this.everything();
    } });
    this.axisButtons = Object.keys(AXES).map((name) => h("button", { type: "button", class: "td-segment", dataset: { axis: name }, onclick: () => this.setAxis(name) }, t(`axis.${name}`)));
    this.resetButton = button(t("chart.reset_zoom"), { iconName: "search", onclick: () => this.zoom(null) });
    this.toolbar = h("div", { class: "td-toolbar td-chart-bar" },
      h("div", { class: "td-segments", role: "group", "aria-label": t("axis.label") }, this.axisButtons),
      h("label", { class: "td-inline" }, h("span", {}, t("chart.smoothing")), slider, strength),
      h("label", { class: "td-inline", title: t("chart.clip.help") }, clip, h("span", {}, t("chart.clip"))),
      h("span", { class: "td-grow" }), this.resetButton);
    this.empty = h("div", {});
    this.groups = h("div", {});
    this.tailText = h("pre", { class: "td-tail-lines", tabindex: 0, "aria-label": t("log.latest") });
    this.tailMore = button(t("log.open"), { kind: "quiet", iconName: "log" });
    this.tail = h("section", { class: "td-section td-tail", hidden: true }, h("div", { class: "td-section-head" }, h("h2", {}, icon("log"), h("span", {}, t("log.latest"))), this.tailMore), this.tailText);
    this.figures = h("section", { class: "td-section", hidden: true });
    this.node = h("div", { class: "td-charts" }, this.toolbar, this.empty, this.groups, this.figures, this.tail);
    this.markAxis();
  }

  watch() {
    this.intersection = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        const card = this.cards.get(entry.target.dataset.chart);
        if (entry.isIntersecting) this.inView.add(card);
        else this.inView.delete(card);
      }
      this.schedule();
    }, { rootMargin: "200px" });
    this.sizes = new ResizeObserver((entries) => {
      for (const entry of entries) {
        const card = this.cards.get(entry.target.closest(".td-chart")?.dataset.chart);
        if (card && entry.contentRect.width !== card.width) {
          card.width = entry.contentRect.width;
          if (card.drawn) this.mark(card);
        }
      }
    });
    this.stopTheme = onTheme(() => this.everything());
  }

  setDetail(detail) {
    this.job = detail.job;
    this.detail = detail;
    this.drawEmpty();
  }

  /** For the head of the page: mean seconds per step with pauses, first step whose loss is not a number. */
  facts() {
    const { x, y } = this.base.elapsed_seconds ?? { x: [], y: [] };
    const steps = x.length > 1 ? x[x.length - 1] - x[0] : 0;
    const odd = this.base.loss?.odd.keys() ?? [];
    return { meanSeconds: steps > 0 ? (y[y.length - 1] - y[0]) / steps : null, oddFrom: [...odd].reduce((a, b) => Math.min(a, b), Infinity) };
  }

  /** A snapshot replaces everything, zoom and taste stay. */
  reset({ series, markers }) {
    this.base = Object.fromEntries(Object.entries(series).map(([key, value]) => [key, makeSeries(value)]));
    this.marks = [...(markers ?? [])];
    this.layCards();
    if (this.zoomed) this.fetchZoom();
    this.everything();
    this.drawEmpty();
    this.fetchRanks();
    afterPaint().then(loadPlotly).then(() => this.mayDraw(), () => toast(t("chart.library"), "bad"));
  }

  mayDraw() {
    for (const card of this.cards.values()) if (!card.drawn) this.dirty.add(card);
    this.schedule();
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

  layCards() {
    const charts = chartsFor(Object.keys(this.base).filter((key) => this.base[key].x.length > 0));
    for (const chart of charts) {
      const card = this.cards.get(chart.id);
      if (card) card.chart = chart;
      else this.addCard(chart);
    }
    const groups = GROUPS.map((name) => ({ name, charts: charts.filter((chart) => chart.group === name) })).filter((group) => group.charts.length);
    keyed(this.groups, groups, (group) => group.name,
      (group) => h("section", { class: "td-section" }, h("h2", { class: group.name === "main" ? "td-offscreen" : "" }, t(`group.${group.name}`)), h("div", { class: "td-grid" })),
      (node, group) => keyed(node.lastChild, group.charts, (chart) => chart.id, (chart) => this.cards.get(chart.id).node));
    show(this.toolbar, charts.length > 0);
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

  addCard(chart) {
    const card = new ChartCard(chart, this);
    this.cards.set(chart.id, card);
    this.intersection.observe(card.node);
    this.sizes.observe(card.plot);
  }

  // What a card asks its owner for.
  whole(key) {
    return this.base[key];
  }

  source(key) {
    return this.zoomed?.series ? this.zoomed.series[key] ?? makeSeries() : this.base[key];
  }

  axisSeries() {
    const key = AXES[this.prefs.axis];
    if (!key) return null;
    const series = this.base[key];
    if (!series?.x.length) return null;
    const scale = this.axisScale();
    return scale === 1 ? series : { x: series.x, y: series.y.map((value) => value / scale) };
  }

  axisScale() {
    if (this.prefs.axis !== "time") return 1;
    const total = this.base.elapsed_seconds?.y.at(-1) ?? 0;
    return total > 3 * 86_400 ? 86_400 : total > 2 * 3_600 ? 3_600 : total > 180 ? 60 : 1;
  }

  axisTitle() {
    if (this.prefs.axis !== "time") return t(`axis.${this.prefs.axis}.title`);
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
    return this.zoomed ? `${this.prefs.axis} ${this.zoomed.from} ${this.zoomed.to}` : this.prefs.axis;
  }

  markers() {
    const kept = this.marks.filter((marker) => marker.kind !== "evaluation" && marker.kind !== "save");
    return this.zoomed ? kept.filter((marker) => marker.step >= this.zoomed.from && marker.step <= this.zoomed.to) : kept;
  }

  name() {
    return this.job?.name ?? this.id;
  }

  async exact(keys) {
    const span = this.zoomed ? `&from=${this.zoomed.from}&to=${this.zoomed.to}` : "";
    const answer = await get(runPath(this.id, `/series?keys=${keys.map(encodeURIComponent).join(",")}&px=${EXACT_PIXELS}${span}`));
    return Object.fromEntries(Object.entries(answer.series).map(([key, value]) => [key, makeSeries(value)]));
  }

  setPref(name, value) {
    this.prefs[name] = value;
    localStorage.setItem(PREFS, JSON.stringify(this.prefs));
  }

  /** The other charts show the same place: a thin line and their own values. */
  hover(card, x) {
    this.hovered = { card, x };
    if (this.hovering) return;
    this.hovering = requestAnimationFrame(() => {
      this.hovering = 0;
      for (const other of this.inView) {
        if (other === this.hovered.card || !other.drawn) continue;
        if (this.hovered.x === null || this.hovered.x === undefined) window.Plotly.Fx.unhover(other.plot);
        else window.Plotly.Fx.hover(other.plot, { xval: this.hovered.x }, ["xy"]);
      }
    });
  }

  onZoom(range) {
    const axis = this.axisSeries();
    this.zoom(range && (axis ? range.map((position) => stepAt(position, axis)) : range));
  }

  /** `range` in steps or null. Every chart follows, with exact values of the range from the server. */
  zoom(range) {
    if (!range && !this.zoomed) return;
    this.zoomed = range ? { from: Math.floor(Math.min(...range)), to: Math.ceil(Math.max(...range)), series: null } : null;
    rememberInAddress({ x: this.zoomed ? `${this.zoomed.from}-${this.zoomed.to}` : "" });
    show(this.resetButton, Boolean(this.zoomed));
    if (this.zoomed) this.fetchZoom();
    else this.everything();
  }

  zoomFromAddress() {
    const found = /^(\d+)-(\d+)$/.exec(new URLSearchParams(location.search).get("x") ?? "");
    if (found) this.zoomed = { from: Number(found[1]), to: Number(found[2]), series: null };
  }

  async fetchZoom() {
    const { zoomed } = this;
    const keys = Object.keys(this.base).join(",");
    try {
      const answer = await get(runPath(this.id, `/series?keys=${encodeURIComponent(keys)}&from=${zoomed.from}&to=${zoomed.to}&px=${PIXELS}`));
      if (this.zoomed !== zoomed) return;
      zoomed.series = Object.fromEntries(Object.entries(answer.series).map(([key, value]) => [key, makeSeries(value)]));
    } catch (error) {
      toast(error.message, "bad"); // the thinned picture of the range stays
    }
    this.everything();
  }

  setAxis(name) {
    this.setPref("axis", name);
    this.markAxis();
    this.everything();
  }

  markAxis() {
    for (const item of this.axisButtons) setAttr(item, "aria-pressed", item.dataset.axis === this.prefs.axis ? "true" : "false");
    show(this.resetButton, Boolean(this.zoomed));
  }

  /** A person's choice is drawn at once; news waits for its turn. */
  everything() {
    clearTimeout(this.timer);
    this.timer = null;
    this.drawnAt = undefined;
    for (const card of this.cards.values()) {
      this.dirty.add(card);
      card.preview(); // until it is drawn: at once for those in view, when scrolled to for the rest
    }
    this.schedule();
  }

  mark(card) {
    this.dirty.add(card);
    this.schedule();
  }

  schedule() {
    if (this.timer || this.closed) return;
    const wait = Math.max(FASTEST_MS, this.cost * BUSY_SHARE) - (performance.now() - (this.drawnAt ?? -1e9));
    this.timer = setTimeout(() => this.pass(), Math.max(0, wait));
  }

  pass() {
    this.timer = null;
    if (this.closed || !this.isVisible || document.hidden || !window.Plotly) return;
    const turn = [...this.dirty].filter((card) => this.inView.has(card));
    let cost = 0;
    const next = () => {
      if (this.closed) return;
      const card = turn.shift();
      if (card) {
        const start = performance.now();
        this.dirty.delete(card);
        card.draw();
        cost += performance.now() - start;
        this.timer = setTimeout(next, 0); // one chart a task: clicks and scrolling come between
        return;
      }
      this.timer = null;
      this.cost = cost;
      this.drawnAt = performance.now();
      if ([...this.dirty].some((other) => this.inView.has(other))) this.schedule();
    };
    next();
  }

  visible(on) {
    this.isVisible = on;
    if (on) this.schedule();
  }

  drawEmpty() {
    const some = Object.values(this.base).some((series) => series.x.length > 0);
    show(this.empty, !some);
    show(this.toolbar, some);
    if (some || !this.job) return;
    const key = this.job.state === "queued" ? "queued" : isActive(this.job) ? "soon" : "never";
    const phases = key === "soon" ? phaseSteps(this.detail) : [];
    const shown = JSON.stringify([key, phases]);
    if (this.emptyKey === shown) return;
    this.emptyKey = shown;
    replace(this.empty, emptyNote(t(`chart.none.${key}`), t(`chart.none.${key}.help`), phases.length > 0 && phaseList(phases)));
  }

  onLogTail(open) {
    this.tailMore.addEventListener("click", open);
  }

  logTail(lines) {
    show(this.tail, lines.length > 0);
    replace(this.tailText, lines.map((line) => h("div", { class: line.level ? `td-log-${line.level}` : "" }, line.text || "\u00a0")));
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.intersection.disconnect();
    this.sizes.disconnect();
    this.stopTheme();
    for (const card of this.cards.values()) card.close();
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

let plotly = null;

/** On its way beside the numbers, without running yet. */
function fetchPlotly() {
  const href = asset("plotly");
  if (!window.Plotly && !document.querySelector(`link[href="${href}"]`)) document.head.append(h("link", { rel: "preload", as: "script", href }));
}

/** The next moment at which everything laid out so far has been painted. */
function afterPaint() {
  return new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve, 0)));
}

/** The chart library, once, after the numbers and the first lines are on screen: running its 4.8 MB takes a second of the page. */
function loadPlotly() {
  plotly ??= new Promise((resolve, reject) => {
    const script = h("script", { src: asset("plotly"), onload: resolve, onerror: reject });
    document.head.append(script);
  });
  return plotly;
}
