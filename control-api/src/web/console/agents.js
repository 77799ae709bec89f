// Agents: the list, and the form of one agent.

import { agentSections, toFormValue } from "./agent-fields.js";
import { llmValues, MODELS_PATH } from "./agent-model-fields.js";
import { agentWarnings } from "./agent-warnings.js";
import * as api from "./api.js";
import { chainTest } from "./chain-test.js";
import { button, copyable, h, link, pill, plural } from "./dom.js";
import { form } from "./form.js";
import { localServers } from "./local-llm.js";
import { meetingDialog } from "./meeting.js";
import { selectableAvatars } from "./selectable-avatars.js";
import {
  backLink,
  card,
  confirmDialog,
  dialog,
  emptyState,
  pageHeader,
  pager,
  runBusy,
  searchBox,
  toast,
} from "./ui.js";

const PAGE_SIZE = 12;

/** The image of an agent's avatar, or the first letter of the agent's name. */
export const avatarImage = (avatars, agent, size) => {
  const avatar = avatars.find(
    (candidate) => candidate.avatar_key_id === agent.avatars?.[0]?.avatar_key_id,
  );
  return avatar?.display_picture
    ? h("img", {
        class: `avatar-image ${size ?? ""}`,
        src: avatar.display_picture,
        alt: "",
        width: 56,
        height: 56,
      })
    : h(
        "span",
        { class: `avatar-image ${size ?? ""}`, "aria-hidden": "true" },
        (agent.agent_name ?? agent.template_name ?? "?").slice(0, 1),
      );
};

/**
 * Creates a conversation and opens its page in a new tab. The tab is opened before the request,
 * because browsers block pop-ups that are not opened directly by the click.
 */
export async function startConversation(agent, { showError = toast } = {}) {
  const tab = open("about:blank", "_blank");
  try {
    const conversation = await api.post("/v1/ext/conversation", { agent_id: agent.id });
    if (tab) {
      tab.opener = null;
      tab.location.replace(conversation.join_link);
    }
    return conversation;
  } catch (error) {
    tab?.close();
    showError(error.userMessage ?? "The call did not start.", true);
    return null;
  }
}

export async function agentsPage({ query, signal, navigate }) {
  const offset = Number(query.get("offset")) || 0;
  const searchText = query.get("search") ?? "";
  const applyQuery = (change) => {
    const next = new URLSearchParams(
      Object.entries({ search: searchText, offset, ...change }).filter(([, value]) => value),
    );
    return navigate(`/console/agents${next.size ? `?${next}` : ""}`);
  };
  const [{ items, total }, avatars] = await Promise.all([
    api.list("/v1/ext/agent", { offset, perpage: PAGE_SIZE, search: searchText }, signal),
    selectableAvatars(signal),
  ]);
  const newAgentLink = link(
    "New agent",
    "/console/agents/new",
    { needs: "administer", class: "button primary" },
    "plus",
  );
  const tile = (agent) =>
    h(
      "li",
      { class: "tile" },
      avatarImage(avatars, agent),
      h(
        "div",
        { class: "item-text" },
        h("h2", {}, h("a", { href: `/console/agents/${agent.id}` }, agent.agent_name)),
        h("p", { class: "soft clip" }, agent.agent_system_prompt),
        h(
          "p",
          { class: "tags" },
          agent.is_active === false && pill("Inactive", "warn"),
          agent.embed?.enabled && pill("Embedded"),
          [
            ["knowledge_base", "knowledge base"],
            ["tool", "tool"],
            ["guardrail", "guardrail"],
            ["mcp", "MCP server"],
          ]
            .filter(([list]) => agent[list]?.length)
            .map(([list, singular]) => pill(plural(agent[list].length, singular))),
        ),
      ),
      button(
        "Talk",
        {
          needs: "operate",
          class: "small",
          "aria-label": `Talk to ${agent.agent_name}`,
          disabled: agent.is_active === false,
          onclick: ({ currentTarget }) => runBusy(currentTarget, () => startConversation(agent)),
        },
        "talk",
      ),
    );
  return [
    pageHeader(
      "Agents",
      "Each agent has an avatar, a voice and instructions. Share its link to start a conversation.",
      newAgentLink,
    ),
    (total > PAGE_SIZE || searchText) &&
      searchBox("Search agents by name or id", searchText, (text) =>
        applyQuery({ search: text, offset: 0 }),
      ),
    items.length
      ? h("ul", { class: "tiles" }, items.map(tile))
      : searchText
        ? emptyState(
            "agents",
            "No agent matches",
            "No agent has this text in its name or id.",
            button("Show all", { onclick: () => applyQuery({ search: "", offset: 0 }) }),
          )
        : emptyState(
            "agents",
            "Create your first agent",
            "Choose an avatar, write instructions, and talk to it.",
            link(
              "New agent",
              "/console/agents/new",
              { needs: "administer", class: "button primary" },
              "plus",
            ),
          ),
    pager({ offset, perpage: PAGE_SIZE, total }, (next) => applyQuery({ offset: next })),
  ].filter(Boolean);
}

/** Loads all records that the form of an agent or a template offers. */
export async function loadFormOptions(signal) {
  const [avatars, providers, knowledge, tools, guardrails, mcp, capabilities] = await Promise.all([
    selectableAvatars(signal),
    api.get("/v1/ext/providers", signal),
    api.listAll("/v1/ext/kbs", signal),
    api.listAll("/v1/ext/tool", signal),
    api.listAll("/v1/ext/guardrail", signal),
    api.listAll("/v1/ext/mcp", signal),
    api.get("/v1/ext/capabilities", signal),
  ]);
  const recordingProblem = capabilities.recording.reason ?? "";
  return { avatars, providers, knowledge, tools, guardrails, mcp, recordingProblem };
}

const conversationsUrl = (agent) =>
  `/console/conversations?search=${encodeURIComponent(agent.agent_name)}`;

async function renewSecret(agent) {
  if (
    !(await confirmDialog(
      "Renew the webhook secret?",
      "Receivers that check signatures with the old secret will reject new webhooks.",
      "Renew",
    ))
  )
    return;
  const response = await api.post(`/v1/ext/agent/${agent.id}/webhook-secret`);
  await dialog("The new webhook secret", () => [
    h("p", {}, "Copy it now: it is not shown again."),
    copyable(response.webhook_secret, "webhook secret"),
  ]);
}

async function createLink(agent) {
  const conversation = await api.post("/v1/ext/conversation", { agent_id: agent.id });
  await dialog("A link for one conversation", () => [
    h(
      "p",
      {},
      "Anyone who opens it talks with the agent. " +
        "It works for one conversation, and must be opened within five minutes.",
    ),
    copyable(conversation.join_link, "link"),
    h("p", {}, link("Watch this conversation", `/console/conversations/${conversation.id}`)),
  ]);
}

export async function agentPage({ id, query, signal, navigate, reloadView, setUnsavedCheck }) {
  const [agent, options] = await Promise.all([
    api.get(`/v1/ext/agent/${encodeURIComponent(id)}`, signal),
    loadFormOptions(signal),
  ]);
  const name = agent.avatars?.[0]?.persona_name || agent.agent_name;
  const start = async (control) => {
    const conversation = await runBusy(control, () => startConversation(agent));
    if (conversation)
      callNote.replaceChildren(
        "The call has opened in a new tab. ",
        link("Watch it here", `/console/conversations/${conversation.id}`),
        ".",
      );
  };
  const callNote = h(
    "p",
    { class: "soft", role: "status" },
    query.has("new")
      ? "It is ready. The call opens in a new tab and asks for your microphone; " +
          "you can type instead."
      : [
          "Opens in a new tab. ",
          h("a", { href: conversationsUrl(agent) }, "Earlier conversations"),
        ],
  );
  /** The models that the form names. */
  const models = () => formView.current().avatars[0].config;
  const formView = form({
    sections: agentSections({
      ...options,
      chainTest: chainTest(() => {
        const { stt, llm, tts } = models();
        return { stt, llm, tts };
      }, agent.id),
    }),
    value: toFormValue(agent),
    setUnsavedCheck,
    label: "Save changes",
    sticky: true,
    save: (body) => api.put(`/v1/ext/agent/${id}`, body),
    onSaved: async () => {
      await reloadView();
      toast("Saved. The changes apply from the next conversation.");
    },
  });
  formView
    .field(`${MODELS_PATH}.llm.url`)
    .node.after(localServers(signal, (choice) => formView.fill(llmValues(choice))));
  formView.field("callback_events").node.after(
    h(
      "div",
      { class: "field wide" },
      h("p", { class: "label" }, "Signing secret"),
      h(
        "p",
        { class: "hint" },
        "Every webhook is signed according to the Standard Webhooks specification.",
      ),
      button(
        "Renew the secret",
        {
          needs: "administer",
          class: "small",
          onclick: ({ currentTarget }) => runBusy(currentTarget, () => renewSecret(agent)),
        },
        "again",
      ),
    ),
  );
  if (agent.embed?.enabled) {
    const snippet =
      `<iframe src="${location.origin}/embed/${agent.id}" ` +
      'allow="microphone; autoplay" width="420" height="640"></iframe>';
    formView
      .field("embed.origins")
      .node.after(
        h(
          "div",
          { class: "field wide" },
          h("p", { class: "label" }, "For your page"),
          copyable(snippet, "embed code"),
        ),
      );
  }
  return [
    backLink("Agents", "/console/agents"),
    h(
      "header",
      { class: "hero card" },
      avatarImage(options.avatars, agent, "big"),
      h("div", { class: "item-text" }, h("h1", { tabindex: "-1" }, agent.agent_name), callNote),
      h(
        "div",
        { class: "actions" },
        button(
          `Talk to ${name}`,
          {
            needs: "operate",
            class: "primary",
            disabled: agent.is_active === false,
            onclick: ({ currentTarget }) => start(currentTarget),
          },
          "talk",
        ),
        button(
          "Get a link",
          {
            needs: "operate",
            disabled: agent.is_active === false,
            onclick: ({ currentTarget }) => runBusy(currentTarget, () => createLink(agent)),
          },
          "copy",
        ),
        button(
          "Send into a meeting",
          {
            needs: "operate",
            disabled: agent.is_active === false,
            onclick: () => meetingDialog(agent, navigate),
          },
          "leave",
        ),
      ),
    ),
    agent.avatars.length > 1 &&
      h(
        "p",
        { class: "note" },
        `This agent has ${agent.avatars.length} avatars. ` +
          "Calls use the first one, which is shown below; the others are not changed.",
      ),
    agentWarnings(agent, signal),
    formView.node,
    card(
      "Delete",
      h("p", { class: "soft" }, "Its conversations and their transcripts are kept."),
      h("p", { class: "mono soft" }, agent.id),
      button(
        "Delete this agent",
        {
          needs: "administer",
          class: "small risky",
          onclick: async ({ currentTarget }) => {
            if (
              !(await confirmDialog(
                `Delete ${agent.agent_name}?`,
                "It accepts no more calls. This cannot be undone.",
                "Delete",
              ))
            )
              return;
            await runBusy(currentTarget, async () => {
              await api.remove(`/v1/ext/agent/${id}`);
              toast(`${agent.agent_name} is deleted.`);
              navigate("/console/agents", { force: true });
            });
          },
        },
        "bin",
      ),
    ),
  ].filter(Boolean);
}
