// The transcript of a recording: highlights what is said at the player's position, keeps it in view,
// and seeks to the word that is clicked.
//
// One word is in the tab order, and the arrow keys move to the others. Only that word is a button
// for screen readers, so the rest reads as text. Nothing is announced while the recording plays.

import { UnitTracks } from "./timed-lines.js";

/** The transcript does not scroll by itself for this time after the user scrolled it. */
const MANUAL_SCROLL_MS = 4000;

export class TranscriptFollower {
  #pane;
  #units;
  #tracks;
  #seek;
  #current = [];
  #tabStop = null;
  #scrolledAt = Number.NEGATIVE_INFINITY;

  /**
   * @param {HTMLElement} pane scrolls, and contains the rendered lines
   * @param {any[]} lines with their units
   * @param {(seconds: number) => void} seek
   */
  constructor(pane, lines, seek) {
    this.#pane = pane;
    this.#seek = seek;
    this.setLines(lines);
    for (const name of ["wheel", "touchmove", "pointerdown", "keydown"])
      pane.addEventListener(
        name,
        () => {
          this.#scrolledAt = performance.now();
        },
        { passive: true },
      );
    pane.addEventListener("click", (event) => this.#onClick(event));
    pane.addEventListener("keydown", (event) => this.#onKeyDown(event));
  }

  /** The units of the lines are these from now on. Call `start` once the lines are rendered. */
  setLines(lines) {
    this.#units = lines.flatMap((line) => (line.removed ? [] : (line.units ?? [])));
    this.#tracks = new UnitTracks(lines.filter((line) => !line.removed));
    for (const node of this.#current) node.classList.remove("current");
    this.#current = [];
    this.#moveTabStop(null);
  }

  /** Highlights what is said at a time in seconds. `playing`: and keeps it in view. */
  show(seconds, playing) {
    const found = this.#tracks.at(seconds);
    const nodes = found.map(({ unit }) => unit.node).filter(Boolean);
    if (nodes.length === this.#current.length && nodes.every((n, i) => n === this.#current[i]))
      return;
    for (const node of this.#current) node.classList.remove("current");
    for (const node of nodes) node.classList.add("current");
    this.#current = nodes;
    if (nodes.length && !this.#pane.contains(document.activeElement)) this.#moveTabStop(nodes[0]);
    if (nodes.length && playing) this.#keepInView(nodes.at(-1));
  }

  /** Puts the first word into the tab order. Call it once the lines are rendered. */
  start() {
    const first = this.#units.find((unit) => unit.node)?.node;
    if (first && !this.#tabStop) this.#moveTabStop(first);
  }

  #keepInView(node) {
    if (performance.now() - this.#scrolledAt < MANUAL_SCROLL_MS) return;
    const [outer, inner] = [this.#pane.getBoundingClientRect(), node.getBoundingClientRect()];
    const margin = Math.min(48, outer.height / 4);
    if (inner.top >= outer.top + margin && inner.bottom <= outer.bottom - margin) return;
    // Only the pane scrolls: the player must stay where it is.
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.#pane.scrollBy({
      top: inner.top - outer.top - outer.height / 3,
      behavior: still ? "instant" : "smooth",
    });
  }

  #unitOf(target) {
    const node = target.closest?.(".unit");
    return node ? this.#units.find((unit) => unit.node === node) : undefined;
  }

  #onClick({ target }) {
    const button = target.closest("button[data-seconds]");
    if (button) return this.#seek(Number(button.dataset.seconds));
    const unit = this.#unitOf(target);
    // The end of a selection is no click.
    if (!unit || !getSelection().isCollapsed) return;
    this.#moveTabStop(unit.node);
    unit.node.focus({ preventScroll: true });
    this.#seek(unit.start);
  }

  #onKeyDown(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const unit = this.#unitOf(event.target);
    if (!unit) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.#seek(unit.start);
      return;
    }
    const index = this.#units.indexOf(unit);
    const next = {
      ArrowRight: () => this.#units[index + 1],
      ArrowLeft: () => this.#units[index - 1],
      ArrowDown: () => this.#ofOtherLine(index, 1),
      ArrowUp: () => this.#ofOtherLine(index, -1),
      Home: () => this.#units[0],
      End: () => this.#units.at(-1),
    }[event.key]?.();
    if (!next) return;
    event.preventDefault();
    this.#moveTabStop(next.node);
    next.node.focus();
  }

  /** The first unit of the next line (`step` 1) or the previous one (-1). */
  #ofOtherLine(index, step) {
    const lineOf = (unit) => unit?.node.closest("li");
    let i = index;
    while (lineOf(this.#units[i]) === lineOf(this.#units[index])) i += step;
    if (!this.#units[i]) return undefined;
    const other = lineOf(this.#units[i]);
    return this.#units.find((unit) => lineOf(unit) === other);
  }

  #moveTabStop(node) {
    if (this.#tabStop === node) return;
    if (this.#tabStop) {
      this.#tabStop.tabIndex = -1;
      this.#tabStop.removeAttribute("role");
      this.#tabStop.removeAttribute("aria-label");
    }
    this.#tabStop = node;
    if (!node) return;
    node.tabIndex = 0;
    node.setAttribute("role", "button");
    node.setAttribute("aria-label", `Play from “${node.textContent}”`);
  }
}
