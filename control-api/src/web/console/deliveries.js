// Webhook deliveries: state, attempts, body. Dead letters can be sent again.

import * as api from "./api.js";
import { button, h, link, pill, plural, timeElement } from "./dom.js";
import { runBusy, toast } from "./ui.js";

const STATE_LABELS = {
  pending: ["Waiting", "warn"],
  done: ["Delivered", "good"],
  dead: ["Dead letter", "bad"],
  dropped: ["Dropped", ""],
};

const formatBody = (body) => {
  try {
    return JSON.stringify(JSON.parse(body), null, 2);
  } catch {
    return body;
  }
};

function attemptsTable(delivery) {
  if (!delivery.tries.length) return h("p", { class: "soft" }, "No attempt yet.");
  return h(
    "table",
    { class: "tries" },
    h("caption", { class: "visually-hidden" }, "Attempts"),
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        ["Attempt", "Time", "Response", "Duration"].map((name) => h("th", { scope: "col" }, name)),
      ),
    ),
    h(
      "tbody",
      {},
      delivery.tries.map((attempt) =>
        h(
          "tr",
          {},
          h("td", { "data-label": "Attempt" }, String(attempt.attempt)),
          h("td", { "data-label": "Time" }, timeElement(attempt.at, { second: "2-digit" })),
          h(
            "td",
            { "data-label": "Response" },
            attempt.status ? String(attempt.status) : (attempt.error ?? "–"),
          ),
          h("td", { "data-label": "Duration" }, `${attempt.took_ms} ms`),
        ),
      ),
    ),
  );
}

/**
 * A list of deliveries. `onRedelivered`: called after one was sent again. `showConversation`: the
 * deliveries belong to several conversations. `agentNames`: Map from an agent's id to its name.
 * @param {any[]} deliveries
 * @param {{onRedelivered?: () => any, showConversation?: boolean,
 *   agentNames?: Map<string, string>}} [options]
 */
export function deliveryList(
  deliveries,
  { onRedelivered = () => {}, showConversation = false, agentNames } = {},
) {
  return h(
    "ul",
    { class: "list deliveries" },
    deliveries.map((delivery) => {
      const [label, tone] = STATE_LABELS[delivery.state] ?? [delivery.state, ""];
      const resendButton =
        delivery.state === "dead" &&
        button(
          "Send again",
          {
            needs: "administer",
            class: "small",
            "aria-label": `Send ${delivery.event} again`,
            onclick: ({ currentTarget }) =>
              runBusy(currentTarget, async () => {
                await api.post(`/v1/ext/deadletter/${encodeURIComponent(delivery.id)}/redeliver`);
                toast(`${delivery.event} is sent again.`);
                await onRedelivered();
              }),
          },
          "again",
        );
      return h(
        "li",
        { data: { state: delivery.state, id: delivery.id } },
        h(
          "details",
          {},
          h(
            "summary",
            {},
            h(
              "span",
              { class: "item-text" },
              h("code", { class: "name" }, delivery.event),
              h(
                "span",
                { class: "soft" },
                timeElement(delivery.created_at, { second: "2-digit" }),
                ` · ${plural(delivery.tries.length, "attempt", "attempts")}`,
                delivery.reason && ` · ${delivery.reason}`,
              ),
            ),
            pill(label, tone),
          ),
          h(
            "dl",
            { class: "facts" },
            h("dt", {}, "To"),
            h("dd", { class: "mono" }, delivery.url),
            showConversation && [
              h("dt", {}, "Agent"),
              h(
                "dd",
                {},
                link(
                  agentNames?.get(delivery.agent_id) ?? delivery.agent_id,
                  `/console/agents/${delivery.agent_id}`,
                ),
              ),
            ],
            h("dt", {}, "Id"),
            h("dd", { class: "mono" }, delivery.id),
            delivery.next_try && [
              h("dt", {}, "Next attempt"),
              h("dd", {}, timeElement(delivery.next_try, { second: "2-digit" })),
            ],
            showConversation && [
              h("dt", {}, "Conversation"),
              h(
                "dd",
                {},
                link(
                  delivery.conversation_id,
                  `/console/conversations/${delivery.conversation_id}?tab=webhooks`,
                ),
              ),
            ],
          ),
          attemptsTable(delivery),
          h("pre", { tabindex: "0", "aria-label": "Body" }, formatBody(delivery.body)),
        ),
        resendButton,
      );
    }),
  );
}
