// Shows captions as a list; a screen reader hears whole lines only, from a live region of its own.

import { reading } from "./captions.js";

function piece(tag, name, text) {
  const node = document.createElement(tag);
  if (name) node.className = name;
  node.textContent = text;
  return node;
}

export class CaptionsView {
  #list;
  #live;
  #empty;
  #items = new Map();
  #dirty = new Set();
  #who = { user: "You", agent: "Agent" };

  constructor({ list, live, empty }) {
    this.#list = list;
    this.#live = live;
    this.#empty = empty;
  }

  /** Names the agent, in what is already there too. */
  name(agent) {
    this.#who.agent = agent;
    for (const node of this.#list.querySelectorAll("li[data-who=agent] .who")) node.textContent = agent;
  }

  /** Draws a line with the next picture of the screen. */
  show(line, aloud = true) {
    if (this.#dirty.size === 0) requestAnimationFrame(() => this.#draw());
    this.#dirty.add(line);
    if (!line.open && aloud) this.#say(line);
  }

  #draw() {
    const list = this.#list;
    const follow = list.scrollHeight - list.scrollTop - list.clientHeight < 80;
    for (const line of this.#dirty) {
      const { spoken, partial, ahead, cut } = reading(line);
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
      const parts = [piece("span", "who", this.#who[line.who])];
      if (spoken) parts.push(piece("span", "spoken", spoken));
      if (partial) parts.push(" ", piece("span", "partial", partial));
      if (ahead) parts.push(" ", piece("span", "ahead", ahead));
      if (cut) parts.push(" ", piece("s", "cut", cut), piece("span", "unseen", " (interrupted)"));
      item.replaceChildren(...parts);
    }
    this.#dirty.clear();
    this.#empty.hidden = this.#items.size > 0;
    if (follow) list.scrollTop = list.scrollHeight;
  }

  #say(line) {
    const { spoken, cut } = reading(line);
    if (!spoken) return;
    this.#live.append(piece("p", "", `${this.#who[line.who]}: ${spoken}${cut ? " (interrupted)" : ""}`));
    while (this.#live.childElementCount > 20) this.#live.firstElementChild.remove();
  }
}
