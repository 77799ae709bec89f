// Captions built from the messages of a call: `node --test`.
import assert from "node:assert/strict";
import test from "node:test";

import { Captions, lineParts } from "../../control-api/src/web/pages/captions.js";

const event = (name, payload = {}) => ({
  type: "server-message",
  data: { event: { type: "pipeline", event: { name, payload } } },
});
const output = (text, spoken, status = "in-progress", id = 1) => ({
  type: "bot-output",
  data: {
    text,
    segment_id: id,
    spoken_status: status,
    spoken_progress: { accumulated_text: spoken },
  },
});
const linesAfter = (...messages) => {
  const captions = new Captions();
  for (const message of messages) captions.handle(message);
  return captions.lines.map((line) => ({ who: line.who, open: line.open, ...lineParts(line) }));
};

test("a partial is shown until its final replaces it, and the committed text replaces both", () => {
  const partial = { type: "user-transcription", data: { text: "tell me a", final: false } };
  const final = { type: "user-transcription", data: { text: "tell me a story", final: true } };
  assert.deepEqual(
    linesAfter(partial).map((line) => [line.spoken, line.partial]),
    [["", "tell me a"]],
  );
  assert.deepEqual(
    linesAfter(partial, final).map((line) => [line.spoken, line.partial]),
    [["tell me a story", ""]],
  );
  const [line, ...more] = linesAfter(
    partial,
    final,
    event("utterance_committed", { text: "Tell me a story." }),
  );
  assert.deepEqual(
    [line.spoken, line.partial, line.open, more.length],
    ["Tell me a story.", "", false, 0],
  );
});

test("words that were not heard are cut", () => {
  const [line] = linesAfter(
    event("agent.started_speaking", { text: "Here is a long story. The end." }),
    output("Here is a long story.", "Here is", "in-progress"),
    event("agent.interrupted"),
    event("agent.stopped_speaking", { text: "Here is" }),
  );
  assert.deepEqual(
    [line.spoken, line.cut, line.open],
    ["Here is", "a long story. The end.", false],
  );
});

test("an utterance that was heard completely has no cut text", () => {
  const [line] = linesAfter(
    event("agent.started_speaking", { text: "One two." }),
    output("One two.", "One two.", "completed"),
    event("agent.stopped_speaking", { text: "One two." }),
  );
  assert.deepEqual([line.spoken, line.ahead, line.cut], ["One two.", "", ""]);
});

test("later sentences of a streamed answer join its line", () => {
  const [line, ...more] = linesAfter(
    event("agent.started_speaking", { text: "One." }),
    output("One.", "One.", "completed", 1),
    output("Two three.", "Two", "in-progress", 2),
  );
  assert.deepEqual([line.spoken, line.ahead, more.length], ["One. Two", "three.", 0]);
});

test("progress that comes before the start belongs to the same line", () => {
  const lines = linesAfter(
    output("One two.", "", "new"),
    event("agent.started_speaking", { text: "One two." }),
    event("agent.stopped_speaking", { text: "One two." }),
  );
  assert.equal(lines.length, 1);
});

test("each utterance has its own line, also when the same sentence is said twice", () => {
  const once = (id) => [
    event("agent.started_speaking", { text: "Hello." }),
    output("Hello.", "Hello.", "completed", id),
    event("agent.stopped_speaking", { text: "Hello." }),
  ];
  assert.deepEqual(
    linesAfter(...once(1), ...once(2)).map((line) => line.spoken),
    ["Hello.", "Hello."],
  );
});

test("an utterance of which nothing was heard has only cut text", () => {
  const [line] = linesAfter(
    event("agent.started_speaking", { text: "Never heard." }),
    event("agent.stopped_speaking", { text: "" }),
  );
  assert.deepEqual([line.spoken, line.cut], ["", "Never heard."]);
});

test("captions survive a reload, open lines and unknown speakers do not", () => {
  const before = new Captions();
  before.handle(event("utterance_committed", { text: "Hi." }));
  before.handle({ type: "user-transcription", data: { text: "half", final: false } });
  const stored = JSON.parse(JSON.stringify(before.serialize())).lines;
  const after = new Captions({ lines: [...stored, { who: "evil" }] });
  assert.deepEqual(
    after.lines.map((line) => lineParts(line).spoken),
    ["Hi."],
  );
  after.handle(event("agent.started_speaking", { text: "Hello." }));
  assert.deepEqual(
    after.lines.map((line) => line.id),
    [0, 1],
  );
});

test("broken messages change nothing", () => {
  const captions = new Captions();
  const broken = [
    { type: "bot-output" },
    { type: "user-transcription", data: {} },
    { type: "server-message" },
    { type: "server-message", data: { event: {} } },
    {},
  ];
  for (const message of broken) {
    assert.equal(captions.handle(message), null);
  }
  assert.equal(captions.lines.length, 0);
});

test("the whitespace of a text is preserved exactly", () => {
  const text = "Hello   there\n\nmy  friend.\tTabbed  end.";
  const [open] = linesAfter(output(text, "Hello   there\n\nmy"));
  assert.deepEqual([open.spoken, open.ahead], ["Hello   there\n\nmy", "friend.\tTabbed  end."]);
  const [closed] = linesAfter(
    output(text, "Hello   there"),
    event("agent.stopped_speaking", { text }),
  );
  assert.equal(closed.spoken, text);
});
