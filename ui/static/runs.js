// Turns the list of runs into a table that can be searched, filtered and sorted; the view is kept in the address.

import { alarmsOf, drawAlarmLine } from "./alarms.js";
import { href, rememberInAddress } from "./app.js";
import { get } from "./api.js";
import { attachDialog } from "./attach.js";
import { h, icon, keyed, replace, setAttr, setClass, setText, show } from "./dom.js";
import * as f from "./format.js";
import { onState, refreshHost } from "./host.js";
import { cancelDialog, elapsed, endText, isActive, isFinal, jobFacts, jobPercent, moveJob, stepsText, stopDialog, tags } from "./jobs.js";
import { t, tn } from "./text.js";
import { busyWhile, button, emptyNote, iconButton, linkButton, problemNote, progressBar, skeleton, statePill, updatePill, updateProgress } from "./widgets.js";

const PAGE_SIZE = 50;
const TYPING_MS = 250;
const REFRESH_MS = 2_000;
const picked = new Map(); // id -> name of the runs to compare, kept while the person goes through pages and searches
const STATES = ["running", "queued", "succeeded", "failed", "cancelled", "lost"];
const COLUMNS = [["select", ""], ["state", ""], ["name", "name"], ["progress", ""], ["loss", "loss"], ["time", "duration"], ["created", "created"], ["actions", ""]];

export function open(main, query) {
  const page = build(main);
  page.fromAddress(query);
  page.load();
  const stop = onState((state, changed) => {
    page.host = state;
    page.patch(state);
    if (changed.some((key) => ["counts", "queued", "recent"].includes(key))) page.refreshSoon();
  });
  const clock = setInterval(() => page.redraw(), 15_000);
  return {
    title: t("runs.title"),
    update(next) {
      page.fromAddress(next);
      page.load();
      return true;
    },
    close() {
      stop();
      clearInterval(clock);
      page.closed = true;
    },
  };
}

function build(main) {
  const page = { view: {}, runs: [], total: 0, host: null, loadedAt: 0 };
  page.search = h("input", { type: "search", class: "td-input", placeholder: t("runs.search"), "aria-label": t("runs.search") });
  page.chips = h("div", { class: "td-chips", role: "group", "aria-label": t("runs.filter") });
  page.count = h("p", { class: "td-muted", role: "status" });
  page.body = h("tbody", {});
  page.headings = COLUMNS.map(([name, sort]) => heading(page, name, sort));
  page.table = h("table", { class: "td-table td-runs" }, h("caption", { class: "td-offscreen" }, t("runs.title")), h("thead", {}, h("tr", {}, page.headings)), page.body);
  page.note = h("div", {}, skeleton(6));
  page.pager = h("div", { class: "td-pager" });
  page.tagSelect = h("select", { class: "td-input", "aria-label": t("runs.tag"), hidden: true, onchange: () => page.change({ tag: page.tagSelect.value, page: 0 }) });
  page.picked = h("span", { role: "status" });
  page.compareButton = linkButton(t("compare.button"), "", { kind: "primary", iconName: "chart" });
  page.bar = h("div", { class: "td-pick-bar", hidden: true }, page.picked, page.compareButton, button(t("runs.unpick"), { onclick: () => {
    picked.clear();
    page.redraw();
  } }));
  main.append(h("div", { class: "td-page" },
    h("div", { class: "td-page-head" }, h("h1", {}, t("runs.title")), h("div", { class: "td-runs-more" }, button(t("attach.button"), { iconName: "link", onclick: attachDialog }), h("a", { href: href("sweep") }, t("sweep.list")), h("a", { href: href("tune") }, t("tune.list")))),
    h("div", { class: "td-toolbar" }, h("label", { class: "td-search" }, icon("search"), page.search), page.chips, page.tagSelect, page.count),
    h("div", { class: "td-table-box td-cards-table" }, page.table), page.note, page.pager, page.bar));
  page.search.addEventListener("input", () => {
    clearTimeout(page.typing);
    page.typing = setTimeout(() => page.change({ q: page.search.value.trim(), page: 0 }), TYPING_MS);
  });
  return Object.assign(page, methods(page));
}

function methods(page) {
  return {
    fromAddress(query) {
      page.view = { q: query.get("q") ?? "", state: query.get("state") ?? "", tag: query.get("tag") ?? "", sort: query.get("sort") ?? "created", order: query.get("order") ?? "desc", page: Math.max(0, Number(query.get("page") ?? 1) - 1) || 0 };
      if (page.search.value.trim() !== page.view.q) page.search.value = page.view.q;
    },
    change(changes) {
      Object.assign(page.view, changes);
      const { q, state, tag, sort, order, page: at } = page.view;
      rememberInAddress({ q, state, tag, sort: sort === "created" ? "" : sort, order: order === "desc" ? "" : order, page: at ? at + 1 : "" });
      page.load();
    },
    async load() {
      const request = (page.request = Symbol("request")); // a slow answer to an older question is dropped
      const { q, state, tag, sort, order, page: at } = page.view;
      page.drawChips();
      page.drawHeadings();
      page.loadTags();
      try {
        const answer = await get(`/api/runs?${new URLSearchParams({ q, state: state === "running" ? "starting,running,stopping" : state, sort, order, limit: PAGE_SIZE, offset: at * PAGE_SIZE, ...(tag ? { tag } : {}) })}`);
        if (page.request !== request || page.closed) return;
        Object.assign(page, { runs: answer.runs, total: answer.total, loadedAt: Date.now() });
        page.redraw();
      } catch (error) {
        if (page.request === request && !page.closed) replace(page.note, problemNote(error.message, () => page.load()));
      }
    },
    async loadTags() {
      const answer = await get("/api/tags").catch(() => null); // the list works without
      if (!answer || page.closed) return;
      const known = answer.tags.some(({ tag }) => tag === page.view.tag) || !page.view.tag ? answer.tags : [{ tag: page.view.tag, n: 0 }, ...answer.tags];
      replace(page.tagSelect, h("option", { value: "" }, t("runs.tag.all")), known.map(({ tag, n }) => h("option", { value: tag }, `${tag} (${n})`)));
      page.tagSelect.value = page.view.tag;
      show(page.tagSelect, known.length > 0);
    },
    refreshSoon() {
      clearTimeout(page.refresh);
      if (!page.closed) page.refresh = setTimeout(() => page.load(), Math.max(0, page.loadedAt + REFRESH_MS - Date.now()));
    },
    /** Running rows move with the host's own messages, without asking for the list again. */
    patch(state) {
      const fresh = new Map([...(state.running ?? []), ...(state.queued ?? [])].map((job) => [job.id, job]));
      page.runs = page.runs.map((job) => fresh.get(job.id) ?? job);
      if (page.loadedAt) page.redraw();
      page.drawChips();
    },
    redraw() {
      if (page.closed) return;
      show(page.table, page.runs.length > 0);
      keyed(page.body, page.runs, (job) => job.id, () => row(page), (node, job) => node.update(job));
      setText(page.count, page.total ? tn("runs.count", page.total) : "");
      replace(page.note, page.runs.length || !page.loadedAt ? [] : emptyState(page));
      drawPager(page);
      page.drawBar();
    },
    drawBar() {
      show(page.bar, picked.size > 0);
      setText(page.picked, tn("runs.picked", picked.size));
      setAttr(page.compareButton, "href", href("compare", { runs: [...picked.keys()].join(",") }));
    },
    pick(job, on) {
      if (on) picked.set(job.id, job.name);
      else picked.delete(job.id);
      page.drawBar();
    },
    drawChips() {
      const counts = page.host?.counts ?? {};
      const of = (state) => (state === "running" ? (counts.running ?? 0) + (counts.starting ?? 0) + (counts.stopping ?? 0) : counts[state] ?? 0);
      const chips = [{ state: "", n: null }, ...STATES.map((state) => ({ state, n: of(state) })).filter(({ state, n }) => n > 0 || state === page.view.state)];
      keyed(page.chips, chips, (chip) => chip.state || "all", (chip) => {
        const node = h("button", { type: "button", class: "td-chip", onclick: () => page.change({ state: chip.state, page: 0 }) },
          chip.state && icon(chip.state), h("span", {}, chip.state ? t(`state.${chip.state}`) : t("runs.all")), h("span", { class: "td-chip-n" }));
        return node;
      }, (node, chip) => {
        setAttr(node, "aria-pressed", chip.state === page.view.state ? "true" : "false");
        setText(node.lastChild, chip.n ?? "");
      });
    },
    drawHeadings() {
      for (const cell of page.headings) {
        const sort = cell.dataset.sort;
        if (sort) setAttr(cell, "aria-sort", page.view.sort === sort ? (page.view.order === "asc" ? "ascending" : "descending") : null);
      }
    },
  };
}

function heading(page, name, sort) {
  const label = t(`runs.column.${name}`);
  if (!sort) return h("th", { scope: "col", class: `td-col-${name}` }, name === "actions" || name === "select" ? h("span", { class: "td-offscreen" }, label) : label);
  const flip = () => page.change({ sort, order: page.view.sort === sort && page.view.order === "desc" ? "asc" : "desc", page: 0 });
  return h("th", { scope: "col", class: `td-col-${name}`, dataset: { sort } }, h("button", { type: "button", class: "td-sort", onclick: flip }, label, icon("chevron")));
}

function emptyState(page) {
  if (page.view.q || page.view.state || page.view.tag) {
    return emptyNote(t("runs.none_match"), t("runs.none_match.help"), button(t("runs.clear"), { onclick: () => page.change({ q: "", state: "", tag: "", page: 0 }) || (page.search.value = "") }));
  }
  return emptyNote(t("runs.empty"), t("runs.empty.help"), linkButton(t("nav.new"), href("new"), { kind: "primary", iconName: "plus" }));
}

function drawPager(page) {
  const pages = Math.ceil(page.total / PAGE_SIZE);
  show(page.pager, pages > 1);
  if (pages <= 1) return;
  const at = page.view.page;
  replace(page.pager,
    button(t("runs.previous"), { disabled: at === 0, onclick: () => page.change({ page: at - 1 }) }),
    h("span", {}, t("runs.page", { page: at + 1, pages })),
    button(t("runs.next"), { disabled: at >= pages - 1, onclick: () => page.change({ page: at + 1 }) }));
}

function row(page) {
  const cell = (name) => h("td", { class: `td-col-${name}`, dataset: { label: t(`runs.column.${name}`) } });
  const cells = Object.fromEntries(COLUMNS.map(([name]) => [name, cell(name)]));
  const parts = { pill: statePill("queued"), title: h("a", {}), tags: h("span", {}), facts: h("div", { class: "td-muted" }), why: h("div", { class: "td-why" }), alarm: h("div", { hidden: true }), bar: progressBar(t("job.progress")), steps: h("span", { class: "td-muted" }) };
  const box = h("input", { type: "checkbox", class: "td-pick-box" });
  cells.select.append(box);
  cells.state.append(parts.pill);
  cells.name.append(h("div", { class: "td-run-name" }, parts.title, parts.tags), parts.facts, parts.why, parts.alarm);
  cells.progress.append(parts.bar, parts.steps);
  const node = h("tr", {}, Object.values(cells));
  const actions = rowActions(page);
  cells.actions.append(actions.node);
  let shown = null;
  box.addEventListener("change", () => page.pick(shown, box.checked));
  node.update = (job) => {
    shown = job;
    box.checked = picked.has(job.id);
    setAttr(box, "aria-label", t("runs.pick", { name: job.name }));
    updatePill(parts.pill, job.state);
    setText(parts.title, job.name);
    setAttr(parts.title, "href", href("run", { id: job.id }));
    replace(parts.tags, tags(job, (tag) => page.change({ tag, page: 0 })));
    setText(parts.facts, jobFacts(job));
    drawWhy(parts.why, job);
    drawAlarmLine(parts.alarm, alarmsOf(job));
    drawProgress(parts, job, page.host);
    setText(cells.loss, job.loss === null || job.loss === undefined ? f.DASH : f.loss(job.loss));
    setText(cells.time, f.duration(elapsed(job)));
    setText(cells.created, f.moment(job.created_at));
    setAttr(cells.created, "title", f.exactMoment(job.created_at));
    actions.update(job);
  };
  return node;
}

function drawWhy(node, job) {
  const bad = job.state === "failed" || job.state === "lost";
  const { reason, message } = endText(job);
  show(node, bad);
  setText(node, bad ? message.split("\n")[0] || reason : "");
}

function drawProgress(parts, job, host) {
  const share = jobPercent(job, job.headline);
  const place = job.state === "queued" ? (host?.queued ?? []).findIndex((other) => other.id === job.id) + 1 : 0;
  show(parts.bar, job.state !== "queued");
  updateProgress(parts.bar, share, { active: isActive(job), state: job.state });
  setText(parts.steps, place ? t("runs.place", { place }) : stepsText(job, job.headline) || (isActive(job) && job.phase ? t(`phase.${job.phase}`) : ""));
}

function rowActions(page) {
  let job = null;
  const act = (key, iconName, run) => {
    const node = iconButton(t(key), iconName);
    node.addEventListener("click", busyWhile(node, run));
    return node;
  };
  const queue = () => page.host?.queued ?? [];
  const index = () => queue().findIndex((other) => other.id === job.id);
  const refresh = async () => {
    await refreshHost();
    page.refreshSoon();
  };
  const up = act("queue.up", "up", async () => {
    await moveJob(job, queue()[index() - 1].id);
    page.refreshSoon();
  });
  const stop = act("run.stop", "stop", () => stopDialog(job));
  const cancel = act("queue.cancel", "close", () => cancelDialog(job, refresh));
  const clone = h("a", { class: "td-icon-button", "aria-label": t("run.clone"), title: t("run.clone") }, icon("edit"));
  return {
    node: h("div", { class: "td-row-actions" }, up, stop, cancel, clone),
    update(next) {
      job = next;
      show(up, job.state === "queued" && index() > 0);
      show(stop, isActive(job));
      show(cancel, job.state === "queued");
      setAttr(clone, "href", href("new", { clone: job.id }));
      setClass(clone, `td-icon-button${isFinal(job) ? "" : " td-quiet"}`);
    },
  };
}
