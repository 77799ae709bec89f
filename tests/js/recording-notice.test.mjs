// What the page says about the recording of a call: `node --test`.
import assert from "node:assert/strict";
import test from "node:test";

import { RecordingNotice } from "../../control-api/src/web/pages/recording-notice.js";

/** A page with the elements of the notice. `seen()`: what the user sees. */
function makePage({ connected = true } = {}) {
  globalThis.document = { activeElement: null };
  const sentence = { hidden: true, lastElementChild: { textContent: "" } };
  const indicator = {
    dataset: { state: "" },
    focus() {
      document.activeElement = indicator;
    },
  };
  const words = { textContent: "" };
  const button = {
    hidden: true,
    ariaDisabled: null,
    textContent: "",
    addEventListener: (_, listener) => {
      button.click = listener;
    },
  };
  const sent = [];
  const failures = [];
  const notice = new RecordingNotice({
    sentence,
    indicator,
    words,
    button,
    send: (data, id) => {
      sent.push({ data, id });
      return connected;
    },
    onFailed: (text) => failures.push(text),
  });
  const ready = (recording) =>
    notice.handle({ type: "bot-ready", id: "ready", data: { recording } });
  const seen = () => ({
    before: sentence.hidden ? "" : sentence.lastElementChild.textContent,
    during: words.textContent,
    state: indicator.dataset.state,
    button: button.hidden ? "" : button.textContent,
  });
  return { notice, ready, seen, sent, failures, button, indicator };
}

const NOTICE = { notice: true, optional: false };
const OPTIONAL = { notice: true, optional: true };
const DISCARDED = {
  type: "server-message",
  data: { recording: { enabled: false, discarded: true } },
};
const STOPPED = {
  type: "server-message",
  data: { recording: { enabled: false, discarded: false } },
};
const RECORDED = "Being recorded";
const NOTHING = "Nothing is recorded";

test("a page without a recording shows nothing", () => {
  const { notice, ready, seen } = makePage();
  const nothing = { before: "", during: "", state: "", button: "" };
  for (const value of [undefined, null, {}, "yes", { notice: false, optional: true }]) {
    notice.announce(value);
    notice.reset();
    assert.deepEqual(seen(), nothing);
    ready(value);
    assert.deepEqual(seen(), nothing);
  }
});

test("the notice is there before the call, and at once when the call begins", () => {
  const { notice, ready, seen } = makePage();
  notice.announce(NOTICE);
  assert.equal(seen().before, "This call is recorded.");
  notice.reset();
  assert.deepEqual(seen(), {
    before: "This call is recorded.",
    during: RECORDED,
    state: "recorded",
    button: "",
  });
  ready(NOTICE);
  assert.equal(seen().button, "");
  notice.announce(OPTIONAL);
  assert.match(seen().before, /^This call is recorded\. You can turn the recording off/);
});

test("a page that could not ask before the call learns it from bot-ready", () => {
  const { ready, seen } = makePage();
  ready(OPTIONAL);
  assert.deepEqual(seen(), {
    before: "",
    during: RECORDED,
    state: "recorded",
    button: "Do not record",
  });
});

test("a user refuses, and the page shows that nothing is recorded", () => {
  const { notice, ready, seen, sent, failures, button, indicator } = makePage();
  ready(OPTIONAL);
  document.activeElement = button;
  button.click();
  button.click();
  assert.deepEqual(sent, [{ data: { t: "recording", d: { enabled: false } }, id: "recording" }]);
  assert.equal(button.ariaDisabled, "true");
  assert.equal(seen().during, RECORDED, "it is recorded until the server says otherwise");
  notice.handle(DISCARDED);
  notice.handle({ type: "server-response", id: "recording", data: { t: "recording", d: {} } });
  assert.deepEqual(seen(), { before: "", during: NOTHING, state: "off", button: "" });
  assert.equal(document.activeElement, indicator, "the focus is not lost with the button");
  // After a reconnection, `bot-ready` has no recording.
  ready(undefined);
  assert.equal(seen().during, NOTHING);
  assert.deepEqual(failures, []);
});

test("a reload after a refusal shows that nothing is recorded", () => {
  const { notice, ready, seen } = makePage();
  notice.announce(OPTIONAL);
  notice.reset();
  ready(undefined);
  assert.equal(seen().during, NOTHING);
});

test("a refusal that fails is explained and can be tried again", () => {
  const { notice, ready, seen, failures, button } = makePage();
  ready(OPTIONAL);
  button.click();
  notice.handle({ type: "error-response", id: "another", data: { error: "x" } });
  assert.deepEqual(failures, []);
  notice.handle({ type: "error-response", id: "recording", data: { error: "x" } });
  assert.match(failures[0], /could not be turned off/);
  assert.equal(button.ariaDisabled, "false");
  assert.equal(seen().during, RECORDED);

  const offline = makePage({ connected: false });
  offline.ready(OPTIONAL);
  offline.button.click();
  assert.equal(offline.failures.length, 1);
  assert.equal(offline.button.ariaDisabled, "false");
});

test("a recording that fails keeps its beginning, which can be discarded", () => {
  const { notice, ready, seen, sent, button } = makePage();
  ready(OPTIONAL);
  notice.handle(STOPPED);
  const during = "The start is stored";
  const stopped = { before: "", during, state: "stopped", button: "Discard it" };
  assert.deepEqual(seen(), stopped);
  // After a reconnection.
  ready({ ...OPTIONAL, enabled: false });
  assert.deepEqual(seen(), stopped);
  button.click();
  assert.deepEqual(sent, [{ data: { t: "recording", d: { enabled: false } }, id: "recording" }]);
  notice.handle(DISCARDED);
  assert.deepEqual(seen(), { before: "", during: NOTHING, state: "off", button: "" });
});

test("a reload after a failure shows what is kept", () => {
  for (const announced of [undefined, NOTICE]) {
    const { notice, ready, seen } = makePage();
    notice.announce(announced);
    notice.reset();
    ready({ ...NOTICE, enabled: false });
    assert.match(seen().during, /^The start is stored$/);
    assert.equal(seen().button, "");
  }
});

test("a page without a notice says nothing about a failure either", () => {
  const { notice, ready, seen } = makePage();
  ready(undefined);
  notice.handle(STOPPED);
  ready(undefined);
  assert.equal(seen().during, "");
});
