// The timeline of a recording: when each side spoke, and the turns with their latencies. Each turn
// is a button with a text. Lengths are CSS calculations with the duration (`--duration`) and the
// position (`--now`) of the player.

import { formatDuration, h } from "./dom.js";
import { formatSeconds } from "./turns.js";

const STAGES = [
  ["endpointing", "endpointing"],
  ["llm_ttft", "LLM"],
  ["tts_ttfb", "TTS"],
  ["playout", "playout"],
];

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

export class RecordingTimeline {
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
    const lane = (name, roles) =>
      h(
        "div",
        { class: `lane ${name}` },
        messages
          .filter(({ role, duration }) => roles.includes(role) && duration > 0)
          .map(({ seconds_from_start: from, duration }) => place(h("span"), from, from + duration)),
      );
    /** The lanes, for the player to lay its slider over. */
    this.track = h(
      "div",
      { class: "track", "aria-hidden": "true" },
      lane("user", ["user", "visitor"]),
      lane("agent", ["assistant"]),
      h("span", { class: "playhead" }),
    );
    /** The marks, to be as wide as the lanes. */
    this.marks = h("ol", { class: "marks", "aria-label": "Turns", hidden: true });
    /** Describes the turn that the user points at, otherwise the one at the player's position. */
    this.text = h("p", { class: "hint mark-text", hidden: true });
  }

  /** @param {any[]} turns the response of `GET …/turns` */
  setTurns(turns) {
    this.#marks = turns.map(turnMark).filter(Boolean);
    this.marks.hidden = this.text.hidden = !this.#marks.length;
    this.marks.replaceChildren(
      ...this.#marks.map((mark, i) => {
        mark.button = place(
          h("button", {
            type: "button",
            class: mark.interrupted === null ? "mark-button" : "mark-button interrupted",
            tabindex: i ? "-1" : "0",
            "aria-label": mark.text,
            onclick: () => this.#seek(mark.from),
            onfocus: () => this.#point(mark),
            onblur: () => this.#point(null),
            onpointerenter: () => this.#point(mark),
            onpointerleave: () => this.#point(null),
            onkeydown: (event) => this.#onKeyDown(event, i),
          }),
          mark.from,
          mark.to,
        );
        return h("li", {}, mark.button);
      }),
    );
    const cuts = this.#marks.filter(({ interrupted }) => interrupted !== null);
    this.track.append(
      ...cuts.map(({ interrupted }) => place(h("span", { class: "cut-mark" }), interrupted)),
    );
    this.setDuration(this.#duration);
    this.show(0);
  }

  /** Hides the turns after the end of the file, whose recording may have ended before the call. */
  setDuration(seconds) {
    this.#duration = seconds;
    for (const { button, from } of this.#marks) button.parentElement.hidden = from > seconds;
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

  #point(mark) {
    this.#pointed = mark;
    this.#describe();
  }

  #describe() {
    const mark = this.#pointed ?? this.#shown;
    this.text.textContent =
      mark?.text ?? "Each mark is a turn, as long as the caller waited for the answer.";
  }

  #onKeyDown(event, index) {
    const next = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: -1 }[event.key];
    if (next === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const visible = this.#marks.filter(({ from }) => from <= this.#duration);
    const mark = event.key === "End" ? visible.at(-1) : visible[next];
    if (!mark) return;
    for (const { button } of this.#marks) button.tabIndex = button === mark.button ? 0 : -1;
    mark.button.focus();
  }
}

/** Positions an element from one time to another, in seconds. */
function place(node, from, to = from) {
  node.style.setProperty("--from", String(from));
  node.style.setProperty("--to", String(to));
  return node;
}
