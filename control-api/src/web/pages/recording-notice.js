// The notice that a call is recorded: a sentence before the call, an indicator during it, and a
// button with which the user discards the recording, where the agent permits that.

import { RECORDING_TEXTS } from "./texts.js";

/** The id of the request to discard the recording: its answer has the same one. */
const REQUEST_ID = "recording";

/**
 * @typedef {{optional: boolean, enabled: boolean}} Notice what the server says about a recording.
 *   `enabled`: it continues; otherwise its beginning is stored
 * @typedef {"unknown" | "recorded" | "off" | "stopped"} State `unknown` until `bot-ready`; `off`:
 *   nothing is stored; `stopped`: the beginning is
 */

export class RecordingNotice {
  #sentence;
  #indicator;
  #words;
  #button;
  #send;
  #onFailed;
  /** @type {Notice | null} */
  #announced = null;
  /** @type {State} */
  #state = "unknown";
  #optional = false;
  #pending = false;

  /**
   * @param {{sentence: HTMLElement, indicator: HTMLElement, words: HTMLElement,
   *   button: HTMLButtonElement, send: (data: object, id: string) => boolean,
   *   onFailed: (text: string) => void}} options
   * `sentence` is shown before the call, the others during it. `send` sends a `client-message`;
   * returns whether it was sent. `onFailed` shows why the recording could not be discarded.
   */
  constructor({ sentence, indicator, words, button, send, onFailed }) {
    this.#sentence = sentence;
    this.#indicator = indicator;
    this.#words = words;
    this.#button = button;
    this.#send = send;
    this.#onFailed = onFailed;
    button.addEventListener("click", () => this.#discard());
  }

  /**
   * Before the call: the agent's calls are recorded, or not.
   * @param {unknown} notice from the server
   */
  announce(notice) {
    this.#announced = asNotice(notice);
    this.#render();
  }

  /** A call begins. Its `bot-ready` says whether it is recorded. */
  reset() {
    this.#state = "unknown";
    this.#render();
  }

  /** Handles a message of the call. */
  handle({ type, id, data }) {
    if (type === "bot-ready") {
      const notice = asNotice(data?.recording);
      this.#optional = notice?.optional ?? false;
      if (notice) this.#state = notice.enabled ? "recorded" : "stopped";
      // What was announced, or recorded until the connection was lost, is not recorded any more.
      else if (this.#hasNotice()) this.#state = "off";
    } else if (type === "server-message" && data?.recording?.enabled === false) {
      if (this.#hasNotice()) this.#state = data.recording.discarded ? "off" : "stopped";
    } else if (type === "error-response" && id === REQUEST_ID) {
      this.#onFailed(RECORDING_TEXTS.failed);
    } else if (type !== "server-response" || id !== REQUEST_ID) {
      return;
    }
    this.#setPending(false);
    this.#render();
  }

  /** Whether the page says anything about a recording: not if the agent wants no notice. */
  #hasNotice() {
    return this.#announced !== null || this.#state !== "unknown";
  }

  #discard() {
    if (this.#pending) return;
    this.#setPending(this.#send({ t: "recording", d: { enabled: false } }, REQUEST_ID));
    if (!this.#pending) this.#onFailed(RECORDING_TEXTS.failed);
  }

  /** Whether the request waits for its answer. A button that is disabled would lose the focus. */
  #setPending(pending) {
    this.#pending = pending;
    this.#button.ariaDisabled = String(pending);
  }

  #render() {
    this.#sentence.hidden = !this.#announced;
    this.#sentence.lastElementChild.textContent = this.#announced?.optional
      ? RECORDING_TEXTS.beforeOptional
      : RECORDING_TEXTS.before;
    const state = this.#state === "unknown" && this.#announced ? "recorded" : this.#state;
    const text = RECORDING_TEXTS[state] ?? "";
    this.#indicator.dataset.state = text ? state : "";
    // The same text again would be read out again.
    if (this.#words.textContent !== text) this.#words.textContent = text;
    const hadFocus = document.activeElement === this.#button;
    this.#button.hidden = !["recorded", "stopped"].includes(this.#state) || !this.#optional;
    this.#button.textContent =
      this.#state === "stopped" ? RECORDING_TEXTS.discard : RECORDING_TEXTS.refuse;
    if (hadFocus && this.#button.hidden) this.#indicator.focus();
  }
}

/** @param {any} notice @returns {Notice | null} */
function asNotice(notice) {
  if (notice?.notice !== true) return null;
  return { optional: notice.optional === true, enabled: notice.enabled !== false };
}
