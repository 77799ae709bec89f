// All fields of an agent (and of a template), in the words of a person, by their paths in the record.

const AVATAR = "avatars[0]";
const MODELS = `${AVATAR}.config`;
/** The endpointing delays of each `turn_handling`: what counts where a field is left empty. */
const DELAYS = { proactive: [0.3, 2], balanced: [0.4, 3], deliberate: [0.8, 5] };

const EVENTS = ["user.started_speaking", "user.stopped_speaking", "utterance_committed", "agent.started_speaking", "agent.stopped_speaking", "agent.interrupted", "tool_call", "max_call_duration_warning", "max_call_duration_timeout", "participant_left", "call_ended"];

const of = (providers, type) => providers.filter((provider) => provider.provider_type === type);
const names = (providers, type) => [["", "This server's own"], ...of(providers, type).filter((p) => p.provider !== "builtin").map((p) => [p.provider, p.display_name]), ...of(providers, type).filter((p) => p.provider === "builtin").map((p) => [p.provider, p.display_name])];
const items = (providers, type, field) => of(providers, type).flatMap((p) => p.additional_fields).filter((f) => f.name === field).flatMap((f) => f.items);

/** Voices of this server, and "as the avatar". */
export function voices(providers) {
  return [["", "The server's choice"], ...items(providers, "tts", "voice_id").map(({ value, label }) => [value, `${label} (${value})`])];
}

const attached = (path, label, records) => ({ path, label, kind: "cards", options: records, none: `None yet. Make one under ${label}, in the menu.`, class: "wide" });

/**
 * The sections of the form.
 * @param {{template: boolean, avatars, providers, knowledge, tools, guardrails, mcp}} known
 */
export function sections({ template = false, avatars, providers, knowledge, tools, guardrails, mcp }) {
  const [name, prompt] = template ? ["template_name", "template_system_prompt"] : ["agent_name", "agent_system_prompt"];
  const faces = avatars.map((a) => ({ id: a.avatar_key_id, name: a.avatar_name, picture: a.display_picture }));
  const own = (get) => get(`${MODELS}.llm.provider`);
  return [
    { id: "basics", title: "Basics", fields: [
      { path: name, label: "Name", required: true, hint: template ? undefined : "How you and your lists call it." },
      { path: `${AVATAR}.persona_name`, label: "Persona", empty: null, hint: "What callers see. Empty: the name of the face." },
      { path: prompt, label: "Instructions", kind: "area", rows: 7, required: true, class: "wide", hint: "Who it is, what it does, how it speaks. Spoken answers are best kept short." },
      { path: `${AVATAR}.avatar_key_id`, label: "Face", kind: "cards", single: true, pictures: true, options: faces, class: "wide", required: !template },
    ] },
    { id: "speech", title: "Voice and hearing", about: "Voice, pronunciation, language", open: false, fields: [
      { path: `${MODELS}.tts.voice_id`, label: "Voice", kind: "select", options: voices(providers), empty: null },
      { path: `${MODELS}.tts.provider`, label: "Voice provider", kind: "select", options: names(providers, "tts"), empty: null },
      { path: `${MODELS}.tts.model_id`, label: "Voice model", empty: null },
      { path: `${MODELS}.tts.token`, label: "Voice provider's key", kind: "secret" },
      { path: `${MODELS}.tts.sample_rate`, label: "Sample rate", kind: "number", unit: "Hz", placeholder: "as the voice has it" },
      { path: `${MODELS}.tts.custom_pronunciation`, label: "Pronunciation", name: "Pronunciation", kind: "pairs", columns: ["word", "pronunciation"], labels: ["Word", "Said as"], one: "word", class: "wide" },
      { path: `${MODELS}.stt.language`, label: "Language", empty: null, suggest: items(providers, "stt", "language").map((item) => item.value), hint: "Such as en." },
      { path: `${MODELS}.stt.provider`, label: "Hearing provider", kind: "select", options: names(providers, "stt"), empty: null },
      { path: `${MODELS}.stt.model`, label: "Hearing model", empty: null },
      { path: `${MODELS}.stt.fallback_model`, label: "Fallback hearing model", empty: null },
      { path: `${MODELS}.stt.token`, label: "Hearing provider's key", kind: "secret" },
    ] },
    { id: "mind", title: "Language model", about: "Which model answers, what it is told", open: false, fields: [
      { path: `${MODELS}.llm.provider`, label: "Provider", kind: "select", options: names(providers, "llm"), empty: null },
      { path: `${MODELS}.llm.model`, label: "Model", empty: null, placeholder: "The provider's own" },
      { path: `${MODELS}.llm.url`, label: "Address", type: "url", empty: null, placeholder: "http://127.0.0.1:8000/v1", hint: "Base address of an OpenAI-compatible server; ends in /v1.", when: (get) => own(get) === "custom" || own(get) === "openai" || get(`${MODELS}.llm.url`) },
      { path: `${MODELS}.llm.token`, label: "Key", name: "Key", kind: "secret", hint: "Kept encrypted and never shown again.", when: (get) => own(get) === "custom" || own(get) === "openai" || get(`${MODELS}.llm.token`) },
      { path: `${MODELS}.llm.fallback_model`, label: "Fallback model", empty: null, hint: "Asked when the first one fails." },
      { path: "config.conversationalContext", label: "Context", kind: "area", rows: 3, class: "wide", hint: "Facts that every conversation starts with." },
      { path: "config.memory.isEnabled", label: "Remember earlier conversations with the same user", kind: "check" },
      { path: "config.memory.instruction", label: "What to remember", kind: "area", rows: 2, class: "wide", when: (get) => get("config.memory.isEnabled") },
    ] },
    { id: "knows", title: "Knowledge, tools and rules", about: "What is attached", open: false, words: "Changes count from the next conversation on.", fields: [
      attached("knowledge_base", "Knowledge", knowledge.map((r) => ({ id: r.id, name: r.name, words: r.description }))),
      attached("tool", "Tools", tools.map((r) => ({ id: r.id, name: r.schema.name, words: r.schema.description }))),
      attached("guardrail", "Guardrails", guardrails.map((r) => ({ id: r.id, name: r.name, words: r.prompt }))),
      attached("mcp", "MCP servers", mcp.map((r) => ({ id: r.id, name: r.name, words: r.description }))),
    ] },
    { id: "says", title: "What it says by itself", about: "Welcome, silence, goodbye, longest call", open: false, words: "One text a line; they are used in turn.", fields: [
      { path: `${AVATAR}.welcome_message.messages`, label: "Welcome", kind: "lines", class: "wide", hint: "Empty: the caller speaks first." },
      { path: `${AVATAR}.welcome_message.wait_time`, label: "Wait before the welcome", kind: "number", unit: "s", min: 0, max: 60 },
      { path: `${AVATAR}.idle_timeout.timeout`, label: "Silence before it asks", kind: "number", unit: "s", min: 0, hint: "0 or empty: it never asks." },
      { path: `${AVATAR}.idle_timeout.filler_phrases`, label: "What it asks after silence", kind: "lines", class: "wide" },
      { path: `${AVATAR}.idle_timeout.end_after`, label: "Hang up after unanswered questions", kind: "number", step: 1, min: 0, hint: "Empty: never." },
      { path: "config.maxCallDuration", label: "Longest call", kind: "number", unit: "s", min: 0, placeholder: "300" },
      { path: `${AVATAR}.exit_heads_up_message.callout_before`, label: "Warn before the end", kind: "number", unit: "s", min: 0 },
      { path: `${AVATAR}.exit_heads_up_message.messages`, label: "Warning", kind: "lines", class: "wide" },
      { path: `${AVATAR}.exit_message.messages`, label: "Goodbye", kind: "lines", class: "wide" },
      { path: "config.error_message", label: "When something fails", class: "wide", empty: null, hint: "Empty: it stays silent." },
    ] },
    { id: "turns", title: "Turn-taking", about: "When it speaks, when it yields", open: false, fields: [
      { path: `${AVATAR}.turn_handling`, label: "How fast it answers", kind: "select", options: [["proactive", "Proactive: answers at once"], ["balanced", "Balanced"], ["deliberate", "Deliberate: waits for pauses to end"]] },
      { path: `${AVATAR}.interruptability`, label: "How easily it is interrupted", kind: "select", options: [["high", "High: any sound"], ["medium", "Medium"], ["low", "Low: a few words"]] },
      { path: `${MODELS}.stt.min_endpointing_delay`, label: "Shortest pause that ends a turn", kind: "number", unit: "s", min: 0, max: 10, placeholder: "as above" },
      { path: `${MODELS}.stt.max_endpointing_delay`, label: "Longest wait for more words", kind: "number", unit: "s", min: 0, max: 10, placeholder: "as above" },
      { path: `${MODELS}.stt.turn_model`, label: "Let the turn model listen whether the caller has finished", kind: "check" },
      { path: "config.turn", label: "Fine settings", kind: "json", class: "wide", hint: "JSON, such as {\"min_interruption_words\": 2}. They win over the choices above." },
    ] },
    { id: "hooks", title: "Webhooks", about: "Which events your server gets", open: false, fields: [
      { path: "callback_url", label: "Address", name: "Address", type: "url", class: "wide", placeholder: "https://example.com/hook", hint: "Gets a signed POST for each event below. Empty: none." },
      { path: "callback_events", label: "Events", kind: "cards", class: "wide", options: EVENTS.map((event) => ({ id: event, name: event })) },
    ] },
    { id: "more", title: "Sharing and more", about: "Embedding, recording, activity", open: false, fields: [
      { path: "embed.enabled", label: "May be embedded in web pages", kind: "check" },
      { path: "embed.origins", label: "Pages that may embed it", kind: "lines", class: "wide", placeholder: "https://www.example.com", hint: "One origin a line. Empty: any page.", when: (get) => get("embed.enabled") },
      { path: "is_active", label: "Active: takes calls", kind: "check", initial: true },
      { path: "record", label: "Record its calls", kind: "check" },
      { path: "config.expose_tools", label: "Show tool calls' data to the caller's browser", kind: "check" },
      { path: "config.trust_client_context", label: "Trust what pages tell of the caller: they are all yours", kind: "check", hint: "Otherwise it is the caller's own word." },
      { path: "config.record_trace", label: "Keep a trace of each call for replaying", kind: "check" },
      { path: "type", label: "Type", empty: null, hint: "A word of yours; conversations can be filtered by it." },
      { path: "email", label: "E-mail for meeting invitations", type: "email", empty: null },
      { path: `${AVATAR}.frame_rate`, label: "Pictures a second", kind: "number", min: 1, max: 60 },
      { path: "config.timeout", label: "Call limit of older clients", kind: "number", unit: "s", min: 0, hint: "Counts where the longest call is not set." },
      { path: `${AVATAR}.exit_message.max_call_duration`, label: "Call limit of this face", kind: "number", unit: "s", min: 0, hint: "Counts where neither of the others is set." },
    ] },
  ];
}

/** A record as the form shows it: what only repeats a default is empty, so that saving does not fix it. */
export function shown(record) {
  const copy = structuredClone(record);
  for (const avatar of copy.avatars ?? []) {
    const stt = avatar.config?.stt;
    const [min, max] = DELAYS[avatar.turn_handling] ?? [];
    if (stt?.min_endpointing_delay === min) stt.min_endpointing_delay = null;
    if (stt?.max_endpointing_delay === max) stt.max_endpointing_delay = null;
  }
  for (const list of ["knowledge_base", "tool", "guardrail", "mcp"]) copy[list] = copy[list]?.map((item) => item.id ?? item) ?? null;
  return copy;
}
