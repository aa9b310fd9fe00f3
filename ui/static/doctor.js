// Turns the host checks into a page: what was looked at, what was found, what to do about it, and who says so.

import { href } from "./app.js";
import { get } from "./api.js";
import { h, icon, replace, setText } from "./dom.js";
import { lang, t, tn } from "./text.js";
import { button, busyWhile, linkButton, problemNote, skeleton } from "./widgets.js";

const ORDER = ["error", "warning", "note", "ok", "skipped"];
const ICONS = { error: "failed", warning: "warning", note: "info", ok: "succeeded", skipped: "queued" };

export function open(main) {
  const lead = h("p", { class: "td-lead", role: "status" }, t("doctor.checking"));
  const list = h("div", {}, skeleton(8));
  const again = button(t("doctor.again"), { iconName: "resume" });
  const page = { closed: false };
  main.append(h("div", { class: "td-page" }, h("div", { class: "td-page-head" }, h("h1", {}, t("doctor.title")), h("div", { class: "td-actions" }, linkButton(t("gpus.title"), href("gpus"), { iconName: "gpu" }), again)), lead, list));
  const load = async () => {
    setText(lead, t("doctor.checking"));
    try {
      const { checks } = await get(`/api/doctor?lang=${lang()}`); // asks the training environment: seconds
      if (page.closed) return;
      setText(lead, summary(checks));
      replace(list, ORDER.map((status) => group(status, checks.filter((check) => check.status === status))).flat());
    } catch (error) {
      if (page.closed) return;
      setText(lead, "");
      replace(list, problemNote(error.message, load));
    }
  };
  again.addEventListener("click", busyWhile(again, load));
  load();
  return { title: t("doctor.title"), close() { page.closed = true; } };
}

function summary(checks) {
  const count = (status) => checks.filter((check) => check.status === status).length;
  const parts = [tn("doctor.errors", count("error")), tn("doctor.warnings", count("warning")), tn("doctor.fine", count("ok"))];
  return parts.join(t("list.separator"));
}

function group(status, checks) {
  if (!checks.length) return [];
  return [h("section", { class: "td-section" }, h("h2", {}, t(`doctor.${status}`)), h("ul", { class: "td-checks" }, checks.map(drawCheck)))];
}

function drawCheck(check) {
  const wanted = check.status !== "ok" && check.expected;
  return h("li", { class: `td-check td-check-${check.status}` }, icon(ICONS[check.status]), h("div", {},
    h("p", {}, h("strong", {}, check.title), h("span", {}, check.found)),
    wanted && h("p", { class: "td-muted" }, t("doctor.expected", { what: check.expected })),
    check.status !== "ok" && check.advice && h("p", {}, check.advice),
    check.status !== "ok" && check.source && h("p", { class: "td-muted td-check-source" }, sourceOf(check.source))));
}

function sourceOf(source) {
  const address = /https?:\/\/\S+/.exec(source)?.[0];
  return address ? h("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, source) : t("doctor.source", { source });
}
