// Turns the ids in the address into a comparison of runs: table of figures, settings that differ, curves over each other.

import { href, navigate, rememberInAddress } from "./app.js";
import { get, root } from "./api.js";
import { styleOf } from "./chart_defs.js";
import { CompareCharts } from "./compare_charts.js";
import { pickRuns } from "./compare_picker.js";
import { FIGURES, figureText, groupRuns, meanText, reasonsOf, settingText, sortRuns, tableCsv } from "./compare_table.js";
import { h, icon, keyed, replace, setAttr, setClass, setText, show } from "./dom.js";
import { isFinal, tags } from "./jobs.js";
import { notesDialog } from "./notes.js";
import { lang, t, tn } from "./text.js";
import { button, emptyNote, iconButton, linkButton, problemNote, save, skeleton, statePill, updatePill } from "./widgets.js";

const REFRESH_MS = 10_000;

export function open(main, query) {
  const page = new ComparePage(main);
  page.fromAddress(query);
  return {
    title: t("compare.title"),
    update(next) {
      page.fromAddress(next);
      return true;
    },
    close: () => page.close(),
  };
}

class ComparePage {
  constructor(main) {
    this.ids = null;
    this.hidden = new Set();
    this.groups = []; // [{label, runs}]
    this.data = null;
    this.count = h("p", { class: "td-muted", role: "status" });
    this.groupSelect = h("select", { class: "td-input", onchange: () => this.change({ group: this.groupSelect.value }) });
    this.report = linkButton(t("compare.report"), "", { iconName: "download", download: "", title: t("compare.report.help") });
    this.head = h("tr", {});
    this.rows = h("tbody", {});
    this.table = h("table", { class: "td-table td-compare-table" }, h("caption", { class: "td-offscreen" }, t("compare.table")), h("thead", {}, this.head), this.rows);
    this.notes = h("div", {});
    this.settings = h("section", { class: "td-section" });
    this.charts = new CompareCharts({ hidden: this.hidden, group: (id) => this.groupOf(id) });
    this.wait = h("div", {}, skeleton(6));
    this.body = h("div", { hidden: true },
      h("div", { class: "td-toolbar" }, this.count, h("label", { class: "td-inline" }, h("span", {}, t("compare.group")), this.groupSelect), h("span", { class: "td-grow" }),
        button(t("compare.add"), { iconName: "plus", onclick: () => this.add() }), button(t("compare.csv"), { iconName: "download", onclick: () => this.saveTable() }), this.report),
      h("div", { class: "td-table-box td-compare-box", tabindex: 0, role: "region", "aria-label": t("compare.table") }, this.table), this.notes, this.settings,
      h("section", { class: "td-section" }, h("h2", {}, t("compare.curves")), this.charts.node));
    main.append(h("div", { class: "td-page td-compare" },
      h("nav", { class: "td-crumbs", "aria-label": t("nav.crumbs") }, h("a", { href: href("runs") }, icon("list"), h("span", {}, t("nav.runs")))),
      h("div", { class: "td-page-head" }, h("h1", {}, t("compare.title"))), this.wait, this.body));
    this.clock = setInterval(() => this.refresh(), REFRESH_MS);
  }

  fromAddress(query) {
    const ids = [...new Set((query.get("runs") ?? "").split(",").filter(Boolean))];
    this.view = { group: query.get("group") ?? "", sort: query.get("sort") ?? "", order: query.get("order") ?? "asc" };
    if (ids.join() === this.ids?.join()) {
      if (this.data) this.draw();
      return;
    }
    this.ids = ids;
    this.load();
  }

  change(changes) {
    Object.assign(this.view, changes);
    rememberInAddress({ ...this.view, order: this.view.order === "asc" ? "" : this.view.order });
    this.draw();
    this.charts.everything();
  }

  async load() {
    const { ids } = this;
    if (!ids.length) return this.showEmpty();
    try {
      const data = await get(`/api/compare?runs=${ids.map(encodeURIComponent).join(",")}`);
      if (this.closed || ids !== this.ids) return undefined;
      this.data = data;
    } catch (error) {
      if (this.closed || ids !== this.ids) return undefined;
      show(this.wait, true);
      replace(this.wait, error.status === 404 ? [problemNote(t("compare.all_gone"), null), this.startNote()] : problemNote(error.message, () => this.load()));
      return undefined;
    }
    show(this.wait, false);
    show(this.body, true);
    this.draw();
    return this.charts.setRuns(this.data.runs);
  }

  /** Figures of those that still run, without touching what is on screen. */
  async refresh() {
    if (!this.data || this.data.runs.every((run) => isFinal(run.job)) || document.hidden) return;
    const { ids } = this;
    const data = await get(`/api/compare?runs=${ids.map(encodeURIComponent).join(",")}`).catch(() => null); // the next turn asks again
    if (!data || this.closed || ids !== this.ids) return;
    const before = this.data;
    this.data = data;
    this.draw();
    await this.charts.refreshEnergy();
    const more = data.runs.some((run, i) => run.keys.length !== before.runs[i]?.keys.length || run.job.state !== before.runs[i]?.job.state);
    if (more) this.charts.setRuns(data.runs);
  }

  showEmpty() {
    show(this.body, false);
    show(this.wait, true);
    replace(this.wait, this.startNote());
  }

  startNote() {
    return emptyNote(t("compare.empty"), t("compare.empty.help"), button(t("compare.choose"), { kind: "primary", iconName: "plus", onclick: () => this.add() }));
  }

  // ---- what is shown ----

  draw() {
    const { data, view } = this;
    const groupKeys = data.differences.map((row) => row.key);
    if (view.group && !groupKeys.includes(view.group)) view.group = "";
    this.groups = groupRuns(data, view.group);
    setText(this.count, [tn("compare.count", data.runs.length), data.absent.length ? tn("compare.absent", data.absent.length) : ""].filter(Boolean).join(" · "));
    replace(this.groupSelect, h("option", { value: "" }, t("compare.group.none")), groupKeys.map((key) => h("option", { value: key }, key)));
    this.groupSelect.value = view.group;
    this.groupSelect.disabled = groupKeys.length === 0;
    setAttr(this.report, "href", `${root()}/api/report?runs=${data.runs.map((run) => encodeURIComponent(run.job.id)).join(",")}&lang=${lang()}`);
    this.drawHead();
    this.drawRows();
    this.drawReasons();
    this.drawSettings();
  }

  drawHead() {
    const { sort, order } = this.view;
    const heading = (name, label, help = "") => {
      const flip = () => this.change({ sort: name, order: sort === name && order === "asc" ? "desc" : "asc" });
      return h("th", { scope: "col", title: help, "aria-sort": sort === name ? (order === "asc" ? "ascending" : "descending") : null, class: name === "name" ? "td-compare-name" : "td-compare-number" },
        h("button", { type: "button", class: "td-sort", dataset: { sort: name }, onclick: flip }, label, icon("chevron")));
    };
    const shown = JSON.stringify([sort, order, this.data.currency]);
    if (this.head.dataset.shown === shown) return;
    this.head.dataset.shown = shown;
    replace(this.head, heading("name", t("runs.column.name")), FIGURES.map((figure) => heading(figure, t(`figure.${figure}`) + (figure === "cost" && this.data.currency ? ` (${this.data.currency})` : ""), t(`figure.${figure}.help`))),
      h("th", { scope: "col" }, t("notes.notes")), h("th", { scope: "col" }, h("span", { class: "td-offscreen" }, t("runs.column.actions"))));
  }

  drawRows() {
    const items = this.groups.flatMap((group) => [...(group.label === null ? [] : [{ id: `group:${group.label}`, group }]), ...sortRuns(group.runs, this.view).map((run) => ({ id: `run:${run.job.id}`, run }))]);
    keyed(this.rows, items, (item) => item.id, (item) => (item.group ? groupRow() : this.runRow()), (node, item) => node.update(item.group ?? item.run));
  }

  runRow() {
    let run = null;
    const box = h("input", { type: "checkbox", onchange: () => this.toggle(run.job.id, box.checked) });
    const parts = { swatch: h("i", { class: "td-swatch" }), title: h("a", {}), tags: h("span", {}), pill: statePill("queued"), notes: h("td", { class: "td-compare-notes" }) };
    const cells = FIGURES.map(() => h("td", { class: "td-compare-number" }));
    const node = h("tr", {}, h("th", { scope: "row", class: "td-compare-name" }, h("div", { class: "td-compare-run" }, box, parts.swatch, h("div", {}, h("div", { class: "td-run-name" }, parts.title, parts.pill), parts.tags))), cells, parts.notes,
      h("td", {}, h("div", { class: "td-row-actions" }, iconButton(t("notes.edit"), "note", () => this.annotate(run.job)), iconButton(t("compare.remove"), "close", () => this.goTo(this.ids.filter((id) => id !== run.job.id))))));
    node.update = (next) => {
      run = next;
      const { job } = run;
      const style = styleOf(this.data.runs.indexOf(run), this.groupOf(job.id));
      box.checked = !this.hidden.has(job.id);
      setAttr(box, "aria-label", t("compare.show", { name: job.name }));
      setClass(node, box.checked ? "" : "td-compare-off");
      parts.swatch.style.setProperty("--swatch", `var(--td-${style.colour})`);
      setClass(parts.swatch, `td-swatch td-swatch-${style.dash}`);
      setText(parts.title, job.name);
      setAttr(parts.title, "href", href("run", { id: job.id }));
      updatePill(parts.pill, job.state);
      replace(parts.tags, tags(job));
      setText(parts.notes, job.notes);
      FIGURES.forEach((name, i) => drawFigure(cells[i], name, run.figures[name], this.best(name, run)));
    };
    return node;
  }

  /** Whether this run has the best value of a column that has a better and a worse. */
  best(name, run) {
    const others = this.data.runs.map((other) => other.figures[name].value).filter(Number.isFinite);
    const { value } = run.figures[name];
    if (others.length < 2 || !Number.isFinite(value) || Math.min(...others) === Math.max(...others)) return false;
    return value === (BETTER[name] === "low" ? Math.min(...others) : BETTER[name] === "high" ? Math.max(...others) : NaN);
  }

  drawReasons() {
    const reasons = reasonsOf(this.data);
    replace(this.notes, reasons.length ? h("ul", { class: "td-compare-reasons td-muted" }, reasons.map((text) => h("li", {}, text))) : []);
  }

  drawSettings() {
    const { runs, differences, shared } = this.data;
    const shown = JSON.stringify([differences, runs.map((run) => [run.job.id, run.job.name]), this.view.group]);
    if (shown === this.settingsShown) return;
    this.settingsShown = shown;
    const title = h("h2", {}, t("compare.settings"));
    const alike = h("p", { class: "td-muted" }, tn("compare.shared", shared));
    if (runs.length < 2) return void replace(this.settings, title, h("p", { class: "td-muted" }, t("compare.one")));
    if (!differences.length) return void replace(this.settings, title, h("p", {}, t("compare.same")), alike);
    const swatch = (i) => h("i", { class: `td-swatch td-swatch-${styleOf(i, this.groupOf(runs[i].job.id)).dash}`, style: { "--swatch": `var(--td-${styleOf(i, this.groupOf(runs[i].job.id)).colour})` } });
    replace(this.settings, title, alike, h("div", { class: "td-table-box td-compare-box", tabindex: 0, role: "region", "aria-label": t("compare.settings") }, h("table", { class: "td-table td-compare-table td-compare-settings" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col", class: "td-compare-name" }, t("compare.setting")), runs.map((run, i) => h("th", { scope: "col" }, h("span", { class: "td-compare-run" }, swatch(i), h("span", {}, run.job.name)))))),
      h("tbody", {}, differences.map((row) => h("tr", {}, h("th", { scope: "row", class: "td-compare-name" }, h("code", {}, row.key)), row.values.map((value) => h("td", { class: value.given ? "" : "td-muted" }, value.given ? h("code", {}, value.text) : settingText(value)))))))));
  }

  groupOf(id) {
    if (!this.view.group) return null;
    const at = this.groups.findIndex((group) => group.runs.some((run) => run.job.id === id));
    return at < 0 ? null : at;
  }

  // ---- what people do ----

  toggle(id, on) {
    if (on) this.hidden.delete(id);
    else this.hidden.add(id);
    this.drawRows();
    this.charts.everything();
  }

  annotate(job) {
    return notesDialog(job, (changed) => {
      this.data.runs.find((run) => run.job.id === changed.id).job = changed;
      this.drawRows();
    });
  }

  add() {
    return pickRuns(this.ids ?? [], (ids) => this.goTo(ids));
  }

  goTo(ids) {
    navigate(href("compare", { runs: ids.join(","), group: this.view.group, sort: this.view.sort, order: this.view.order === "asc" ? "" : this.view.order }));
  }

  saveTable() {
    save("compare.csv", new Blob([tableCsv(this.data)], { type: "text/csv" }));
  }

  close() {
    this.closed = true;
    clearInterval(this.clock);
    this.charts.close();
  }
}

const BETTER = { final_loss: "low", best_loss: "low", final_eval_loss: "low", best_eval_loss: "low", tokens_per_second: "high", mfu: "high" };

function drawFigure(cell, name, figure, isBest) {
  const text = figureText(name, figure);
  setText(cell, text);
  setClass(cell, `td-compare-number${figure.value === null ? " td-muted" : ""}${isBest ? " td-compare-best" : ""}`);
  setAttr(cell, "title", figure.value === null ? t(`missing.${figure.missing}`) : figure.estimate ? t("figure.estimate") : isBest ? t("figure.best") : null);
  setAttr(cell, "data-label", t(`figure.${name}`));
}

/** The setting's value, how many runs have it, and the mean of each figure over them. */
function groupRow() {
  const label = h("th", { scope: "rowgroup", class: "td-compare-name" });
  const cells = FIGURES.map(() => h("td", { class: "td-compare-number" }));
  const node = h("tr", { class: "td-compare-group" }, label, cells, h("td", {}), h("td", {}));
  node.update = (group) => {
    replace(label, h("span", {}, group.label), h("span", { class: "td-muted" }, ` ${tn("compare.group.runs", group.runs.length)}`));
    FIGURES.forEach((name, i) => setText(cells[i], meanText(name, group.runs)));
  };
  return node;
}
