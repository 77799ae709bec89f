// Element factories, icons and formats that all views use. A string always becomes a text node,
// never HTML.

import { requireScope } from "./scope.js";

const SVG = "http://www.w3.org/2000/svg";
const DOM_PROPERTIES = new Set([
  "value",
  "checked",
  "disabled",
  "selected",
  "open",
  "hidden",
  "indeterminate",
]);

/**
 * Creates an element: `h("a", { href, class, onclick }, "text", child, [children])`. Children that
 * are null, undefined or false are skipped. `needs`: the scope without which the element is
 * disabled.
 */
export function h(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || name === "needs") continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else if (name === "data") Object.assign(node.dataset, value);
    else if (DOM_PROPERTIES.has(name)) node[name] = value;
    else if (value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(
    ...children
      .flat(Infinity)
      .filter((child) => child !== null && child !== undefined && child !== false),
  );
  return requireScope(node, attributes?.needs);
}

const ICON_PATHS = {
  agents: "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4.500 20a7.500 7.500 0 0 1 15 0",
  templates: "M8 4h11v11M5 8h11v12H5z",
  avatars: "M4 5h16v14H4zM9 12a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM4 17l5-3 4 3 4-4 3 3",
  knowledge: "M5 4.500h11a3 3 0 0 1 3 3V20H8a3 3 0 0 1-3-3zM5 17a3 3 0 0 1 3-3h11",
  tools:
    "M14.500 6.500a4 4 0 0 1 5-1l-2.800 2.800.8 2.200 2.200.8 2.300-2.300a4.500 4.500 0 0 1-6 5" +
    "L8.500 21.500a2 2 0 0 1-3-3L13 11a4.500 4.500 0 0 1 1.500-4.500z",
  guardrails:
    "M12 3l7.500 3v5.500c0 4.500-3 8-7.500 9.500-4.500-1.500-7.500-5-7.500-9.500V6z" +
    "M9 12l2.200 2.200L15.500 10",
  mcp: "M8 3v5M16 3v5M6 8h12v4a6 6 0 0 1-12 0zM12 18v3",
  conversations: "M4 5h16v11H10l-4.500 4v-4H4z",
  videos: "M3.500 5h17v14h-17zM10 9l5 3-5 3z",
  webhooks: "M6 17a3 3 0 1 0 3 3v-3h7M9.500 9.500a3.500 3.500 0 1 1 5-3L12 11l4 6a3 3 0 1 1 .5 4",
  providers: "M5 5h14v6H5zM5 13h14v6H5zM8.500 8h.01M8.500 16h.01",
  keys: "M8 15a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM11.500 11H21v3.500M17.500 11v2.500",
  servers: "M9 4h6v5H9zM4 15h6v5H4zM14 15h6v5h-6zM12 9v3M7 15v-3h10v3",
  docs: "M6 3.500h8l4 4V20.500H6zM14 3.500v4h4M9 12h6M9 16h6",
  leave: "M14 4.500H5v15h9M10 12h10.500M17 8.500l3.500 3.500-3.500 3.500",
  plus: "M12 5v14M5 12h14",
  close: "M6 6l12 12M18 6L6 18",
  talk:
    "M5 8.500A3.500 3.500 0 0 1 8.500 5h7A3.500 3.500 0 0 1 19 8.500v4" +
    "a3.500 3.500 0 0 1-3.500 3.500H12l-4 3.500V16a3 3 0 0 1-3-3z",
  copy: "M9 9h11v11H9zM15 9V4H4v11h5",
  again: "M19.500 12a7.500 7.500 0 1 1-2.300-5.400M17.500 3v4h-4",
  bin: "M5 7h14M10 7V4.500h4V7M7 7l.8 13h8.400L17 7",
  tool: "M8 6l-5 6 5 6M16 6l5 6-5 6",
  sound:
    "M4 9.500v5h3.500L12 18.500v-13L7.500 9.500zM15.500 9a4 4 0 0 1 0 6M18 6.500a7.500 7.500 0 0 1 0 11",
  muted: "M4 9.500v5h3.500L12 18.500v-13L7.500 9.500zM15.500 9.500l5 5M20.500 9.500l-5 5",
  fullscreen: "M4.500 9V4.500H9M15 4.500h4.500V9M19.500 15v4.500H15M9 19.500H4.500V15",
  file: "M6 3.500h8l4 4V20.500H6zM14 3.500v4h4",
  enter: "M10 4.500h9v15h-9M3.500 12H14M10.500 8.500L14 12l-3.500 3.500",
  clock: "M12 20.500a8.500 8.500 0 1 0 0-17 8.500 8.500 0 0 0 0 17zM12 7.500V12l3 2",
  camera: "M3.500 7h11v10h-11zM14.500 11l6-3.500v9l-6-3.500",
  done: "M12 20.500a8.500 8.500 0 1 0 0-17 8.500 8.500 0 0 0 0 17zM8 12.200l2.800 2.800 5-5.500",
  alert: "M12 4l9 16H3zM12 10v4.500M12 17.200v.1",
};

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICON_PATHS[name]);
  svg.append(path);
  return svg;
}

export const button = (label, attributes = {}, iconName) =>
  h("button", { type: "button", ...attributes }, iconName && icon(iconName), h("span", {}, label));
export const link = (label, href, attributes = {}, iconName) =>
  h("a", { href, ...attributes }, iconName && icon(iconName), h("span", {}, label));

/** A short state label. Its colour repeats the text and carries no extra information. */
export const pill = (label, tone = "") => h("span", { class: `pill ${tone}` }, label);

/** @type {Intl.DateTimeFormatOptions} */
const DATE_FORMAT = { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" };

/** A `<time>` element for an ISO time, in the user's locale. Its title is the exact time. */
export function timeElement(iso, format = {}) {
  if (!iso) return h("span", { class: "soft" }, "–");
  const date = new Date(iso);
  /** @type {Intl.DateTimeFormatOptions} */
  const year = date.getFullYear() === new Date().getFullYear() ? {} : { year: "numeric" };
  return h(
    "time",
    { datetime: iso, title: date.toLocaleString() },
    date.toLocaleString([], { ...DATE_FORMAT, ...year, ...format }),
  );
}

/** Formats seconds as `1:05` or `1:02:05`. */
export function formatDuration(seconds) {
  const total = Math.max(0, Math.round(Number(seconds) || 0));
  const twoDigits = (n) => String(n).padStart(2, "0");
  const hours = Math.floor(total / 3600);
  return (
    `${hours ? `${hours}:${twoDigits(Math.floor(total / 60) % 60)}` : Math.floor(total / 60)}` +
    `:${twoDigits(total % 60)}`
  );
}

export const formatBytes = (n) =>
  n < 1024
    ? `${n} B`
    : n < 1 << 20
      ? `${Math.round(n / 1024)} KB`
      : `${(n / (1 << 20)).toFixed(1)} MB`;
export const plural = (n, one, many = `${one}s`) => `${n} ${n === 1 ? one : many}`;

/** A text with a button that copies it. `name` describes the text for screen readers. */
export function copyable(text, name) {
  const copyButton = button("Copy", { class: "small", "aria-label": `Copy ${name}` }, "copy");
  const copyLabel = copyButton.querySelector("span");
  copyButton.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      copyLabel.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      copyLabel.textContent = "Press Ctrl+C";
    }
  });
  const code = h("code", { tabindex: "0", "aria-label": name }, text);
  return h("div", { class: "copyable" }, code, copyButton);
}
