// The microphone, its level, and the choice of devices.

const WISH = { echoCancellation: true, noiseSuppression: true, autoGainControl: true };

/** Why there is no microphone: `refused`, `none`, `busy`, `insecure`, `framed`, `other`. */
export class NoMicrophone extends Error {
  constructor(why, cause) {
    super(why, { cause });
    this.why = why;
  }
}

/** @returns {Promise<MediaStreamTrack>} */
export async function microphone(deviceId) {
  if (!navigator.mediaDevices?.getUserMedia) throw new NoMicrophone("insecure");
  const audio = deviceId ? { ...WISH, deviceId: { exact: deviceId } } : WISH;
  try {
    const stream = await navigator.mediaDevices.getUserMedia({ audio });
    return stream.getAudioTracks()[0];
  } catch (error) {
    const policy = document.featurePolicy ?? document.permissionsPolicy;
    const framed = window !== window.top && policy?.allowsFeature && !policy.allowsFeature("microphone");
    const why = {
      NotAllowedError: framed ? "framed" : "refused",
      SecurityError: "refused",
      NotFoundError: "none",
      OverconstrainedError: "none",
      NotReadableError: "busy",
      AbortError: "busy",
    }[error.name] ?? "other";
    throw new NoMicrophone(why, error);
  }
}

/** Whether the browser will give the microphone without asking. */
export async function allowed() {
  try {
    return (await navigator.permissions.query({ name: "microphone" })).state === "granted";
  } catch {
    return false;
  }
}

/** 0..1 for −60..0 dBFS. */
export function loudness(rms) {
  return rms > 0 ? Math.min(1, Math.max(0, 1 + Math.log10(rms) / 3)) : 0;
}

/** Level of a track, told with every picture of the screen while it runs. */
export class Level {
  #context = null;
  #source = null;
  #analyser = null;
  #running = false;

  constructor(tell) {
    this.tell = tell;
  }

  watch(track) {
    this.#context ??= new AudioContext();
    this.wake();
    this.#source?.disconnect();
    this.#source = null;
    if (!track) return this.tell(0);
    this.#source = this.#context.createMediaStreamSource(new MediaStream([track]));
    this.#analyser ??= new AnalyserNode(this.#context, { fftSize: 1024 });
    this.#source.connect(this.#analyser);
    if (!this.#running) {
      this.#running = true;
      this.#measure(new Float32Array(this.#analyser.fftSize));
    }
  }

  /** A page that was reloaded may make sound (and measure it) only after a gesture. */
  wake() {
    if (this.#context?.state === "suspended") this.#context.resume().catch(() => {});
  }

  stop() {
    this.#running = false;
    this.#source?.disconnect();
    this.#source = null;
    this.#context?.close().catch(() => {});
    this.#context = null;
    this.#analyser = null;
    this.tell(0);
  }

  #measure(samples) {
    if (!this.#running || !this.#analyser) return;
    if (this.#source) {
      this.#analyser.getFloatTimeDomainData(samples);
      let sum = 0;
      for (const sample of samples) sum += sample * sample;
      this.tell(loudness(Math.sqrt(sum / samples.length)));
    }
    requestAnimationFrame(() => this.#measure(samples));
  }
}

/** Fills two `<select>`s and keeps them true as devices come and go. */
export class Devices {
  #microphones;
  #speakers;
  #field;
  #face;

  constructor({ microphones, speakers, field, face, choose }) {
    this.#microphones = microphones;
    this.#speakers = speakers;
    this.#field = field;
    this.#face = face;
    microphones.addEventListener("change", () => choose(microphones.value));
    speakers.addEventListener("change", () => face.setSinkId(speakers.value).catch(() => this.refresh()));
    navigator.mediaDevices?.addEventListener?.("devicechange", () => this.refresh());
  }

  async refresh(track = this.track) {
    this.track = track;
    const all = (await navigator.mediaDevices?.enumerateDevices?.().catch(() => [])) ?? [];
    const inputs = all.filter((device) => device.kind === "audioinput");
    const outputs = all.filter((device) => device.kind === "audiooutput");
    fill(this.#microphones, inputs, track?.getSettings().deviceId, "No microphone");
    this.#field.hidden = !("setSinkId" in HTMLMediaElement.prototype) || outputs.length === 0;
    fill(this.#speakers, outputs, this.#face.sinkId, "Standard");
  }
}

function fill(select, devices, chosen, none) {
  const options = devices.map((device, index) => {
    const option = document.createElement("option");
    option.value = device.deviceId;
    option.textContent = device.label || `Device ${index + 1}`;
    return option;
  });
  if (options.length === 0) {
    const option = document.createElement("option");
    option.textContent = none;
    option.value = "";
    options.push(option);
  }
  select.replaceChildren(...options);
  select.disabled = devices.length === 0;
  if (chosen && devices.some((device) => device.deviceId === chosen)) select.value = chosen;
}
