// The form for a new video: text or sound, avatar, voice with a preview, picture and file.

import * as api from "./api.js";
import { button, copyable, formatBytes, h, link } from "./dom.js";
import { form } from "./form.js";
import { stopSample } from "./sample-player.js";
import { selectableAvatars } from "./selectable-avatars.js";
import { backLink, dialog, pageHeader } from "./ui.js";
import {
  countChars,
  DIRECTIONS,
  fromRecord,
  MAX_TEXT_CHARS,
  RequestKeys,
  sampleText,
  toFormData,
  toRequest,
} from "./video-values.js";

const PATH = "/v1/ext/video";
const DEFAULTS = {
  source: "text",
  text: "",
  tts: {},
  size: "512x512",
  frame_rate: 25,
  background: null,
  captions: "none",
  format: "webm",
  title: "",
  callback_url: "",
  meta_data: null,
};
const NEEDS_FFMPEG = " (needs ffmpeg on the server)";
const isText = (get) => get("source") === "text";

export async function newVideoPage({ query, signal, navigate, setUnsavedCheck }) {
  const similar = query.get("from");
  const [avatars, providers, { video: capability }, record] = await Promise.all([
    selectableAvatars(signal),
    api.get("/v1/ext/providers", signal),
    api.get("/v1/ext/capabilities", signal),
    similar && api.get(`${PATH}/${encodeURIComponent(similar)}`, signal),
  ]);
  const options = avatars.map((avatar) => ({
    id: avatar.avatar_key_id,
    name: avatar.avatar_name,
    picture: avatar.display_picture,
  }));
  const value = { ...DEFAULTS, ...(record && fromRecord(record)) };
  const wanted = record ? record.avatar_key_id : query.get("avatar");
  value.avatar_key_id = options.some(({ id }) => id === wanted) ? wanted : options[0]?.id;

  const textArea = () => formView.field("text").control.focusTarget();
  const script = scriptTools(textArea);
  const preview = voicePreview(textArea, () =>
    options.find(({ id }) => id === formView.get("avatar_key_id")),
  );
  const keys = new RequestKeys();
  const upload = uploadProgress();
  const formView = form({
    setUnsavedCheck,
    label: "Create video",
    busyText: "Sending …",
    needs: "operate",
    value,
    sections: [
      contentSection(script.counter),
      avatarSection(options),
      voiceSection(providers, preview),
      pictureSection(),
      fileSection(capability),
      webhookSection(),
    ],
    extra: [link("Cancel", "/console/videos", { class: "button quiet" }), upload.node],
    save: async (values) => {
      stopSample();
      const request = toRequest(values);
      const headers = { "idempotency-key": keys.for(request) };
      if (!request.audio) return api.post(PATH, request, signal, headers);
      const onProgress = upload.start(request.audio);
      try {
        return await api.upload(PATH, toFormData(request), onProgress, signal, headers);
      } finally {
        upload.stop();
      }
    },
    onSaved: async (created) => {
      if (created.callback_url) await showSecret(created.webhook_secret);
      navigate(`/console/videos/${created.id}`, { force: true });
    },
  });
  const voiceCard = formView.node.querySelector("#voice");
  const update = () => {
    const speaksText = isText(formView.get);
    voiceCard.hidden = !speaksText;
    script.counter.hidden = !speaksText;
    if (!speaksText) stopSample();
    script.update();
    preview.update();
  };
  textArea().before(script.directions);
  for (const event of ["input", "change"]) formView.node.addEventListener(event, update);
  document.addEventListener("selectionchange", preview.update, { signal });
  signal.addEventListener("abort", stopSample);
  update();
  return [
    backLink("Videos", "/console/videos"),
    pageHeader("New video", "An avatar speaks a text, or moves its lips to a sound."),
    !capability.available &&
      h("p", { class: "note" }, `No video can be made now. ${capability.reason ?? ""}`),
    formView.node,
  ].filter(Boolean);
}

const contentSection = (counter) => ({
  id: "content",
  title: "What is said?",
  fields: [
    {
      path: "source",
      label: "Speech",
      kind: "cards",
      single: true,
      class: "wide sources",
      options: [
        { id: "text", name: "A text, spoken by a voice" },
        { id: "audio", name: "A sound file" },
      ],
    },
    {
      path: "text",
      label: "Text",
      kind: "area",
      rows: 10,
      class: "wide script",
      hint:
        "A blank line is a short pause. A direction in brackets is not spoken: it sets the " +
        "expression from there on, nods, or pauses for up to 10 seconds.",
      visibleIf: isText,
    },
    {
      path: "audio",
      label: "Sound file",
      kind: "audio",
      class: "wide",
      hint: "WAV, MP3 or Ogg, at most 50 MB and 30 minutes. It is sent with the form.",
      visibleIf: (get) => !isText(get),
    },
  ],
  more: counter,
});

const avatarSection = (options) => ({
  id: "who",
  title: "Who says it?",
  fields: [
    {
      path: "avatar_key_id",
      label: "Avatar",
      kind: "cards",
      single: true,
      showPictures: true,
      options,
      class: "wide",
      required: true,
    },
  ],
});

function voiceSection(providers, preview) {
  const voices = providers.filter(({ provider_type: type }) => type === "tts");
  const names = new Map(voices.map((one) => [one.provider, one.display_name]));
  const items = (get, name) =>
    voices
      .find(({ provider }) => provider === get("tts.provider"))
      ?.additional_fields.find((field) => field.name === name)?.items ?? [];
  const working = voices.filter(({ configured }) => configured);
  const others = voices.filter(({ configured }) => !configured);
  return {
    id: "voice",
    title: "In which voice?",
    fields: [
      {
        path: "tts.provider",
        label: "Provider",
        kind: "select",
        emptyValue: null,
        options: [
          ["", "Default of this server"],
          ...working.map((one) => [one.provider, one.display_name]),
          ...others.map((one) => [one.provider, `${one.display_name} (needs a key)`]),
        ],
      },
      {
        path: "tts.model_id",
        label: "Model",
        emptyValue: null,
        suggestions: (get) => items(get, "model_id"),
        placeholder: "default of the provider",
        visibleIf: (get) => get("tts.provider") || get("tts.model_id"),
      },
      {
        path: "tts.language",
        label: "Language",
        emptyValue: null,
        suggestions: (get) => items(get, "language"),
        placeholder: "default of the voice",
        visibleIf: (get) => get("tts.provider") || get("tts.language"),
      },
      {
        path: "tts.voice_id",
        label: "Voice",
        name: "The voice",
        kind: "voice",
        class: "wide",
        placeholder: "the voice of the avatar, or the provider's default",
        sample: { label: "Preview the sentence", text: preview.text },
        model: (get) => ({
          provider: get("tts.provider") ?? "",
          model_id: get("tts.model_id") ?? null,
          language: get("tts.language") ?? null,
          avatar_key_id: get("avatar_key_id") ?? null,
        }),
        providerName: (provider) => names.get(provider) ?? (provider || "default of this server"),
      },
    ],
    more: preview.node,
  };
}

const pictureSection = () => ({
  id: "picture",
  title: "What does it look like?",
  fields: [
    {
      path: "size",
      label: "Size",
      kind: "select",
      options: [
        ["512x512", "Square: 512 × 512"],
        ["1280x720", "Landscape: 1280 × 720"],
        ["720x1280", "Portrait: 720 × 1280, for phones"],
      ],
      hint:
        "An avatar that was never shown in this size or in front of this colour is drawn first, " +
        "which takes a few minutes.",
    },
    {
      path: "frame_rate",
      label: "Pictures per second",
      kind: "number",
      min: 10,
      max: 30,
      step: 1,
    },
    {
      path: "background",
      label: "Behind the avatar",
      name: "The background",
      kind: "background",
      types: ["keep", "colour"],
      class: "wide",
    },
  ],
});

function fileSection(capability) {
  /** What the server does not offer cannot be selected. */
  const offered = (options, available) =>
    options.map(([value, label]) =>
      available.includes(value) ? [value, label] : [value, `${label}${NEEDS_FFMPEG}`, true],
    );
  return {
    id: "file",
    title: "Which file?",
    fields: [
      {
        path: "title",
        label: "Title",
        max: 200,
        class: "wide",
        placeholder: "Shown in the list of videos",
      },
      {
        path: "format",
        label: "Format",
        kind: "select",
        options: offered(
          [
            ["webm", "WebM"],
            ["mp4", "MP4"],
          ],
          capability.formats,
        ),
      },
      {
        path: "captions",
        label: "Captions",
        kind: "select",
        options: offered(
          [
            ["none", "None"],
            ["vtt", "In a file beside it (WebVTT)"],
            ["burned", "Part of the picture"],
          ],
          capability.captions,
        ),
        visibleIf: isText,
      },
    ],
  };
}

const webhookSection = () => ({
  id: "webhook",
  title: "Webhook",
  summary: "Who is informed when it is ready",
  open: false,
  fields: [
    {
      path: "callback_url",
      label: "Address",
      type: "url",
      placeholder: "https://…",
      hint: "Receives video_completed or video_failed.",
    },
    {
      path: "meta_data",
      label: "Your own data",
      kind: "json",
      emptyValue: null,
      rows: 4,
      hint: "A JSON object that the webhook and the record contain.",
    },
  ],
});

/** The buttons for directions above the text, and the count of characters below it. */
function scriptTools(textArea) {
  const count = h("span", {});
  const counter = h(
    "p",
    { class: "hint counter" },
    count,
    ` of ${format(MAX_TEXT_CHARS)} characters`,
  );
  const insert = (direction) => {
    const area = textArea();
    const { value, selectionStart: start, selectionEnd: end } = area;
    const before = start && !/\s/.test(value[start - 1]) ? " " : "";
    const after = /\s/.test(value[end] ?? "") ? "" : " ";
    area.setRangeText(before + direction + after, start, end, "end");
    area.focus();
    area.dispatchEvent(new Event("input", { bubbles: true }));
  };
  return {
    counter,
    directions: h(
      "div",
      { class: "examples", role: "group", "aria-label": "Insert a direction" },
      h("span", { class: "soft" }, "Insert"),
      DIRECTIONS.map(([direction, label]) =>
        button(label, { class: "chip", title: direction, onclick: () => insert(direction) }),
      ),
    ),
    update: () => {
      const chars = countChars(textArea().value);
      count.textContent = format(chars);
      counter.classList.toggle("fault", chars > MAX_TEXT_CHARS);
    },
  };
}

const format = (number) => number.toLocaleString("en");

/** The sentence that the button in the field of the voice speaks, beside the avatar's picture. */
function voicePreview(textArea, selectedAvatar) {
  const picture = h("img", { class: "avatar-image", alt: "", width: 56, height: 56, hidden: true });
  const sentence = h("p", {});
  const text = () => {
    const { value, selectionStart, selectionEnd } = textArea();
    return sampleText(value, selectionStart, selectionEnd) || undefined;
  };
  return {
    text,
    node: h(
      "div",
      { class: "sentence-preview" },
      picture,
      h(
        "div",
        { class: "item-text" },
        h(
          "p",
          { class: "hint" },
          "The preview speaks the sentence at the cursor, or the selection:",
        ),
        sentence,
      ),
    ),
    update: () => {
      const avatar = selectedAvatar();
      picture.hidden = !avatar?.picture;
      if (avatar?.picture && picture.getAttribute("src") !== avatar.picture)
        picture.src = avatar.picture;
      const spoken = text();
      const shown = spoken ? `“${spoken}”` : "There is no text yet: an example is spoken.";
      if (sentence.textContent !== shown) sentence.textContent = shown;
      sentence.className = spoken ? "" : "soft";
    },
  };
}

/** The progress of sending a sound file. */
function uploadProgress() {
  const bar = h("progress", { max: "1", value: 0, "aria-label": "Progress of sending" });
  const state = h("span", { class: "soft" });
  const node = h("span", { class: "inline", hidden: true }, bar, state);
  return {
    node,
    start: ({ size }) => {
      node.hidden = false;
      return (fraction) => {
        bar.value = fraction;
        state.textContent = `${Math.round(fraction * 100)} % of ${formatBytes(size)}`;
      };
    },
    stop: () => {
      node.hidden = true;
    },
  };
}

/** Shows the secret of a video's webhook. */
const showSecret = (secret) =>
  dialog("The secret of the webhook", (close) => [
    h("p", {}, "It signs the webhook of this video. It is not shown again."),
    copyable(secret, "webhook secret"),
    h(
      "div",
      { class: "actions end" },
      button("Continue", { class: "primary", onclick: () => close("") }),
    ),
  ]);
