// Runs before the page's own scripts: a microphone that speaks on command, and an observer of what the page hears, sees and is told.
// Everything is measured on the clock of one AudioContext. `window.e2e` is the door for the tests.
(() => {
  if (!location.protocol.startsWith("http") || window.e2e) return;
  const options = window.e2eOptions ?? {};
  const RATE = 48000;
  const LOUD = 0.004; // RMS of a block that counts as sound, about -48 dBFS

  const context = new AudioContext({ sampleRate: RATE, latencyHint: "interactive" });
  const e2e = (window.e2e = { context, blocks: [], messages: [], frames: [], shown: [], packets: [], marks: {}, offers: [], loudSpans: [], watching: false, delay: 0 });
  const waiting = new Set();
  const check = () => {
    for (const wait of waiting) wait();
  };

  // --- the recorder ---
  const recorder = (async () => {
    const module = URL.createObjectURL(new Blob([window.e2eRecorder], { type: "text/javascript" }));
    await context.audioWorklet.addModule(module);
    const node = new AudioWorkletNode(context, "recorder", { numberOfInputs: 2, numberOfOutputs: 1, channelCount: 1, channelCountMode: "explicit" });
    const mute = new GainNode(context, { gain: 0 });
    node.connect(mute).connect(context.destination);
    node.port.onmessage = ({ data }) => {
      e2e.blocks.push(data);
      const [, agent] = data.sound;
      for (let at = 0; at < agent.length; at += 512) {
        let sum = 0;
        for (let i = at; i < at + 512; i++) sum += agent[i] * agent[i];
        if (Math.sqrt(sum / 512) < LOUD) continue;
        const from = (data.start + at) / RATE;
        const last = e2e.loudSpans.at(-1);
        if (last && from - last.to < 0.05) last.to = from + 512 / RATE;
        else e2e.loudSpans.push({ from, to: from + 512 / RATE });
      }
      e2e.heardUntil = (data.start + agent.length) / RATE;
      check();
    };
    return node;
  })();
  e2e.ready = recorder.then(() => context.resume());

  // --- the microphone ---
  const voice = new GainNode(context);
  const real = navigator.mediaDevices?.getUserMedia?.bind(navigator.mediaDevices);
  recorder.then((node) => voice.connect(node, 0, 0));
  if (!options.ownMicrophone && navigator.mediaDevices) {
    const noise = new AudioBufferSourceNode(context, { loop: true, buffer: hiss() });
    noise.connect(voice);
    noise.start();
    navigator.mediaDevices.getUserMedia = async () => {
      const out = context.createMediaStreamDestination();
      voice.connect(out);
      return out.stream;
    };
  } else if (real && !options.untouched) {
    navigator.mediaDevices.getUserMedia = async (wish) => {
      // A device that begins to play a file once the call can hear it.
      if (options.late) await e2e.until("connected", {}, 60_000);
      const stream = await real(wish);
      context.createMediaStreamSource(stream).connect(voice);
      e2e.marks.microphone = context.currentTime;
      return stream;
    };
  }

  /** A quiet room: digital silence is not what a microphone gives. About -75 dBFS. */
  function hiss() {
    const buffer = new AudioBuffer({ length: RATE, sampleRate: RATE });
    const samples = buffer.getChannelData(0);
    for (let i = 0; i < samples.length; i++) samples[i] = (Math.random() * 2 - 1) * 0.0003;
    return buffer;
  }

  /** Says a WAV (base64), now. Returns when its first and its last sample sound. */
  e2e.speak = async (wav) => {
    const bytes = Uint8Array.from(atob(wav), (letter) => letter.charCodeAt(0));
    const buffer = await context.decodeAudioData(bytes.buffer);
    const source = new AudioBufferSourceNode(context, { buffer });
    source.connect(voice);
    const start = context.currentTime + 0.02;
    source.start(start);
    return { start, end: start + buffer.duration };
  };

  /** Says it as soon as the agent has spoken for `into` seconds without a pause of half a second. */
  e2e.speakOver = async (wav, into, timeout) => {
    await e2e.until("speaking", { into }, timeout);
    return e2e.speak(wav);
  };

  // --- packets of sound, as they leave (side 0) and come (side 1): before a busy machine loses or stretches any of their sound ---
  const copy = `onrtctransform = ({ transformer: { readable, writable, options } }) => {
    const transform = (frame, out) => {
      postMessage({ side: options.side, stamp: frame.getMetadata().rtpTimestamp, data: new Uint8Array(frame.data.slice(0)) });
      out.enqueue(frame);
    };
    readable.pipeThrough(new TransformStream({ transform })).pipeTo(writable).catch(() => {});
  };`;
  let copier = null;
  const tap = (end, kind, side) => {
    if (!options.packets || kind !== "audio") return;
    if (!copier) {
      copier = new Worker(URL.createObjectURL(new Blob([copy], { type: "text/javascript" })));
      copier.onmessage = ({ data }) => e2e.packets.push({ t: context.currentTime, ...data });
    }
    end.transform = new RTCRtpScriptTransform(copier, { side });
  };

  // --- connections ---
  const Native = window.RTCPeerConnection;
  window.RTCPeerConnection = class extends Native {
    constructor(...given) {
      super(...given);
      e2e.peer = this;
      this.addEventListener("track", async ({ track }) => {
        if (track.kind !== "audio") return;
        const node = await recorder;
        context.createMediaStreamSource(new MediaStream([track])).connect(node, 0, 1);
      });
      this.addEventListener("connectionstatechange", () => {
        e2e.marks[this.connectionState] = context.currentTime;
        check();
      });
    }

    addTransceiver(what, ...given) {
      const transceiver = super.addTransceiver(what, ...given);
      tap(transceiver.sender, what.kind ?? what, 0);
      tap(transceiver.receiver, what.kind ?? what, 1);
      return transceiver;
    }

    createDataChannel(...given) {
      const channel = super.createDataChannel(...given);
      e2e.channel = channel;
      channel.addEventListener("message", ({ data }) => {
        let message;
        try {
          message = JSON.parse(data);
        } catch {
          message = { broken: data };
        }
        e2e.messages.push({ n: e2e.messages.length, t: context.currentTime, ...message });
        check();
      });
      return channel;
    }

    async setLocalDescription(...given) {
      await super.setLocalDescription(...given);
      e2e.offers.push(this.localDescription.sdp);
    }
  };

  // --- the picture ---
  const canvas = new OffscreenCanvas(96, 96);
  const pen = canvas.getContext("2d", { willReadFrequently: true });

  /** Seconds on the context's clock at which sound made at `performance.now() = ms` is heard. */
  e2e.clock = (ms) => {
    const { contextTime, performanceTime } = context.getOutputTimestamp();
    return performanceTime > 0 ? contextTime + (ms - performanceTime) / 1000 : context.currentTime;
  };

  function look(face) {
    const seen = (now, about) => {
      face.requestVideoFrameCallback(seen);
      e2e.marks.firstFrame ??= performance.now();
      e2e.presented = about.presentedFrames;
      e2e.shown.push({ at: e2e.clock(about.expectedDisplayTime), media: about.rtpTimestamp / 90_000 });
      if (e2e.watching) {
        if (e2e.delay === 0) note(face, about.expectedDisplayTime, about);
        else createImageBitmap(face).then((picture) => setTimeout(() => note(picture, performance.now(), about), e2e.delay));
      }
      check();
    };
    face.requestVideoFrameCallback(seen);
  }

  function note(picture, ms, about) {
    pen.drawImage(picture, 0, 0, 96, 96);
    const { data } = pen.getImageData(0, 0, 96, 96);
    const luma = new Uint8Array(96 * 96);
    for (let i = 0; i < luma.length; i++) luma[i] = (data[4 * i] * 77 + data[4 * i + 1] * 150 + data[4 * i + 2] * 29) >> 8;
    e2e.frames.push({ t: e2e.clock(ms), presented: about.presentedFrames, luma });
    picture.close?.();
  }

  document.addEventListener("DOMContentLoaded", () => {
    const face = document.querySelector(options.face ?? "#face");
    if (face) look(face);
    const join = document.getElementById("join");
    join?.addEventListener("click", () => { e2e.marks.click = performance.now(); }, true);
  });

  // --- the recorder's own offset ---

  /**
   * Plays `seconds` of pulses, sound and light at the same instant, through a peer connection within this page, into the same recorder and
   * the same picture taking. What is measured of them as an offset is the measurement's own. Call it before the call.
   */
  e2e.pulses = async (seconds) => {
    const node = await recorder;
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = 96;
    const light = canvas.getContext("2d");
    const out = context.createMediaStreamDestination();
    const gate = new GainNode(context, { gain: 0 });
    const tone = new OscillatorNode(context, { frequency: 300 });
    tone.connect(gate).connect(out);
    tone.start();
    const stream = new MediaStream([...out.stream.getTracks(), ...canvas.captureStream(25).getTracks()]);
    const [near, far] = [new Native(), new Native()];
    near.onicecandidate = ({ candidate }) => far.addIceCandidate(candidate);
    far.onicecandidate = ({ candidate }) => near.addIceCandidate(candidate);
    const screen = document.createElement("video");
    screen.autoplay = true;
    screen.width = screen.height = 96;
    document.body.append(screen);
    far.ontrack = ({ track, streams }) => {
      screen.srcObject = streams[0];
      if (track.kind === "audio") context.createMediaStreamSource(new MediaStream([track])).connect(node, 0, 1);
    };
    for (const track of stream.getTracks()) near.addTrack(track, stream);
    await near.setLocalDescription();
    await far.setRemoteDescription(near.localDescription);
    await far.setLocalDescription();
    await near.setRemoteDescription(far.localDescription);
    const begun = context.currentTime + 0.5;
    const period = 0.46;
    for (let at = 0; at < seconds; at += period) {
      gate.gain.setValueAtTime(0.5, begun + at);
      gate.gain.setValueAtTime(0, begun + at + 0.2);
    }
    e2e.watching = true;
    e2e.frames = [];
    const seen = (now, about) => {
      note(screen, about.expectedDisplayTime, about);
      screen.requestVideoFrameCallback(seen);
    };
    screen.requestVideoFrameCallback(seen);
    await new Promise((done) => {
      const paint = () => {
        const at = context.currentTime - begun;
        light.fillStyle = at >= 0 && at % period < 0.2 ? "#222" : "#ddd"; // dark with sound, as a mouth is
        light.fillRect(0, 0, 96, 96);
        if (at < seconds) setTimeout(paint, 5);
        else done();
      };
      paint();
    });
    near.close();
    far.close();
    tone.stop();
    screen.remove();
    e2e.watching = false;
    return { from: begun, to: context.currentTime };
  };

  // --- waiting ---
  const named = (message) => {
    const event = message.data?.event;
    return event?.event?.name ?? event?.name;
  };
  const conditions = {
    message: ({ type, event, after = 0 }) =>
      e2e.messages.slice(after).find((m) => (!type || m.type === type) && (!event || named(m) === event)),
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
    closed: () => (e2e.peer && e2e.peer.connectionState !== "connected" ? { state: e2e.peer.connectionState } : null),
  };

  /** Resolves as soon as a condition holds. */
  e2e.until = (kind, about, timeout) =>
    new Promise((resolve, reject) => {
      const clock = setTimeout(() => {
        waiting.delete(look);
        reject(new Error(`waited ${timeout} ms for ${kind} ${JSON.stringify(about)}; last messages: ${JSON.stringify(e2e.messages.slice(-6))}`));
      }, timeout);
      const look = () => {
        const found = conditions[kind](about);
        if (!found) return;
        clearTimeout(clock);
        waiting.delete(look);
        resolve(found);
      };
      waiting.add(look);
      look();
    });

  /** What was recorded from `from` to `to` (seconds): 16-bit samples of both sides, base64. */
  e2e.recording = (from, to) => {
    const first = Math.max(0, Math.floor(from * RATE));
    const length = Math.max(0, Math.floor(to * RATE) - first);
    return [0, 1].map((side) => {
      const out = new Int16Array(length);
      for (const { start, sound } of e2e.blocks) {
        if (start + sound[side].length <= first || start >= first + length) continue;
        for (let i = 0; i < sound[side].length; i++) {
          const at = start + i - first;
          if (at >= 0 && at < length) out[at] = Math.max(-1, Math.min(1, sound[side][i])) * 32767;
        }
      }
      return base64(new Uint8Array(out.buffer));
    });
  };

  /** The packets of both sides that passed from `from` to `to` (seconds): `[time stamp, payload in base64]` each. */
  e2e.passed = (from, to) => [0, 1].map((side) =>
    e2e.packets.filter((one) => one.side === side && from <= one.t && one.t <= to).map(({ stamp, data }) => [stamp, base64(data)]));

  e2e.pictures = () => e2e.frames.map(({ t, presented, luma }) => ({ t, presented, luma: base64(luma) }));

  function base64(bytes) {
    let text = "";
    for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
    return btoa(text);
  }
})();
