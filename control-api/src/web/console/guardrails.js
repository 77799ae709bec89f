// Guardrails: rules that are checked against the user's words, in parallel with the reply.

import { pill } from "./dom.js";
import { recordListPage, recordPage } from "./records.js";

const KIND = {
  name: "guardrails",
  title: "Guardrails",
  singular: "guardrail",
  plural: "guardrails",
  path: "/v1/ext/guardrail",
  description:
    "Rules for topics that an agent must not discuss. " +
    "They are checked while the agent answers and add no delay.",
  purpose:
    "A guardrail checks what callers say. " +
    "If its rule applies, the agent says your text instead of its answer.",
  defaults: { name: "", category: "", prompt: "", response_message: "", callback_url: "" },
  toForm: (record) => record,
  toBody: ({ name, category, prompt, response_message, callback_url }) => ({
    name,
    category,
    prompt,
    response_message,
    callback_url,
  }),
  toListItem: (record) => ({
    title: record.name,
    description: record.prompt,
    tags: [
      record.category && pill(record.category),
      pill(record.response_message ? "Speaks" : "Moderation"),
      record.callback_url && pill("Webhook"),
    ].filter(Boolean),
  }),
  sections: (record) => [
    {
      id: "rule",
      fields: [
        {
          path: "name",
          label: "Name",
          required: true,
          hint: record.key
            ? `The key ${record.key} does not change.`
            : "The key is derived from this name and never changes.",
        },
        { path: "category", label: "Category", hint: "Free text, shown in lists." },
        {
          path: "prompt",
          label: "Rule",
          kind: "area",
          required: true,
          class: "wide",
          placeholder: "The user asks for medical advice.",
        },
        {
          path: "response_message",
          label: "What the agent says then",
          kind: "area",
          rows: 2,
          class: "wide",
          hint:
            "Spoken verbatim. " +
            "Empty: a moderation check decides, and its result goes to the model.",
        },
        {
          path: "callback_url",
          label: "Webhook address",
          name: "The address",
          type: "url",
          class: "wide",
          placeholder: "https://example.com/guardrail",
          hint: "Receives one signed POST when the rule applies.",
        },
      ],
    },
  ],
};

export const guardrailsPage = (context) => recordListPage(context, KIND);
export const guardrailPage = (context) => recordPage(context, KIND);
