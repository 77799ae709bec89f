// The STT, LLM and TTS providers of this server, and whether the server is ready.

import * as api from "./api.js";
import { h, pill } from "./dom.js";
import { card, pageHeader } from "./ui.js";

const KINDS = [["stt", "Hearing"], ["llm", "Language models"], ["tts", "Voices"]];

async function readiness(signal) {
  const response = await fetch("/readyz", { cache: "no-store", signal });
  const { reason } = await response.json().catch(() => ({}));
  const text = response.ok ? "Takes calls" : "Takes no calls";
  const tone = response.ok ? (reason ? "warn" : "good") : "bad";
  return pill(reason ? `${text}: ${reason}` : text, tone);
}

/** Without a key on the server, an agent that uses the provider needs a key of its own. */
const configurationPill = (provider) => {
  if (!provider.configured) return pill("Needs a key", "warn");
  return provider.provider === "custom" ? pill("Each agent names its server") : pill("Ready", "good");
};

const providerItem = (provider) => h("li", {},
  h("div", { class: "item-text" },
    h("h3", {}, provider.display_name),
    h("p", { class: "soft" }, h("code", {}, provider.provider), provider.model && [" · model ", h("code", {}, provider.model)]),
    !provider.configured && h("p", { class: "soft" }, "Start the server with OPENAI_API_KEY, or give an agent a key of its own."),
    provider.additional_fields.map((field) => h("p", { class: "soft" }, `${field.label}: ${field.items.map((item) => item.label).join(" · ")}`))),
  configurationPill(provider));

export async function providersPage({ signal }) {
  const [providers, readinessPill] = await Promise.all([api.get("/v1/ext/providers", signal), readiness(signal)]);
  return [
    pageHeader("Providers", "What agents on this server hear, think and speak with.", h("p", { class: "tags" }, readinessPill)),
    ...KINDS.map(([kind, title]) => {
      const ofKind = providers.filter((provider) => provider.provider_type === kind);
      return card(title, ofKind.length ? h("ul", { class: "list inner" }, ofKind.map(providerItem)) : h("p", { class: "soft" }, "None."));
    }),
  ];
}
