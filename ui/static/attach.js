// Turns the path of a run that Tunedeck did not start into its page.

import { href, navigate } from "./app.js";
import { post } from "./api.js";
import { h } from "./dom.js";
import { t } from "./text.js";
import { dialog } from "./widgets.js";

export function attachDialog() {
  const path = h("input", { class: "td-input", required: true, placeholder: "/data/runs/llama3-lora", spellcheck: "false", autocomplete: "off" });
  const name = h("input", { class: "td-input", autocomplete: "off" });
  const pid = h("input", { class: "td-input", inputmode: "numeric", placeholder: t("attach.pid.auto"), autocomplete: "off" });
  const field = (label, input, help) => h("label", { class: "td-attach-field" }, h("span", {}, label), input, help && h("small", { class: "td-muted" }, help));
  const closed = dialog({
    title: t("attach.title"),
    body: [h("p", {}, t("attach.help")), field(t("attach.path"), path), field(t("attach.name"), name), field(t("attach.pid"), pid, t("attach.pid.help"))],
    actions: [{ label: t("attach.confirm"), kind: "primary", iconName: "link", run: async () => {
      const number = pid.value.trim();
      if (number && !/^\d{1,7}$/.test(number)) throw new Error(t("attach.pid.bad", { found: number }));
      const { job } = await post("/api/attach", { path: path.value.trim(), name: name.value.trim(), pid: number ? Number(number) : null });
      navigate(href("run", { id: job.id }));
    } }],
  });
  path.focus();
  return closed;
}
