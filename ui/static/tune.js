// Turns a tuning search into its page: what it measures now, the table so far, the best settings and one click to launch them.

import { href, navigate } from "./app.js";
import { get, post } from "./api.js";
import { h, icon, keyed, replace, setAttr, setClass, setText, show } from "./dom.js";
import * as f from "./format.js";
import { t, tn } from "./text.js";
import { busyWhile, button, codeBlock, emptyNote, linkButton, problemNote, progressBar, skeleton, updateProgress } from "./widgets.js";

const POLL_MS = 1_500;
const ICONS = { running: "running", finished: "succeeded", stopped: "cancelled", failed: "failed" };
const PILLS = { running: "running", finished: "succeeded", stopped: "cancelled", failed: "failed" };
const COLUMNS = ["settings", "rate", "samples", "batch", "memory", "mfu", "energy", "estimate"];

// Columns that some hosts have nothing for.
const OPTIONAL = [["memory", "peak_bytes"], ["mfu", "mfu"], ["energy", "joules_per_token"]];

const tuningPath = (id, rest = "") => `/api/tunings/${encodeURIComponent(id)}${rest}`;

export function open(main, query) {
  const id = query.get("id");
  return id ? openSearch(main, id) : openList(main);
}

// ---- All searches -------------------------------------------------------------------------------------------------------

function openList(main) {
  const body = h("tbody", {});
  const table = h("table", { class: "td-table" }, h("caption", { class: "td-offscreen" }, t("tune.list")),
    h("thead", {}, h("tr", {}, ["name", "state", "gain", "best", "created"].map((name) => h("th", { scope: "col" }, t(`tune.list.${name}`))))), body);
  const note = h("div", {}, skeleton(4));
  const page = { closed: false };
  main.append(h("div", { class: "td-page" }, h("div", { class: "td-page-head" }, h("h1", {}, t("tune.list"))), h("p", { class: "td-lead" }, t("tune.lead")),
    h("div", { class: "td-table-box td-cards-table" }, table), note));
  const load = async () => {
    try {
      const { tunings } = await get("/api/tunings");
      if (page.closed) return;
      show(table, tunings.length > 0);
      keyed(body, tunings, (search) => search.id, () => h("tr", {}), drawListRow);
      replace(note, tunings.length ? [] : emptyNote(t("tune.none"), t("tune.none.help"), linkButton(t("nav.new"), href("new"), { kind: "primary", iconName: "plus" })));
    } catch (error) {
      if (!page.closed) replace(note, problemNote(error.message, load));
    }
  };
  load();
  const clock = setInterval(load, 5_000);
  return { title: t("tune.list"), close() { page.closed = true; clearInterval(clock); } };
}

function drawListRow(node, search) {
  const cell = (name, ...content) => h("td", { dataset: { label: t(`tune.list.${name}`) } }, content);
  replace(node, cell("name", h("a", { href: href("tune", { id: search.id }) }, search.name)), cell("state", pill(search.state)),
    cell("gain", gainText(search.gain)), cell("best", search.best || f.DASH), cell("created", f.moment(search.created_at)));
}

function pill(state) {
  return h("span", { class: `td-pill td-state-${PILLS[state] ?? "queued"}` }, icon(ICONS[state] ?? "queued"), h("span", {}, t(`tune.state.${state}`)));
}

const gainText = (gain) => (Number.isFinite(gain) ? t("tune.times", { n: f.number(gain, 3) }) : f.DASH);

// ---- One search ---------------------------------------------------------------------------------------------------------

function openSearch(main, id) {
  const page = build(main, id);
  const load = async () => {
    try {
      const { tuning } = await get(tuningPath(id));
      if (page.closed) return;
      page.search = tuning;
      draw(page);
      if (tuning.state === "running") page.again = setTimeout(load, POLL_MS);
    } catch (error) {
      if (page.closed) return;
      if (error.status === 404) page.whole.remove(); // its empty heading as well
      replace(page.wait, error.status === 404
        ? h("div", { class: "td-empty" }, h("h1", {}, t("tune.missing")), h("p", {}, t("tune.missing.help", { id })), linkButton(t("tune.list"), href("tune")))
        : problemNote(error.message, load));
      show(page.wait, true);
      if (error.status !== 404) page.again = setTimeout(load, 5_000);
    }
  };
  page.load = load;
  load();
  const clock = setInterval(() => page.search && drawTime(page), 1000);
  return {
    title: t("tune.title"),
    update: (next) => (next.get("id") ?? "") === id,
    close() {
      page.closed = true;
      clearTimeout(page.again);
      clearInterval(clock);
    },
  };
}

function build(main, id) {
  const page = { id, closed: false, search: null };
  page.wait = h("div", { class: "td-wait" }, skeleton(6));
  page.title = h("h1", {});
  page.pill = h("span", {});
  page.now = h("p", { class: "td-muted", role: "status" });
  page.bar = progressBar(t("tune.budget"));
  page.time = h("span", { class: "td-muted" });
  page.stop = button(t("tune.stop"), { kind: "danger", iconName: "stop" });
  page.launch = button(t("tune.launch"), { kind: "primary", iconName: "running" });
  page.repeat = button(t("tune.again"), { iconName: "resume" });
  page.edit = linkButton(t("tune.edit"), href("new", { tuned: id }), { iconName: "edit" });
  page.ending = h("div", {});
  page.tiles = h("dl", { class: "td-tiles td-tune-tiles" });
  page.effect = h("div", {});
  page.body = h("tbody", {});
  page.table = h("table", { class: "td-table td-tune-table" }, h("caption", { class: "td-offscreen" }, t("tune.table")),
    h("thead", {}, h("tr", {}, COLUMNS.map((name) => h("th", { scope: "col", class: `td-tune-${name}`, title: t(`tune.column.${name}.help`) }, t(`tune.column.${name}`))))), page.body);
  page.left = h("p", { class: "td-muted" });
  page.changes = h("div", {});
  page.jobs = h("p", { class: "td-muted td-tune-jobs" });
  page.whole = h("div", { hidden: true },
    h("div", { class: "td-run-top" }, h("div", { class: "td-run-title" }, h("div", { class: "td-run-name td-tune-name" }, page.title, page.pill), page.now),
      h("div", { class: "td-actions" }, page.launch, page.edit, page.repeat, page.stop)),
    h("div", { class: "td-tune-progress" }, page.bar, page.time), page.jobs, page.ending, page.tiles, page.effect,
    h("section", { class: "td-section" }, h("h2", {}, t("tune.table")), h("div", { class: "td-table-box td-cards-table" }, page.table), page.left), page.changes);
  main.append(h("div", { class: "td-page td-tune" },
    h("nav", { class: "td-crumbs", "aria-label": t("nav.crumbs") }, h("a", { href: href("tune") }, icon("list"), h("span", {}, t("tune.list")))), page.wait, page.whole));
  page.stop.addEventListener("click", busyWhile(page.stop, async () => {
    await post(tuningPath(id, "/stop"));
    clearTimeout(page.again);
    await page.load();
  }));
  page.repeat.addEventListener("click", busyWhile(page.repeat, async () => {
    const { tuning } = await post(tuningPath(id, "/again"));
    navigate(href("tune", { id: tuning.id }));
  }));
  page.launch.addEventListener("click", busyWhile(page.launch, async () => {
    const { job } = await post(tuningPath(id, "/launch"));
    navigate(href("run", { id: job.id }));
  }));
  return page;
}

function draw(page) {
  const search = page.search;
  const running = search.state === "running";
  show(page.wait, false);
  show(page.whole, true);
  setText(page.title, t("tune.of", { name: search.name }));
  if (page.pill.dataset.state !== search.state) {
    page.pill.dataset.state = search.state;
    replace(page.pill, pill(search.state));
  }
  show(page.stop, running);
  show(page.repeat, !running);
  const ready = !running && Boolean(search.best); // a search that died keeps what it measured
  show(page.launch, ready);
  show(page.edit, ready);
  setText(page.launch.querySelector("span"), t(search.rows.some((row) => row.best && row.base) ? "tune.launch.same" : "tune.launch"));
  setText(page.now, running ? t(`tune.event.${search.event}`, { what: search.now }) : "");
  show(page.now, running);
  drawTime(page);
  drawEnding(page, search);
  drawTiles(page, search);
  drawEffect(page, search);
  drawRows(page, search);
  drawChanges(page, search);
}

function drawTime(page) {
  const { state, seconds, budget_seconds: budget, updated_at: at, event } = page.search;
  const running = state === "running";
  const spent = running && event !== "preparing" && event !== "job" ? seconds + Math.max(0, Date.now() / 1000 - at) : seconds;
  updateProgress(page.bar, running ? Math.min(100, (100 * spent) / budget) : 100, { active: running, state: PILLS[state] });
  setText(page.time, running ? t("tune.spent", { spent: f.duration(Math.min(spent, budget)), budget: f.duration(budget) }) : t("tune.took", { time: f.duration(seconds) }));
}

function drawEnding(page, search) {
  const bad = search.state === "failed";
  const words = search.message && search.state !== "finished" && (bad ? search.message : t("tune.stopped.help"));
  replace(page.ending, words && h("div", { class: `td-note td-note-${bad ? "bad" : "warn"}`, role: bad ? "alert" : "status" }, icon(bad ? "failed" : "cancelled"), h("div", {}, h("p", {}, words))));
}

function drawTiles(page, search) {
  const best = search.rows.find((row) => row.best);
  const base = search.rows.find((row) => row.base);
  show(page.tiles, Boolean(best));
  if (!best) return;
  const tile = (label, value, hint = "") => h("div", { class: "td-tile" }, h("dt", {}, label), h("dd", {}, value), h("dd", { class: "td-tile-hint", title: hint }, hint));
  replace(page.tiles,
    tile(t("tune.tile.gain"), gainText(search.gain), t("tune.tile.gain.help")),
    tile(t("tune.tile.best"), f.compact(best.tokens_per_second), best.label),
    tile(t("tune.tile.base"), f.compact(base?.tokens_per_second), base?.label ?? ""),
    Number.isFinite(best.peak_bytes) && tile(t("tune.tile.memory"), f.bytes(best.peak_bytes), base ? t("tune.tile.before", { value: f.bytes(base.peak_bytes) }) : ""),
    Number.isFinite(best.joules_per_token) && tile(t("tune.tile.energy"), energy(best.joules_per_token), base ? t("tune.tile.before", { value: energy(base.joules_per_token) }) : ""),
    Number.isFinite(best.mfu) && tile(t("tune.tile.mfu"), f.percent(toPercent(best.mfu), 1), base ? t("tune.tile.before", { value: f.percent(toPercent(base.mfu), 1) }) : ""));
}

const toPercent = (share) => (Number.isFinite(share) ? 100 * share : null);
const energy = (joules) => (Number.isFinite(joules) ? `${f.number(joules, 3)} J` : f.DASH);

/** What the comparison holds fixed, and what the best settings change in the training itself: never silent. */
function drawEffect(page, search) {
  const { base_rows_per_step: before, best_rows_per_step: after } = search;
  show(page.effect, Boolean(search.best) && Number.isFinite(before) && Number.isFinite(after));
  if (page.effect.hidden) return;
  replace(page.effect, h("div", { class: "td-note td-note-info" }, icon("info"), h("div", {},
    h("p", {}, t("tune.same_batch", { before: f.number(before, 3), after: f.number(after, 3) })), search.packs_rows && h("p", {}, t("tune.packs")),
    search.lengths_estimate && h("p", {}, t("tune.lengths_estimate")))));
}

function drawRows(page, search) {
  const most = Math.max(...search.rows.map((row) => row.tokens_per_second ?? 0), 1);
  keyed(page.body, search.rows, (row) => row.label, () => h("tr", {}), (node, row) => drawRow(node, row, most));
  show(page.table, search.rows.length > 0);
  const open = search.candidates - search.rows.length;
  const parts = [open > 0 && tn(search.state === "finished" ? "tune.not_tried" : "tune.left", open), search.excluded > 0 && tn("tune.excluded", search.excluded)].filter(Boolean);
  const running = search.state === "running";
  setText(page.left, !search.rows.length ? (running ? t("tune.first") : "") : running ? (open > 0 ? tn("tune.open", open) : "") : parts.join(" "));
  for (const [name, field] of OPTIONAL) page.table.classList.toggle(`td-tune-no-${name}`, !search.rows.some((row) => Number.isFinite(row[field])));
}

function drawRow(node, row, most) {
  const key = JSON.stringify([row, most]);
  if (node.dataset.shown === key) return;
  node.dataset.shown = key;
  const cell = (name, ...content) => h("td", { class: `td-tune-${name}`, dataset: { label: t(`tune.column.${name}`) } }, content);
  setClass(node, row.best ? "td-tune-best" : "");
  const rate = Number.isFinite(row.tokens_per_second);
  const bar = h("span", { class: "td-tune-bar" }, h("i", {}));
  bar.firstChild.style.width = `${rate ? (100 * row.tokens_per_second) / most : 0}%`;
  const spread = Number.isFinite(row.spread) ? t("tune.spread", { value: f.percent(100 * row.spread) }) : "";
  replace(node,
    cell("settings", row.job ? h("a", { class: "td-tune-label", href: href("run", { id: row.job }), title: t("tune.open_job") }, row.label) : h("span", { class: "td-tune-label" }, row.label), row.best && h("span", { class: "td-tag td-tune-mark" }, t("tune.mark.best")), row.base && h("span", { class: "td-tag" }, t("tune.mark.base"))),
    cell("rate", rate ? [h("span", { class: "td-tune-rate" }, h("strong", {}, f.integer(row.tokens_per_second)), h("span", { class: "td-muted" }, spread)), bar] : outcome(row)),
    cell("samples", f.number(row.samples_per_second, 3)), cell("batch", f.number(row.rows_per_step, 3)), cell("memory", f.bytes(row.peak_bytes)),
    cell("mfu", f.percent(toPercent(row.mfu), 1)), cell("energy", energy(row.joules_per_token), Number.isFinite(row.energy_spread) && h("span", { class: "td-muted" }, ` ± ${f.percent(100 * row.energy_spread)}`)), cell("estimate", f.integer(row.estimate)));
  setAttr(node, "data-outcome", row.outcome);
}

function outcome(row) {
  return h("span", { class: "td-tune-outcome", title: row.error }, icon(row.outcome === "oom" ? "warning" : "failed"), h("span", {}, t(`tune.outcome.${row.outcome}`)),
    row.error && h("details", {}, h("summary", {}, t("tune.why")), h("code", {}, row.error)));
}

function drawChanges(page, search) {
  const changes = Object.entries(search.best_changes ?? {});
  const wanted = search.state !== "running" && changes.length > 0;
  const key = wanted ? JSON.stringify(changes) : "";
  if (page.changes.dataset.shown !== key) {
    page.changes.dataset.shown = key;
    replace(page.changes, wanted && h("section", { class: "td-section" }, h("h2", {}, t("tune.changes")), h("p", { class: "td-muted" }, t("tune.changes.help")),
      codeBlock(changes.map(([name, value]) => `${name}: ${value}`).join("\n"), { label: "YAML" })));
  }
  show(page.jobs, search.jobs.length > 0);
  replace(page.jobs, search.jobs.length > 0 && [t(search.state === "running" ? "tune.jobs.now" : "tune.jobs"), " ", search.jobs.map((job, at) => [at > 0 && " · ", h("a", { href: href("run", { id: job }) }, job)])]);
}
