// The requests of the photo page: one at a time, always for the newest points.

import * as api from "./api.js";

/** A request waits so many milliseconds for the next change. */
const CHANGE_DELAY_MS = 300;
/** Minimum delay before a request that the server rejected as busy is repeated. */
const RETRY_DELAY_MS = 800;

export class PhotoCheck {
  #signal;
  #handlers;
  #next = null;
  /** Whether the delay of the next request is over. */
  #due = false;
  #timer = 0;
  #running = null;

  /**
   * `onBusy(isBusy)`; `onAccepted(response, body)` and `onRefused(error, body)` for the newest
   * request only.
   * @param {AbortSignal} signal
   * @param {{onBusy: (isBusy: boolean) => void, onAccepted: (response: any, body: any) => void,
   *   onRefused: (error: api.ApiError, body: any) => void}} handlers
   */
  constructor(signal, handlers) {
    this.#signal = signal;
    this.#handlers = handlers;
    signal.addEventListener("abort", () => clearTimeout(this.#timer));
  }

  /** Sends a request; `isChange`: after the delay, in which a later one replaces it. */
  request(body, isChange = false) {
    clearTimeout(this.#timer);
    this.#next = body;
    this.#due = false;
    this.#handlers.onBusy(true);
    if (isChange) this.#timer = setTimeout(() => this.#start(), CHANGE_DELAY_MS);
    else this.#start();
  }

  /** Forgets all requests. */
  cancel() {
    clearTimeout(this.#timer);
    this.#next = null;
    this.#handlers.onBusy(false);
  }

  /** Sends what waits, and resolves when the newest request has its response. */
  async settled() {
    clearTimeout(this.#timer);
    await this.#start();
  }

  #start() {
    this.#due = true;
    this.#running ??= this.#run().finally(() => {
      this.#running = null;
    });
    return this.#running;
  }

  async #run() {
    while (this.#next && this.#due && !this.#signal.aborted) {
      const body = this.#next;
      let report = null;
      try {
        const response = await api.post("/v2/custom-avatar/photo", body, this.#signal);
        report = () => this.#handlers.onAccepted(response, body);
      } catch (error) {
        if (this.#signal.aborted) return;
        if (!(error instanceof api.ApiError)) throw error;
        // Too many photos are checked at once, or too many requests: repeat it.
        if (error.retryAfter) {
          const delay = Math.max(RETRY_DELAY_MS, error.retryAfter * 1000);
          await new Promise((resolve) => setTimeout(resolve, delay));
          continue;
        }
        report = () => this.#handlers.onRefused(error, body);
      }
      if (body !== this.#next) continue;
      this.#next = null;
      this.#handlers.onBusy(false);
      report();
    }
  }
}
