// The texts of the avatar editor: labels of settings, formatted values; and random characters. No
// DOM here, so it can be tested without a browser.

import { getPath, setPath } from "./paths.js";

export const GROUP_TITLES = {
  face: "Age and random seed",
  skin: "Skin",
  proportions: "Shape of the head",
  eyes: "Eyes",
  brows: "Brows",
  nose: "Nose",
  lips: "Lips",
  hair: "Hair and beard",
  clothes: "Clothes and glasses",
  background: "Background",
};

const LABELS = {
  seed: "Random seed",
  frame: "Frame of the glasses",
  "background[0]": "Background, middle",
  "background[1]": "Background, rim",
  "hair.style": "Haircut",
  "hair.dark": "Darker strands",
  "hair.light": "Lighter strands",
  "hair.grey": "Grey strands",
  "clothes.under": "Shirt under a jacket",
  "clothes.style": "Cut of the clothes",
  "eyes.lashes": "Lashes",
  "eyes.iris": "Size of the iris",
  "eyes.tilt": "Outer corners up",
  "clothes.tie": "Tie (with a shirt or suit)",
  "nose.upturn": "Nose turned up",
  "nose.bridge": "Width of the nose's bridge",
  "nose.wings": "Wings of the nose",
  "lips.upper": "Upper lip",
  "lips.bow": "Cupid's bow",
  "lips.philtrum": "Groove over the lips",
  "lips.corners": "Soft corners of the lips",
  "lips.smirk": "Smirk",
  "skin.pores": "Pores",
  "skin.under_eyes": "Shade under the eyes",
  "skin.colour": "Skin colour",
  "skin.blush": "Blush",
  "skin.freckles": "Freckles",
  "skin.stubble": "Stubble",
  "brows.arch": "Arch of the brows",
  smile: "Smile",
  "eyes.lids": "Lids down",
  "eyes.squint": "Narrowed eyes",
  "eyes.gaze_x": "Gaze to the side",
  "eyes.gaze_y": "Gaze up",
  "brows.raise": "Brows raised",
  "brows.knit": "Brows worried",
  "head.yaw": "Head turned",
  "head.pitch": "Head down",
  "head.roll": "Head tilted",
};
const LABEL_PREFIXES = {
  eyes: "Eye ",
  brows: "Brow ",
  nose: "Nose ",
  lips: "Lip ",
  clothes: "Clothes ",
};
const HINTS = { seed: "Each number gives other freckles and other strands of hair." };

/** The label of a setting. */
export function settingLabel({ name }) {
  if (LABELS[name]) return LABELS[name];
  const [table, property] = name.includes(".") ? name.split(".") : ["", name];
  const label = (LABEL_PREFIXES[table] ?? "") + property.replaceAll("_", " ");
  return label[0].toUpperCase() + label.slice(1);
}

export const settingHint = ({ name }) => HINTS[name];

/** The text of a slider's value. */
export function formatValue(value, unit) {
  if (unit === "share") return `${Math.round(value * 100)} %`;
  if (unit === "factor") return `× ${value.toFixed(2)}`;
  if (unit === "radians") return `${Math.round((value * 180) / Math.PI)}°`;
  return value.toFixed(2);
}

/** The label of an option of a choice. */
export const choiceLabel = (value) =>
  value === "none" ? "None" : value[0].toUpperCase() + value.slice(1);

/** The sounds of each viseme. */
export const VISEME_SOUNDS = {
  sil: "silence",
  PP: "p, b, m",
  FF: "f, v",
  TH: "th",
  DD: "t, d",
  kk: "k, g",
  CH: "ch, j, sh",
  SS: "s, z",
  nn: "n, l",
  RR: "r",
  aa: "a",
  E: "e",
  ih: "i",
  oh: "o",
  ou: "u",
};

/** The id of the primary avatar of the last random character. */
let lastPrimaryId;

/**
 * A random character, as plausible as the stock avatars. Age, skin, hair colours and beard come
 * from one stock avatar (the primary). Haircut, glasses and jewellery come from a secondary one of
 * the same gender, the eye colour from either. Clothes come from any avatar of that gender, the
 * background from any avatar. Every other slider lies between the values of the primary and the
 * secondary avatar, with a random offset.
 * @param {{character: Record<string, any>[], people: Record<string, any>[]}} description the
 *   response of `GET /v2/character`
 * @param {() => number} random 0 … 1
 * @returns {{gender: string, voice: string, rest: object, character: object}}
 */
export function randomCharacter(description, random = Math.random) {
  const pick = (list) => list[Math.floor(random() * list.length)];
  // Never the same primary avatar twice in a row.
  const primary = pick(
    description.people.length > 1
      ? description.people.filter((avatar) => avatar.id !== lastPrimaryId)
      : description.people,
  );
  lastPrimaryId = primary.id;
  const sameGender = description.people.filter((avatar) => avatar.gender === primary.gender);
  const secondary = pick(sameGender);
  const character = structuredClone(primary.character);
  const copyFrom = (avatar, ...names) => {
    for (const name of names)
      setPath(character, name, structuredClone(getPath(avatar.character, name)));
  };
  const hasNoHair = (avatar) =>
    avatar.character.headscarf !== null || avatar.character.hair.style === "none";
  if (!hasNoHair(primary) && !hasNoHair(secondary)) copyFrom(secondary, "hair.style");
  copyFrom(pick([primary, secondary]), "eyes.colour");
  copyFrom(secondary, "glasses", "frame", "earrings", "necklace");
  copyFrom(pick(sameGender), "clothes");
  copyFrom(pick(description.people), "background");
  const fromPrimary = ["age", "skin", "hair", "beard"];
  for (const { name, kind, least: min, most: max } of description.character) {
    if (kind !== "slider" || fromPrimary.includes(name.split(".")[0])) continue;
    const [a, b, span] = [
      getPath(primary.character, name),
      getPath(secondary.character, name),
      max - min,
    ];
    const value = a + (b - a) * random() + (random() - 0.5) * 0.16 * span;
    // The outer tenth at each end of a slider is excluded, unless a stock avatar has such a value.
    const [low, high] = [Math.min(a, b, min + 0.1 * span), Math.max(a, b, max - 0.1 * span)];
    setPath(character, name, Math.round(Math.min(high, Math.max(low, value)) * 100) / 100);
  }
  character.seed = Math.floor(random() * 10_000);
  return {
    gender: primary.gender,
    voice: pick(sameGender).voice,
    rest: structuredClone(primary.rest),
    character,
  };
}
