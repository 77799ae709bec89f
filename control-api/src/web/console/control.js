// The controls of a live call: let the agent say a text, send a text as the caller, add context,
// interrupt the agent, end the call or remove the agent from the meeting.

import * as api from "./api.js";
import { button, h } from "./dom.js";
import { confirmDialog, runBusy, toast } from "./ui.js";

/** Expressions of the avatar. */
const EXPRESSIONS = [
  ["", "Expression by the text"],
  ["calm", "Calm"],
  ["warm", "Warm"],
  ["glad", "Glad"],
  ["concerned", "Concerned"],
  ["curious", "Curious"],
];

/**
 * Name, label, placeholder, request. The expression is only for words of the agent.
 * @typedef {(id: string, text: string, expression: string) => Promise<any>} Send
 * @type {(caller: string) => [string, string, string, Send][]}
 */
const actionsFor = (caller) => [
  [
    "say",
    "Say",
    "The agent speaks this text",
    (id, text, expression) =>
      api.put(`/v1/conversation/${id}/speak`, {
        text,
        interrupt: false,
        add_to_context: true,
        expression: expression || null,
      }),
  ],
  [
    "respond",
    "Answer",
    `The agent answers this text, as if ${caller} had said it`,
    (id, text) => api.post(`/v1/conversation/${id}/respond`, { text }),
  ],
  [
    "context",
    "Add context",
    "The agent uses this text from now on",
    (id, text) => api.post(`/v1/conversation/${id}/context`, { text, mode: "append" }),
  ],
];

/** The texts that differ between calls and meetings. */
const CALL = {
  name: "Control of the call",
  caller: "the caller",
  pending: "The command takes effect when somebody joins.",
  end: "End the call",
  question: "End this call?",
  consequence: "The caller is disconnected. The record is kept.",
};
const MEETING = {
  name: "Control of the agent",
  caller: "somebody in the meeting",
  pending: "The command takes effect when the agent is in the meeting.",
  end: "Remove from the meeting",
  question: "Remove the agent from the meeting?",
  consequence: "The agent leaves the meeting, and the conversation ends. The record is kept.",
};

/**
 * @param {string} id of the conversation
 * @param {{isMeeting: boolean, status: () => string, onEnded: () => void}} options `status` returns
 *   the conversation's current status
 */
export function callControls(id, { isMeeting, status, onEnded }) {
  const texts = isMeeting ? MEETING : CALL;
  const actions = actionsFor(texts.caller);
  const actionSelect = h(
    "select",
    {
      "aria-label": "Command",
      onchange: () => {
        textInput.placeholder = actions.find(([name]) => name === actionSelect.value)[2];
        expressionSelect.hidden = actionSelect.value !== "say";
      },
    },
    actions.map(([value, label]) => h("option", { value }, label)),
  );
  const expressionSelect = h(
    "select",
    { "aria-label": "Expression" },
    EXPRESSIONS.map(([value, label]) => h("option", { value }, label)),
  );
  const textInput = h("input", {
    type: "text",
    "aria-label": "Words",
    placeholder: actions[0][2],
    maxlength: 2000,
    autocomplete: "off",
  });
  const submitButton = h("button", { needs: "operate", type: "submit", class: "primary" }, "Send");
  const form = h(
    "form",
    {
      class: "control-form",
      onsubmit: async (event) => {
        event.preventDefault();
        const text = textInput.value.trim();
        if (!text) return textInput.focus();
        const response = await runBusy(submitButton, () =>
          actions.find(([name]) => name === actionSelect.value)[3](
            id,
            text,
            expressionSelect.value,
          ),
        );
        if (!response) return;
        textInput.value = "";
        toast(status() === "STARTED" ? texts.pending : response.message);
      },
    },
    actionSelect,
    textInput,
    expressionSelect,
    submitButton,
  );
  return h(
    "section",
    { class: "card call-controls", "aria-label": texts.name },
    form,
    h(
      "div",
      { class: "actions" },
      button("Interrupt", {
        needs: "operate",
        class: "small",
        onclick: ({ currentTarget }) =>
          runBusy(currentTarget, () => api.post(`/v1/conversation/${id}/interrupt`)),
      }),
      button(texts.end, {
        needs: "operate",
        class: "small risky",
        onclick: async ({ currentTarget }) => {
          if (!(await confirmDialog(texts.question, texts.consequence, texts.end))) return;
          await runBusy(currentTarget, async () => {
            await api.remove(`/v1/conversation/${id}`);
            onEnded();
          });
        },
      }),
    ),
  );
}
