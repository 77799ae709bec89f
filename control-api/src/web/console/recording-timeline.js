// The timeline of a recording: when each side spoke, and the turns with their latencies. Each bar of
// a speaker and each turn is a button with a text. The slider of the player lies over the bars, so a
// pointer seeks to any position, and the bars are for keyboards and screen readers. Lengths are CSS
// calculations with the duration (`--duration`) and the position (`--now`) of the player.

import { formatDuration, h } from "./dom.js";
import { formatSeconds } from "./turns.js";

const STAGES = [
  ["endpointing", "endpointing"],
  ["llm_ttft", "LLM"],
  ["tts_ttfb", "TTS"],
  ["playout", "playout"],
];

const SPEAKERS = { user: "Caller", visitor: "Caller", assistant: "Agent" };
/** Characters of a message in the text of its bar. */
const TEXT_LENGTH = 80;

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

/**
 * Where a turn stands in the recording, in seconds, and its description. `from`: the end of the
 * user's speech, `to`: the first sample of the answer. Null if no time of it is known.
 */
export function turnMark(turn, index) {
  const times = turn.timeline ?? {};
  const from = [times.speech_end, times.committed, times.first_sample].find(isNumber);
  if (from === undefined) return null;
  const to = isNumber(times.first_sample) ? Math.max(from, times.first_sample) : from;
  const stages = STAGES.filter(([field]) => isNumber(turn[field])).map(
    ([field, name]) => `${name} ${formatSeconds(turn[field])}`,
  );
  const answered = isNumber(turn.voice_to_voice)
    ? `answered after ${formatSeconds(turn.voice_to_voice)}`
    : isNumber(times.first_sample)
      ? "answered"
      : "not answered";
  const cut = isNumber(times.interrupted)
    ? `; interrupted at ${formatDuration(Math.floor(times.interrupted))}` +
      (isNumber(turn.barge_in) ? `, silent after ${formatSeconds(turn.barge_in)}` : "")
    : "";
  return {
    from,
    to,
    interrupted: isNumber(times.interrupted) ? times.interrupted : null,
    text:
      `Turn ${(turn.turn ?? index) + 1} at ${formatDuration(Math.floor(from))}: ${answered}` +
      `${stages.length ? ` (${stages.join(", ")})` : ""}${cut}.`,
  };
}

/**
 * The bars of the spoken messages in the order of their starts: times in seconds, and descriptions.
 * A message without a duration was typed.
 */
export function speechBars(messages) {
  return messages
    .filter(({ role, duration }) => SPEAKERS[role] && duration > 0)
    .map(({ role, seconds_from_start: from, duration, content, interrupted }) => {
      const said =
        content.length > TEXT_LENGTH ? `${content.slice(0, TEXT_LENGTH).trimEnd()}…` : content;
      const cut = interrupted ? ", interrupted" : "";
      return {
        speaker: SPEAKERS[role],
        from,
        to: from + duration,
        text:
          `${SPEAKERS[role]} at ${formatDuration(Math.floor(from))} for ` +
          `${duration.toFixed(1)} s${cut}: ${said}`,
      };
    })
    .sort((a, b) => a.from - b.from);
}

export class RecordingTimeline {
  #bars;
  #marks = [];
  #duration = Number.POSITIVE_INFINITY;
  #pointed = null;
  #shown = null;
  #seek;

  /**
   * @param {any[]} messages of the record
   * @param {(seconds: number) => void} seek
   */
  constructor(messages, seek) {
    this.#seek = seek;
    this.#bars = speechBars(messages);
    this.#bars.forEach((bar, i) => {
      bar.button = this.#button(bar, "bar", i, this.#bars);
    });
    const lane = (name, speaker) =>
      h(
        "ol",
        { class: `lane ${name}`, "aria-label": speaker },
        this.#bars.filter((bar) => bar.speaker === speaker).map((bar) => h("li", {}, bar.button)),
      );
    /** The lanes, for the player to lay its slider over. */
    this.track = h(
      "div",
      { class: "track" },
      lane("user", "Caller"),
      lane("agent", "Agent"),
      h("span", { class: "playhead", "aria-hidden": "true" }),
    );
    /** The marks, to be as wide as the lanes. */
    this.marks = h("ol", { class: "marks", "aria-label": "Turns", hidden: true });
    /** Describes what the user points at, otherwise the turn at the player's position. */
    this.text = h("p", { class: "hint mark-text", hidden: true });
  }

  /** @param {any[]} turns the response of `GET …/turns` */
  setTurns(turns) {
    this.#marks = turns.map(turnMark).filter(Boolean);
    this.marks.hidden = !this.#marks.length;
    this.marks.replaceChildren(
      ...this.#marks.map((mark, i) => {
        const name = mark.interrupted === null ? "mark-button" : "mark-button interrupted";
        mark.button = this.#button(mark, name, i, this.#marks);
        return h("li", {}, mark.button);
      }),
    );
    const cuts = this.#marks.filter(({ interrupted }) => interrupted !== null);
    this.track.append(
      ...cuts.map(({ interrupted }) =>
        place(h("span", { class: "cut-mark", "aria-hidden": "true" }), interrupted),
      ),
    );
    this.setDuration(this.#duration);
    this.show(0);
  }

  /** Hides what is after the end of the file, whose recording may have ended before the call. */
  setDuration(seconds) {
    this.#duration = seconds;
    for (const { button, from } of [...this.#bars, ...this.#marks])
      button.parentElement.hidden = from > seconds;
  }

  /** Describes the turn at a time in seconds: the last one that had begun. */
  show(seconds) {
    const current = this.#marks.findLast((mark) => mark.from <= seconds) ?? null;
    if (current !== this.#shown) {
      this.#shown?.button.classList.remove("current");
      current?.button.classList.add("current");
      this.#shown = current;
      this.#describe();
    } else if (!this.text.textContent) this.#describe();
  }

  /** A button of a row with one place in the tab order; arrow keys move within the row. */
  #button(item, name, index, row) {
    const node = h("button", {
      type: "button",
      class: name,
      tabindex: index ? "-1" : "0",
      "aria-label": item.text,
      onclick: () => this.#seek(item.from),
      onfocus: () => this.#point(item),
      onblur: () => this.#point(null),
      onpointerenter: () => this.#point(item),
      onpointerleave: () => this.#point(null),
      onkeydown: (event) => this.#onKeyDown(event, index, row),
    });
    return place(node, item.from, item.to);
  }

  #point(item) {
    this.#pointed = item;
    this.#describe();
  }

  #describe() {
    const item = this.#pointed ?? this.#shown;
    this.text.hidden = !this.#marks.length && !item;
    this.text.textContent =
      item?.text ?? "Each mark is a turn, as long as the caller waited for the answer.";
  }

  #onKeyDown(event, index, row) {
    const next = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: -1 }[event.key];
    if (next === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const visible = row.filter(({ from }) => from <= this.#duration);
    const item = event.key === "End" ? visible.at(-1) : visible[next];
    if (!item) return;
    for (const { button } of row) button.tabIndex = button === item.button ? 0 : -1;
    item.button.focus();
  }
}

/** Positions an element from one time to another, in seconds. */
function place(node, from, to = from) {
  node.style.setProperty("--from", String(from));
  node.style.setProperty("--to", String(to));
  return node;
}
