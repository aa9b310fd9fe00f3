// Turns a job's notes and tags into a dialog that edits them, wherever the job is shown.

import { get, post, runPath } from "./api.js";
import { h, replace } from "./dom.js";
import { t } from "./text.js";
import { dialog } from "./widgets.js";

/** `done(job)` gets the changed job. Tags in use elsewhere can be added by a click. */
export function notesDialog(job, done) {
  const notes = h("textarea", { class: "td-input", rows: 5, value: job.notes ?? "" });
  const labels = h("input", { class: "td-input td-input-wide", value: (job.tags ?? []).join(", ") });
  const known = h("div", { class: "td-chips" });
  const typed = () => labels.value.split(/[,，]/).map((tag) => tag.trim()).filter(Boolean);
  const suggest = (tags) => replace(known, tags.filter(({ tag }) => !typed().includes(tag)).slice(0, 12).map(({ tag }) => h("button", { type: "button", class: "td-chip", onclick: () => {
    labels.value = [...typed(), tag].join(", ");
    suggest(tags);
  } }, tag)));
  get("/api/tags").then((answer) => suggest(answer.tags), () => undefined); // tags can be typed all the same
  return dialog({
    title: t("notes.title"),
    body: [h("label", { class: "td-field" }, h("span", {}, t("notes.notes")), notes), h("label", { class: "td-field" }, h("span", {}, t("notes.tags")), labels), known],
    actions: [{ label: t("notes.save"), kind: "primary", run: async () => {
      const answer = await post(runPath(job.id, "/notes"), { notes: notes.value.trim(), tags: typed() });
      done(answer.job);
    } }],
  });
}
