// Turns host checks into a section of the GPUs page: start one on free cards, watch and cancel it, its figures, history and comparison.

import { href } from "./app.js";
import { get, post, runPath } from "./api.js";
import { h, icon, keyed, replace, setText, show } from "./dom.js";
import * as f from "./format.js";
import { has, t, tn } from "./text.js";
import { busyWhile, button, choiceCards, dialog, emptyNote, problemNote, skeleton, statePill, toast } from "./widgets.js";

const RUNNING_MS = 1_500;
const IDLE_MS = 20_000;
const RANKS = [1, 2, 4];
const FIGURES = [["matmul_flops", "matrix", (v) => scaled(v, "FLOP/s")], ["memory_bytes_per_second", "memory", (v) => rate(v)], ["launch_seconds", "launch", (v) => micro(v)]];
const LINKS = [["bus_bytes_per_second", "bus", (v) => rate(v)], ["latency_seconds", "latency", (v) => micro(v)]];

const PREFIXES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
function scaled(value, unit, largest = 1e12) {
  if (!Number.isFinite(value)) return f.DASH;
  const [size, prefix] = PREFIXES.find(([least]) => least <= largest && value >= least) ?? PREFIXES.at(-1);
  return `${f.number(value / size, 3)} ${prefix}${unit}`;
}
const rate = (value) => scaled(value, "B/s", 1e9); // 4,012 GB/s: as data sheets have it
const micro = (value) => (Number.isFinite(value) ? `${f.number(value * 1e6, 3)} µs` : f.DASH);
const told = (value, format) => (Number.isFinite(value) ? format(value) : f.DASH);
const nameOf = (card) => (card.index === null || card.index === undefined ? card.id : t("gpus.place", { n: card.index }));
const profileName = (name) => (has(`bench.profile.${name}`) ? t(`bench.profile.${name}`) : name || t("bench.profile.plain"));

/** {node, load(), close()}. It loads by itself once it is in the page. */
export function checkSection() {
  const page = { closed: false, view: null, chosen: new Set(), shownPair: "" };
  page.start = button(t("bench.start"), { kind: "primary", iconName: "running", onclick: () => page.view && startDialog(page) });
  page.running = h("div", { class: "td-bench-running", role: "status" });
  page.trouble = h("div", {}, skeleton(2));
  page.latest = h("div", {});
  page.pair = h("div", {});
  page.history = h("div", {});
  page.node = h("section", { class: "td-section td-bench" }, h("div", { class: "td-section-head" }, h("h2", {}, t("bench.title")), page.start), h("p", { class: "td-muted" }, t("bench.lead")),
    page.running, page.trouble, page.latest, page.pair, page.history);
  const load = async () => {
    clearTimeout(page.again);
    try {
      const view = await get("/api/benches");
      if (page.closed) return;
      page.view = view;
      draw(page);
    } catch (error) {
      if (!page.closed) replace(page.trouble, problemNote(error.message, load));
    }
    if (!page.closed) page.again = setTimeout(load, page.view?.running.length ? RUNNING_MS : IDLE_MS);
  };
  page.load = load;
  load();
  return { node: page.node, load, close() { page.closed = true; clearTimeout(page.again); } };
}

function draw(page) {
  const { checks, running, failed } = page.view;
  keyed(page.running, running, (one) => one.job.id, () => runningRow(page), (node, one) => node.update(one));
  replace(page.trouble, failed && !running.length ? failedNote(failed) : [], !checks.length && !running.length && emptyNote(t("bench.none"), t(page.view.cards.length ? "bench.none.help" : "bench.none.cpu")));
  const key = JSON.stringify([checks, [...page.chosen]]);
  if (page.shown === key) return;
  page.shown = key;
  replace(page.latest, checks.length ? latestPart(checks[0], page.view) : []);
  replace(page.history, checks.length ? historyPart(page, checks) : []);
  drawPair(page, checks);
}

// ---- A running check ----------------------------------------------------------------------------------------------------

function runningRow(page) {
  const state = h("span", {});
  const words = h("span", {});
  const stop = button(t("bench.cancel"), { kind: "danger", iconName: "stop" });
  const node = h("div", { class: "td-bench-row" }, state, words, stop);
  stop.addEventListener("click", busyWhile(stop, async () => {
    await post(runPath(node.dataset.job, "/stop"), { mode: "no_save" });
    page.load();
  }));
  node.update = ({ job, part, device, bytes }) => {
    node.dataset.job = job.id;
    replace(state, statePill(job.state));
    const what = job.state === "queued" ? t("bench.waits") : part ? t(`bench.part.${part}`, { device, size: f.bytes(bytes) }) : t("bench.part.begin");
    const passed = job.started_at ? f.duration(Math.max(0, Date.now() / 1000 - job.started_at)) : "";
    replace(words, h("a", { href: href("run", { id: job.id }) }, profileName(job.tags[1])), h("span", { class: "td-muted" }, [placesOf(job), what, passed].filter(Boolean).join(" · ")));
    show(stop, job.state !== "stopping");
  };
  return node;
}

const placesOf = (job) => (job.devices.length ? tn("bench.cards", job.devices.length) : tn("bench.ranks", job.processes));

function failedNote(job) {
  return h("div", { class: "td-note td-note-bad", role: "alert" }, icon("failed"), h("div", {}, h("strong", {}, t("bench.failed", { when: f.moment(job.ended_at) })), h("p", {}, job.message),
    h("p", {}, h("a", { href: href("run", { id: job.id }) }, t("bench.failed.open")))));
}

// ---- Figures ------------------------------------------------------------------------------------------------------------

function latestPart({ check, usual, drift }, view) {
  const names = new Map(view.cards.map((card) => [card.id, nameOf(card)]));
  const compared = (device, what) => usual.find((one) => one.what === what && one.device === device);
  const figure = (value, format, mark) => [h("strong", {}, told(value, format)), mark && usualText(mark, format)];
  const rows = check.devices.map((device) => h("tr", {}, cell("card", h("span", {}, names.get(device.id) ?? (device.id || device.device), " "), h("span", { class: "td-muted" }, device.name)),
    FIGURES.map(([what, name, format]) => cell(name, figure(device[what], format, compared(device.id || device.device, what))))));
  const columns = ["card", ...FIGURES.map(([, name]) => name)];
  const first = check.links[0];
  const best = check.links.length ? Math.max(...check.links.map((row) => row.bus_bytes_per_second)) : null;
  const links = { bus_bytes_per_second: best, latency_seconds: first?.seconds };
  const wrong = check.links.filter((row) => row.right === false);
  return [
    h("h3", { class: "td-bench-head" }, t("bench.latest", { when: f.moment(check.at) })),
    h("p", { class: "td-muted" }, factsOf(check), " · ", h("a", { href: href("run", { id: check.job }) }, t("bench.open"))),
    alarmNote(drift, names), wrong.length > 0 && h("div", { class: "td-note td-note-bad", role: "alert" }, icon("failed"), h("p", {}, t("bench.wrong"))),
    h("div", { class: "td-table-box td-cards-table" }, h("table", { class: "td-table td-bench-table" }, h("caption", { class: "td-offscreen" }, t("bench.title")),
      h("thead", {}, h("tr", {}, columns.map((name) => h("th", { scope: "col", title: t(`bench.column.${name}.help`) }, t(`bench.column.${name}`))))), h("tbody", {}, rows))),
    check.links.length ? [h("dl", { class: "td-tiles td-cost-tiles" }, LINKS.map(([what, name, format]) => h("div", { class: "td-tile" }, h("dt", {}, t(`bench.column.${name}`)), h("dd", {}, told(links[what], format)),
      h("dd", { class: "td-tile-hint" }, compared("", what) ? usualText(compared("", what), format) : t(`bench.column.${name}.help`))))), sizesPart(check.links)] : h("p", { class: "td-muted" }, t("bench.no_links")),
  ];
}

const cell = (name, ...content) => h("td", { dataset: { label: t(`bench.column.${name}`) } }, content);
const factsOf = (check) => [check.host, tn(check.backend === "gloo" || check.devices[0]?.device === "cpu" ? "bench.ranks" : "bench.cards", check.devices.length), profileName(check.profile), check.backend, check.torch && `torch ${check.torch}`, check.hip && `HIP ${check.hip}`].filter(Boolean).join(" · ");

function usualText({ usual, share, alarm }, format) {
  const percent = 100 * (share - 1);
  const words = Math.abs(percent) < 0.5 ? t("bench.usual.same") : t("bench.usual", { change: `${percent > 0 ? "+" : "−"}${Math.abs(percent).toFixed(0)} %` });
  return h("span", { class: alarm ? "td-bench-usual td-bad" : "td-bench-usual td-muted", title: t("bench.usual.help", { usual: format(usual) }) }, alarm && icon("warning"), words);
}

function alarmNote(drift, names) {
  if (!drift.length) return [];
  const formats = Object.fromEntries([...FIGURES, ...LINKS].map(([what, name, format]) => [what, [name, format]]));
  const line = ({ what, device, usual, now }) => t("bench.drift", { what: t(`bench.column.${formats[what][0]}`), where: device ? names.get(device) ?? device : t("bench.links"), now: formats[what][1](now), usual: formats[what][1](usual) });
  return h("div", { class: "td-note td-note-bad", role: "alert" }, icon("warning"), h("div", {}, h("strong", {}, t("bench.drift.title")), drift.map((one) => h("p", {}, line(one))), h("p", {}, t("bench.drift.help"))));
}

function sizesPart(links) {
  const columns = ["size", "time", "bus"];
  return h("details", { class: "td-gpu-sources" }, h("summary", {}, t("bench.sizes")), h("div", { class: "td-table-box" }, h("table", { class: "td-table" }, h("caption", { class: "td-offscreen" }, t("bench.sizes")),
    h("thead", {}, h("tr", {}, columns.map((name) => h("th", { scope: "col" }, t(`bench.column.${name}`))))),
    h("tbody", {}, links.map((row) => h("tr", {}, h("td", {}, f.bytes(row.bytes)), h("td", {}, micro(row.seconds)), h("td", {}, rate(row.bus_bytes_per_second))))))));
}

// ---- History and comparison ---------------------------------------------------------------------------------------------

function historyPart(page, checks) {
  const slowest = (check, what) => Math.min(...check.devices.map((device) => device[what]).filter(Number.isFinite));
  const columns = ["pick", "when", "profile", "cards", "matrix", "memory", "bus", "latency", "state"];
  const pick = (check) => {
    const box = h("input", { type: "checkbox", checked: page.chosen.has(check.job), disabled: !check.links.length, "aria-label": t("bench.pick", { when: f.moment(check.at) }), title: check.links.length ? "" : t("bench.no_links") });
    box.addEventListener("change", () => {
      if (box.checked) page.chosen.add(check.job); else page.chosen.delete(check.job);
      if (page.chosen.size > 2) page.chosen.delete([...page.chosen][0]);
      draw(page);
    });
    return box;
  };
  const row = ({ check, drift, usual }) => {
    const buses = check.links.map((link) => link.bus_bytes_per_second);
    return h("tr", {}, cell("pick", pick(check)), cell("when", h("a", { href: href("run", { id: check.job }), title: f.exactMoment(check.at) }, f.moment(check.at))), cell("profile", profileName(check.profile)), cell("cards", f.integer(check.devices.length)),
      cell("matrix", told(slowest(check, "matmul_flops"), FIGURES[0][2])), cell("memory", told(slowest(check, "memory_bytes_per_second"), rate)), cell("bus", buses.length ? rate(Math.max(...buses)) : f.DASH), cell("latency", micro(check.links[0]?.seconds)),
      cell("state", drift.length ? h("span", { class: "td-pill td-state-failed" }, icon("warning"), h("span", {}, tn("bench.alarms", drift.length))) : h("span", { class: "td-muted" }, t(usual.length ? "bench.fine" : "bench.first"))));
  };
  return [h("h3", { class: "td-bench-head" }, t("bench.history")), h("p", { class: "td-muted" }, t("bench.history.help")),
    h("div", { class: "td-table-box td-cards-table td-table-scroll" }, h("table", { class: "td-table td-bench-table" }, h("caption", { class: "td-offscreen" }, t("bench.history")),
      h("thead", {}, h("tr", {}, columns.map((name) => h("th", { scope: "col" }, t(`bench.column.${name}`))))), h("tbody", {}, checks.map(row))))];
}

/** The two that are ticked, else the two newest when only their profile differs: an A/B run. */
function pairOf(page, checks) {
  if (page.chosen.size === 2) return checks.map(({ check }) => check).filter((check) => page.chosen.has(check.job)).reverse();
  const [b, a] = checks.map(({ check }) => check);
  const places = (check) => JSON.stringify(check.devices.map((device) => device.id || device.device).sort());
  return page.chosen.size === 0 && a && a.profile !== b.profile && places(a) === places(b) && a.links.length && b.links.length ? [a, b] : null;
}

async function drawPair(page, checks) {
  const pair = pairOf(page, checks);
  const key = pair ? pair.map((check) => check.job).join() : "";
  if (page.shownPair === key) return;
  page.shownPair = key;
  if (!pair) {
    replace(page.pair);
    return;
  }
  const [a, b] = pair;
  try {
    const { rows } = await get(`/api/benches/compare?first=${encodeURIComponent(a.job)}&second=${encodeURIComponent(b.job)}`);
    if (page.closed || page.shownPair !== key) return;
    const label = (check) => `${profileName(check.profile)} (${f.moment(check.at)})`;
    replace(page.pair, h("h3", { class: "td-bench-head" }, t("bench.pair", { first: profileName(a.profile), second: profileName(b.profile) })), h("p", { class: "td-muted" }, t("bench.pair.help")),
      h("div", { class: "td-table-box td-table-scroll" }, h("table", { class: "td-table td-bench-table" }, h("caption", { class: "td-offscreen" }, t("bench.pair.help")),
        h("thead", {}, h("tr", {}, [t("bench.column.size"), label(a), label(b), t("bench.column.ratio")].map((words) => h("th", { scope: "col" }, words)))),
        h("tbody", {}, rows.map((row) => h("tr", {}, h("td", {}, f.bytes(row.bytes)), h("td", {}, rate(row.first)), h("td", {}, rate(row.second)), h("td", { class: row.ratio < 0.95 ? "td-bad" : row.ratio > 1.05 ? "td-bench-better" : "" }, t("tune.times", { n: f.number(row.ratio, 3) }))))))));
  } catch (error) {
    if (!page.closed) replace(page.pair, problemNote(error.message));
  }
}

// ---- Starting one -------------------------------------------------------------------------------------------------------

function startDialog(page) {
  const { cards, profiles } = page.view;
  const boxes = cards.map((card) => h("input", { type: "checkbox", value: card.id, checked: card.why === "", disabled: card.why !== "" }));
  const list = h("div", { class: "td-bench-cards" }, cards.map((card, at) => h("label", { class: "td-bench-card" }, boxes[at], h("span", {}, h("strong", {}, nameOf(card)), " ", card.name), card.why && h("span", { class: "td-muted" }, whyText(card)))));
  const ranks = h("select", { class: "td-input" }, RANKS.map((n) => h("option", { value: n, selected: n === 2 }, tn("bench.ranks", n))));
  const others = profiles.filter((profile) => profile.name !== "plain");
  const options = [{ value: "plain", title: t("bench.profile.plain"), text: t("bench.profile.plain.help") },
    ...others.map((profile) => ({ value: `plain,${profile.name}`, title: t("bench.ab", { name: profileName(profile.name) }), text: profile.variables.map((one) => `${one.name}=${one.value}`).join("  ") })),
    { value: "own", title: t("bench.own"), text: t("bench.own.help") }];
  const choice = choiceCards("td-bench-profile", options, "plain");
  const name = h("input", { class: "td-input", type: "text", value: "own", maxlength: 40, pattern: "[a-z0-9][a-z0-9_-]*" });
  const variables = h("textarea", { class: "td-input", rows: 3, placeholder: "NCCL_MIN_NCHANNELS=112", spellcheck: false });
  const own = h("div", { class: "td-bench-own", hidden: true }, h("label", { class: "td-field" }, h("span", {}, t("bench.own.name")), name), h("label", { class: "td-field" }, h("span", {}, t("bench.own.variables")), variables));
  choice.node.addEventListener("change", () => show(own, choice.value() === "own"));
  const free = cards.filter((card) => card.why === "").length;
  return dialog({
    title: t("bench.start.title"),
    body: [h("p", {}, t(cards.length ? "bench.start.help" : "bench.start.cpu")),
      cards.length ? [h("h3", {}, t("bench.start.cards")), list, !free && h("p", { class: "td-note td-note-warn" }, t("bench.start.busy"))] : h("label", { class: "td-field" }, h("span", {}, t("bench.start.ranks")), ranks),
      h("h3", {}, t("bench.start.profile")), choice.node, own],
    actions: cards.length && !free ? [] : [{ label: t("bench.start"), kind: "primary", iconName: "running", run: async () => {
      const gpus = boxes.filter((box) => box.checked).map((box) => box.value);
      if (cards.length && !gpus.length) throw new Error(t("bench.start.choose"));
      const mine = choice.value() === "own";
      const wish = { profiles: mine ? ["plain", name.value.trim()] : choice.value().split(","), ...(mine && { env: readVariables(variables.value) }), ...(cards.length ? { gpus } : { processes: Number(ranks.value) }) };
      const { jobs } = await post("/api/benches", wish);
      toast(tn("bench.started", jobs.length), "ok");
      page.chosen.clear();
      page.load();
    } }],
  });
}

function readVariables(text) {
  const lines = text.split("\n").map((line) => line.trim()).filter(Boolean);
  const bad = lines.find((line) => !/^[A-Za-z_]\w*=/.test(line));
  if (bad !== undefined || !lines.length) throw new Error(t("bench.own.bad", { line: bad ?? "" }));
  return Object.fromEntries(lines.map((line) => [line.slice(0, line.indexOf("=")), line.slice(line.indexOf("=") + 1)]));
}

function whyText(card) {
  if (card.job) return t("bench.why.leased", { name: card.job_name || card.job });
  if (card.process) return t("gpus.foreign_by", { name: card.process });
  return has(`bench.why.${card.why}`) ? t(`bench.why.${card.why}`) : card.why;
}
