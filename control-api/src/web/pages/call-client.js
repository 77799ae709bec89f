// The client of one call. It sends its offer to the WHIP endpoint, exchanges RTVI messages on the
// data channel, and reconnects by itself. A call survives its connections: a new offer with the
// same token continues the call.
//
// Events (CustomEvent; the value is in `detail`):
// - `stream`: the agent's MediaStream.
// - `message`: a parsed RTVI message.
// - `status`: `connecting`, `connected`, `reconnecting` or `failed`.
// - `rejected`: a RejectedError that ended the call.
// - `left`: why the server closed the call: `ended` or `elsewhere` (opened in another window).

/** Delays before the attempts to reconnect, in milliseconds. */
const RETRY_DELAYS_MS = [0, 1000, 2000, 4000, 4000, 4000, 4000, 4000];
/** The delay of a persistent client, from the second attempt on. */
const PERSISTENT_RETRY_MS = 2000;
/** Rejections after which another attempt cannot succeed; those that a persistent client obeys. */
const FINAL_STATUSES = [400, 401, 404, 406, 409];
const PERSISTENT_FINAL_STATUSES = [401, 409];
const CONNECT_TIMEOUT_MS = 12_000;
const ANSWER_TIMEOUT_MS = 10_000;
/**
 * The server sends audio without a pause. After so many milliseconds without a packet the
 * connection counts as lost.
 */
const SILENCE_TIMEOUT_MS = 4000;

/** Reports changes of the network; not all browsers have it. */
const networkInformation = () => /** @type {any} */ (navigator).connection;

/**
 * The server rejected a request. `status` is the HTTP status. `reason` and `retryAfter` (seconds)
 * are empty or 0 if the server does not name them.
 */
export class RejectedError extends Error {
  /**
   * @param {number} status
   * @param {{error?: string, message?: string, reason?: any}} [body]
   * @param {number} [retryAfter]
   */
  constructor(status, { error, message, reason } = {}, retryAfter = 0) {
    super(error || message || `HTTP ${status}`);
    this.status = status;
    this.reason = typeof reason === "string" ? reason : "";
    this.retryAfter = retryAfter;
    /**
     * Whether the rejection came after the answer: the server was full once the client connected.
     */
    this.afterAnswer = false;
  }

  /** @param {Response} response an error response whose body has not been read yet. */
  static async from(response) {
    const body = await response.json().catch(() => ({}));
    return new RejectedError(
      response.status,
      body ?? {},
      Number(response.headers.get("Retry-After")) || 0,
    );
  }
}

/**
 * The server answered the offer, but the peer connection failed: the network blocks both UDP and
 * ICE-TCP.
 */
export class ConnectionFailedError extends Error {}

export class CallClient extends EventTarget {
  #conversation;
  #token;
  #iceServers;
  #microphoneTrack = null;
  #connection = null;
  #pendingConnection = null;
  #silenceTimer = 0;
  #stopped = false;
  #callEnded = false;
  #persistent;

  /**
   * `persistent`: the client tries to connect without limit, at first and after a lost connection,
   * until the conversation is over.
   */
  constructor({ conversation, token, iceServers, persistent = false }) {
    super();
    this.#persistent = persistent;
    this.#conversation = conversation;
    this.#token = token;
    this.#iceServers = iceServers;
    addEventListener("online", this.#onNetworkChange);
    networkInformation()?.addEventListener?.("change", this.#onNetworkChange);
  }

  get connected() {
    return this.#connection !== null && this.#pendingConnection === null;
  }

  /**
   * Joins the call. Resolves once media can flow. Rejects with RejectedError,
   * ConnectionFailedError, or TypeError if the server cannot be reached. A persistent client does
   * not reject: it tries again, or emits `rejected`.
   */
  async join() {
    this.#emit("status", "connecting");
    if (this.#persistent) await this.#keepConnecting();
    else await this.#connect();
  }

  /** Sets the microphone's track (null for none), also during a call. */
  async setMicrophoneTrack(track) {
    this.#microphoneTrack = track;
    for (const connection of [this.#connection, this.#pendingConnection])
      await connection?.audioSender.replaceTrack(track).catch(() => {});
  }

  /** Sends an RTVI message. @returns {boolean} whether the data channel was open. */
  send(type, data, id = Math.random().toString(16).slice(2, 10).padEnd(8, "0")) {
    const dataChannel = this.#connection?.dataChannel;
    if (dataChannel?.readyState !== "open") return false;
    dataChannel.send(JSON.stringify({ label: "rtvi-ai", type, id, data }));
    return true;
  }

  /** Closes the connection without hanging up: the server waits for another one. */
  leave() {
    this.#stop();
  }

  /** Hangs up. */
  async hangUp() {
    const resourceUrl = this.#connection?.resourceUrl ?? this.#pendingConnection?.resourceUrl;
    const sent = this.send("client-message", { t: "end" });
    this.#stop();
    if (resourceUrl)
      await fetch(resourceUrl, {
        method: "DELETE",
        headers: this.#headers(),
        keepalive: true,
      }).catch(() => sent);
  }

  #headers(extra = {}) {
    return { Authorization: `Bearer ${this.#token}`, ...extra };
  }

  #emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }

  async #connect() {
    const peerConnection = new RTCPeerConnection({
      iceServers: this.#iceServers,
      bundlePolicy: "max-bundle",
    });
    const audioTransceiver = peerConnection.addTransceiver("audio", { direction: "sendrecv" });
    peerConnection.addTransceiver("video", { direction: "recvonly" });
    const dataChannel = peerConnection.createDataChannel("chat");
    const connection = {
      peerConnection,
      dataChannel,
      audioSender: audioTransceiver.sender,
      resourceUrl: null,
      stream: new MediaStream(),
      capacityError: null,
    };
    this.#pendingConnection = connection;
    try {
      if (this.#microphoneTrack) await audioTransceiver.sender.replaceTrack(this.#microphoneTrack);
      const connected = this.#waitUntilConnected(connection);
      connected.catch(() => {}); // awaited below; until then a failure must not count as unhandled
      await peerConnection.setLocalDescription();
      const response = await fetch(`/rtc/${this.#conversation}`, {
        method: "POST",
        headers: this.#headers({ "Content-Type": "application/sdp" }),
        body: peerConnection.localDescription.sdp,
        cache: "no-store",
        signal: AbortSignal.timeout(ANSWER_TIMEOUT_MS),
      });
      if (!response.ok) throw await RejectedError.from(response);
      connection.resourceUrl = response.headers.get("Location");
      await peerConnection.setRemoteDescription({ type: "answer", sdp: await response.text() });
      await connected;
      if (connection.capacityError) throw connection.capacityError;
      if (this.#stopped) throw new ConnectionFailedError("left");
    } catch (error) {
      peerConnection.close();
      if (this.#pendingConnection === connection) this.#pendingConnection = null;
      throw error;
    }
    const previous = this.#connection;
    this.#connection = connection;
    this.#pendingConnection = null;
    previous?.peerConnection.close();
    this.#watchForSilence(connection);
    this.#emit("status", "connected");
  }

  /** Adds the listeners of a connection. Resolves once it is connected. */
  /** @returns {Promise<void>} */
  #waitUntilConnected(connection) {
    const { peerConnection, dataChannel } = connection;
    peerConnection.addEventListener("track", ({ track, streams }) => {
      // Browsers synchronize audio and video only within one stream. Both tracks go into the
      // server's stream, or into our own if the server names none.
      if (streams[0]) connection.stream = streams[0];
      else connection.stream.addTrack(track);
      this.#emit("stream", connection.stream);
    });
    dataChannel.addEventListener("open", () => {
      const clientInfo = { library: "visavis-page", library_version: "1" };
      dataChannel.send(
        JSON.stringify({
          label: "rtvi-ai",
          type: "client-ready",
          id: "ready",
          data: { version: "2.1.0", about: clientInfo },
        }),
      );
    });
    dataChannel.addEventListener("message", ({ data }) => this.#onMessage(connection, data));
    dataChannel.addEventListener(
      "close",
      () => connection === this.#connection && !this.#pendingConnection && this.#reconnect(),
    );
    return new Promise((resolve, reject) => {
      connection.reject = reject;
      const timeout = setTimeout(
        () => reject(new ConnectionFailedError("no connection")),
        CONNECT_TIMEOUT_MS,
      );
      peerConnection.addEventListener("connectionstatechange", () => {
        const state = peerConnection.connectionState;
        if (state === "connected") {
          clearTimeout(timeout);
          resolve();
        } else if (state === "failed" || state === "closed") {
          clearTimeout(timeout);
          reject(new ConnectionFailedError("no connection"));
          if (connection === this.#connection) this.#reconnect();
        } else if (state === "disconnected" && connection === this.#connection) {
          this.#reconnect();
        }
      });
    });
  }

  #onMessage(connection, text) {
    if (typeof text !== "string") return;
    let message;
    try {
      message = JSON.parse(text);
    } catch {
      return;
    }
    if (message?.type === "signalling" && message.message?.type === "peerLeft") {
      // Our own newer connection has taken over the call.
      if (connection !== this.#connection || this.#pendingConnection) return;
      this.#stop();
      this.#emit("left", this.#callEnded ? "ended" : "elsewhere");
      return;
    }
    if (message?.label !== "rtvi-ai") return;
    if (message.type === "error" && message.data?.fatal && message.data.error === "No capacity") {
      // The server reserves capacity only once a client is connected; other calls were faster.
      const error = new RejectedError(503, {
        error: message.data.error,
        reason: "the server is full",
      });
      error.afterAnswer = true;
      connection.capacityError = error;
      const wasConnected = connection === this.#connection;
      // The message may arrive before `connectionstatechange`. A peer connection that is closed
      // here fires no further events, so the promise is rejected directly.
      connection.reject(error);
      if (!this.#persistent) this.#stop();
      if (!wasConnected) return;
      if (this.#persistent) this.#reconnect(1);
      else this.#emit("rejected", error);
      return;
    }
    if (message.type === "server-message" && eventName(message) === "call_ended")
      this.#callEnded = true;
    this.#emit("message", message);
  }

  /** Reconnects if no audio packet arrives for SILENCE_TIMEOUT_MS while the page is visible. */
  #watchForSilence(connection) {
    clearInterval(this.#silenceTimer);
    let lastReceived = -1;
    let lastChangeAt = performance.now();
    this.#silenceTimer = setInterval(async () => {
      if (document.hidden || connection !== this.#connection || this.#pendingConnection) {
        lastChangeAt = performance.now();
        return;
      }
      const stats = await connection.peerConnection.getStats().catch(() => []);
      let received = 0;
      stats.forEach((stat) => {
        if (stat.type === "inbound-rtp" && stat.kind === "audio") received += stat.packetsReceived;
      });
      if (received !== lastReceived) {
        lastReceived = received;
        lastChangeAt = performance.now();
      } else if (performance.now() - lastChangeAt > SILENCE_TIMEOUT_MS) {
        this.#reconnect();
      }
    }, 1000);
  }

  #onNetworkChange = () => {
    if (this.#connection && this.#connection.peerConnection.connectionState !== "connected")
      this.#reconnect();
  };

  async #reconnect(firstAttempt = 0) {
    if (this.#stopped || this.#pendingConnection) return;
    const connecting = this.#keepConnecting(firstAttempt);
    this.#emit("status", "reconnecting");
    await connecting;
  }

  /** Tries until the call is connected, the call is over, or the server rejects it. */
  async #keepConnecting(firstAttempt = 0) {
    let retryAfter = 0;
    for (let attempt = firstAttempt; ; attempt++) {
      const delayMs = this.#retryDelayMs(attempt, retryAfter);
      if (delayMs === undefined) break;
      // Marks the attempt before the first await, so that no second one starts.
      this.#pendingConnection = { audioSender: { replaceTrack: async () => {} } };
      await new Promise((resolve) => setTimeout(resolve, delayMs));
      if (this.#stopped) return;
      try {
        await this.#connect();
        return;
      } catch (error) {
        if (this.#stopped) return;
        const finalStatuses = this.#persistent ? PERSISTENT_FINAL_STATUSES : FINAL_STATUSES;
        if (error instanceof RejectedError && finalStatuses.includes(error.status)) {
          this.#stop();
          this.#emit("rejected", error);
          return;
        }
        // Too many offers: trying sooner would only be rejected again.
        retryAfter = error instanceof RejectedError && error.status === 429 ? error.retryAfter : 0;
      }
    }
    this.#stop();
    this.#emit("status", "failed");
  }

  /** The delay before an attempt; undefined after the last one. */
  #retryDelayMs(attempt, retryAfter) {
    if (!this.#persistent) return RETRY_DELAYS_MS[attempt];
    return attempt === 0 ? 0 : Math.max(PERSISTENT_RETRY_MS, 1000 * retryAfter);
  }

  #stop() {
    this.#stopped = true;
    clearInterval(this.#silenceTimer);
    removeEventListener("online", this.#onNetworkChange);
    networkInformation()?.removeEventListener?.("change", this.#onNetworkChange);
    const connections = [this.#connection, this.#pendingConnection];
    this.#connection = null;
    this.#pendingConnection = null;
    for (const connection of connections) connection?.peerConnection?.close();
  }
}

/** The name of the event in a server message. */
export function eventName(message) {
  const event = message.data?.event;
  return event?.event?.name ?? event?.name;
}
