// Turns small recurring things (state pill, progress bar, dialogs, toasts, copy buttons) into nodes.

import { h, icon, replace, setAttr, setClass, setText, show } from "./dom.js";
import { percent } from "./format.js";
import { t } from "./text.js";

/** The state of a job as word + icon + colour: `failed` red, `cancelled` (stopped) amber. */
export function statePill(state) {
  const node = h("span", {});
  updatePill(node, state);
  return node;
}

export function updatePill(node, state) {
  if (node.dataset.state === state) return;
  node.dataset.state = state;
  setClass(node, `td-pill td-state-${state}`);
  replace(node, icon(state), h("span", {}, t(`state.${state}`)));
}

export function progressBar(label) {
  const fill = h("span", { class: "td-bar-fill" });
  const node = h("div", { class: "td-bar", role: "progressbar", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": 100 }, fill);
  return node;
}

/** `value` in percent or null (not known yet: an indeterminate bar while `active`). */
export function updateProgress(node, value, { active = false, state = "" } = {}) {
  const known = Number.isFinite(value);
  setClass(node, `td-bar${!known && active ? " td-bar-unknown" : ""}${state ? ` td-bar-${state}` : ""}`);
  node.firstChild.style.width = known ? `${Math.max(0, Math.min(100, value))}%` : "";
  setAttr(node, "aria-valuenow", known ? Math.round(value) : null);
  setAttr(node, "aria-valuetext", known ? percent(value) : null);
}

/** A button; `kind` is primary, danger, quiet or "". */
export function button(label, { kind = "", iconName = "", onclick = null, title = "", ...props } = {}) {
  return h("button", { type: "button", class: `td-button ${kind ? `td-button-${kind}` : ""}`, onclick, title, ...props },
    iconName && icon(iconName), h("span", {}, label));
}

export function iconButton(label, iconName, onclick, props = {}) {
  return h("button", { type: "button", class: "td-icon-button", "aria-label": label, title: label, onclick, ...props }, icon(iconName));
}

export function linkButton(label, address, { kind = "", iconName = "", ...props } = {}) {
  return h("a", { class: `td-button ${kind ? `td-button-${kind}` : ""}`, href: address, ...props }, iconName && icon(iconName), h("span", {}, label));
}

/** Runs `action` once at a time with the button busy; a refusal is shown as a toast with the server's own words. */
export function busyWhile(node, action) {
  return async () => {
    if (node.getAttribute("aria-busy") === "true") return;
    node.setAttribute("aria-busy", "true");
    try {
      await action();
    } catch (error) {
      toast(error.message, "bad");
    } finally {
      node.removeAttribute("aria-busy");
    }
  };
}

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    copyBySelection(text); // the clipboard API exists only on https and localhost
  }
  toast(t("copied"), "ok");
}

function copyBySelection(text) {
  const area = h("textarea", { class: "td-offscreen", "aria-hidden": "true" });
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

/** Gives the person a file that the page made. */
export function save(name, blob) {
  const link = h("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

let toasts = null;

export function toast(message, kind = "info") {
  if (!toasts) {
    toasts = h("div", { class: "td-toasts", role: "status", "aria-live": "polite" });
    document.body.append(toasts);
  }
  const name = { bad: "failed", ok: "succeeded" }[kind] ?? "info";
  const node = h("div", { class: `td-toast td-toast-${kind}` }, icon(name), h("span", {}, message),
    iconButton(t("close"), "close", () => node.remove()));
  toasts.append(node);
  setTimeout(() => node.remove(), kind === "bad" ? 12_000 : 4_000);
}

/**
 * A modal dialog. `body` are nodes, `actions` [{label, kind, run}] (run may refuse by throwing: the dialog stays and shows why).
 * Resolves when it is closed.
 */
export function dialog({ title, body, actions, cancel = t("cancel") }) {
  const problem = h("p", { class: "td-dialog-problem", role: "alert", hidden: true });
  const node = h("dialog", { class: "td-dialog", "aria-labelledby": "td-dialog-title" });
  node.append(h("div", { class: "td-dialog-box" },
    h("h2", { id: "td-dialog-title" }, title),
    h("div", { class: "td-dialog-body" }, body),
    problem,
    h("div", { class: "td-dialog-actions" },
      button(cancel, { onclick: () => node.close() }),
      actions.map((action) => actionButton(action, node, problem)))));
  node.addEventListener("click", (event) => event.target === node && node.close());
  document.body.append(node);
  node.showModal();
  return new Promise((resolve) => node.addEventListener("close", () => {
    node.remove();
    resolve();
  }));
}

function actionButton({ label, kind, iconName, run, ...props }, node, problem) {
  const made = button(label, { kind, iconName, ...props });
  made.addEventListener("click", async () => {
    if (made.getAttribute("aria-busy") === "true") return;
    made.setAttribute("aria-busy", "true");
    try {
      await run();
      node.close();
    } catch (error) {
      setText(problem, error.message);
      show(problem, true);
    } finally {
      made.removeAttribute("aria-busy");
    }
  });
  return made;
}

/** Radio cards: `options` [{value, title, text, iconName, kind}]; returns {node, value()}. */
export function choiceCards(name, options, selected) {
  const inputs = options.map((option) => h("input", { type: "radio", name, value: option.value, checked: option.value === selected, disabled: option.disabled }));
  const node = h("div", { class: "td-choices", role: "radiogroup" }, options.map((option, index) =>
    h("label", { class: `td-choice ${option.kind ? `td-choice-${option.kind}` : ""}` }, inputs[index],
      h("span", { class: "td-choice-text" }, h("strong", {}, option.title), option.text && h("span", {}, option.text)))));
  return { node, value: () => inputs.find((input) => input.checked)?.value ?? null };
}

/** Text in a box with a copy button; `kind` names the language for screen readers only. */
export function codeBlock(text, { label, wrap = false, limit = false } = {}) {
  return h("figure", { class: `td-code${wrap ? " td-code-wrap" : ""}${limit ? " td-code-limit" : ""}` },
    h("figcaption", {}, h("span", {}, label), button(t("copy"), { kind: "quiet", iconName: "copy", onclick: () => copyText(text) })),
    h("pre", { tabindex: 0, "aria-label": label }, h("code", {}, text)));
}

export function emptyNote(title, text, ...more) {
  return h("div", { class: "td-empty" }, h("strong", {}, title), text && h("p", {}, text), more);
}

export function skeleton(rows = 3) {
  return h("div", { class: "td-skeleton", "aria-hidden": "true" }, Array.from({ length: rows }, () => h("span", {})));
}

/** What to show when a page's data cannot be had, with a way to try again. */
export function problemNote(message, again) {
  return h("div", { class: "td-note td-note-bad", role: "alert" }, icon("failed"), h("div", {}, h("p", {}, message)),
    again && button(t("retry"), { onclick: again, iconName: "resume" }));
}
