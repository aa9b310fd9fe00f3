// Turns job and headline into the top of a run's page: state, progress, numbers, actions, and why it failed.

import { drawAlarms, presentAlarms } from "./alarms.js";
import { href, navigate } from "./app.js";
import { get, post, root, runPath } from "./api.js";
import { pickRuns } from "./compare_picker.js";
import { h, icon, replace, setAttr, setClass, setText, show } from "./dom.js";
import * as f from "./format.js";
import { notesDialog } from "./notes.js";
import { resumeDialog } from "./resume.js";
import { sweepDialog } from "./sweep_start.js";
import { elapsed, endText, isActive, isFinal, jobFacts, jobPercent, parentLink, partOf, stepsText, stopDialog, cancelDialog, tags } from "./jobs.js";
import { has, lang, t, tn } from "./text.js";
import { busyWhile, button, codeBlock, copyText, dialog, iconButton, linkButton, progressBar, statePill, toast, updatePill, updateProgress } from "./widgets.js";

const TILES = ["loss", "tokens_per_second", "seconds_per_step", "eta", "elapsed", "tokens"];
const ERROR_LINES = 12;

export function runHead(id) {
  const parts = build(id);
  let detail = null;
  const head = {
    node: parts.node,
    update(next) {
      detail = next;
      draw(parts, detail);
    },
    updateJob(job) {
      head.update({ ...detail, job });
    },
    tick() {
      drawTimes(parts, detail);
    },
    /** What only the whole series tells: the mean time per step of an ended run, where the loss stopped being a number. */
    facts(found) {
      parts.facts_of_series = found;
      if (detail) drawNumbers(parts, detail.job, detail.headline ?? {});
    },
    /** Number in line of a waiting run, 1 for the next; 0 when it does not wait. */
    place(number) {
      setText(parts.place, number ? t("run.place", { place: number }) : "");
      show(parts.place, number > 0 && (!detail || detail.job.state === "queued")); // two sources: the newer one counts
    },
    resume: (checkpoint) => resumeDialog(detail, checkpoint, (job) => navigate(href("run", { id: job.id }))),
  };
  wire(parts, () => detail, head);
  return head;
}

function build(id) {
  const parts = {
    title: h("h1", {}), pill: statePill("queued"), facts: h("p", { class: "td-muted" }), tags: h("span", { class: "td-tags" }), parent: h("span", {}), whole: h("span", {}), notes: h("p", { class: "td-notes", hidden: true }), place: h("p", { class: "td-note td-note-info", role: "status", hidden: true }),
    bar: progressBar(t("job.progress")), steps: h("strong", {}), phase: h("span", { class: "td-phase" }), share: h("span", { class: "td-muted" }), epoch: h("span", { class: "td-muted" }),
    stop: button(t("run.stop"), { kind: "danger", iconName: "stop" }), save: button(t("run.save"), { iconName: "save" }), cancel: button(t("queue.cancel"), { iconName: "close" }),
    resume: button(t("run.resume"), { iconName: "resume" }), clone: linkButton(t("run.clone"), href("new", { clone: id }), { iconName: "edit" }), tune: iconButton(t("tune.run"), "chart"), sweep: iconButton(t("sweep.run"), "sliders"),
    compare: button(t("compare.with"), { iconName: "table" }), report: h("a", { class: "td-icon-button", href: `${root()}/api/report?runs=${encodeURIComponent(id)}&lang=${lang()}`, download: "", "aria-label": t("report.run"), title: t("report.run") }, icon("download")), link: iconButton(t("run.copy_link"), "link"), annotate: iconButton(t("notes.edit"), "note"), remove: iconButton(t("run.delete"), "trash"),
    attached: h("p", { class: "td-attached", hidden: true }), ending: h("div", { hidden: true }), alarms: h("div", { class: "td-alarms", hidden: true }), stalled: h("div", { class: "td-note td-note-warn", role: "alert", hidden: true }), values: {}, hints: {}, labels: {},
  };
  const tiles = TILES.map((name) => {
    parts.values[name] = h("dd", {});
    parts.hints[name] = h("dd", { class: "td-tile-hint" });
    parts.labels[name] = h("dt", {}, t(`headline.${name}`));
    return h("div", { class: `td-tile td-tile-${name}` }, parts.labels[name], parts.values[name], parts.hints[name]);
  });
  parts.tiles = h("dl", { class: "td-tiles" }, tiles);
  parts.progress = h("div", { class: "td-progress" }, h("div", { class: "td-progress-line" }, parts.steps, parts.share, parts.epoch, parts.phase), parts.bar);
  parts.node = h("header", { class: "td-run-head" },
    h("div", { class: "td-run-top" },
      h("div", { class: "td-run-title" }, h("div", { class: "td-run-name" }, parts.title, parts.pill), h("div", { class: "td-run-facts" }, parts.facts, parts.parent, parts.whole, parts.tags), parts.attached, parts.notes),
      h("div", { class: "td-actions" }, parts.stop, parts.cancel, parts.save, parts.resume, parts.clone, parts.compare, parts.tune, parts.sweep, parts.report, parts.annotate, parts.link, parts.remove)),
    parts.place, parts.ending, parts.stalled, parts.alarms, parts.progress, parts.tiles);
  return parts;
}

function wire(parts, current, head) {
  parts.stop.addEventListener("click", () => stopDialog(current().job));
  parts.cancel.addEventListener("click", () => cancelDialog(current().job));
  parts.resume.addEventListener("click", () => head.resume(null));
  parts.compare.addEventListener("click", () => pickRuns([current().job.id], (ids) => navigate(href("compare", { runs: ids.join(",") }))));
  parts.link.addEventListener("click", () => copyText(location.href));
  parts.annotate.addEventListener("click", () => notesDialog(current().job, head.updateJob));
  parts.remove.addEventListener("click", () => deleteDialog(current().job));
  parts.tune.addEventListener("click", busyWhile(parts.tune, async () => {
    const { spec_text: text } = await post(runPath(current().job.id, "/clone"));
    const { tuning } = await post("/api/tunings", { spec_text: text });
    navigate(href("tune", { id: tuning.id }));
  }));
  parts.sweep.addEventListener("click", () => sweepDialog(current().job));
  parts.save.addEventListener("click", busyWhile(parts.save, async () => {
    await post(runPath(current().job.id, "/save"));
    toast(t("save.requested"), "ok");
  }));
}

function draw(parts, detail) {
  const { job, headline = {}, can = {} } = detail;
  setText(parts.title, job.name);
  updatePill(parts.pill, job.state);
  setText(parts.facts, jobFacts(job));
  replace(parts.tags, tags({ tags: (job.tags ?? []).filter((tag) => !/^(tuning|sweep):/.test(tag)) })); // those are links
  replace(parts.parent, parentLink(job, href, detail.spec_text));
  setText(parts.notes, job.notes);
  show(parts.notes, Boolean(job.notes));
  for (const [name, allowed] of [["stop", can.stop ?? isActive(job)], ["save", can.save], ["cancel", can.cancel], ["resume", can.resume], ["remove", can.delete]]) show(parts[name], Boolean(allowed));
  setClass(parts.resume, `td-button${job.state === "failed" || job.state === "cancelled" || job.state === "lost" ? " td-button-primary" : ""}`);
  drawEnding(parts.ending, detail);
  const stands = isActive(job) && Number.isFinite(headline.stalled_seconds); // told above, with the time growing
  const alarms = presentAlarms(detail.events, { segments: detail.segments, lastStepAt: headline.last_step_at });
  drawAlarms(parts.alarms, alarms.filter((alarm) => !(stands && alarm.code === "stalled")));
  drawAttached(parts, detail);
  if (job.state !== "queued") show(parts.place, false);
  drawWhole(parts, job);
  drawProgress(parts, job, headline);
  drawNumbers(parts, job, headline);
  drawTimes(parts, detail);
}

/** A check of cards or trials of a search: no steps, no loss, nothing to clone; its figures stand elsewhere. */
function drawWhole(parts, job) {
  const { kind, page, query } = partOf(job);
  if (parts.whole.dataset.shown !== `${kind} ${query?.id ?? ""}`) {
    parts.whole.dataset.shown = `${kind} ${query?.id ?? ""}`;
    replace(parts.whole, kind ? h("a", { href: href(page, query) }, t(`job.part.${kind}`)) : []);
  }
  parts.trains = kind !== "check" && kind !== "trial";
  if (!parts.trains) for (const name of ["save", "resume", "clone", "compare", "tune", "sweep", "report"]) show(parts[name], false);
}

function drawProgress(parts, job, headline) {
  const share = jobPercent(job, headline);
  const phase = headline.phase || job.phase;
  show(parts.progress, job.state !== "queued" && parts.trains);
  updateProgress(parts.bar, share, { active: isActive(job), state: job.state });
  setText(parts.steps, stepsText(job, headline) || (isActive(job) ? t("run.preparing") : t("run.no_steps")));
  setText(parts.share, share === null ? "" : f.percent(share, share < 10 ? 1 : 0));
  setText(parts.epoch, Number.isFinite(headline.epoch) ? t("run.epoch", { epoch: Number(headline.epoch.toFixed(2)) }) : "");
  setText(parts.phase, isActive(job) && phase ? t(`phase.${phase}`) : "");
  show(parts.phase, isActive(job) && Boolean(phase));
}

function drawNumbers(parts, job, headline) {
  show(parts.tiles, job.state !== "queued" && parts.trains);
  const loss = headline.loss ?? job.loss;
  setText(parts.values.loss, f.loss(loss));
  const lost = f.toNumber(loss);
  setClass(parts.values.loss, lost !== null && !Number.isFinite(lost) ? "td-bad" : "");
  const speed = isFinal(job) ? headline.mean_tokens_per_second : headline.tokens_per_second;
  setText(parts.values.tokens_per_second, f.compact(speed));
  setText(parts.hints.tokens_per_second, isFinal(job) ? t("headline.mean") : Number.isFinite(headline.mean_tokens_per_second) ? t("headline.mean_is", { mean: f.compact(headline.mean_tokens_per_second) }) : "");
  const { meanSeconds, oddFrom } = parts.facts_of_series ?? {};
  const ended = isFinal(job) && headline.seconds_per_step === null && Number.isFinite(meanSeconds);
  setText(parts.values.seconds_per_step, f.duration(ended ? meanSeconds : headline.seconds_per_step));
  setText(parts.hints.seconds_per_step, ended ? t("headline.mean_with_pauses") : "");
  setText(parts.hints.loss, Number.isFinite(oddFrom) && lost !== null && !Number.isFinite(lost) ? t("headline.odd_since", { step: f.integer(oddFrom) }) : "");
  setText(parts.values.tokens, f.compact(headline.tokens));
}

function drawTimes(parts, { job, headline = {} }) {
  const now = Date.now() / 1000;
  setText(parts.labels.eta, t(isFinal(job) ? "headline.ended" : "headline.eta"));
  setText(parts.values.eta, isFinal(job) ? f.ago(job.ended_at) : f.duration(headline.eta_seconds));
  setText(parts.hints.eta, isFinal(job) ? f.moment(job.ended_at) : headline.eta_seconds > 0 ? t("headline.done_at", { time: f.moment(now + headline.eta_seconds) }) : "");
  setText(parts.values.elapsed, f.duration(elapsed(job, now)));
  setText(parts.hints.elapsed, job.started_at ? t("headline.since", { time: f.moment(job.started_at) }) : "");
  const stalled = isActive(job) && Number.isFinite(headline.stalled_seconds);
  show(parts.stalled, stalled);
  if (stalled) replace(parts.stalled, icon("warning"), h("div", {}, h("strong", {}, t("run.stalled", { time: f.duration(headline.stalled_seconds) })), h("p", {}, t("run.stalled.help"))));
}

/** Why the run is over: red for failures with the first error lines, amber for a stop, nothing special for success. */
function drawEnding(node, { job, events = [] }) {
  const key = `${job.state} ${job.reason} ${job.message} ${events.length}`;
  if (node.dataset.shown === key) return;
  node.dataset.shown = key;
  const { reason, message } = endText(job);
  const kind = { failed: "bad", lost: "bad", cancelled: "warn" }[job.state];
  show(node, Boolean(kind));
  if (!kind) return;
  const box = { title: h("strong", {}, reason || t(`state.${job.state}`)), reason: h("p", { class: "td-muted", hidden: true }, reason), message: h("p", { class: "td-ending-message" }, message), proof: h("div", {}) };
  show(box.message, Boolean(message));
  replace(node, h("section", { class: `td-note td-note-${kind} td-ending`, role: kind === "bad" ? "alert" : "status" }, icon(job.state),
    h("div", {}, box.title, box.reason, box.message, box.proof,
      kind === "bad" && h("p", { class: "td-muted" }, t(job.state === "lost" ? "ending.lost.help" : "ending.failed.help")))));
  if (kind === "bad") showCause(box, job, message);
}

/** Of a run that Tunedeck did not start: where its files are; what needs a plan of ours is not offered. */
function drawAttached(parts, { attached }) {
  show(parts.attached, Boolean(attached));
  if (!attached) return;
  setText(parts.attached, t(attached.pid === null ? "attach.shown" : "attach.shown.pid", { path: attached.source, pid: attached.pid }));
  for (const name of ["clone", "tune", "sweep"]) show(parts[name], false);
}

/** The cause in plain words with its remedy and proof; without a known cause the first error lines of the log. */
async function showCause(box, job, message) {
  const found = await get(runPath(job.id, `/diagnosis?lang=${lang()}`)).catch(() => null); // the log below still tells
  if (found?.root_cause) {
    const rank = Number.isInteger(found.first_failing_rank) ? ` · ${t("series.rank", { rank: found.first_failing_rank })}` : "";
    setText(box.title, found.title + rank);
    show(box.reason, Boolean(box.reason.textContent));
    show(box.message, Boolean(message) && !found.evidence.some((line) => line.includes(message)));
    replace(box.proof, h("p", { class: "td-remedy" }, found.remedy),
      found.evidence.length ? codeBlock(found.evidence.join("\n"), { label: t("ending.evidence"), limit: true }) : null);
    return;
  }
  const log = await get(runPath(job.id, "/log?offset=-2000&limit=2000")).catch(() => null); // the log tab reports its own troubles
  const lines = firstErrors(log?.lines ?? []);
  if (lines.length) replace(box.proof, codeBlock(lines.map((line) => line.text).join("\n"), { label: t("ending.first_errors"), limit: true }));
}

function firstErrors(lines) {
  const at = lines.findIndex((line) => line.level === "error");
  return at < 0 ? [] : lines.slice(Math.max(0, at - 2), at + ERROR_LINES);
}

function deleteDialog(job) {
  return dialog({
    title: t("delete.title", { name: job.name }),
    body: h("p", {}, t("delete.help")),
    actions: [{ label: t("delete.confirm"), kind: "danger", iconName: "trash", run: async () => {
      await post(runPath(job.id, "/delete"));
      navigate(href("runs"));
    } }],
  });
}
