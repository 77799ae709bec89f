// What one can do to a call that runs: speak through the agent, answer for the caller, tell it more, stop it, end it.

import * as api from "./api.js";
import { button, h } from "./dom.js";
import { busy, sure, toast } from "./ui.js";

const WAYS = [
  ["say", "Let it say", "The agent says these words", (id, text) => api.put(`/v1/conversation/${id}/speak`, { text, interrupt: false, add_to_context: true })],
  ["respond", "Ask for the caller", "As if the caller had said it", (id, text) => api.post(`/v1/conversation/${id}/respond`, { text })],
  ["context", "Tell it", "The agent knows it from now on", (id, text) => api.post(`/v1/conversation/${id}/context`, { text, mode: "append" })],
];

/** @param {string} id @param {() => string} status */
export function controls(id, status) {
  const way = h("select", { "aria-label": "What to do", onchange: () => { text.placeholder = WAYS.find(([name]) => name === way.value)[2]; } }, WAYS.map(([value, words]) => h("option", { value }, words)));
  const text = h("input", { type: "text", "aria-label": "Words", placeholder: WAYS[0][2], maxlength: 2000, autocomplete: "off" });
  const send = h("button", { needs: "operate", type: "submit", class: "primary" }, "Send");
  const form = h("form", { class: "steer", onsubmit: async (event) => {
    event.preventDefault();
    const words = text.value.trim();
    if (!words) return text.focus();
    const answer = await busy(send, () => WAYS.find(([name]) => name === way.value)[3](id, words));
    if (!answer) return;
    text.value = "";
    toast(status() === "STARTED" ? "It is done as soon as somebody joins." : answer.message);
  } }, way, text, send);
  return h("section", { class: "card live-bar", "aria-label": "Control of the call" }, form,
    h("div", { class: "actions" },
      button("Interrupt", { needs: "operate", class: "small", onclick: ({ currentTarget }) => busy(currentTarget, () => api.post(`/v1/conversation/${id}/interrupt`)) }),
      button("End the call", { needs: "operate", class: "small risky", onclick: async ({ currentTarget }) => {
        if (!(await sure("End this call?", "The caller is hung up on. The record stays.", "End the call"))) return;
        await busy(currentTarget, () => api.remove(`/v1/conversation/${id}`));
      } })));
}
