// Turns lines of numbers into an SVG chart with ticks, smoothing, values under the pointer and zoom by dragging. No library.

import { h, replace } from "./dom.js";
import { smooth, smoothingSpan } from "./series.js";

const HEIGHT = 240;
const EDGE = { left: 58, right: 10, top: 10, bottom: 24 };
const TICKS = 5;
const PADDING = 14;

/** `lines` [{name, x, y, style: {colour, dash}}], `marks` [{x, colour, text}] (rules with a word on them), `range` of x or null for all, `onZoom(range or null)`. Draws again into the same `node`. */
export function drawChart(node, { title, lines, marks = [], smoothing, dots, format, range, onZoom, axisFormat }) {
  const width = Math.max(280, node.clientWidth - 2 * PADDING);
  const drawn = lines.map((line) => cut(line, range));
  const [xLow, xHigh] = range ?? spread(drawn.flatMap((line) => line.x), 0);
  const known = drawn.map((line) => ({ ...line, mean: smooth(line.x, line.y, smoothingSpan(smoothing, line.x[0], line.x.at(-1))) }));
  const [yLow, yHigh] = spread(known.flatMap((line) => line.y.filter((value) => value !== null)), 0.05);
  const toX = (value) => EDGE.left + ((value - xLow) / (xHigh - xLow)) * (width - EDGE.left - EDGE.right);
  const toY = (value) => HEIGHT - EDGE.bottom - ((value - yLow) / (yHigh - yLow)) * (HEIGHT - EDGE.top - EDGE.bottom);
  const svg = element("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": title });
  for (const tick of ticks(yLow, yHigh)) {
    svg.append(element("line", { x1: EDGE.left, x2: width - EDGE.right, y1: toY(tick), y2: toY(tick), stroke: "var(--td-grid)" }), label(format(tick), EDGE.left - 6, toY(tick) + 4, "end"));
  }
  for (const tick of ticks(xLow, xHigh)) svg.append(label(axisFormat(tick), toX(tick), HEIGHT - 6, "middle"));
  for (const line of known) {
    const smoothed = smoothing > 0 && line.x.length > 4;
    const stroke = { fill: "none", stroke: `var(--td-${line.style.colour})`, "stroke-linejoin": "round", "vector-effect": "non-scaling-stroke" };
    svg.append(element("path", { ...stroke, d: path(line.x, line.y, toX, toY), "stroke-width": smoothed ? 1 : 1.8, opacity: smoothed ? 0.28 : 1, "stroke-dasharray": smoothed ? "" : dashes(line.style) }));
    if (smoothed) svg.append(element("path", { ...stroke, d: path(line.x, line.mean, toX, toY), "stroke-width": 2.2, "stroke-dasharray": dashes(line.style) }));
    if (dots) for (const [i, value] of line.y.entries()) if (value !== null && line.x[i] !== null) svg.append(element("circle", { cx: toX(line.x[i]), cy: toY(value), r: 2.6, fill: `var(--td-${line.style.colour})` }));
  }
  for (const mark of marks) if (mark.x !== null && mark.x >= xLow && mark.x <= xHigh) svg.append(rule(mark, toX(mark.x)));
  const tip = h("div", { class: "tip", hidden: true });
  replace(node, h("h3", {}, title), svg, tip);
  listen(svg, tip, { known, toX, format, axisFormat, onZoom, width, back: (px) => xLow + ((px - EDGE.left) / (width - EDGE.left - EDGE.right)) * (xHigh - xLow) });
}

/** A dotted line with a flag at its top; the words come with the pointer. */
function rule({ colour, text }, x) {
  const group = element("g", { stroke: `var(--td-${colour})`, fill: `var(--td-${colour})`, class: "mark" });
  const words = element("title", {});
  words.textContent = text;
  group.append(words, element("line", { x1: x, x2: x, y1: EDGE.top, y2: HEIGHT - EDGE.bottom, "stroke-dasharray": "2 3" }), element("path", { d: `M${x - 6} ${EDGE.top - 8}h12l-6 10z` }));
  return group;
}

function cut(line, range) {
  const inside = line.x.map((x, i) => i).filter((i) => line.x[i] !== null && (!range || (line.x[i] >= range[0] && line.x[i] <= range[1])));
  return { ...line, x: inside.map((i) => line.x[i]), y: inside.map((i) => line.y[i]) };
}

/** Lowest and highest with a margin; a range also where all values are one. */
function spread(values, margin) {
  const low = values.reduce((a, b) => Math.min(a, b), Infinity);
  const high = values.reduce((a, b) => Math.max(a, b), -Infinity);
  if (!(low <= high)) return [0, 1];
  const room = high > low ? (high - low) * margin : Math.abs(high) * 0.1 || 1;
  return [low - room, high + room];
}

/** Round numbers between two ends. */
function ticks(low, high) {
  const rough = (high - low) / TICKS;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = size * [1, 2, 5, 10].find((factor) => size * factor >= rough);
  const found = [];
  for (let at = Math.ceil(low / step); at * step <= high; at += 1) found.push(Number((at * step).toPrecision(12)));
  return found;
}

function path(x, y, toX, toY) {
  let pen = "M";
  return x.map((value, i) => {
    if (y[i] === null || value === null) {
      pen = "M";
      return "";
    }
    const point = `${pen}${toX(value).toFixed(1)} ${toY(y[i]).toFixed(1)}`;
    pen = "L";
    return point;
  }).join("");
}

function dashes({ dash }) {
  return { dash: "7 4", dot: "2 4", dashdot: "7 3 2 3" }[dash] ?? "";
}

function listen(svg, tip, { known, toX, format, axisFormat, onZoom, width, back }) {
  const rule = element("line", { y1: EDGE.top, y2: HEIGHT - EDGE.bottom, stroke: "var(--td-muted)", "stroke-dasharray": "2 3", visibility: "hidden" });
  const band = element("rect", { y: EDGE.top, height: HEIGHT - EDGE.top - EDGE.bottom, fill: "var(--td-accent)", opacity: 0.15, visibility: "hidden" });
  svg.append(rule, band);
  let from = null;
  const place = (event) => {
    const box = svg.getBoundingClientRect();
    return back(((event.clientX - box.left) / box.width) * width);
  };
  const hide = () => {
    tip.hidden = true;
    rule.setAttribute("visibility", "hidden");
    band.setAttribute("visibility", "hidden");
  };
  svg.addEventListener("pointermove", (event) => {
    const at = place(event);
    rule.setAttribute("visibility", "visible");
    for (const side of ["x1", "x2"]) rule.setAttribute(side, toX(at));
    if (from !== null) {
      band.setAttribute("visibility", "visible");
      band.setAttribute("x", Math.min(toX(from), toX(at)));
      band.setAttribute("width", Math.abs(toX(at) - toX(from)));
    }
    const lines = known.map((line) => ({ line, i: nearest(line.x, at) })).filter(({ i }) => i >= 0);
    replace(tip, h("div", {}, axisFormat(at)), lines.map(({ line, i }) => h("div", {}, h("i", { class: "swatch", style: { "border-color": `var(--td-${line.style.colour})` } }), h("span", {}, `${line.name}: `), h("b", {}, format(line.y[i])))));
    tip.hidden = false;
    const box = svg.getBoundingClientRect();
    tip.style[event.clientX - box.left > box.width / 2 ? "left" : "right"] = "70px";
    tip.style[event.clientX - box.left > box.width / 2 ? "right" : "left"] = "auto";
  });
  svg.addEventListener("pointerdown", (event) => (from = place(event)));
  svg.addEventListener("pointerup", (event) => {
    const to = place(event);
    const wide = from !== null && Math.abs(toX(to) - toX(from)) > 6;
    const range = wide ? [Math.min(from, to), Math.max(from, to)] : null;
    from = null;
    hide();
    if (range) onZoom(range);
  });
  svg.addEventListener("dblclick", () => onZoom(null));
  svg.addEventListener("pointerleave", hide);
}

/** Index of the known x nearest to `at`; -1 when `at` lies beyond the line. */
function nearest(x, at) {
  if (!x.length || at < x[0] || at > x[x.length - 1]) return -1;
  const right = x.findIndex((value) => value >= at);
  return right > 0 && at - x[right - 1] < x[right] - at ? right - 1 : right;
}

function label(text, x, y, anchor) {
  const node = element("text", { x, y, "text-anchor": anchor });
  node.textContent = text;
  return node;
}

function element(name, attributes) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) if (value !== "") node.setAttribute(key, value);
  return node;
}
