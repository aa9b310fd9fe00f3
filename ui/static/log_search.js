// Turns a search term, a level and a rank into hits of the whole log: portion by portion from the server, counted, with their neighbours.

import { get, runPath } from "./api.js";
import { h, icon, replace, setAttr, setText, show } from "./dom.js";
import * as f from "./format.js";
import { t, tn } from "./text.js";
import { button, iconButton } from "./widgets.js";

const MOST_HITS = 500; // kept of one search; "more" goes on behind them
const WAIT_MS = 350;
const LEVEL_WORDS = ["", "warning", "error"];

/** `onReveal(hit)` shows a line in the log, `onFilter(level, rank)` hides others there. */
export class LogSearch {
  constructor(id, { onReveal, onFilter }) {
    Object.assign(this, { id, onReveal, onFilter, hits: [], at: -1, ranks: 0 });
    this.input = h("input", { type: "search", class: "td-input", placeholder: t("log.search"), "aria-label": t("log.search"), "aria-keyshortcuts": "/", maxlength: 1000, oninput: () => this.later(), onkeydown: (event) => this.key(event) });
    this.regex = this.toggle(".*", "log.regex");
    this.match = this.toggle("Aa", "log.match_case");
    this.level = h("select", { class: "td-input", "aria-label": t("log.level"), onchange: () => this.filtered() }, [0, 1, 2].map((level) => h("option", { value: level }, t(`log.level.${level}`))));
    this.rank = h("select", { class: "td-input", "aria-label": t("log.rank_filter"), hidden: true, onchange: () => this.filtered() }, h("option", { value: "" }, t("log.all_ranks")));
    this.status = h("span", { class: "td-muted td-log-found", role: "status" });
    this.cancel = button(t("cancel"), { kind: "quiet", iconName: "close", hidden: true, onclick: () => this.stop(true) });
    this.previous = iconButton(t("log.previous"), "up", () => this.step(-1), { disabled: true });
    this.next = iconButton(t("log.next"), "down", () => this.step(1), { disabled: true });
    this.list = h("ol", { class: "td-log-hits", "aria-label": t("log.hits") });
    this.more = button(t("log.more"), { kind: "quiet", hidden: true, onclick: () => this.loadMore() });
    this.results = h("details", { class: "td-log-results", open: true, hidden: true }, h("summary", {}, t("log.hits"), this.count = h("span", { class: "td-muted" })), this.list, this.more);
    this.parts = [h("label", { class: "td-search" }, icon("search"), this.input), this.regex, this.match, this.level, this.rank, this.previous, this.next, this.status, this.cancel];
  }

  toggle(sign, key) {
    const node = h("button", { type: "button", class: "td-button td-log-toggle", title: t(key), "aria-label": t(key), "aria-pressed": "false" }, sign);
    node.addEventListener("click", () => {
      setAttr(node, "aria-pressed", node.getAttribute("aria-pressed") === "true" ? "false" : "true");
      this.start();
    });
    return node;
  }

  /** As many ranks as the run has, and those its lines name. */
  offerRanks(count) {
    for (; this.ranks < Math.min(count, 1024); this.ranks += 1) this.rank.append(h("option", { value: this.ranks }, t("log.rank", { rank: this.ranks })));
    show(this.rank, this.ranks > 1);
  }

  key(event) {
    if (event.key === "Escape" && this.input.value) {
      event.preventDefault();
      this.input.value = "";
      this.start();
    }
    if (event.key !== "Enter") return;
    event.preventDefault();
    if (this.waiting) this.start();
    else this.step(event.shiftKey ? -1 : 1);
  }

  later() {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.start(), WAIT_MS);
  }

  filtered() {
    this.onFilter(Number(this.level.value), this.rank.value === "" ? null : Number(this.rank.value));
    this.start();
  }

  query() {
    const on = (node) => node.getAttribute("aria-pressed") === "true";
    return { q: this.input.value, regex: on(this.regex), case: on(this.match), level: LEVEL_WORDS[this.level.value], rank: this.rank.value };
  }

  stop(told = false) {
    clearTimeout(this.waiting);
    this.waiting = null;
    this.running?.abort();
    this.running = null;
    show(this.cancel, false);
    if (told) this.tell(t("log.search.stopped", { share: f.percent(100 * (this.size ? this.place / this.size : 1)) }));
  }

  start() {
    this.stop();
    const query = this.query();
    Object.assign(this, { hits: [], total: 0, at: -1, place: 0, size: 0 });
    const wanted = Boolean(query.q || query.level || query.rank !== "");
    show(this.results, wanted);
    replace(this.list);
    this.draw();
    if (wanted) this.run(query, { from: 0, line: 1 }, true);
    else this.tell("");
  }

  /** Goes on until the end of the log: every answer takes the server about a second, and `stop` ends it between two. */
  async run(query, from, counts) {
    const running = (this.running = new AbortController());
    const most = this.hits.length + MOST_HITS;
    this.tell(t("log.searching", { share: f.percent(0) }));
    try {
      for (let place = from; place; ) {
        const answer = await this.ask(query, place, Math.min(MOST_HITS, most - this.hits.length), {}, running.signal);
        if (running !== this.running) return;
        this.place = answer.next;
        this.size = answer.size;
        if (counts) this.total += answer.count;
        this.add(answer.hits);
        place = answer.done || (!counts && this.hits.length >= most) ? null : { from: answer.next, line: answer.line };
        this.tell(place ? t("log.searching", { share: f.percent((100 * answer.next) / answer.size) }) : "");
        show(this.cancel, Boolean(place));
      }
      this.stop();
      this.draw();
    } catch (error) {
      if (error.name === "AbortError") return;
      this.stop();
      this.tell(error.message, true);
    }
  }

  ask(query, place, limit, more, signal) {
    const words = { ...query, from: place.from, line: place.line, limit, ...more };
    const given = Object.entries(words).filter(([, value]) => value !== "" && value !== null && value !== undefined && value !== false);
    return get(runPath(this.id, `/log/search?${new URLSearchParams(given)}`), { signal });
  }

  add(hits) {
    const first = this.hits.length;
    this.hits.push(...hits);
    const nodes = hits.map((hit, index) => this.hitNode(hit, first + index));
    this.list.append(...nodes);
    this.draw();
    if (first === 0 && hits.length) this.choose(0, false);
  }

  draw() {
    setText(this.count, this.hits.length < this.total ? t("log.capped", { shown: f.integer(this.hits.length), n: f.integer(this.total) }) : tn("log.matches", this.total ?? 0));
    show(this.more, !this.running && this.hits.length < this.total);
    for (const node of [this.previous, this.next]) node.disabled = !this.hits.length;
    if (!this.running && !this.failed) this.tell("");
  }

  /** Words of its own, or where one stands among the hits. */
  tell(words, failed = false) {
    this.failed = failed;
    setAttr(this.status, "role", failed ? "alert" : "status");
    this.status.classList.toggle("td-bad", failed);
    const asked = !this.results.hidden;
    const place = !asked ? "" : this.hits.length ? t("log.found", { at: f.integer(this.at + 1), n: f.integer(this.total) }) : t("log.not_found");
    setText(this.status, words && this.hits.length && !failed ? `${place} · ${words}` : words || place);
  }

  hitNode(hit, index) {
    const near = (line) => h("span", { class: "td-log-near" }, h("i", {}, line.n ?? ""), h("span", {}, line.text));
    const node = h("button", { type: "button", class: "td-log-result", onclick: () => this.choose(index, true) },
      hit.before.map(near), h("span", { class: `td-log-match${hit.line.level ? ` td-log-${hit.line.level}` : ""}` }, h("i", {}, hit.line.n ?? ""), h("span", {}, marked(hit))), hit.after.map(near));
    return h("li", {}, node);
  }

  step(by) {
    if (!this.hits.length) return;
    const from = this.revealed ? this.at + by : this.at; // the first key shows the hit that is chosen already
    this.choose((from + this.hits.length) % this.hits.length, true);
  }

  choose(index, reveal) {
    this.list.children[this.at]?.classList.remove("td-log-chosen");
    this.at = index;
    const node = this.list.children[index];
    node.classList.add("td-log-chosen");
    if (this.results.open) this.list.scrollTop = node.offsetTop - this.list.offsetTop - this.list.clientHeight / 3;
    if (!this.running) this.tell("");
    this.revealed = reveal;
    if (reveal) this.onReveal(this.hits[index]);
  }

  loadMore() {
    const last = this.hits.at(-1);
    this.run(this.query(), { from: last.end, line: last.line.n === null ? null : last.line.n + 1 }, false);
  }

  async firstError() {
    this.stop();
    this.tell(t("log.searching", { share: f.percent(0) }));
    try {
      for (let place = { from: 0, line: 1 }; ; ) {
        const answer = await this.ask({ level: "error" }, place, 1, { first: true, context: 0 });
        if (answer.hits.length) {
          this.tell("");
          this.onReveal(answer.hits[0]);
          return;
        }
        if (answer.done) break;
        place = { from: answer.next, line: answer.line };
      }
      this.tell(t("log.no_error"));
    } catch (error) {
      this.tell(error.message, true);
    }
  }

  close() {
    this.stop();
  }
}

function marked({ line, spans }) {
  const parts = [];
  let at = 0;
  for (const [from, to] of spans) {
    parts.push(line.text.slice(at, from), h("mark", {}, line.text.slice(from, to)));
    at = to;
  }
  return [...parts, line.text.slice(at)];
}
