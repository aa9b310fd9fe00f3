// Draws the parts of the New run page that are no form fields: preset cards, notices, "find a setting", and the launch panel.
// Each start function gets {element, props, watch, events, config} from its gr.HTML; props.value is JSON made by ui/pages.

import { post, root } from "./api.js";
import { h, icon, replace, show } from "./dom.js";
import { coded, forecastPart } from "./forecast.js";

function words(config) {
  return (key, params = {}) => (config.text[key] ?? key).replace(/\{(\w+)\}/g, (whole, name) => (name in params ? String(params[name]) : whole));
}

/** Calls `draw(value)` now and at every change of the component's value. */
function follow({ props, watch }, draw) {
  const read = () => {
    if (props.value) draw(JSON.parse(props.value));
  };
  watch("value", read);
  read();
}

function button(label, { kind = "", iconName = "", ...props } = {}) {
  return h("button", { type: "button", class: `td-button ${kind}`, ...props }, iconName && icon(iconName), h("span", {}, label));
}

const draftKey = () => `td-draft:${location.search}`;

// ---- Presets ------------------------------------------------------------------------------------------------------------

const HARDWARE = ["cpu", "mi300x", "mi325x", "mi355x", "mi250x", "mi210"];

export function startPresets(place) {
  const t = words(place.config);
  let cards = [];
  let here = "cpu";
  let chosen = "";
  let hardware = "cpu";
  const chips = h("div", { class: "td-new-chips", role: "group", "aria-label": t("new.start") });
  const list = h("div", { class: "td-new-cards" });
  replace(place.element,
    h("header", { class: "td-new-head" }, h("h1", {}, t("new.title")), h("p", { class: "td-muted" }, t("new.lead"))),
    h("section", { class: "td-new-start", "aria-label": t("new.start") }, h("div", { class: "td-new-start-line" }, h("h2", {}, t("new.start")), chips,
      h("button", { type: "button", class: "td-new-empty", onclick: () => { chosen = ""; draw(); place.events.pick({ name: "" }); } }, t("new.start.empty"))), list));

  const draw = () => {
    const known = HARDWARE.filter((name) => cards.some((card) => card.hardware === name));
    replace(chips, known.map((name) => h("button", { type: "button", class: "td-chip", "aria-pressed": String(name === hardware), onclick: () => { hardware = name; draw(); } },
      t(`new.hardware.${name}`), name === here && name !== "cpu" && ` · ${t("new.hardware.here")}`)));
    replace(list, cards.filter((card) => card.hardware === hardware).map(drawCard));
  };
  const drawCard = (card) => {
    const mine = card.name === chosen;
    return h("article", { class: `td-new-card${mine ? " td-new-card-chosen" : ""}`, dataset: { preset: card.name } },
      h("button", { type: "button", class: "td-new-card-pick", "aria-pressed": String(mine), onclick: () => pick(card) },
        h("strong", {}, card.title), mine && h("span", { class: "td-new-card-mark", title: t("new.preset.chosen") }, icon("succeeded")),
        h("span", { class: "td-new-card-text" }, card.purpose)),
      h("details", {}, h("summary", {}, t("new.preset.memory", { value: shortMemory(card.memory) })),
        h("p", { class: "td-muted" }, card.memory), h("p", { class: "td-muted" }, t("new.preset.tested", { value: card.tested }))));
  };
  const pick = (card) => {
    chosen = card.name;
    draw();
    list.querySelector(`[data-preset="${CSS.escape(card.name)}"] button`)?.focus();
    place.events.pick({ name: card.name });
  };
  follow(place, (value) => {
    ({ cards, chosen } = value);
    here = value.hardware;
    hardware = cards.find((card) => card.name === chosen)?.hardware ?? (here || "cpu");
    draw();
    const card = list.querySelector(".td-new-card-chosen");
    if (card) list.scrollLeft = card.offsetLeft - list.offsetLeft; // on a phone the cards stand in one row
  });
}

/** "about 86 GiB of 192 per GPU (estimate ...)" up to the bracket. */
function shortMemory(text) {
  return text.split(/\s?[（(]/)[0];
}

// ---- Notices ------------------------------------------------------------------------------------------------------------

export function startNotice(place) {
  const t = words(place.config);
  follow(place, (notice) => {
    const bad = notice.kind === "broken" || notice.kind === "failed";
    const actions = [];
    if (notice.kind === "broken") {
      actions.push(button(t("new.yaml.show"), { onclick: () => showLine(notice.line) }));
      actions.push(button(t("new.yaml.back"), { onclick: () => place.events.restore({ text: notice.good }) }));
    }
    if (notice.kind === "loaded" && notice.undo) actions.push(button(t("new.undo"), { iconName: "history", onclick: () => place.events.restore({ text: notice.undo }) }));
    if (notice.kind === "restored") actions.push(button(t("new.discard"), { onclick: startOver }));
    replace(place.element, notice.text && h("div", { class: `td-new-note${bad ? " td-new-note-bad" : ""}`, role: bad ? "alert" : "status" },
      icon(bad ? "warning" : notice.kind === "done" || notice.kind === "loaded" ? "succeeded" : "info"),
      h("div", { class: "td-grow" }, h("strong", {}, notice.text), notice.detail && h("p", { class: "td-muted" }, notice.detail)),
      h("div", { class: "td-new-actions" }, actions)));
  });
}

function startOver() {
  sessionStorage.removeItem(draftKey());
  location.reload();
}

/** Brings a line of the YAML into view. The editor draws only what can be seen, so first the page has to be there. */
function showLine(line) {
  openTab(1);
  whenThere(() => document.querySelector("#new-yaml .cm-line"), (first) => {
    const content = first.parentElement;
    const scroller = content.closest(".cm-scroller");
    const offset = ((line ?? 1) - 1) * first.getBoundingClientRect().height;
    scroller.scrollTop = Math.max(0, offset - 80);
    const top = content.getBoundingClientRect().top + Math.max(0, offset);
    window.scrollBy({ top: top - window.innerHeight / 2 });
    whenThere(() => lineOf(content, line), (node) => {
      node.classList.add("td-new-line");
      setTimeout(() => node.classList.remove("td-new-line"), 4000);
      content.focus({ preventScroll: true });
    });
  });
}

function lineOf(content, line) {
  const numbers = [...content.closest(".cm-scroller").querySelectorAll(".cm-lineNumbers .cm-gutterElement")];
  const number = numbers.find((node) => node.textContent === String(line ?? 1) && node.offsetHeight > 0);
  if (!number) return null;
  const top = number.getBoundingClientRect().top;
  return [...content.querySelectorAll(".cm-line")].find((node) => Math.abs(node.getBoundingClientRect().top - top) < 4) ?? null;
}

// ---- Going to a setting -------------------------------------------------------------------------------------------------

function openTab(number) {
  const tab = document.querySelectorAll('#new-tabs [role="tab"]')[number];
  if (tab && tab.getAttribute("aria-selected") !== "true") tab.click();
}

function whenThere(find, use, tries = 60) {
  const node = find();
  if (node) use(node);
  else if (tries > 0) setTimeout(() => whenThere(find, use, tries - 1), 30);
}

/** Opens tab and section of a setting, brings it into view and puts the cursor there. */
function goTo(id, group) {
  openTab(0);
  const field = () => {
    const node = document.getElementById(id);
    return node && node.offsetParent !== null ? node : null;
  };
  if (!field()) {
    const head = document.querySelector(`#more-${group} > button`);
    if (head && !head.classList.contains("open")) head.click();
  }
  whenThere(field, (node) => {
    node.scrollIntoView({ block: "center", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
    node.classList.add("td-new-here");
    setTimeout(() => node.classList.remove("td-new-here"), 2500);
    node.querySelector("input, textarea, button")?.focus({ preventScroll: true });
  });
}

export function startFinder(place) {
  const t = words(place.config);
  const fields = place.config.fields;
  const options = h("datalist", { id: "new-settings" }, fields.map((field) => h("option", { value: field.label }, `${field.where} · ${field.name}`)));
  const input = h("input", { type: "search", list: "new-settings", placeholder: t("new.find"), "aria-label": t("new.find"), autocomplete: "off" });
  const search = (loose) => {
    const wanted = input.value.trim().toLowerCase();
    if (!wanted) return;
    const same = (field) => field.label.toLowerCase() === wanted || field.name.toLowerCase() === wanted;
    const near = (field) => field.label.toLowerCase().includes(wanted) || field.name.toLowerCase().includes(wanted);
    const found = fields.find(same) ?? (loose ? fields.find(near) : undefined);
    if (!found) return;
    input.value = "";
    goTo(found.id, found.group);
  };
  input.addEventListener("change", () => search(false));
  input.addEventListener("keydown", (event) => event.key === "Enter" && search(true));
  replace(place.element, h("label", { class: "td-new-search" }, icon("search"), input), options);
  tellEdits(() => place.events.input({}));
}

/**
 * Says that a person typed, pasted, deleted or left a field. Gradio's own `input` event misses all but key presses, and its
 * `change` comes also while the page fills the form by itself; the browser's events come for people only.
 */
function tellEdits(tell) {
  let waiting = 0;
  const soon = (event) => {
    if (!event.target.closest?.(".td-field")) return;
    if (event.type === "keydown" && event.key !== "Enter") return;
    clearTimeout(waiting);
    waiting = setTimeout(tell, event.type === "input" ? 150 : 60);
  };
  for (const name of ["input", "keydown", "focusout"]) document.addEventListener(name, soon);
}

// ---- Import -------------------------------------------------------------------------------------------------------------

const MAX_FILE_BYTES = 1 << 20;

/** Pasted text and chosen or dropped files, read in the browser and sent together; the server makes one document of them. */
export function startImport(place) {
  const t = words(place.config);
  const files = new Map();
  const list = h("ul", { class: "td-new-import-files" });
  const note = h("p", { class: "td-new-import-note td-muted", role: "status" });
  const text = h("textarea", { class: "td-new-import-text", rows: "8", spellcheck: "false", "aria-label": t("new.import.paste"), placeholder: t("new.import.paste") });
  const chooser = h("input", { type: "file", multiple: true, hidden: true, onchange: () => add(chooser.files) });
  const draw = () => replace(list, [...files.keys()].map((name) => h("li", {}, h("code", {}, name),
    button("×", { "aria-label": t("new.import.remove", { name }), onclick: () => { files.delete(name); draw(); } }))));
  const add = async (chosen) => {
    note.textContent = "";
    for (const file of [...chosen]) {
      if (file.size > MAX_FILE_BYTES) note.textContent = t("new.import.too_large", { name: file.name });
      else files.set(file.name, await file.text());
    }
    chooser.value = "";
    draw();
  };
  const send = () => {
    const payload = Object.fromEntries(files);
    if (text.value.trim()) payload[""] = text.value;
    if (Object.keys(payload).length === 0) return text.focus();
    place.events.take({ files: payload });
    return undefined;
  };
  const over = (inside) => (event) => {
    event.preventDefault();
    area.classList.toggle("td-new-import-over", inside);
  };
  const drop = (event) => {
    over(false)(event);
    add(event.dataTransfer.files);
  };
  const area = h("div", { class: "td-new-import", ondragover: over(true), ondragleave: over(false), ondrop: drop },
    h("p", {}, t("new.import.lead")), text,
    h("div", { class: "td-new-import-line" }, button(t("new.import.files"), { onclick: () => chooser.click() }), chooser, h("span", { class: "td-muted" }, t("new.import.drop"))),
    list, note, button(t("new.import.read"), { kind: "td-button-primary", onclick: send }));
  replace(place.element, area);
}

// ---- Launch panel -------------------------------------------------------------------------------------------------------

const STATE_ICON = { ready: "succeeded", warned: "warning", blocked: "flag" };
const CHECK_ICON = { checking: "history", done: "succeeded", unavailable: "info" };
const SEVERITY_ICON = { error: "failed", warning: "warning", note: "info" };

export function startPanel(place) {
  const t = words(place.config);
  const state = h("div", { class: "td-new-state", role: "status" });
  const check = h("p", { class: "td-new-check td-muted", role: "status" });
  const problems = h("div", { class: "td-new-problems" });
  const numbers = h("dl", { class: "td-new-numbers" });
  const command = section(t("new.command"), t("new.command.help"), t);
  const variables = h("dl", { class: "td-new-vars" });
  const environment = h("details", { class: "td-new-part" }, h("summary", {}, t("new.env")), h("p", { class: "td-muted" }, t("new.env.help")), variables);
  const files = h("div", { class: "td-new-files" });
  const opened = new Map();
  const tune = tuneFirst(place.config, t);
  const forecast = forecastPart(t, (id) => place.events.faster({ id }));
  replace(place.element, h("div", { class: "td-new-panel-body" }, h("div", {}, state, check), tune.node, problems, forecast.node, numbers, command.node, environment, files));
  const launch = watchLaunch(t);

  let again = 0;

  follow(place, (view) => {
    launch.free();
    tune.update(view);
    forecast.update(view.forecast);
    replace(check, view.check_text && [icon(CHECK_ICON[view.check] ?? "info"), h("span", {}, view.check_text)]);
    check.dataset.state = view.check;
    show(check, Boolean(view.check_text));
    clearTimeout(again);
    if (view.ask || view.check === "checking") again = setTimeout(() => place.events.recheck({}), 1500);
    if (view.document) sessionStorage.setItem(draftKey(), view.document);
    replace(state, h("div", { class: `td-new-state-line td-new-state-${view.state}` }, icon(STATE_ICON[view.state]), h("strong", {}, view.title)), view.hint && h("p", { class: "td-muted" }, view.hint));
    const fixable = view.problems.filter((problem) => problem.fixable);
    replace(problems, fixable.length > 1 && button(t("new.fix_all", { n: fixable.length }), { iconName: "edit", onclick: () => place.events.fixall({}) }),
      view.problems.map((problem) => drawProblem(problem, t, place.events)));
    replace(numbers, view.numbers.map((line) => h("div", {}, h("dt", {}, line.label), h("dd", {}, h("strong", {}, line.value), line.how && h("span", { class: "td-muted" }, line.how)))));
    show(numbers, view.numbers.length > 0);
    command.fill(view.command);
    show(command.node, Boolean(view.command));
    replace(variables, view.variables.map(([name, value, note]) => h("div", {}, h("dt", {}, name), h("dd", {}, note ? h("em", { class: "td-muted" }, note) : value))));
    show(environment, view.variables.length > 0);
    for (const name of [...opened.keys()]) if (!view.files.some(([other]) => other === name)) opened.delete(name);
    for (const [name, text] of view.files) {
      if (!opened.has(name)) opened.set(name, section(name, "", t));
      opened.get(name).fill(text);
    }
    const wanted = view.files.map(([name]) => opened.get(name).node);
    if (wanted.length !== files.children.length || wanted.some((node, at) => node !== files.children[at])) replace(files, wanted);
  });
}

/** Starts the tuner with what the form shows, and goes to its page. */
function tuneFirst(config, t) {
  const minutes = h("select", { "aria-label": t("new.tune") }, [3, 8, 15, 30].map((n) => h("option", { value: n }, t("new.tune.minutes", { n }))));
  minutes.value = "8";
  const why = h("p", { class: "td-muted" });
  const start = button(t("new.tune"), { iconName: "chart" });
  const node = h("div", { class: "td-new-tune", hidden: true }, h("div", { class: "td-new-tune-line" }, start, minutes), why);
  let text = "";
  start.addEventListener("click", async () => {
    if (start.getAttribute("aria-busy") === "true") return;
    start.setAttribute("aria-busy", "true");
    try {
      const { tuning } = await post("/api/tunings", { spec_text: text, minutes: Number(minutes.value) });
      location.assign(`${root()}${config.prefix}/tune?id=${encodeURIComponent(tuning.id)}`);
    } catch (error) {
      replace(why, error.message, error.status === 409 && [" ", h("a", { href: `${root()}${config.prefix}/tune` }, t("new.tune.running"))]);
      why.className = "td-new-tune-bad";
    } finally {
      start.removeAttribute("aria-busy");
    }
  });
  return {
    node,
    update(view) {
      show(node, view.ready);
      const same = text.trim() === (view.document ?? "").trim();
      if (same && why.textContent) return; // the panel is looked at again and again: a refusal stays
      text = view.document;
      start.disabled = !text;
      why.className = "td-muted";
      why.textContent = t(text ? "new.tune.help" : "new.tune.secret");
    },
  };
}

function drawProblem(problem, t, events) {
  const where = [problem.line && t("new.line", { line: problem.line }), problem.evidence].filter(Boolean).join(": ");
  const facts = [[t("new.found"), problem.found], [t("new.expected"), problem.expected], [t("new.evidence"), where]];
  return h("article", { class: `td-new-problem td-new-problem-${problem.severity}` },
    h("header", {}, icon(SEVERITY_ICON[problem.severity]), h("strong", {}, problem.label), h("span", { class: "td-new-severity" }, t(`new.severity.${problem.severity}`))),
    problem.argument && problem.argument !== problem.label && problem.target !== "yaml" && h("code", { class: "td-muted" }, problem.argument),
    problem.reason && h("p", {}, coded(problem.reason)),
    h("dl", {}, facts.filter(([, value]) => value).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
    problem.remedy && h("p", { class: "td-new-remedy" }, coded(problem.remedy)),
    h("div", { class: "td-new-actions" },
      problem.fixable && button(t("new.fix"), { kind: "td-button-primary", onclick: () => events.fix({ id: problem.id }) }),
      problem.target === "yaml" && button(t("new.yaml.show"), { onclick: () => showLine(problem.line) }),
      problem.target && problem.target !== "yaml" && button(t("new.go"), { onclick: () => goTo(`f-${problem.target.replaceAll(".", "-")}`, problem.group) })));
}

/** A part that opens, with text to copy. It is made once, so it stays open while its text changes. */
function section(title, help, t) {
  const text = h("code", {});
  const copy = button(t("new.copy"), { iconName: "copy", onclick: () => copyText(text.textContent, copy, t) });
  const node = h("details", { class: "td-new-part" }, h("summary", {}, title), help && h("p", { class: "td-muted" }, help),
    h("div", { class: "td-new-code" }, copy, h("pre", { tabindex: "0" }, text)));
  return { node, fill: (value) => { if (text.textContent !== value) text.textContent = value; } };
}

async function copyText(text, control, t) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h("textarea", { class: "td-offscreen" }); // the clipboard API exists only on https and localhost
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  const label = control.querySelector("span");
  label.textContent = t("new.copied");
  setTimeout(() => { label.textContent = t("new.copy"); }, 1500);
}

/** Says at once that Launch was pressed; further presses wait for the answer. The server launches once in any case. */
function watchLaunch(t) {
  const find = () => document.getElementById("new-launch");
  document.addEventListener("click", (event) => {
    const launch = event.target.closest?.("#new-launch");
    if (!launch || launch.disabled) return;
    if (launch.getAttribute("aria-busy") === "true") {
      event.stopImmediatePropagation();
      event.preventDefault();
      return;
    }
    launch.setAttribute("aria-busy", "true");
    launch.dataset.busy = t("new.launching");
  }, true);
  // A page that comes back from the browser's history is an old visit: start a new one.
  window.addEventListener("pageshow", (event) => event.persisted && location.reload());
  return {
    free() {
      find()?.removeAttribute("aria-busy");
      if (find()) delete find().dataset.busy;
    },
  };
}
