// The controls of a live call: let the agent say a text, send a text as the caller, add context,
// interrupt the agent, end the call.

import * as api from "./api.js";
import { button, h } from "./dom.js";
import { confirmDialog, runBusy, toast } from "./ui.js";

/**
 * Name, label, placeholder, request.
 * @type {[string, string, string, (id: string, text: string) => Promise<any>][]}
 */
const ACTIONS = [
  [
    "say",
    "Say",
    "The agent speaks this text",
    (id, text) =>
      api.put(`/v1/conversation/${id}/speak`, { text, interrupt: false, add_to_context: true }),
  ],
  [
    "respond",
    "Answer",
    "The agent answers this text, as if the caller had said it",
    (id, text) => api.post(`/v1/conversation/${id}/respond`, { text }),
  ],
  [
    "context",
    "Add context",
    "The agent uses this text from now on",
    (id, text) => api.post(`/v1/conversation/${id}/context`, { text, mode: "append" }),
  ],
];

/**
 * @param {string} id of the conversation
 * @param {() => string} status returns the conversation's current status
 */
export function callControls(id, status) {
  const actionSelect = h(
    "select",
    {
      "aria-label": "Command",
      onchange: () => {
        textInput.placeholder = ACTIONS.find(([name]) => name === actionSelect.value)[2];
      },
    },
    ACTIONS.map(([value, label]) => h("option", { value }, label)),
  );
  const textInput = h("input", {
    type: "text",
    "aria-label": "Words",
    placeholder: ACTIONS[0][2],
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
          ACTIONS.find(([name]) => name === actionSelect.value)[3](id, text),
        );
        if (!response) return;
        textInput.value = "";
        toast(
          status() === "STARTED"
            ? "The command takes effect when somebody joins."
            : response.message,
        );
      },
    },
    actionSelect,
    textInput,
    submitButton,
  );
  return h(
    "section",
    { class: "card call-controls", "aria-label": "Control of the call" },
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
      button("End the call", {
        needs: "operate",
        class: "small risky",
        onclick: async ({ currentTarget }) => {
          if (
            !(await confirmDialog(
              "End this call?",
              "The caller is disconnected. The record is kept.",
              "End the call",
            ))
          )
            return;
          await runBusy(currentTarget, () => api.remove(`/v1/conversation/${id}`));
        },
      }),
    ),
  );
}
