// Turns the launch plan and the document a run came from into text to read and copy: exact command, environment, files, YAML.

import { get, root, runPath } from "./api.js";
import { h, replace } from "./dom.js";
import { t } from "./text.js";
import { codeBlock, emptyNote, linkButton } from "./widgets.js";

const EXPORTS = [["llamafactory_cli", "config.cli"], ["shell", "config.shell"]];

export function configSection(id) {
  const node = h("div", { class: "td-config" });
  let drawn = "";
  let exported = null;
  let asked = false;
  let seen = false;
  let detail = null;
  const draw = () => {
    if (!detail || !seen) return;
    const key = JSON.stringify([detail.plan, detail.spec_text, exported, detail.segments?.at(-1)?.versions]);
    if (key === drawn) return; // a selection in the text must survive the next number
    drawn = key;
    replace(node, parts(detail, exported, id));
  };
  const ask = async () => {
    if (asked) return;
    asked = true;
    exported = await get(runPath(id, "/export")).catch(() => null); // the plan itself is shown all the same
    draw();
  };
  return {
    node,
    update(next) {
      detail = next;
      draw();
    },
    visible(on) {
      if (!on) return;
      seen = true;
      ask();
      draw();
    },
  };
}

function parts({ plan, spec_text: spec, segments }, exported, id) {
  if (!plan && !spec) return emptyNote(t("config.none"), "");
  const files = Object.entries(plan?.files ?? {});
  return [
    exported?.files && h("div", { class: "td-toolbar" }, linkButton(t("config.export"), root() + runPath(id, "/export.zip"), { iconName: "download", download: "" }), h("span", { class: "td-muted" }, t("config.export.help"))),
    plan && block("config.command", "config.command.help", codeBlock(commandText(plan), { label: t("config.command"), wrap: true })),
    exported && EXPORTS.filter(([key]) => exported[key]).map(([key, label]) => disclose(t(label), codeBlock(exported[key], { label: t(label), wrap: true }))),
    plan && environment(plan),
    spec && block("config.spec", "config.spec.help", codeBlock(spec, { label: "spec.yaml", limit: true })),
    files.length > 0 && h("section", { class: "td-section" }, h("h2", {}, t("config.files")), scripts(exported), files.map(([path, text]) => disclose(path, codeBlock(text, { label: path, limit: true })))),
    versions(segments?.at(-1)?.versions),
  ];
}

/** The scripts of the export, to look at before they are taken home. */
function scripts(exported) {
  return Object.entries(exported?.files ?? {}).filter(([name]) => name === "job.sbatch" || name === "run.sh").map(([name, text]) => disclose(name, codeBlock(text, { label: name, limit: true })));
}

function block(title, help, content) {
  return h("section", { class: "td-section" }, h("h2", {}, t(title)), h("p", { class: "td-muted" }, t(help)), content);
}

function disclose(title, content) {
  return h("details", { class: "td-details" }, h("summary", {}, title), content);
}

/** One shell line that does the same training: directory, what is removed and added in the environment, argv. */
export function commandText(plan) {
  const unset = (plan.unset ?? []).map((name) => `-u ${quote(name)}`);
  const add = Object.entries(plan.env ?? {}).map(([name, value]) => `${name}=${quote(value)}`);
  const env = unset.length || add.length ? ["env", ...unset, ...add] : [];
  return `cd ${quote(plan.cwd)} && ${[...env, ...plan.argv.map(quote)].join(" ")}`;
}

function quote(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${String(word).replaceAll("'", "'\\''")}'`;
}

function environment(plan) {
  const rows = [...Object.entries(plan.env ?? {}).map(([name, value]) => [name, value]), ...(plan.unset ?? []).map((name) => [name, t("config.unset")]), ...(plan.secrets ?? []).map((name) => [name, t("config.secret")])];
  if (!rows.length) return null;
  return h("section", { class: "td-section" }, h("h2", {}, t("config.environment")), h("p", { class: "td-muted" }, t("config.environment.help")), pairs(rows));
}

function versions(found) {
  const rows = Object.entries(found ?? {});
  return rows.length ? h("section", { class: "td-section" }, h("h2", {}, t("config.versions")), pairs(rows)) : null;
}

function pairs(rows) {
  return h("dl", { class: "td-pairs" }, rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}
