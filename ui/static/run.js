// Turns one run's records into its page. First load, reload and reconnect are one path: snapshot, then increments from its cursor.

import { href, rememberInAddress } from "./app.js";
import { get, runPath, snapshotPaths } from "./api.js";
import { chartsSection } from "./charts.js";
import { checkpointsSection } from "./checkpoints.js";
import { configSection } from "./config.js";
import { h, icon, replace, setAttr, setText, show } from "./dom.js";
import { historySection } from "./history.js";
import { mergeGpus, onState, setStatus } from "./host.js";
import * as f from "./format.js";
import { isActive, jobPercent } from "./jobs.js";
import { Live } from "./live.js";
import { logSection } from "./log.js";
import { runHead } from "./run_head.js";
import { speedSection } from "./run_speed.js";
import { t } from "./text.js";
import { problemNote, skeleton } from "./widgets.js";

const TABS = [["charts", "chart"], ["speed", "gauge"], ["log", "log"], ["checkpoints", "box"], ["config", "sliders"], ["history", "history"]];

export function open(main, query) {
  const id = query.get("id") ?? "";
  const page = new RunPage(main, id);
  page.showTab(query.get("tab"));
  page.load();
  return {
    title: t("run.title"),
    update(next) {
      if ((next.get("id") ?? "") !== id) return false;
      page.showTab(next.get("tab"));
      return true;
    },
    close: () => page.close(),
  };
}

class RunPage {
  constructor(main, id) {
    this.id = id;
    this.detail = null;
    this.cursor = null;
    this.logNext = null;
    this.loading = 0;
    this.head = runHead(id);
    this.sections = {
      charts: chartsSection(id), speed: speedSection(id), log: logSection(id), checkpoints: checkpointsSection(id, (name) => this.head.resume(name)), config: configSection(id), history: historySection(id),
    };
    this.wait = h("div", {}, skeleton(6));
    this.tabs = tabList((name) => {
      rememberInAddress({ tab: name === "charts" ? "" : name });
      this.showTab(name);
    });
    this.panels = Object.fromEntries(TABS.map(([name]) => [name, h("section", { class: "td-tabpanel", id: `panel-${name}`, role: "tabpanel", "aria-labelledby": `tab-${name}`, hidden: true }, this.sections[name].node)]));
    this.trouble = h("div", {}); // the server could not read part of the run
    this.body = h("div", { hidden: true }, this.trouble, this.head.node, this.tabs.node, Object.values(this.panels));
    main.append(h("div", { class: "td-page td-run" },
      h("nav", { class: "td-crumbs", "aria-label": t("nav.crumbs") }, h("a", { href: href("runs") }, icon("list"), h("span", {}, t("nav.runs")))), this.wait, this.body));
    this.sections.charts.onLogTail(() => this.tabs.choose("log"));
    this.stopHost = onState((state) => this.head.place((state.queued ?? []).findIndex((job) => job.id === id) + 1));
    this.clock = setInterval(() => this.detail && this.head.tick(), 1000);
  }

  showTab(wanted) {
    const name = TABS.some(([tab]) => tab === wanted) ? wanted : "charts";
    this.tabs.mark(name);
    this.body.classList.toggle("td-run-compact", name === "log"); // the log gets the room
    for (const [tab, panel] of Object.entries(this.panels)) {
      show(panel, tab === name);
      this.sections[tab].visible?.(tab === name);
    }
  }

  /** The whole picture, then the socket from its cursor. Called at first, after `reset`, and by "try again". */
  async load() {
    const turn = (this.loading += 1);
    const stale = () => this.closed || turn !== this.loading;
    try {
      const paths = snapshotPaths(this.id);
      const rest = Promise.all([get(paths.series), get(paths.log)]);
      rest.catch(() => undefined); // a missing run is told by its own record first
      const detail = await get(paths.detail);
      if (stale()) return;
      this.setDetail(detail); // numbers are on the screen before any chart
      const [series, log] = await rest;
      if (stale()) return;
      this.cursor = series.cursor;
      this.logNext = log.next;
      this.sections.charts.reset(series);
      this.head.facts(this.sections.charts.facts());
      this.sections.log.reset(log);
      this.sections.charts.logTail(this.sections.log.tail());
      this.follow();
    } catch (error) {
      if (stale()) return;
      this.fail(error, this.detail === null);
    }
  }

  /** `whole`: the record of the run itself could not be had, not only its series or log. */
  fail(error, whole) {
    show(this.wait, true);
    if (whole && error.status === 404) {
      this.body.remove(); // its empty heading as well
      document.title = `${t("run.missing")} · ${t("app.name")}`;
      replace(this.wait, h("div", { class: "td-empty" }, h("h1", {}, t("run.missing")), h("p", {}, t("run.missing.help", { id: this.id })), h("a", { class: "td-button", href: href("runs") }, t("home.all_runs"))));
      return;
    }
    setStatus("waiting", { retryNow: () => this.load() });
    replace(this.wait, problemNote(error.message, () => this.load()));
    clearTimeout(this.again);
    this.again = setTimeout(() => this.load(), 5_000);
  }

  setDetail(detail) {
    this.detail = detail;
    replace(this.trouble, detail.problem ? problemNote(detail.problem, null) : []);
    show(this.wait, false);
    show(this.body, true);
    document.title = pageTitle(detail);
    this.head.update(detail);
    this.sections.charts.setDetail(detail);
    this.sections.log.setDetail(detail);
    this.sections.checkpoints.update(detail);
    this.sections.config.update(detail);
    this.sections.speed.update(detail);
    this.sections.history.update(detail);
    this.tabs.count("checkpoints", detail.checkpoints?.length ?? 0);
  }

  follow() {
    const start = { cursor: this.cursor, log: this.logNext };
    if (this.live && !this.live.closed) {
      this.live.restart();
      return;
    }
    this.live = new Live({
      // The log position is part of a message's cursor; only the first connection after a snapshot has to name it.
      params: () => ({ run: this.id, after: this.cursor, ...(this.cursor === start.cursor ? { log: start.log } : {}) }),
      poll: () => (this.cursor === null ? null : runPath(this.id, `/since?c=${encodeURIComponent(this.cursor)}`)),
      onMessage: (message) => this.take(message),
      onStatus: (status) => setStatus(status, this.live),
    });
    setStatus(this.live.status ?? "connecting", this.live);
  }

  take(message) {
    if (this.closed) return;
    if (message.reset) {
      this.load();
      return;
    }
    this.cursor = message.c ?? this.cursor;
    if (message.gpus) mergeGpus(message.gpus);
    if ("reading" in message) this.sections.charts.sayReading(message.reading);
    if (message.rows || message.markers) {
      this.sections.charts.append(message.rows ?? {}, message.markers ?? []);
      this.head.facts(this.sections.charts.facts());
    }
    if (message.log) {
      this.logNext = message.log.next;
      this.sections.log.append(message.log);
      this.sections.charts.logTail(this.sections.log.tail());
    }
    this.takeDetail(message);
  }

  takeDetail(message) {
    const changes = {};
    for (const key of ["checkpoints", "can", "problem"]) if (key in message) changes[key] = message[key];
    for (const key of ["job", "headline"]) if (key in message) changes[key] = { ...this.detail[key], ...message[key] }; // only fields that changed
    if (message.events?.length) changes.events = [...(this.detail.events ?? []), ...message.events];
    if (!Object.keys(changes).length) return;
    const before = this.detail;
    this.setDetail({ ...this.detail, ...changes });
    // What may be done, the plan, segments and files come only with the whole record: ask when state, phase or checkpoints moved.
    const moved = changes.job && changes.job.state !== before.job.state;
    const phase = changes.headline && changes.headline.phase !== before.headline?.phase;
    if (moved || phase || changes.checkpoints) this.refreshDetail();
  }

  async refreshDetail() {
    try {
      const detail = await get(runPath(this.id));
      if (!this.closed) this.setDetail(detail);
    } catch (error) {
      if (error.status === 404) this.fail(error, true);
    }
  }

  close() {
    this.closed = true;
    clearInterval(this.clock);
    this.stopHost();
    clearTimeout(this.again);
    this.live?.close();
    for (const section of Object.values(this.sections)) section.close?.();
  }
}

/** A running job's progress can be read from the browser's tab. */
function pageTitle({ job, headline = {} }) {
  const share = isActive(job) ? jobPercent(job, headline) : null;
  return [share === null ? "" : f.percent(share), job.name, t("app.name")].filter(Boolean).join(" · ");
}

function tabList(onChoose) {
  const counts = {};
  const buttons = TABS.map(([name, iconName]) => {
    counts[name] = h("span", { class: "td-tab-n" });
    return h("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `panel-${name}`, dataset: { tab: name }, onclick: () => onChoose(name) }, icon(iconName), h("span", {}, t(`tab.${name}`)), counts[name]);
  });
  const node = h("div", { class: "td-tabs", role: "tablist", "aria-label": t("run.sections") }, buttons);
  node.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = buttons.findIndex((item) => item.getAttribute("aria-selected") === "true");
    const next = buttons[(at + step + buttons.length) % buttons.length];
    next.focus();
    onChoose(next.dataset.tab);
  });
  return {
    node,
    choose: onChoose,
    mark(name) {
      for (const item of buttons) {
        const here = item.dataset.tab === name;
        setAttr(item, "aria-selected", here ? "true" : "false");
        setAttr(item, "tabindex", here ? null : -1);
      }
    },
    count(name, n) {
      setText(counts[name], n || "");
    },
  };
}
