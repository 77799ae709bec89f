// Runs before the page's own scripts. It replaces the microphone with one that speaks on command,
// and records the audio, the video and the messages that the page receives. All times are those of
// one AudioContext. The tests use `window.e2e`.
(() => {
  if (!location.protocol.startsWith("http") || window.e2e) return;
  const options = window.e2eOptions ?? {};
  const SAMPLE_RATE = 48000;
  const MIN_LOUD_RMS = 0.004; // minimum RMS of a block that counts as sound, about -48 dBFS

  const context = new AudioContext({ sampleRate: SAMPLE_RATE, latencyHint: "interactive" });
  const e2e = {
    context,
    blocks: [],
    messages: [],
    frames: [],
    shown: [],
    packets: [],
    marks: {},
    offers: [],
    loudSpans: [],
    watching: false,
    delay: 0,
  };
  window.e2e = e2e;
  const pendingChecks = new Set();
  const runChecks = () => {
    for (const pendingCheck of pendingChecks) pendingCheck();
  };

  // --- the recorder ---
  const recorder = (async () => {
    const module = URL.createObjectURL(new Blob([window.e2eRecorder], { type: "text/javascript" }));
    await context.audioWorklet.addModule(module);
    const node = new AudioWorkletNode(context, "recorder", {
      numberOfInputs: 2,
      numberOfOutputs: 1,
      channelCount: 1,
      channelCountMode: "explicit",
    });
    const mute = new GainNode(context, { gain: 0 });
    node.connect(mute).connect(context.destination);
    node.port.onmessage = ({ data }) => {
      e2e.blocks.push(data);
      const [, agent] = data.sound;
      for (let at = 0; at < agent.length; at += 512) {
        let sum = 0;
        for (let i = at; i < at + 512; i++) sum += agent[i] * agent[i];
        if (Math.sqrt(sum / 512) < MIN_LOUD_RMS) continue;
        const from = (data.start + at) / SAMPLE_RATE;
        const last = e2e.loudSpans.at(-1);
        if (last && from - last.to < 0.05) last.to = from + 512 / SAMPLE_RATE;
        else e2e.loudSpans.push({ from, to: from + 512 / SAMPLE_RATE });
      }
      e2e.heardUntil = (data.start + agent.length) / SAMPLE_RATE;
      runChecks();
    };
    return node;
  })();
  e2e.ready = recorder.then(() => context.resume());

  // --- the microphone ---
  const microphone = new GainNode(context);
  const realGetUserMedia = navigator.mediaDevices?.getUserMedia?.bind(navigator.mediaDevices);
  recorder.then((node) => microphone.connect(node, 0, 0));
  if (!options.ownMicrophone && navigator.mediaDevices) {
    const noise = new AudioBufferSourceNode(context, { loop: true, buffer: roomNoise() });
    noise.connect(microphone);
    noise.start();
    navigator.mediaDevices.getUserMedia = async () => {
      const out = context.createMediaStreamDestination();
      microphone.connect(out);
      return out.stream;
    };
  } else if (realGetUserMedia && !options.untouched) {
    navigator.mediaDevices.getUserMedia = async (constraints) => {
      // For a device that plays a file: it is opened once the call is connected.
      if (options.late) await e2e.until("connected", {}, 60_000);
      const stream = await realGetUserMedia(constraints);
      context.createMediaStreamSource(stream).connect(microphone);
      e2e.marks.microphone = context.currentTime;
      return stream;
    };
  }

  /** Noise of a quiet room, about -75 dBFS: a real microphone never gives digital silence. */
  function roomNoise() {
    const buffer = new AudioBuffer({ length: SAMPLE_RATE, sampleRate: SAMPLE_RATE });
    const samples = buffer.getChannelData(0);
    for (let i = 0; i < samples.length; i++) samples[i] = (Math.random() * 2 - 1) * 0.0003;
    return buffer;
  }

  /** Plays a WAV (base64) into the microphone now. Returns the times of its start and its end. */
  e2e.speak = async (wav) => {
    const bytes = Uint8Array.from(atob(wav), (character) => character.charCodeAt(0));
    const buffer = await context.decodeAudioData(bytes.buffer);
    const source = new AudioBufferSourceNode(context, { buffer });
    source.connect(microphone);
    const start = context.currentTime + 0.02;
    source.start(start);
    return { start, end: start + buffer.duration };
  };

  /** Speaks once the agent has spoken for `into` seconds without a pause of half a second. */
  e2e.speakOver = async (wav, into, timeout) => {
    await e2e.until("speaking", { into }, timeout);
    return e2e.speak(wav);
  };

  // --- audio packets ---

  // Copies of the packets as they are sent (side 0) and received (side 1). They do not depend on
  // whether a busy machine drops or stretches audio during playback.
  const packetCopier = `onrtctransform = ({ transformer: { readable, writable, options } }) => {
    const transform = (frame, out) => {
      const stamp = frame.getMetadata().rtpTimestamp;
      postMessage({ side: options.side, stamp, data: new Uint8Array(frame.data.slice(0)) });
      out.enqueue(frame);
    };
    readable.pipeThrough(new TransformStream({ transform })).pipeTo(writable).catch(() => {});
  };`;
  let packetWorker = null;
  const copyPackets = (endpoint, kind, side) => {
    if (!options.packets || kind !== "audio") return;
    if (!packetWorker) {
      packetWorker = new Worker(
        URL.createObjectURL(new Blob([packetCopier], { type: "text/javascript" })),
      );
      packetWorker.onmessage = ({ data }) => e2e.packets.push({ t: context.currentTime, ...data });
    }
    endpoint.transform = new RTCRtpScriptTransform(packetWorker, { side });
  };

  // --- connections ---
  const Native = window.RTCPeerConnection;
  window.RTCPeerConnection = class extends Native {
    constructor(...args) {
      super(...args);
      e2e.peer = this;
      this.addEventListener("track", async ({ track }) => {
        if (track.kind !== "audio") return;
        const node = await recorder;
        context.createMediaStreamSource(new MediaStream([track])).connect(node, 0, 1);
      });
      this.addEventListener("connectionstatechange", () => {
        e2e.marks[this.connectionState] = context.currentTime;
        runChecks();
      });
    }

    addTransceiver(trackOrKind, ...args) {
      const transceiver = super.addTransceiver(trackOrKind, ...args);
      copyPackets(transceiver.sender, trackOrKind.kind ?? trackOrKind, 0);
      copyPackets(transceiver.receiver, trackOrKind.kind ?? trackOrKind, 1);
      return transceiver;
    }

    createDataChannel(...args) {
      const channel = super.createDataChannel(...args);
      e2e.channel = channel;
      channel.addEventListener("message", ({ data }) => {
        let message;
        try {
          message = JSON.parse(data);
        } catch {
          message = { broken: data };
        }
        e2e.messages.push({ n: e2e.messages.length, t: context.currentTime, ...message });
        runChecks();
      });
      return channel;
    }

    async setLocalDescription(...args) {
      await super.setLocalDescription(...args);
      e2e.offers.push(this.localDescription.sdp);
    }
  };

  // --- video ---
  const canvas = new OffscreenCanvas(96, 96);
  const canvasContext = canvas.getContext("2d", { willReadFrequently: true });

  /** The time on the context's clock at which audio of `performance.now() = ms` is heard. */
  e2e.clock = (ms) => {
    const { contextTime, performanceTime } = context.getOutputTimestamp();
    return performanceTime > 0 ? contextTime + (ms - performanceTime) / 1000 : context.currentTime;
  };

  function observeVideo(video) {
    const onFrame = (_now, metadata) => {
      video.requestVideoFrameCallback(onFrame);
      e2e.marks.firstFrame ??= performance.now();
      e2e.presented = metadata.presentedFrames;
      e2e.shown.push({
        at: e2e.clock(metadata.expectedDisplayTime),
        media: metadata.rtpTimestamp / 90_000,
      });
      if (e2e.watching) {
        if (e2e.delay === 0) captureFrame(video, metadata.expectedDisplayTime, metadata);
        else
          createImageBitmap(video).then((bitmap) =>
            setTimeout(() => captureFrame(bitmap, performance.now(), metadata), e2e.delay),
          );
      }
      runChecks();
    };
    video.requestVideoFrameCallback(onFrame);
  }

  function captureFrame(image, ms, metadata) {
    canvasContext.drawImage(image, 0, 0, 96, 96);
    const { data } = canvasContext.getImageData(0, 0, 96, 96);
    const luma = new Uint8Array(96 * 96);
    for (let i = 0; i < luma.length; i++)
      luma[i] = (data[4 * i] * 77 + data[4 * i + 1] * 150 + data[4 * i + 2] * 29) >> 8;
    e2e.frames.push({ t: e2e.clock(ms), presented: metadata.presentedFrames, luma });
    image.close?.();
  }

  document.addEventListener("DOMContentLoaded", () => {
    const face = document.querySelector(options.face ?? "#face");
    if (face) observeVideo(face);
    const join = document.getElementById("join");
    join?.addEventListener(
      "click",
      () => {
        e2e.marks.click = performance.now();
      },
      true,
    );
  });

  // --- the measurement's own offset ---

  /**
   * Plays pulses for `seconds`: sound and light at the same instant, through a peer connection
   * inside this page, into the same recorder and the same frame capture. The offset between them is
   * the error of the measurement. Call it before the call is joined.
   */
  e2e.pulses = async (seconds) => {
    const node = await recorder;
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = 96;
    const pulseContext = canvas.getContext("2d");
    const destination = context.createMediaStreamDestination();
    const pulseGain = new GainNode(context, { gain: 0 });
    const tone = new OscillatorNode(context, { frequency: 300 });
    tone.connect(pulseGain).connect(destination);
    tone.start();
    const stream = new MediaStream([
      ...destination.stream.getTracks(),
      ...canvas.captureStream(25).getTracks(),
    ]);
    const [sendingPeer, receivingPeer] = [new Native(), new Native()];
    sendingPeer.onicecandidate = ({ candidate }) => receivingPeer.addIceCandidate(candidate);
    receivingPeer.onicecandidate = ({ candidate }) => sendingPeer.addIceCandidate(candidate);
    const video = document.createElement("video");
    video.autoplay = true;
    video.width = video.height = 96;
    document.body.append(video);
    receivingPeer.ontrack = ({ track, streams }) => {
      video.srcObject = streams[0];
      if (track.kind === "audio")
        context.createMediaStreamSource(new MediaStream([track])).connect(node, 0, 1);
    };
    for (const track of stream.getTracks()) sendingPeer.addTrack(track, stream);
    await sendingPeer.setLocalDescription();
    await receivingPeer.setRemoteDescription(sendingPeer.localDescription);
    await receivingPeer.setLocalDescription();
    await sendingPeer.setRemoteDescription(receivingPeer.localDescription);
    const startTime = context.currentTime + 0.5;
    const period = 0.46;
    for (let at = 0; at < seconds; at += period) {
      pulseGain.gain.setValueAtTime(0.5, startTime + at);
      pulseGain.gain.setValueAtTime(0, startTime + at + 0.2);
    }
    e2e.watching = true;
    e2e.frames = [];
    const onFrame = (_now, metadata) => {
      captureFrame(video, metadata.expectedDisplayTime, metadata);
      video.requestVideoFrameCallback(onFrame);
    };
    video.requestVideoFrameCallback(onFrame);
    await new Promise((resolve) => {
      const paint = () => {
        const at = context.currentTime - startTime;
        // Dark during the tone, like an open mouth.
        pulseContext.fillStyle = at >= 0 && at % period < 0.2 ? "#222" : "#ddd";
        pulseContext.fillRect(0, 0, 96, 96);
        if (at < seconds) setTimeout(paint, 5);
        else resolve();
      };
      paint();
    });
    sendingPeer.close();
    receivingPeer.close();
    tone.stop();
    video.remove();
    e2e.watching = false;
    return { from: startTime, to: context.currentTime };
  };

  // --- waiting ---
  const eventName = (message) => {
    const event = message.data?.event;
    return event?.event?.name ?? event?.name;
  };
  /** What `e2e.until` can wait for. Each function returns a result once its condition holds. */
  const conditions = {
    message: ({ type, event, after = 0 }) =>
      e2e.messages
        .slice(after)
        .find((m) => (!type || m.type === type) && (!event || eventName(m) === event)),
    quiet: ({ lasting, after = 0 }) => {
      const last = Math.max(after, e2e.loudSpans.at(-1)?.to ?? 0);
      return e2e.heardUntil - last >= lasting ? { at: last } : null;
    },
    sound: ({ after }) => e2e.loudSpans.find((span) => span.to > after) ?? null,
    speaking: ({ into }) => {
      const spans = e2e.loudSpans;
      const last = spans.at(-1);
      if (!last || e2e.heardUntil - last.to > 0.1) return null;
      let first = spans.length - 1;
      while (first > 0 && spans[first].from - spans[first - 1].to < 0.5) first--;
      return last.to - spans[first].from >= into ? { from: spans[first].from } : null;
    },
    clock: ({ at }) => (e2e.heardUntil >= at ? { at: e2e.heardUntil } : null),
    connected: () => (e2e.peer?.connectionState === "connected" ? {} : null),
    frames: ({ more }) => ((e2e.presented ?? 0) >= more ? { presented: e2e.presented } : null),
    closed: () =>
      e2e.peer && e2e.peer.connectionState !== "connected"
        ? { state: e2e.peer.connectionState }
        : null,
  };

  /**
   * Resolves with the condition's result as soon as it holds; rejects after `timeout` milliseconds.
   */
  e2e.until = (kind, parameters, timeout) =>
    new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        pendingChecks.delete(checkCondition);
        reject(
          new Error(
            `waited ${timeout} ms for ${kind} ${JSON.stringify(parameters)}; last messages: ` +
              JSON.stringify(e2e.messages.slice(-6)),
          ),
        );
      }, timeout);
      const checkCondition = () => {
        const found = conditions[kind](parameters);
        if (!found) return;
        clearTimeout(timer);
        pendingChecks.delete(checkCondition);
        resolve(found);
      };
      pendingChecks.add(checkCondition);
      checkCondition();
    });

  /** The recording from `from` to `to` (seconds): 16-bit samples of both sides, base64. */
  e2e.recording = (from, to) => {
    const first = Math.max(0, Math.floor(from * SAMPLE_RATE));
    const length = Math.max(0, Math.floor(to * SAMPLE_RATE) - first);
    return [0, 1].map((side) => {
      const out = new Int16Array(length);
      for (const { start, sound } of e2e.blocks) {
        if (start + sound[side].length <= first || start >= first + length) continue;
        for (let i = 0; i < sound[side].length; i++) {
          const index = start + i - first;
          if (index >= 0 && index < length)
            out[index] = Math.max(-1, Math.min(1, sound[side][i])) * 32767;
        }
      }
      return base64(new Uint8Array(out.buffer));
    });
  };

  /**
   * The packets of both sides from `from` to `to` (seconds): `[RTP timestamp, base64 payload]`
   * each.
   */
  e2e.passed = (from, to) =>
    [0, 1].map((side) =>
      e2e.packets
        .filter((packet) => packet.side === side && from <= packet.t && packet.t <= to)
        .map(({ stamp, data }) => [stamp, base64(data)]),
    );

  /** The captured frames: time, number, 96 × 96 luma in base64. */
  e2e.pictures = () =>
    e2e.frames.map(({ t, presented, luma }) => ({ t, presented, luma: base64(luma) }));

  function base64(bytes) {
    let text = "";
    for (let at = 0; at < bytes.length; at += 0x8000)
      text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
    return btoa(text);
  }
})();
