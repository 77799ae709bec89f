// The values of the field for an avatar's background. No DOM here, so it can be tested without a
// browser.

/** The kinds of backgrounds, as the server names them, with their labels. */
export const BACKGROUND_TYPES = [
  ["keep", "Avatar's own"],
  ["colour", "Colour"],
  ["gradient", "Gradient"],
  ["blur", "Blurred"],
  ["image", "Picture"],
];
/** The settings of each kind that the stored background does not have. */
const DEFAULTS = {
  type: "keep",
  colour: "#dfe6e3",
  from: "#3d5a80",
  to: "#dce6f0",
  angle: 180,
  strength: 0.5,
  image: "",
};
/** Start of the reference by which the server names a stored picture. */
const STORED_PREFIX = "sha256:";
const IMAGE_TYPES = ["image/png", "image/jpeg", "image/webp"];
const MAX_FILE_BYTES = 9 << 20;

/** A background of the REST API as the state of the form: the settings of all kinds. */
export const toState = (background) => ({
  ...DEFAULTS,
  ...Object.fromEntries(Object.entries(background ?? {}).filter(([, value]) => value !== null)),
});

/** `#rrggbb` in lower case, from three or six hexadecimal digits with or without `#`, else null. */
export function normalizeColour(text) {
  const [, digits] = /^#?([0-9a-f]{6}|[0-9a-f]{3})$/i.exec(text.trim()) ?? [];
  if (!digits) return null;
  const six = digits.length === 3 ? [...digits].map((digit) => digit + digit).join("") : digits;
  return `#${six.toLowerCase()}`;
}

export const isStoredImage = (image) => image.startsWith(STORED_PREFIX);

/** An error of one setting. */
const invalid = (setting, reason) => Object.assign(new Error(reason), { setting });

/**
 * The background for the REST API. `stored`: the one of the record, which is returned as it is if
 * the avatar keeps its own. Throws an error with the `setting` that is not valid.
 */
export function toBackground(state, stored) {
  const colour = (setting, name) => {
    const value = normalizeColour(state[setting]);
    if (!value)
      throw invalid(setting, `${name} needs six hexadecimal digits, for example #1a2b3c.`);
    return value;
  };
  switch (state.type) {
    case "colour":
      return { type: "colour", colour: colour("colour", "The colour") };
    case "gradient":
      return {
        type: "gradient",
        from: colour("from", "The first colour"),
        to: colour("to", "The second colour"),
        angle: state.angle,
      };
    case "blur":
      return { type: "blur", strength: state.strength };
    case "image":
      if (!state.image) throw invalid("image", "Choose a picture, or another kind of background.");
      return { type: "image", image: state.image };
    default:
      return stored && stored.type !== state.type ? { type: "keep" } : (stored ?? null);
  }
}

/** The colour or the gradient as a CSS background, else null. */
export function cssBackground(state) {
  const [colour, from, to] = [state.colour, state.from, state.to].map(normalizeColour);
  if (state.type === "colour") return colour;
  if (state.type === "gradient" && from && to)
    return `linear-gradient(${state.angle}deg, ${from}, ${to})`;
  return null;
}

/** Why a file cannot be a background, as one sentence; empty if it can. */
export function fileProblem({ type, size }) {
  if (!IMAGE_TYPES.includes(type)) return "Choose a PNG, JPEG or WebP file.";
  if (size > MAX_FILE_BYTES) return "The file is larger than 9 MB. Choose a smaller one.";
  return "";
}

/** Whether one of an agent's warnings says that its new picture is not finished yet. */
export const isBeingDrawn = (warnings) => warnings.some((text) => /\bbeing drawn\b/.test(text));
