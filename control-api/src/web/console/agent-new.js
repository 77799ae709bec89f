// The short form for a new agent: avatar, name, instructions, welcome message, facts. Everything
// else keeps its default.

import { voiceOptions } from "./agent-model-fields.js";
import * as api from "./api.js";
import { h, link } from "./dom.js";
import { form } from "./form.js";
import { selectableAvatars } from "./selectable-avatars.js";
import { backLink, pageHeader } from "./ui.js";

/** Name, instructions, welcome message. */
const EXAMPLES = [
  [
    "Receptionist",
    "You are the receptionist of a small company. Greet visitors warmly, ask whom they want to " +
      "see, and answer questions about opening hours and directions. Speak in one or two short " +
      "sentences.",
    "Hello, and welcome! How can I help you?",
  ],
  [
    "Shop helper",
    "You help customers of a shop. Answer from what you know about its products, prices and " +
      "opening hours. If you do not know something, say so. Speak in one or two short sentences.",
    "Hi there! What are you looking for today?",
  ],
  [
    "Interview trainer",
    "You train people for job interviews. Ask one question at a time, listen, then say in one " +
      "sentence what was good and what could be better, and go on.",
    "Hello! Shall we begin with a few questions, as in a real interview?",
  ],
  [
    "Language partner",
    "You are a patient partner for practicing English. Speak simply, ask about the person's " +
      "day and interests, and correct mistakes kindly by repeating the sentence the right way.",
    "Hi! I would love to hear about your day.",
  ],
];

export async function newAgentPage({ query, signal, navigate, setUnsavedCheck }) {
  const [avatars, providers, templates] = await Promise.all([
    selectableAvatars(signal),
    api.get("/v1/ext/providers", signal),
    api.listAll("/v1/ext/templates", signal),
  ]);
  const options = avatars.map((avatar) => ({
    id: avatar.avatar_key_id,
    name: avatar.avatar_name,
    picture: avatar.display_picture,
  }));
  const avatarId = options.some((option) => option.id === query.get("face"))
    ? query.get("face")
    : options[0]?.id;
  const formView = form({
    setUnsavedCheck,
    label: "Create agent",
    value: {
      avatars: [{ avatar_key_id: avatarId, welcome_message: { messages: [] } }],
      agent_name: "",
      agent_system_prompt: "",
    },
    sections: [
      {
        id: "who",
        title: "1. Who is it?",
        fields: [
          {
            path: "avatars[0].avatar_key_id",
            label: "Avatar",
            kind: "cards",
            single: true,
            showPictures: true,
            options,
            class: "wide",
            required: true,
          },
          { path: "agent_name", label: "Name", required: true, max: 200 },
          {
            path: "avatars[0].config.tts.voice_id",
            label: "Voice",
            kind: "select",
            options: voiceOptions(providers),
            emptyValue: null,
          },
        ],
      },
      {
        id: "job",
        title: "2. What does it do?",
        fields: [
          {
            path: "agent_system_prompt",
            label: "Instructions",
            kind: "area",
            rows: 5,
            required: true,
            class: "wide",
            hint: "Write it as for a new colleague.",
          },
          {
            path: "avatars[0].welcome_message.messages",
            label: "First words",
            kind: "lines",
            rows: 2,
            class: "wide",
            hint: "Spoken when somebody joins.",
          },
        ],
      },
      {
        id: "facts",
        title: "3. What should it know?",
        description:
          "Prices, opening hours, answers to common questions. " +
          "You can add files later, under Knowledge.",
        fields: [
          {
            path: "facts",
            label: "Facts",
            kind: "area",
            rows: 5,
            class: "wide",
            placeholder:
              "We are open from nine to five, Monday to Friday.\nA haircut costs thirty dollars.",
          },
        ],
      },
    ],
    extra: [link("Cancel", "/console/agents", { class: "button quiet" })],
    save: async ({ facts, ...agent }) => {
      // The persona gets the agent's name. Otherwise callers would see the avatar's name.
      agent.avatars[0].persona_name = agent.agent_name;
      if (facts.trim()) {
        const knowledgeBase = new FormData();
        knowledgeBase.set("name", `What ${agent.agent_name} knows`);
        knowledgeBase.set("description", "Created with the agent");
        knowledgeBase.set("text", facts);
        const { id } = await api.post("/v1/ext/kb", knowledgeBase);
        // If the agent is rejected, its knowledge base is removed again.
        try {
          return await api.post("/v1/ext/agent", { ...agent, knowledge_base: [id] });
        } catch (error) {
          await api.remove(`/v1/ext/kb/${id}`).catch(() => {});
          throw error;
        }
      }
      return api.post("/v1/ext/agent", agent);
    },
    onSaved: ({ id }) => navigate(`/console/agents/${id}?new`, { force: true }),
  });
  const promptField = formView.field("agent_system_prompt");
  const welcomeField = formView.field("avatars[0].welcome_message.messages");
  const exampleButtons = h(
    "div",
    { class: "examples", role: "group", "aria-label": "Examples" },
    h("span", { class: "soft" }, "Start from"),
    EXAMPLES.map(([name, prompt, greeting]) =>
      h(
        "button",
        {
          type: "button",
          class: "small",
          onclick: () => {
            promptField.control.focusTarget().value = prompt;
            welcomeField.control.focusTarget().value = greeting;
            for (const {
              control: { focusTarget: control },
            } of [promptField, welcomeField])
              control().dispatchEvent(new Event("input", { bubbles: true }));
            promptField.control.focusTarget().focus();
          },
        },
        name,
      ),
    ),
  );
  promptField.control.node.before(exampleButtons);
  return [
    backLink("Agents", "/console/agents"),
    pageHeader("New agent", "Three questions, and you can talk to it."),
    templates.length > 0 &&
      h(
        "p",
        { class: "note" },
        "You have templates: ",
        link("start from one", "/console/templates"),
        ".",
      ),
    formView.node,
  ].filter(Boolean);
}
