// The latency of each turn and its stages, as bars on one scale.

import { h } from "./dom.js";

/** Field of a turn, column title, tooltip. */
const STAGES = [
  ["endpointing", "Endpointing", "From the end of the caller's speech to the end of the turn"],
  [
    "stt",
    "STT",
    "From the end of the caller's speech to the final transcript; part of endpointing",
  ],
  ["llm_ttft", "LLM", "From the request to the language model to its first token"],
  ["tts_ttfb", "TTS", "From the request to the TTS to its first audio"],
  ["playout", "Playout", "From the first audio of the TTS to the first audio sent"],
  [
    "barge_in",
    "Barge-in",
    "If the caller interrupted: from the start of their speech until the agent was silent",
  ],
];

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
/** Formats the length of a stage: `640 ms` or `12.3 s`; `–` if it is unknown. */
export const formatSeconds = (seconds) =>
  isNumber(seconds)
    ? seconds >= 10
      ? `${seconds.toFixed(1)} s`
      : `${Math.round(seconds * 1000)} ms`
    : "–";

/** A bar of `value` seconds on a scale from 0 to `maximum`. */
function latencyBar(value, maximum, stage) {
  const fill = h("span", { class: `fill ${stage}` });
  fill.style.setProperty(
    "--fraction",
    isNumber(value) && maximum > 0 ? String(Math.min(1, Math.max(0, value) / maximum)) : "0",
  );
  return h("span", { class: "latency", "aria-hidden": "true" }, fill);
}

/**
 * @param {Record<string, any>[]} turns the response of `GET …/turns`
 * @param {string[]} userTexts the caller's text of each turn, if known
 */
export function turnTable(turns, userTexts = []) {
  if (!turns.length)
    return [
      h("p", { class: "soft" }, "No turns yet. Times appear here after the agent's first answer."),
    ];
  const maximum = Math.max(
    0.001,
    ...turns
      .flatMap((turn) => [turn.voice_to_voice, ...STAGES.map(([field]) => turn[field])])
      .filter(isNumber),
  );
  const totals = turns
    .map((turn) => turn.voice_to_voice)
    .filter(isNumber)
    .sort((a, b) => a - b);
  const median = totals.length ? totals[Math.ceil(totals.length / 2) - 1] : null;
  const row = (turn, i) =>
    h(
      "tr",
      {},
      h(
        "th",
        { scope: "row" },
        h("span", { class: "number" }, `${(turn.turn ?? i) + 1}`),
        userTexts[turn.turn ?? i] && h("span", { class: "soft clip" }, userTexts[turn.turn ?? i]),
      ),
      h(
        "td",
        { "data-label": "Response time" },
        h("strong", {}, formatSeconds(turn.voice_to_voice)),
        latencyBar(turn.voice_to_voice, maximum, "total"),
      ),
      STAGES.map(([field, name]) =>
        h(
          "td",
          { "data-label": name },
          formatSeconds(turn[field]),
          latencyBar(turn[field], maximum, field),
        ),
      ),
    );
  return [
    median !== null &&
      h(
        "p",
        {},
        "Half of the answers started within ",
        h("strong", {}, formatSeconds(median)),
        " of the end of the caller's speech; the slowest took ",
        h("strong", {}, formatSeconds(totals.at(-1))),
        ".",
      ),
    h(
      "div",
      { class: "card flush" },
      h(
        "table",
        { class: "turns" },
        h("caption", { class: "visually-hidden" }, "Time of each turn"),
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", { scope: "col" }, "Turn"),
            h("th", { scope: "col" }, "Response time"),
            STAGES.map(([, name, description]) =>
              h("th", { scope: "col", title: description }, name),
            ),
          ),
        ),
        h("tbody", {}, turns.map(row)),
      ),
    ),
    h(
      "p",
      { class: "hint" },
      "All bars have the same scale. Stages overlap: the model is often requested before the " +
        "turn has ended, so their sum can differ from the response time.",
    ),
  ].filter(Boolean);
}
