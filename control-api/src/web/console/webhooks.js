// Webhooks that were given up, over all conversations; and where the log of each conversation is.

import * as api from "./api.js";
import { deliveryList } from "./deliveries.js";
import { button, h, link, when } from "./dom.js";
import { busy, card, empty, head, pager, sure, toast } from "./ui.js";

const PER = 20;

export async function webhooksPage({ query, signal, go, again }) {
  const offset = Number(query.get("offset")) || 0;
  const [{ items, total }, recent, agents] = await Promise.all([
    api.list("/v1/ext/deadletters", { offset, perpage: PER }, signal),
    api.list("/v1/ext/conversation", { perpage: 20 }, signal),
    api.all("/v1/ext/agent", signal)]);
  const everyOne = button("Send all of these again", { needs: "administer", class: "small", onclick: async ({ currentTarget }) => {
    if (!(await sure(`Send ${items.length} again?`, "Each goes to its receiver under the id that it had.", "Send again"))) return;
    await busy(currentTarget, async () => {
      let sent = 0;
      for (const { id } of items) {
        try {
          await api.post(`/v1/ext/deadletter/${encodeURIComponent(id)}/redeliver`);
          sent += 1;
        } catch (error) {
          // Somebody else may have sent it meanwhile.
          if (error.status !== 404) throw error;
        }
      }
      toast(`${sent} sent again.`);
      await again();
    });
  } }, "again");
  const hooked = new Set(agents.filter((agent) => agent.callback_url).map((agent) => agent.id));
  const withLog = recent.items.filter((conversation) => hooked.has(conversation.agent_id));
  return [
    head("Webhooks", "Events that your server is told of. What it did not take after every try waits here as a dead letter."),
    h("section", { class: "card flush" }, h("div", { class: "card-head" }, h("h2", {}, "Dead letters"), items.length > 1 && everyOne),
      items.length ? deliveryList(items, { again, apart: true, names: new Map(agents.map((agent) => [agent.id, agent.agent_name])) }) : h("div", { class: "pad" }, empty("webhooks", "No dead letters", "Every webhook reached its receiver, or is still being tried."))),
    pager({ offset, perpage: PER, total }, (next) => go(`/console/webhooks?offset=${next}`)),
    card("Delivery log", h("p", { class: "soft" }, "Each conversation keeps the log of its own webhooks. The latest of agents with an address:"),
      withLog.length
        ? h("ul", { class: "list inner" }, withLog.map((conversation) => h("li", {}, h("div", { class: "what" }, h("h3", {}, h("a", { href: `/console/conversations/${conversation.id}?tab=webhooks` }, conversation.agent_name, conversation.user_name ? ` with ${conversation.user_name}` : ""))), when(conversation.created_at))))
        : h("p", { class: "soft" }, hooked.size ? "No conversation yet." : ["No agent has an address yet. Set one under “Webhooks” of ", link("an agent", "/console/agents"), "."])),
  ].filter(Boolean);
}
