// The connection with the server: offers at the WHIP door, speaks RTVI on the data channel, and comes back by itself.
//
// Events (CustomEvent): `stream` (MediaStream), `message` (object), `status` (connecting | connected | lost | stalled), `refused`
// ({status, error}), `left` (ended | elsewhere). A call survives its connections: a new offer with the same token goes on with it.

const RETRY = [0, 1000, 2000, 4000, 4000, 4000, 4000, 4000];
const CONNECT_WITHIN = 12_000;
const ANSWER_WITHIN = 10_000;
/** The server sends sound without a pause; as long without a packet means that the way is gone. */
const SILENT_FOR = 4000;

/** The server said no: `status`, why (`reason`, where it tells), and how many seconds to wait (`retryAfter`, where it tells). */
export class Refused extends Error {
  constructor(status, { error, message, reason } = {}, retryAfter = 0) {
    super(error || message || `HTTP ${status}`);
    this.status = status;
    this.reason = typeof reason === "string" ? reason : "";
    this.retryAfter = retryAfter;
    /** Said after the offer was answered: there was no place for the call once its connection was up. */
    this.late = false;
  }

  /** @param {Response} answer that is not ok; its body must not have been read. */
  static async from(answer) {
    const body = await answer.json().catch(() => ({}));
    return new Refused(answer.status, body ?? {}, Number(answer.headers.get("Retry-After")) || 0);
  }
}

/** The server answered, but no connection came about: a network that lets neither UDP nor ICE-TCP through. */
export class Blocked extends Error {}

export class Link extends EventTarget {
  #conversation;
  #token;
  #iceServers;
  #track = null;
  #current = null;
  #pending = null;
  #watch = 0;
  #over = false;
  #ended = false;
  #full = null;

  constructor({ conversation, token, iceServers }) {
    super();
    this.#conversation = conversation;
    this.#token = token;
    this.#iceServers = iceServers;
    addEventListener("online", this.#online);
    navigator.connection?.addEventListener?.("change", this.#online);
  }

  get connected() {
    return this.#current !== null && this.#pending === null;
  }

  /** First join. Resolves when media can flow; rejects with Refused, Blocked or TypeError (no server). */
  async join() {
    this.#tell("status", "connecting");
    await this.#connect();
  }

  /** The microphone's track, or null; also while a call runs. */
  async use(track) {
    this.#track = track;
    for (const part of [this.#current, this.#pending]) await part?.sender.replaceTrack(track).catch(() => {});
  }

  /** @returns {boolean} whether it went out. */
  send(type, data) {
    const channel = this.#current?.channel;
    if (channel?.readyState !== "open") return false;
    const id = Math.random().toString(16).slice(2, 10).padEnd(8, "0");
    channel.send(JSON.stringify({ label: "rtvi-ai", type, id, data }));
    return true;
  }

  /** Hangs up. */
  async leave() {
    const resource = this.#current?.resource ?? this.#pending?.resource;
    const sent = this.send("client-message", { t: "end" });
    this.#stop();
    if (resource) await fetch(resource, { method: "DELETE", headers: this.#headers(), keepalive: true }).catch(() => sent);
  }

  #headers(more = {}) {
    return { Authorization: `Bearer ${this.#token}`, ...more };
  }

  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }

  async #connect() {
    const pc = new RTCPeerConnection({ iceServers: this.#iceServers, bundlePolicy: "max-bundle" });
    const voice = pc.addTransceiver("audio", { direction: "sendrecv" });
    pc.addTransceiver("video", { direction: "recvonly" });
    const channel = pc.createDataChannel("chat");
    const part = { pc, channel, sender: voice.sender, resource: null, stream: new MediaStream() };
    this.#pending = part;
    try {
      if (this.#track) await voice.sender.replaceTrack(this.#track);
      const up = this.#wait(part);
      up.catch(() => {}); // awaited below; an earlier failure must not count as unhandled
      await pc.setLocalDescription();
      const answer = await fetch(`/rtc/${this.#conversation}`, {
        method: "POST",
        headers: this.#headers({ "Content-Type": "application/sdp" }),
        body: pc.localDescription.sdp,
        cache: "no-store",
        signal: AbortSignal.timeout(ANSWER_WITHIN),
      });
      if (!answer.ok) throw await Refused.from(answer);
      part.resource = answer.headers.get("Location");
      await pc.setRemoteDescription({ type: "answer", sdp: await answer.text() });
      await up;
      if (this.#full) throw this.#full;
      if (this.#over) throw new Blocked("left");
    } catch (error) {
      pc.close();
      if (this.#pending === part) this.#pending = null;
      throw error;
    }
    const old = this.#current;
    this.#current = part;
    this.#pending = null;
    old?.pc.close();
    this.#watchOver(part);
    this.#tell("status", "connected");
  }

  /** Sets the listeners of a connection; resolves when it is up. */
  #wait(part) {
    const { pc, channel } = part;
    pc.addEventListener("track", ({ track, streams }) => {
      // Both tracks in one stream, the server's own if it names one: browsers keep lips and sound together only within a stream.
      if (streams[0]) part.stream = streams[0];
      else part.stream.addTrack(track);
      this.#tell("stream", part.stream);
    });
    channel.addEventListener("open", () => {
      const about = { library: "visavis-page", library_version: "1" };
      channel.send(JSON.stringify({ label: "rtvi-ai", type: "client-ready", id: "ready", data: { version: "2.1.0", about } }));
    });
    channel.addEventListener("message", ({ data }) => this.#hear(part, data));
    channel.addEventListener("close", () => part === this.#current && !this.#pending && this.#again());
    return new Promise((resolve, reject) => {
      part.refuse = reject;
      const clock = setTimeout(() => reject(new Blocked("no connection")), CONNECT_WITHIN);
      pc.addEventListener("connectionstatechange", () => {
        const state = pc.connectionState;
        if (state === "connected") {
          clearTimeout(clock);
          resolve();
        } else if (state === "failed" || state === "closed") {
          clearTimeout(clock);
          reject(new Blocked("no connection"));
          if (part === this.#current) this.#again();
        } else if (state === "disconnected" && part === this.#current) {
          this.#again();
        }
      });
    });
  }

  #hear(part, text) {
    if (typeof text !== "string") return;
    let message;
    try {
      message = JSON.parse(text);
    } catch {
      return;
    }
    if (message?.type === "signalling" && message.message?.type === "peerLeft") {
      if (part !== this.#current || this.#pending) return; // our own newer connection took the call over
      this.#stop();
      this.#tell("left", this.#ended ? "ended" : "elsewhere");
      return;
    }
    if (message?.label !== "rtvi-ai") return;
    if (message.type === "error" && message.data?.fatal && message.data.error === "No capacity") {
      // Room for a call is taken when its connection is up, and others were faster.
      this.#full = new Refused(503, { error: message.data.error, reason: "the server is full" });
      this.#full.late = true;
      const joined = part === this.#current;
      // The message may come before the event that the connection is up, and a connection that is closed here tells no event any more.
      part.refuse(this.#full);
      this.#stop();
      if (joined) this.#tell("refused", this.#full);
      return;
    }
    if (message.type === "server-message" && eventName(message) === "call_ended") this.#ended = true;
    this.#tell("message", message);
  }

  #watchOver(part) {
    clearInterval(this.#watch);
    let packets = -1;
    let since = performance.now();
    this.#watch = setInterval(async () => {
      if (document.hidden || part !== this.#current || this.#pending) {
        since = performance.now();
        return;
      }
      const stats = await part.pc.getStats().catch(() => []);
      let now = 0;
      stats.forEach((stat) => { if (stat.type === "inbound-rtp" && stat.kind === "audio") now += stat.packetsReceived; });
      if (now !== packets) {
        packets = now;
        since = performance.now();
      } else if (performance.now() - since > SILENT_FOR) {
        this.#again();
      }
    }, 1000);
  }

  #online = () => {
    if (this.#current && this.#current.pc.connectionState !== "connected") this.#again();
  };

  /** Tries until the call is back, it is over, or there is no point. */
  async #again() {
    if (this.#over || this.#pending) return;
    this.#pending = { sender: { replaceTrack: async () => {} } }; // claims the attempt before the first await
    this.#tell("status", "lost");
    for (const wait of RETRY) {
      await new Promise((done) => setTimeout(done, wait));
      if (this.#over) return;
      try {
        await this.#connect();
        return;
      } catch (error) {
        if (this.#over) return;
        if (error instanceof Refused && [400, 401, 404, 406, 409].includes(error.status)) {
          this.#stop();
          this.#tell("refused", error);
          return;
        }
      }
      this.#pending = { sender: { replaceTrack: async () => {} } };
    }
    this.#stop();
    this.#tell("status", "stalled");
  }

  #stop() {
    this.#over = true;
    clearInterval(this.#watch);
    removeEventListener("online", this.#online);
    navigator.connection?.removeEventListener?.("change", this.#online);
    const parts = [this.#current, this.#pending];
    this.#current = null;
    this.#pending = null;
    for (const part of parts) part?.pc?.close();
  }
}

export function eventName(message) {
  const event = message.data?.event;
  return event?.event?.name ?? event?.name;
}
