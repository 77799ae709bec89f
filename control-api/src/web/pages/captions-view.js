// Shows captions as a list. Screen readers get complete lines only, from a separate live region.

import { lineParts } from "./captions.js";

function textElement(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.textContent = text;
  return element;
}

export class CaptionsView {
  #list;
  #liveRegion;
  #placeholder;
  #items = new Map();
  #changedLines = new Set();
  #speakerNames = { user: "You", agent: "Agent" };

  constructor({ list, liveRegion, placeholder }) {
    this.#list = list;
    this.#liveRegion = liveRegion;
    this.#placeholder = placeholder;
  }

  /** Sets the agent's name, also in existing lines. */
  setAgentName(agentName) {
    this.#speakerNames.agent = agentName;
    for (const label of this.#list.querySelectorAll("li[data-who=agent] .who"))
      label.textContent = agentName;
  }

  /**
   * Renders a line in the next animation frame. `announce`: also for screen readers once closed.
   */
  render(line, announce = true) {
    if (this.#changedLines.size === 0) requestAnimationFrame(() => this.#renderChangedLines());
    this.#changedLines.add(line);
    if (!line.open && announce) this.#announce(line);
  }

  #renderChangedLines() {
    const list = this.#list;
    const atBottom = list.scrollHeight - list.scrollTop - list.clientHeight < 80;
    for (const line of this.#changedLines) {
      const { spoken, partial, ahead, cut } = lineParts(line);
      let item = this.#items.get(line.id);
      if (!spoken && !partial && !ahead && !cut) {
        item?.remove();
        this.#items.delete(line.id);
        continue;
      }
      if (!item) {
        item = document.createElement("li");
        item.dataset.who = line.who;
        this.#items.set(line.id, item);
        list.append(item);
      }
      item.dataset.open = String(line.open);
      const parts = [];
      if (spoken) parts.push(textElement("span", "spoken", spoken));
      if (partial) parts.push(textElement("span", "partial", partial));
      if (ahead) parts.push(textElement("span", "ahead", ahead));
      if (cut) parts.push(textElement("s", "cut", cut));
      // Blanks stand only between parts, because the list shows them (`white-space: pre-wrap`).
      const separated = parts.flatMap((part, at) => (at > 0 ? [" ", part] : [part]));
      if (cut) separated.push(textElement("span", "visually-hidden", " (interrupted)"));
      item.replaceChildren(textElement("span", "who", this.#speakerNames[line.who]), ...separated);
    }
    this.#changedLines.clear();
    this.#placeholder.hidden = this.#items.size > 0;
    if (atBottom) list.scrollTop = list.scrollHeight;
  }

  #announce(line) {
    const { spoken, cut } = lineParts(line);
    if (!spoken) return;
    this.#liveRegion.append(
      textElement(
        "p",
        "",
        `${this.#speakerNames[line.who]}: ${spoken}${cut ? " (interrupted)" : ""}`,
      ),
    );
    while (this.#liveRegion.childElementCount > 20) this.#liveRegion.firstElementChild.remove();
  }
}
