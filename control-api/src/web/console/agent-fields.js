// All form fields of an agent or a template, with their labels and their paths in the record.

import {
  AVATAR_PATH,
  languageModelSection,
  MODELS_PATH,
  speechSection,
} from "./agent-model-fields.js";
import { pictureSection } from "./agent-picture-fields.js";
import { recordingSection } from "./agent-recording-fields.js";

/** The default endpointing delays of each `turn_handling` in seconds: minimum, maximum. */
const ENDPOINTING_DELAYS = { proactive: [0.3, 2], balanced: [0.4, 3], deliberate: [0.8, 5] };

const EVENTS = [
  "user.started_speaking",
  "user.stopped_speaking",
  "utterance_committed",
  "agent.started_speaking",
  "agent.stopped_speaking",
  "agent.interrupted",
  "tool_call",
  "max_call_duration_warning",
  "max_call_duration_timeout",
  "participant_left",
  "call_ended",
];

const attachmentField = (path, label, records) => ({
  path,
  label,
  kind: "cards",
  options: records,
  emptyText: `None yet. Create one under ${label} in the menu.`,
  class: "wide",
});

/**
 * The sections of the form. The lists are the records that the form offers.
 * `chainTest`: the node that tests the models. `recordingProblem`: why this server cannot record
 * calls, if it cannot.
 * @param {{template?: boolean, avatars: any[], providers: any[], knowledge: any[], tools: any[],
 *   guardrails: any[], mcp: any[], chainTest?: any, recordingProblem?: string}} options
 */
export function agentSections({
  template = false,
  avatars,
  providers,
  knowledge,
  tools,
  guardrails,
  mcp,
  chainTest,
  recordingProblem,
}) {
  const [namePath, promptPath] = template
    ? ["template_name", "template_system_prompt"]
    : ["agent_name", "agent_system_prompt"];
  const avatarOptions = avatars.map((avatar) => ({
    id: avatar.avatar_key_id,
    name: avatar.avatar_name,
    picture: avatar.display_picture,
  }));
  return [
    {
      id: "basics",
      title: "Basics",
      fields: [
        {
          path: namePath,
          label: "Name",
          required: true,
          hint: template ? undefined : "Shown in lists.",
        },
        {
          path: `${AVATAR_PATH}.persona_name`,
          label: "Persona",
          emptyValue: null,
          hint: "Shown to callers. Empty: the name of the avatar.",
        },
        {
          path: promptPath,
          label: "Instructions",
          kind: "area",
          rows: 7,
          required: true,
          class: "wide",
          hint: "Its role, tasks and style. Short answers are best for speech.",
        },
        {
          path: `${AVATAR_PATH}.avatar_key_id`,
          label: "Avatar",
          kind: "cards",
          single: true,
          showPictures: true,
          options: avatarOptions,
          class: "wide",
          required: !template,
        },
      ],
    },
    pictureSection(),
    speechSection(providers),
    languageModelSection(providers),
    chainTest && {
      id: "chain",
      title: "Test of the models",
      summary: "Latency or error of each",
      open: false,
      description:
        "Sends one real request to the voice, the speech recognition and the language model as " +
        "they are selected above, saved or not.",
      fields: [],
      more: chainTest,
    },
    {
      id: "knows",
      title: "Knowledge, tools and rules",
      summary: "Attached resources",
      open: false,
      description: "Changes apply from the next conversation.",
      fields: [
        attachmentField(
          "knowledge_base",
          "Knowledge",
          knowledge.map((record) => ({
            id: record.id,
            name: record.name,
            description: record.description,
          })),
        ),
        attachmentField(
          "tool",
          "Tools",
          tools.map((record) => ({
            id: record.id,
            name: record.schema.name,
            description: record.schema.description,
          })),
        ),
        attachmentField(
          "guardrail",
          "Guardrails",
          guardrails.map((record) => ({
            id: record.id,
            name: record.name,
            description: record.prompt,
          })),
        ),
        attachmentField(
          "mcp",
          "MCP servers",
          mcp.map((record) => ({
            id: record.id,
            name: record.name,
            description: record.description,
          })),
        ),
      ],
    },
    {
      id: "says",
      title: "Automatic messages",
      summary: "Welcome, call-outs, goodbye, maximum duration",
      open: false,
      description: "One text per line; they are used in turn.",
      fields: [
        {
          path: `${AVATAR_PATH}.welcome_message.messages`,
          label: "Welcome",
          kind: "lines",
          class: "wide",
          hint: "Empty: the caller speaks first.",
        },
        {
          path: `${AVATAR_PATH}.welcome_message.wait_time`,
          label: "Wait before the welcome",
          kind: "number",
          unit: "s",
          min: 0,
          max: 60,
        },
        {
          path: `${AVATAR_PATH}.idle_timeout.timeout`,
          label: "Silence before a call-out",
          kind: "number",
          unit: "s",
          min: 0,
          hint: "0 or empty: no call-outs.",
        },
        {
          path: `${AVATAR_PATH}.idle_timeout.filler_phrases`,
          label: "Call-outs after silence",
          kind: "lines",
          class: "wide",
        },
        {
          path: `${AVATAR_PATH}.idle_timeout.end_after`,
          label: "Hang up after unanswered call-outs",
          kind: "number",
          step: 1,
          min: 0,
          hint: "Empty: never.",
        },
        {
          path: "config.maxCallDuration",
          label: "Maximum call duration",
          kind: "number",
          unit: "s",
          min: 0,
          placeholder: "300",
        },
        {
          path: `${AVATAR_PATH}.exit_heads_up_message.callout_before`,
          label: "Warn before the end",
          kind: "number",
          unit: "s",
          min: 0,
        },
        {
          path: `${AVATAR_PATH}.exit_heads_up_message.messages`,
          label: "Warning",
          kind: "lines",
          class: "wide",
        },
        {
          path: `${AVATAR_PATH}.exit_message.messages`,
          label: "Goodbye",
          kind: "lines",
          class: "wide",
        },
        {
          path: "config.error_message",
          label: "Error message",
          class: "wide",
          emptyValue: null,
          hint: "Spoken if a model fails. Empty: none.",
        },
      ],
    },
    {
      id: "turns",
      title: "Turn-taking",
      summary: "Response speed, interruptions",
      open: false,
      fields: [
        {
          path: `${AVATAR_PATH}.turn_handling`,
          label: "How fast it answers",
          kind: "select",
          options: [
            ["proactive", "Proactive: answers at once"],
            ["balanced", "Balanced"],
            ["deliberate", "Deliberate: waits for pauses to end"],
          ],
        },
        {
          path: `${AVATAR_PATH}.interruptability`,
          label: "How easily it is interrupted",
          kind: "select",
          options: [
            ["high", "High: any sound"],
            ["medium", "Medium"],
            ["low", "Low: a few words"],
          ],
        },
        {
          path: `${MODELS_PATH}.stt.min_endpointing_delay`,
          label: "Shortest pause that ends a turn",
          kind: "number",
          unit: "s",
          min: 0,
          max: 10,
          placeholder: "as above",
        },
        {
          path: `${MODELS_PATH}.stt.max_endpointing_delay`,
          label: "Longest wait for more words",
          kind: "number",
          unit: "s",
          min: 0,
          max: 10,
          placeholder: "as above",
        },
        {
          path: `${MODELS_PATH}.stt.turn_model`,
          label: "Use the turn model to detect the end of a turn",
          kind: "check",
        },
        {
          path: "config.turn",
          label: "Advanced settings",
          kind: "json",
          class: "wide",
          hint: 'JSON, such as {"min_interruption_words": 2}. They override the settings above.',
        },
      ],
    },
    recordingSection(recordingProblem),
    {
      id: "hooks",
      title: "Webhooks",
      summary: "Events for your server",
      open: false,
      fields: [
        {
          path: "callback_url",
          label: "Address",
          name: "Address",
          type: "url",
          class: "wide",
          placeholder: "https://example.com/hook",
          hint: "Receives a signed POST for each event below. Empty: none.",
        },
        {
          path: "callback_events",
          label: "Events",
          kind: "cards",
          class: "wide",
          options: EVENTS.map((event) => ({ id: event, name: event })),
        },
      ],
    },
    {
      id: "more",
      title: "Sharing and more",
      summary: "Embedding, activity, limits",
      open: false,
      fields: [
        { path: "embed.enabled", label: "May be embedded in web pages", kind: "check" },
        {
          path: "embed.origins",
          label: "Pages that may embed it",
          kind: "lines",
          class: "wide",
          placeholder: "https://www.example.com",
          hint: "One origin per line. Empty: any page.",
          visibleIf: (get) => get("embed.enabled"),
        },
        { path: "is_active", label: "Active: accepts calls", kind: "check", initial: true },
        {
          path: "config.expose_tools",
          label: "Show tool calls' data to the caller's browser",
          kind: "check",
        },
        {
          path: "config.trust_client_context",
          label: "Trust the caller data from web pages (only if all pages are yours)",
          kind: "check",
          hint: "Otherwise the data is treated as unverified.",
        },
        {
          path: "config.end_call",
          label: "End the call when the caller says goodbye",
          kind: "check",
          initial: true,
        },
        {
          path: "config.expressions",
          label: "Let the language model set the avatar's expression",
          kind: "check",
          initial: true,
          hint: "Otherwise the expression follows from the text.",
        },
        {
          path: "config.suggested_questions",
          label: "Questions that the call page suggests",
          kind: "lines",
          class: "wide",
          placeholder: "When are you open?",
          hint: "One question per line, at most 6.",
        },
        {
          path: "config.record_trace",
          label: "Record a trace of each call for replay",
          kind: "check",
        },
        {
          path: "type",
          label: "Type",
          emptyValue: null,
          hint: "Free text; conversations can be filtered by it.",
        },
        { path: "email", label: "E-mail for meeting invitations", type: "email", emptyValue: null },
        {
          path: `${AVATAR_PATH}.frame_rate`,
          label: "Frames per second",
          kind: "number",
          min: 1,
          max: 60,
        },
        {
          path: "config.timeout",
          label: "Call limit of older clients",
          kind: "number",
          unit: "s",
          min: 0,
          hint: "Used if the maximum call duration is not set.",
        },
        {
          path: `${AVATAR_PATH}.exit_message.max_call_duration`,
          label: "Call limit of this avatar",
          kind: "number",
          unit: "s",
          min: 0,
          hint: "Used if neither of the others is set.",
        },
      ],
    },
  ].filter(Boolean);
}

/**
 * A record as the value of the form. Delays that equal the default are empty, so that saving does
 * not store them as explicit values.
 */
export function toFormValue(record) {
  const copy = structuredClone(record);
  for (const avatar of copy.avatars ?? []) {
    const stt = avatar.config?.stt;
    const [min, max] = ENDPOINTING_DELAYS[avatar.turn_handling] ?? [];
    if (stt?.min_endpointing_delay === min) stt.min_endpointing_delay = null;
    if (stt?.max_endpointing_delay === max) stt.max_endpointing_delay = null;
  }
  for (const list of ["knowledge_base", "tool", "guardrail", "mcp"])
    copy[list] = copy[list]?.map((item) => item.id ?? item) ?? null;
  return copy;
}
