// Turns a run and lines `setting = values` into a sweep: how many runs that makes is said before it starts.

import { href, navigate } from "./app.js";
import { post, runPath } from "./api.js";
import { h, setText, show } from "./dom.js";
import { t, tn } from "./text.js";
import { dialog } from "./widgets.js";

const FIRST_LINES = "learning_rate = 5e-5, 1e-4, 2e-4\nlora_rank = 8, 16";
const SPAN = /\.\./;

/** [[setting, values as written]] of the lines that are not empty. */
export function readGrid(text) {
  return text.split("\n").map((line) => line.trim()).filter(Boolean).map((line) => {
    const [key, values = ""] = line.split(/\s*[=:：]\s*(.*)/s, 2);
    return [key, values];
  });
}

/** How many runs the grid makes; null when a span (1e-5..1e-3) has no end of values. */
export function countRuns(pairs) {
  if (pairs.some(([, values]) => SPAN.test(values))) return null;
  return pairs.reduce((product, [, values]) => product * values.split(/[,，]/).filter((value) => value.trim()).length, pairs.length ? 1 : 0);
}

/** An object would keep only the last of them. */
const namedTwice = (pairs) => new Set(pairs.map(([key]) => key)).size < pairs.length;

/** Every combination of some settings of this job, or some drawn at random, as a group of runs. */
export function sweepDialog(job) {
  const lines = h("textarea", { class: "td-input", rows: 4, value: FIRST_LINES, "aria-label": t("sweep.start.help"), spellcheck: "false" });
  const draws = h("input", { class: "td-input", type: "number", min: 1, max: 200, step: 1, placeholder: t("sweep.start.all") });
  const early = h("input", { type: "checkbox" });
  const count = h("p", { class: "td-muted", role: "status" });
  const tell = () => {
    const runs = countRuns(readGrid(lines.value));
    const drawn = Number(draws.value) || 0;
    setText(count, drawn ? tn("sweep.start.drawn", runs === null ? drawn : Math.min(runs, drawn)) : runs === null ? t("sweep.start.span") : tn("sweep.start.count", runs));
  };
  lines.addEventListener("input", tell);
  draws.addEventListener("input", tell);
  tell();
  const start = async () => {
    if (namedTwice(readGrid(lines.value))) throw new Error(t("sweep.start.twice"));
    const { spec_text: text } = await post(runPath(job.id, "/clone"));
    const { sweep } = await post("/api/sweeps", { spec_text: text, grid: Object.fromEntries(readGrid(lines.value)), early_stop: early.checked, ...(draws.value && { samples: Number(draws.value) }) });
    navigate(href("sweep", { id: sweep.id }));
  };
  const wrong = h("p", { class: "td-note td-note-warn", hidden: true }, t("sweep.start.twice"));
  lines.addEventListener("input", () => {
    show(wrong, namedTwice(readGrid(lines.value)));
  });
  return dialog({
    title: t("sweep.start.title", { name: job.name }),
    body: [h("p", {}, t("sweep.start.help")), lines, wrong, h("label", { class: "td-field" }, h("span", {}, t("sweep.start.draws")), draws), h("label", { class: "td-check" }, early, h("span", {}, t("sweep.start.early"))), h("p", { class: "td-muted" }, t("sweep.start.early.help")), count],
    actions: [{ label: t("sweep.start"), kind: "primary", run: start }],
  });
}
