// Turns a forecast (memory of one GPU, advice) into the drawings beside the form; the same advice is drawn on a run's page.

import { h, icon, replace, show } from "./dom.js";

const STATE_ICON = { fits: "succeeded", tight: "warning", over: "failed", unknown: "info" };

/** Text with `names` in backticks set as code. */
export function coded(text) {
  return text.split("`").map((part, at) => (at % 2 ? h("code", {}, part) : part));
}

/** The stacked bar: what one GPU must hold, the band of the estimate, and where the card ends. */
export function drawMemory(memory, t) {
  const width = (share) => `${(100 * share).toFixed(2)}%`;
  const bar = h("div", { class: "td-mem-bar", role: "img", "aria-label": `${memory.title} ${memory.value}` },
    memory.bars.map((part) => h("span", { class: `td-mem-part td-mem-${part.name}`, style: { width: width(part.share) }, title: `${part.label}: ${part.value}` })),
    h("i", { class: "td-mem-band", style: { left: width(memory.low), width: width(Math.max(0.004, memory.high - memory.low)) }, title: t("new.memory.band") }),
    memory.capacity !== null && memory.capacity < 1 && h("i", { class: "td-mem-end", style: { left: width(memory.capacity) } }));
  return h("section", { class: `td-mem td-mem-state-${memory.state}` },
    h("header", {}, icon(STATE_ICON[memory.state]), h("strong", {}, memory.title)),
    h("p", { class: "td-mem-value" }, memory.value), bar,
    h("ul", { class: "td-mem-legend" }, memory.bars.map((part) => h("li", {}, h("i", { class: `td-mem-${part.name}` }), h("span", {}, part.label), h("strong", {}, part.value)))),
    h("details", {}, h("summary", {}, t("new.memory.more")),
      h("dl", { class: "td-mem-parts" }, memory.bars.flatMap((part) => part.parts).concat(memory.lines).map(([label, value]) => h("div", {}, h("dt", {}, label), h("dd", {}, value)))),
      memory.doubts.map((doubt) => h("p", { class: "td-muted" }, doubt))));
}

/** One advice: closed it says what and how much, open why, what it changes in the result, and offers the change. */
export function drawAdvice(advice, t, onApply, open = false) {
  return h("details", { class: `td-advice td-advice-${advice.severity}`, dataset: { advice: advice.id }, open },
    h("summary", {}, h("span", { class: "td-advice-title" }, advice.title), advice.gain && h("span", { class: "td-advice-gain" }, advice.gain)),
    advice.reason && h("p", {}, coded(advice.reason)),
    Number.isFinite(advice.measured_share) && h("p", { class: "td-advice-measured" }, t("speed.backed", { share: `${(100 * advice.measured_share).toFixed(0)} %` })),
    advice.remedy && h("p", { class: "td-advice-remedy" }, coded(advice.remedy)),
    advice.effects.map((effect) => h("p", { class: "td-advice-effect" }, icon("info"), h("span", {}, effect))),
    advice.fixable && onApply && h("button", { type: "button", class: "td-button", onclick: () => onApply(advice.id) }, h("span", {}, t("new.speed.apply"))));
}

/** Keeps its place in the panel; parts that a person opened stay open when the numbers change. */
export function forecastPart(t, onApply) {
  const memory = h("div", {});
  const advice = h("div", { class: "td-advices" });
  const node = h("div", { class: "td-forecast", hidden: true }, memory, advice);
  const open = () => [...node.querySelectorAll("details[open]")].map((item) => item.dataset.advice ?? "memory");
  return {
    node,
    update(forecast) {
      show(node, Boolean(forecast?.memory || forecast?.advice.length || forecast?.notes.length));
      if (!forecast) return;
      const opened = open();
      replace(memory, forecast.memory && drawMemory(forecast.memory, t), forecast.notes.map((note) => h("p", { class: "td-muted td-mem-note" }, note)));
      const details = memory.querySelector("details");
      if (details) details.open = opened.includes("memory");
      replace(advice, forecast.advice.length > 0 && [
        h("header", { class: "td-advices-head" }, icon("chart"), h("strong", {}, forecast.headline), forecast.faster && h("button", { type: "button", class: "td-button", onclick: () => onApply("all") }, h("span", {}, forecast.faster))),
        forecast.advice.map((each) => drawAdvice(each, t, onApply, opened.includes(each.id)))]);
    },
  };
}
