// An AudioWorklet that records two inputs sample by sample on one clock: 0 is the user's
// microphone, 1 is the agent.

/** Samples per block that is posted. */
const BLOCK_SIZE = 1024;

class Recorder extends AudioWorkletProcessor {
  #blocks = [new Float32Array(BLOCK_SIZE), new Float32Array(BLOCK_SIZE)];
  #filled = 0;
  #startFrame = 0;

  process(inputs) {
    if (this.#filled === 0) this.#startFrame = currentFrame;
    inputs.forEach((input, index) => {
      const samples = input[0];
      if (samples) this.#blocks[index].set(samples, this.#filled);
      else this.#blocks[index].fill(0, this.#filled, this.#filled + 128);
    });
    this.#filled += 128;
    if (this.#filled === BLOCK_SIZE) {
      this.port.postMessage({
        start: this.#startFrame,
        sound: this.#blocks.map((samples) => samples.slice()),
      });
      this.#filled = 0;
    }
    return true;
  }
}

registerProcessor("recorder", Recorder);
