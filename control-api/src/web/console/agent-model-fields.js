// The form fields of the models of an agent or a template.

export const AVATAR_PATH = "avatars[0]";
export const MODELS_PATH = `${AVATAR_PATH}.config`;

const ofType = (providers, type) => providers.filter((provider) => provider.provider_type === type);

/** The names of the providers of a kind: those that work first, those without a key last. */
const providerNames = (providers, type) => {
  const all = ofType(providers, type);
  const rank = (p) => (p.configured ? (p.source === "builtin" ? 1 : 0) : 2);
  return [0, 1, 2].flatMap((wanted) =>
    all
      .filter((p) => rank(p) === wanted)
      .map((p) => [p.provider, p.configured ? p.display_name : `${p.display_name} (needs a key)`]),
  );
};
const providerOptions = (providers, type) => [
  ["", "Default of this server"],
  ...providerNames(providers, type),
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

/** The fields of one kind that depend on the provider that the form names. */
function dependent(providers, type) {
  const path = (name) => `${MODELS_PATH}.${type}.${name}`;
  const selected = (get) => {
    const name = get(path("provider"));
    return ofType(providers, type).find((p) => p.provider === name) ?? null;
  };
  const items = (get, field) =>
    selected(get)?.additional_fields.find((f) => f.name === field)?.items ?? [];
  /** Whether the provider has an address and a key. */
  const isHosted = (get) => Boolean(get(path("provider"))) && selected(get)?.source !== "builtin";
  return {
    model: (name, label) => ({
      path: path(name),
      label,
      emptyValue: null,
      suggestions: (get) => items(get, name),
      placeholderFor: (get) => selected(get)?.model || "default of the provider",
    }),
    language: (label, hint) => ({
      path: path("language"),
      label,
      emptyValue: null,
      suggestions: (get) =>
        selected(get) ? items(get, "language") : fieldItems(providers, type, "language"),
      hint,
    }),
    url: (label, hint) => ({
      path: path("url"),
      label,
      type: "url",
      emptyValue: null,
      placeholder: "the provider's own",
      hint,
      visibleIf: (get) => isHosted(get) || get(path("url")),
    }),
    token: (label) => ({
      path: path("token"),
      label,
      name: "Key",
      kind: "secret",
      placeholder: "the workspace's or the server's",
      hint: "Stored encrypted and never shown again.",
      visibleIf: (get) => isHosted(get) || get(path("token")),
    }),
    fallbacks: (label, parts) => ({
      path: path("fallback"),
      label,
      kind: "fallbacks",
      options: providerNames(providers, type),
      parts,
      class: "wide",
      hint: "Used in this order if the provider above fails, with the keys of the workspace or the server.",
    }),
  };
}

/** The section about speech: TTS and STT. */
export function speechSection(providers) {
  const [tts, stt] = [dependent(providers, "tts"), dependent(providers, "stt")];
  const names = new Map(ofType(providers, "tts").map((p) => [p.provider, p.display_name]));
  return {
    id: "speech",
    title: "Voice and speech recognition",
    summary: "Voice, pronunciation, language",
    open: false,
    fields: [
      {
        path: `${MODELS_PATH}.tts.provider`,
        label: "TTS provider",
        kind: "select",
        options: providerOptions(providers, "tts"),
        emptyValue: null,
      },
      tts.model("model_id", "TTS model"),
      {
        path: `${MODELS_PATH}.tts.voice_id`,
        label: "Voice",
        kind: "voice",
        class: "wide",
        placeholder: "the voice of the avatar, or the provider's default",
        model: (get) => ({
          provider: get(`${MODELS_PATH}.tts.provider`) ?? "",
          model_id: get(`${MODELS_PATH}.tts.model_id`) ?? null,
          language: get(`${MODELS_PATH}.tts.language`) ?? null,
          avatar_key_id: get("avatars[0].avatar_key_id") ?? null,
        }),
        providerName: (provider) => names.get(provider) ?? (provider || "default of this server"),
      },
      tts.language("Language of the voice", "Empty: the language of the speech recognition."),
      tts.url("Address of the TTS"),
      tts.token("TTS provider's key"),
      tts.fallbacks("Fallback voices", [
        ["model_id", "Model"],
        ["voice_id", "Voice"],
      ]),
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
        path: `${MODELS_PATH}.stt.provider`,
        label: "STT provider",
        kind: "select",
        options: providerOptions(providers, "stt"),
        emptyValue: null,
      },
      stt.model("model", "STT model"),
      stt.language("Language", "Such as en."),
      { path: `${MODELS_PATH}.stt.fallback_model`, label: "Fallback STT model", emptyValue: null },
      stt.url("Address of the STT"),
      stt.token("STT provider's key"),
      stt.fallbacks("Fallback speech recognition", [["model", "Model"]]),
    ],
  };
}

/** The section about the language model. */
export function languageModelSection(providers) {
  const llm = dependent(providers, "llm");
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
      llm.model("model", "Model"),
      llm.url(
        "Address",
        "Base address of the server; of an OpenAI-compatible one, it ends in /v1.",
      ),
      llm.token("Key"),
      {
        path: `${MODELS_PATH}.llm.fallback_model`,
        label: "Fallback model",
        emptyValue: null,
        hint: "Used if the first model fails.",
      },
      llm.fallbacks("Fallback language models", [["model", "Model"]]),
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

/** The fields of an LLM server that was chosen for the form. */
export const llmValues = ({ provider, model, url }) => ({
  [`${MODELS_PATH}.llm.provider`]: provider,
  [`${MODELS_PATH}.llm.model`]: model,
  [`${MODELS_PATH}.llm.url`]: url,
});
