// Turns the state of host and connection into the frame of every page: navigation, GPU strip, connection pill, language, theme.

import { h, icon, keyed, replace, setAttr, setClass, setText, show } from "./dom.js";
import { bytes, number, percent } from "./format.js";
import { followHost, onState, onStatus } from "./host.js";
import { applyTheme, chosenTheme, nextTheme } from "./theme.js";
import { t, tn } from "./text.js";

// Above this a GPU counts as at work, whoever uses it.
const BUSY_PERCENT = 5;
const LINKS = [["", "home", "nav.home"], ["runs", "list", "nav.runs"], ["gpus", "gpu", "nav.gpus"]];

export function startFrame(element, { page, href, swapLanguage }) {
  applyTheme(chosenTheme());
  const links = LINKS.map(([name, iconName, key]) => h("a", { href: href(name), dataset: { page: name } }, icon(iconName), h("span", {}, t(key))));
  const create = h("a", { class: "td-button td-button-primary td-top-new", href: href("new"), dataset: { page: "new" } }, icon("plus"), h("span", {}, t("nav.new")));
  const language = h("a", { class: "td-top-language", href: swapLanguage(), title: t("nav.language"), onclick: () => setAttr(language, "href", swapLanguage()) },
    icon("language"), h("span", { lang: t("nav.language_code") }, t("nav.language_name")));
  const strip = gpuStrip(href("gpus"));
  replace(element, h("header", { class: "td-top" },
    h("a", { class: "td-skip", href: "#td-main" }, t("nav.skip")),
    h("a", { class: "td-brand", href: href(""), "aria-label": t("nav.brand") }, icon("logo"), h("span", {}, t("app.name"))),
    h("nav", { class: "td-nav", "aria-label": t("nav.label") }, links),
    h("div", { class: "td-top-right" }, strip, connectionPill(), language, themeButton(), create)));
  const mark = (name) => {
    for (const link of [...links, create]) {
      const here = link.dataset.page === name || (["run", "compare"].includes(name) && link.dataset.page === "runs") || (name === "doctor" && link.dataset.page === "gpus");
      setAttr(link, "aria-current", here ? "page" : null);
    }
    followHost(name === "run" ? "slow" : "live");
  };
  mark(page);
  document.addEventListener("tunedeck:page", (event) => mark(event.detail));
}

function connectionPill() {
  const words = h("span", {});
  const node = h("button", { type: "button", class: "td-live", "aria-live": "polite" }, h("span", { class: "td-live-dot" }), words);
  let connection = null;
  node.addEventListener("click", () => connection?.retryNow());
  onStatus((status, live) => {
    connection = live;
    setClass(node, `td-live td-live-${status}`);
    setText(words, t(`live.${status}`));
    setAttr(node, "title", t(`live.${status}.help`));
    setAttr(node, "tabindex", status === "waiting" ? null : -1);
  });
  return h("div", { role: "status" }, node);
}

function gpuStrip(address) {
  const bars = h("span", { class: "td-strip-bars" });
  const words = h("span", { class: "td-strip-words" });
  const node = h("a", { class: "td-strip", href: address, hidden: true }, bars, words);
  onState((state) => {
    const gpus = state.gpus ?? [];
    show(node, true);
    setClass(node, `td-strip${gpus.length ? "" : " td-strip-cpu"}`);
    keyed(bars, gpus.slice(0, 16), (gpu) => gpu.id, () => h("span", { class: "td-strip-bar" }, h("i", {})), updateStripBar);
    const busy = gpus.filter((gpu) => gpu.leased_by || gpu.gfx_activity_percent > BUSY_PERCENT).length;
    setText(words, gpus.length ? t("strip.busy", { busy, all: gpus.length }) : t("strip.cpu"));
    setAttr(node, "aria-label", gpus.length ? tn("strip.label", gpus.length, { busy }) : t("strip.cpu.help"));
    setAttr(node, "title", gpus.length ? null : t("strip.cpu.help"));
  });
  return node;
}

function updateStripBar(node, gpu) {
  const known = Number.isFinite(gpu.gfx_activity_percent);
  node.firstChild.style.height = known ? `${Math.max(4, gpu.gfx_activity_percent)}%` : "0";
  setClass(node, `td-strip-bar${known ? "" : " td-strip-missing"}`);
  setAttr(node, "title", [gpu.name || gpu.id, percent(gpu.gfx_activity_percent), bytes(gpu.vram_used_bytes), `${number(gpu.hotspot_celsius ?? gpu.edge_celsius, 3)} °C`].join(" · "));
}

function themeButton() {
  const node = h("button", { type: "button", class: "td-icon-button" });
  const draw = () => {
    const dark = document.body.classList.contains("dark");
    replace(node, icon(dark ? "sun" : "moon"));
    setAttr(node, "aria-label", t(dark ? "nav.light" : "nav.dark"));
    setAttr(node, "title", t(dark ? "nav.light" : "nav.dark"));
  };
  node.addEventListener("click", () => applyTheme(nextTheme()));
  new MutationObserver(draw).observe(document.body, { attributes: true, attributeFilter: ["class"] });
  draw();
  return node;
}
