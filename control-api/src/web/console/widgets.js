// The controls of a form, by kind. Each returns `{node, get, focusTarget}`: its node, a function
// for its value, and a function for the element that takes the focus. Controls of a single value
// also have `set(value)`. Controls that depend on other fields have `refresh(get)`. `group`: the
// control consists of several inputs; its `focusTarget(path)` may depend on the part that an error
// names.

import { audio } from "./audio-widget.js";
import { background } from "./background-widget.js";
import { button, h, icon } from "./dom.js";
import { describedBy, inputId } from "./field-ids.js";
import { fallbacks, voice } from "./provider-widgets.js";
import { slider } from "./slider.js";

const simpleControl = (
  node,
  get,
  set = (value) => {
    node.value = value ?? "";
  },
) => ({ node, get, set, focusTarget: () => node });

function text(field, value) {
  const node = h("input", {
    id: inputId(field),
    type: field.type ?? "text",
    value: value ?? "",
    placeholder: field.placeholder,
    maxlength: field.max,
    required: field.required,
    spellcheck: field.type === "url" || field.code ? "false" : undefined,
    autocomplete: field.type === "password" ? "new-password" : "off",
    list: field.suggestions && `${inputId(field)}-list`,
    "aria-describedby": describedBy(field),
  });
  const trimmed = () => (field.type === "password" ? node.value : node.value.trim());
  const get = () => trimmed() || (field.emptyValue === undefined ? "" : field.emptyValue);
  if (!field.suggestions) return simpleControl(node, get);
  const datalist = h("datalist", { id: `${inputId(field)}-list` });
  /** Suggestions are texts, or `{value, label}`. */
  const show = (suggestions) =>
    datalist.replaceChildren(
      ...suggestions.map((option) =>
        h("option", { value: option.value ?? option }, option.label ?? ""),
      ),
    );
  const dependsOnForm = typeof field.suggestions === "function";
  if (!dependsOnForm) show(field.suggestions);
  return {
    ...simpleControl(node, get),
    node: h("div", {}, node, datalist),
    refresh: (getField) => {
      if (dependsOnForm) show(field.suggestions(getField));
      if (field.placeholderFor) node.placeholder = field.placeholderFor(getField);
    },
  };
}

function emptyAsNull(widget) {
  return { ...widget, get: () => widget.get() || null };
}

function number(field, value) {
  const node = h("input", {
    id: inputId(field),
    type: "number",
    value: value ?? "",
    min: field.min,
    max: field.max,
    step: field.step ?? "any",
    inputmode: "decimal",
    placeholder: field.placeholder,
    "aria-describedby": describedBy(field),
  });
  const wrapper = field.unit ? h("div", { class: "unit" }, node, h("span", {}, field.unit)) : node;
  // A text that is not a number is sent as "?", so that the server reports the error.
  return {
    node: wrapper,
    focusTarget: () => node,
    set: (newValue) => {
      node.value = newValue ?? "";
    },
    get: () =>
      node.value.trim() === "" ? (node.validity.badInput ? "?" : null) : Number(node.value),
  };
}

function area(field, value) {
  const node = h("textarea", {
    id: inputId(field),
    rows: field.rows ?? 4,
    value: value ?? "",
    placeholder: field.placeholder,
    required: field.required,
    spellcheck: field.code ? "false" : undefined,
    class: field.code ? "code" : undefined,
    "aria-describedby": describedBy(field),
  });
  return simpleControl(node, () => node.value);
}

/** A list of texts, one per line. An unchanged list is returned as it was, with its line breaks. */
function lines(field, value) {
  const initialText = (value ?? []).join("\n");
  const widget = area({ rows: 3, ...field }, initialText);
  return {
    ...widget,
    get: () => {
      const current = widget.focusTarget().value;
      return current === initialText
        ? (value ?? [])
        : current
            .split("\n")
            .map((line) => line.trim())
            .filter(Boolean);
    },
  };
}

function json(field, value) {
  const widget = area(
    { rows: 6, code: true, ...field },
    value === null ||
      value === undefined ||
      (typeof value === "object" && !Object.keys(value).length)
      ? ""
      : JSON.stringify(value, null, 2),
  );
  return {
    ...widget,
    get: () => {
      const current = widget.focusTarget().value.trim();
      if (!current) return field.emptyValue ?? {};
      try {
        return JSON.parse(current);
      } catch {
        throw Object.assign(new Error("is not valid JSON"), { field: field.path });
      }
    },
  };
}

function select(field, value) {
  const options = field.options.map((option) =>
    Array.isArray(option) ? option : [option, option],
  );
  // A value that is not among the options stays selected.
  if (
    value !== null &&
    value !== undefined &&
    value !== "" &&
    !options.some(([known]) => known === value)
  )
    options.push([value, String(value)]);
  const node = h(
    "select",
    { id: inputId(field), "aria-describedby": describedBy(field) },
    options.map(([known, label, disabled = false]) =>
      h(
        "option",
        { value: known ?? "", selected: (value ?? "") === (known ?? ""), disabled },
        label,
      ),
    ),
  );
  return simpleControl(
    node,
    () => (node.value === "" && field.emptyValue !== undefined ? field.emptyValue : node.value),
    (newValue) => {
      const text = newValue ?? "";
      if (![...node.options].some((option) => option.value === text))
        node.append(h("option", { value: text }, text));
      node.value = text;
    },
  );
}

function check(field, value) {
  const node = h("input", {
    id: inputId(field),
    type: "checkbox",
    checked: value ?? field.initial ?? false,
    "aria-describedby": describedBy(field),
  });
  return simpleControl(
    node,
    () => node.checked,
    (newValue) => {
      node.checked = Boolean(newValue);
    },
  );
}

/** A colour. With `field.optional` a checkbox turns it off, and the value is null. */
function colour(field, value) {
  const node = h("input", {
    id: inputId(field),
    type: "color",
    value: value ?? "#8e5a73",
    "aria-describedby": describedBy(field),
  });
  if (!field.optional) return simpleControl(node, () => node.value);
  const enabled = h("input", {
    type: "checkbox",
    checked: Boolean(value),
    "aria-label": `${field.label}: worn`,
    onchange: () => {
      node.disabled = !enabled.checked;
    },
  });
  node.disabled = !enabled.checked;
  return {
    node: h("div", { class: "input-group" }, enabled, node),
    get: () => (enabled.checked ? node.value : null),
    focusTarget: () => enabled,
    set: (newValue) => {
      enabled.checked = Boolean(newValue);
      node.disabled = !enabled.checked;
      if (newValue) node.value = newValue;
    },
  };
}

/**
 * Rows of two texts, such as HTTP headers: `{a: "b"}`, or with `field.columns` `[{a: …, b: …}]`.
 */
function pairs(field, value) {
  const [left, right] = field.columns ?? ["name", "value"];
  const rows = h("div", { class: "rows" });
  const add = (leftValue = "", rightValue = "") => {
    const row = h(
      "div",
      { class: "row" },
      h("input", {
        type: "text",
        value: leftValue,
        placeholder: field.labels?.[0],
        "aria-label": `${field.label}: ${field.labels?.[0] ?? left}`,
        autocomplete: "off",
        spellcheck: "false",
      }),
      h("input", {
        type: field.secret ? "password" : "text",
        value: rightValue,
        placeholder: field.labels?.[1],
        "aria-label": `${field.label}: ${field.labels?.[1] ?? right}`,
        autocomplete: "new-password",
        spellcheck: "false",
      }),
      button(
        "",
        {
          class: "plain",
          "aria-label": `Remove this ${field.singular ?? "row"}`,
          onclick: () => {
            row.remove();
            rows.dispatchEvent(new Event("input", { bubbles: true }));
            addButton.focus();
          },
        },
        "bin",
      ),
    );
    rows.append(row);
    return row;
  };
  for (const [leftValue, rightValue] of field.columns
    ? (value ?? []).map((item) => [item[left], item[right]])
    : Object.entries(value ?? {}))
    add(leftValue, rightValue);
  const addButton = button(
    `Add a ${field.singular ?? "row"}`,
    { class: "small", id: inputId(field), onclick: () => add().querySelector("input").focus() },
    "plus",
  );
  const get = () => {
    const entries = [...rows.children]
      .map((row) => [...row.querySelectorAll("input")].map((input) => input.value.trim()))
      .filter(([leftValue, rightValue]) => leftValue || rightValue);
    return field.columns
      ? entries.map(([leftValue, rightValue]) => ({ [left]: leftValue, [right]: rightValue }))
      : Object.fromEntries(entries);
  };
  return {
    node: h("div", {}, rows, addButton),
    get,
    focusTarget: () => rows.querySelector("input") ?? addButton,
    group: true,
  };
}

/**
 * Cards to select from: exactly one (`field.single`) or any number.
 * `field.options`: `[{id, name, description, picture}]`.
 */
function cards(field, value) {
  const initial = new Set(field.single ? [value] : (value ?? []).map((item) => item?.id ?? item));
  const inputs = field.options.map((option, i) =>
    h("input", {
      type: field.single ? "radio" : "checkbox",
      name: inputId(field),
      id: `${inputId(field)}-${i}`,
      value: option.id,
      checked: initial.has(option.id),
      "aria-describedby": option.description ? `${inputId(field)}-${i}-w` : undefined,
    }),
  );
  const node = h(
    "div",
    { class: field.showPictures ? "cards avatar-cards" : "cards" },
    field.options.map((option, i) =>
      h(
        "div",
        { class: "choice" },
        inputs[i],
        h(
          "label",
          { for: `${inputId(field)}-${i}` },
          field.showPictures &&
            (option.picture
              ? h("img", { src: option.picture, alt: "", width: 96, height: 96 })
              : h("span", { class: "badge" }, icon("avatars"))),
          h("span", { class: "name" }, option.name),
        ),
        option.description &&
          h("p", { class: "soft", id: `${inputId(field)}-${i}-w` }, option.description),
      ),
    ),
  );
  if (!field.options.length)
    node.append(h("p", { class: "soft" }, field.emptyText ?? "There are none yet."));
  const get = () => {
    const checked = inputs.filter((input) => input.checked).map((input) => input.value);
    if (field.single) return checked[0] ?? "";
    if (!checked.length && !initial.size) return value ?? null;
    // Earlier selections keep their order, even if they are not among the options. New ones follow.
    const remaining = [...initial].filter(
      (itemId) => checked.includes(itemId) || !field.options.some((option) => option.id === itemId),
    );
    return [...remaining, ...checked.filter((itemId) => !initial.has(itemId))];
  };
  return {
    node,
    get,
    focusTarget: () => inputs.find((input) => input.checked) ?? inputs[0] ?? node,
    group: true,
  };
}

const secret = (field, value) =>
  emptyAsNull(
    text({ ...field, type: "password", placeholder: field.placeholder ?? "Not set" }, value),
  );

const KINDS = {
  text,
  number,
  slider,
  colour,
  area,
  lines,
  json,
  select,
  check,
  pairs,
  cards,
  secret,
  voice,
  fallbacks,
  background,
  audio,
};

/** The control of a field. */
export const widget = (field, value) => ({
  ...(field.kind ? KINDS[field.kind] : text)(field, value),
  id: inputId(field),
});
