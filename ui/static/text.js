// Turns message keys into the words of the page's language. The catalogue comes from ui/text through the page's configuration.

let catalogue = {};
let language = "en";

export function useCatalogue(lang, entries) {
  language = lang;
  catalogue = entries;
}

export function lang() {
  return language;
}

/** `{name}` in the text is replaced by `params.name`. A key without text is shown as itself, so a gap is seen and reported. */
export function t(key, params = {}) {
  const text = catalogue[key];
  if (text === undefined) return key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in params ? String(params[name]) : whole));
}

/** Text for a number of things: `key.one` for exactly one, `key.other` for the rest. */
export function tn(key, n, params = {}) {
  return t(n === 1 ? `${key}.one` : `${key}.other`, { n: n.toLocaleString(language === "zh" ? "zh-CN" : "en-US"), ...params });
}

export function has(key) {
  return catalogue[key] !== undefined;
}
