// Turns the record inside a report into its page: table, settings, curves, history. It runs without a server and asks for nothing.

import { alarmMarkers, alarmProof, alarmSince, alarmTitle, alertTitle, isAlarm, presentAlarms } from "./alarms.js";
import { singleCharts, styleOf } from "./chart_defs.js";
import { FIGURES, figureText, reasonsOf, settingText, sortRuns } from "./compare_table.js";
import { h, replace, show } from "./dom.js";
import * as f from "./format.js";
import { drawChart } from "./report_chart.js";
import { makeSeries, mapSteps } from "./series.js";
import { has, t, tn, useCatalogue } from "./text.js";

const AXES = { step: null, tokens: "tokens", time: "elapsed_seconds", energy: "energy_kwh" };
const record = JSON.parse(document.getElementById("record").textContent);
useCatalogue(record.lang, record.text);
const { runs, differences, shared, absent, currency } = record.comparison;
const view = { sort: "", order: "asc", axis: "step", smoothing: 50, hidden: new Set(), zoom: null };
const series = Object.fromEntries(runs.map((run) => [run.job.id, Object.fromEntries(Object.entries(record.details[run.job.id].series).map(([key, value]) => [key, makeSeries(value)]))]));
const rows = h("tbody", {});
const charts = h("div", { class: "charts" });
const pictures = new Map();

document.body.append(h("main", {},
  h("h1", {}, record.title),
  h("p", { class: "muted" }, t("report.made", { time: f.exactMoment(record.made_at), version: record.version })),
  absent.length > 0 && h("p", { class: "muted" }, tn("compare.absent", absent.length)),
  h("h2", {}, t("compare.table")), h("div", { class: "box" }, h("table", {}, h("thead", {}, headings()), rows)),
  h("div", { class: "muted" }, reasonsOf(record.comparison).map((text) => h("p", {}, text))),
  runs.length > 1 && settings(), h("h2", {}, t("compare.curves")), toolbar(), charts, runs.map(history)));
drawRows();
drawCharts();
window.addEventListener("resize", () => drawCharts());

function headings() {
  const head = (name, label) => h("th", { scope: "col", class: name === "name" ? "" : "number" }, h("button", { type: "button", onclick: () => {
    Object.assign(view, { sort: name, order: view.sort === name && view.order === "asc" ? "desc" : "asc" });
    drawRows();
  } }, label));
  return h("tr", {}, head("name", t("runs.column.name")), FIGURES.map((name) => head(name, t(`figure.${name}`) + (name === "cost" && currency ? ` (${currency})` : ""))), h("th", { scope: "col" }, t("notes.notes")));
}

function swatch(id) {
  const style = styleOf(runs.findIndex((run) => run.job.id === id));
  return h("i", { class: "swatch", style: { "border-color": `var(--td-${style.colour})`, "border-top-style": { dash: "dashed", dot: "dotted", dashdot: "double" }[style.dash] ?? "solid" } });
}

function drawRows() {
  replace(rows, sortRuns(runs, view).map(({ job, figures }) => h("tr", {},
    h("th", { scope: "row" }, h("div", { class: "run" }, runs.length > 1 && visibility(job), swatch(job.id), h("span", {}, job.name, " ", h("span", { class: "tag" }, t(`state.${job.state}`)), (job.tags ?? []).map((tag) => [" ", h("span", { class: "tag" }, tag)])))),
    FIGURES.map((name) => h("td", { class: `number${figures[name].value === null ? " muted" : ""}`, title: figures[name].value === null ? t(`missing.${figures[name].missing}`) : figures[name].estimate ? t("figure.estimate") : null }, figureText(name, figures[name]))),
    h("td", { class: "muted" }, job.notes))));
}

function visibility(job) {
  const box = h("input", { type: "checkbox", checked: !view.hidden.has(job.id), "aria-label": t("compare.show", { name: job.name }), onchange: () => {
    if (box.checked) view.hidden.delete(job.id);
    else view.hidden.add(job.id);
    drawCharts();
  } });
  return box;
}

function settings() {
  const table = h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, t("compare.setting")), runs.map((run) => h("th", { scope: "col" }, h("span", { class: "run" }, swatch(run.job.id), run.job.name))))),
    h("tbody", {}, differences.map((row) => h("tr", {}, h("th", { scope: "row" }, h("code", {}, row.key)), row.values.map((value) => h("td", { class: value.given ? "" : "muted" }, value.given ? h("code", {}, value.text) : settingText(value)))))));
  return [h("h2", {}, t("compare.settings")), h("p", { class: "muted" }, differences.length ? "" : t("compare.same"), " ", tn("compare.shared", shared)), differences.length > 0 && h("div", { class: "box" }, table)];
}

function toolbar() {
  const known = (axis) => !AXES[axis] || runs.some((run) => series[run.job.id][AXES[axis]]?.x.length);
  const buttons = Object.keys(AXES).map((axis) => h("button", { type: "button", disabled: !known(axis), "aria-pressed": axis === view.axis ? "true" : "false", onclick: () => {
    Object.assign(view, { axis, zoom: null });
    for (const other of buttons) other.setAttribute("aria-pressed", other === buttons[Object.keys(AXES).indexOf(axis)] ? "true" : "false");
    drawCharts();
  } }, t(`axis.${axis}`)));
  const slider = h("input", { type: "range", min: 0, max: 99, value: view.smoothing, oninput: () => {
    view.smoothing = Number(slider.value);
    drawCharts();
  } });
  view.reset = h("button", { type: "button", hidden: true, onclick: () => zoom(null) }, t("chart.reset_zoom"));
  return h("div", { class: "bar" }, buttons, h("label", {}, t("chart.smoothing"), " ", slider), view.reset, h("span", { class: "muted" }, t("report.zoom")));
}

function zoom(range) {
  view.zoom = range;
  show(view.reset, Boolean(range));
  drawCharts();
}

function drawCharts() {
  const keys = [...new Set(runs.flatMap((run) => Object.keys(series[run.job.id])))].filter((key) => key !== AXES.energy);
  for (const chart of singleCharts(keys)) {
    if (!pictures.has(chart.id)) {
      pictures.set(chart.id, h("div", { class: "chart" }));
      charts.append(pictures.get(chart.id));
    }
    drawChart(pictures.get(chart.id), { title: chart.title, lines: linesOf(chart), marks: marksOf(chart.id), smoothing: chart.smooth?.length ? view.smoothing : 0, dots: Boolean(chart.dots?.includes(chart.keys[0])), format: formatOf(chart), range: view.zoom, onZoom: zoom, axisFormat });
  }
}

function linesOf(chart) {
  const [key] = chart.keys;
  const axis = AXES[view.axis];
  return runs.filter((run) => !view.hidden.has(run.job.id)).flatMap((run) => {
    const own = series[run.job.id];
    if (!own[key]?.x.length || (axis && !own[axis]?.x.length)) return [];
    const x = axis ? mapSteps(own[key].x, own[axis]) : own[key].x;
    return [{ name: run.job.name, x, y: own[key].y, style: styleOf(runs.indexOf(run)) }];
  });
}

/** Of one run: where its alarms began. Among several they could not be told apart. */
function marksOf(chart) {
  if (runs.length !== 1) return [];
  const [{ job }] = runs;
  const axis = AXES[view.axis];
  const own = series[job.id];
  return alarmMarkers(record.details[job.id].events).filter((marker) => marker.charts.includes(chart)).map((marker) => ({
    x: axis ? mapSteps([marker.step], own[axis])[0] : marker.step, colour: marker.severity === "error" ? "bad" : "warn", text: marker.lines.join("\n"),
  }));
}

function formatOf(chart) {
  return { loss: f.loss, compact: f.compact, seconds: f.duration, bytes: f.bytes, share: (value) => f.percent(100 * value, 1) }[chart.format] ?? f.number;
}

function axisFormat(value) {
  return view.axis === "time" ? f.duration(value) : view.axis === "energy" ? f.number(value, 3) : f.compact(value);
}

/** What happened in one run, and what it was asked to do. */
function history({ job }) {
  const { events, checkpoints, versions, spec, diagnosis } = record.details[job.id];
  const row = (event) => h("tr", {}, h("td", { class: "muted" }, f.exactMoment(event.at)), h("td", {}, eventTitle(event)), h("td", { class: "muted" }, eventText(event)));
  const alarms = presentAlarms(events);
  return h("section", {}, h("h2", {}, job.name), h("p", { class: "muted" }, [job.id, job.model, job.dataset, job.stage, job.finetuning_type].filter(Boolean).join(" · ")),
    job.message && h("p", { class: "bad" }, job.message),
    diagnosis?.root_cause && h("p", {}, h("strong", {}, diagnosis.title), " ", diagnosis.remedy),
    alarms.length > 0 && h("ul", { class: "alarms" }, alarms.map((alarm) => h("li", {}, h("strong", { class: alarm.severity === "error" ? "bad" : "" }, alarmTitle(alarm)), h("span", { class: "muted" }, ` ${alarmSince(alarm)}. `), alarmProof(alarm)))),
    h("details", {}, h("summary", {}, t("history.events")), h("div", { class: "box" }, h("table", {}, h("tbody", {}, events.map(row))))),
    checkpoints.length > 0 && h("p", { class: "muted" }, `${t("tab.checkpoints")}: ${checkpoints.map((saved) => saved.name).join(", ")}`),
    spec && h("details", {}, h("summary", {}, t("config.spec")), h("div", { class: "box" }, h("pre", {}, spec))),
    Object.keys(versions).length > 0 && h("p", { class: "muted" }, Object.entries(versions).map(([name, version]) => `${name} ${version}`).join(" · ")));
}

function eventTitle(event) {
  if (event.kind === "alert") return alertTitle(event);
  if (event.kind === "state") return t(`state.${event.state}`);
  if (event.kind === "checkpoint") return t("event.checkpoint", { step: f.integer(event.step) });
  return has(`event.${event.kind}`) ? t(`event.${event.kind}`, { how: event.mode ?? "" }) : event.kind;
}

function eventText(event) {
  if (event.kind === "alert") return isAlarm(event) ? alarmProof(event) : "";
  return event.message ?? event.path ?? "";
}
