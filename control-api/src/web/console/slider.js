// A slider of a form.

import { h } from "./dom.js";
import { describedBy, inputId } from "./field-ids.js";

/** A slider. `field.format(value)` returns the text of a value. */
export function slider(field, value) {
  const output = h("output", { for: inputId(field) });
  const node = h("input", {
    id: inputId(field),
    type: "range",
    min: field.min,
    max: field.max,
    step: field.step ?? 0.01,
    value: value ?? field.min,
    "aria-describedby": describedBy(field),
  });
  const updateLabel = () => {
    output.textContent = field.format(Number(node.value));
    node.setAttribute("aria-valuetext", output.textContent);
  };
  node.addEventListener("input", updateLabel);
  updateLabel();
  return {
    node: h("div", { class: "slider" }, node, output),
    get: () => Number(node.value),
    focusTarget: () => node,
    set: (newValue) => {
      node.value = newValue;
      updateLabel();
    },
  };
}
