// The editor of drawn people: sliders on one side, the person on the other, and mouths to try.

import * as api from "./api.js";
import { voices } from "./agent-fields.js";
import { GROUPS, SOUNDS, choiceOf, hintOf, nameOf, surprise, valueOf } from "./character.js";
import { button, h, link } from "./dom.js";
import { form } from "./form.js";
import { put, read } from "./paths.js";
import { Preview } from "./preview.js";
import { back, head } from "./ui.js";

/** Parts of a pose that a face may have at rest. The mouth is closed then. */
const AT_REST = ["smile", "eyes.squint", "eyes.gaze_x", "eyes.gaze_y", "brows.raise", "brows.knit", "head.yaw", "head.pitch", "head.roll"];

/** Where somebody unsaved waits for the next login in this tab. */
const UNSAVED = "visavis-unsaved-person";

/** Who was being drawn when the session ended. */
function unsaved() {
  const kept = sessionStorage.getItem(UNSAVED);
  sessionStorage.removeItem(UNSAVED);
  return kept && JSON.parse(kept);
}

const field = (root, setting) => {
  const about = { path: `${root}.${setting.name}`, label: nameOf(setting), hint: hintOf(setting) };
  switch (setting.kind) {
    case "slider": return { ...about, kind: "slider", min: setting.least, max: setting.most, shown: (value) => valueOf(value, setting.unit) };
    case "colour": return { ...about, kind: "colour", optional: setting.optional };
    case "choice": return { ...about, kind: "select", options: setting.choices.map((word) => [word, choiceOf(word)]) };
    case "flag": return { ...about, kind: "check" };
    default: return { ...about, kind: "number", min: 0, max: setting.most, step: 1 };
  }
};

/** Whom the page begins with: somebody of the house, one of the own people, or nobody in particular. */
async function beginning(from, sheet, signal) {
  const known = sheet.people.find((person) => person.id === from);
  if (known) return known;
  if (from && from !== "average") {
    const own = await api.get(`/v2/custom-avatar/${encodeURIComponent(from)}`, signal);
    if (own.character) return { ...own, rest: own.rest ?? {} };
  }
  return from === "average" ? { gender: "female", voice: "slt", character: sheet.default, rest: sheet.people[0].rest } : sheet.people[0];
}

/** A record's settings over the defaults: what was left out is there. */
const whole = (defaults, given) => Object.fromEntries(Object.entries(defaults).map(([name, value]) =>
  [name, value && typeof value === "object" && !Array.isArray(value) ? whole(value, given?.[name] ?? {}) : given?.[name] ?? value]));

export async function editorPage({ query, signal, go, keep }) {
  const [sheet, providers, own] = await Promise.all([api.get("/v2/character", signal), api.get("/v1/ext/providers", signal), api.all("/v2/custom-avatars", signal)]);
  const kept = unsaved();
  const person = kept ?? (await beginning(query.get("from"), sheet, signal));
  const drawn = own.filter((avatar) => avatar.character);
  const settings = [...sheet.character.map((setting) => ["character", setting]), ...sheet.pose.filter(({ name }) => AT_REST.includes(name)).map((setting) => ["rest", setting])];
  const value = { avatar_name: kept?.avatar_name ?? "", gender: person.gender, voice: person.voice, is_private: kept?.is_private ?? false, character: whole(sheet.default, person.character), rest: whole(sheet.default_pose, person.rest) };
  const groups = Object.keys(GROUPS).map((group) => ({
    id: group, title: GROUPS[group], open: group === "face" || group === "skin", fields: sheet.character.filter((setting) => setting.group === group).map((setting) => field("character", setting)),
  }));
  const made = form({
    keep, value, label: "Save and draw", sticky: true,
    sections: [
      { id: "who", title: "Who is it?", fields: [
        { path: "avatar_name", label: "Name", required: true, max: 200 },
        { path: "gender", label: "Gender", kind: "select", options: [["female", "Female"], ["male", "Male"]] },
        { path: "voice", label: "Voice", kind: "select", options: voices(providers).filter(([id]) => id) },
        { path: "is_private", label: "Private", kind: "check" },
      ] },
      ...groups,
      { id: "rest", title: "Expression at rest", about: "How it looks when nobody speaks", open: false, fields: sheet.pose.filter(({ name }) => AT_REST.includes(name)).map((setting) => field("rest", setting)) },
    ],
    extra: [link("Cancel", "/console/avatars", { class: "button quiet" })],
    save: (body) => api.post("/v2/custom-avatar", body),
    done: ({ id }) => go(`/console/avatars/${id}`, { force: true }),
  });

  const preview = new Preview(signal);
  const face = { viseme: sheet.visemes[0]?.name, smile: false, blink: false };
  /** The character as the form has it. Numbers that are none yet leave the picture as it is. */
  const now = () => {
    const body = { character: structuredClone(value.character), rest: structuredClone(value.rest) };
    for (const [root, { name, kind }] of settings) {
      const given = made.field(`${root}.${name}`).made.get();
      if (kind !== "whole" || Number.isInteger(given)) put(body, `${root}.${name}`, given);
    }
    return body;
  };
  window.addEventListener("session-over", () => {
    const who = Object.fromEntries(["avatar_name", "gender", "voice", "is_private"].map((name) => [name, made.field(name).made.get()]));
    sessionStorage.setItem(UNSAVED, JSON.stringify({ ...who, ...now() }));
  }, { signal });
  const posed = (rest) => {
    const pose = structuredClone(rest);
    pose.mouth = { ...pose.mouth, ...sheet.visemes.find(({ name }) => name === face.viseme)?.mouth };
    if (face.smile) pose.smile = 1;
    if (face.blink) pose.eyes.lids = 1;
    return pose;
  };
  const show = () => {
    const { character, rest } = now();
    const mouth = face.viseme === sheet.visemes[0]?.name ? "" : `, the mouth as in ${SOUNDS[face.viseme] ?? face.viseme}`;
    preview.want({ character, pose: posed(rest) }, `${mouth}${face.smile ? ", smiling" : ""}${face.blink ? ", eyes shut" : ""}`);
  };
  const become = (somebody) => {
    const all = { ...somebody, character: whole(sheet.default, somebody.character), rest: whole(sheet.default_pose, somebody.rest) };
    // What the form does not show, half-shut lids, is that somebody's too.
    value.rest = all.rest;
    for (const path of ["gender", "voice", ...settings.map(([root, { name }]) => `${root}.${name}`)]) made.field(path).made.set(read(all, path));
    made.node.dispatchEvent(new Event("input", { bubbles: true }));
  };

  const tries = (words, about) => button(words, { class: "chip", "aria-pressed": "false", ...about });
  const mouths = sheet.visemes.map(({ name }) => tries(name, { "aria-label": `${name}, as in ${SOUNDS[name] ?? name}`, title: SOUNDS[name], "aria-pressed": String(name === face.viseme), onclick: ({ currentTarget }) => {
    face.viseme = name;
    for (const mouth of mouths) mouth.setAttribute("aria-pressed", String(mouth === currentTarget));
    show();
  } }));
  const toggle = (name, words) => tries(words, { onclick: ({ currentTarget }) => {
    face[name] = !face[name];
    currentTarget.setAttribute("aria-pressed", String(face[name]));
    show();
  } });
  const begin = h("select", { id: "begin", onchange: async () => {
    try {
      become(await beginning(begin.value, sheet, signal));
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof api.Refused)) throw error;
      // Deleted in another tab, or out of reach: whoever is shown stays.
      begin.selectedIndex = -1;
      preview.words.textContent = error.sentence;
    }
  } }, sheet.people.map(({ id, name }) => h("option", { value: id, selected: id === person.id }, name)),
    drawn.map(({ id, avatar_name: name }) => h("option", { value: id, selected: id === person.id }, `${name} (your own)`)), h("option", { value: "average", selected: !person.id }, "An average face"));

  made.node.addEventListener("input", ({ target }) => { if (!target.closest?.("#who")) show(); });
  show();
  return [
    back("Avatars", "/console/avatars"),
    head("New person", "Drawn from what you set here: nobody's photograph, nobody's likeness. Yours to use."),
    h("div", { class: "editor" },
      h("section", { class: "card stage", "aria-label": "Preview" }, preview.node,
        h("div", { class: "chips", role: "group", "aria-label": "Mouths of speech" }, mouths),
        h("div", { class: "chips", role: "group", "aria-label": "Expression" }, toggle("smile", "Smile"), toggle("blink", "Blink"))),
      h("div", { class: "settings" },
        h("div", { class: "filters" }, h("div", { class: "field" }, h("label", { for: "begin" }, "Begin with"), begin),
          button("Surprise me", { onclick: () => {
            become(surprise(sheet));
            begin.selectedIndex = -1;
          } }, "again")),
        made.node)),
  ];
}
