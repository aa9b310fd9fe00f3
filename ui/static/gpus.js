// Turns the readings of the host's GPUs into compact rows: activity, memory, power, temperature, and the job that holds each.

import { href } from "./app.js";
import { h, icon, keyed, setAttr, setText, show } from "./dom.js";
import * as f from "./format.js";
import { has, t, tn } from "./text.js";
import { progressBar, updateProgress } from "./widgets.js";

/** `update(gpus, running)`: a host without GPUs says so instead of showing an empty table. */
export function gpuPanel() {
  const list = h("div", { class: "td-gpu-models" });
  const none = h("div", { class: "td-note td-note-info", hidden: true }, icon("cpu"), h("div", {}, t("gpus.none")));
  return {
    node: h("div", {}, list, none),
    update(gpus, running) {
      show(none, gpus.length === 0);
      const models = [...new Set(gpus.map(modelOf))].map((name) => ({ name, gpus: gpus.filter((gpu) => modelOf(gpu) === name) }));
      keyed(list, models, (model) => model.name, modelBox, (node, model) => node.update(model, running));
    },
  };
}

function modelOf(gpu) {
  return gpu.name || t("gpus.unknown");
}

/** Who has a GPU that no run of ours holds. */
function holder(gpu) {
  if (gpu.lost) return t("gpus.lost");
  if (gpu.set_aside) return t("gpus.set_aside");
  if (gpu.leased_by) return gpu.leased_by;
  const foreign = (gpu.processes ?? []).find((process) => !process.job_id);
  if (foreign) return t("gpus.foreign_by", { name: foreign.name || foreign.pid });
  return t(gpu.gfx_activity_percent > 5 ? "gpus.foreign" : "gpus.free");
}

/** What a meter shows, or why it is empty. */
function why(gpu, field, label) {
  const gap = gpu.gaps?.[field];
  return gap ? `${label}: ${has(`gap.${gap}`) ? t(`gap.${gap}`) : gap}` : label;
}

function modelBox({ name }) {
  const title = h("h3", {});
  const rows = h("ul", { class: "td-gpus", "aria-label": name });
  const node = h("div", {}, title, rows);
  node.update = ({ gpus }, running) => {
    setText(title, tn("gpus.model", gpus.length, { name }));
    keyed(rows, gpus, (gpu) => gpu.id, gpuRow, (row, gpu) => updateGpu(row, gpu, running));
  };
  return node;
}

function gpuRow() {
  const parts = {
    place: h("span", { class: "td-place" }), job: h("a", {}), free: h("span", { class: "td-muted" }), rest: h("span", { class: "td-muted td-gpu-rest" }),
    use: progressBar(t("gpus.activity")), useText: h("span", {}), memory: progressBar(t("gpus.memory")), memoryText: h("span", {}),
  };
  const node = h("li", { class: "td-gpu" }, parts.place,
    h("div", { class: "td-gpu-head" }, h("span", { class: "td-gpu-job" }, parts.job, parts.free), parts.rest),
    h("div", { class: "td-gpu-meters" },
      h("div", { title: t("gpus.activity") }, parts.use, parts.useText),
      h("div", { title: t("gpus.memory") }, parts.memory, parts.memoryText)));
  node.parts = parts;
  return node;
}

function updateGpu(node, gpu, running) {
  const { parts } = node;
  const job = running.find((other) => other.id === gpu.leased_by);
  const total = gpu.vram_total_bytes;
  const used = gpu.vram_used_bytes;
  setText(parts.place, gpu.hip_id ?? gpu.smi_index ?? "·");
  setAttr(parts.place, "title", gpu.id);
  setText(parts.job, job?.name ?? "");
  setAttr(parts.job, "href", job ? href("run", { id: job.id }) : null);
  show(parts.job, Boolean(job));
  setText(parts.free, job ? "" : holder(gpu));
  setAttr(parts.free, "class", gpu.set_aside || gpu.lost ? "td-bad" : "td-muted");
  setAttr(parts.free, "title", gpu.set_aside || null);
  updateProgress(parts.use, gpu.gfx_activity_percent ?? null);
  setText(parts.useText, f.percent(gpu.gfx_activity_percent));
  setAttr(parts.useText.parentNode, "title", why(gpu, "gfx_activity_percent", t("gpus.activity")));
  setAttr(parts.memoryText.parentNode, "title", why(gpu, "vram_used_bytes", t("gpus.memory")));
  updateProgress(parts.memory, Number.isFinite(used) && total ? (100 * used) / total : null);
  setText(parts.memoryText, total && Number.isFinite(used) ? t("gpus.of", { used: f.gibibytes(used), total: f.bytes(total) }) : f.bytes(used));
  const heat = gpu.hotspot_celsius ?? gpu.edge_celsius;
  setText(parts.rest, [Number.isFinite(gpu.socket_power_watts) ? `${f.integer(gpu.socket_power_watts)} W` : "", Number.isFinite(heat) ? `${f.integer(heat)} °C` : ""].filter(Boolean).join(" · "));
}
