// Turns the ranks' answers to a profile request into bars: where the time of a few steps went.

import { get, post, root, runPath } from "./api.js";
import { h, replace, setText, show } from "./dom.js";
import * as f from "./format.js";
import { t } from "./text.js";
import { busyWhile, button } from "./widgets.js";

const PARTS = ["matmul", "attention", "optimizer", "other", "copies", "communication", "idle"];
const AGAIN = 2_000;
const KERNELS = 10;

export function profileSection(id) {
  const start = button(t("profile.start"), { iconName: "chart" });
  const status = h("p", { class: "td-muted", role: "status" });
  const body = h("div", { class: "td-profile-body" });
  let running = false, shown = false, asked = null, timer = null, closed = false;

  async function load() {
    clearTimeout(timer);
    const found = await get(runPath(id, "/profile")).catch((error) => ({ problem: error.message, ranks: [] }));
    if (closed) return;
    asked = found.asked_at ?? asked;
    if (!found.problem && asked !== null && (!running || found.ranks.filter((rank) => rank.at >= asked).length >= found.run_ranks)) asked = null;
    const waits = asked !== null;
    start.disabled = waits;
    setText(status, found.problem ?? (waits ? t("profile.waiting") : found.ranks.length || running ? "" : t("profile.none")));
    show(status, Boolean(status.textContent));
    replace(body, drawRanks(id, found.ranks, found.late));
    if (waits && shown) timer = setTimeout(load, AGAIN);
  }
  start.addEventListener("click", busyWhile(start, async () => {
    await post(runPath(id, "/profile"));
    await load();
  }));
  const ask = h("div", { class: "td-profile-body" }, h("p", { class: "td-muted" }, t("profile.help")), h("div", {}, start));
  return {
    node: h("section", { class: "td-section td-profile" }, h("h2", {}, t("profile.title")), ask, status, body),
    update(job, can) {
      running = job.state === "running";
      show(ask, Boolean(can.save));
    },
    visible(now) {
      shown = now;
      if (shown && !closed) load();
      else clearTimeout(timer);
    },
    close() {
      closed = true;
      clearTimeout(timer);
    },
  };
}

function drawRanks(id, ranks, late) {
  const good = ranks.filter((rank) => !rank.error);
  const bad = ranks.filter((rank) => rank.error).map((rank) => h("p", { class: "td-note td-note-warn" }, t("profile.failed", { rank: rank.rank, error: rank.error })));
  if (!good.length) return bad;
  const used = PARTS.filter((part) => good.some((rank) => shareOf(rank, part) > 0));
  return [
    ...bad,
    h("p", { class: "td-muted" }, stepsText(good[0])),
    h("ul", { class: "td-profile-legend" }, used.map((part) => h("li", {}, h("i", { class: `td-profile-${part}` }), partName(part, good[0])))),
    h("ul", { class: "td-profile-ranks" }, good.map((rank) => drawRank(rank, used))),
    late && h("p", { class: "td-note td-note-warn" }, t("profile.late", { rank: late.rank, share: f.percent(100 * late.share, 0) })),
    h("p", {}, talkText(good[0])),
    good[0].data_share > 0.02 && h("p", {}, t("profile.data", { share: f.percent(100 * good[0].data_share, 0) })),
    good[0].device === "cpu" && h("p", { class: "td-muted" }, t("profile.cpu")),
    kernelTable(id, good[0]),
  ].filter(Boolean);
}

function partName(part, rank) {
  return part === "idle" && rank.device === "cpu" ? t("profile.outside") : t(`profile.part.${part}`);
}

/** Work by kind, communication that no work covers, and time in which nothing ran: together the whole step. */
function shareOf(rank, part) {
  if (part === "idle") return rank.idle_share ?? 0;
  if (part === "communication") return rank.communication_exposed_share ?? 0;
  return rank.shares?.[part] ?? 0;
}

function drawRank(rank, used) {
  const whole = Math.max(1, used.reduce((sum, part) => sum + shareOf(rank, part), 0)); // kernels side by side add up to more
  const words = used.map((part) => `${partName(part, rank)} ${f.percent(100 * shareOf(rank, part), 0)}`);
  const bar = h("span", { class: "td-profile-bar", role: "img", "aria-label": words.join(", "), title: words.join("\n") }, used.map((part) => {
    const share = shareOf(rank, part) / whole;
    const piece = h("i", { class: `td-profile-${part}` }, share > 0.07 ? f.percent(100 * shareOf(rank, part), 0) : "");
    piece.style.width = `${100 * share}%`;
    return piece;
  }));
  return h("li", {}, h("span", {}, t("profile.rank", { rank: rank.rank })), bar);
}

function stepsText(rank) {
  const steps = rank.last - rank.first + 1;
  return t("profile.steps", { first: f.integer(rank.first), last: f.integer(rank.last), time: f.duration(rank.window_seconds / steps), when: f.ago(rank.at) });
}

function talkText(rank) {
  if (!(rank.communication_share > 0)) return t("profile.no_communication");
  return t("profile.hidden", { share: f.percent(100 * rank.communication_share, 1), exposed: f.percent(100 * rank.communication_exposed_share, 1) });
}

function kernelTable(id, rank) {
  const rows = rank.kernels.slice(0, KERNELS).map((kernel) => h("tr", {}, h("td", {}, h("i", { class: `td-profile-${kernel.category}` }), h("code", { title: kernel.name }, kernel.name)), h("td", {}, f.integer(kernel.calls)), h("td", {}, f.duration(kernel.seconds))));
  const head = h("tr", {}, h("th", { scope: "col" }, t("profile.kernel")), h("th", { scope: "col" }, t("profile.calls")), h("th", { scope: "col" }, t("profile.time")));
  return h("details", { class: "td-profile-kernels" }, h("summary", {}, t("profile.kernels", { rank: rank.rank })), h("table", {}, h("thead", {}, head), h("tbody", {}, rows)),
    h("a", { href: root() + runPath(id, `/profile/${rank.rank}.txt`), target: "_blank", rel: "noopener" }, t("profile.table")));
}
