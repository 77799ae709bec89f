// The avatar editor: sliders on one side, on the other the preview with visemes and expressions.

import { voiceOptions } from "./agent-model-fields.js";
import * as api from "./api.js";
import {
  choiceLabel,
  formatValue,
  GROUP_TITLES,
  randomCharacter,
  settingHint,
  settingLabel,
  VISEME_SOUNDS,
} from "./character.js";
import { button, h, link } from "./dom.js";
import { form } from "./form.js";
import { getPath, setPath } from "./paths.js";
import { Preview } from "./preview.js";
import { backLink, pageHeader } from "./ui.js";

/** Settings of the pose at rest. The mouth is closed then. */
const REST_SETTINGS = [
  "smile",
  "eyes.squint",
  "eyes.gaze_x",
  "eyes.gaze_y",
  "brows.raise",
  "brows.knit",
  "head.yaw",
  "head.pitch",
  "head.roll",
];

/** The `sessionStorage` key for an unsaved avatar, until the next login in this tab. */
const UNSAVED_KEY = "visavis-unsaved-person";

/** Returns and removes the avatar that was being edited when the session ended. */
function takeUnsaved() {
  const saved = sessionStorage.getItem(UNSAVED_KEY);
  sessionStorage.removeItem(UNSAVED_KEY);
  return saved && JSON.parse(saved);
}

const settingField = (root, setting) => {
  const common = {
    path: `${root}.${setting.name}`,
    label: settingLabel(setting),
    hint: settingHint(setting),
  };
  switch (setting.kind) {
    case "slider":
      return {
        ...common,
        kind: "slider",
        min: setting.least,
        max: setting.most,
        format: (value) => formatValue(value, setting.unit),
      };
    case "colour":
      return { ...common, kind: "colour", optional: setting.optional };
    case "choice":
      return {
        ...common,
        kind: "select",
        options: setting.choices.map((value) => [value, choiceLabel(value)]),
      };
    case "flag":
      return { ...common, kind: "check" };
    default:
      return { ...common, kind: "number", min: 0, max: setting.most, step: 1 };
  }
};

/** The avatar with which the editor starts: a stock avatar, a custom one, or the average. */
async function loadStart(from, description, signal) {
  const stock = description.people.find((avatar) => avatar.id === from);
  if (stock) return stock;
  if (from && from !== "average") {
    const own = await api.get(`/v2/custom-avatar/${encodeURIComponent(from)}`, signal);
    if (own.character) return { ...own, rest: own.rest ?? {} };
  }
  return from === "average"
    ? {
        gender: "female",
        voice: "heart",
        character: description.default,
        rest: description.people[0].rest,
      }
    : description.people[0];
}

/** A record's settings, completed with the defaults. */
const withDefaults = (defaults, settings) =>
  Object.fromEntries(
    Object.entries(defaults).map(([name, value]) => [
      name,
      value && typeof value === "object" && !Array.isArray(value)
        ? withDefaults(value, settings?.[name] ?? {})
        : (settings?.[name] ?? value),
    ]),
  );

export async function editorPage({ query, signal, navigate, setUnsavedCheck }) {
  const [description, providers, own] = await Promise.all([
    api.get("/v2/character", signal),
    api.get("/v1/ext/providers", signal),
    api.listAll("/v2/custom-avatars", signal),
  ]);
  const saved = takeUnsaved();
  const start = saved ?? (await loadStart(query.get("from"), description, signal));
  const customAvatars = own.filter((avatar) => avatar.character);
  const settings = [
    ...description.character.map((setting) => ["character", setting]),
    ...description.pose
      .filter(({ name }) => REST_SETTINGS.includes(name))
      .map((setting) => ["rest", setting]),
  ];
  const value = {
    avatar_name: saved?.avatar_name ?? "",
    gender: start.gender,
    voice: start.voice,
    is_private: saved?.is_private ?? false,
    character: withDefaults(description.default, start.character),
    rest: withDefaults(description.default_pose, start.rest),
  };
  const groups = Object.keys(GROUP_TITLES).map((group) => ({
    id: group,
    title: GROUP_TITLES[group],
    open: group === "face" || group === "skin",
    fields: description.character
      .filter((setting) => setting.group === group)
      .map((setting) => settingField("character", setting)),
  }));
  const formView = form({
    setUnsavedCheck,
    value,
    label: "Save and draw",
    sticky: true,
    sections: [
      {
        id: "who",
        title: "Who is it?",
        fields: [
          { path: "avatar_name", label: "Name", required: true, max: 200 },
          {
            path: "gender",
            label: "Gender",
            kind: "select",
            options: [
              ["female", "Female"],
              ["male", "Male"],
            ],
          },
          {
            path: "voice",
            label: "Voice",
            kind: "select",
            options: voiceOptions(providers).filter(([id]) => id),
          },
          { path: "is_private", label: "Private", kind: "check" },
        ],
      },
      ...groups,
      {
        id: "rest",
        title: "Expression at rest",
        summary: "The face while nobody speaks",
        open: false,
        fields: description.pose
          .filter(({ name }) => REST_SETTINGS.includes(name))
          .map((setting) => settingField("rest", setting)),
      },
    ],
    extra: [link("Cancel", "/console/avatars", { class: "button quiet" })],
    save: (body) => api.post("/v2/custom-avatar", body),
    onSaved: ({ id }) => navigate(`/console/avatars/${id}`, { force: true }),
  });

  const preview = new Preview(signal);
  const expression = { viseme: description.visemes[0]?.name, smile: false, blink: false };
  /** The character in the form. An incomplete whole number keeps its old value. */
  const currentCharacter = () => {
    const body = { character: structuredClone(value.character), rest: structuredClone(value.rest) };
    for (const [root, { name, kind }] of settings) {
      const settingValue = formView.field(`${root}.${name}`).control.get();
      if (kind !== "whole" || Number.isInteger(settingValue))
        setPath(body, `${root}.${name}`, settingValue);
    }
    return body;
  };
  window.addEventListener(
    "session-over",
    () => {
      const basics = Object.fromEntries(
        ["avatar_name", "gender", "voice", "is_private"].map((name) => [
          name,
          formView.field(name).control.get(),
        ]),
      );
      sessionStorage.setItem(UNSAVED_KEY, JSON.stringify({ ...basics, ...currentCharacter() }));
    },
    { signal },
  );
  const poseOf = (rest) => {
    const pose = structuredClone(rest);
    pose.mouth = {
      ...pose.mouth,
      ...description.visemes.find(({ name }) => name === expression.viseme)?.mouth,
    };
    if (expression.smile) pose.smile = 1;
    if (expression.blink) pose.eyes.lids = 1;
    return pose;
  };
  const requestPreview = () => {
    const { character, rest } = currentCharacter();
    const mouth =
      expression.viseme === description.visemes[0]?.name
        ? ""
        : `, the mouth as in ${VISEME_SOUNDS[expression.viseme] ?? expression.viseme}`;
    preview.request(
      { character, pose: poseOf(rest) },
      `${mouth}${expression.smile ? ", smiling" : ""}${expression.blink ? ", eyes shut" : ""}`,
    );
  };
  const applyCharacter = (avatar) => {
    const complete = {
      ...avatar,
      character: withDefaults(description.default, avatar.character),
      rest: withDefaults(description.default_pose, avatar.rest),
    };
    // Includes settings without a field, such as half-shut lids.
    value.rest = complete.rest;
    for (const path of [
      "gender",
      "voice",
      ...settings.map(([root, { name }]) => `${root}.${name}`),
    ])
      formView.field(path).control.set(getPath(complete, path));
    formView.node.dispatchEvent(new Event("input", { bubbles: true }));
  };

  const chip = (label, attributes) =>
    button(label, { class: "chip", "aria-pressed": "false", ...attributes });
  const visemeChips = description.visemes.map(({ name }) =>
    chip(name, {
      "aria-label": `${name}, as in ${VISEME_SOUNDS[name] ?? name}`,
      title: VISEME_SOUNDS[name],
      "aria-pressed": String(name === expression.viseme),
      onclick: ({ currentTarget }) => {
        expression.viseme = name;
        for (const mouth of visemeChips)
          mouth.setAttribute("aria-pressed", String(mouth === currentTarget));
        requestPreview();
      },
    }),
  );
  const expressionChip = (name, label) =>
    chip(label, {
      onclick: ({ currentTarget }) => {
        expression[name] = !expression[name];
        currentTarget.setAttribute("aria-pressed", String(expression[name]));
        requestPreview();
      },
    });
  const startSelect = h(
    "select",
    {
      id: "begin",
      onchange: async () => {
        try {
          applyCharacter(await loadStart(startSelect.value, description, signal));
        } catch (error) {
          if (signal.aborted) return;
          if (!(error instanceof api.ApiError)) throw error;
          // Deleted in another tab, or the server cannot be reached: the form stays as it is.
          startSelect.selectedIndex = -1;
          preview.status.textContent = error.userMessage;
        }
      },
    },
    description.people.map(({ id, name }) =>
      h("option", { value: id, selected: id === start.id }, name),
    ),
    customAvatars.map(({ id, avatar_name: name }) =>
      h("option", { value: id, selected: id === start.id }, `${name} (your own)`),
    ),
    h("option", { value: "average", selected: !start.id }, "An average face"),
  );

  formView.node.addEventListener("input", ({ target }) => {
    if (!target.closest?.("#who")) requestPreview();
  });
  requestPreview();
  return [
    backLink("Avatars", "/console/avatars"),
    pageHeader("New avatar", "Drawn from these settings, without a photograph of a person."),
    h(
      "div",
      { class: "editor" },
      h(
        "section",
        { class: "card stage", "aria-label": "Preview" },
        preview.node,
        h("div", { class: "chips", role: "group", "aria-label": "Visemes" }, visemeChips),
        h(
          "div",
          { class: "chips", role: "group", "aria-label": "Expression" },
          expressionChip("smile", "Smile"),
          expressionChip("blink", "Blink"),
        ),
      ),
      h(
        "div",
        { class: "settings" },
        h(
          "div",
          { class: "filters" },
          h("div", { class: "field" }, h("label", { for: "begin" }, "Start from"), startSelect),
          button(
            "Surprise me",
            {
              onclick: () => {
                applyCharacter(randomCharacter(description));
                startSelect.selectedIndex = -1;
              },
            },
            "again",
          ),
        ),
        formView.node,
      ),
    ),
  ];
}
