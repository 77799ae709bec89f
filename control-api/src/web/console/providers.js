// The STT, LLM and TTS providers of this server, and whether the server is ready.

import * as api from "./api.js";
import { credentialsCard, keyDialog } from "./credentials.js";
import { button, h, pill } from "./dom.js";
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
  if (provider.source === "workspace") return pill("Your key", "good");
  if (provider.source === "none") return pill("Configured per agent");
  return pill("Ready", "good");
};

const providerItem = (provider, storeKey) =>
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
          "Start the server with ",
          provider.key_variables.map((name, n) => [n > 0 && " or ", h("code", {}, name)]),
          ", store a key of this workspace, or set one in the agent.",
        ),
      provider.additional_fields.map((field) =>
        h(
          "p",
          { class: "soft" },
          `${field.label}: ${field.items.map((item) => item.label).join(" · ")}`,
        ),
      ),
    ),
    !provider.configured &&
      button("Store a key", {
        needs: "administer",
        class: "small",
        "aria-label": `Store a key of ${provider.display_name}`,
        onclick: () => storeKey(provider.provider),
      }),
    configurationPill(provider),
  );

export async function providersPage({ signal, reloadView }) {
  const [providers, credentials, readinessPill] = await Promise.all([
    api.get("/v1/ext/providers", signal),
    api.get("/v1/ext/credentials", signal),
    readiness(signal),
  ]);
  const storeKey = async (name) => {
    if (await keyDialog(providers, null, name)) await reloadView();
  };
  return [
    pageHeader(
      "Providers",
      "The STT, language models and TTS that agents on this server can use.",
      h("p", { class: "tags" }, readinessPill),
    ),
    credentialsCard(credentials, providers, reloadView),
    ...KINDS.map(([kind, title]) => {
      const ofKind = providers.filter((provider) => provider.provider_type === kind);
      return card(
        title,
        ofKind.length
          ? h(
              "ul",
              { class: "list inner" },
              ofKind.map((provider) => providerItem(provider, storeKey)),
            )
          : h("p", { class: "soft" }, "None."),
      );
    }),
  ];
}
