// What this server can hear, think and speak with, and whether it is ready.

import * as api from "./api.js";
import { h, pill } from "./dom.js";
import { card, head } from "./ui.js";

const KINDS = [["stt", "Hearing"], ["llm", "Language models"], ["tts", "Voices"]];

async function readiness(signal) {
  const answer = await fetch("/readyz", { cache: "no-store", signal });
  const { reason } = await answer.json().catch(() => ({}));
  const says = answer.ok ? "Takes calls" : "Takes no calls";
  const look = answer.ok ? (reason ? "warn" : "good") : "bad";
  return pill(reason ? `${says}: ${reason}` : says, look);
}

/** An agent that names a provider without a key on the server must bring its own. */
const state = (provider) => {
  if (!provider.configured) return pill("Needs a key", "warn");
  return provider.provider === "custom" ? pill("Each agent names its server") : pill("Ready", "good");
};

const one = (provider) => h("li", {},
  h("div", { class: "what" },
    h("h3", {}, provider.display_name),
    h("p", { class: "soft" }, h("code", {}, provider.provider), provider.model && [" · model ", h("code", {}, provider.model)]),
    !provider.configured && h("p", { class: "soft" }, "Start the server with OPENAI_API_KEY, or give an agent a key of its own."),
    provider.additional_fields.map((field) => h("p", { class: "soft" }, `${field.label}: ${field.items.map((item) => item.label).join(" · ")}`))),
  state(provider));

export async function providersPage({ signal }) {
  const [providers, ready] = await Promise.all([api.get("/v1/ext/providers", signal), readiness(signal)]);
  return [
    head("Providers", "What agents on this server hear, think and speak with.", h("p", { class: "tags" }, ready)),
    ...KINDS.map(([kind, title]) => {
      const found = providers.filter((provider) => provider.provider_type === kind);
      return card(title, found.length ? h("ul", { class: "list inner" }, found.map(one)) : h("p", { class: "soft" }, "None."));
    }),
  ];
}
