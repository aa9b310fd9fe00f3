// Turns one chart's series into a Plotly picture in a card: raw and smoothed lines, markers, log axis, hidden series, exports.

import { h, icon, keyed, replace, setAttr, setText, show, sparkline } from "./dom.js";
import * as f from "./format.js";
import { PALETTE, seriesName } from "./chart_defs.js";
import { clippedRange, joinByStep, mapSteps, oddSpans, smooth, smoothingSpan, toCsv } from "./series.js";
import { t } from "./text.js";
import { token } from "./theme.js";
import { button, dialog, iconButton, save } from "./widgets.js";

const TABLE_ROWS = 500;
const ODD_SHOWN = 30;
const FORMATS = {
  loss: f.loss, compact: f.compact, seconds: f.duration, bytes: f.bytes, percent: (value) => f.percent(value, 0), watts: (value) => (value === null ? f.DASH : `${f.integer(value)} W`), celsius: (value) => (value === null ? f.DASH : `${f.integer(value)} °C`),
  share: (value) => (value === null ? f.DASH : f.percent(100 * value, 1)), undefined: f.number,
};
const PLOTLY_CONFIG = { displayModeBar: false, responsive: false, doubleClick: false, scrollZoom: false, showTips: false };

/**
 * `context`: the section that owns the card: {prefs, source(key), axisSeries(key), axisTitle(), range(), markers(), onZoom(range), exact(keys), hover(card, x)}.
 * It may have its own words and colours for the lines: nameOf(key), styleOf(key) -> {colour, dash}, isHidden(key) and, with `ownLegend`, its own legend.
 * `source` gives what is drawn now (the zoomed series or the whole one).
 */
export class ChartCard {
  constructor(chart, context) {
    this.chart = chart;
    this.context = context;
    this.drawn = false;
    this.build();
  }

  build() {
    const { chart } = this;
    this.value = h("span", { class: "td-chart-value" });
    this.legend = h("div", { class: "td-legend", role: "group", "aria-label": t("chart.series") });
    this.plot = h("div", { class: "td-plot", role: "img", "aria-label": chart.title });
    this.logButton = button(t("chart.log"), { kind: "quiet", title: t("chart.log.help"), onclick: () => this.toggleLog() });
    this.menu = menu(t("chart.more"), [
      [t("chart.table"), "table", () => this.showTable()],
      [t("chart.csv"), "download", () => this.saveCsv()],
      [t("chart.json"), "download", () => this.saveJson()],
      [t("chart.png"), "image", () => this.savePng()],
    ]);
    this.bigButton = iconButton(t("chart.expand"), "expand", () => this.toggleBig(), { "aria-pressed": "false" });
    this.node = h("article", { class: "td-chart", dataset: { chart: chart.id } },
      h("header", {}, h("h3", {}, chart.title), this.value, h("div", { class: "td-chart-tools" }, this.logButton, this.bigButton, this.menu)), this.legend, this.plot);
  }

  format(value) {
    return (FORMATS[this.chart.format] ?? f.number)(value);
  }

  isLog() {
    return this.context.prefs.log[this.chart.id] ?? false;
  }

  hidden(key) {
    if (this.context.isHidden) return this.context.isHidden(key);
    return (this.context.prefs.hidden[this.chart.id] ?? []).includes(key);
  }

  nameOf(key) {
    return this.context.nameOf?.(key) ?? seriesName(key);
  }

  /** Name of the line's colour in the theme, and its dash. */
  styleOf(key) {
    return this.context.styleOf?.(key) ?? { colour: PALETTE[this.chart.keys.indexOf(key) % PALETTE.length], dash: "solid" };
  }

  toggleLog() {
    this.context.setPref("log", { ...this.context.prefs.log, [this.chart.id]: !this.isLog() });
    this.draw();
  }

  toggleSeries(key) {
    const now = this.context.prefs.hidden[this.chart.id] ?? [];
    const next = now.includes(key) ? now.filter((other) => other !== key) : [...now, key];
    this.context.setPref("hidden", { ...this.context.prefs.hidden, [this.chart.id]: next });
    this.draw();
  }

  toggleBig() {
    const big = this.node.classList.toggle("td-chart-big");
    setAttr(this.bigButton, "aria-pressed", big ? "true" : "false");
    this.draw();
    this.node.scrollIntoView({ block: "nearest" });
  }

  /** A line without axes, at once: the numbers are there before the chart library is. */
  preview() {
    if (this.drawn) return; // never in place of the real picture
    const series = this.chart.keys.map((key) => this.context.source(key)).find((found) => found?.x.length);
    if (series) replace(this.plot, sparkline(series.y, { width: 400, height: 180, label: this.chart.title }));
    this.drawValue();
    this.drawLegend();
  }

  draw() {
    const { Plotly } = window;
    if (!Plotly) {
      this.preview();
      return;
    }
    this.drawValue();
    this.drawLegend();
    setAttr(this.logButton, "aria-pressed", this.isLog() ? "true" : "false");
    if (!this.drawn) this.plot.replaceChildren();
    Plotly.react(this.plot, this.traces(), this.layout(), PLOTLY_CONFIG);
    if (!this.drawn) this.listen();
    this.drawn = true;
    setAttr(this.plot, "aria-label", this.spoken());
  }

  listen() {
    this.plot.on("plotly_relayout", (change) => this.zoomed(change));
    this.plot.on("plotly_doubleclick", () => this.context.onZoom(null));
    this.plot.on("plotly_hover", (event) => this.context.hover(this, event.xvals?.[0] ?? event.points?.[0]?.x));
    this.plot.on("plotly_unhover", () => this.context.hover(this, null));
  }

  zoomed(change) {
    if (change["xaxis.autorange"]) this.context.onZoom(null);
    else if (change["xaxis.range[0]"] !== undefined) this.context.onZoom([Number(change["xaxis.range[0]"]), Number(change["xaxis.range[1]"])]);
  }

  traces() {
    const visible = this.chart.keys.filter((key) => !this.hidden(key));
    const lines = visible.flatMap((key) => this.lines(key));
    return [...lines, this.markerTrace()];
  }

  lines(key) {
    const series = this.context.source(key);
    if (!series?.x.length) return [];
    const axis = this.context.axisSeries(key);
    const x = axis ? mapSteps(series.x, axis) : series.x;
    const style = this.styleOf(key);
    const colour = token(style.colour);
    const name = this.nameOf(key);
    const base = { type: "scatter", x, connectgaps: false, name, customdata: series.x, hoverlabel: { namelength: -1 } };
    const dots = this.chart.dots?.includes(key) || series.x.length < 3;
    const strength = this.chart.smooth?.includes(key) ? this.context.prefs.smoothing : 0;
    const span = smoothingSpan(strength, series.x[0], series.x[series.x.length - 1]);
    const text = series.y.map((value) => this.format(value));
    const hover = `${escapePlotly(name)}: <b>%{text}</b><extra></extra>`;
    const raw = { ...base, y: series.y, text, hovertemplate: hover, mode: dots ? "lines+markers" : "lines", marker: { size: dots ? 6 : 4, color: colour }, line: { color: colour, width: 1.6, dash: style.dash } };
    if (!(span > 0) || series.x.length < 5) return [raw];
    const mean = smooth(series.x, series.y, span);
    return [
      { ...raw, mode: "lines", opacity: 0.28, line: { color: colour, width: 1 }, ...(this.context.ownLegend ? { hoverinfo: "skip", hovertemplate: null } : {}) },
      { ...base, y: mean, text: mean.map((value) => this.format(value)), mode: "lines", line: { color: colour, width: 2.2, dash: style.dash }, hovertemplate: `${escapePlotly(t("series.smoothed", { name }))}: <b>%{text}</b><extra></extra>` },
    ];
  }

  /** Checkpoints, resumes and stops on the lower edge; alarms, and values that are not numbers, on the upper one. */
  markerTrace() {
    const markers = this.context.markers();
    const odd = this.odd();
    const oddPlaces = odd.flatMap((item) => this.place([item.from], item.key));
    return {
      type: "scatter", mode: "markers", yaxis: "y2", cliponaxis: false, showlegend: false,
      x: [...this.place(markers.map((marker) => marker.step)), ...oddPlaces], y: [...markers.map((marker) => (marker.kind === "alarm" ? ALARM_HEIGHT : 0)), ...odd.map(() => 1)],
      text: [...markers.map(markerText), ...odd.map((item) => escapePlotly(oddText(item, this.nameOf(item.key))))],
      hovertemplate: "%{text}<extra></extra>",
      marker: {
        size: [...markers.map((marker) => (marker.kind === "alarm" ? 11 : 8)), ...odd.map(() => 9)], line: { width: 1.5, color: token("surface") },
        symbol: [...markers.map((marker) => MARKER_SYMBOLS[marker.kind] ?? "circle"), ...odd.map(() => "x")],
        color: [...markers.map((marker) => token(markerColour(marker))), ...odd.map(() => token("bad"))],
      },
    };
  }

  layout() {
    const grid = token("grid");
    const muted = token("muted");
    const range = this.context.range();
    const zoom = this.context.zoomName();
    const axis = { gridcolor: grid, zeroline: false, linecolor: grid, tickfont: { size: 11, color: muted }, fixedrange: true, automargin: true };
    return {
      autosize: true, width: this.plot.clientWidth || undefined, height: this.plot.clientHeight || undefined,
      margin: { l: 8, r: 12, t: 8, b: 4 }, paper_bgcolor: token("surface"), plot_bgcolor: token("surface"), // the rim of the hover line takes this colour
      font: { family: getComputedStyle(document.body).fontFamily, color: token("text"), size: 12 }, showlegend: false, hovermode: "x unified",
      hoverlabel: { bgcolor: token("surface"), bordercolor: token("border"), font: { color: token("text"), size: 12 } },
      dragmode: window.matchMedia("(pointer: coarse)").matches ? false : "zoom", uirevision: "keep",
      xaxis: { ...axis, fixedrange: false, title: { text: this.context.axisTitle(), font: { size: 11, color: muted }, standoff: 4 }, hoverformat: ",~r", exponentformat: "B", separatethousands: true, ...(range ? { range, autorange: false } : { autorange: true }), uirevision: zoom, showspikes: true, spikemode: "across", spikesnap: "hovered data", spikethickness: 1, spikedash: "dot", spikecolor: muted },
      yaxis: { ...axis, ...this.yAxis() },
      yaxis2: { overlaying: "y", range: [-0.015, 1.015], visible: false, fixedrange: true },
      shapes: [...this.context.markers().filter((marker) => RULED.has(marker.kind) || marker.charts?.includes(this.chart.id)).map((marker) => this.rule(marker)), ...(this.context.ownLegend ? [] : this.odd().map((item) => this.band(item))), ...(this.context.spans?.(this.chart) ?? []).map((item) => this.band(item, "warn-fill"))],
    };
  }

  /** Where visible series had values that are not finite. */
  odd() {
    const visible = this.chart.keys.filter((key) => !this.hidden(key) && this.context.source(key));
    return visible.flatMap((key) => oddSpans(this.context.source(key)).map((span) => ({ ...span, key }))).slice(0, ODD_SHOWN);
  }

  /** Where `steps` of a line lie on the horizontal axis. */
  place(steps, key = null) {
    const axis = this.context.axisSeries(key);
    return axis ? mapSteps(steps, axis) : steps;
  }

  band({ from, to, key }, colour = "bad") {
    const [x0, x1] = this.place([from, to], key);
    return { type: "rect", xref: "x", yref: "paper", x0, x1, y0: 0, y1: 1, layer: "below", fillcolor: token(colour), opacity: colour === "bad" ? 0.12 : 0.22, line: { width: 0 } };
  }

  yAxis() {
    const values = this.chart.keys.filter((key) => !this.hidden(key)).flatMap((key) => this.context.source(key)?.y ?? []);
    const clipped = this.context.prefs.clip ? clippedRange(values) : null;
    const log = this.isLog();
    const kind = { type: log ? "log" : "linear", ...tickStyle(this.chart.format, values, log) };
    const flat = log ? null : flatRange(values);
    if (flat) return { ...kind, range: flat, autorange: false };
    if (clipped && !log) return { ...kind, range: clipped, autorange: false };
    if (clipped && clipped[0] > 0) return { ...kind, range: clipped.map(Math.log10), autorange: false };
    return { ...kind, autorange: true, rangemode: this.chart.zero && !log ? "tozero" : "normal" };
  }

  rule(marker) {
    const [x] = this.place([marker.step]);
    return { type: "line", xref: "x", yref: "paper", x0: x, x1: x, y0: 0, y1: 1, layer: "below", line: { width: 1, dash: "dot", color: token(markerColour(marker)) } };
  }

  drawValue() {
    if (this.context.ownLegend) return; // of several runs none is the chart's value
    const key = this.chart.keys.find((name) => !this.hidden(name)) ?? this.chart.keys[0];
    const whole = this.context.whole(key);
    const odd = whole?.odd.get(whole.x.at(-1));
    const last = odd ? f.toNumber(odd) : whole?.y.findLast((value) => value !== null);
    setText(this.value, last === undefined ? "" : this.format(last));
    this.value.classList.toggle("td-bad", Boolean(odd));
  }

  drawLegend() {
    const wanted = this.chart.keys.length > 1 && !this.context.ownLegend;
    show(this.legend, wanted);
    if (!wanted) return;
    keyed(this.legend, this.chart.keys, (key) => key, (key) => {
      const swatch = h("i", {});
      swatch.style.background = `var(--td-${this.styleOf(key).colour})`;
      return h("button", { type: "button", class: "td-legend-item", onclick: () => this.toggleSeries(key) }, swatch, h("span", {}, this.nameOf(key)));
    }, (node, key) => setAttr(node, "aria-pressed", this.hidden(key) ? "false" : "true"));
  }

  spoken() {
    const keys = this.context.ownLegend ? this.chart.keys : this.chart.keys.slice(0, 1);
    const known = keys.flatMap((key) => this.context.whole(key)?.y ?? []).filter((value) => value !== null);
    if (!known.length) return this.chart.title;
    return t("chart.spoken", { title: this.chart.title, last: this.format(known[known.length - 1]), low: this.format(known.reduce((a, b) => Math.min(a, b))), high: this.format(known.reduce((a, b) => Math.max(a, b))), n: known.length });
  }

  resize() {
    if (this.drawn) this.draw();
  }

  async rows() {
    const exact = await this.context.exact(this.chart.keys);
    return joinByStep(Object.entries(exact).map(([key, series]) => [this.columnOf(key), series]));
  }

  columnOf(key) {
    return this.context.columnOf?.(key) ?? key;
  }

  columns() {
    return this.chart.keys.filter((key) => !this.context.isHidden?.(key)).map((key) => this.columnOf(key));
  }

  async showTable() {
    const all = await this.rows();
    const rows = all.slice(-TABLE_ROWS).reverse();
    const columns = ["step", ...this.columns()];
    const names = new Map(this.chart.keys.map((key) => [this.columnOf(key), this.nameOf(key)]));
    const cell = (row, name) => h("td", {}, name === "step" ? f.integer(row.step) : row[name] === undefined || row[name] === "" ? f.DASH : typeof row[name] === "number" ? String(row[name]) : row[name]);
    await dialog({
      title: this.chart.title, cancel: t("close"), actions: [],
      body: h("div", { class: "td-table-box td-table-scroll", tabindex: 0 }, h("table", { class: "td-table" }, h("thead", {}, h("tr", {}, columns.map((name) => h("th", { scope: "col" }, name === "step" ? t("axis.step") : names.get(name))))), h("tbody", {}, rows.map((row) => h("tr", {}, columns.map((name) => cell(row, name))))))),
    });
  }

  async saveCsv() {
    save(`${this.fileName()}.csv`, new Blob([toCsv(await this.rows(), ["step", ...this.columns()])], { type: "text/csv" }));
  }

  async saveJson() {
    save(`${this.fileName()}.json`, new Blob([JSON.stringify(await this.rows())], { type: "application/json" }));
  }

  async savePng() {
    const layout = { ...this.layout(), title: { text: escapePlotly(`${this.context.name()} · ${this.chart.title}`), font: { size: 14 } }, margin: { l: 60, r: 20, t: 48, b: 48 } };
    const url = await window.Plotly.toImage({ data: this.traces(), layout }, { format: "png", width: 1200, height: 600, scale: 2 });
    save(`${this.fileName()}.png`, await (await fetch(url)).blob());
  }

  fileName() {
    return `${this.context.name()}-${this.chart.id}`.replace(/[^\p{L}\p{N}._-]+/gu, "-");
  }

  close() {
    if (this.drawn) window.Plotly?.purge(this.plot);
  }
}

const RULED = new Set(["resume", "restart", "stop"]);
const ALARM_HEIGHT = 0.95;
const MARKER_SYMBOLS = { alarm: "triangle-down", checkpoint: "triangle-up", evaluation: "diamond", resume: "triangle-right", restart: "triangle-left", stop: "square", save: "triangle-up-open", end: "circle" };
const MARKER_COLOURS = { checkpoint: "ok", evaluation: "c2", resume: "accent", restart: "accent", stop: "warn", save: "muted", end: "muted" };

/** Around a value that never changes: the chart library would show -1 to 1, whatever its size. */
function flatRange(values) {
  const known = values.filter((value) => value !== null && Number.isFinite(value));
  if (!known.length || known.some((value) => value !== known[0])) return null;
  const half = Math.abs(known[0]) / 2 || 1;
  return [known[0] - half, known[0] + half];
}

function markerColour(marker) {
  if (marker.kind === "alarm") return marker.severity === "error" ? "bad" : "warn-fill";
  return MARKER_COLOURS[marker.kind] ?? "muted";
}

function markerText(marker) {
  return markerLines(marker).map(escapePlotly).join("<br>");
}

function markerLines(marker) {
  if (marker.kind === "alarm") return marker.lines;
  return [t(`marker.${marker.kind}`, { step: marker.step, text: marker.text ?? "", time: f.duration(marker.seconds) })];
}

function oddText({ word, from, to }, name) {
  const params = { name, word: f.number(word), from: f.integer(from), to: f.integer(to) };
  return t(from === to ? "marker.odd" : "marker.odd_span", params);
}

/** Ticks people can read: 1e-4 instead of 0.0001 for small numbers, GiB for memory, percent for shares. */
function tickStyle(format, values, log) {
  if (format === "share") return { tickformat: ".0%" };
  if (format === "bytes") return byteTicks(values);
  const size = values.reduce((most, value) => (value === null ? most : Math.max(most, Math.abs(value))), 0);
  if (size > 0 && size < 1e-2) return { tickformat: ".1~e" };
  return log ? { tickformat: "~g", dtick: "D2", nticks: 8 } : { exponentformat: "B", separatethousands: true };
}

function byteTicks(values) {
  const most = values.reduce((largest, value) => (value === null ? largest : Math.max(largest, value)), 0);
  const unit = 2 ** Math.max(0, Math.floor(Math.log2(most / 4 || 1)));
  const ticks = Array.from({ length: Math.ceil(most / unit) + 1 }, (_, i) => i * unit);
  return { tickvals: ticks, ticktext: ticks.map((value) => f.bytes(value)) };
}

/** Plotly reads some markup in texts: data is shown literally. */
function escapePlotly(text) {
  return String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

/** A small menu under a button; Escape and a click elsewhere close it. */
function menu(label, items) {
  const node = h("details", { class: "td-menu" }, h("summary", { class: "td-icon-button", "aria-label": label, title: label }, icon("dots")),
    h("div", { class: "td-menu-items" }, items.map(([text, iconName, run]) => button(text, { kind: "quiet", iconName, onclick: () => {
      node.open = false;
      run();
    } }))));
  const shut = (event) => {
    if (!node.contains(event.target)) node.open = false;
  };
  node.addEventListener("toggle", () => (node.open ? document.addEventListener("pointerdown", shut) : document.removeEventListener("pointerdown", shut)));
  node.addEventListener("keydown", (event) => event.key === "Escape" && (node.open = false));
  return node;
}
