// Tests of the console's recording that need no browser: `node --test`.
import assert from "node:assert/strict";
import test from "node:test";

import { speechBars, turnMark } from "../../control-api/src/web/console/recording-timeline.js";
import {
  addTimes,
  removeUnitsFrom,
  UnitTracks,
  unitsOf,
} from "../../control-api/src/web/console/timed-lines.js";

const message = (role, start, duration, content, words) => ({
  role,
  content,
  seconds_from_start: start,
  duration,
  words: words?.map(([text, from, to]) => ({ text, start: from, end: to })),
});
const line = (who, spoken) => ({ who, spoken });
const texts = (found) => found.map(({ unit }) => unit.text);

test("the words of a message are its units, and nothing of its text is lost", () => {
  const content = "“Well,  it is it,” she said.";
  const words = [
    ["Well,", 1, 1.2],
    ["it", 1.2, 1.4],
    ["is", 1.4, 1.5],
    ["it,”", 1.5, 1.8],
  ];
  const { units, after } = unitsOf(message("assistant", 1, 2, content, words));
  assert.deepEqual(
    units.map(({ text, start, end }) => [text, start, end]),
    words,
  );
  assert.equal(units.map(({ before, text }) => before + text).join("") + after, content);
});

test("a message is one unit without words, and with words that its text does not have", () => {
  const whole = { before: "", text: "Good day.", start: 2, end: 3.5 };
  for (const words of [
    undefined,
    [],
    [
      ["Good", 2, 2.5],
      ["night.", 2.5, 3],
    ],
    [["", 2, 3]],
  ])
    assert.deepEqual(unitsOf(message("user", 2, 1.5, "Good day.", words)), {
      units: [whole],
      after: "",
    });
});

test("each line gets the times of its own message, also if two messages are alike", () => {
  // The agent's first message ends after the user's, so the orders of lines and messages differ.
  const lines = [
    line("agent", "Yes."),
    line("user", "No"),
    line("agent", "Yes."),
    line("note", "No"),
  ];
  addTimes(lines, [
    message("user", 1.5, 0.5, "No"),
    message("assistant", 1, 2, "Yes."),
    message("tool", 3, 0, "Yes."),
    message("assistant", 5, 1, " Yes. "),
  ]);
  assert.deepEqual(
    lines.map(({ start }) => start),
    [1, 1.5, 5, undefined],
  );
});

test("a line without a message has no times", () => {
  const lines = [
    line("user", "Hello"),
    line("agent", ""),
    { ...line("user", "Bye"), removed: true },
  ];
  addTimes(lines, [message("user", 1, 1, "Goodbye"), message("user", 2, 1, "Bye")]);
  assert.ok(lines.every(({ units }) => units === undefined));
});

test("what is said at a time is found, of both who speak at once", () => {
  const lines = [line("agent", "One two"), line("user", "Stop")];
  addTimes(lines, [
    message("assistant", 1, 2, "One two", [
      ["One", 1, 1.5],
      ["two", 2, 3],
    ]),
    message("user", 2.5, 1, "Stop"),
  ]);
  const tracks = new UnitTracks(lines);
  const expected = [
    [0.99, []],
    [1, ["One"]],
    [1.5, []],
    [2, ["two"]],
    [2.6, ["Stop", "two"]],
    [3, ["Stop"]],
    [3.5, []],
  ];
  for (const [seconds, said] of expected) assert.deepEqual(texts(tracks.at(seconds)), said);
});

test("a position that a browser has rounded down belongs to the word that was sought", () => {
  const lines = [line("agent", "One two")];
  const words = [
    ["One", 7.9, 8.043],
    ["two", 8.043, 8.3],
  ];
  addTimes(lines, [message("assistant", 7.9, 0.4, "One two", words)]);
  assert.deepEqual(texts(new UnitTracks(lines).at(8.042999)), ["two"]);
  assert.deepEqual(texts(new UnitTracks(lines).at(8.042)), ["One"]);
});

test("what follows the end of the file cannot be played, and its text remains", () => {
  const make = () => {
    const lines = [line("agent", "One two, three."), line("user", "Stop"), line("note", "x")];
    const words = [
      ["One", 1, 1.5],
      ["two,", 1.5, 2],
      ["three.", 2, 2.5],
    ];
    addTimes(lines, [
      message("assistant", 1, 1.5, "One two, three.", words),
      message("user", 3, 1, "Stop"),
    ]);
    return lines;
  };
  const text = ({ units, after }) => units.map((u) => u.before + u.text).join("") + after;
  const [agent, user, note] = make();
  assert.deepEqual(removeUnitsFrom([agent, user, note], 1.8), [agent, user]);
  assert.deepEqual(
    agent.units.map((unit) => unit.text),
    ["One", "two,"],
  );
  assert.equal(text(agent), "One two, three.");
  assert.deepEqual([user.units, user.spoken], [undefined, "Stop"]);
  assert.deepEqual(texts(new UnitTracks([agent, user, note]).at(1.8)), ["two,"]);
  assert.deepEqual(removeUnitsFrom([agent, user, note], 1.8), [], "nothing changes again");
  const lines = make();
  assert.deepEqual(removeUnitsFrom(lines, 9), []);
  removeUnitsFrom(lines, 0);
  assert.ok(lines.every(({ units }) => units === undefined));
});

test("each spoken message has a bar, in the order of the starts", () => {
  const long = "word ".repeat(40).trim();
  const bars = speechBars([
    message("user", 61.25, 1.24, "Stop."),
    { ...message("assistant", 60, 2, long), interrupted: true },
    message("user", 70, 0, "Typed."),
    message("tool", 71, 1, "{}"),
  ]);
  assert.deepEqual(bars, [
    {
      speaker: "Agent",
      from: 60,
      to: 62,
      text: `Agent at 1:00 for 2.0 s, interrupted: ${long.slice(0, 79)}…`,
    },
    { speaker: "Caller", from: 61.25, to: 62.49, text: "Caller at 1:01 for 1.2 s: Stop." },
  ]);
});

test("a turn is marked from the end of the speech to the answer, with its latencies", () => {
  const turn = {
    turn: 4,
    voice_to_voice: 0.64,
    endpointing: 0.3,
    llm_ttft: 0.1,
    tts_ttfb: null,
    barge_in: 0.18,
    timeline: { speech_end: 72.4, committed: 72.7, first_sample: 73.04, interrupted: 75.9 },
  };
  assert.deepEqual(turnMark(turn, 0), {
    from: 72.4,
    to: 73.04,
    interrupted: 75.9,
    text:
      "Turn 5 at 1:12: answered after 640 ms (endpointing 300 ms, LLM 100 ms); " +
      "interrupted at 1:15, silent after 180 ms.",
  });
});

test("a turn without speech or answer is marked where it was committed", () => {
  const timeline = { speech_end: null, committed: 2, first_sample: null, interrupted: null };
  const mark = { from: 2, to: 2, interrupted: null, text: "Turn 1 at 0:02: not answered." };
  assert.deepEqual(turnMark({ voice_to_voice: null, timeline }, 0), mark);
  assert.equal(turnMark({ turn: 0, timeline: {} }, 0), null);
  assert.equal(turnMark({ turn: 0 }, 0), null);
});
