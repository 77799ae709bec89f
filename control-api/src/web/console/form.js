// Forms made of a list of fields: labels, hints, what the server refuses at the field that it names, and a warning before changes are lost.

import { Refused, sentence } from "./api.js";
import { h } from "./dom.js";
import { owner, put, read } from "./paths.js";
import { may, whyNot } from "./scope.js";
import { widget } from "./widgets.js";

/** A field with its label, hint and a place for what is wrong with it. */
function framed(field, made) {
  const hint = field.hint && h("p", { class: "hint", id: `${made.id}-hint` }, field.hint);
  const fault = h("p", { class: "fault", id: `${made.id}-fault`, hidden: true });
  const must = field.required && h("span", { class: "must" }, "required");
  const name = [field.label, must];
  if (field.kind === "check") return { node: h("div", { class: "field check" }, made.node, h("label", { for: made.id }, name), hint, fault), fault };
  const node = made.group
    ? h("fieldset", { class: `field ${field.class ?? ""}`, "aria-describedby": `${made.id}-hint ${made.id}-fault` }, h("legend", {}, name), hint, made.node, fault)
    : h("div", { class: `field ${field.class ?? ""}` }, h("label", { for: made.id }, name), made.node, fault, hint);
  return { node, fault };
}

/** `[{path, reason}]` → what a person reads at the field. */
const words = (field, reason) => sentence(/^(must|is|holds|names|may|cannot|needs)\b/.test(reason) ? `${field.name ?? field.label} ${reason}` : reason);

/** What a refusal says of single fields, be it in `details` or in its one sentence. */
function faults(refused, paths) {
  if (refused.details.length) return refused.status === 400 ? refused.details : [];
  const [first] = refused.message.split(" ");
  return refused.status === 400 && paths.includes(first) ? [{ field: first, reason: refused.message.slice(first.length + 1) }] : [];
}

/**
 * A form.
 * - `sections`: `[{id, title, about, words, fields, more, open}]`; `more`: further nodes; `open` false: closed until wanted, `about` says what is in it.
 * - `value`: the record as it is; what is no field of the form stays as it is.
 * - `save(body)`: sends it; `done(answer)`: what comes then.
 * - `needs`: the scope without which it cannot be sent.
 * - `keep(dirty)`: told how to ask whether something would be lost.
 */
export function form({ sections, value = {}, label = "Save", needs = "administer", save, done, keep = () => {}, extra = [], sticky = false }) {
  const fields = new Map();
  let dirty = false;
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const send = h("button", { needs, type: "submit", class: "primary", id: sticky && "save" }, label);
  const state = h("span", { class: "soft", role: "status" }, !may(needs) && whyNot());

  const grid = (list) => h("div", { class: "fields" }, list.map((field) => {
    const made = widget(field, read(value, field.path));
    const { node, fault } = framed(field, made);
    fields.set(field.path, { field, made, node, fault });
    return node;
  }));
  const section = ({ id, title, about, words, fields: list, more, open }) => {
    const content = [words && h("p", { class: "soft" }, words), grid(list), more];
    if (open === undefined) return h("section", { class: "card", id }, title && h("h2", {}, title), content);
    return h("details", { class: "card", id, open }, h("summary", {}, h("h2", {}, title), about && h("span", { class: "soft" }, about)), content);
  };
  const buttons = h("div", { class: sticky ? "savebar" : "actions" }, send, extra, state);
  const node = h("form", { class: "form", novalidate: true, autocomplete: "off" }, sections.map(section), problem, buttons);

  const now = (path) => { try { return fields.get(path)?.made.get(); } catch { return undefined; } };
  const settle = () => { for (const { field, node: shown } of fields.values()) if (field.when) shown.hidden = !field.when(now); };
  const clear = (entry) => {
    entry.fault.hidden = true;
    entry.made.first().removeAttribute("aria-invalid");
  };
  const mark = (list) => {
    const rest = [];
    let first = null;
    for (const { field: path, reason } of list) {
      const place = fields.get(owner([...fields.keys()], path) ?? "");
      if (!place) {
        rest.push(sentence(`${path} ${reason}`));
        continue;
      }
      place.fault.textContent = words(place.field, reason);
      place.fault.hidden = false;
      place.node.hidden = false;
      place.node.closest("details")?.setAttribute("open", "");
      place.made.first().setAttribute("aria-invalid", "true");
      first ??= place;
    }
    if (first) {
      first.made.first().focus({ preventScroll: true });
      // In the middle: neither under the bar above nor under the one below.
      first.node.scrollIntoView({ block: "center" });
    }
    return rest;
  };
  const refuse = (text) => {
    problem.textContent = text;
    problem.hidden = !text;
  };

  node.addEventListener("input", (event) => {
    dirty = true;
    if (sticky) {
      state.textContent = "Unsaved changes";
      buttons.classList.add("unsaved");
    }
    const entry = [...fields.values()].find(({ node: shown }) => shown.contains(event.target));
    if (entry) clear(entry);
    settle();
  });
  node.addEventListener("change", settle);
  node.addEventListener("submit", async (event) => {
    event.preventDefault();
    for (const entry of fields.values()) clear(entry);
    refuse("");
    const body = structuredClone(value);
    const wrong = [];
    for (const { field, made } of fields.values()) {
      try {
        const given = made.get();
        if (field.required && (given === "" || given === null)) wrong.push({ field: field.path, reason: "is required" });
        if (!field.local || given !== undefined) put(body, field.path, given);
      } catch (error) {
        wrong.push({ field: error.field ?? field.path, reason: error.message });
      }
    }
    if (wrong.length) {
      mark(wrong);
      return refuse(wrong.length > 1 ? `${wrong.length} fields need your attention.` : "One field needs your attention.");
    }
    send.disabled = true;
    state.textContent = "Saving …";
    try {
      const answer = await save(body);
      dirty = false;
      state.textContent = "Saved";
      await done?.(answer, body);
    } catch (error) {
      state.textContent = sticky ? "Not saved" : "";
      if (error?.name === "AbortError") return;
      if (!(error instanceof Refused)) throw error;
      const list = faults(error, [...fields.keys()]);
      const rest = mark(list);
      refuse(list.length ? [list.length > rest.length && (list.length > 1 ? "Some fields need your attention." : "One field needs your attention."), ...rest].filter(Boolean).join(" ") : error.sentence);
    } finally {
      send.disabled = false;
    }
  });
  keep(() => dirty && node.isConnected);
  settle();
  return { node, get: now, send, field: (path) => fields.get(path), refuse };
}
