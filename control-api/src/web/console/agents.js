// Agents: the list, and one agent with everything that can be set.

import * as api from "./api.js";
import { sections, shown } from "./agent-fields.js";
import { button, copyable, h, link, pill, plural } from "./dom.js";
import { faces } from "./faces.js";
import { form } from "./form.js";
import { meeting } from "./meeting.js";
import { back, busy, card, dialog, empty, head, pager, search, sure, toast } from "./ui.js";

const PER = 12;

export const picture = (avatars, agent, size) => {
  const found = avatars.find((a) => a.avatar_key_id === agent.avatars?.[0]?.avatar_key_id);
  return found?.display_picture ? h("img", { class: `face ${size ?? ""}`, src: found.display_picture, alt: "", width: 56, height: 56 }) : h("span", { class: `face ${size ?? ""}`, "aria-hidden": "true" }, (agent.agent_name ?? agent.template_name ?? "?").slice(0, 1));
};

/** Makes a conversation and opens its page. The window is opened by the click itself: later the browser would hold it back. */
export async function talk(agent, { tell = toast } = {}) {
  const tab = open("about:blank", "_blank");
  try {
    const made = await api.post("/v1/ext/conversation", { agent_id: agent.id });
    if (tab) {
      tab.opener = null;
      tab.location.replace(made.join_link);
    }
    return made;
  } catch (error) {
    tab?.close();
    tell(error.sentence ?? "The call did not start.", true);
    return null;
  }
}

export async function agentsPage({ query, signal, go }) {
  const offset = Number(query.get("offset")) || 0;
  const wanted = query.get("search") ?? "";
  const to = (change) => {
    const next = new URLSearchParams(Object.entries({ search: wanted, offset, ...change }).filter(([, value]) => value));
    return go(`/console/agents${next.size ? `?${next}` : ""}`);
  };
  const [{ items, total }, avatars] = await Promise.all([api.list("/v1/ext/agent", { offset, perpage: PER, search: wanted }, signal), faces(signal)]);
  const add = link("New agent", "/console/agents/new", { needs: "administer", class: "button primary" }, "plus");
  const tile = (agent) => h("li", { class: "tile" },
    picture(avatars, agent),
    h("div", { class: "what" },
      h("h2", {}, h("a", { href: `/console/agents/${agent.id}` }, agent.agent_name)),
      h("p", { class: "soft clip" }, agent.agent_system_prompt),
      h("p", { class: "tags" }, agent.is_active === false && pill("Inactive", "warn"), agent.embed?.enabled && pill("Embedded"),
        [["knowledge_base", "knowledge base"], ["tool", "tool"], ["guardrail", "guardrail"], ["mcp", "MCP server"]].filter(([list]) => agent[list]?.length).map(([list, one]) => pill(plural(agent[list].length, one))))),
    button("Talk", { needs: "operate", class: "small", "aria-label": `Talk to ${agent.agent_name}`, disabled: agent.is_active === false, onclick: ({ currentTarget }) => busy(currentTarget, () => talk(agent)) }, "talk"));
  return [
    head("Agents", "Each one has a face, a voice and a job. Give somebody its link, and they talk.", add),
    (total > PER || wanted) && search("Search agents by name or id", wanted, (text) => to({ search: text, offset: 0 })),
    items.length ? h("ul", { class: "tiles" }, items.map(tile))
      : wanted ? empty("agents", "No agent matches", "Nothing has this in its name or id.", button("Show all", { onclick: () => to({ search: "", offset: 0 }) }))
        : empty("agents", "Make your first agent", "Choose a face, say what it should do, and talk to it a minute from now.", link("New agent", "/console/agents/new", { needs: "administer", class: "button primary" }, "plus")),
    pager({ offset, perpage: PER, total }, (next) => to({ offset: next })),
  ].filter(Boolean);
}

/** Everything that the form of an agent or a template offers. */
export async function known(signal) {
  const [avatars, providers, knowledge, tools, guardrails, mcp] = await Promise.all([
    faces(signal), api.get("/v1/ext/providers", signal), api.all("/v1/ext/kbs", signal), api.all("/v1/ext/tool", signal), api.all("/v1/ext/guardrail", signal), api.all("/v1/ext/mcp", signal)]);
  return { avatars, providers, knowledge, tools, guardrails, mcp };
}

const conversations = (agent) => `/console/conversations?search=${encodeURIComponent(agent.agent_name)}`;

async function secret(agent) {
  if (!(await sure("Renew the webhook secret?", "Receivers that check signatures with the old secret refuse what comes from now on.", "Renew"))) return;
  const answer = await api.post(`/v1/ext/agent/${agent.id}/webhook-secret`);
  await dialog("The new webhook secret", () => [h("p", {}, "Copy it now: it is not shown again."), copyable(answer.webhook_secret, "webhook secret")]);
}

async function share(agent) {
  const made = await api.post("/v1/ext/conversation", { agent_id: agent.id });
  await dialog("A link for one conversation", () => [
    h("p", {}, "Whoever opens it talks with the agent. It works for one conversation, and must be opened within five minutes."), copyable(made.join_link, "link"),
    h("p", {}, link("Watch this conversation", `/console/conversations/${made.id}`))]);
}

export async function agentPage({ id, query, signal, go, again, keep }) {
  const [agent, all] = await Promise.all([api.get(`/v1/ext/agent/${encodeURIComponent(id)}`, signal), known(signal)]);
  const name = agent.avatars?.[0]?.persona_name || agent.agent_name;
  const start = async (control) => {
    const made = await busy(control, () => talk(agent));
    if (made) watch.replaceChildren("The call has opened in a new tab. ", link("Watch it here", `/console/conversations/${made.id}`), ".");
  };
  const watch = h("p", { class: "soft", role: "status" }, query.has("new") ? "It is ready. The call opens in a new tab and asks for your microphone; you can type instead." : ["Opens in a new tab. ", h("a", { href: conversations(agent) }, "Earlier conversations")]);
  const made = form({
    sections: sections(all), value: shown(agent), keep, label: "Save changes", sticky: true,
    save: (body) => api.put(`/v1/ext/agent/${id}`, body),
    done: async () => {
      await again();
      toast("Saved. It counts from the next conversation on.");
    },
  });
  made.field("callback_events").node.after(h("div", { class: "field wide" }, h("p", { class: "label" }, "Signing secret"), h("p", { class: "hint" }, "Every webhook is signed by the Standard Webhooks specification."),
    button("Renew the secret", { needs: "administer", class: "small", onclick: ({ currentTarget }) => busy(currentTarget, () => secret(agent)) }, "again")));
  if (agent.embed?.enabled) {
    const snippet = `<iframe src="${location.origin}/embed/${agent.id}" allow="microphone; autoplay" width="420" height="640"></iframe>`;
    made.field("embed.origins").node.after(h("div", { class: "field wide" }, h("p", { class: "label" }, "For your page"), copyable(snippet, "embed code")));
  }
  return [
    back("Agents", "/console/agents"),
    h("header", { class: "hero card" }, picture(all.avatars, agent, "big"),
      h("div", { class: "what" }, h("h1", { tabindex: "-1" }, agent.agent_name), watch),
      h("div", { class: "actions" },
        button(`Talk to ${name}`, { needs: "operate", class: "primary", disabled: agent.is_active === false, onclick: ({ currentTarget }) => start(currentTarget) }, "talk"),
        button("Get a link", { needs: "operate", disabled: agent.is_active === false, onclick: ({ currentTarget }) => busy(currentTarget, () => share(agent)) }, "copy"),
        button("Send into a meeting", { needs: "operate", disabled: agent.is_active === false, onclick: () => meeting(agent) }, "leave"))),
    agent.avatars.length > 1 && h("p", { class: "note" }, `This agent has ${agent.avatars.length} faces. Calls use the first one, which is the one below; the others stay as they are.`),
    made.node,
    card("Delete", h("p", { class: "soft" }, "Its conversations and their transcripts stay."), h("p", { class: "mono soft" }, agent.id),
      button("Delete this agent", { needs: "administer", class: "small risky", onclick: async ({ currentTarget }) => {
        if (!(await sure(`Delete ${agent.agent_name}?`, "Nobody can talk to it any more. This cannot be undone.", "Delete"))) return;
        await busy(currentTarget, async () => {
          await api.remove(`/v1/ext/agent/${id}`);
          toast(`${agent.agent_name} is deleted.`);
          go("/console/agents", { force: true });
        });
      } }, "bin")),
  ].filter(Boolean);
}
