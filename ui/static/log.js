// Turns windows of a console log into a terminal-like view: follows the end, loads earlier and later lines on demand, shows what a search found.

import { get, root, runPath } from "./api.js";
import { h, replace, setAttr, setText, show } from "./dom.js";
import * as f from "./format.js";
import { LogSearch } from "./log_search.js";
import { t, tn } from "./text.js";
import { button, emptyNote, linkButton } from "./widgets.js";

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
    this.rank = null;
    this.following = true;
    this.detached = false; // the lines shown end before the log's: new ones do not belong behind them
    this.newest = 0; // where the next live line starts
    this.build();
  }

  build() {
    this.box = h("div", { class: "td-log-lines", role: "log", tabindex: 0, "aria-label": t("tab.log"), "aria-live": "off" });
    this.openNode = h("div", { class: "td-log-line td-log-open", hidden: true });
    this.earlier = button(t("log.earlier"), { kind: "quiet", iconName: "up", onclick: () => this.loadEarlier() });
    this.later = button(t("log.later"), { kind: "quiet", iconName: "down", class: "td-button td-button-quiet td-log-later", onclick: () => this.loadLater() });
    this.search = new LogSearch(this.id, { onReveal: (hit) => this.show(hit), onFilter: (level, rank) => this.filter(level, rank) });
    this.problem = h("p", { class: "td-bad", role: "alert", hidden: true });
    this.followButton = button(t("log.follow"), { iconName: "down", onclick: () => (this.detached ? this.toTail() : this.follow(!this.following)) });
    this.wrapButton = button(t("log.wrap"), { onclick: () => this.wrap() });
    this.errorButton = button(t("log.first_error"), { iconName: "failed", onclick: () => this.search.firstError() });
    this.facts = h("span", { class: "td-muted" });
    this.empty = h("div", {});
    this.node = h("div", { class: "td-log" },
      h("div", { class: "td-toolbar" },
        this.search.parts, h("span", { class: "td-grow" }), this.errorButton, this.wrapButton, this.followButton,
        linkButton(t("log.download"), root() + runPath(this.id, "/log.txt"), { iconName: "download", download: "" })),
      this.problem, this.search.results, h("div", { class: "td-log-box" }, this.earlier, this.box, this.later, this.empty), this.facts);
    this.box.append(this.openNode);
    this.box.addEventListener("scroll", () => this.scrolled());
    this.onKey = (event) => this.shortcut(event);
    document.addEventListener("keydown", this.onKey);
    this.follow(true);
    this.wrap(localStorage.getItem("tunedeck.log.wrap") !== "no");
  }

  reset(window) {
    for (const line of this.lines) line.node.remove();
    this.lines = [];
    this.detached = false;
    this.newest = window.next ?? 0;
    this.add(window.lines);
    this.setOpen(window.open);
    this.finish(window);
  }

  append(window) {
    this.newest = window.next ?? this.newest;
    this.size = window.size ?? this.size;
    if (this.detached) {
      this.draw();
      return;
    }
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
    show(this.later, this.detached);
    this.search.offerRanks(Math.max(0, ...this.lines.map((line) => (line.rank ?? -1) + 1)));
    const none = !this.lines.length && !this.open?.text;
    show(this.box, !none);
    replace(this.empty, none ? emptyNote(t("log.none"), t("log.none.help")) : []);
    setText(this.facts, none ? "" : [tn("log.lines", this.lines.length), f.bytes(this.size)].join(" · "));
    show(this.errorButton, !none);
  }

  /** The last lines, for the small view under the charts. */
  tail() {
    const lines = this.lines.slice(-TAIL).map((line) => ({ text: line.text, level: line.level }));
    return this.open?.text ? [...lines.slice(1 - TAIL), { text: this.open.text, level: "" }] : lines;
  }

  async loadEarlier() {
    const first = this.lines[0];
    const window = await this.ask(`before=${first.at}&limit=${WINDOW}`);
    if (!window) return;
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
    if (!this.detached && atEnd !== this.following && this.box.clientHeight > 0) this.follow(atEnd);
  }

  wrap(on = !this.box.classList.contains("td-log-wrap")) {
    this.box.classList.toggle("td-log-wrap", on);
    setAttr(this.wrapButton, "aria-pressed", on ? "true" : "false");
    localStorage.setItem("tunedeck.log.wrap", on ? "yes" : "no");
  }

  hides(line) {
    return (LEVELS[line.level] ?? 0) < this.level || (this.rank !== null && line.rank !== this.rank);
  }

  filter(level, rank) {
    Object.assign(this, { level, rank });
    for (const line of this.lines) line.node.hidden = this.hides(line);
    if (this.following) this.toEnd();
  }

  /** A window of the log, or null and the reason on the page. */
  async ask(words) {
    try {
      const window = await get(runPath(this.id, `/log?${words}`));
      show(this.problem, false);
      return window;
    } catch (error) {
      setText(this.problem, error.message);
      show(this.problem, true);
      return null;
    }
  }

  /** The line of a hit: scrolled to when it is loaded, else the lines around it take the place of those shown. */
  async show(hit) {
    this.follow(false);
    if (!this.lines.some((line) => line.at === hit.line.at)) {
      const [before, after] = await Promise.all([this.ask(`before=${hit.end}&limit=${WINDOW / 2}`), this.ask(`offset=${hit.end}&limit=${WINDOW / 2}`)]);
      if (!before || !after) return;
      this.reset({ ...after, lines: [...before.lines, ...after.lines], open: null, next: this.newest });
      this.detached = true;
      this.end = after.next;
      this.draw();
      if (after.open || after.next >= after.size) await this.loadLater();
    }
    const line = this.lines.find((item) => item.at === hit.line.at);
    if (line) this.reveal(line);
  }

  /** More lines behind those shown; at the end of the log the view is live again. */
  async loadLater() {
    const window = await this.ask(`offset=${this.end}&limit=${WINDOW}`);
    if (!window || !this.detached) return;
    const last = this.lines.at(-1)?.at ?? -1;
    this.add(window.lines.filter((line) => line.at > last));
    this.end = window.next;
    if ((window.open || window.next >= window.size) && window.next >= this.newest) {
      this.detached = false;
      this.setOpen(window.open);
    }
    this.draw();
  }

  /** Back to the end of the log. */
  async toTail() {
    const window = await this.ask(`offset=-${WINDOW}`);
    if (!window) return;
    this.following = true;
    this.reset(window);
    this.follow(true);
    this.box.scrollIntoView({ block: "nearest" });
  }

  reveal(line) {
    this.follow(false);
    for (const node of this.box.querySelectorAll(".td-log-here")) node.classList.remove("td-log-here");
    line.node.hidden = false;
    line.node.classList.add("td-log-here");
    this.box.scrollTop = line.node.offsetTop - this.box.clientHeight / 3;
    line.node.scrollIntoView({ block: "nearest" }); // the box may reach below the window
  }

  setDetail({ job }) {
    this.search.offerRanks(job.processes ?? 0);
  }

  /** "/" goes to the search, as in a pager. */
  shortcut(event) {
    const typing = event.target instanceof Element && event.target.closest("input, textarea, select, [contenteditable], dialog");
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey || !this.node.offsetParent) return;
    event.preventDefault();
    this.search.input.focus();
  }

  close() {
    document.removeEventListener("keydown", this.onKey);
    this.search.close();
  }

  visible(on) {
    if (on && this.following) requestAnimationFrame(() => this.toEnd());
  }
}

