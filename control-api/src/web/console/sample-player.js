// Plays samples of voices. One sample plays at a time.

import * as api from "./api.js";
import { button } from "./dom.js";

const SAMPLE_TEXT = "Hello! This is how I sound. How can I help you today?";

/** @type {{audio: HTMLAudioElement, stop: () => void} | null} */
let playing = null;

/** Stops the sample that plays. */
export function stopSample() {
  playing?.stop();
}

/** Plays a sound. Resolves when it starts; `onEnd` runs when it has ended or was stopped. */
async function play(blob, onEnd) {
  stopSample();
  const url = URL.createObjectURL(blob);
  const audio = new Audio(url);
  const current = {
    audio,
    stop: () => {
      audio.pause();
      URL.revokeObjectURL(url);
      if (playing === current) playing = null;
      onEnd();
    },
  };
  playing = current;
  audio.addEventListener("ended", current.stop);
  audio.addEventListener("error", current.stop);
  await audio.play();
}

const NAMES = {
  text: "The text",
  voice_id: "The voice",
  model_id: "The model",
  language: "The language",
  avatar_key_id: "The avatar",
};

/** Why there is no sample. */
export function faultOf(error) {
  if (!(error instanceof api.ApiError)) return "The browser cannot play the sample.";
  const faults = error.details.map(({ field, reason }) =>
    api.toSentence(`${NAMES[field] ?? field} ${reason}`),
  );
  return faults.join(" ") || error.userMessage;
}

/**
 * A button that fetches and plays a sample, and then stops it. `voice()` returns
 * `{provider, model_id, voice_id, language, avatar_key_id, text}`, of which `text` may be missing.
 * `status`: the live region for its state and errors.
 */
export function sampleButton(label, voice, status, attributes = {}) {
  /** @type {AbortController | null} */
  let abort = null;
  const labelNode = () => node.querySelector("span");
  const reset = () => {
    abort = null;
    labelNode().textContent = label;
    node.removeAttribute("aria-busy");
  };
  const node = button(label, {
    needs: "operate",
    class: "small",
    ...attributes,
    onclick: async () => {
      if (abort) {
        abort.abort();
        stopSample();
        reset();
        status.textContent = "Stopped.";
        return;
      }
      const current = new AbortController();
      abort = current;
      labelNode().textContent = "Stop";
      node.setAttribute("aria-busy", "true");
      status.textContent = "The sample is on its way …";
      const { provider, text = SAMPLE_TEXT, ...body } = voice();
      const path = `/v1/ext/provider/${encodeURIComponent(provider || "default")}/sample`;
      try {
        const sound = await api.postForBlob(path, { ...body, text }, current.signal);
        node.removeAttribute("aria-busy");
        status.textContent = "Playing.";
        await play(sound, () => {
          if (abort !== current) return;
          reset();
          status.textContent = "";
        });
      } catch (error) {
        if (current.signal.aborted) return;
        reset();
        status.textContent = faultOf(error);
      }
    },
  });
  return node;
}
