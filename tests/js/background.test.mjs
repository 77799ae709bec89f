// Tests of the backgrounds of avatars that need no browser: `node --test`.
import assert from "node:assert/strict";
import test from "node:test";

import {
  BACKGROUND_TYPES,
  cssBackground,
  fileProblem,
  isBeingDrawn,
  normalizeColour,
  toBackground,
  toState,
} from "../../control-api/src/web/console/background-values.js";
import { scaledSize } from "../../control-api/src/web/console/picture.js";

const REFERENCE = `sha256:${"0f".repeat(32)}`;
const edit = (background, changes) => toBackground({ ...toState(background), ...changes });

test("a background that is not changed is sent as it was received", () => {
  for (const background of [
    { type: "keep" },
    { type: "colour", colour: "#102030" },
    { type: "gradient", from: "#102030", to: "#ffffff", angle: 33.5 },
    { type: "blur", strength: 0.333 },
    { type: "image", image: REFERENCE },
    null,
  ])
    assert.deepEqual(toBackground(toState(background), background), background);
  assert.equal(toBackground(toState(undefined), undefined), null);
  // A null counts as absent.
  assert.equal(toState({ type: "blur", strength: null }).strength, 0.5);
});

test("each kind is sent with its own settings only, and with defaults", () => {
  const stored = { type: "image", image: REFERENCE };
  const sent = BACKGROUND_TYPES.map(([type]) =>
    toBackground({ ...toState(stored), type, colour: "#ABC", from: "123456" }, stored),
  );
  assert.deepEqual(sent, [
    { type: "keep" },
    { type: "colour", colour: "#aabbcc" },
    { type: "gradient", from: "#123456", to: toState(null).to, angle: 180 },
    { type: "blur", strength: 0.5 },
    stored,
  ]);
});

test("a colour has three or six hexadecimal digits", () => {
  for (const [text, colour] of [
    ["#1A2b3C", "#1a2b3c"],
    [" 1a2b3c ", "#1a2b3c"],
    ["#0f8", "#00ff88"],
    ["", null],
    ["#12345", null],
    ["#1234567", null],
    ["blue", null],
    ["#12345g", null],
  ])
    assert.equal(normalizeColour(text), colour, text);
});

test("an error names the setting that is not valid", () => {
  for (const [changes, setting, sentence] of [
    [{ type: "colour", colour: "blue" }, "colour", /^The colour needs six hexadecimal digits/],
    [{ type: "gradient", from: "" }, "from", /^The first colour /],
    [{ type: "gradient", to: "#12" }, "to", /^The second colour /],
    [{ type: "image" }, "image", /^Choose a picture/],
  ])
    assert.throws(
      () => edit(null, changes),
      (error) => error.setting === setting && sentence.test(error.message),
      JSON.stringify(changes),
    );
  // A setting of another kind does not matter.
  assert.deepEqual(edit(null, { type: "blur", colour: "blue" }), { type: "blur", strength: 0.5 });
});

test("a colour and a valid gradient can be shown as CSS", () => {
  const css = (state) => cssBackground(toState(state));
  assert.equal(css({ type: "colour", colour: "#ABC" }), "#aabbcc");
  assert.equal(
    css({ type: "gradient", from: "#000000", to: "#fff", angle: 90 }),
    "linear-gradient(90deg, #000000, #ffffff)",
  );
  for (const type of ["keep", "blur", "image"]) assert.equal(css({ type }), null);
  assert.equal(css({ type: "gradient", from: "dark" }), null);
  assert.equal(css({ type: "colour", colour: "dark" }), null);
});

test("a file is a PNG, JPEG or WebP of at most 9 MB", () => {
  const limit = 9 * 1024 * 1024;
  for (const type of ["image/png", "image/jpeg", "image/webp"])
    assert.equal(fileProblem({ type, size: limit }), "");
  assert.match(fileProblem({ type: "image/png", size: limit + 1 }), /larger than 9 MB/);
  for (const type of ["image/gif", "image/svg+xml", "video/webm", ""])
    assert.match(fileProblem({ type, size: 10 }), /PNG, JPEG or WebP/);
});

test("a large picture keeps its shape", () => {
  for (const [size, scaled] of [
    [
      [1280, 1280],
      [1280, 1280],
    ],
    [
      [4000, 3000],
      [1280, 960],
    ],
    [
      [90, 2560],
      [45, 1280],
    ],
    [
      [20_000, 2],
      [1280, 1],
    ],
    [
      [3, 2],
      [3, 2],
    ],
  ])
    assert.deepEqual(scaledSize(...size, 1280), scaled);
});

test("only a background that is being drawn is awaited", () => {
  const drawing = "The new background is being drawn; until then, calls show the previous one.";
  assert.ok(isBeingDrawn(["The language model has no key.", drawing]));
  assert.ok(!isBeingDrawn([]));
  assert.ok(!isBeingDrawn(["The new background could not be drawn. Save the agent again."]));
});
