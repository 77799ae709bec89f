// Controls for the providers of an agent: its voice, and the providers that are used after a
// failure.

import { button, h } from "./dom.js";
import { describedBy, inputId } from "./field-ids.js";
import { sampleButton } from "./sample-player.js";
import { chooseVoice } from "./voice-picker.js";

const changed = (node) => node.dispatchEvent(new Event("input", { bubbles: true }));

/**
 * A voice: its id, a dialog to choose it, and a sample. `field.model(get)` returns the provider,
 * model, language and avatar in the form; `field.providerName(provider)` its name. `field.sample`:
 * label of the sample's button, and a function for its text.
 */
export function voice(field, value) {
  const input = h("input", {
    id: inputId(field),
    type: "text",
    value: value ?? "",
    placeholder: field.placeholder,
    autocomplete: "off",
    spellcheck: "false",
    "aria-describedby": describedBy(field),
  });
  const status = h("p", { class: "soft", role: "status" });
  let model = { provider: "", model_id: null, language: null, avatar_key_id: null };
  const chooseButton = button("Choose …", {
    class: "small",
    "aria-haspopup": "dialog",
    onclick: async () => {
      const chosen = await chooseVoice(model, field.providerName(model.provider));
      if (!chosen) return;
      input.value = chosen.voice_id;
      status.textContent = chosen.name === chosen.voice_id ? "" : `Voice: ${chosen.name}`;
      changed(input);
    },
  });
  const sample = sampleButton(
    field.sample?.label ?? "Play a sample",
    () => ({ ...model, voice_id: input.value.trim() || null, text: field.sample?.text() }),
    status,
  );
  return {
    node: h(
      "div",
      { class: "voice" },
      input,
      h("div", { class: "actions" }, chooseButton, sample),
      status,
    ),
    get: () => input.value.trim() || null,
    set: (newValue) => {
      input.value = newValue ?? "";
    },
    refresh: (get) => {
      model = field.model(get);
    },
    focusTarget: () => input,
  };
}

/**
 * The providers that are used after a failure, in their order. `field.options`: `[id, name]` of the
 * providers; `field.parts`: `[property, label]` of the further texts of each. Properties without a
 * control are kept.
 */
export function fallbacks(field, value) {
  const rows = h("ol", { class: "rows fallbacks" });
  const entries = new WeakMap();
  const add = (entry = {}) => {
    const number = () => [...rows.children].indexOf(row) + 1;
    const provider = h(
      "select",
      { "aria-label": `${field.label}: provider` },
      [
        ...field.options,
        ...(entry.provider && !field.options.some(([id]) => id === entry.provider)
          ? [[entry.provider, entry.provider]]
          : []),
      ].map(([id, name]) => h("option", { value: id, selected: id === entry.provider }, name)),
    );
    const texts = field.parts.map(([name, label]) =>
      h("input", {
        type: "text",
        value: entry[name] ?? "",
        placeholder: label,
        "aria-label": `${field.label}: ${label}`,
        autocomplete: "off",
        spellcheck: "false",
      }),
    );
    const row = h(
      "li",
      { class: "row" },
      provider,
      texts,
      button("Earlier", {
        class: "small",
        "aria-label": "Move earlier",
        onclick: ({ currentTarget }) => {
          row.previousElementSibling?.before(row);
          // The first one cannot move further, and its button is hidden.
          (row.previousElementSibling ? currentTarget : provider).focus();
          status.textContent = `Now number ${number()}.`;
          changed(rows);
        },
      }),
      button(
        "",
        {
          class: "plain",
          "aria-label": "Remove this provider",
          onclick: () => {
            row.remove();
            changed(rows);
            addButton.focus();
          },
        },
        "bin",
      ),
    );
    entries.set(row, { entry, provider, texts });
    rows.append(row);
    return row;
  };
  for (const entry of value ?? []) add(entry);
  const status = h("span", { class: "visually-hidden", role: "status" });
  const addButton = button(
    "Add a provider",
    {
      class: "small",
      id: inputId(field),
      onclick: () => {
        add().querySelector("select").focus();
        changed(rows);
      },
    },
    "plus",
  );
  return {
    node: h("div", {}, rows, addButton, status),
    get: () =>
      [...rows.children].map((row) => {
        const { entry, provider, texts } = entries.get(row);
        // The address and the options belong to the old provider.
        const result = provider.value === entry.provider ? { ...entry } : {};
        result.provider = provider.value;
        field.parts.forEach(([name], i) => {
          result[name] = texts[i].value.trim() || null;
        });
        return result;
      }),
    focusTarget: () => rows.querySelector("select") ?? addButton,
    group: true,
  };
}
