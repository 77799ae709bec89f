// The dead letters of all conversations, and links to the delivery log of each conversation.

import * as api from "./api.js";
import { deliveryList } from "./deliveries.js";
import { button, h, link, timeElement } from "./dom.js";
import { card, confirmDialog, emptyState, pageHeader, pager, runBusy, toast } from "./ui.js";

const PAGE_SIZE = 20;

export async function webhooksPage({ query, signal, navigate, reloadView }) {
  const offset = Number(query.get("offset")) || 0;
  const [{ items, total }, recent, agents] = await Promise.all([
    api.list("/v1/ext/deadletters", { offset, perpage: PAGE_SIZE }, signal),
    api.list("/v1/ext/conversation", { perpage: 20 }, signal),
    api.listAll("/v1/ext/agent", signal),
  ]);
  const resendAllButton = button(
    "Send all of these again",
    {
      needs: "administer",
      class: "small",
      onclick: async ({ currentTarget }) => {
        if (
          !(await confirmDialog(
            `Send ${items.length} again?`,
            "Each is sent to its receiver with its original id.",
            "Send again",
          ))
        )
          return;
        await runBusy(currentTarget, async () => {
          let sent = 0;
          for (const { id } of items) {
            try {
              await api.post(`/v1/ext/deadletter/${encodeURIComponent(id)}/redeliver`);
              sent += 1;
            } catch (error) {
              // 404: another user has sent it meanwhile.
              if (error.status !== 404) throw error;
            }
          }
          toast(`${sent} sent again.`);
          await reloadView();
        });
      },
    },
    "again",
  );
  const agentsWithWebhook = new Set(
    agents.filter((agent) => agent.callback_url).map((agent) => agent.id),
  );
  const withDeliveries = recent.items.filter((conversation) =>
    agentsWithWebhook.has(conversation.agent_id),
  );
  return [
    pageHeader(
      "Webhooks",
      "Events that are sent to your server. " +
        "A webhook whose attempts all failed is listed here as a dead letter.",
    ),
    h(
      "section",
      { class: "card flush" },
      h(
        "div",
        { class: "card-head" },
        h("h2", {}, "Dead letters"),
        items.length > 1 && resendAllButton,
      ),
      items.length
        ? deliveryList(items, {
            onRedelivered: reloadView,
            showConversation: true,
            agentNames: new Map(agents.map((agent) => [agent.id, agent.agent_name])),
          })
        : h(
            "div",
            { class: "pad" },
            emptyState(
              "webhooks",
              "No dead letters",
              "Every webhook was delivered or has attempts left.",
            ),
          ),
    ),
    pager({ offset, perpage: PAGE_SIZE, total }, (next) =>
      navigate(`/console/webhooks?offset=${next}`),
    ),
    card(
      "Delivery log",
      h(
        "p",
        { class: "soft" },
        "Each conversation has a log of its webhooks. " +
          "The latest conversations of agents with a webhook address:",
      ),
      withDeliveries.length
        ? h(
            "ul",
            { class: "list inner" },
            withDeliveries.map((conversation) =>
              h(
                "li",
                {},
                h(
                  "div",
                  { class: "item-text" },
                  h(
                    "h3",
                    {},
                    h(
                      "a",
                      { href: `/console/conversations/${conversation.id}?tab=webhooks` },
                      conversation.agent_name,
                      conversation.user_name ? ` with ${conversation.user_name}` : "",
                    ),
                  ),
                ),
                timeElement(conversation.created_at),
              ),
            ),
          )
        : h(
            "p",
            { class: "soft" },
            agentsWithWebhook.size
              ? "No conversation yet."
              : [
                  "No agent has an address yet. Set one under “Webhooks” of ",
                  link("an agent", "/console/agents"),
                  ".",
                ],
          ),
    ),
  ].filter(Boolean);
}
