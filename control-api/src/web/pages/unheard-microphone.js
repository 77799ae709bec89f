// Detects a microphone whose audio does not reach the server. Pure: the caller passes the time in
// milliseconds.

/** Minimum microphone level (0 … 1) that counts as a voice, close and clear. */
const VOICE_LEVEL = 0.45;
/** The agent hears something if the level that the server reports (0 … 1) is above this one. */
const HEARD_LEVEL = 0.05;
/** A voice that lasts this long without being heard does not reach the server. */
const UNHEARD_TIMEOUT_MS = 2000;
/** Maximum gap within a voice, as between two words. */
const MAX_WORD_GAP_MS = 500;

export class UnheardMicrophoneDetector {
  #voiceSince = null;
  #lastVoiceAt = null;
  #active = false;

  /** Takes the microphone's level. Returns true once when the notice should be shown. */
  onMicrophoneLevel(level, now) {
    if (this.#lastVoiceAt !== null && now - this.#lastVoiceAt > MAX_WORD_GAP_MS)
      this.#voiceSince = this.#lastVoiceAt = null;
    if (level < VOICE_LEVEL) return false;
    this.#voiceSince ??= now;
    this.#lastVoiceAt = now;
    if (this.#active || now - this.#voiceSince < UNHEARD_TIMEOUT_MS) return false;
    this.#active = true;
    return true;
  }

  /** Takes the level that the server reports. Returns true if the notice should be withdrawn. */
  onServerLevel(level) {
    return level > HEARD_LEVEL && this.onHeard();
  }

  /** The agent heard the user. Returns true if the notice should be withdrawn. */
  onHeard() {
    const wasActive = this.#active;
    this.#voiceSince = this.#lastVoiceAt = null;
    this.#active = false;
    return wasActive;
  }
}
