// What the pages of videos compute: the sentence to preview, the request, the state of a video as a
// text. No DOM here, so it can be tested without a browser.

/** Maximum length of the text, characters. */
export const MAX_TEXT_CHARS = 20_000;
/** Maximum length of the text of a sample, characters. */
const MAX_SAMPLE_CHARS = 200;
const MAX_AUDIO_BYTES = 50 << 20;

/** The directions, as they are written in a text, with their labels. */
export const DIRECTIONS = [
  ["[pause 1]", "Pause"],
  ["[nod]", "Nod"],
  ["[warm]", "Warm"],
  ["[glad]", "Glad"],
  ["[concerned]", "Concerned"],
  ["[curious]", "Curious"],
  ["[calm]", "Calm"],
];
const DIRECTION = /\[ *(?:pause *\d*\.?\d+|nod|warm|glad|concerned|curious|calm) *\]/gi;
/** A sentence with the spaces after it. A line is never longer than one. */
const SENTENCE = /[^\n]*?(?:[.!?…]+["'”’)]*(?=\s|$)|[。！？]+|$)[^\S\n]*\n*/gmu;

const STATUS_LABELS = {
  QUEUED: ["Waiting", "warn"],
  PROCESSING: ["In progress", "warn"],
  COMPLETED: ["Ready", "good"],
  FAILED: ["Failed", "bad"],
};
const SIZES = {
  "512x512": "square",
  "1280x720": "landscape",
  "720x1280": "portrait",
};

export const countChars = (text) => [...text].length;

/** A text as it is heard: without directions, and with single spaces. */
const spokenText = (text) => text.replace(DIRECTION, " ").replace(/\s+/g, " ").trim();

const isSpoken = (text) => /[\p{L}\p{N}]/u.test(text);

/** The first words of a text, in at most `max` characters. */
function firstWords(text, max) {
  const characters = [...text];
  if (characters.length <= max) return text;
  const cut = characters.slice(0, max + 1).join("");
  const end = cut.lastIndexOf(" ");
  return end > 0 ? cut.slice(0, end) : characters.slice(0, max).join("");
}

/**
 * What a sample speaks: the selected text, else the sentence at the cursor, or the nearest one
 * before it, or after it. Empty if the text contains nothing to speak.
 */
export function sampleText(text, start, end) {
  const selected = spokenText(text.slice(start, end));
  if (isSpoken(selected)) return firstWords(selected, MAX_SAMPLE_CHARS);
  let found = "";
  for (const { 0: sentence, index } of text.matchAll(SENTENCE)) {
    // The sentence that ends at the cursor is the one that was just written.
    if (found && index >= start) break;
    const spoken = spokenText(sentence);
    if (isSpoken(spoken)) found = spoken;
  }
  return firstWords(found, MAX_SAMPLE_CHARS);
}

/** Why a file cannot be the sound of a video, as one sentence; empty if it can. */
export function audioProblem({ name, type, size }) {
  if (!/\.(wav|mp3|og[ga]|opus)$/i.test(name) && !/^audio\/(x-)?(wav|mpeg|ogg)\b/.test(type))
    return "Choose a WAV, MP3 or Ogg file.";
  if (!size) return "The file is empty.";
  if (size > MAX_AUDIO_BYTES) return "The file is larger than 50 MB. Choose a smaller one.";
  return "";
}

/** `value` without the properties that are null, undefined or empty. */
const withoutEmpty = (value) =>
  Object.fromEntries(
    Object.entries(value).filter(
      ([, one]) =>
        one !== null &&
        one !== undefined &&
        one !== "" &&
        !(typeof one === "object" && !(one instanceof Blob) && !Object.keys(one).length),
    ),
  );

/**
 * The request for a video: the values of the form with text or sound, whichever was chosen. Fields
 * that have their default are left out.
 */
export function toRequest({ source, text, audio, tts, captions, ...values }) {
  if (source === "audio") return withoutEmpty({ ...values, audio });
  return withoutEmpty({ ...values, text, captions, tts: withoutEmpty(tts ?? {}) });
}

/** A request with a sound as a form. Objects are JSON texts in it. */
export function toFormData(request) {
  const form = new FormData();
  for (const [name, value] of Object.entries(request)) {
    if (value instanceof Blob) form.set(name, value);
    else form.set(name, typeof value === "object" ? JSON.stringify(value) : String(value));
  }
  return form;
}

/** The values of the form for a video like this one. */
export function fromRecord(video) {
  const { avatar_key_id, text, tts, size, frame_rate, background, captions, format } = video;
  const { callback_url, meta_data, title } = video;
  return {
    avatar_key_id,
    source: text === null ? "audio" : "text",
    text: text ?? "",
    tts: tts ?? {},
    size,
    frame_rate,
    background: background && { type: "colour", colour: background },
    captions,
    format,
    title: title ?? "",
    callback_url,
    meta_data,
  };
}

/**
 * The keys of requests (`Idempotency-Key`): a request that is sent again has the key of the first
 * time, so that it creates no second video. Another request has another key.
 */
export class RequestKeys {
  #content = "";
  #key = "";

  for(request) {
    const { audio, ...fields } = request;
    const file = audio && [audio.name, audio.size, audio.lastModified];
    const content = JSON.stringify([fields, file]);
    if (content !== this.#content) {
      this.#content = content;
      this.#key = randomKey();
    }
    return this.#key;
  }
}

/** 128 random bits in hexadecimal. `crypto.randomUUID` is missing on pages without TLS. */
const randomKey = () =>
  [...crypto.getRandomValues(new Uint8Array(16))]
    .map((byte) => byte.toString(16).padStart(2, "0"))
    .join("");

export const isInProgress = ({ status }) => status === "QUEUED" || status === "PROCESSING";

/** Label and tone of a status. */
export const statusLabel = ({ status }) => STATUS_LABELS[status] ?? [status, ""];

/** What is being done for a video, for the page that shows its progress. */
export function progressText({ status, progress, waiting }) {
  if (waiting) return waiting;
  if (status === "QUEUED") return "It waits for its turn. You can leave this page.";
  // In steps, because a screen reader announces each change.
  const percent = Math.floor(progress * 20 + 1e-9) * 5;
  return `It is made in the background: ${percent} %. You can leave this page.`;
}

/** The size of a video as a text. */
export const sizeText = ({ size, width, height }) =>
  `${width} × ${height}${SIZES[size] ? `, ${SIZES[size]}` : ""}`;

/** The name of a video. `names`: those of avatars, by their ids. */
export const videoName = ({ title, avatar_key_id: avatar }, names) =>
  title || `Video of ${names.get(avatar) ?? "a deleted avatar"}`;

/**
 * A record without its progress and without its links, which differ in each response; as JSON.
 * While it is unchanged, its element is not made again and keeps the focus.
 */
export function shapeOf(video) {
  const { progress, updated_at, url, poster_url, captions_url, ...rest } = video;
  return JSON.stringify([rest, Boolean(url)]);
}

/** Whether the browser may load this link into the page: pictures and captions of other origins are
 * blocked. */
export const isOwnOrigin = (link, page) => Boolean(link) && new URL(link, page).origin === page;
