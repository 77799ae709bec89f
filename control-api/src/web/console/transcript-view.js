// Shows a transcript as a list. A screen reader hears whole lines only, from a live region of its own.

import { h, icon, span } from "./dom.js";

export class TranscriptView {
  #items = new Map();
  #dirty = new Set();
  #names;
  #told = 0;

  /** @param {{agent: string, user: string}} names */
  constructor(names) {
    this.#names = names;
    this.list = h("ol", { class: "transcript", "aria-label": "Transcript" });
    this.aloud = h("div", { class: "unseen", role: "log", "aria-live": "polite" });
    this.node = h("div", {}, this.list, this.aloud);
  }

  get empty() {
    return this.#items.size === 0;
  }

  /** Draws a line with the next picture of the screen. */
  show(line, live = false) {
    if (!this.#dirty.size) requestAnimationFrame(() => this.#draw());
    this.#dirty.add(line);
    if (live && !line.open && !line.gone && line.told !== line.spoken && line.spoken) {
      line.told = line.spoken;
      this.aloud.append(h("p", {}, `${this.#name(line)}: ${line.spoken}${line.cut ? " (interrupted)" : ""}`));
      if (++this.#told > 20) this.aloud.firstElementChild.remove();
    }
  }

  #name(line) {
    return { user: this.#names.user, agent: this.#names.agent, tool: "Tool", note: "Note" }[line.who];
  }

  #draw() {
    const page = document.scrollingElement;
    const follow = page.scrollHeight - page.scrollTop - page.clientHeight < 120 && [...this.#dirty].some((line) => line.open);
    for (const line of this.#dirty) {
      let item = this.#items.get(line.id);
      if (line.gone) {
        item?.remove();
        this.#items.delete(line.id);
        continue;
      }
      if (!item) {
        item = h("li", { data: { who: line.who } });
        this.#items.set(line.id, item);
        this.list.append(item);
      }
      item.dataset.open = String(line.open);
      item.classList.toggle("bad", Boolean(line.bad));
      item.replaceChildren(h("span", { class: "at" }, span(line.at)), h("div", { class: "said" }, line.who === "note" ? null : h("span", { class: "who" }, this.#name(line)), this.#content(line)));
    }
    this.#dirty.clear();
    if (follow) page.scrollTop = page.scrollHeight;
  }

  #content(line) {
    if (line.who === "tool") {
      const pretty = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));
      return h("details", { class: "call" }, h("summary", {}, icon("tool"), h("code", {}, line.name ?? "tool")), h("pre", { tabindex: "0" }, `${pretty(line.arguments ?? {})}\n→ ${pretty(line.spoken)}`));
    }
    return h("p", {},
      line.spoken && h("span", { class: "spoken" }, line.spoken),
      line.partial && [" ", h("span", { class: "partial" }, line.partial)],
      line.ahead && [" ", h("span", { class: "ahead" }, line.ahead)],
      line.cut && [" ", h("s", { class: "cut" }, line.cut)],
      (line.cut || line.interrupted) && h("span", { class: line.cut ? "unseen" : "soft" }, " (interrupted)"));
  }
}
