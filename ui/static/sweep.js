// Turns a sweep into its page: the runs beside each other, best first, as a table and as parallel coordinates; or starts one.

import { href, navigate } from "./app.js";
import { get, post } from "./api.js";
import { h, icon, keyed, replace, setClass, setText, show } from "./dom.js";
import * as f from "./format.js";
import { isFinal } from "./jobs.js";
import { t, tn } from "./text.js";
import { busyWhile, button, dialog, emptyNote, linkButton, problemNote, skeleton, statePill } from "./widgets.js";

const POLL_MS = 3_000;
const SVG = "http://www.w3.org/2000/svg";

const sweepPath = (id, rest = "") => `/api/sweeps/${encodeURIComponent(id)}${rest}`;

export function open(main, query) {
  const id = query.get("id");
  return id ? openSweep(main, id) : openList(main);
}

// ---- All sweeps ---------------------------------------------------------------------------------------------------------

function openList(main) {
  const body = h("tbody", {});
  const columns = ["name", "settings", "runs", "best", "created"];
  const table = h("table", { class: "td-table" }, h("caption", { class: "td-offscreen" }, t("sweep.list")), h("thead", {}, h("tr", {}, columns.map((name) => h("th", { scope: "col" }, t(`sweep.list.${name}`))))), body);
  const note = h("div", {}, skeleton(4));
  const page = { closed: false };
  main.append(h("div", { class: "td-page" }, h("div", { class: "td-page-head" }, h("h1", {}, t("sweep.list"))), h("p", { class: "td-lead" }, t("sweep.lead")), h("div", { class: "td-table-box td-cards-table" }, table), note));
  const load = async () => {
    try {
      const { sweeps } = await get("/api/sweeps");
      if (page.closed) return;
      show(table, sweeps.length > 0);
      keyed(body, sweeps, (view) => view.sweep.id, () => h("tr", {}), (node, view) => {
        const cell = (name, ...content) => h("td", { dataset: { label: t(`sweep.list.${name}`) } }, content);
        const best = view.rows.find((row) => row.best);
        replace(node, cell("name", h("a", { href: href("sweep", { id: view.sweep.id }) }, view.sweep.name)), cell("settings", view.sweep.keys.join(", ")),
          cell("runs", runsText(view)), cell("best", best ? `${valuesText(best, view.sweep.keys)} · ${f.loss(figure(best, view.metric))}` : f.DASH), cell("created", f.moment(view.sweep.created_at)));
      });
      replace(note, sweeps.length ? [] : emptyNote(t("sweep.none"), t("sweep.none.help"), linkButton(t("nav.runs"), href("runs"), { iconName: "list" })));
    } catch (error) {
      if (!page.closed) replace(note, problemNote(error.message, load));
    }
  };
  load();
  const clock = setInterval(load, 10_000);
  return { title: t("sweep.list"), close() { page.closed = true; clearInterval(clock); } };
}

const runsText = (view) => [
  view.active ? t("sweep.runs.active", { active: view.active, all: view.rows.length }) : tn("sweep.runs", view.rows.length),
  view.waiting > 0 && tn(view.halted ? "sweep.halted" : "sweep.waiting", view.waiting),
].filter(Boolean).join(" · ");
const valuesText = (row, keys) => keys.map((key) => `${key} ${valueText(row.values[key])}`).join(", ");
const valueText = (value) => (typeof value === "number" ? f.number(value) : value === null || value === undefined ? f.DASH : String(value));
const figure = (row, metric) => (metric === "eval_loss" ? row.best_eval_loss : row.loss);

// ---- One sweep ----------------------------------------------------------------------------------------------------------

function openSweep(main, id) {
  const page = { closed: false, id };
  page.wait = h("div", { class: "td-wait" }, skeleton(6));
  page.title = h("h1", {});
  page.facts = h("p", { class: "td-muted", role: "status" });
  page.sort = { name: "", down: false };
  page.marked = "";
  page.compare = linkButton(t("sweep.compare"), href("compare"), { iconName: "table" });
  page.best = linkButton(t("sweep.best"), href("new"), { iconName: "edit" });
  page.launch = button(t("sweep.launch"), { kind: "primary", iconName: "running" });
  page.launch.addEventListener("click", busyWhile(page.launch, async () => {
    const { job } = await post(sweepPath(id, "/launch"));
    navigate(href("run", { id: job.id }));
  }));
  page.resume = button(t("sweep.resume"), { iconName: "resume", onclick: () => resumeDialog(page) });
  page.stop = button(t("sweep.stop"), { kind: "danger", iconName: "stop", onclick: () => stopDialog(page) });
  page.chart = h("div", { class: "td-par" });
  page.head = h("tr", {});
  page.body = h("tbody", {});
  page.whole = h("div", { hidden: true },
    h("div", { class: "td-run-top" }, h("div", { class: "td-run-title" }, page.title, page.facts), h("div", { class: "td-actions" }, page.launch, page.best, page.compare, page.resume, page.stop)),
    h("section", { class: "td-section" }, h("h2", {}, t("sweep.chart")), page.chart),
    h("section", { class: "td-section" }, h("h2", {}, t("sweep.table")), h("div", { class: "td-table-box td-cards-table" }, h("table", { class: "td-table td-sweep-table" }, h("caption", { class: "td-offscreen" }, t("sweep.table")), h("thead", {}, page.head), page.body))));
  main.append(h("div", { class: "td-page" }, h("nav", { class: "td-crumbs", "aria-label": t("nav.crumbs") }, h("a", { href: href("sweep") }, icon("list"), h("span", {}, t("sweep.list")))), page.wait, page.whole));
  page.load = async () => {
    clearTimeout(page.again);
    clearTimeout(page.again); // asked for by a button: one round of questions is enough
    try {
      const view = await get(sweepPath(id));
      if (page.closed) return;
      page.view = view;
      draw(page, view);
      if (view.active || (view.waiting && !view.halted)) page.again = setTimeout(page.load, POLL_MS);
    } catch (error) {
      if (page.closed) return;
      show(page.wait, true);
      if (error.status === 404) page.whole.remove(); // its empty heading as well
      replace(page.wait, error.status === 404 ? h("div", { class: "td-empty" }, h("h1", {}, t("sweep.missing")), h("p", {}, t("sweep.missing.help", { id })), linkButton(t("sweep.list"), href("sweep"))) : problemNote(error.message, page.load));
      if (error.status !== 404) page.again = setTimeout(page.load, 5_000);
    }
  };
  page.load();
  const resized = () => page.view && drawParallel(page, page.view, page.view.metric);
  window.addEventListener("resize", resized);
  return {
    title: t("sweep.title"),
    update: (next) => (next.get("id") ?? "") === id,
    close() {
      page.closed = true;
      clearTimeout(page.again);
      window.removeEventListener("resize", resized);
    },
  };
}

function stopDialog(page) {
  return dialog({
    title: t("sweep.stop.title"), body: h("p", {}, t("sweep.stop.help")), cancel: t("stop.keep_running"),
    actions: [{ label: t("sweep.stop"), kind: "danger", iconName: "stop", run: async () => { await post(sweepPath(page.id, "/stop")); page.load(); } }],
  });
}

/** Failed runs come back only when asked to: their fault may come again. */
function resumeDialog(page) {
  const { to_resume: ready, failed, waiting } = page.view;
  const also = h("input", { type: "checkbox", checked: ready + waiting === 0 });
  return dialog({
    title: t("sweep.resume.title"),
    body: [h("p", {}, tn("sweep.resume.help", ready + waiting)), failed > 0 && h("label", { class: "td-check" }, also, h("span", {}, tn("sweep.resume.failed", failed)))],
    actions: [{ label: t("sweep.resume"), kind: "primary", iconName: "resume", run: async () => { await post(sweepPath(page.id, "/resume"), { failed: failed > 0 && also.checked }); page.load(); } }],
  });
}

function draw(page, view) {
  const { sweep, rows, metric } = view;
  show(page.wait, false);
  show(page.whole, true);
  setText(page.title, t("sweep.of", { name: sweep.name }));
  setText(page.facts, [runsText(view), sweep.early_stop && t("sweep.early")].filter(Boolean).join(" · "));
  show(page.stop, view.active > 0 || (view.waiting > 0 && !view.halted));
  show(page.resume, view.to_resume > 0 || view.failed > 0 || (view.waiting > 0 && view.halted));
  const best = rows.find((row) => row.best);
  show(page.compare, rows.some((row) => Number.isFinite(row.loss)));
  page.compare.href = href("compare", { runs: rows.map((row) => row.job).join(",") });
  show(page.launch, Boolean(best) && view.active === 0);
  show(page.best, Boolean(best) && view.active === 0);
  if (best) page.best.href = href("new", { clone: best.job });
  const columns = ["run", "state", ...sweep.keys, "loss", "eval_loss", "tokens", "time"];
  drawHead(page, columns, sweep.keys);
  keyed(page.body, sorted(rows, page.sort, sweep.keys), (row) => row.job, () => h("tr", {}), (node, row) => {
    setClass(node, row.best ? "td-tune-best" : "");
    const cell = (name, ...content) => h("td", { dataset: { label: sweep.keys.includes(name) ? name : t(`sweep.column.${name}`) } }, content);
    replace(node, cell("run", h("a", { href: href("run", { id: row.job }) }, row.name), row.best && h("span", { class: "td-tag td-tune-mark" }, t("tune.mark.best")), Number.isFinite(row.resumed_from) && h("span", { class: "td-tag" }, t("sweep.resumed", { step: f.integer(row.resumed_from) }))),
      cell("state", statePill(row.state), row.stopped_early && h("span", { class: "td-tag" }, t("sweep.stopped_early")), !isFinal(row) && row.max_steps > 0 && h("span", { class: "td-muted td-sweep-step" }, t("job.steps", { step: f.integer(row.step ?? 0), all: f.integer(row.max_steps) }))),
      sweep.keys.map((key) => cell(key, valueText(row.values[key]))), cell("loss", f.loss(row.loss)), cell("eval_loss", f.loss(row.best_eval_loss)), cell("tokens", f.compact(row.tokens_per_second)), cell("time", f.duration(row.seconds)));
    node.onmouseenter = () => mark(page, row.job);
    node.onmouseleave = () => mark(page, "");
  });
  drawParallel(page, view, metric);
}

/** A click sorts by a column, one more turns it round, a third goes back to the order of the server: best first. */
function drawHead(page, columns, keys) {
  const { name: by, down } = page.sort;
  const shown = JSON.stringify([columns, by, down]);
  if (page.head.dataset.shown === shown) return;
  page.head.dataset.shown = shown;
  const flip = (name) => {
    page.sort = by !== name ? { name, down: false } : down ? { name: "", down: false } : { name, down: true };
    draw(page, page.view);
    page.head.querySelector(`[data-sort="${CSS.escape(name)}"]`)?.focus();
  };
  replace(page.head, columns.map((name) => h("th", { scope: "col", "aria-sort": by === name ? (down ? "descending" : "ascending") : null },
    h("button", { type: "button", class: "td-sort", dataset: { sort: name }, onclick: () => flip(name) }, keys.includes(name) ? h("code", {}, name) : t(`sweep.column.${name}`), icon("chevron")))));
}

const FIELDS = { run: "name", state: "state", loss: "loss", eval_loss: "best_eval_loss", tokens: "tokens_per_second", time: "seconds" };

/** What is not known comes last, whichever way round. */
function sorted(rows, { name, down }, keys) {
  if (!name) return rows;
  const value = (row) => (keys.includes(name) ? row.values[name] : row[FIELDS[name]]);
  const known = (item) => item !== null && item !== undefined && !(typeof item === "number" && Number.isNaN(item));
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true }));
  return [...rows].sort((a, b) => (known(value(b)) - known(value(a))) || (known(value(a)) ? (down ? -1 : 1) * compare(value(a), value(b)) : 0));
}

function mark(page, job) {
  page.marked = job;
  for (const line of page.chart.querySelectorAll("path[data-job]")) line.classList.toggle("td-par-here", line.dataset.job === job);
  page.chart.classList.toggle("td-par-marked", Boolean(job));
}

// ---- Parallel coordinates -----------------------------------------------------------------------------------------------

const HEIGHT = 260;
const TOP = 34;
const BOTTOM = 24;
const LEAST_TICK_GAP = 14;

function svg(tag, attributes = {}, text = "") {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text) node.textContent = text;
  return node;
}

/** One axis: where a value stands (0 at the bottom, 1 at the top) and what is written beside it. */
function axisOf(label, values, code) {
  const known = values.filter((value) => value !== null && value !== undefined);
  const numbers = known.length > 0 && known.every((value) => typeof value === "number");
  const spread = numbers ? [Math.min(...known), Math.max(...known)] : null;
  const log = numbers && spread[0] > 0 && spread[1] / spread[0] >= 20;
  const scale = (value) => (log ? Math.log(value) : value);
  const names = numbers ? [] : [...new Set(known.map(String))].sort();
  const place = (value) => {
    if (value === null || value === undefined) return null;
    if (numbers) return spread[0] === spread[1] ? 0.5 : (scale(value) - scale(spread[0])) / (scale(spread[1]) - scale(spread[0]));
    return names.length < 2 ? 0.5 : names.indexOf(String(value)) / (names.length - 1);
  };
  const few = numbers ? [...new Set(known)] : [];
  const ticks = numbers ? (few.length <= 6 ? few : spread).map((value) => [place(value), f.number(value)]) : names.map((name) => [place(name), name]);
  return { label, code, place, ticks };
}

/** Ticks that can be read: both ends, and of the others those far enough from the ones before. */
function apart(ticks, y) {
  const ends = ticks.filter(([place]) => place === 0 || place === 1);
  return ticks.filter((tick) => !ends.includes(tick)).reduce((kept, tick) => (kept.every(([place]) => Math.abs(y(place) - y(tick[0])) >= LEAST_TICK_GAP) ? [...kept, tick] : kept), ends);
}

function drawParallel(page, view, metric) {
  const rows = view.rows.filter((row) => Number.isFinite(figure(row, metric)));
  const key = JSON.stringify([view.rows, page.chart.clientWidth]);
  if (page.chart.dataset.shown === key) return;
  page.chart.dataset.shown = key;
  if (!rows.length) {
    replace(page.chart, h("p", { class: "td-muted" }, t("sweep.chart.none")));
    return;
  }
  const axes = view.sweep.keys.map((name) => axisOf(name, view.rows.map((row) => row.values[name]), true));
  axes.push(axisOf(t(`sweep.column.${metric}`), rows.map((row) => figure(row, metric)), false));
  const width = Math.max(320, page.chart.clientWidth || 900);
  const left = 70;
  const step = axes.length > 1 ? (width - left - 90) / (axes.length - 1) : 0;
  const x = (at) => left + at * step;
  const y = (place) => HEIGHT - BOTTOM - place * (HEIGHT - TOP - BOTTOM);
  const node = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", "aria-label": t("sweep.chart") });
  const losses = rows.map((row) => figure(row, metric));
  const [low, high] = [Math.min(...losses), Math.max(...losses)];
  for (const row of [...rows].reverse()) {
    const points = axes.map((axis, at) => [x(at), axis.place(at < axes.length - 1 ? row.values[view.sweep.keys[at]] : figure(row, metric))]);
    const path = points.filter(([, place]) => place !== null).map(([px, place], at) => `${at ? "L" : "M"}${px.toFixed(1)} ${y(place).toFixed(1)}`).join("");
    const share = high > low ? (figure(row, metric) - low) / (high - low) : 0;
    const line = svg("path", { d: path, class: row.best ? "td-par-line td-par-best" : "td-par-line", style: `--share: ${(100 * (1 - share)).toFixed(0)}%` });
    line.dataset.job = row.job;
    line.append(svg("title", {}, `${row.name}: ${valuesText(row, view.sweep.keys)}, ${f.loss(figure(row, metric))}`));
    node.append(line);
  }
  axes.forEach((axis, at) => {
    node.append(svg("line", { x1: x(at), x2: x(at), y1: TOP, y2: HEIGHT - BOTTOM, class: "td-par-axis" }));
    node.append(svg("text", { x: x(at), y: 14, class: `td-par-label${axis.code ? " td-par-code" : ""}`, "text-anchor": "middle" }, axis.label));
    for (const [place, text] of apart(axis.ticks, y)) node.append(svg("text", { x: x(at) + 7, y: y(place) + 4, class: "td-par-tick" }, text));
  });
  page.chart.replaceChildren(node);
  mark(page, page.marked); // the pointer may still be on a row
}
