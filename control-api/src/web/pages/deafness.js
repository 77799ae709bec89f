// Whether the agent hears what the microphone hears. Pure: time is given, in ms.

/** Level of the microphone (0 … 1) from which on it is a voice, close and clear. */
const VOICE = 0.45;
/** Level that the server tells (0 … 1) from which on the agent hears something. */
const HEARD = 0.05;
/** A voice that goes on for so long without being heard does not arrive. */
const UNHEARD = 2000;
/** A gap that belongs to a voice: between two words. */
const GAP = 500;

export class Deafness {
  #since = null;
  #last = null;
  #told = false;

  /** The microphone's level. True once when its sound does not arrive: then the user is told. */
  microphone(level, now) {
    if (this.#last !== null && now - this.#last > GAP) this.#since = this.#last = null;
    if (level < VOICE) return false;
    this.#since ??= now;
    this.#last = now;
    if (this.#told || now - this.#since < UNHEARD) return false;
    return (this.#told = true);
  }

  /** The level that the server tells. True if what was told is not so any more. */
  server(level) {
    return level > HEARD && this.heard();
  }

  /** The agent heard the user. True if what was told is not so any more. */
  heard() {
    const told = this.#told;
    this.#since = this.#last = null;
    this.#told = false;
    return told;
  }
}
