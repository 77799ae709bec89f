// The short way to an agent: face, name, job, first words, something to know. Everything else has a good default.

import * as api from "./api.js";
import { voices } from "./agent-fields.js";
import { h, link } from "./dom.js";
import { faces } from "./faces.js";
import { form } from "./form.js";
import { back, head } from "./ui.js";

const IDEAS = [
  ["Receptionist", "You are the receptionist of a small company. Greet visitors warmly, ask whom they want to see, and answer questions about opening hours and directions. Speak in one or two short sentences.", "Hello, and welcome! How can I help you?"],
  ["Shop helper", "You help customers of a shop. Answer from what you know about its products, prices and opening hours. If you do not know something, say so. Speak in one or two short sentences.", "Hi there! What are you looking for today?"],
  ["Interview trainer", "You train people for job interviews. Ask one question at a time, listen, then say in one sentence what was good and what could be better, and go on.", "Hello! Shall we begin with a few questions, as in a real interview?"],
  ["Language partner", "You are a patient partner for practising English. Speak simply, ask about the person's day and interests, and correct mistakes kindly by repeating the sentence the right way.", "Hi! I would love to hear about your day."],
];

export async function newAgentPage({ query, signal, go, keep }) {
  const [avatars, providers, templates] = await Promise.all([faces(signal), api.get("/v1/ext/providers", signal), api.all("/v1/ext/templates", signal)]);
  const known = avatars.map((a) => ({ id: a.avatar_key_id, name: a.avatar_name, picture: a.display_picture }));
  const face = known.some((f) => f.id === query.get("face")) ? query.get("face") : known[0]?.id;
  const made = form({
    keep, label: "Create agent",
    value: { avatars: [{ avatar_key_id: face, welcome_message: { messages: [] } }], agent_name: "", agent_system_prompt: "" },
    sections: [
      { id: "who", title: "1. Who is it?", fields: [
        { path: "avatars[0].avatar_key_id", label: "Face", kind: "cards", single: true, pictures: true, options: known, class: "wide", required: true },
        { path: "agent_name", label: "Name", required: true, max: 200 },
        { path: "avatars[0].config.tts.voice_id", label: "Voice", kind: "select", options: voices(providers), empty: null },
      ] },
      { id: "job", title: "2. What does it do?", fields: [
        { path: "agent_system_prompt", label: "Instructions", kind: "area", rows: 5, required: true, class: "wide", hint: "Tell it as you would tell a new colleague." },
        { path: "avatars[0].welcome_message.messages", label: "First words", kind: "lines", rows: 2, class: "wide", hint: "It says this when somebody joins." },
      ] },
      { id: "facts", title: "3. What should it know?", words: "Prices, opening hours, answers to common questions. You can add files later, under Knowledge.", fields: [
        { path: "facts", label: "Facts", kind: "area", rows: 5, class: "wide", placeholder: "We are open from nine to five, Monday to Friday.\nA haircut costs thirty dollars." },
      ] },
    ],
    extra: [link("Cancel", "/console/agents", { class: "button quiet" })],
    save: async ({ facts, ...agent }) => {
      // One name for both sides: callers would see the face's.
      agent.avatars[0].persona_name = agent.agent_name;
      if (facts.trim()) {
        const kb = new FormData();
        kb.set("name", `What ${agent.agent_name} knows`);
        kb.set("description", "Written when the agent was made");
        kb.set("text", facts);
        const { id } = await api.post("/v1/ext/kb", kb);
        // A refused agent leaves nothing behind.
        try {
          return await api.post("/v1/ext/agent", { ...agent, knowledge_base: [id] });
        } catch (error) {
          await api.remove(`/v1/ext/kb/${id}`).catch(() => {});
          throw error;
        }
      }
      return api.post("/v1/ext/agent", agent);
    },
    done: ({ id }) => go(`/console/agents/${id}?new`, { force: true }),
  });
  const job = made.field("agent_system_prompt");
  const first = made.field("avatars[0].welcome_message.messages");
  const ideas = h("div", { class: "ideas", role: "group", "aria-label": "Examples" }, h("span", { class: "soft" }, "Begin with"), IDEAS.map(([name, prompt, greeting]) => h("button", { type: "button", class: "small", onclick: () => {
    job.made.first().value = prompt;
    first.made.first().value = greeting;
    for (const { made: { first: control } } of [job, first]) control().dispatchEvent(new Event("input", { bubbles: true }));
    job.made.first().focus();
  } }, name)));
  job.made.node.before(ideas);
  return [
    back("Agents", "/console/agents"),
    head("New agent", "Three questions, and you can talk to it."),
    templates.length > 0 && h("p", { class: "note" }, "You have templates: ", link("begin with one", "/console/templates"), "."),
    made.node,
  ].filter(Boolean);
}
