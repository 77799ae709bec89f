// The microphone, its level, and the selection of audio devices.

const MICROPHONE_CONSTRAINTS = {
  echoCancellation: true,
  noiseSuppression: true,
  autoGainControl: true,
};

/**
 * There is no microphone. `reason` is `denied`, `notFound`, `busy`, `insecure`, `blockedByFrame` or
 * `other`.
 */
export class MicrophoneError extends Error {
  constructor(reason, cause) {
    super(reason, { cause });
    this.reason = reason;
  }
}

/** Opens a microphone. Rejects with MicrophoneError. @returns {Promise<MediaStreamTrack>} */
export async function getMicrophoneTrack(deviceId) {
  if (!navigator.mediaDevices?.getUserMedia) throw new MicrophoneError("insecure");
  const audio = deviceId
    ? { ...MICROPHONE_CONSTRAINTS, deviceId: { exact: deviceId } }
    : MICROPHONE_CONSTRAINTS;
  try {
    const stream = await navigator.mediaDevices.getUserMedia({ audio });
    return stream.getAudioTracks()[0];
  } catch (error) {
    // Not all browsers have them.
    const { featurePolicy, permissionsPolicy } = /** @type {any} */ (document);
    const policy = featurePolicy ?? permissionsPolicy;
    const blockedByFrame =
      window !== window.top && policy?.allowsFeature && !policy.allowsFeature("microphone");
    const reason =
      {
        NotAllowedError: blockedByFrame ? "blockedByFrame" : "denied",
        SecurityError: "denied",
        NotFoundError: "notFound",
        OverconstrainedError: "notFound",
        NotReadableError: "busy",
        AbortError: "busy",
      }[error.name] ?? "other";
    throw new MicrophoneError(reason, error);
  }
}

/** Whether the browser opens the microphone without a permission prompt. */
export async function isMicrophoneAllowed() {
  try {
    return (await navigator.permissions.query({ name: "microphone" })).state === "granted";
  } catch {
    return false;
  }
}

/** Level 0 … 1 of an RMS value, for −60 … 0 dBFS. */
export function levelFromRms(rms) {
  return rms > 0 ? Math.min(1, Math.max(0, 1 + Math.log10(rms) / 3)) : 0;
}

/** Measures the level of a track and passes it to `onLevel` in every animation frame. */
export class LevelMeter {
  #context = null;
  #source = null;
  #analyser = null;
  #running = false;

  constructor(onLevel) {
    this.onLevel = onLevel;
  }

  setTrack(track) {
    this.#context ??= new AudioContext();
    this.resume();
    this.#source?.disconnect();
    this.#source = null;
    if (!track) return this.onLevel(0);
    this.#source = this.#context.createMediaStreamSource(new MediaStream([track]));
    this.#analyser ??= new AnalyserNode(this.#context, { fftSize: 1024 });
    this.#source.connect(this.#analyser);
    if (!this.#running) {
      this.#running = true;
      this.#measure(new Float32Array(this.#analyser.fftSize));
    }
  }

  /** Resumes the audio context. After a reload, browsers allow that only after a user gesture. */
  resume() {
    if (this.#context?.state === "suspended") this.#context.resume().catch(() => {});
  }

  stop() {
    this.#running = false;
    this.#source?.disconnect();
    this.#source = null;
    this.#context?.close().catch(() => {});
    this.#context = null;
    this.#analyser = null;
    this.onLevel(0);
  }

  #measure(samples) {
    if (!this.#running || !this.#analyser) return;
    if (this.#source) {
      this.#analyser.getFloatTimeDomainData(samples);
      let sum = 0;
      for (const sample of samples) sum += sample * sample;
      this.onLevel(levelFromRms(Math.sqrt(sum / samples.length)));
    }
    requestAnimationFrame(() => this.#measure(samples));
  }
}

/** Fills two `<select>`s with audio devices and updates them when devices are added or removed. */
export class DeviceSelects {
  #microphoneSelect;
  #speakerSelect;
  #speakerField;
  #video;

  constructor({ microphoneSelect, speakerSelect, speakerField, video, onMicrophoneChosen }) {
    this.#microphoneSelect = microphoneSelect;
    this.#speakerSelect = speakerSelect;
    this.#speakerField = speakerField;
    this.#video = video;
    microphoneSelect.addEventListener("change", () => onMicrophoneChosen(microphoneSelect.value));
    speakerSelect.addEventListener("change", () =>
      video.setSinkId(speakerSelect.value).catch(() => this.refresh()),
    );
    navigator.mediaDevices?.addEventListener?.("devicechange", () => this.refresh());
  }

  async refresh(track = this.track) {
    this.track = track;
    const available = (await navigator.mediaDevices?.enumerateDevices?.().catch(() => [])) ?? [];
    const inputs = available.filter((device) => device.kind === "audioinput");
    const outputs = available.filter((device) => device.kind === "audiooutput");
    fillSelect(this.#microphoneSelect, inputs, track?.getSettings().deviceId, "No microphone");
    this.#speakerField.hidden =
      !("setSinkId" in HTMLMediaElement.prototype) || outputs.length === 0;
    fillSelect(this.#speakerSelect, outputs, this.#video.sinkId, "Standard");
  }
}

function fillSelect(select, devices, selectedId, emptyLabel) {
  const options = devices.map((device, index) => {
    const option = document.createElement("option");
    option.value = device.deviceId;
    option.textContent = device.label || `Device ${index + 1}`;
    return option;
  });
  if (options.length === 0) {
    const option = document.createElement("option");
    option.textContent = emptyLabel;
    option.value = "";
    options.push(option);
  }
  select.replaceChildren(...options);
  select.disabled = devices.length === 0;
  if (selectedId && devices.some((device) => device.deviceId === selectedId))
    select.value = selectedId;
}

/** Returns a function that sets a level bar. `aria-valuenow` is updated at most twice a second. */
export function createLevelBar(element) {
  let lastAnnouncedAt = 0;
  return (value) => {
    element.style.setProperty("--level", value.toFixed(3));
    if (performance.now() - lastAnnouncedAt < 500) return;
    lastAnnouncedAt = performance.now();
    element.setAttribute("aria-valuenow", String(Math.round(value * 100)));
  };
}
