// Shows a transcript as a list. Screen readers get complete lines only, from a separate live
// region.

import { formatDuration, h, icon } from "./dom.js";

export class TranscriptView {
  #items = new Map();
  #changedLines = new Set();
  #names;
  #announcedCount = 0;

  /** @param {{agent: string, user: string}} names `user`: of a line without a speaker */
  constructor(names) {
    this.#names = names;
    this.list = h("ol", { class: "transcript", "aria-label": "Transcript" });
    this.liveRegion = h("div", { class: "visually-hidden", role: "log", "aria-live": "polite" });
    this.node = h("div", {}, this.list, this.liveRegion);
  }

  get empty() {
    return this.#items.size === 0;
  }

  /**
   * Renders a line in the next animation frame. `live`: announces it to screen readers once closed.
   */
  render(line, live = false) {
    if (!this.#changedLines.size) requestAnimationFrame(() => this.#renderChangedLines());
    this.#changedLines.add(line);
    if (live && !line.open && !line.removed && line.announced !== line.spoken && line.spoken) {
      line.announced = line.spoken;
      this.liveRegion.append(
        h("p", {}, `${this.#speakerName(line)}: ${line.spoken}${line.cut ? " (interrupted)" : ""}`),
      );
      if (++this.#announcedCount > 20) this.liveRegion.firstElementChild.remove();
    }
  }

  #speakerName(line) {
    if (line.who === "user") return line.speaker ?? this.#names.user;
    return { agent: this.#names.agent, tool: "Tool", note: "Note" }[line.who];
  }

  #renderChangedLines() {
    const page = document.scrollingElement;
    const atBottom =
      page.scrollHeight - page.scrollTop - page.clientHeight < 120 &&
      [...this.#changedLines].some((line) => line.open);
    for (const line of this.#changedLines) {
      let item = this.#items.get(line.id);
      if (line.removed) {
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
      item.replaceChildren(
        this.#timestamp(line),
        h(
          "div",
          { class: "message-body" },
          line.who === "note" ? null : h("span", { class: "who" }, this.#speakerName(line)),
          this.#content(line),
        ),
      );
    }
    this.#changedLines.clear();
    if (atBottom) page.scrollTop = page.scrollHeight;
  }

  /** The start of a line; a button if the recording can be played from there. */
  #timestamp(line) {
    if (!line.units) return h("span", { class: "timestamp" }, formatDuration(line.at));
    const time = formatDuration(line.start);
    return h(
      "button",
      {
        type: "button",
        class: "timestamp",
        "aria-label": `Play from ${time}`,
        data: { seconds: line.start },
      },
      time,
    );
  }

  /** The spoken text. Each unit with a time of its own becomes an element, which the unit keeps. */
  #spoken(line) {
    if (!line.units) return h("span", { class: "spoken" }, line.spoken);
    return h(
      "span",
      { class: "spoken" },
      line.units.map((unit) => {
        unit.node = h("span", { class: "unit" }, unit.text);
        return [unit.before, unit.node];
      }),
      line.after,
    );
  }

  #content(line) {
    if (line.who === "tool") {
      const pretty = (value) =>
        typeof value === "string" ? value : JSON.stringify(value, null, 2);
      return h(
        "details",
        { class: "tool-call" },
        h("summary", {}, icon("tool"), h("code", {}, line.name ?? "tool")),
        h("pre", { tabindex: "0" }, `${pretty(line.arguments ?? {})}\n→ ${pretty(line.spoken)}`),
      );
    }
    return h(
      "p",
      {},
      line.spoken && this.#spoken(line),
      line.partial && [" ", h("span", { class: "partial" }, line.partial)],
      line.ahead && [" ", h("span", { class: "ahead" }, line.ahead)],
      line.cut && [" ", h("s", { class: "cut" }, line.cut)],
      (line.cut || line.interrupted) &&
        h("span", { class: line.cut ? "visually-hidden" : "soft" }, " (interrupted)"),
    );
  }
}
