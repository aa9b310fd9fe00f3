// Turns descriptions into DOM nodes. Data only ever reaches the page as textContent or an attribute value, never as markup.

const SVG = "http://www.w3.org/2000/svg";

/** One element. `props`: `class`, `on<event>` functions, `dataset`, `style` (object), any attribute; null and false are left out. */
export function h(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) setProp(node, name, value);
  node.append(...flat(children));
  return node;
}

function setProp(node, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
  else if (name === "class") node.className = value;
  else if (name === "dataset") Object.assign(node.dataset, value);
  else if (name === "style") for (const [key, part] of Object.entries(value)) node.style.setProperty(key, part);
  else if (name === "value" || name === "checked") node[name] = value;
  else node.setAttribute(name, value === true ? "" : String(value));
}

function flat(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : document.createTextNode(String(child))));
}

/** Writes only what differs, so that selections, hover and screen readers are left alone. */
export function setText(node, text) {
  const wanted = text === null || text === undefined ? "" : String(text);
  if (node.textContent !== wanted) node.textContent = wanted;
}

export function setAttr(node, name, value) {
  const wanted = value === null || value === undefined || value === false ? null : value === true ? "" : String(value);
  if (node.getAttribute(name) === wanted) return;
  if (wanted === null) node.removeAttribute(name);
  else node.setAttribute(name, wanted);
}

export function setClass(node, wanted) {
  if (node.className !== wanted) node.className = wanted;
}

export function show(node, visible) {
  if (node.hidden === visible) node.hidden = !visible;
}

export function replace(node, ...children) {
  node.replaceChildren(...flat(children));
}

/**
 * Makes `parent` hold one node per item, in order; nodes whose key stays are kept (focus, open menus and scroll survive).
 * `create(item)` makes a node, `update(node, item)` fills it.
 */
export function keyed(parent, items, key, create, update) {
  const old = new Map([...parent.children].map((node) => [node.dataset.key, node]));
  let at = parent.firstElementChild;
  for (const item of items) {
    const id = String(key(item));
    let node = old.get(id);
    old.delete(id);
    if (!node) {
      node = create(item);
      node.dataset.key = id;
    }
    update?.(node, item);
    if (node === at) at = at.nextElementSibling;
    else parent.insertBefore(node, at);
  }
  for (const node of old.values()) node.remove();
}

// 24x24 outline icons, drawn for this project: path data only.
const ICONS = {
  logo: ["M4 7h9", "M17 7h3", "M4 12h3", "M11 12h9", "M4 17h11", "M19 17h1", "M15 5v4", "M9 10v4", "M17 15v4"],
  home: ["M4 11.5 12 5l8 6.5", "M6 10v9h12v-9", "M10 19v-5h4v5"],
  list: ["M9 6h11", "M9 12h11", "M9 18h11", "M4.5 6h.01", "M4.5 12h.01", "M4.5 18h.01"],
  plus: ["M12 5v14", "M5 12h14"],
  queued: ["M12 12V7.5", "M12 12h3.5", "M12 3.5a8.5 8.5 0 1 0 0 17 8.5 8.5 0 0 0 0-17"],
  starting: ["M12 3.5a8.5 8.5 0 0 1 8.5 8.5"],
  running: ["M8 5.5v13l11-6.5z"],
  stopping: ["M12 3.5a8.5 8.5 0 0 1 8.5 8.5"],
  succeeded: ["M5 12.5 10 17.5 19.5 7"],
  failed: ["M6.5 6.5l11 11", "M17.5 6.5l-11 11"],
  cancelled: ["M7.5 7.5h9v9h-9z"],
  lost: ["M9 9.3a3 3 0 1 1 4.3 2.7c-.9.5-1.3 1-1.3 2", "M12 17.5h.01"],
  stop: ["M7 7h10v10H7z"],
  save: ["M5 4.5h11l3 3v12H5z", "M8.5 4.5v5h6v-5", "M8 19.5v-6h8v6"],
  resume: ["M19.5 12a7.5 7.5 0 1 1-2.4-5.5", "M19.5 4v4.5H15"],
  copy: ["M9 9h10.5v10.5H9z", "M15 9V4.5H4.5V15H9"],
  link: ["M10 14a4 4 0 0 0 5.7 0l3-3a4 4 0 0 0-5.7-5.7l-1 1", "M14 10a4 4 0 0 0-5.7 0l-3 3a4 4 0 0 0 5.7 5.7l1-1"],
  edit: ["M4.5 19.5l1-4L16 5l3 3L8.5 18.5z", "M14 7l3 3"],
  trash: ["M5 7h14", "M9.5 7V4.5h5V7", "M6.5 7l1 12.5h9l1-12.5", "M10 10.5v6", "M14 10.5v6"],
  download: ["M12 4.5v10", "M7.5 10.5 12 15l4.5-4.5", "M5 19.5h14"],
  search: ["M10.5 4.5a6 6 0 1 0 0 12 6 6 0 0 0 0-12", "M15 15l4.5 4.5"],
  up: ["M12 19V5.5", "M6.5 11 12 5.5 17.5 11"],
  down: ["M12 5v13.5", "M6.5 13 12 18.5 17.5 13"],
  chevron: ["M7 9.5l5 5 5-5"],
  right: ["M9.5 6.5l5.5 5.5-5.5 5.5"],
  sun: ["M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8", "M12 3v1.5", "M12 19.5V21", "M3 12h1.5", "M19.5 12H21", "M5.6 5.6l1 1", "M17.4 17.4l1 1", "M18.4 5.6l-1 1", "M6.6 17.4l-1 1"],
  moon: ["M19.5 14.5A8 8 0 0 1 9.5 4.5a8 8 0 1 0 10 10"],
  language: ["M12 3.5a8.5 8.5 0 1 0 0 17 8.5 8.5 0 0 0 0-17", "M3.5 12h17", "M12 3.5c3 2.5 3.5 5.5 3.5 8.5s-.5 6-3.5 8.5c-3-2.5-3.5-5.5-3.5-8.5s.5-6 3.5-8.5"],
  warning: ["M12 4.5 3.5 19.5h17z", "M12 10v4", "M12 17h.01"],
  info: ["M12 3.5a8.5 8.5 0 1 0 0 17 8.5 8.5 0 0 0 0-17", "M12 11v5", "M12 8h.01"],
  gpu: ["M4 8h15v8H4z", "M4 5.5v13", "M11.5 10a2 2 0 1 0 0 4 2 2 0 0 0 0-4", "M21 10v4"],
  cpu: ["M7 7h10v10H7z", "M10 4v3", "M14 4v3", "M10 17v3", "M14 17v3", "M4 10h3", "M4 14h3", "M17 10h3", "M17 14h3"],
  disk: ["M5 6.5c0-1.4 3-2.5 7-2.5s7 1.1 7 2.5-3 2.5-7 2.5-7-1.1-7-2.5", "M5 6.5v11c0 1.4 3 2.5 7 2.5s7-1.1 7-2.5v-11", "M5 12c0 1.4 3 2.5 7 2.5s7-1.1 7-2.5"],
  worker: ["M12 8.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7", "M12 3.5v3", "M12 17.5v3", "M3.5 12h3", "M17.5 12h3", "M6 6l2 2", "M16 16l2 2", "M18 6l-2 2", "M8 16l-2 2"],
  chart: ["M4.5 4.5v15h15", "M7.5 15l3.5-4.5 3 2.5 5-6.5"],
  gauge: ["M4 17a8 8 0 1 1 16 0", "M12 17l4-5.5", "M3.5 20h17"],
  log: ["M4.5 5.5h15v13h-15z", "M7.5 9.5l2.5 2.5-2.5 2.5", "M12 15h4"],
  box: ["M12 3.5l7.5 4v9l-7.5 4-7.5-4v-9z", "M4.5 7.5l7.5 4 7.5-4", "M12 11.5v9"],
  sliders: ["M4.5 7.5h8", "M16.5 7.5h3", "M4.5 16.5h3", "M11.5 16.5h8", "M14.5 5.5a2 2 0 1 0 0 4 2 2 0 0 0 0-4", "M9.5 14.5a2 2 0 1 0 0 4 2 2 0 0 0 0-4"],
  history: ["M4.5 12a7.5 7.5 0 1 0 2.4-5.5", "M4.5 4v4.5H9", "M12 8v4.5l3 1.5"],
  expand: ["M14.5 4.5h5v5", "M19.5 4.5l-6 6", "M9.5 19.5h-5v-5", "M4.5 19.5l6-6"],
  table: ["M4.5 5.5h15v13h-15z", "M4.5 10h15", "M10 10v8.5"],
  image: ["M4.5 5.5h15v13h-15z", "M4.5 15.5l4-4 4 4 3-3 4 4", "M15.5 9h.01"],
  close: ["M6 6l12 12", "M18 6 6 18"],
  flag: ["M6 20.5v-16", "M6 5h11l-2.5 4 2.5 4H6"],
  note: ["M5 4.5h14v10l-5 5H5z", "M14 19.5v-5h5", "M8.5 9h7", "M8.5 12.5h4"],
  dots: ["M6 12h.01", "M12 12h.01", "M18 12h.01"],
};

/** A decorative icon (hidden from screen readers: the word beside it speaks). */
export function icon(name, extra = "") {
  const node = document.createElementNS(SVG, "svg");
  node.setAttribute("viewBox", "0 0 24 24");
  node.setAttribute("class", `td-icon td-icon-${name} ${extra}`.trim());
  node.setAttribute("aria-hidden", "true");
  node.setAttribute("focusable", "false");
  for (const d of ICONS[name] ?? ICONS.info) {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", d);
    node.append(path);
  }
  return node;
}

/** A small line drawing of numbers; gaps (null) break the line. */
export function sparkline(values, { width = 120, height = 32, label = "" } = {}) {
  const node = document.createElementNS(SVG, "svg");
  node.setAttribute("viewBox", `0 0 ${width} ${height}`);
  node.setAttribute("preserveAspectRatio", "none");
  node.setAttribute("class", "td-spark");
  node.setAttribute("role", "img");
  node.setAttribute("aria-label", label);
  fillSparkline(node, values, width, height);
  return node;
}

export function fillSparkline(node, values, width = 120, height = 32) {
  const path = sparkPath(values, width, height);
  if (node.dataset.path === path) return;
  node.dataset.path = path;
  const line = document.createElementNS(SVG, "path");
  line.setAttribute("d", path);
  line.setAttribute("vector-effect", "non-scaling-stroke");
  node.replaceChildren(line);
}

function sparkPath(values, width, height) {
  const numbers = values.filter((value) => Number.isFinite(value));
  if (numbers.length < 2) return "";
  const low = Math.min(...numbers);
  const range = Math.max(...numbers) - low || 1;
  const step = width / Math.max(values.length - 1, 1);
  let pen = "M";
  return values.map((value, index) => {
    if (!Number.isFinite(value)) {
      pen = "M";
      return "";
    }
    const point = `${pen}${(index * step).toFixed(1)} ${(height - 2 - ((value - low) / range) * (height - 4)).toFixed(1)}`;
    pen = "L";
    return point;
  }).join("");
}
