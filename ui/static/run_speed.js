// Turns what a run measured into its "speed and cost" section: energy and money, what would make it faster, the same run elsewhere.

import { href, navigate } from "./app.js";
import { get, post, runPath } from "./api.js";
import { h, icon, replace } from "./dom.js";
import { drawAdvice } from "./forecast.js";
import * as f from "./format.js";
import { isActive } from "./jobs.js";
import { lang, t } from "./text.js";
import { emptyNote, problemNote, skeleton, toast } from "./widgets.js";

const REFRESH_MS = 10_000;

export function speedSection(id) {
  const node = h("div", { class: "td-speed" }, skeleton(4));
  const state = { visible: false, detail: null, again: 0, asked: false, closed: false };
  const load = async () => {
    clearTimeout(state.again);
    state.asked = true;
    try {
      const [advice, cost] = await Promise.all([get(runPath(id, `/advice?lang=${lang()}`)), get(runPath(id, "/cost"))]);
      if (!state.closed) draw(node, id, state.detail, advice, cost);
    } catch (error) {
      if (!state.closed) replace(node, problemNote(error.message, load));
    }
    if (!state.closed && state.visible && state.detail && isActive(state.detail.job)) state.again = setTimeout(load, REFRESH_MS);
  };
  return {
    node,
    update(detail) {
      const ended = state.detail && isActive(state.detail.job) && !isActive(detail.job);
      state.detail = detail;
      if (state.visible && (!state.asked || ended)) load();
    },
    visible(on) {
      state.visible = on;
      clearTimeout(state.again);
      if (on && state.detail) load();
    },
    close() {
      state.closed = true;
      clearTimeout(state.again);
    },
  };
}

function draw(node, id, detail, advice, cost) {
  const opened = [...node.querySelectorAll("details[open]")].map((item) => item.dataset.advice);
  replace(node, costPart(cost, advice, isActive(detail.job)), sharesPart(advice), advicePart(id, detail, advice, opened), elsewherePart(cost));
}

function tile(label, value, hint = "") {
  return h("div", { class: "td-tile" }, h("dt", {}, label), h("dd", {}, value), h("dd", { class: "td-tile-hint", title: hint }, hint));
}

const money = (value, currency) => (Number.isFinite(value) ? `${f.number(value, 3)}${currency ? ` ${currency}` : ""}` : f.DASH);
const kwh = (value) => (Number.isFinite(value) ? (value < 1 ? `${f.number(1000 * value, 3)} Wh` : `${f.number(value, 3)} kWh`) : f.DASH);

function costPart({ cost, missing, energy_estimate: estimate }, { mfu, mfu_source: source }, active) {
  const tiles = [];
  if (cost) {
    const about = estimate ? t("cost.energy.estimate") : t("cost.energy.counter");
    if (Number.isFinite(cost.total)) {
      tiles.push(tile(t(active ? "cost.total" : "cost.whole"), money(cost.total, cost.currency), cost.parts.map((part) => t(`cost.part.${part}`)).join(" + ")));
      if (active) tiles.push(tile(t("cost.projected"), money(cost.projected, cost.currency), t("cost.projected.help")));
      tiles.push(tile(t("cost.per_million"), money(cost.per_million_tokens, cost.currency), Number.isFinite(cost.per_epoch) ? t("cost.per_epoch", { value: money(cost.per_epoch, cost.currency) }) : ""));
    }
    tiles.push(tile(t("cost.gpu_hours"), f.number(cost.gpu_hours, 3)));
    tiles.push(tile(t("cost.energy"), kwh(cost.kwh), Number.isFinite(cost.kwh) ? about : ""));
    if (Number.isFinite(cost.joules_per_token)) tiles.push(tile(t("cost.per_token"), `${f.number(cost.joules_per_token, 3)} J`));
  }
  if (Number.isFinite(mfu)) tiles.push(tile(t("cost.mfu"), f.percent(100 * mfu, 1), source));
  const gaps = missing.filter((gap) => gap !== "not_started");
  return h("section", { class: "td-section" }, h("h2", {}, t("cost.title")), tiles.length > 0 && h("dl", { class: "td-tiles td-cost-tiles" }, tiles),
    gaps.map((gap) => h("p", { class: "td-muted" }, t(`cost.missing.${gap}`))), missing.includes("not_started") && h("p", { class: "td-muted" }, t("cost.missing.not_started")));
}

/** Where time and tokens go, measured; nothing where nothing was. */
function sharesPart({ shares }) {
  const known = ["data_wait", "pauses", "padding", "truncated", "communication", "idle"].filter((name) => Number.isFinite(shares?.[name]));
  if (!known.length) return null;
  const steps = shares.profiled_steps;
  return h("section", { class: "td-section" }, h("h2", {}, t("share.title")),
    h("dl", { class: "td-tiles td-cost-tiles" }, known.map((name) => tile(t(`share.${name}`), f.percent(100 * shares[name], 1), t(`share.${name}.help`, { steps })))));
}

function advicePart(id, detail, { ready, advice }, opened) {
  const apply = async (code) => {
    try {
      const { spec_text: text } = await post(runPath(id, "/advice"), { code });
      sessionStorage.setItem(`td-draft:?clone=${encodeURIComponent(id)}`, text); // the form opens with it
      navigate(href("new", { clone: id }));
    } catch (error) {
      toast(error.message, "bad");
    }
  };
  const words = (key, values) => t(key === "new.speed.apply" ? "speed.apply" : key, values);
  const [measured, estimated] = [advice.filter((each) => each.basis === "measured"), advice.filter((each) => each.basis !== "measured")];
  const list = (title, help, items) => items.length > 0 && [h("h3", { class: "td-speed-kind" }, title), h("p", { class: "td-muted" }, help), h("div", { class: "td-advices" }, items.map((each) => drawAdvice(each, words, apply, opened.includes(each.id))))];
  const nothing = !advice.length && emptyNote(t(ready ? "speed.none" : "speed.early"), t(ready ? "speed.none.help" : "speed.early.help"));
  return h("section", { class: "td-section" }, h("h2", {}, t("speed.title")), nothing,
    list(t("speed.measured"), t("speed.measured.help"), measured), list(t("speed.estimated"), t("speed.estimated.help"), estimated),
    h("p", { class: "td-speed-tune" }, icon("chart"), h("span", {}, t("speed.tune"))));
}

function elsewherePart({ offers }) {
  if (!offers.length) return null;
  const columns = ["place", "time", "gpu_hours", "energy", "cost"];
  const cell = (name, value) => h("td", { dataset: { label: t(`cost.column.${name}`) } }, value);
  return h("section", { class: "td-section" }, h("h2", {}, t("cost.elsewhere")), h("p", { class: "td-muted" }, t("cost.elsewhere.help")),
    h("div", { class: "td-table-box td-cards-table" }, h("table", { class: "td-table" }, h("caption", { class: "td-offscreen" }, t("cost.elsewhere")),
      h("thead", {}, h("tr", {}, columns.map((name) => h("th", { scope: "col" }, t(`cost.column.${name}`))))),
      h("tbody", {}, offers.map((offer, at) => h("tr", { title: offer.source }, cell("place", at === 0 ? t("cost.here", { card: offer.place }) : offer.place), cell("time", f.duration(offer.seconds)),
        cell("gpu_hours", f.number(offer.gpu_hours, 3)), cell("energy", kwh(offer.kwh)), cell("cost", money(offer.cost, offer.currency))))))));
}
