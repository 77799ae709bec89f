// Tests of the console that need no browser: `node --test`.
import assert from "node:assert/strict";
import test from "node:test";

import { ApiError } from "../../control-api/src/web/console/api.js";
import {
  formatValue,
  randomCharacter,
  settingLabel,
} from "../../control-api/src/web/console/character.js";
import {
  meetingText,
  withKnownStatus,
  withMeetingEvent,
} from "../../control-api/src/web/console/meeting-status.js";
import { getPath, owningPath, setPath } from "../../control-api/src/web/console/paths.js";
import {
  grantableScopes,
  hasScope,
  requireScope,
  setScope,
} from "../../control-api/src/web/console/scope.js";
import {
  linesFromRecord,
  remainingText,
  Transcript,
} from "../../control-api/src/web/console/transcript.js";

const transcriptOf = (...events) => {
  const transcript = new Transcript();
  for (const event of events) transcript.handle({ at: 0, ...event });
  return transcript;
};
const visible = (transcript) =>
  transcript.lines
    .filter((line) => !line.removed)
    .map(({ who, spoken, partial, ahead, cut, open }) => ({
      who,
      spoken,
      partial,
      ahead,
      cut,
      open,
    }));
const line = (who, about) => ({
  who,
  spoken: "",
  partial: "",
  ahead: "",
  cut: "",
  open: false,
  ...about,
});
const reply = [
  { what: "llm.started" },
  { what: "llm.text", text: "One two " },
  { what: "llm.text", text: "three. Four five." },
  { what: "tts.started", text: "One two three." },
  { what: "agent.started_speaking", text: "One two three.", utterance: 1 },
];
const stopped = (text, interrupted) => [
  { what: "agent.stopped_speaking", text, utterance: 1 },
  { what: "history", role: "assistant", text, interrupted, utterance: 1 },
];

test("the unheard rest of an interrupted reply is cut", () => {
  const interrupted = transcriptOf(
    ...reply,
    { what: "agent.heard", text: "One" },
    ...stopped("One two", true),
  );
  assert.deepEqual(visible(interrupted), [
    line("agent", { spoken: "One two", cut: "three. Four five." }),
  ]);
  const unheard = transcriptOf(...reply, ...stopped("", true));
  assert.deepEqual(visible(unheard), [line("agent", { cut: "One two three. Four five." })]);
});

test("a completely heard reply has no cut text, even if the model worded it differently", () => {
  const complete = transcriptOf(...reply, ...stopped("One two three.", false));
  assert.deepEqual(visible(complete), [line("agent", { spoken: "One two three." })]);
});

test("while the agent speaks, the text that is not spoken yet is ahead", () => {
  const speaking = transcriptOf(...reply, { what: "agent.heard", text: "One two" });
  assert.deepEqual(visible(speaking), [
    line("agent", { spoken: "One two", ahead: "three. Four five.", open: true }),
  ]);
});

test("the text of the next reply is not appended to this one", () => {
  const next = [
    { what: "llm.started" },
    { what: "llm.text", text: "Something else altogether, and longer than that." },
  ];
  const heard = { what: "agent.heard", text: "One" };
  const transcript = transcriptOf(...reply, heard, ...next, ...stopped("One two", true));
  assert.deepEqual(visible(transcript), [line("agent", { spoken: "One two", cut: "three." })]);
});

test("a final transcript replaces the partial one, and the committed text replaces both", () => {
  const partial = { what: "user.transcript", text: "tell me", is_final: false };
  const final = { what: "user.transcript", text: "tell me more", is_final: true };
  assert.deepEqual(visible(transcriptOf(partial)), [
    line("user", { partial: "tell me", open: true }),
  ]);
  assert.deepEqual(visible(transcriptOf(partial, final)), [
    line("user", { spoken: "tell me more", open: true }),
  ]);
  const committed = { what: "utterance_committed", text: "Tell me more." };
  assert.deepEqual(visible(transcriptOf(partial, final, committed)), [
    line("user", { spoken: "Tell me more." }),
  ]);
  const typed = { what: "utterance_committed", text: "Typed." };
  assert.deepEqual(visible(transcriptOf(typed)), [line("user", { spoken: "Typed." })]);
});

test("tools, warnings and guardrails have lines of their own", () => {
  const transcript = transcriptOf(
    { what: "history", role: "tool", name: "hours", arguments: { day: "Monday" }, text: "{}" },
    { what: "warning", text: "No voice." },
    { what: "guardrail.triggered", key: "no_advice" },
    { what: "ended", reason: "idle" },
  );
  assert.deepEqual(
    transcript.lines.map((one) => one.who),
    ["tool", "note", "note"],
  );
  assert.equal(transcript.ended, "idle");
});

test("the remaining text starts after the heard text, also after half a word or a lost comma", () => {
  assert.equal(remainingText("Hello there, my friend.", "Hello there"), "my friend.");
  assert.equal(remainingText("Hello there, my friend.", "Hello the"), "there, my friend.");
  assert.equal(remainingText("Hello there.", "Good day"), null);
  assert.equal(remainingText("Hello", "Hello there"), null);
});

test("a record without events still gives a transcript", () => {
  const messages = [
    { role: "user", content: "Hi.", seconds_from_start: 1, interrupted: false },
    { role: "assistant", content: "Hel", seconds_from_start: 2, interrupted: true },
  ];
  const lines = linesFromRecord({ chat_history: { messages } });
  assert.deepEqual(
    lines.map(({ who, spoken, interrupted }) => [who, spoken, interrupted]),
    [
      ["user", "Hi.", false],
      ["agent", "Hel", true],
    ],
  );
});

test("utterances of a meeting name their speakers, whose names may come late", () => {
  const transcript = transcriptOf(
    { what: "utterance_committed", text: "Good morning.", speaker: "Maria" },
    { what: "utterance_committed", text: "Hello." },
  );
  const speakers = () => transcript.lines.map((one) => one.speaker);
  assert.deepEqual(speakers(), ["Maria", undefined]);
  transcript.handle({ what: "user.transcript", text: "And", is_final: false, at: 0 });
  const corrected = transcript.handle({ what: "utterance.speaker", turn: 1, speaker: "Jonas" });
  assert.equal(corrected, transcript.lines[1]);
  assert.deepEqual(speakers(), ["Maria", "Jonas", undefined]);
  assert.equal(transcript.handle({ what: "utterance.speaker", turn: 2, speaker: "Eve" }), null);
  const messages = [{ role: "user", content: "Hi.", speaker: "Maria" }];
  assert.equal(linesFromRecord({ chat_history: { messages } })[0].speaker, "Maria");
});

test("a meeting says where the agent is and why, and an older report changes nothing", () => {
  const record = { type: "meeting", status: "STARTED", meeting_status: "joining" };
  assert.equal(meetingText(record), "Joining");
  const inCall = withMeetingEvent(record, { status: "in_call" });
  assert.equal(meetingText(inCall), "In the meeting");
  assert.equal(withMeetingEvent(inCall, { status: "waiting_room" }), inCall);
  // The answer to an earlier request.
  assert.equal(withKnownStatus(inCall, record).meeting_status, "in_call");
  const ended = { ...record, status: "ENDED" };
  assert.equal(meetingText({ ...ended, meeting_status: "in_call" }), "Leaving");
  const denied = withMeetingEvent(ended, { status: "error", detail: "denied" });
  assert.equal(meetingText(denied), "Failed: the host refused the agent");
  assert.equal(meetingText({ ...denied, meeting_detail: "new_word" }), "Failed: new_word");
  const removed = { ...ended, meeting_status: "done", meeting_detail: "ended" };
  assert.equal(meetingText({ ...removed, end_reason: "ended_by_api" }), "Finished");
  assert.equal(
    meetingText({ ...removed, end_reason: "meeting_ended" }),
    "Finished: the meeting is over",
  );
  assert.equal(meetingText({ ...record, meeting_status: "new_word" }), "new_word");
});

test("a path is read and written as the server names it", () => {
  const data = {};
  setPath(data, "avatars[0].config.llm.url", "x");
  assert.deepEqual(data, { avatars: [{ config: { llm: { url: "x" } } }] });
  assert.equal(getPath(data, "avatars[0].config.llm.url"), "x");
  assert.equal(getPath(data, "avatars[1].config"), undefined);
});

test("a rejected field is matched to a field of the form", () => {
  const paths = [
    "agent_name",
    "avatars[0].config.llm.url",
    "callback_events",
    "config.turn",
    "event_messages.on_delay.delay",
    "avatars[0].avatar_key_id",
  ];
  assert.equal(owningPath(paths, "avatars[0].llm.url"), "avatars[0].config.llm.url");
  assert.equal(owningPath(paths, "callback_events[3]"), "callback_events");
  assert.equal(owningPath(paths, "config.turn.echo_warmup"), "config.turn");
  assert.equal(owningPath(paths, "avatars"), "avatars[0].config.llm.url");
  assert.equal(owningPath(paths, "nothing"), null);
});

// The description of a character as the server sends it, with two stock avatars of each gender.
const slider = (name, min, max) => ({
  name,
  group: name.split(".")[0],
  kind: "slider",
  unit: "factor",
  least: min,
  most: max,
});
const stockAvatar = (id, gender, size, hair) => ({
  id,
  gender,
  voice: `voice of ${id}`,
  rest: { smile: 0.4 },
  character: {
    seed: 1,
    age: 0.3,
    headscarf: null,
    glasses: "none",
    frame: "#000000",
    earrings: false,
    beard: gender === "male" ? 0.5 : 0,
    skin: { colour: `#${id}`, blush: 0.5 },
    eyes: { colour: `#${id}`, size },
    hair: { style: hair, dark: `#${id}` },
    clothes: { style: id },
    background: [id, id],
  },
});
const description = {
  character: [
    slider("age", 0, 1),
    slider("beard", 0, 1),
    slider("skin.blush", 0, 1.5),
    slider("eyes.size", 0.8, 1.3),
  ],
  people: [
    stockAvatar("a", "female", 0.8, "long"),
    stockAvatar("b", "female", 1, "bob"),
    stockAvatar("c", "male", 1.1, "short"),
    stockAvatar("d", "male", 1.3, "side"),
  ],
};

test("a random character is of one gender, in every range, and never the same twice", () => {
  const seen = new Set();
  for (let n = 0; n < 500; n++) {
    const { gender, voice, character } = randomCharacter(description);
    const sameGender = description.people.filter((person) => person.gender === gender);
    assert.ok(sameGender.some((person) => person.voice === voice));
    assert.equal(character.beard, gender === "male" ? 0.5 : 0);
    assert.ok(character.eyes.size >= 0.8 && character.eyes.size <= 1.3, character.eyes.size);
    // Skin and hair come from one stock avatar, so their colours match.
    const matches = ({ character: known }) =>
      known.skin.colour === character.skin.colour && known.hair.dark === character.hair.dark;
    assert.ok(sameGender.some(matches));
    seen.add(JSON.stringify(character));
  }
  assert.ok(seen.size > 490, seen.size);
  assert.deepEqual(
    description.people[0],
    stockAvatar("a", "female", 0.8, "long"),
    "no stock avatar was changed",
  );
});

test("settings have readable labels and values", () => {
  assert.equal(settingLabel({ name: "proportions.face_width" }), "Face width");
  assert.equal(settingLabel({ name: "eyes.size" }), "Eye size");
  assert.equal(settingLabel({ name: "background[1]" }), "Background, rim");
  const values = [
    formatValue(0.35, "share"),
    formatValue(1.05, "factor"),
    formatValue(-0.1, "radians"),
    formatValue(0.5, "steps"),
  ];
  assert.deepEqual(values, ["35 %", "× 1.05", "-6°", "0.50"]);
});

/** The part of a control that requireScope uses. */
const control = (localName) => ({
  localName,
  href: "/console/agents/new",
  removeAttribute(name) {
    delete this[name];
  },
  setAttribute(name, value) {
    this[name] = value;
  },
});

test("controls that need a higher scope stay visible, but disabled", () => {
  const scopes = [
    ["read", ["read"]],
    ["operate", ["read", "operate"]],
    ["administer", ["read", "operate", "administer"]],
    ["unknown", ["read"]],
  ];
  for (const [scope, allowed] of scopes) {
    setScope(scope);
    assert.deepEqual(grantableScopes(), allowed, scope);
    for (const needed of ["read", "operate", "administer"]) {
      const open = allowed.includes(needed);
      assert.equal(hasScope(needed), open, `${scope} ${needed}`);
      const [button, link] = [
        requireScope(control("button"), needed),
        requireScope(control("a"), needed),
      ];
      assert.equal(button.disabled, open ? undefined : true);
      const expected = open ? ["/console/agents/new", undefined] : [undefined, "true"];
      assert.deepEqual([link.href, link["aria-disabled"]], expected);
      assert.equal(Boolean(button.title), !open, "it says why");
    }
    assert.equal(requireScope(control("button")).disabled, undefined, "most controls need nothing");
  }
  setScope("administer");
});

test("a limit of the workspace is reported with its reason, and a limit of the key with its time", () => {
  const details = [{ field: "workspace_agents", reason: "a workspace may have 2 agents" }];
  const limit = new ApiError(429, { error: "Workspace limit reached", details });
  assert.equal(limit.userMessage, "Workspace limit reached. A workspace may have 2 agents.");
  const reason = "100 videos of this workspace are waiting to be made";
  const queue = new ApiError(429, { error: "Too many requests", reason }, 60);
  assert.equal(queue.userMessage, `${reason}.`);
  const retry = new ApiError(429, { error: "Too many requests" }, 7);
  assert.equal(retry.userMessage, "Too many requests. Try again in 7 seconds.");
});
