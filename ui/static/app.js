// Turns the address into a page: Home, Runs and Run are drawn here without reloads; every other address is a page load.

import { ask, root, snapshotPaths } from "./api.js";
import { startFrame as drawFrame } from "./frame.js";
import { t, useCatalogue } from "./text.js";

// The name of each monitoring page is its path; its module is fetched when first needed.
const PAGES = {
  "": () => import("./home.js"),
  runs: () => import("./runs.js"),
  run: () => import("./run.js"),
  tune: () => import("./tune.js"),
  sweep: () => import("./sweep.js"),
  compare: () => import("./compare.js"),
  gpus: () => import("./gpu_page.js"),
  doctor: () => import("./doctor.js"),
};

let config = null;
let current = null; // {name, close()}
let main = null;

askEarly();

let configured;
const configuring = new Promise((resolve) => (configured = resolve));

/** The frame comes with the configuration of the page: {lang, prefix ("" or "/zh"), text, assets}. */
export function startFrame(element, configuration) {
  config = configuration;
  useCatalogue(config.lang, config.text);
  document.documentElement.lang = config.lang === "zh" ? "zh-CN" : "en";
  drawFrame(element, { page: pageName(), href, swapLanguage });
  configured();
}

/** The place of the page's content; Gradio may start it before the frame. */
export async function startPage(element) {
  await configuring;
  main = element.querySelector(".td-main");
  main.id = "td-main";
  main.tabIndex = -1;
  document.addEventListener("click", onClick);
  window.addEventListener("popstate", draw);
  return draw();
}

/** Address of one of our pages in the language of this one: `href("run", {id})`. */
export function href(page, query = {}) {
  const search = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== ""));
  return `${root()}${config.prefix}/${page}${search.size ? `?${search}` : ""}`;
}

export function navigate(address) {
  if (!(pageOf(new URL(address, location.href)) in PAGES) || !main) {
    location.href = address;
    return;
  }
  history.pushState(null, "", address);
  draw();
  main.focus({ preventScroll: true });
  window.scrollTo(0, 0);
}

/** Keeps view state in the address without a new history entry. */
export function rememberInAddress(changes) {
  const url = new URL(location.href);
  for (const [key, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "") url.searchParams.delete(key);
    else url.searchParams.set(key, value);
  }
  if (url.href !== location.href) history.replaceState(history.state, "", url);
}

/** Address of a file that the server named in the page's configuration, e.g. the chart library. */
export function asset(name) {
  return root() + config.assets[name];
}

function swapLanguage() {
  const other = config.lang === "zh" ? "en" : "zh";
  const here = location.pathname.slice(root().length + config.prefix.length) || "/";
  return `${root()}/lang/${other}?next=${encodeURIComponent(here + location.search)}`;
}

function pageName() {
  return pageOf(new URL(location.href));
}

function pageOf(url) {
  const base = `${root()}${config.prefix}/`;
  if (url.origin !== location.origin || !`${url.pathname}/`.startsWith(base)) return null;
  return url.pathname.slice(base.length).replace(/\/$/, "");
}

function onClick(event) {
  const link = event.target.closest?.("a[href]");
  if (!link || event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  if (link.target || link.hasAttribute("download") || !(pageOf(new URL(link.href)) in PAGES)) return;
  event.preventDefault();
  navigate(link.href);
}

async function draw() {
  const name = pageName();
  const query = new URLSearchParams(location.search);
  // The same page with another view (a tab, a filter) keeps its node and its connection.
  if (current?.name === name && current.update?.(query)) return;
  current?.close();
  const here = { name, close() { this.closed = true; } };
  current = here;
  main.replaceChildren();
  document.dispatchEvent(new CustomEvent("tunedeck:page", { detail: name }));
  const module = await PAGES[name]();
  if (here.closed) return; // the person went on before the module came
  const page = module.open(main, query);
  Object.assign(here, { update: (q) => page.update?.(q) ?? false, close: () => page.close() });
  document.title = `${page.title} · ${t("app.name")}`;
}

/** This module runs while Gradio starts: what the page will need first is asked for at once. */
function askEarly() {
  if (document.readyState === "complete") return; // loaded late, by a page without our own head
  ask("/api/state");
  const id = /^(\/zh)?\/run\/?$/.test(location.pathname.slice(root().length)) && new URLSearchParams(location.search).get("id");
  if (id) Object.values(snapshotPaths(id)).forEach(ask);
}
