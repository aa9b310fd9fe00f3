// Turns the person's choice (or the system's) of light or dark into the `dark` class that Gradio and our styles follow.

const KEY = "tunedeck.theme";

/** "light", "dark" or null: follow the system. */
export function chosenTheme() {
  const forced = new URLSearchParams(location.search).get("__theme"); // Gradio's own switch, used by tests and links
  if (forced === "light" || forced === "dark") return forced;
  return localStorage.getItem(KEY);
}

export function applyTheme(choice) {
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  document.body.classList.toggle("dark", choice ? choice === "dark" : system.matches);
}

export function nextTheme() {
  const next = document.body.classList.contains("dark") ? "light" : "dark";
  localStorage.setItem(KEY, next);
  return next;
}

/** Calls `draw` whenever light turns to dark or back; returns the way to stop. */
export function onTheme(draw) {
  let dark = document.body.classList.contains("dark");
  const observer = new MutationObserver(() => {
    if (document.body.classList.contains("dark") === dark) return;
    dark = !dark;
    draw();
  });
  observer.observe(document.body, { attributes: true, attributeFilter: ["class"] });
  return () => observer.disconnect();
}

export function token(name) {
  return getComputedStyle(document.body).getPropertyValue(`--td-${name}`).trim();
}
