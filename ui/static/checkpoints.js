// Turns the checkpoints and output files of a run into tables with size, evaluation, downloads and resume.

import { archiveUrl, fileUrl } from "./api.js";
import { h, icon, keyed, replace, setText, show } from "./dom.js";
import * as f from "./format.js";
import { t } from "./text.js";
import { button, emptyNote, linkButton } from "./widgets.js";

/** `onResume(name)` is called with the checkpoint a person wants to go on from. */
export function checkpointsSection(id, onResume) {
  const body = h("tbody", {});
  const head = ["step", "size", "saved", "eval", "state", "actions"].map((name) => h("th", { scope: "col" }, t(`checkpoint.column.${name}`)));
  const table = h("div", { class: "td-table-box td-cards-table" }, h("table", { class: "td-table td-checkpoints" }, h("caption", { class: "td-offscreen" }, t("tab.checkpoints")), h("thead", {}, h("tr", {}, head)), body));
  const empty = h("div", {});
  const files = h("div", {});
  return {
    node: h("div", {}, table, empty, files),
    update({ job, checkpoints = [], files: outputs = [], can = {} }) {
      const sorted = [...checkpoints].sort((a, b) => (b.step ?? Infinity) - (a.step ?? Infinity) || Number(b.path === "") - Number(a.path === ""));
      const best = bestOf(sorted);
      show(table, sorted.length > 0);
      keyed(body, sorted, (item) => item.name, () => row(id, onResume), (node, item) => node.update(item, item.name === best, can.resume));
      replace(empty, sorted.length ? [] : emptyNote(t("checkpoint.none"), t(job.state === "queued" ? "checkpoint.none.queued" : "checkpoint.none.help")));
      replace(files, outputs.length ? outputFiles(id, outputs) : []);
    },
  };
}

function bestOf(checkpoints) {
  const measured = checkpoints.filter((item) => Number.isFinite(item.eval_loss));
  return measured.length > 1 ? measured.reduce((a, b) => (b.eval_loss < a.eval_loss ? b : a)).name : null;
}

function row(id, onResume) {
  const cell = (name) => h("td", { dataset: { label: t(`checkpoint.column.${name}`) } });
  const cells = { step: cell("step"), size: cell("size"), saved: cell("saved"), eval: cell("eval"), state: cell("state"), actions: cell("actions") };
  const node = h("tr", {}, Object.values(cells));
  let drawn = "";
  node.update = (item, best, resumable) => {
    const now = JSON.stringify([item, best, resumable]);
    if (now === drawn) return; // keeps a focused link focused
    drawn = now;
    replace(cells.step, h("strong", {}, item.step === null ? t("checkpoint.final") : item.path === "" ? t("checkpoint.final_at", { step: f.integer(item.step) }) : f.integer(item.step)), h("div", { class: "td-muted td-mono" }, item.path || item.name));
    replace(cells.size, f.bytes(item.size_bytes), h("div", { class: "td-muted" }, item.adapter_bytes ? t("checkpoint.adapter_size", { size: f.bytes(item.adapter_bytes) }) : ""));
    setText(cells.saved, f.moment(item.saved_at));
    replace(cells.eval, Number.isFinite(item.eval_loss) ? f.loss(item.eval_loss) : f.DASH, best && h("span", { class: "td-tag td-tag-best" }, t("checkpoint.best")));
    replace(cells.state, completeness(item));
    replace(cells.actions, item.complete ? actions(id, item, resumable, onResume) : []);
  };
  return node;
}

function completeness(item) {
  return item.complete
    ? h("span", { class: "td-complete" }, icon("succeeded"), h("span", {}, t("checkpoint.complete")))
    : h("span", { class: "td-incomplete" }, icon("warning"), h("span", {}, item.why_incomplete || t("checkpoint.incomplete")));
}

function actions(id, item, resumable, onResume) {
  return h("div", { class: "td-row-actions td-row-actions-wide" },
    item.adapter_bytes && linkButton(t("checkpoint.download_adapter"), archiveUrl(id, item.name, "adapter"), { iconName: "download", kind: "quiet", download: "" }),
    linkButton(t("checkpoint.download_all"), archiveUrl(id, item.name), { iconName: "download", kind: "quiet", download: "" }),
    resumable && item.path !== "" && button(t("run.resume"), { iconName: "resume", kind: "quiet", onclick: () => onResume(item.name) }));
}

function outputFiles(id, files) {
  return h("section", { class: "td-section" }, h("h2", {}, t("files.title")),
    h("ul", { class: "td-files" }, files.map((file) => h("li", {},
      h("a", { href: fileUrl(id, file.path), download: "" }, icon("download"), h("span", { class: "td-mono" }, file.path)), h("span", { class: "td-muted" }, f.bytes(file.size_bytes)), h("span", { class: "td-muted" }, f.moment(file.modified_at))))));
}
