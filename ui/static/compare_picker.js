// Turns a search for runs into a choice of several, to be compared.

import { get } from "./api.js";
import { h, keyed, replace, setAttr, setText, show } from "./dom.js";
import * as f from "./format.js";
import { jobFacts } from "./jobs.js";
import { t } from "./text.js";
import { dialog, statePill, updatePill } from "./widgets.js";

const SHOWN = 30;
const TYPING_MS = 250;

/** A dialog with the newest runs; `chosen` ids are ticked. `done(ids)` gets the ticked ones, in the order of ticking. */
export function pickRuns(chosen, done) {
  const picked = new Set(chosen);
  const search = h("input", { type: "search", class: "td-input td-input-wide", placeholder: t("runs.search"), "aria-label": t("runs.search") });
  const list = h("ul", { class: "td-pick" });
  const note = h("p", { class: "td-muted", role: "status" });
  const load = async () => {
    const asked = search.value.trim();
    try {
      const answer = await get(`/api/runs?${new URLSearchParams({ q: asked, limit: SHOWN })}`);
      if (asked !== search.value.trim()) return;
      keyed(list, answer.runs, (job) => job.id, () => pickRow(picked), (node, job) => node.update(job));
      setText(note, answer.total > SHOWN ? t("compare.more", { n: f.integer(answer.total - SHOWN) }) : answer.total ? "" : t("runs.none_match"));
      show(note, Boolean(note.textContent));
    } catch (error) {
      replace(list, []);
      setText(note, error.message);
      show(note, true);
    }
  };
  let typing = null;
  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(load, TYPING_MS);
  });
  load();
  return dialog({
    title: t("compare.choose"), body: [search, list, note],
    actions: [{ label: t("compare.button"), kind: "primary", iconName: "chart", run: async () => {
      if (!picked.size) throw new Error(t("compare.choose.none"));
      done([...picked]);
    } }],
  });
}

function pickRow(picked) {
  let id = "";
  const box = h("input", { type: "checkbox", onchange: () => (box.checked ? picked.add(id) : picked.delete(id)) });
  const parts = { name: h("span", { class: "td-pick-name" }), facts: h("span", { class: "td-muted" }), pill: statePill("queued") };
  const node = h("li", {}, h("label", {}, box, h("span", { class: "td-grow" }, parts.name, parts.facts), parts.pill));
  node.update = (job) => {
    id = job.id;
    box.checked = picked.has(id);
    setText(parts.name, job.name);
    setText(parts.facts, [jobFacts(job), f.moment(job.created_at)].filter(Boolean).join(" · "));
    updatePill(parts.pill, job.state);
    setAttr(node, "title", job.id);
  };
  return node;
}
