// Turns the host's state into the first page: what runs, what waits, what failed and why, GPUs, disk and worker.

import { alarmsOf, drawAlarmLine } from "./alarms.js";
import { href } from "./app.js";
import { fillSparkline, h, icon, keyed, replace, setAttr, setClass, setText, show, sparkline } from "./dom.js";
import * as f from "./format.js";
import { gpuPanel } from "./gpus.js";
import { onState, onStatus, refreshHost } from "./host.js";
import { cancelDialog, endText, isActive, jobFacts, jobPercent, moveJob, setPriority, stepsText, tags, whenText } from "./jobs.js";
import { t, tn } from "./text.js";
import { busyWhile, iconButton, linkButton, progressBar, skeleton, statePill, updatePill, updateProgress } from "./widgets.js";

const LOW_DISK_BYTES = 20 * 2 ** 30;
const LOW_DISK_SHARE = 0.05;

export function open(main) {
  const page = build(main);
  const stops = [onState((state) => draw(page, state)), onStatus((status) => show(page.offline, status === "waiting" && !page.drawn))];
  const clock = setInterval(() => page.state && draw(page, page.state), 30_000); // "5 min ago" grows without news
  return {
    title: t("home.title"),
    close() {
      clearInterval(clock);
      for (const stop of stops) stop();
    },
  };
}

function build(main) {
  const page = { drawn: false };
  page.summary = h("p", { class: "td-lead" });
  page.notices = h("div", { class: "td-notices" });
  page.offline = h("p", { class: "td-muted", hidden: true }, t("error.unreachable"));
  page.loading = skeleton(5);
  page.first = firstRunCard();
  page.running = h("div", { class: "td-cards" });
  page.queue = h("ol", { class: "td-queue" });
  page.recent = h("ul", { class: "td-recent" });
  page.host = h("div", { class: "td-host" });
  page.gpus = gpuPanel();
  page.runningBox = section("home.running", page.running, "running");
  page.queueBox = section("home.queue", page.queue, "queued");
  page.recentBox = section("home.recent", page.recent, "history", h("a", { href: href("runs") }, t("home.all_runs")));
  page.body = h("div", { class: "td-home", hidden: true },
    h("div", { class: "td-home-main" }, page.first, page.runningBox, page.queueBox, page.recentBox),
    h("aside", { class: "td-home-side", "aria-label": t("home.host") }, h("section", { class: "td-panel", id: "gpus" }, h("h2", {}, t("home.host")), page.host, page.gpus.node)));
  main.append(h("div", { class: "td-page" }, h("h1", {}, t("home.title")), page.summary, page.offline, page.notices, page.loading, page.body));
  return page;
}

function section(key, content, iconName, extra = null) {
  return h("section", { class: "td-section" }, h("div", { class: "td-section-head" }, h("h2", {}, icon(iconName), h("span", {}, t(key))), extra), content);
}

function draw(page, state) {
  page.state = state;
  page.drawn = true;
  show(page.offline, false);
  show(page.loading, false);
  show(page.body, true);
  const { running = [], queued = [], recent = [] } = state;
  const all = Object.values(state.counts ?? {}).reduce((sum, n) => sum + n, 0);
  setText(page.summary, summaryText(running, queued, state.counts ?? {}));
  show(page.summary, all > 0);
  show(page.first, all === 0);
  show(page.runningBox, running.length > 0);
  show(page.queueBox, queued.length > 0);
  show(page.recentBox, recent.length > 0);
  keyed(page.running, running, (job) => job.id, runningCard, updateRunningCard);
  keyed(page.queue, queued, (job) => job.id, () => queueRow(page), (node, job) => node.update(job, page.state.queued));
  keyed(page.recent, recent, (job) => job.id, recentRow, updateRecentRow);
  drawNotices(page.notices, state);
  drawHost(page.host, state);
  page.gpus.update(state.gpus ?? [], running);
}

function summaryText(running, queued, counts) {
  const parts = [running.length ? tn("home.n_running", running.length) : t("home.idle")];
  if (queued.length) parts.push(tn("home.n_queued", queued.length));
  const bad = (counts.failed ?? 0) + (counts.lost ?? 0);
  if (bad) parts.push(tn("home.n_failed", bad));
  return parts.join(t("list.separator"));
}

function firstRunCard() {
  return h("section", { class: "td-first", hidden: true },
    h("div", {}, h("h2", {}, t("first.title")), h("p", {}, t("first.text")),
      h("ol", { class: "td-first-steps" }, ["first.step1", "first.step2", "first.step3"].map((key) => h("li", {}, t(key)))),
      h("div", { class: "td-actions" },
        linkButton(t("first.demo"), href("new", { preset: "demo/cpu_sft_lora_zero3_2x" }), { kind: "primary", iconName: "running" }),
        linkButton(t("first.own"), href("new"), { iconName: "sliders" }))));
}

function runningCard(job) {
  const parts = {
    pill: statePill(job.state), title: h("a", { href: href("run", { id: job.id }) }), facts: h("p", { class: "td-muted" }),
    bar: progressBar(t("job.progress")), steps: h("span", {}), eta: h("span", { class: "td-muted" }),
    loss: h("dd", {}), speed: h("dd", {}), pace: h("dd", {}), spark: sparkline([], { label: t("home.loss_curve") }), alarm: h("p", { hidden: true }),
  };
  const node = h("article", { class: "td-card td-card-link" },
    h("div", { class: "td-card-head" }, h("h3", {}, parts.title), parts.pill), parts.facts, parts.alarm,
    h("div", { class: "td-card-spark" }, parts.spark),
    parts.bar, h("div", { class: "td-card-steps" }, parts.steps, parts.eta),
    h("dl", { class: "td-mini" },
      h("div", {}, h("dt", {}, t("headline.loss")), parts.loss),
      h("div", {}, h("dt", {}, t("home.tokens_per_second")), parts.speed),
      h("div", {}, h("dt", {}, t("headline.seconds_per_step")), parts.pace)));
  node.parts = parts;
  return node;
}

function updateRunningCard(node, job) {
  const { parts } = node;
  const headline = job.headline ?? {};
  const share = jobPercent(job, headline);
  updatePill(parts.pill, job.state);
  setText(parts.title, job.name);
  setText(parts.facts, jobFacts(job));
  drawAlarmLine(parts.alarm, alarmsOf(job));
  updateProgress(parts.bar, share, { active: isActive(job), state: job.state });
  setText(parts.steps, [stepsText(job, headline) || phaseText(headline.phase || job.phase), share === null ? "" : f.percent(share)].filter(Boolean).join(" · "));
  setText(parts.eta, headline.eta_seconds > 0 ? t("job.eta", { time: f.duration(headline.eta_seconds) }) : "");
  setText(parts.loss, f.loss(headline.loss ?? job.loss));
  setText(parts.speed, f.compact(headline.tokens_per_second));
  setText(parts.pace, f.duration(headline.seconds_per_step));
  fillSparkline(parts.spark, (job.spark ?? []).map(f.toNumber));
}

function phaseText(phase) {
  return phase ? t(`phase.${phase}`) : "";
}

function queueRow(page) {
  const parts = { place: h("span", { class: "td-place" }), title: h("a", {}), facts: h("span", { class: "td-muted" }) };
  let job = null;
  let queue = [];
  const index = () => queue.findIndex((other) => other.id === job.id);
  const action = (key, iconName, run) => {
    const node = iconButton(t(key), iconName);
    node.addEventListener("click", busyWhile(node, run));
    return node;
  };
  parts.up = action("queue.up", "up", () => moveJob(job, queue[index() - 1].id));
  parts.down = action("queue.down", "down", () => moveJob(job, queue[index() + 2]?.id ?? null));
  parts.first = action("queue.priority", "flag", () => setPriority(job, job.priority > 0 ? 0 : 1));
  parts.cancel = action("queue.cancel", "close", () => cancelDialog(job, refreshHost));
  const node = h("li", { class: "td-queue-row" }, parts.place,
    h("div", { class: "td-queue-text" }, parts.title, parts.facts),
    h("div", { class: "td-row-actions" }, parts.first, parts.up, parts.down, parts.cancel));
  node.update = (nextJob, nextQueue) => {
    job = nextJob;
    queue = nextQueue;
    const place = index();
    setText(parts.place, place + 1);
    setText(parts.title, job.name);
    setAttr(parts.title, "href", href("run", { id: job.id }));
    setText(parts.facts, [jobFacts(job), whenText(job)].filter(Boolean).join(" · "));
    setAttr(parts.up, "disabled", place === 0 || queue[place - 1].priority > job.priority);
    setAttr(parts.down, "disabled", place === queue.length - 1 || queue[place + 1].priority < job.priority);
    setAttr(parts.first, "aria-pressed", job.priority > 0 ? "true" : "false");
  };
  return node;
}

function recentRow(job) {
  const parts = { pill: statePill(job.state), title: h("a", { href: href("run", { id: job.id }) }), facts: h("span", { class: "td-muted" }), when: h("span", { class: "td-muted td-when" }), why: h("p", { class: "td-why" }), alarm: h("p", { hidden: true }), tags: h("span", {}) };
  const node = h("li", { class: "td-recent-row" }, parts.pill,
    h("div", { class: "td-recent-text" }, h("div", { class: "td-recent-title" }, parts.title, parts.tags), parts.facts, parts.why, parts.alarm), parts.when);
  node.parts = parts;
  return node;
}

function updateRecentRow(node, job) {
  const { parts } = node;
  const { reason, message } = endText(job);
  const bad = job.state === "failed" || job.state === "lost";
  updatePill(parts.pill, job.state);
  setText(parts.title, job.name);
  replace(parts.tags, tags(job));
  setText(parts.facts, [jobFacts(job), stepsText(job), job.loss === null || job.loss === undefined ? "" : t("job.loss", { loss: f.loss(job.loss) })].filter(Boolean).join(" · "));
  setText(parts.when, f.ago(job.ended_at ?? job.created_at));
  setAttr(parts.when, "title", f.exactMoment(job.ended_at));
  setText(parts.why, bad ? message.split("\n")[0] || reason : "");
  show(parts.why, bad);
  drawAlarmLine(parts.alarm, alarmsOf(job));
  setClass(node, `td-recent-row${bad ? " td-recent-bad" : ""}`);
}

function drawNotices(box, state) {
  const notices = [workerNotice(state.worker), diskNotice(state.disk)].filter(Boolean);
  keyed(box, notices, (notice) => notice.key,
    (notice) => h("div", { class: `td-note td-note-${notice.kind}`, role: "alert" }, icon("warning"), h("div", {}, h("strong", {}), h("p", {}))),
    (node, notice) => {
      setText(node.querySelector("strong"), notice.title);
      setText(node.querySelector("p"), notice.text);
    });
}

function workerNotice(worker) {
  if (!worker || worker.alive !== false) return null;
  const last = worker.beat_at ? t("worker.last_seen", { ago: f.ago(worker.beat_at) }) : "";
  return { key: "worker", kind: "bad", title: t("worker.dead"), text: [worker.error, t("worker.dead.help"), last].filter(Boolean).join(" ") };
}

function diskNotice(disk) {
  if (!disk?.total_bytes || !Number.isFinite(disk.free_bytes)) return null;
  if (disk.free_bytes > LOW_DISK_BYTES && disk.free_bytes > LOW_DISK_SHARE * disk.total_bytes) return null;
  return { key: "disk", kind: "warn", title: t("disk.low", { free: f.bytes(disk.free_bytes) }), text: t("disk.low.help", { path: disk.path ?? "" }) };
}

function drawHost(box, state) {
  const { host = {}, worker = {}, disk = {} } = state;
  const used = disk.total_bytes ? 100 * (1 - disk.free_bytes / disk.total_bytes) : null;
  const rows = [
    { key: "host", iconName: "cpu", label: host.name ?? "", value: host.cpus ? tn("host.cpus", host.cpus) : "" },
    { key: "worker", iconName: "worker", label: t("host.worker"), value: worker.alive === false ? t("worker.off") : worker.alive ? t("worker.on") : f.DASH, bad: worker.alive === false },
    { key: "disk", iconName: "disk", label: t("host.disk"), value: disk.total_bytes ? t("host.free", { free: f.bytes(disk.free_bytes), total: f.bytes(disk.total_bytes) }) : f.DASH, share: used },
  ];
  keyed(box, rows, (row) => row.key, (row) => {
    const node = h("div", { class: "td-host-row" }, icon(row.iconName), h("span", { class: "td-host-label" }), h("span", { class: "td-host-value" }));
    if (row.key === "disk") node.append(progressBar(t("host.disk")));
    return node;
  }, (node, row) => {
    setText(node.children[1], row.label);
    setText(node.children[2], row.value);
    setClass(node, `td-host-row${row.bad ? " td-host-bad" : ""}`);
    if (row.key === "disk") updateProgress(node.children[3], row.share);
  });
}
