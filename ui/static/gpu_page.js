// Turns the host's GPU telemetry into its page: a card per device with a reason for every empty cell, history, links, processes, sources.

import { href, rememberInAddress } from "./app.js";
import { get, post } from "./api.js";
import { PALETTE } from "./chart_defs.js";
import { h, icon, keyed, replace, setAttr, setText, show } from "./dom.js";
import * as f from "./format.js";
import { checkSection } from "./gpu_check.js";
import { has, t } from "./text.js";
import { onTheme } from "./theme.js";
import { timeChart } from "./time_chart.js";
import { busyWhile, button, emptyNote, linkButton, problemNote, progressBar, skeleton, toast, updateProgress } from "./widgets.js";

const POLL_MS = 2_000;
const SPANS = { hour: 3_600, day: 86_400, month: 30 * 86_400 };
const HISTORY_MS = { hour: 10_000, day: 60_000, month: 300_000 };
const POINTS = 400;
const CHARTS = [
  ["gfx_activity_percent", { format: (v) => f.percent(v), ceiling: 100 }], ["vram_used_bytes", { format: (v) => f.bytes(v) }],
  ["socket_power_watts", { format: (v) => `${f.integer(v)} W` }], ["hotspot_celsius", { format: (v) => `${f.integer(v)} °C` }],
];
const watts = (v) => `${f.integer(v)} W`;
const degrees = (v) => `${f.integer(v)} °C`;
const hertz = (v) => `${f.integer(v)} MHz`;
const share = (v) => f.percent(v, v > 0 && v < 10 ? 1 : 0);
const plain = (v) => f.integer(v);
const kilobytes = (v) => f.bytes(v * 1024);
// Field of a reading, how it is told. The first rows have bars; the last ones are one click away.
const ROWS = [
  ["mem_activity_percent", share], ["hotspot_celsius", degrees, "slowdown_hotspot_celsius"], ["memory_celsius", degrees, "slowdown_memory_celsius"],
  ["gfx_clock_mhz", hertz], ["mem_clock_mhz", hertz], ["power_violation_percent", share], ["thermal_violation_percent", share], ["ecc_uncorrectable", plain],
];
const MORE = [
  ["edge_celsius", degrees], ["prochot_violation_percent", share], ["vr_violation_percent", share], ["hbm_violation_percent", share], ["throttle_status", (v) => t(v ? "yes" : "no")],
  ["ecc_correctable", plain], ["ecc_deferred", plain], ["pcie_gts", (v) => `${f.number(v, 3)} GT/s`], ["pcie_width", (v) => `×${v}`], ["pcie_replays", plain],
  ["xgmi_read_kilobytes", kilobytes], ["xgmi_write_kilobytes", kilobytes], ["xgmi_links_down", plain], ["energy_joules", (v) => `${f.number(v / 3.6e6, 4)} kWh`], ["gtt_used_bytes", f.bytes],
];
const IDENTITY = ["id", "hip_id", "smi_index", "uuid", "render_minor", "gfx_target", "num_compute_units", "partition", "memory_partition", "card", "numa_node", "hive_id", "driver_version"];

export function open(main, query) {
  const page = new GpuPage(main, query.get("span") in SPANS ? query.get("span") : "hour");
  page.poll();
  return { title: t("gpus.title"), close: () => page.close() };
}

class GpuPage {
  constructor(main, span) {
    this.span = span;
    this.trouble = h("div", {}, skeleton(5));
    this.source = h("p", { class: "td-lead" });
    this.others = h("details", { class: "td-gpu-sources", hidden: true });
    this.cards = h("div", { class: "td-gpu-cards" });
    this.links = h("section", { class: "td-section", hidden: true });
    this.check = checkSection();
    this.charts = CHARTS.map(([key, how]) => [key, timeChart(t(`reading.${key}`), how)]);
    this.legend = h("ul", { class: "td-profile-legend" });
    this.spans = Object.keys(SPANS).map((name) => h("button", { type: "button", class: "td-segment", dataset: { span: name }, onclick: () => this.choose(name) }, t(`gpus.span.${name}`)));
    this.history = h("section", { class: "td-section", hidden: true },
      h("div", { class: "td-section-head" }, h("h2", {}, t("gpus.history")), h("div", { class: "td-segments", role: "group", "aria-label": t("gpus.history") }, this.spans)),
      this.legend, h("div", { class: "td-time-grid" }, this.charts.map(([, chart]) => chart.node)));
    main.append(h("div", { class: "td-page" },
      h("div", { class: "td-page-head" }, h("h1", {}, t("gpus.title")), linkButton(t("doctor.title"), href("doctor"), { iconName: "succeeded" })), this.source, this.others, this.trouble, this.cards, this.history, this.check.node, this.links));
    this.stopTheme = onTheme(() => this.loadHistory());
    this.mark();
  }

  mark() {
    for (const item of this.spans) setAttr(item, "aria-pressed", item.dataset.span === this.span ? "true" : "false");
  }

  choose(span) {
    this.span = span;
    rememberInAddress({ span: span === "hour" ? "" : span });
    this.mark();
    this.loadHistory();
  }

  async poll() {
    try {
      const [found, state] = await Promise.all([get("/api/gpus"), get("/api/state")]);
      if (this.closed) return;
      this.draw(found, [...(state.running ?? [])]);
      if (!(performance.now() - (this.historyAt ?? -1e9) < HISTORY_MS[this.span])) this.loadHistory();
    } catch (error) {
      if (this.closed) return;
      replace(this.trouble, problemNote(error.message, () => this.poll()));
    }
    this.timer = setTimeout(() => this.poll(), POLL_MS);
  }

  draw(found, running) {
    this.devices = found.gpus;
    setText(this.source, sourceText(found));
    drawSources(this.others, found);
    replace(this.trouble, troubles(found));
    keyed(this.cards, found.gpus, (gpu) => gpu.id, deviceCard, (node, gpu) => node.update(gpu, running, found));
    show(this.history, found.gpus.length > 0);
    drawLinks(this.links, found.gpus, found.links ?? []);
  }

  async loadHistory() {
    if (!this.devices?.length || this.closed) return;
    this.historyAt = performance.now();
    const to = Date.now() / 1000;
    const from = to - SPANS[this.span];
    const keys = CHARTS.map(([key]) => key).join(",");
    const found = await get(`/api/gpus/history?keys=${keys}&from=${from}&to=${to}&px=${POINTS}`).catch((error) => ({ error }));
    if (this.closed) return;
    if (found.error) {
      toast(found.error.message, "bad");
      return;
    }
    replace(this.legend, this.devices.map((gpu, i) => h("li", {}, h("i", { class: `td-series-${i % PALETTE.length}` }), placeName(gpu))));
    for (const [key, chart] of this.charts) {
      const lines = this.devices.map((gpu) => ({ name: placeName(gpu), times: found.series[gpu.id]?.[key]?.times ?? [], mean: found.series[gpu.id]?.[key]?.mean ?? [] }));
      chart.draw(lines, from, to);
    }
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.check.close();
    this.stopTheme();
  }
}

const placeName = (gpu) => t("gpus.place", { n: gpu.hip_id ?? gpu.smi_index ?? gpu.id });

function sourceText({ source, at, age_seconds: age, gpus }) {
  if (!gpus.length) return t("gpus.source.none");
  return t("gpus.source", { name: source.label, when: age === null || age === undefined ? f.DASH : f.ago(at) });
}

/** Nothing to show, or not to be trusted: said before any number. */
function troubles({ gpus, stale, error, source, at }) {
  const notes = [];
  const note = (words, kind, more = "") => h("div", { class: `td-note td-note-${kind}`, role: "alert" }, icon("warning"), h("div", {}, h("strong", {}, words), more && h("p", {}, more)));
  if (!gpus.length) return emptyNote(t("gpus.empty"), t("gpus.none"), h("p", { class: "td-muted" }, source.reason));
  if (stale) notes.push(note(t("gpus.stale", { when: at === null ? f.DASH : f.ago(at) }), "warn", t("gpus.stale.help")));
  if (error) notes.push(note(error, "warn"));
  if (source.verdict !== "ok") notes.push(note(source.reason || source.verdict, "warn", source.remedy));
  return notes;
}

function drawSources(node, { sources = [], source }) {
  const tried = sources.flatMap((one) => Object.entries(one.tried ?? {}));
  const versions = Object.entries(source.versions ?? {});
  const shown = JSON.stringify([tried, versions, source.warnings]);
  if (node.dataset.shown === shown) return;
  node.dataset.shown = shown;
  show(node, tried.length + versions.length + (source.warnings ?? []).length > 0);
  const pairs = [...versions, ...tried.map(([name, why]) => [t("gpus.source.unused", { name }), why]), ...(source.warnings ?? []).map((words) => [t("gpus.source.warning"), words])];
  replace(node, h("summary", {}, t("gpus.source.more")), h("dl", { class: "td-pairs" }, pairs.map(([name, words]) => h("div", {}, h("dt", {}, name), h("dd", {}, words)))));
}

// ---- One device ---------------------------------------------------------------------------------------------------------

function deviceCard() {
  const parts = {
    title: h("h2", {}), model: h("p", { class: "td-muted" }), pill: h("span", { class: "td-pill" }), job: h("p", {}), aside: h("div", { class: "td-note td-note-bad", hidden: true }),
    activity: meter("gfx_activity_percent"), memory: meter("vram_used_bytes"), power: meter("socket_power_watts"), rows: h("dl", { class: "td-gpu-rows" }), more: h("dl", { class: "td-gpu-rows" }),
    identity: h("dl", { class: "td-gpu-rows" }), processes: h("div", {}),
  };
  const clear = button(t("gpus.clear"), { iconName: "succeeded" });
  const words = h("div", {});
  replace(parts.aside, icon("warning"), h("div", {}, words, clear));
  const node = h("article", { class: "td-card td-gpu-card" }, h("header", {}, h("div", {}, parts.title, parts.model), parts.pill), parts.job, parts.aside,
    parts.activity.node, parts.memory.node, parts.power.node, parts.rows,
    h("details", {}, h("summary", {}, t("gpus.more")), parts.more, h("h3", {}, t("gpus.identity")), parts.identity), parts.processes);
  clear.addEventListener("click", busyWhile(clear, async () => {
    await post("/api/gpus/clear", { device: node.dataset.device });
    toast(t("gpus.cleared"), "ok");
  }));
  node.update = (gpu, running) => {
    node.dataset.device = gpu.id;
    const reading = gpu.reading ?? {};
    setText(parts.title, placeName(gpu));
    setText(parts.model, [gpu.name || t("gpus.unknown"), gpu.partition && gpu.partition !== "SPX" ? gpu.partition : ""].filter(Boolean).join(" · "));
    drawHolder(parts, gpu, running);
    show(parts.aside, Boolean(gpu.set_aside));
    setText(words, t("gpus.aside", { why: gpu.set_aside }));
    parts.activity.update(reading.gfx_activity_percent, 100, f.percent(reading.gfx_activity_percent), gpu);
    const total = reading.vram_total_bytes ?? gpu.vram_total_bytes;
    parts.memory.update(reading.vram_used_bytes, total, t("gpus.of", { used: f.gibibytes(reading.vram_used_bytes), total: f.bytes(total) }), gpu);
    const cap = reading.power_cap_watts ?? gpu.power_cap_watts;
    parts.power.update(reading.socket_power_watts, cap, cap ? t("gpus.of", { used: f.integer(reading.socket_power_watts), total: watts(cap) }) : `${f.integer(reading.socket_power_watts)} W`, gpu);
    keyed(parts.rows, ROWS, ([field]) => field, pairNode, (row, item) => row.update(item, gpu));
    keyed(parts.more, MORE, ([field]) => field, pairNode, (row, item) => row.update(item, gpu));
    drawIdentity(parts.identity, gpu);
    drawProcesses(parts.processes, gpu.processes ?? []);
  };
  return node;
}

/** Why a cell is empty, in words; null when it is not. */
function gapOf(gpu, field) {
  const value = gpu.reading?.[field];
  if (value !== null && value !== undefined) return null;
  const gap = gpu.gaps?.[field] ?? "not_reported";
  return has(`gap.${gap}`) ? t(`gap.${gap}`) : gap;
}

function meter(field) {
  const bar = progressBar(t(`reading.${field}`));
  const value = h("strong", {});
  const why = h("p", { class: "td-gap" });
  return {
    node: h("div", { class: "td-gpu-meter" }, h("div", {}, h("span", {}, t(`reading.${field}`)), value), bar, why),
    update(now, most, words, gpu) {
      const gap = gapOf(gpu, field);
      setText(value, gap ? f.DASH : words);
      updateProgress(bar, gap || !most ? null : (100 * now) / most);
      setText(why, gap ?? "");
      show(why, Boolean(gap));
    },
  };
}

function pairNode() {
  const name = h("dt", {});
  const value = h("dd", {});
  const node = h("div", {}, name, value);
  node.update = ([field, format, limit], gpu) => {
    const gap = gapOf(gpu, field);
    const most = limit ? gpu[limit] : null;
    const now = gpu.reading?.[field];
    setText(name, t(`reading.${field}`));
    setText(value, gap ? f.DASH : most ? t("gpus.limit", { now: format(now), limit: format(most) }) : format(now));
    setAttr(node, "title", gap);
    setAttr(node, "class", gap ? "td-gpu-gap" : bad(field, now, most) ? "td-bad" : null);
    setAttr(value, "aria-label", gap ? `${f.DASH} (${gap})` : null);
  };
  return node;
}

const bad = (field, now, most) => (most ? now >= most : false) || (field.endsWith("violation_percent") && now >= 5) || (["ecc_uncorrectable", "xgmi_links_down"].includes(field) && now > 0);

function drawHolder(parts, gpu, running) {
  const job = running.find((other) => other.id === gpu.leased_by);
  const foreign = (gpu.processes ?? []).filter((process) => !process.job_id);
  const state = gpu.reading?.lost || gpu.lost ? "lost" : gpu.set_aside ? "aside" : gpu.leased_by ? "leased" : foreign.length ? "foreign" : gpu.reading ? "free" : "silent";
  setAttr(parts.pill, "class", `td-pill td-gpu-state-${state}`);
  setText(parts.pill, t(`gpus.state.${state}`));
  const shown = JSON.stringify([gpu.leased_by, job?.name, foreign]);
  if (parts.job.dataset.shown === shown) return;
  parts.job.dataset.shown = shown;
  replace(parts.job, gpu.leased_by ? h("a", { href: href("run", { id: gpu.leased_by }) }, job?.name ?? gpu.leased_by) : []);
  show(parts.job, Boolean(gpu.leased_by));
}

function drawIdentity(node, gpu) {
  const rows = IDENTITY.map((name) => [name, gpu[name]]).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const shown = JSON.stringify(rows);
  if (node.dataset.shown === shown) return;
  node.dataset.shown = shown;
  const word = (name, value) => (name === "hip_id" && gpu.hip_id_source === "assumed" ? t("gpus.assumed", { n: value }) : String(value));
  replace(node, rows.map(([name, value]) => h("div", {}, h("dt", {}, t(`identity.${name}`)), h("dd", { class: "td-mono" }, word(name, value)))));
}

function drawProcesses(node, processes) {
  const shown = JSON.stringify(processes);
  if (node.dataset.shown === shown) return;
  node.dataset.shown = shown;
  const row = (process) => h("li", {}, h("span", {}, process.job_id ? h("a", { href: href("run", { id: process.job_id }) }, process.name || t("gpus.process")) : h("strong", {}, process.name || t("gpus.process"))),
    h("span", { class: "td-muted" }, t("gpus.pid", { pid: process.pid })), h("span", {}, f.bytes(process.vram_bytes)), !process.job_id && h("span", { class: "td-pill td-gpu-state-foreign" }, t("gpus.state.foreign")));
  replace(node, processes.length ? [h("h3", {}, t("gpus.processes")), h("ul", { class: "td-gpu-processes" }, processes.map(row))] : []);
}

// ---- Links --------------------------------------------------------------------------------------------------------------

function drawLinks(node, gpus, links) {
  const shown = JSON.stringify([gpus.map((gpu) => gpu.id), links.map((link) => [link.source, link.target, link.kind, link.hops, link.up])]);
  if (node.dataset.shown === shown) return;
  node.dataset.shown = shown;
  show(node, gpus.length > 1);
  const between = new Map(links.flatMap((link) => [[`${link.source} ${link.target}`, link], [`${link.target} ${link.source}`, link]]));
  const cell = (a, b) => {
    if (a.id === b.id) return h("td", { class: "td-muted" }, "·");
    const link = between.get(`${a.id} ${b.id}`);
    if (!link) return h("td", { class: "td-muted", title: t("gpus.link.none") }, f.DASH);
    return h("td", { class: link.up === false ? "td-bad" : `td-link-${link.kind.toLowerCase()}` }, [link.kind, link.hops > 1 ? t("gpus.hops", { n: link.hops }) : "", link.up === false ? t("gpus.link.down") : ""].filter(Boolean).join(" "));
  };
  const head = h("tr", {}, h("td", {}), gpus.map((gpu) => h("th", { scope: "col", title: gpu.id }, placeName(gpu))));
  const rows = gpus.map((a) => h("tr", {}, h("th", { scope: "row", title: a.id }, placeName(a)), gpus.map((b) => cell(a, b))));
  replace(node, h("h2", {}, t("gpus.links")), links.length ? h("div", { class: "td-table-box td-table-scroll" }, h("table", { class: "td-table td-links" }, h("thead", {}, head), h("tbody", {}, rows))) : h("p", { class: "td-muted" }, t("gpus.links.none")));
}
