// The STT, LLM and TTS providers of this server, and whether the server is ready.

import * as api from "./api.js";
import { h, pill } from "./dom.js";
import { card, pageHeader } from "./ui.js";

const KINDS = [
  ["stt", "Speech to text"],
  ["llm", "Language models"],
  ["tts", "Text to speech"],
];

async function readiness(signal) {
  const response = await fetch("/readyz", { cache: "no-store", signal });
  const { reason } = await response.json().catch(() => ({}));
  const text = response.ok ? "Accepts calls" : "Accepts no calls";
  const tone = response.ok ? (reason ? "warn" : "good") : "bad";
  return pill(reason ? `${text}: ${reason}` : text, tone);
}

/** Without a key on the server, an agent that uses the provider needs a key of its own. */
const configurationPill = (provider) => {
  if (!provider.configured) return pill("Needs a key", "warn");
  return provider.provider === "custom" ? pill("Configured per agent") : pill("Ready", "good");
};

const providerItem = (provider) =>
  h(
    "li",
    {},
    h(
      "div",
      { class: "item-text" },
      h("h3", {}, provider.display_name),
      h(
        "p",
        { class: "soft" },
        h("code", {}, provider.provider),
        provider.model && [" · model ", h("code", {}, provider.model)],
      ),
      !provider.configured &&
        h(
          "p",
          { class: "soft" },
          `Start the server with ${provider.provider.toUpperCase()}_API_KEY, or set a key in the agent.`,
        ),
      provider.additional_fields.map((field) =>
        h(
          "p",
          { class: "soft" },
          `${field.label}: ${field.items.map((item) => item.label).join(" · ")}`,
        ),
      ),
    ),
    configurationPill(provider),
  );

export async function providersPage({ signal }) {
  const [providers, readinessPill] = await Promise.all([
    api.get("/v1/ext/providers", signal),
    readiness(signal),
  ]);
  return [
    pageHeader(
      "Providers",
      "The STT, language models and TTS that agents on this server can use.",
      h("p", { class: "tags" }, readinessPill),
    ),
    ...KINDS.map(([kind, title]) => {
      const ofKind = providers.filter((provider) => provider.provider_type === kind);
      return card(
        title,
        ofKind.length
          ? h("ul", { class: "list inner" }, ofKind.map(providerItem))
          : h("p", { class: "soft" }, "None."),
      );
    }),
  ];
}
