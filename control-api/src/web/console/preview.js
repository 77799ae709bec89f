// A picture that follows what is being set: one request at a time, always for the newest state.

import * as api from "./api.js";
import { h } from "./dom.js";
import { dataOf } from "./files.js";

const SIDE = 256;
/** Side of what is shown while a slider moves. */
const DRAFT = 128;
/** Milliseconds without a change after which the sharp picture is drawn. */
const REST = 250;
/** Milliseconds before a server that is busy is asked again. */
const AGAIN = 800;

export class Preview {
  #signal;
  #wanted = null;
  #drawing = false;
  #timer = 0;
  #what = "";

  constructor(signal) {
    this.#signal = signal;
    this.picture = h("img", { alt: "The person as it is set now", width: SIDE, height: SIDE, class: "drawn" });
    this.words = h("p", { class: "soft", role: "status" }, "Drawing …");
    this.node = h("figure", { class: "shown", "aria-busy": "true" }, this.picture, this.words);
    signal.addEventListener("abort", () => clearTimeout(this.#timer));
  }

  /** Shows this as soon as it can be drawn: a draft while more changes come, then the sharp one. `what`: in words, for those who do not see it. */
  want(order, what) {
    clearTimeout(this.#timer);
    const first = !this.picture.src;
    this.#what = what;
    this.#draw({ ...order, size: first ? SIDE : DRAFT });
    if (!first) this.#timer = setTimeout(() => this.#draw({ ...order, size: SIDE }), REST);
  }

  #draw(order) {
    this.#wanted = order;
    this.node.setAttribute("aria-busy", "true");
    if (!this.#drawing) this.#run();
  }

  async #run() {
    this.#drawing = true;
    while (this.#wanted && !this.#signal.aborted) {
      const order = this.#wanted;
      this.#wanted = null;
      try {
        const began = performance.now();
        this.picture.src = await dataOf(await api.picture("/v2/character/preview", order, this.#signal));
        this.picture.dataset.size = order.size;
        this.picture.dataset.took = Math.round(performance.now() - began);
        this.picture.alt = `The person as it is set now${this.#what}`;
        // Said once a change is over, and not for each step of a slider.
        if (order.size === SIDE) this.words.textContent = `Drawn${this.#what}.`;
      } catch (error) {
        if (this.#signal.aborted) return;
        if (!(error instanceof api.Refused)) throw error;
        // Another tab asked in between, or the server has no time: this one is still wanted.
        if ([409, 503, 429].includes(error.status)) {
          await new Promise((go) => setTimeout(go, Math.max(AGAIN, error.retryAfter * 1000)));
          this.#wanted ??= order;
        } else {
          this.words.textContent = error.details.length ? error.details.map(({ field, reason }) => `${field} ${reason}`).join(", ") : error.sentence;
        }
      }
    }
    this.#drawing = false;
    this.node.removeAttribute("aria-busy");
  }
}
