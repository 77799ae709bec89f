// The test of an agent's providers: one real request to each, with the latency or the error.

import * as api from "./api.js";
import { button, h, pill } from "./dom.js";
import { runBusy } from "./ui.js";

/** @type {[string, string, string][]} */
const STEPS = [
  ["tts", "Voice", "Speaks a sentence"],
  ["stt", "Speech recognition", "Transcribes it"],
  ["llm", "Language model", "Answers a question"],
];

function stepItem([kind, title, task], result) {
  const state = result.error ? pill("Failed", "bad") : pill(`${result.latency_ms} ms`, "good");
  return h(
    "li",
    { data: { step: kind } },
    h(
      "div",
      { class: "item-text" },
      h("h3", {}, title),
      h("p", { class: "soft" }, task, " · ", h("code", {}, result.provider)),
      result.error
        ? h("p", { class: "fault" }, api.toSentence(result.error))
        : result.text && h("p", {}, `“${result.text}”`),
    ),
    state,
  );
}

/**
 * The button and its results. `models()` returns the `{stt, llm, tts}` of the form, which need not
 * be saved. `agentId`: the agent whose stored keys are used.
 */
export function chainTest(models, agentId) {
  const results = h("ul", { class: "list inner steps" });
  const status = h("p", { class: "soft", role: "status" });
  const node = h(
    "div",
    { class: "chain-test" },
    button("Test the chain", {
      needs: "administer",
      id: "test-chain",
      onclick: ({ currentTarget }) =>
        runBusy(currentTarget, async () => {
          results.replaceChildren();
          status.textContent = "Testing: this takes some seconds …";
          try {
            const body = { ...models(), agent_id: agentId };
            const tested = await api.post("/v1/ext/providers/test", body);
            results.replaceChildren(...STEPS.map((step) => stepItem(step, tested[step[0]])));
            const failed = STEPS.filter(([kind]) => tested[kind].error);
            status.textContent = failed.length
              ? `Failed: ${failed.map(([, title]) => title).join(", ")}.`
              : "All three work.";
          } catch (error) {
            if (!(error instanceof api.ApiError)) throw error;
            status.textContent = error.details.length
              ? error.details
                  .map(({ field, reason }) => api.toSentence(`${field} ${reason}`))
                  .join(" ")
              : error.userMessage;
          }
        }),
    }),
    status,
    results,
  );
  return node;
}
