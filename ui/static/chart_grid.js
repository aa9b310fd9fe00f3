// Turns chart cards into a grid that shares one taste (smoothing, outliers, axis, hidden lines) and is drawn only where it can be seen.

import { asset } from "./app.js";
import { ChartCard } from "./chart_card.js";
import { GROUPS } from "./chart_defs.js";
import { h, keyed, setAttr, setText, show } from "./dom.js";
import { followPrefs, loadPrefs, savePrefs } from "./prefs.js";
import { t } from "./text.js";
import { onTheme } from "./theme.js";
import { button, toast } from "./widgets.js";

const DEFAULTS = { smoothing: 50, axis: "step", clip: false, hidden: {}, log: {} };
const FASTEST_MS = 300;
const BUSY_SHARE = 5; // drawing may take one fifth of the time: a slow machine gets fewer pictures, never a frozen page

/** What owners of charts share. A subclass gives: axisNames(), source(key), whole(key), axisSeries(key), axisTitle(), range(), zoomName(), markers(), zoom(range), onZoom(range), exact(keys), name(), isZoomed(). */
export class ChartGrid {
  /** `prepare` runs before anything is built, when the taste is known. */
  constructor() {
    this.cards = new Map();
    this.dirty = new Set();
    this.inView = new Set();
    this.isVisible = true;
    this.cost = 0;
    this.prefs = loadPrefs(DEFAULTS);
  }

  /** Axis, smoothing, outliers and the way out of a zoom; `extra` nodes come before the last. */
  buildToolbar(...extra) {
    this.strength = h("output", { class: "td-muted" });
    this.slider = h("input", { type: "range", min: 0, max: 99, value: this.prefs.smoothing, "aria-label": t("chart.smoothing"), oninput: () => {
      this.setPref("smoothing", Number(this.slider.value));
      this.saySmoothing();
      this.everything();
    } });
    this.clip = h("input", { type: "checkbox", checked: this.prefs.clip, onchange: () => {
      this.setPref("clip", this.clip.checked);
      this.everything();
    } });
    this.axisButtons = this.axisNames().map((name) => h("button", { type: "button", class: "td-segment", dataset: { axis: name }, onclick: () => this.setAxis(name) }, t(`axis.${name}`)));
    this.resetButton = button(t("chart.reset_zoom"), { iconName: "search", onclick: () => this.zoom(null) });
    this.toolbar = h("div", { class: "td-toolbar td-chart-bar" },
      h("div", { class: "td-segments", role: "group", "aria-label": t("axis.label") }, this.axisButtons),
      h("label", { class: "td-inline" }, h("span", {}, t("chart.smoothing")), this.slider, this.strength),
      h("label", { class: "td-inline", title: t("chart.clip.help") }, this.clip, h("span", {}, t("chart.clip"))),
      ...extra, h("span", { class: "td-grow" }), this.resetButton);
    this.groups = h("div", {});
    this.saySmoothing();
  }

  saySmoothing() {
    setText(this.strength, this.prefs.smoothing === 0 ? t("chart.smoothing.off") : this.prefs.smoothing);
  }

  axis() {
    return this.axisNames().includes(this.prefs.axis) ? this.prefs.axis : "step";
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
    followPrefs(() => this.takePrefs());
    fetchPlotly();
  }

  /** Another browser of this person had newer wishes. */
  takePrefs() {
    if (this.closed) return;
    this.prefs = loadPrefs(DEFAULTS);
    this.slider.value = this.prefs.smoothing;
    this.clip.checked = this.prefs.clip;
    this.saySmoothing();
    this.markAxis();
    this.everything();
  }

  setPref(name, value) {
    this.prefs[name] = value;
    savePrefs(this.prefs);
  }

  /** One card a chart, kept over changes of what it holds. */
  lay(charts) {
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
  }

  addCard(chart) {
    const card = new ChartCard(chart, this);
    this.cards.set(chart.id, card);
    this.intersection.observe(card.node);
    this.sizes.observe(card.plot);
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

  setAxis(name) {
    this.setPref("axis", name);
    this.markAxis();
    this.everything();
  }

  markAxis() {
    for (const item of this.axisButtons) setAttr(item, "aria-pressed", item.dataset.axis === this.axis() ? "true" : "false");
    show(this.resetButton, this.isZoomed());
  }

  /** Real pictures take the place of the sketches as soon as the chart library is there. */
  drawSoon() {
    afterPaint().then(loadPlotly).then(() => this.mayDraw(), () => toast(t("chart.library"), "bad"));
  }

  mayDraw() {
    for (const card of this.cards.values()) if (!card.drawn) this.dirty.add(card);
    this.schedule();
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

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.intersection.disconnect();
    this.sizes.disconnect();
    this.stopTheme();
    for (const card of this.cards.values()) card.close();
  }
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
