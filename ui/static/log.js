// Turns windows of a console log into a terminal-like view: follows the end, loads earlier lines on demand, searches, filters by level.

import { get, root, runPath } from "./api.js";
import { h, icon, replace, setAttr, setText, show } from "./dom.js";
import * as f from "./format.js";
import { t, tn } from "./text.js";
import { button, emptyNote, iconButton, linkButton } from "./widgets.js";

const MOST_LINES = 5_000; // nodes kept in the page; earlier lines can be loaded again
const WINDOW = 500;
const TAIL = 8;
const LEVELS = { "": 0, debug: 0, info: 0, warning: 1, error: 2 };

export function logSection(id) {
  const view = new LogView(id);
  return view;
}

class LogView {
  constructor(id) {
    this.id = id;
    this.lines = []; // in order of their byte offset
    this.open = null;
    this.size = 0;
    this.level = 0;
    this.following = true;
    this.build();
  }

  build() {
    this.box = h("div", { class: "td-log-lines", role: "log", tabindex: 0, "aria-label": t("tab.log"), "aria-live": "off" });
    this.openNode = h("div", { class: "td-log-line td-log-open", hidden: true });
    this.earlier = button(t("log.earlier"), { kind: "quiet", iconName: "up", onclick: () => this.loadEarlier() });
    this.search = h("input", { type: "search", class: "td-input", placeholder: t("log.search"), "aria-label": t("log.search"), oninput: () => this.find(0), onkeydown: (event) => event.key === "Enter" && this.find(event.shiftKey ? -1 : 1) });
    this.found = h("span", { class: "td-muted", role: "status" });
    this.followButton = button(t("log.follow"), { iconName: "down", onclick: () => this.follow(!this.following) });
    this.wrapButton = button(t("log.wrap"), { onclick: () => this.wrap() });
    this.levels = h("select", { class: "td-input", "aria-label": t("log.level"), onchange: () => this.filter() }, [0, 1, 2].map((level) => h("option", { value: level }, t(`log.level.${level}`))));
    this.errorButton = button(t("log.first_error"), { iconName: "failed", onclick: () => this.toFirstError(), hidden: true });
    this.facts = h("span", { class: "td-muted" });
    this.empty = h("div", {});
    this.node = h("div", { class: "td-log" },
      h("div", { class: "td-toolbar" },
        h("label", { class: "td-search" }, icon("search"), this.search), iconButton(t("log.previous"), "up", () => this.find(-1)), iconButton(t("log.next"), "down", () => this.find(1)), this.found,
        h("span", { class: "td-grow" }), this.levels, this.errorButton, this.wrapButton, this.followButton,
        linkButton(t("log.download"), root() + runPath(this.id, "/log.txt"), { iconName: "download", download: "" })),
      h("div", { class: "td-log-box" }, this.earlier, this.box, this.empty), this.facts);
    this.box.append(this.openNode);
    this.box.addEventListener("scroll", () => this.scrolled());
    this.follow(true);
    this.wrap(localStorage.getItem("tunedeck.log.wrap") !== "no");
  }

  reset(window) {
    for (const line of this.lines) line.node.remove();
    this.lines = [];
    this.add(window.lines);
    this.setOpen(window.open);
    this.finish(window);
  }

  append(window) {
    const last = this.lines.at(-1)?.at ?? -1;
    this.add((window.lines ?? []).filter((line) => line.at > last)); // a line is known by its offset: never shown twice
    this.setOpen(window.open ?? null);
    this.finish(window);
  }

  finish(window) {
    this.size = window.size ?? this.size;
    this.draw();
    if (this.following) this.toEnd();
  }

  add(lines) {
    const fragment = document.createDocumentFragment();
    for (const line of lines) fragment.append(this.make(line));
    this.box.insertBefore(fragment, this.openNode);
    this.lines.push(...lines);
    if (this.lines.length > MOST_LINES && this.following) for (const line of this.lines.splice(0, this.lines.length - MOST_LINES)) line.node.remove();
  }

  make(line) {
    const number = h("span", { class: "td-log-n", "aria-hidden": "true" }, line.n ?? "");
    line.node = h("div", { class: `td-log-line${line.level ? ` td-log-${line.level}` : ""}` }, number, line.rank !== null && line.rank !== undefined && h("span", { class: "td-log-rank", title: t("log.rank", { rank: line.rank }) }, line.rank), h("span", { class: "td-log-text" }, line.text || "\u00a0"));
    if (this.hides(line)) line.node.hidden = true;
    return line.node;
  }

  setOpen(line) {
    this.open = line;
    show(this.openNode, Boolean(line?.text));
    setText(this.openNode, line?.text ?? "");
  }

  draw() {
    const first = this.lines[0];
    show(this.earlier, Boolean(first) && first.at > 0);
    const none = !this.lines.length && !this.open?.text;
    show(this.box, !none);
    replace(this.empty, none ? emptyNote(t("log.none"), t("log.none.help")) : []);
    setText(this.facts, none ? "" : [tn("log.lines", this.lines.length), f.bytes(this.size)].join(" · "));
    show(this.errorButton, this.lines.some((line) => line.level === "error"));
  }

  /** The last lines, for the small view under the charts. */
  tail() {
    const lines = this.lines.slice(-TAIL).map((line) => ({ text: line.text, level: line.level }));
    return this.open?.text ? [...lines.slice(1 - TAIL), { text: this.open.text, level: "" }] : lines;
  }

  async loadEarlier() {
    const first = this.lines[0];
    const window = await get(runPath(this.id, `/log?before=${first.at}&limit=${WINDOW}`)).catch((error) => ({ lines: [], problem: error.message }));
    if (window.problem) setText(this.found, window.problem);
    const lines = window.lines.filter((line) => line.at < first.at);
    const height = this.box.scrollHeight;
    this.follow(false);
    const fragment = document.createDocumentFragment();
    for (const line of lines) fragment.append(this.make(line));
    this.box.insertBefore(fragment, first.node);
    this.lines.unshift(...lines);
    this.box.scrollTop += this.box.scrollHeight - height; // the lines a person reads stay where they are
    this.draw();
  }

  follow(on) {
    this.following = on;
    setAttr(this.followButton, "aria-pressed", on ? "true" : "false");
    if (on) this.toEnd();
  }

  toEnd() {
    this.box.scrollTop = this.box.scrollHeight;
  }

  scrolled() {
    const atEnd = this.box.scrollHeight - this.box.scrollTop - this.box.clientHeight < 8;
    if (atEnd !== this.following && this.box.clientHeight > 0) this.follow(atEnd);
  }

  wrap(on = !this.box.classList.contains("td-log-wrap")) {
    this.box.classList.toggle("td-log-wrap", on);
    setAttr(this.wrapButton, "aria-pressed", on ? "true" : "false");
    localStorage.setItem("tunedeck.log.wrap", on ? "yes" : "no");
  }

  hides(line) {
    return (LEVELS[line.level] ?? 0) < this.level;
  }

  filter() {
    this.level = Number(this.levels.value);
    for (const line of this.lines) line.node.hidden = this.hides(line);
    if (this.following) this.toEnd();
  }

  /** `step` 0: the term changed; 1 and -1: next and previous hit. */
  find(step) {
    const term = this.search.value.trim().toLowerCase();
    const hits = term ? this.lines.filter((line) => !this.hides(line) && line.text.toLowerCase().includes(term)) : [];
    for (const line of this.lines) line.node.classList.remove("td-log-hit", "td-log-here");
    for (const line of hits) line.node.classList.add("td-log-hit");
    const before = hits.indexOf(this.hit);
    const at = step === 0 || before < 0 ? hits.length - 1 : (before + step + hits.length) % hits.length;
    this.hit = hits[at] ?? null;
    setText(this.found, !term ? "" : hits.length ? t("log.found", { at: at + 1, n: hits.length }) : t("log.not_found"));
    if (this.hit) this.reveal(this.hit);
  }

  toFirstError() {
    const line = this.lines.find((item) => item.level === "error");
    if (line) this.reveal(line);
  }

  reveal(line) {
    this.follow(false);
    line.node.classList.add("td-log-here");
    this.box.scrollTop = line.node.offsetTop - this.box.offsetTop - this.box.clientHeight / 3;
  }

  visible(on) {
    if (on && this.following) requestAnimationFrame(() => this.toEnd());
  }
}

