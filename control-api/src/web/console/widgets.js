// The controls of a form, by kind. Each makes `{node, get, first}`: what is shown, its value, and what takes the focus; those of one value
// also `set`, which shows another one.

import { button, h, icon } from "./dom.js";

const id = (field) => `f-${field.path.replace(/[^a-z0-9]+/gi, "-")}`;
const about = (field) => `${id(field)}-hint ${id(field)}-fault`;
const single = (node, get, set = (value) => { node.value = value ?? ""; }) => ({ node, get, set, first: () => node });

function text(field, value) {
  const node = h("input", { id: id(field), type: field.type ?? "text", value: value ?? "", placeholder: field.placeholder, maxlength: field.max, required: field.required, spellcheck: field.type === "url" || field.code ? "false" : undefined,
    autocomplete: field.type === "password" ? "new-password" : "off", list: field.suggest && `${id(field)}-list`, "aria-describedby": about(field) });
  const trimmed = () => (field.type === "password" ? node.value : node.value.trim());
  const get = () => trimmed() || (field.empty === undefined ? "" : field.empty);
  if (!field.suggest) return single(node, get);
  const list = h("datalist", { id: `${id(field)}-list` }, field.suggest.map((option) => h("option", { value: option })));
  return { node: h("div", {}, node, list), get, first: () => node };
}

function orNull(widget) {
  return { ...widget, get: () => widget.get() || null };
}

function number(field, value) {
  const node = h("input", { id: id(field), type: "number", value: value ?? "", min: field.min, max: field.max, step: field.step ?? "any", inputmode: "decimal", placeholder: field.placeholder, "aria-describedby": about(field) });
  const shown = field.unit ? h("div", { class: "unit" }, node, h("span", {}, field.unit)) : node;
  // What the browser cannot read as a number goes to the server as text, which says what is wrong with it.
  return { node: shown, first: () => node, set: (now) => { node.value = now ?? ""; }, get: () => (node.value.trim() === "" ? (node.validity.badInput ? "?" : null) : Number(node.value)) };
}

function area(field, value) {
  const node = h("textarea", { id: id(field), rows: field.rows ?? 4, value: value ?? "", placeholder: field.placeholder, required: field.required, spellcheck: field.code ? "false" : undefined, class: field.code ? "code" : undefined, "aria-describedby": about(field) });
  return single(node, () => node.value);
}

/** One text a line. What was not touched comes back as it was, line breaks within a text included. */
function lines(field, value) {
  const before = (value ?? []).join("\n");
  const widget = area({ rows: 3, ...field }, before);
  return { ...widget, get: () => {
    const now = widget.first().value;
    return now === before ? (value ?? []) : now.split("\n").map((line) => line.trim()).filter(Boolean);
  } };
}

function json(field, value) {
  const widget = area({ rows: 6, code: true, ...field }, value === null || value === undefined || (typeof value === "object" && !Object.keys(value).length) ? "" : JSON.stringify(value, null, 2));
  return { ...widget, get: () => {
    const now = widget.first().value.trim();
    if (!now) return field.empty ?? {};
    try {
      return JSON.parse(now);
    } catch (error) {
      throw Object.assign(new Error("is not valid JSON"), { field: field.path });
    }
  } };
}

function select(field, value) {
  const options = field.options.map((option) => (Array.isArray(option) ? option : [option, option]));
  // A value that this server does not know stays as it is.
  if (value !== null && value !== undefined && value !== "" && !options.some(([known]) => known === value)) options.push([value, String(value)]);
  const node = h("select", { id: id(field), "aria-describedby": about(field) }, options.map(([known, words]) => h("option", { value: known ?? "", selected: (value ?? "") === (known ?? "") }, words)));
  return single(node, () => (node.value === "" && field.empty !== undefined ? field.empty : node.value), (now) => {
    if (![...node.options].some((option) => option.value === now)) node.append(h("option", { value: now }, now));
    node.value = now;
  });
}

function check(field, value) {
  const node = h("input", { id: id(field), type: "checkbox", checked: value ?? field.initial ?? false, "aria-describedby": about(field) });
  return single(node, () => node.checked, (now) => { node.checked = Boolean(now); });
}

/** A number on a scale; `field.shown(value)` says it in words. */
function slider(field, value) {
  const words = h("output", { for: id(field) });
  const node = h("input", { id: id(field), type: "range", min: field.min, max: field.max, step: field.step ?? 0.01, value: value ?? field.min, "aria-describedby": about(field) });
  const tell = () => {
    words.textContent = field.shown(Number(node.value));
    node.setAttribute("aria-valuetext", words.textContent);
  };
  node.addEventListener("input", tell);
  tell();
  return { node: h("div", { class: "slide" }, node, words), get: () => Number(node.value), first: () => node, set: (now) => {
    node.value = now;
    tell();
  } };
}

/** A colour, or with `field.optional` none. */
function colour(field, value) {
  const node = h("input", { id: id(field), type: "color", value: value ?? "#8e5a73", "aria-describedby": about(field) });
  if (!field.optional) return single(node, () => node.value);
  const worn = h("input", { type: "checkbox", checked: Boolean(value), "aria-label": `${field.label}: worn`, onchange: () => { node.disabled = !worn.checked; } });
  node.disabled = !worn.checked;
  return { node: h("div", { class: "joined" }, worn, node), get: () => (worn.checked ? node.value : null), first: () => worn, set: (now) => {
    worn.checked = Boolean(now);
    node.disabled = !worn.checked;
    if (now) node.value = now;
  } };
}

/** Rows of named values, as headers: `{a: "b"}`, or with `field.columns` `[{a: …, b: …}]`. */
function pairs(field, value) {
  const [left, right] = field.columns ?? ["name", "value"];
  const rows = h("div", { class: "rows" });
  const add = (a = "", b = "") => {
    const row = h("div", { class: "row" },
      h("input", { type: "text", value: a, placeholder: field.labels?.[0], "aria-label": `${field.label}: ${field.labels?.[0] ?? left}`, autocomplete: "off", spellcheck: "false" }),
      h("input", { type: field.secret ? "password" : "text", value: b, placeholder: field.labels?.[1], "aria-label": `${field.label}: ${field.labels?.[1] ?? right}`, autocomplete: "new-password", spellcheck: "false" }),
      button("", { class: "plain", "aria-label": `Remove this ${field.one ?? "row"}`, onclick: () => {
        row.remove();
        rows.dispatchEvent(new Event("input", { bubbles: true }));
        more.focus();
      } }, "bin"));
    rows.append(row);
    return row;
  };
  for (const [a, b] of field.columns ? (value ?? []).map((item) => [item[left], item[right]]) : Object.entries(value ?? {})) add(a, b);
  const more = button(`Add a ${field.one ?? "row"}`, { class: "small", id: id(field), onclick: () => add().querySelector("input").focus() }, "plus");
  const get = () => {
    const all = [...rows.children].map((row) => [...row.querySelectorAll("input")].map((input) => input.value.trim())).filter(([a, b]) => a || b);
    return field.columns ? all.map(([a, b]) => ({ [left]: a, [right]: b })) : Object.fromEntries(all);
  };
  return { node: h("div", {}, rows, more), get, first: () => rows.querySelector("input") ?? more, group: true };
}

/** Cards to choose from: one (`field.single`) or any number. `field.options`: `[{id, name, words, picture}]`. */
function cards(field, value) {
  const chosen = new Set(field.single ? [value] : (value ?? []).map((item) => item?.id ?? item));
  const inputs = field.options.map((option, i) => h("input", { type: field.single ? "radio" : "checkbox", name: id(field), id: `${id(field)}-${i}`, value: option.id, checked: chosen.has(option.id), "aria-describedby": option.words ? `${id(field)}-${i}-w` : undefined }));
  const node = h("div", { class: field.pictures ? "cards faces" : "cards" }, field.options.map((option, i) => h("div", { class: "choice" },
    inputs[i],
    h("label", { for: `${id(field)}-${i}` },
      field.pictures && (option.picture ? h("img", { src: option.picture, alt: "", width: 96, height: 96 }) : h("span", { class: "badge" }, icon("avatars"))),
      h("span", { class: "name" }, option.name)),
    option.words && h("p", { class: "soft", id: `${id(field)}-${i}-w` }, option.words))));
  if (!field.options.length) node.append(h("p", { class: "soft" }, field.none ?? "There are none yet."));
  const get = () => {
    const now = inputs.filter((input) => input.checked).map((input) => input.value);
    if (field.single) return now[0] ?? "";
    if (!now.length && !chosen.size) return value ?? null;
    // What was chosen before keeps its order, also where it is not among the options; what is new comes behind it.
    const before = [...chosen].filter((id) => now.includes(id) || !field.options.some((option) => option.id === id));
    return [...before, ...now.filter((id) => !chosen.has(id))];
  };
  return { node, get, first: () => inputs.find((input) => input.checked) ?? inputs[0] ?? node, group: true };
}

const secret = (field, value) => orNull(text({ ...field, type: "password", placeholder: field.placeholder ?? "Not set" }, value));

const KINDS = { text, number, slider, colour, area, lines, json, select, check, pairs, cards, secret };

/** The control of a field. */
export const widget = (field, value) => ({ ...(field.kind ? KINDS[field.kind] : text)(field, value), id: id(field) });
