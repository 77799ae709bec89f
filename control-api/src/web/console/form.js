// Forms built from a list of fields: labels, hints, the server's errors at the field that they
// name, and a check for unsaved changes.

import { ApiError, toSentence } from "./api.js";
import { h } from "./dom.js";
import { getPath, owningPath, setPath } from "./paths.js";
import { hasScope, missingScopeText } from "./scope.js";
import { widget } from "./widgets.js";

/** A control with its label, its hint and a node for its error. */
function labelledField(field, control) {
  const hint = field.hint && h("p", { class: "hint", id: `${control.id}-hint` }, field.hint);
  const errorNode = h("p", { class: "fault", id: `${control.id}-fault`, hidden: true });
  const requiredMark = field.required && h("span", { class: "required-mark" }, "required");
  const name = [field.label, requiredMark];
  if (field.kind === "check")
    return {
      node: h(
        "div",
        { class: "field check" },
        control.node,
        h("label", { for: control.id }, name),
        hint,
        errorNode,
      ),
      errorNode,
    };
  const node = control.group
    ? h(
        "fieldset",
        {
          class: `field ${field.class ?? ""}`,
          "aria-describedby": `${control.id}-hint ${control.id}-fault`,
        },
        h("legend", {}, name),
        hint,
        control.node,
        errorNode,
      )
    : h(
        "div",
        { class: `field ${field.class ?? ""}` },
        h("label", { for: control.id }, name),
        control.node,
        errorNode,
        hint,
      );
  return { node, errorNode };
}

/** The text of an error at its field. */
const reasonText = (field, reason) =>
  toSentence(
    /^(must|is|contains|names|may|cannot|needs)\b/.test(reason)
      ? `${field.name ?? field.label} ${reason}`
      : reason,
  );

/** The errors of single fields in an ApiError, from `details` or from its message. */
function fieldErrors(error, paths) {
  if (error.details.length) return error.status === 400 ? error.details : [];
  const [firstWord] = error.message.split(" ");
  return error.status === 400 && paths.includes(firstWord)
    ? [{ field: firstWord, reason: error.message.slice(firstWord.length + 1) }]
    : [];
}

/**
 * A form.
 * - `sections`: `[{id, title, summary, description, fields, more, open}]`. `more`: further nodes.
 *   `open`: whether a collapsible section is open; undefined for one that cannot be collapsed.
 *   `summary`: what a collapsed section contains.
 * - `value`: the current record. Properties without a field are sent unchanged.
 * - `save(body)`: sends the form; `onSaved(response, body)` runs afterwards.
 * - `needs`: the scope without which the form cannot be sent.
 * - `setUnsavedCheck(check)`: gets a function that returns whether there are unsaved changes.
 * - `busyText`: what is shown while the form is sent.
 * - `sticky`: whether the save bar sticks to the bottom of the window while there are changes.
 * @param {{sections: any[], value?: any, label?: string, needs?: string,
 *   save: (body: any) => Promise<any>, onSaved?: (response: any, body: any) => any,
 *   setUnsavedCheck?: (check: () => boolean) => void, extra?: any, busyText?: string,
 *   sticky?: boolean}} options
 */
export function form({
  sections,
  value = {},
  label = "Save",
  needs = "administer",
  save,
  onSaved,
  setUnsavedCheck = () => {},
  extra = [],
  busyText = "Saving …",
  sticky = false,
}) {
  const fields = new Map();
  let dirty = false;
  const errorBox = h("p", { class: "problem", role: "alert", hidden: true });
  const submitButton = h(
    "button",
    { needs, type: "submit", class: "primary", id: sticky && "save" },
    label,
  );
  const status = h(
    "span",
    { class: "soft", role: "status" },
    !hasScope(needs) && missingScopeText(),
  );

  const fieldGrid = (list) =>
    h(
      "div",
      { class: "fields" },
      list.map((field) => {
        const control = widget(field, getPath(value, field.path));
        const { node, errorNode } = labelledField(field, control);
        fields.set(field.path, { field, control, node, errorNode });
        return node;
      }),
    );
  const section = ({ id, title, summary, description, fields: sectionFields, more, open }) => {
    const content = [
      description && h("p", { class: "soft" }, description),
      fieldGrid(sectionFields),
      more,
    ];
    if (open === undefined)
      return h("section", { class: "card", id }, title && h("h2", {}, title), content);
    return h(
      "details",
      { class: "card", id, open },
      h("summary", {}, h("h2", {}, title), summary && h("span", { class: "soft" }, summary)),
      content,
    );
  };
  const buttons = h("div", { class: sticky ? "savebar" : "actions" }, submitButton, extra, status);
  const node = h(
    "form",
    { class: "form", novalidate: true, autocomplete: "off" },
    sections.map(section),
    errorBox,
    buttons,
  );

  const valueAt = (path) => {
    try {
      return fields.get(path)?.control.get();
    } catch {
      return undefined;
    }
  };
  const updateVisibility = () => {
    for (const { field, control, node: fieldNode } of fields.values()) {
      if (field.visibleIf) fieldNode.hidden = !field.visibleIf(valueAt);
      control.refresh?.(valueAt);
    }
  };
  const clearError = (entry) => {
    entry.errorNode.hidden = true;
    for (const input of entry.node.querySelectorAll("[aria-invalid]"))
      input.removeAttribute("aria-invalid");
  };
  const showFieldErrors = (errors) => {
    const unmatched = [];
    let first = null;
    for (const { field: path, reason } of errors) {
      const entry = fields.get(owningPath([...fields.keys()], path) ?? "");
      if (!entry) {
        unmatched.push(toSentence(`${path} ${reason}`));
        continue;
      }
      entry.errorNode.textContent = reasonText(entry.field, reason);
      entry.errorNode.hidden = false;
      entry.node.hidden = false;
      entry.node.closest("details")?.setAttribute("open", "");
      const input = entry.control.focusTarget(path);
      input.setAttribute("aria-invalid", "true");
      first ??= { input, node: entry.node };
    }
    if (first) {
      first.input.focus({ preventScroll: true });
      // Centered, so that neither the top bar nor the save bar covers the field.
      first.node.scrollIntoView({ block: "center" });
    }
    return unmatched;
  };
  const showError = (text) => {
    errorBox.textContent = text;
    errorBox.hidden = !text;
  };

  node.addEventListener("input", (event) => {
    dirty = true;
    if (sticky) {
      status.textContent = "Unsaved changes";
      buttons.classList.add("unsaved");
    }
    const entry = [...fields.values()].find(({ node: fieldNode }) =>
      fieldNode.contains(event.target),
    );
    if (entry) clearError(entry);
    updateVisibility();
  });
  node.addEventListener("change", updateVisibility);
  node.addEventListener("submit", async (event) => {
    event.preventDefault();
    for (const entry of fields.values()) clearError(entry);
    showError("");
    const body = structuredClone(value);
    const invalid = [];
    for (const { field, control } of fields.values()) {
      try {
        const fieldValue = control.get();
        if (field.required && (fieldValue === "" || fieldValue === null))
          invalid.push({ field: field.path, reason: "is required" });
        if (!field.local || fieldValue !== undefined) setPath(body, field.path, fieldValue);
      } catch (error) {
        invalid.push({ field: error.field ?? field.path, reason: error.message });
      }
    }
    if (invalid.length) {
      showFieldErrors(invalid);
      return showError(
        invalid.length > 1
          ? `${invalid.length} fields need your attention.`
          : "One field needs your attention.",
      );
    }
    submitButton.disabled = true;
    status.textContent = busyText;
    try {
      const response = await save(body);
      dirty = false;
      status.textContent = "Saved";
      await onSaved?.(response, body);
    } catch (error) {
      status.textContent = sticky ? "Not saved" : "";
      if (error?.name === "AbortError") return;
      if (!(error instanceof ApiError)) throw error;
      const errors = fieldErrors(error, [...fields.keys()]);
      const unmatched = showFieldErrors(errors);
      showError(
        errors.length
          ? [
              errors.length > unmatched.length &&
                (errors.length > 1
                  ? "Some fields need your attention."
                  : "One field needs your attention."),
              ...unmatched,
            ]
              .filter(Boolean)
              .join(" ")
          : error.userMessage,
      );
      if (!errors.length)
        for (const part of [buttons, errorBox]) part.scrollIntoView({ block: "nearest" });
    } finally {
      submitButton.disabled = false;
    }
  });
  /** The body that would be sent, without the fields that are not valid. */
  const current = () => {
    const body = structuredClone(value);
    for (const path of fields.keys()) {
      const fieldValue = valueAt(path);
      if (fieldValue !== undefined) setPath(body, path, fieldValue);
    }
    return body;
  };
  /** Enters values, by path, as the user would. */
  const fill = (values) => {
    for (const [path, fieldValue] of Object.entries(values)) {
      const { control } = fields.get(path);
      control.set(fieldValue);
      control.focusTarget().dispatchEvent(new Event("input", { bubbles: true }));
    }
  };
  setUnsavedCheck(() => dirty && node.isConnected);
  updateVisibility();
  return {
    node,
    get: valueAt,
    current,
    fill,
    submitButton,
    field: (path) => fields.get(path),
    showError,
  };
}
