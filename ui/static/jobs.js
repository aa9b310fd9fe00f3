// Turns a job record into the words and small drawings that lists and cards share, and into actions on it.

import { post, runPath } from "./api.js";
import { h, icon } from "./dom.js";
import * as f from "./format.js";
import { refreshHost } from "./host.js";
import { has, t, tn } from "./text.js";
import { choiceCards, dialog, toast } from "./widgets.js";

const FINAL = new Set(["succeeded", "failed", "cancelled", "lost"]);
const ACTIVE = new Set(["starting", "running", "stopping"]);

export const isFinal = (job) => FINAL.has(job.state);
export const isActive = (job) => ACTIVE.has(job.state);

/** Last part of a model's path or hub name. */
export function modelName(job) {
  return (job.model ?? "").replace(/\/+$/, "").split("/").pop() || "";
}

/** "tiny-llama · LoRA · SFT · 2 processes": what kind of training this is. */
/** What a job is when it is no training of its own: a check of cards, trials of a tuning search; or a member of a sweep. */
export function partOf(job) {
  const tagged = (start) => (job.tags ?? []).find((tag) => tag.startsWith(start))?.slice(start.length);
  if ((job.tags ?? []).includes("host-check")) return { kind: "check", page: "gpus", query: {} };
  if (tagged("tuning:")) return { kind: "trial", page: "tune", query: { id: tagged("tuning:") } };
  if (tagged("sweep:")) return { kind: "sweep", page: "sweep", query: { id: tagged("sweep:") } };
  return { kind: "" };
}

export function jobFacts(job) {
  const { kind } = partOf(job);
  const parts = kind === "check" ? [t("job.check")] : [modelName(job), word("method", job.finetuning_type), word("stage", job.stage)];
  if (kind === "trial") parts.unshift(t("job.trial"));
  if (job.processes > 1) parts.push(tn("job.processes", job.processes));
  return parts.filter(Boolean).join(" · ");
}

/** A value's name in the catalogue, or the value itself: unknown stages of newer trainers are shown as they are. */
export function word(family, value) {
  if (!value) return "";
  return has(`${family}.${value}`) ? t(`${family}.${value}`) : value;
}

export function jobPercent(job, headline = null) {
  if (Number.isFinite(headline?.percent)) return headline.percent;
  if (Number.isFinite(job.step) && job.max_steps > 0) return (100 * job.step) / job.max_steps;
  return null;
}

export function stepsText(job, headline = null) {
  const step = headline?.step ?? job.step;
  const all = headline?.max_steps ?? job.max_steps;
  if (step === null || step === undefined) return "";
  return all ? t("job.steps", { step: f.integer(step), all: f.integer(all) }) : t("job.step", { step: f.integer(step) });
}

export function elapsed(job, now = Date.now() / 1000) {
  if (!job.started_at) return null;
  return (job.ended_at ?? now) - job.started_at;
}

/** Why a job ended, in one sentence; the trainer's own first line when it failed. */
export function endText(job) {
  const reason = job.reason && has(`reason.${job.reason}`) ? t(`reason.${job.reason}`, { code: job.exit_code ?? "?", signal: job.signal ?? "?" }) : "";
  return { reason, message: (job.message ?? "").trim() };
}

/** When the job did the thing that matters most for its state. */
export function whenText(job) {
  if (isFinal(job)) return t("job.ended_ago", { ago: f.ago(job.ended_at ?? job.created_at) });
  if (isActive(job)) return t("job.started_ago", { ago: f.ago(job.started_at ?? job.created_at) });
  return t("job.created_ago", { ago: f.ago(job.created_at) });
}

/** `onTag(tag)`: what a click on a tag does; without it tags are only shown. */
export function tags(job, onTag = null) {
  return (job.tags ?? []).map((tag) => (onTag ? h("button", { type: "button", class: "td-tag td-tag-button", title: t("runs.tag.only", { tag }), onclick: () => onTag(tag) }, tag) : h("span", { class: "td-tag" }, tag)));
}

/** Asks which of the three ways to stop, says what each keeps, then asks the server. Resolves when the dialog closes. */
export function stopDialog(job) {
  const noun = (mode) => ({ value: mode, title: t(`stop.${mode}`), text: t(`stop.${mode}.help`), kind: mode === "kill" ? "bad" : "" });
  // A run already asked to stop can only be hurried; one that we did not start (no processes of ours) cannot be made to save.
  // A check or trials have nothing to save.
  const modes = job.state === "stopping" || job.processes === 0 || ["check", "trial"].includes(partOf(job).kind) ? ["no_save", "kill"] : ["save", "no_save", "kill"];
  const cards = choiceCards("td-stop", modes.map(noun), modes[0]);
  return dialog({
    title: t("stop.title", { name: job.name }),
    body: cards.node,
    cancel: t("stop.keep_running"),
    actions: [{
      label: t("stop.confirm"), kind: "danger", iconName: "stop",
      run: async () => {
        await post(runPath(job.id, "/stop"), { mode: cards.value() });
        toast(t("stop.requested"), "ok");
      },
    }],
  });
}

export function cancelDialog(job, done) {
  return dialog({
    title: t("cancel_job.title", { name: job.name }),
    body: h("p", {}, t("cancel_job.help")),
    cancel: t("cancel_job.keep"),
    actions: [{
      label: t("cancel_job.confirm"), kind: "danger",
      run: async () => {
        await post(runPath(job.id, "/cancel"));
        await done?.();
      },
    }],
  });
}

export async function moveJob(job, before) {
  await post(runPath(job.id, "/move"), { before });
  await refreshHost();
}

export async function setPriority(job, priority) {
  await post(runPath(job.id, "/priority"), { priority });
  await refreshHost();
}

/** A resumed run goes on from its parent; a clone only took its settings. `text` is the run's own document. */
export function parentLink(job, href, text) {
  if (!job.parent) return null;
  const goesOn = text === undefined || /^resume_from_checkpoint:\s*\S/m.test(text);
  return h("a", { href: href("run", { id: job.parent }), class: "td-parent" }, icon(goesOn ? "resume" : "edit"), h("span", {}, t(goesOn ? "job.parent" : "job.copied")));
}
