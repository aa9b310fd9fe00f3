// Turns the readings of the host's GPUs into rows: activity, memory, power, temperature, and the job that holds each.

import { href } from "./app.js";
import { h, icon, keyed, setAttr, setText, show } from "./dom.js";
import * as f from "./format.js";
import { t } from "./text.js";
import { progressBar, updateProgress } from "./widgets.js";

/** `update(gpus, host, running)`: a host without GPUs says so instead of showing an empty table. */
export function gpuPanel() {
  const list = h("ul", { class: "td-gpus", "aria-label": t("gpus.label") });
  const none = h("p", { class: "td-note td-note-info", hidden: true }, icon("cpu"), h("span", {}, t("gpus.none")));
  return {
    node: h("div", {}, list, none),
    update(gpus, host, running) {
      show(none, gpus.length === 0);
      show(list, gpus.length > 0);
      keyed(list, gpus, (gpu) => gpu.id, gpuRow, (node, gpu) => updateGpu(node, gpu, running));
    },
  };
}

function gpuRow() {
  const parts = {
    name: h("span", { class: "td-gpu-name" }), job: h("a", { class: "td-gpu-job" }), free: h("span", { class: "td-muted" }),
    use: progressBar(t("gpus.activity")), useText: h("span", {}), memory: progressBar(t("gpus.memory")), memoryText: h("span", {}), rest: h("span", { class: "td-muted" }),
  };
  const node = h("li", { class: "td-gpu" },
    h("div", { class: "td-gpu-head" }, parts.name, parts.job, parts.free),
    h("div", { class: "td-gpu-line" }, h("span", { class: "td-muted" }, t("gpus.activity")), parts.use, parts.useText),
    h("div", { class: "td-gpu-line" }, h("span", { class: "td-muted" }, t("gpus.memory")), parts.memory, parts.memoryText), parts.rest);
  node.parts = parts;
  return node;
}

function updateGpu(node, gpu, running) {
  const { parts } = node;
  const job = running.find((other) => other.id === gpu.job) ?? running.find((other) => (other.devices ?? []).includes(gpu.id));
  const total = gpu.vram_total_bytes;
  const used = gpu.vram_used_bytes;
  setText(parts.name, [gpu.hip_id ?? gpu.smi_index ?? "", gpu.name || gpu.id].filter((part) => part !== "").join(" · "));
  setAttr(parts.name, "title", gpu.id);
  setText(parts.job, job?.name ?? "");
  setAttr(parts.job, "href", job ? href("run", { id: job.id }) : null);
  show(parts.job, Boolean(job));
  setText(parts.free, job ? "" : t("gpus.free"));
  updateProgress(parts.use, gpu.gfx_activity_percent ?? null);
  setText(parts.useText, f.percent(gpu.gfx_activity_percent));
  updateProgress(parts.memory, Number.isFinite(used) && total ? (100 * used) / total : null);
  setText(parts.memoryText, total ? t("gpus.of", { used: f.bytes(used), total: f.bytes(total) }) : f.bytes(used));
  const power = Number.isFinite(gpu.socket_power_watts) ? `${f.integer(gpu.socket_power_watts)} W` : "";
  const heat = gpu.hotspot_celsius ?? gpu.edge_celsius;
  setText(parts.rest, [power, Number.isFinite(heat) ? `${f.integer(heat)} °C` : ""].filter(Boolean).join(" · "));
}
