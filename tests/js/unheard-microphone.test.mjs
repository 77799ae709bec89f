// When the page reports that the microphone's audio does not arrive: `node --test`.
import assert from "node:assert/strict";
import test from "node:test";

import { UnheardMicrophoneDetector } from "../../control-api/src/web/pages/unheard-microphone.js";

/**
 * Sets the microphone level every 50 ms from `from` to `to` ms. Returns the times of the notices.
 */
function speak(detector, from, to, level = 0.7) {
  const notices = [];
  for (let now = from; now <= to; now += 50)
    if (detector.onMicrophoneLevel(level, now)) notices.push(now);
  return notices;
}

test("two seconds of unheard voice give one notice", () => {
  const detector = new UnheardMicrophoneDetector();
  assert.deepEqual(speak(detector, 0, 10_000), [2000]);
});

test("two short sounds with silence between are no voice", () => {
  const detector = new UnheardMicrophoneDetector();
  assert.deepEqual(speak(detector, 0, 300), []);
  assert.deepEqual(speak(detector, 300, 4300, 0.01), []);
  assert.deepEqual(speak(detector, 4300, 6000), []);
});

test("the gaps between words belong to the voice", () => {
  const detector = new UnheardMicrophoneDetector();
  for (let now = 0; now < 1800; now += 600) {
    const notices = [
      ...speak(detector, now, now + 200),
      ...speak(detector, now + 250, now + 550, 0.1),
    ];
    assert.deepEqual(notices, []);
  }
  assert.deepEqual(speak(detector, 1800, 2400), [2000]);
});

test("a voice that is partly heard gives a notice once it is not heard any more", () => {
  const detector = new UnheardMicrophoneDetector();
  for (let now = 0; now < 10_000; now += 1000) {
    assert.deepEqual(speak(detector, now, now + 950), []);
    assert.equal(detector.onServerLevel(0.06), false);
  }
  assert.deepEqual(speak(detector, 10_000, 12_500), [12_000]);
});

test("a level or words withdraw the notice, and it may come again", () => {
  const detector = new UnheardMicrophoneDetector();
  speak(detector, 0, 2500);
  assert.equal(detector.onServerLevel(0.02), false, "a level of silence says nothing");
  assert.equal(detector.onServerLevel(0.3), true);
  assert.equal(detector.onServerLevel(0.3), false);
  assert.deepEqual(speak(detector, 2500, 5000), [4500]);
  assert.equal(detector.onHeard(), true);
});
