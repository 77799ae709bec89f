// What an editor of drawn people knows: names for settings, values in words, and people by chance. Needs no browser.

import { put, read } from "./paths.js";

export const GROUPS = {
  face: "Age and chance", skin: "Skin", proportions: "Shape of the head", eyes: "Eyes", brows: "Brows", nose: "Nose", lips: "Lips", hair: "Hair and beard", clothes: "Clothes and glasses",
  background: "Background",
};

const NAMES = {
  seed: "Chance", frame: "Frame of the glasses", "background[0]": "Background, middle", "background[1]": "Background, rim", "hair.style": "Haircut", "hair.dark": "Darker strands", "hair.light": "Lighter strands",
  "hair.grey": "Grey strands", "clothes.under": "Shirt under a jacket", "clothes.style": "Cut of the clothes", "eyes.lashes": "Lashes", "eyes.iris": "Size of the iris", "eyes.tilt": "Outer corners up", "nose.upturn": "Nose turned up",
  "skin.colour": "Skin colour", "skin.blush": "Blush", "skin.freckles": "Freckles", "skin.stubble": "Stubble", "brows.arch": "Arch of the brows",
  smile: "Smile", "eyes.lids": "Lids down", "eyes.squint": "Narrowed eyes", "eyes.gaze_x": "Gaze to the side", "eyes.gaze_y": "Gaze up", "brows.raise": "Brows raised", "brows.knit": "Brows worried",
  "head.yaw": "Head turned", "head.pitch": "Head down", "head.roll": "Head tilted",
};
const PREFIXES = { eyes: "Eye ", brows: "Brow ", nose: "Nose ", lips: "Lip ", clothes: "Clothes " };
const HINTS = { seed: "Another number: other freckles, another fall of every hair." };

/** What a person reads as the name of a setting. */
export function nameOf({ name }) {
  if (NAMES[name]) return NAMES[name];
  const [table, part] = name.includes(".") ? name.split(".") : ["", name];
  const words = (PREFIXES[table] ?? "") + part.replaceAll("_", " ");
  return words[0].toUpperCase() + words.slice(1);
}

export const hintOf = ({ name }) => HINTS[name];

/** A slider's value in words. */
export function valueOf(value, unit) {
  if (unit === "share") return `${Math.round(value * 100)} %`;
  if (unit === "factor") return `× ${value.toFixed(2)}`;
  if (unit === "radians") return `${Math.round((value * 180) / Math.PI)}°`;
  return value.toFixed(2);
}

/** How a colour, a cut or a word of a choice is called. */
export const choiceOf = (word) => (word === "none" ? "None" : word[0].toUpperCase() + word.slice(1));

/** What a mouth of speech sounds like. */
export const SOUNDS = { sil: "silence", PP: "p, b, m", FF: "f, v", TH: "th", DD: "t, d", kk: "k, g", CH: "ch, j, sh", SS: "s, z", nn: "n, l", RR: "r", aa: "a", E: "e", ih: "i", oh: "o", ou: "u" };

/** Whose colours the last surprise had. */
let last;

/**
 * Somebody by chance, as likely as anybody: colours and age come from one person, the cut and the clothes from another, and the shape lies
 * between the two, a little aside.
 * @param {{character: object[], people: object[]}} sheet
 * @param {() => number} random 0 … 1
 * @returns {{gender: string, voice: string, rest: object, character: object}}
 */
export function surprise(sheet, random = Math.random) {
  const pick = (list) => list[Math.floor(random() * list.length)];
  // Never twice the same in a row, or it is no surprise.
  const one = pick(sheet.people.length > 1 ? sheet.people.filter((person) => person.id !== last) : sheet.people);
  last = one.id;
  const alike = sheet.people.filter((person) => person.gender === one.gender);
  const other = pick(alike);
  const character = structuredClone(one.character);
  const from = (person, ...names) => names.forEach((name) => put(character, name, structuredClone(read(person.character, name))));
  const covered = (person) => person.character.headscarf !== null || person.character.hair.style === "none";
  if (!covered(one) && !covered(other)) from(other, "hair.style");
  from(pick([one, other]), "eyes.colour");
  from(other, "glasses", "frame", "earrings");
  from(pick(alike), "clothes");
  from(pick(sheet.people), "background");
  const kept = ["age", "skin", "hair", "beard"];
  for (const { name, kind, least, most } of sheet.character) {
    if (kind !== "slider" || kept.includes(name.split(".")[0])) continue;
    const [a, b, span] = [read(one.character, name), read(other.character, name), most - least];
    const value = a + (b - a) * random() + (random() - 0.5) * 0.16 * span;
    // People with every slider at its end are no people. What somebody of the house has is fine.
    const [low, high] = [Math.min(a, b, least + 0.1 * span), Math.max(a, b, most - 0.1 * span)];
    put(character, name, Math.round(Math.min(high, Math.max(low, value)) * 100) / 100);
  }
  character.seed = Math.floor(random() * 10_000);
  return { gender: one.gender, voice: pick(alike).voice, rest: structuredClone(one.rest), character };
}
