// The values of the console's pages of videos: `node --test`.
import assert from "node:assert/strict";
import test from "node:test";

import {
  audioProblem,
  countChars,
  DIRECTIONS,
  fromRecord,
  isOwnOrigin,
  progressText,
  RequestKeys,
  sampleText,
  shapeOf,
  sizeText,
  statusLabel,
  toFormData,
  toRequest,
  videoName,
} from "../../control-api/src/web/console/video-values.js";

const FORM = {
  source: "text",
  text: "Hello.",
  audio: null,
  avatar_key_id: "clara",
  tts: { provider: null, model_id: null, language: null, voice_id: null },
  size: "512x512",
  frame_rate: 25,
  background: null,
  captions: "none",
  format: "webm",
  title: "",
  callback_url: "",
  meta_data: null,
};
const RECORD = {
  id: "v1",
  title: null,
  status: "COMPLETED",
  progress: 1,
  avatar_key_id: "clara",
  text: "Hello.",
  tts: { provider: "builtin", voice_id: "heart" },
  size: "720x1280",
  frame_rate: 30,
  background: "#102030",
  captions: "vtt",
  format: "webm",
  callback_url: "",
  meta_data: null,
  url: "https://a.example/1",
  poster_url: "https://a.example/2",
  captions_url: "",
  width: 720,
  height: 1280,
  updated_at: "2026-01-02T03:04:05Z",
};

/** The sample at the place of `|`, or of the text between two of them. */
function sampleAt(marked) {
  const [before, inside, after] = marked.split("|");
  const start = before.length;
  return after === undefined
    ? sampleText(before + inside, start, start)
    : sampleText(before + inside + after, start, start + inside.length);
}

test("the sample is the sentence at the cursor", () => {
  for (const [marked, expected] of [
    ["|One. Two! Three?", "One."],
    ["One. T|wo! Three?", "Two!"],
    ["One. Two! Three?|", "Three?"],
    ["One.| Two!", "One."],
    ["One. |Two!", "One."],
    ["It costs 1.5| euros. Good.", "It costs 1.5 euros."],
    ["First line\nSecond |line\nThird", "Second line"],
    ["He said “Stop.” Th|en he left.", "Then he left."],
    ["你好。|再见。", "你好。"],
    ["你好。再|见。", "再见。"],
    ["Wait…| What?", "Wait…"],
  ])
    assert.equal(sampleAt(marked), expected, marked);
});

test("the sample is what was selected, without directions", () => {
  assert.equal(sampleAt("One. |Two! Three|? Four."), "Two! Three");
  assert.equal(sampleAt("|[warm] Hello. [ pause 1.5 ]How are\n you?|"), "Hello. How are you?");
  assert.equal(sampleAt("One. |... |Two."), "One.", "nothing to speak is selected");
  assert.equal(sampleAt("A [smile]| b."), "A [smile] b.", "other brackets are spoken");
  for (const [direction] of DIRECTIONS) assert.equal(sampleAt(`${direction} |Hi.`), "Hi.");
});

test("without a sentence at the cursor, the nearest one is the sample", () => {
  assert.equal(sampleAt("One.\n\n|\n\nTwo."), "One.");
  assert.equal(sampleAt("|\n\n[pause 2]\nTwo. Three."), "Two.");
  assert.equal(sampleAt("One. [nod] |"), "One.");
  for (const text of ["|", "|[warm] [pause 1]", "... |"]) assert.equal(sampleAt(text), "");
});

test("a long sample ends with a whole word", () => {
  const long = `|${"word ".repeat(100)}end.`;
  const sample = sampleAt(long);
  assert.ok(sample.endsWith("word") && sample.length <= 200 && sample.length > 190, sample);
  assert.equal(countChars(sampleAt(`|${"😀a".repeat(300)}`)), 200, "characters, not UTF-16 units");
  assert.equal(sampleAt(`|${"a".repeat(200)}`).length, 200);
});

test("the request has the text or the sound, and no empty fields", () => {
  const common = {
    avatar_key_id: "clara",
    size: "512x512",
    frame_rate: 25,
    format: "webm",
  };
  assert.deepEqual(toRequest(FORM), { ...common, text: "Hello.", captions: "none" });
  const voice = { ...FORM.tts, provider: "flite", voice_id: "rms" };
  const background = { type: "colour", colour: "#102030" };
  assert.deepEqual(
    toRequest({ ...FORM, tts: voice, background, title: "A", meta_data: { a: 1 } }),
    {
      ...common,
      text: "Hello.",
      captions: "none",
      tts: { provider: "flite", voice_id: "rms" },
      background,
      title: "A",
      meta_data: { a: 1 },
    },
  );
  const audio = new File(["RIFF"], "a.wav");
  const request = toRequest({ ...FORM, source: "audio", audio, tts: voice, captions: "vtt" });
  assert.deepEqual(request, { ...common, audio });
  // The server reports what is missing.
  assert.equal("text" in toRequest({ ...FORM, text: "" }), false);
});

test("a form has objects as JSON", async () => {
  const audio = new File(["RIFF"], "a.wav");
  const form = toFormData({ frame_rate: 25, meta_data: { a: 1 }, title: "A", audio });
  assert.deepEqual(
    [...form].filter(([name]) => name !== "audio"),
    [
      ["frame_rate", "25"],
      ["meta_data", '{"a":1}'],
      ["title", "A"],
    ],
  );
  const sent = form.get("audio");
  assert.equal(await /** @type {File} */ (sent).text(), "RIFF");
});

test("a request that is sent again has the same key, and another one has another key", () => {
  const keys = new RequestKeys();
  const key = keys.for({ text: "A" });
  assert.match(key, /^[0-9a-f]{32}$/);
  assert.equal(keys.for({ text: "A" }), key);
  const others = [{ text: "B" }, { text: "A", title: "t" }].map((request) => keys.for(request));
  const file = (name, lastModified) => ({ audio: new File(["RIFF"], name, { lastModified }) });
  others.push(keys.for(file("a.wav", 1)));
  assert.equal(keys.for(file("a.wav", 1)), others.at(-1));
  others.push(keys.for(file("a.wav", 2)), keys.for(file("b.wav", 2)));
  assert.equal(new Set([key, ...others]).size, 6);
});

test("only sound files of a permitted size can be chosen", () => {
  const problem = (about) => audioProblem({ name: "a.wav", type: "audio/wav", size: 1, ...about });
  for (const name of ["a.wav", "A.MP3", "a.ogg", "a.oga", "a.opus"])
    assert.equal(problem({ name, type: "" }), "", name);
  assert.equal(problem({ name: "recording", type: "audio/x-wav" }), "");
  assert.equal(problem({ name: "recording", type: "audio/ogg; codecs=opus" }), "");
  assert.equal(problem({ size: 50 << 20 }), "");
  assert.equal(
    problem({ size: (50 << 20) + 1 }),
    "The file is larger than 50 MB. Choose a smaller one.",
  );
  assert.equal(problem({ size: 0 }), "The file is empty.");
  for (const about of [
    { name: "a.flac", type: "audio/flac" },
    { name: "a.mp4", type: "video/mp4" },
    { name: "wav", type: "" },
  ])
    assert.equal(problem(about), "Choose a WAV, MP3 or Ogg file.", about.name);
});

test("a similar video has the same settings", () => {
  const values = fromRecord(RECORD);
  assert.deepEqual(values, {
    avatar_key_id: "clara",
    source: "text",
    text: "Hello.",
    tts: RECORD.tts,
    size: "720x1280",
    frame_rate: 30,
    background: { type: "colour", colour: "#102030" },
    captions: "vtt",
    format: "webm",
    title: "",
    callback_url: "",
    meta_data: null,
  });
  const sound = fromRecord({ ...RECORD, text: null, tts: null, background: null });
  assert.deepEqual([sound.source, sound.text, sound.background], ["audio", "", null]);
});

test("the state of a video is a text", () => {
  const state = (about) =>
    progressText({ status: "PROCESSING", progress: 0, waiting: null, ...about });
  assert.equal(state({ status: "QUEUED" }), "It waits for its turn. You can leave this page.");
  assert.equal(
    state({ progress: 0.42 }),
    "It is made in the background: 40 %. You can leave this page.",
  );
  assert.match(state({ progress: 0.35 }), /: 35 %/);
  assert.match(state({ progress: 0.15 }), /: 15 %/);
  assert.equal(state({ waiting: "The disk is full." }), "The disk is full.");
  assert.deepEqual(statusLabel({ status: "FAILED" }), ["Failed", "bad"]);
  assert.deepEqual(statusLabel({ status: "STRANGE" }), ["STRANGE", ""]);
  assert.equal(sizeText(RECORD), "720 × 1280, portrait");
  assert.equal(sizeText({ size: "1x2", width: 1, height: 2 }), "1 × 2");
});

test("a video without a title is named by its avatar", () => {
  const names = new Map([["clara", "Clara"]]);
  assert.equal(videoName(RECORD, names), "Video of Clara");
  assert.equal(videoName({ ...RECORD, title: "News" }, names), "News");
  assert.equal(videoName({ ...RECORD, avatar_key_id: "x" }, names), "Video of a deleted avatar");
});

test("new links and progress do not change the shape of a video, but a first link does", () => {
  const shape = shapeOf(RECORD);
  const links = { url: "https://a.example/3", poster_url: "", captions_url: "x" };
  assert.equal(shapeOf({ ...RECORD, ...links, progress: 0.5, updated_at: "" }), shape);
  assert.notEqual(shapeOf({ ...RECORD, url: "" }), shape);
  assert.notEqual(shapeOf({ ...RECORD, status: "FAILED" }), shape);
});

test("only files of the page's own origin are loaded into it", () => {
  const page = "https://a.example";
  assert.equal(isOwnOrigin("https://a.example/media/x", page), true);
  assert.equal(isOwnOrigin("/media/x", page), true);
  for (const link of ["", "https://b.example/x", "http://a.example/x", "https://a.example:8443/x"])
    assert.equal(isOwnOrigin(link, page), false, link);
});
