// Turns histories of several devices into one small picture over time: a line each, gaps where nothing was measured, values under the pointer.

import { PALETTE } from "./chart_defs.js";
import { h, replace, setText } from "./dom.js";
import * as f from "./format.js";
import { token } from "./theme.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 520;
const HEIGHT = 170;
const EDGE = { left: 64, right: 8, top: 8, bottom: 22 };
const TICKS = 4;
const TIME_TICKS = 4;

/** `format(value)` for axis and hover; `ceiling`: the axis goes at least so far (100 for a share in percent). */
export function timeChart(title, { format, ceiling = 0 }) {
  const value = h("span", { class: "td-chart-value" });
  const when = h("span", { class: "td-muted" });
  const place = h("div", { class: "td-time-plot" });
  const node = h("article", { class: "td-chart td-time-chart" }, h("header", {}, h("h3", {}, title), value, h("div", { class: "td-chart-tools" }, when)), place);
  let picture = null;
  node.addEventListener("pointermove", (event) => picture && point(event));
  node.addEventListener("pointerleave", () => { setText(value, ""); setText(when, ""); picture?.rule.setAttribute("visibility", "hidden"); });

  function point(event) {
    const box = picture.svg.getBoundingClientRect();
    const at = picture.from + ((event.clientX - box.left) / box.width * WIDTH - EDGE.left) / (WIDTH - EDGE.left - EDGE.right) * (picture.to - picture.from);
    if (at < picture.from || at > picture.to) return;
    picture.rule.setAttribute("visibility", "visible");
    for (const end of ["x1", "x2"]) picture.rule.setAttribute(end, picture.x(at));
    const words = picture.lines.map(({ name, times, mean }) => `${name} ${known(nearest(times, mean, at)) ? format(nearest(times, mean, at)) : f.DASH}`);
    setText(value, words.slice(0, 4).join(" · ") + (words.length > 4 ? " …" : ""));
    setText(when, f.moment(at));
    node.title = words.join("\n");
  }

  return {
    node,
    /** `lines`: [{name, times, mean}], times in Unix seconds. */
    draw(lines, from, to) {
      const values = lines.flatMap((line) => line.mean).filter(known);
      picture = null;
      if (!values.length) {
        replace(place, h("p", { class: "td-muted td-time-none" }, f.DASH));
        return;
      }
      const top = Math.max(ceiling, ...values) * (ceiling ? 1 : 1.05) || 1;
      const x = (at) => EDGE.left + ((at - from) / (to - from)) * (WIDTH - EDGE.left - EDGE.right);
      const y = (v) => HEIGHT - EDGE.bottom - (v / top) * (HEIGHT - EDGE.top - EDGE.bottom);
      const svg = element("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title });
      drawGrid(svg, { top, x, y, from, to, format });
      lines.forEach((line, i) => svg.append(element("path", { d: path(line, x, y), fill: "none", stroke: token(PALETTE[i % PALETTE.length]), "stroke-width": 1.6, "stroke-linejoin": "round" })));
      const rule = element("line", { y1: EDGE.top, y2: HEIGHT - EDGE.bottom, stroke: token("muted"), "stroke-dasharray": "2 2", visibility: "hidden" });
      svg.append(rule);
      replace(place, svg);
      picture = { svg, rule, x, from, to, lines };
    },
  };
}

const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

function nearest(times, values, at) {
  let best = null;
  for (let i = 0; i < times.length; i += 1) if (best === null || Math.abs(times[i] - at) < Math.abs(times[best] - at)) best = i;
  return best === null ? null : values[best];
}

function path({ times, mean }, x, y) {
  let open = false;
  return times.map((at, i) => {
    if (!known(mean[i])) {
      open = false;
      return "";
    }
    const step = `${open ? "L" : "M"}${x(at).toFixed(1)} ${y(mean[i]).toFixed(1)}`;
    const alone = !open && !known(mean[i + 1]); // a single value between gaps is a dot
    open = true;
    return alone ? `${step}h0.6` : step;
  }).join("");
}

function drawGrid(svg, { top, x, y, from, to, format }) {
  for (let i = 0; i <= TICKS; i += 1) {
    const value = (top * i) / TICKS;
    svg.append(element("line", { x1: EDGE.left, x2: WIDTH - EDGE.right, y1: y(value), y2: y(value), stroke: token("grid") }));
    svg.append(text(format(value), { x: EDGE.left - 6, y: y(value) + 3.5, "text-anchor": "end" }));
  }
  const long = to - from > 2 * 86_400;
  for (let i = 0; i <= TIME_TICKS; i += 1) {
    const at = new Date((from + ((to - from) * i) / TIME_TICKS) * 1000);
    const words = long ? at.toLocaleDateString(undefined, { month: "2-digit", day: "2-digit" }) : at.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", hour12: false });
    svg.append(text(words, { x: x(at / 1000), y: HEIGHT - 6, "text-anchor": i === 0 ? "start" : i === TIME_TICKS ? "end" : "middle" }));
  }
}

function text(words, attributes) {
  const node = element("text", { ...attributes, fill: token("muted"), "font-size": 10.5 });
  node.textContent = words;
  return node;
}

function element(name, attributes) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}
