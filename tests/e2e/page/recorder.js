// Records two inputs (0 = the user's microphone, 1 = the agent) sample for sample on one clock.
const SIZE = 1024;

class Recorder extends AudioWorkletProcessor {
  #sound = [new Float32Array(SIZE), new Float32Array(SIZE)];
  #fill = 0;
  #start = 0;

  process(inputs) {
    if (this.#fill === 0) this.#start = currentFrame;
    inputs.forEach((input, index) => {
      const samples = input[0];
      if (samples) this.#sound[index].set(samples, this.#fill);
      else this.#sound[index].fill(0, this.#fill, this.#fill + 128);
    });
    this.#fill += 128;
    if (this.#fill === SIZE) {
      this.port.postMessage({ start: this.#start, sound: this.#sound.map((samples) => samples.slice()) });
      this.#fill = 0;
    }
    return true;
  }
}

registerProcessor("recorder", Recorder);
