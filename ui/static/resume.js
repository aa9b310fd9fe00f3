// Turns a run and one of its complete checkpoints into a new run that goes on from there.

import { post, runPath } from "./api.js";
import { h } from "./dom.js";
import * as f from "./format.js";
import { t } from "./text.js";
import { choiceCards, dialog, toast } from "./widgets.js";

const SHOWN = 20;

/** Asks from which checkpoint and how far, then calls `done(job)` with the new run. `preferred` preselects a checkpoint by name. */
export function resumeDialog(detail, preferred, done) {
  const usable = (detail.checkpoints ?? []).filter((item) => item.complete && item.step !== null && item.path !== "").sort((a, b) => b.step - a.step);
  const chosen = usable.find((item) => item.name === preferred) ?? usable[0];
  const cards = choiceCards("td-checkpoint", usable.slice(0, SHOWN).map(card), chosen?.name);
  const length = lengthField(detail, chosen);
  return dialog({
    title: t("resume.title", { name: detail.job.name }),
    body: [h("p", {}, t("resume.help")), usable.length ? cards.node : h("p", { class: "td-note td-note-warn" }, t("resume.none")), length.node],
    actions: usable.length ? [{ label: t("resume.confirm"), kind: "primary", iconName: "resume", run: async () => {
      const { job } = await post(runPath(detail.job.id, "/resume"), { checkpoint: cards.value(), changes: length.changes() });
      toast(t("resume.started", { name: job.name }), "ok");
      done(job);
    } }] : [],
  });
}

function card(item) {
  const facts = [f.bytes(item.size_bytes), f.moment(item.saved_at), item.eval_loss === null || item.eval_loss === undefined ? "" : t("checkpoint.eval", { loss: f.loss(item.eval_loss) })];
  return { value: item.name, title: t("job.step", { step: f.integer(item.step) }), text: facts.filter(Boolean).join(" · ") };
}

/** How long the new run trains: the argument that the run's own document sets (max_steps wins over epochs, as in the trainer). */
function lengthField(detail, chosen) {
  const key = /^max_steps:\s*[1-9]/m.test(detail.spec_text ?? "") ? "max_steps" : "num_train_epochs";
  const now = new RegExp(`^${key}:\\s*([\\d.e+]+)`, "m").exec(detail.spec_text ?? "")?.[1] ?? (key === "num_train_epochs" ? "3.0" : "");
  const input = h("input", { class: "td-input", type: "number", min: 0, step: key === "max_steps" ? 1 : "any", value: now, name: key });
  const reached = chosen && detail.headline?.max_steps && chosen.step >= detail.headline.max_steps;
  return {
    node: h("label", { class: "td-field" }, h("span", {}, t(`resume.${key}`), " ", h("code", {}, key)), input, h("span", { class: "td-muted" }, t(reached ? "resume.length.reached" : "resume.length.help"))),
    changes: () => (input.value === "" || Number(input.value) === Number(now) ? {} : { [key]: Number(input.value) }),
  };
}
