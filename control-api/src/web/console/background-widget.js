// The control for the background of an avatar: its kind, the settings of this kind, a preview.

import {
  BACKGROUND_TYPES,
  cssBackground,
  fileProblem,
  isStoredImage,
  normalizeColour,
  toBackground,
  toState,
} from "./background-values.js";
import { h } from "./dom.js";
import { inputId } from "./field-ids.js";
import { NOT_A_PICTURE, readPicture } from "./picture.js";
import { slider } from "./slider.js";

/** Maximum length of the longer side of a picture that is sent, in pixels. */
const MAX_SIDE = 1280;
const STILL_READING = "The picture is still being read. Save again in a moment.";

/** A colour as text, and the colour picker of the browser. Calls `onChange(text)`. */
function colourInput(id, label, initial, onChange) {
  const text = h("input", {
    id,
    type: "text",
    value: initial,
    maxlength: 7,
    autocomplete: "off",
    spellcheck: "false",
    oninput: () => {
      const colour = normalizeColour(text.value);
      if (colour) picker.value = colour;
      onChange(text.value);
    },
    onchange: () => {
      text.value = normalizeColour(text.value) ?? text.value;
    },
  });
  const picker = h("input", {
    type: "color",
    value: initial,
    "aria-label": `${label}, colour picker`,
    oninput: () => {
      text.value = picker.value;
      onChange(picker.value);
    },
  });
  return {
    input: text,
    node: h(
      "div",
      { class: "field" },
      h("label", { for: id }, label),
      h("div", { class: "input-group" }, picker, text),
    ),
  };
}

/** The choice of a picture. Calls `onPicture(uri)`. `isReading`: whether a file is being decoded. */
function pictureInput(id, hasStored, onPicture) {
  let newest = 0;
  const problem = h("p", { class: "fault", role: "alert", hidden: true });
  const showProblem = (text) => {
    problem.textContent = text;
    problem.hidden = !text;
    if (text) input.setAttribute("aria-invalid", "true");
  };
  const picker = { isReading: false, input: null, node: null };
  const input = h("input", {
    id,
    type: "file",
    accept: "image/png,image/jpeg,image/webp",
    "aria-describedby": `${id}-hint`,
    onchange: async () => {
      const [file] = input.files;
      if (!file) return;
      newest += 1;
      const mine = newest;
      showProblem("");
      picker.isReading = true;
      const found = fileProblem(file);
      const picture = found ? null : await readPicture(file, MAX_SIDE);
      if (mine !== newest) return;
      picker.isReading = false;
      if (picture) return onPicture(picture.uri);
      // The picture that was chosen before stays.
      input.value = "";
      showProblem(found || NOT_A_PICTURE);
    },
  });
  picker.input = input;
  picker.node = h(
    "div",
    { class: "field" },
    hasStored &&
      h("p", { class: "hint" }, "A picture is stored. It stays unless another one is chosen."),
    h("label", { for: id }, hasStored ? "Another picture" : "Picture file"),
    input,
    problem,
    h(
      "p",
      { class: "hint", id: `${id}-hint` },
      "PNG, JPEG or WebP, at most 9 MB. A large picture is scaled down before it is sent. It " +
        "covers the whole background, so its edges may be cut off.",
    ),
  );
  return picker;
}

/**
 * The background of an avatar, as the REST API has it. `field.types`: the kinds to choose from; all
 * without it.
 */
export function background(field, value) {
  const id = inputId(field);
  const state = toState(value);
  const setter = (setting) => (newValue) => {
    state[setting] = newValue;
    update();
  };
  const colour = (setting, label) =>
    colourInput(`${id}-${setting}`, label, state[setting], setter(setting));
  const range = (setting, label, options) => {
    const control = slider({ path: `${field.path}.${setting}`, ...options }, state[setting]);
    const input = control.focusTarget();
    // The value that is stored is not rounded unless the slider is moved.
    input.addEventListener("input", () => setter(setting)(control.get()));
    input.removeAttribute("aria-describedby");
    const node = h("div", { class: "field" }, h("label", { for: input.id }, label), control.node);
    return { input, node };
  };
  const settings = {
    colour: colour("colour", "Colour"),
    from: colour("from", "First colour"),
    to: colour("to", "Second colour"),
    angle: range("angle", "Direction (180°: downwards, 90°: to the right)", {
      min: 0,
      max: 360,
      step: 1,
      format: (degrees) => `${degrees}°`,
    }),
    strength: range("strength", "How far out of focus", {
      min: 0,
      max: 1,
      format: (share) => `${Math.round(share * 100)} %`,
    }),
    image: pictureInput(`${id}-image`, isStoredImage(state.image), setter("image")),
  };
  /** The settings of each kind. */
  const groups = {
    colour: ["colour"],
    gradient: ["from", "to", "angle"],
    blur: ["strength"],
    image: ["image"],
  };
  const types = BACKGROUND_TYPES.filter(([type]) => field.types?.includes(type) ?? true);
  const radios = types.map(([type]) =>
    h("input", {
      type: "radio",
      name: id,
      id: `${id}-type-${type}`,
      value: type,
      checked: state.type === type,
      onchange: () => setter("type")(type),
    }),
  );
  const picture = h("img", { alt: "" });
  // It repeats what the settings say.
  const preview = h("div", { class: "background-preview", "aria-hidden": "true" }, picture);
  const update = () => {
    for (const [type, names] of Object.entries(groups))
      for (const name of names) settings[name].node.hidden = state.type !== type;
    const hasPicture =
      state.type === "image" && Boolean(state.image) && !isStoredImage(state.image);
    const css = cssBackground(state);
    preview.hidden = !css && !hasPicture;
    preview.style.background = css ?? "";
    picture.hidden = !hasPicture;
    if (hasPicture && picture.getAttribute("src") !== state.image) picture.src = state.image;
    details.hidden = !groups[state.type];
  };
  const details = h(
    "div",
    { class: "background-settings" },
    h(
      "div",
      {},
      Object.values(settings).map(({ node }) => node),
    ),
    preview,
  );
  update();
  return {
    node: h(
      "div",
      { class: "background" },
      h(
        "div",
        { class: "cards background-types" },
        types.map(([, label], i) =>
          h("div", { class: "choice" }, radios[i], h("label", { for: radios[i].id }, label)),
        ),
      ),
      details,
    ),
    get: () => {
      if (state.type === "image" && settings.image.isReading)
        throw Object.assign(new Error(STILL_READING), { field: `${field.path}.image` });
      try {
        return toBackground(state, value);
      } catch (error) {
        throw Object.assign(error, { field: `${field.path}.${error.setting}` });
      }
    },
    focusTarget: (path) => {
      const setting = path?.slice(field.path.length + 1);
      return groups[state.type]?.includes(setting)
        ? settings[setting].input
        : (radios.find((radio) => radio.checked) ?? radios[0]);
    },
    group: true,
  };
}
