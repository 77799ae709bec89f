// The latency of each turn and its stages, as bars on one scale.

import { h } from "./dom.js";

/** Field of a turn, column title, tooltip. */
const STAGES = [
  ["endpointing", "Turn end", "From the last sound of the caller until the agent knew that they had finished"],
  ["stt", "Hearing", "From the last sound of the caller to the last words understood; runs within the turn end"],
  ["llm_ttft", "Model", "From asking the language model to its first word"],
  ["tts_ttfb", "Voice", "From asking the voice to its first sound"],
  ["playout", "Playout", "From the first sound there to the first sound sent"],
  ["barge_in", "Yielding", "Where the caller cut in: from their first sound until the agent was silent"],
];

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const formatSeconds = (seconds) => (isNumber(seconds) ? (seconds >= 10 ? `${seconds.toFixed(1)} s` : `${Math.round(seconds * 1000)} ms`) : "–");

/** A bar of `value` seconds on a scale from 0 to `maximum`. */
function latencyBar(value, maximum, stage) {
  const fill = h("span", { class: `fill ${stage}` });
  fill.style.setProperty("--fraction", isNumber(value) && maximum > 0 ? String(Math.min(1, Math.max(0, value) / maximum)) : "0");
  return h("span", { class: "latency", "aria-hidden": "true" }, fill);
}

/**
 * @param {object[]} turns the response of `GET …/turns`
 * @param {string[]} userTexts the caller's text of each turn, if known
 */
export function turnTable(turns, userTexts = []) {
  if (!turns.length) return [h("p", { class: "soft" }, "No turn was taken yet. Times appear here after the agent's first answer.")];
  const maximum = Math.max(0.001, ...turns.flatMap((turn) => [turn.voice_to_voice, ...STAGES.map(([field]) => turn[field])]).filter(isNumber));
  const totals = turns.map((turn) => turn.voice_to_voice).filter(isNumber).sort((a, b) => a - b);
  const median = totals.length ? totals[Math.ceil(totals.length / 2) - 1] : null;
  const row = (turn, i) => h("tr", {},
    h("th", { scope: "row" }, h("span", { class: "number" }, `${(turn.turn ?? i) + 1}`), userTexts[turn.turn ?? i] && h("span", { class: "soft clip" }, userTexts[turn.turn ?? i])),
    h("td", { "data-label": "Until the answer" }, h("strong", {}, formatSeconds(turn.voice_to_voice)), latencyBar(turn.voice_to_voice, maximum, "total")),
    STAGES.map(([field, name]) => h("td", { "data-label": name }, formatSeconds(turn[field]), latencyBar(turn[field], maximum, field))));
  return [
    median !== null && h("p", {}, "Half of the answers began within ", h("strong", {}, formatSeconds(median)), " of the caller's last sound; the slowest took ", h("strong", {}, formatSeconds(totals.at(-1))), "."),
    h("div", { class: "card flush" }, h("table", { class: "turns" }, h("caption", { class: "visually-hidden" }, "Time of each turn"),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Turn"), h("th", { scope: "col" }, "Until the answer"), STAGES.map(([, name, description]) => h("th", { scope: "col", title: description }, name)))),
      h("tbody", {}, turns.map(row)))),
    h("p", { class: "hint" }, "All bars have one scale. Stages overlap: the model is often asked before the turn's end is certain, so they need not add up to the whole."),
  ].filter(Boolean);
}
