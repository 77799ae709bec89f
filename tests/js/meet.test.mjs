// The meeting page without a browser: its captions, its microphone, and the client that never gives
// up: `node --test`.
import assert from "node:assert/strict";
import test from "node:test";

import { CallClient } from "../../control-api/src/web/pages/call-client.js";
import { lastPortion } from "../../control-api/src/web/pages/meet-captions.js";
import { keepMicrophone } from "../../control-api/src/web/pages/meet-microphone.js";

/** Lets everything happen that waits for no timer. */
const settle = () => new Promise((resolve) => setImmediate(resolve));

/** The delays from one entry of a list of times to the next. */
const delays = (times) => times.slice(1).map((time, at) => time - times[at]);

/** Runs `seconds` of mocked time in steps of 100 ms. */
async function pass(timers, seconds) {
  for (let at = 0; at < seconds * 10; at++) {
    timers.tick(100);
    await settle();
  }
}

function replaceGlobal(t, name, value) {
  const before = Object.getOwnPropertyDescriptor(globalThis, name);
  Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
  t.after(() => {
    if (before) Object.defineProperty(globalThis, name, before);
    else delete globalThis[name];
  });
}

test("a caption is filled word by word before the next one begins", () => {
  const words = "one two three four five six seven eight nine ten".split(" ");
  const shown = words.map((_, at) => lastPortion(words.slice(0, at + 1).join(" "), 14));
  assert.deepEqual(shown, [
    "one",
    "one two",
    "one two three",
    "four",
    "four five",
    "four five six",
    "seven",
    "seven eight",
    "nine",
    "nine ten",
  ]);
});

test("a sentence begins a new caption if the last one is half full", () => {
  assert.equal(lastPortion("This is a whole sentence. And", 40), "And");
  assert.equal(lastPortion("Yes. And", 40), "Yes. And");
});

test("text without blanks is cut, and wide characters count twice", () => {
  assert.equal(lastPortion("abcdefghij", 4), "ij");
  assert.equal(lastPortion("博物館へようこそ", 8), "ようこそ");
  assert.equal(lastPortion("", 8), "");
  assert.equal(lastPortion("  \n ", 8), "");
});

/** A track that ends on command. */
class Track extends EventTarget {
  readyState = "live";
  end() {
    this.readyState = "ended";
    this.dispatchEvent(new Event("ended"));
  }
}

test("the microphone is asked for each second until there is a live one, and again when it ends", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout", "Date"] });
  const asked = [];
  let answer = () => {
    throw new Error("Upstream audio error: 409");
  };
  const getUserMedia = async (constraints) => {
    asked.push(Date.now());
    assert.equal(constraints.video, undefined);
    const track = answer();
    return { getAudioTracks: () => (track ? [track] : []) };
  };
  replaceGlobal(t, "navigator", { mediaDevices: { getUserMedia } });
  const tracks = [];
  keepMicrophone((track) => tracks.push(track));
  await settle();
  await pass(t.mock.timers, 4.5);
  assert.deepEqual(delays(asked), [1000, 1000, 1000, 1000]);
  const dead = new Track();
  dead.end();
  answer = () => dead;
  await pass(t.mock.timers, 1);
  answer = () => null;
  await pass(t.mock.timers, 1);
  assert.deepEqual(tracks, []);
  const [first, second] = [new Track(), new Track()];
  answer = () => first;
  await pass(t.mock.timers, 1);
  assert.deepEqual(tracks, [first]);
  const count = asked.length;
  await pass(t.mock.timers, 5);
  assert.equal(asked.length, count, "asked although it has one");
  answer = () => second;
  first.end();
  await settle();
  assert.deepEqual(tracks, [first, second]);
});

/** A peer connection that never connects. */
class PeerConnection extends EventTarget {
  localDescription = { sdp: "" };
  addTransceiver = () => ({ sender: { replaceTrack: async () => {} } });
  createDataChannel = () => new EventTarget();
  setLocalDescription = async () => {};
  close() {}
}

/**
 * Joins against a server that gives these answers, one after another, and then the last one for
 * ever. A number is a status; `[429, seconds]` has a Retry-After; null: it cannot be reached.
 */
async function join(t, answers, { seconds, persistent }) {
  t.mock.timers.enable({ apis: ["setTimeout", "setInterval", "Date"] });
  replaceGlobal(t, "RTCPeerConnection", PeerConnection);
  replaceGlobal(t, "MediaStream", class {});
  replaceGlobal(t, "navigator", {});
  for (const name of ["addEventListener", "removeEventListener"]) replaceGlobal(t, name, () => {});
  const found = { asked: [], events: [] };
  replaceGlobal(t, "fetch", async () => {
    const answer = answers[Math.min(found.asked.length, answers.length - 1)];
    found.asked.push(Date.now());
    if (answer === null) throw new TypeError("Failed to fetch");
    const [status, retryAfter] = [answer].flat();
    const headers = retryAfter ? { "Retry-After": String(retryAfter) } : {};
    return Response.json({ error: "no" }, { status, headers });
  });
  const client = new CallClient({ conversation: "c", token: "t", iceServers: [], persistent });
  client.addEventListener("rejected", ({ detail }) => found.events.push(detail.status));
  client.addEventListener("status", ({ detail }) => found.events.push(detail));
  client.join().catch((error) => found.events.push(error.status ?? error.name));
  await settle();
  await pass(t.mock.timers, seconds);
  client.leave();
  return found;
}

test("a persistent client tries every two seconds until the conversation is over", async (t) => {
  const answers = [null, 503, 404, 500, ...Array(20).fill(null), 409];
  const found = await join(t, answers, { seconds: 60, persistent: true });
  assert.equal(found.asked.length, 25);
  for (const delay of delays(found.asked)) assert.ok(delay >= 2000 && delay <= 2200, `${delay}`);
  assert.deepEqual(found.events, ["connecting", 409]);
});

test("a persistent client stops at an invalid token, and obeys a rate limit", async (t) => {
  const found = await join(t, [[429, 7], 401], { seconds: 20, persistent: true });
  assert.equal(found.asked.length, 2);
  assert.ok(delays(found.asked)[0] >= 7000);
  assert.deepEqual(found.events, ["connecting", 401]);
});

test("another client's first attempt is its only one", async (t) => {
  const found = await join(t, [503], { seconds: 20, persistent: false });
  assert.equal(found.asked.length, 1);
  assert.deepEqual(found.events, ["connecting", 503]);
});

test("a client that left does not try again", async (t) => {
  const found = await join(t, [null], { seconds: 3, persistent: true });
  const count = found.asked.length;
  await pass(t.mock.timers, 10);
  assert.equal(found.asked.length, count);
});
