// What the page says when a call is rejected: `node --test`.
import assert from "node:assert/strict";
import test from "node:test";

import {
  ConnectionFailedError,
  RejectedError,
} from "../../control-api/src/web/pages/call-client.js";
import { callErrorText, END_TEXTS, endReason } from "../../control-api/src/web/pages/texts.js";

const text = (status, reason, retryAfter) =>
  callErrorText(new RejectedError(status, { error: "x", reason }, retryAfter)).text;

test("each rejection has its own words", () => {
  const all = [400, 401, 403, 404, 406, 408, 409, 421, 429, 500, 503].map((status) => text(status));
  assert.equal(new Set(all).size, all.length);
  for (const sentence of all) assert.match(sentence, /\.$/);
});

test("an expired link and a used one have their own page, which says what to do", () => {
  assert.equal(END_TEXTS[endReason(401)][0], "This link does not work");
  assert.match(text(401), /Ask the person who sent it for a new one/);
  assert.equal(END_TEXTS[endReason(409)][0], "The conversation is over");
  assert.match(text(409), /ask for a new one/);
  assert.equal(END_TEXTS[endReason(404)][0], "No conversation here");
});

test("a full server, a busy one and one that is not ready have different words", () => {
  // The reasons in the words of the engine and the control plane.
  assert.match(text(503, "all 2 STT decoders are in use"), /lines are busy/);
  assert.match(text(503, "the server is full"), /lines are busy/);
  assert.match(text(503, "too many offers at once"), /too busy/);
  assert.match(text(503, "the call ends and restarts too fast"), /too busy/);
  assert.match(text(503, "the server is shutting down"), /restart/);
  assert.match(text(503, "certificate and models are still loading"), /getting ready/);
  assert.match(text(503, "flite: libflite.so.1 is missing"), /cannot accept calls/);
});

test("a limit of the workspace is not blamed on the visitor", () => {
  const limit = new RejectedError(429, { error: "Workspace limit reached", details: [] }, 7200);
  assert.equal(
    callErrorText(limit).text,
    "This agent takes no more calls for now. Try again in 120 minutes.",
  );
  assert.match(text(429), /your network/);
  assert.match(text(503, "the workspace is full: its call limit is reached", 2), /lines are busy/);
});

test("the page says how long to wait, as the server does", () => {
  assert.match(text(429, "", 42), /Try again in 42 seconds/);
  assert.match(text(429, "", 300), /Try again in 5 minutes/);
  assert.match(text(503, "the server is full", 2), /in a moment/);
});

test("the page offers to try again only if that may help", () => {
  const final = (status) => Boolean(callErrorText(new RejectedError(status)).final);
  assert.deepEqual([401, 404, 409].map(final), [true, true, true]);
  assert.deepEqual([408, 429, 500, 503].map(final), [false, false, false, false]);
  assert.equal(callErrorText(new ConnectionFailedError("no connection")).final, undefined);
  assert.match(callErrorText(new TypeError("Failed to fetch")).text, /cannot be reached/);
});
