// The preview of the avatar editor. It sends one request at a time, always for the newest settings.

import * as api from "./api.js";
import { h } from "./dom.js";
import { readAsDataUrl } from "./files.js";

/** Side length of the sharp picture, in pixels. */
const FULL_SIZE = 256;
/** Side length of the draft that is shown while a slider moves, in pixels. */
const DRAFT_SIZE = 128;
/** The sharp picture is requested after so many milliseconds without a change. */
const SHARP_DELAY_MS = 250;
/** Minimum delay before a request that the server rejected as busy is repeated. */
const RETRY_DELAY_MS = 800;

export class Preview {
  #signal;
  #nextRequest = null;
  #running = false;
  #timer = 0;
  #description = "";

  constructor(signal) {
    this.#signal = signal;
    this.image = h("img", {
      alt: "The avatar with the current settings",
      width: FULL_SIZE,
      height: FULL_SIZE,
      class: "drawn",
    });
    this.status = h("p", { class: "soft", role: "status" }, "Drawing …");
    this.node = h(
      "figure",
      { class: "preview-figure", "aria-busy": "true" },
      this.image,
      this.status,
    );
    signal.addEventListener("abort", () => clearTimeout(this.#timer));
  }

  /**
   * Requests the picture of a character: a draft first, then the sharp one. `description`: the text
   * for screen readers.
   */
  request(request, description) {
    clearTimeout(this.#timer);
    const isFirst = !this.image.src;
    this.#description = description;
    this.#enqueue({ ...request, size: isFirst ? FULL_SIZE : DRAFT_SIZE });
    if (!isFirst)
      this.#timer = setTimeout(
        () => this.#enqueue({ ...request, size: FULL_SIZE }),
        SHARP_DELAY_MS,
      );
  }

  #enqueue(request) {
    this.#nextRequest = request;
    this.node.setAttribute("aria-busy", "true");
    if (!this.#running) this.#run();
  }

  async #run() {
    this.#running = true;
    while (this.#nextRequest && !this.#signal.aborted) {
      const request = this.#nextRequest;
      this.#nextRequest = null;
      try {
        const startedAt = performance.now();
        this.image.src = await readAsDataUrl(
          await api.postForBlob("/v2/character/preview", request, this.#signal),
        );
        this.image.dataset.size = request.size;
        this.image.dataset.took = Math.round(performance.now() - startedAt);
        this.image.alt = `The avatar with the current settings${this.#description}`;
        // Announced once per change, not for each step of a slider.
        if (request.size === FULL_SIZE) this.status.textContent = `Drawn${this.#description}.`;
      } catch (error) {
        if (this.#signal.aborted) return;
        if (!(error instanceof api.ApiError)) throw error;
        // A request of another tab replaced this one, or the server is busy: repeat it.
        if ([409, 503, 429].includes(error.status)) {
          await new Promise((resolve) =>
            setTimeout(resolve, Math.max(RETRY_DELAY_MS, error.retryAfter * 1000)),
          );
          this.#nextRequest ??= request;
        } else {
          this.status.textContent = error.details.length
            ? error.details.map(({ field, reason }) => `${field} ${reason}`).join(", ")
            : error.userMessage;
        }
      }
    }
    this.#running = false;
    this.node.removeAttribute("aria-busy");
  }
}
