// The form fields of the models of an agent or a template.

export const AVATAR_PATH = "avatars[0]";
export const MODELS_PATH = `${AVATAR_PATH}.config`;

const ofType = (providers, type) => providers.filter((provider) => provider.provider_type === type);
const providerOptions = (providers, type) => [
  ["", "Default of this server"],
  ...ofType(providers, type)
    .filter((p) => p.provider !== "builtin")
    .map((p) => [p.provider, p.display_name]),
  ...ofType(providers, type)
    .filter((p) => p.provider === "builtin")
    .map((p) => [p.provider, p.display_name]),
];
/** The values of a field of all providers, each once. */
const fieldItems = (providers, type, field) => {
  const items = ofType(providers, type)
    .flatMap((p) => p.additional_fields)
    .filter((f) => f.name === field)
    .flatMap((f) => f.items);
  return [...new Map(items.map((item) => [item.value, item])).values()];
};

/** The options for the voice: the avatar's own, then all voices of this server. */
export function voiceOptions(providers) {
  return [
    ["", "The voice of the avatar"],
    ...fieldItems(providers, "tts", "voice_id").map(({ value, label }) => [
      value,
      `${label} (${value})`,
    ]),
  ];
}

/** The section about speech: TTS and STT. */
export function speechSection(providers) {
  return {
    id: "speech",
    title: "Voice and speech recognition",
    summary: "Voice, pronunciation, language",
    open: false,
    fields: [
      {
        path: `${MODELS_PATH}.tts.voice_id`,
        label: "Voice",
        kind: "select",
        options: voiceOptions(providers),
        emptyValue: null,
      },
      {
        path: `${MODELS_PATH}.tts.provider`,
        label: "TTS provider",
        kind: "select",
        options: providerOptions(providers, "tts"),
        emptyValue: null,
      },
      { path: `${MODELS_PATH}.tts.model_id`, label: "TTS model", emptyValue: null },
      { path: `${MODELS_PATH}.tts.token`, label: "TTS provider's key", kind: "secret" },
      {
        path: `${MODELS_PATH}.tts.sample_rate`,
        label: "Sample rate",
        kind: "number",
        unit: "Hz",
        placeholder: "default of the voice",
      },
      {
        path: `${MODELS_PATH}.tts.custom_pronunciation`,
        label: "Pronunciation",
        name: "Pronunciation",
        kind: "pairs",
        columns: ["word", "pronunciation"],
        labels: ["Word", "Spoken as"],
        singular: "word",
        class: "wide",
      },
      {
        path: `${MODELS_PATH}.stt.language`,
        label: "Language",
        emptyValue: null,
        suggestions: fieldItems(providers, "stt", "language").map((item) => item.value),
        hint: "Such as en.",
      },
      {
        path: `${MODELS_PATH}.stt.provider`,
        label: "STT provider",
        kind: "select",
        options: providerOptions(providers, "stt"),
        emptyValue: null,
      },
      { path: `${MODELS_PATH}.stt.model`, label: "STT model", emptyValue: null },
      { path: `${MODELS_PATH}.stt.fallback_model`, label: "Fallback STT model", emptyValue: null },
      { path: `${MODELS_PATH}.stt.token`, label: "STT provider's key", kind: "secret" },
    ],
  };
}

/** The LLM providers that have an address and a key. */
const KEYED_LLM_PROVIDERS = ["custom", "openai", "anthropic"];

/** The section about the language model. */
export function languageModelSection(providers) {
  const llmProvider = (get) => get(`${MODELS_PATH}.llm.provider`);
  return {
    id: "mind",
    title: "Language model",
    summary: "Model, context, memory",
    open: false,
    fields: [
      {
        path: `${MODELS_PATH}.llm.provider`,
        label: "Provider",
        kind: "select",
        options: providerOptions(providers, "llm"),
        emptyValue: null,
      },
      {
        path: `${MODELS_PATH}.llm.model`,
        label: "Model",
        emptyValue: null,
        placeholder: "default of the provider",
      },
      {
        path: `${MODELS_PATH}.llm.url`,
        label: "Address",
        type: "url",
        emptyValue: null,
        placeholder: "http://127.0.0.1:8000/v1",
        hint: "Base address of the server; of an OpenAI-compatible one, it ends in /v1.",
        visibleIf: (get) =>
          KEYED_LLM_PROVIDERS.includes(llmProvider(get)) || get(`${MODELS_PATH}.llm.url`),
      },
      {
        path: `${MODELS_PATH}.llm.token`,
        label: "Key",
        name: "Key",
        kind: "secret",
        hint: "Stored encrypted and never shown again.",
        visibleIf: (get) =>
          KEYED_LLM_PROVIDERS.includes(llmProvider(get)) || get(`${MODELS_PATH}.llm.token`),
      },
      {
        path: `${MODELS_PATH}.llm.fallback_model`,
        label: "Fallback model",
        emptyValue: null,
        hint: "Used if the first model fails.",
      },
      {
        path: "config.conversationalContext",
        label: "Context",
        kind: "area",
        rows: 3,
        class: "wide",
        hint: "Facts that every conversation starts with.",
      },
      {
        path: "config.memory.isEnabled",
        label: "Remember earlier conversations with the same user",
        kind: "check",
      },
      {
        path: "config.memory.instruction",
        label: "What to remember",
        kind: "area",
        rows: 2,
        class: "wide",
        visibleIf: (get) => get("config.memory.isEnabled"),
      },
    ],
  };
}
