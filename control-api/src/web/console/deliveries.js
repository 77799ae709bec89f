// Webhooks as they were sent: state, tries, body, and sending a dead one again.

import * as api from "./api.js";
import { button, h, link, pill, plural, when } from "./dom.js";
import { busy, toast } from "./ui.js";

const STATES = { pending: ["Waiting", "warn"], done: ["Delivered", "good"], dead: ["Dead letter", "bad"], dropped: ["Dropped", ""] };

const pretty = (body) => {
  try {
    return JSON.stringify(JSON.parse(body), null, 2);
  } catch {
    return body;
  }
};

function tries(delivery) {
  if (!delivery.tries.length) return h("p", { class: "soft" }, "Not tried yet.");
  return h("table", { class: "tries" }, h("caption", { class: "unseen" }, "Tries"),
    h("thead", {}, h("tr", {}, ["Try", "At", "Answer", "Took"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, delivery.tries.map((one) => h("tr", {},
      h("td", { "data-label": "Try" }, String(one.attempt)), h("td", { "data-label": "At" }, when(one.at, { second: "2-digit" })),
      h("td", { "data-label": "Answer" }, one.status ? String(one.status) : one.error ?? "–"), h("td", { "data-label": "Took" }, `${one.took_ms} ms`)))));
}

/** A list of deliveries. `again`: called after one was sent again. `apart`: they belong to several conversations, of agents with these `names` by id. */
export function deliveryList(deliveries, { again = () => {}, apart = false, names } = {}) {
  return h("ul", { class: "list deliveries" }, deliveries.map((delivery) => {
    const [words, tone] = STATES[delivery.state] ?? [delivery.state, ""];
    const send = delivery.state === "dead" && button("Send again", { needs: "administer", class: "small", "aria-label": `Send ${delivery.event} again`, onclick: ({ currentTarget }) => busy(currentTarget, async () => {
      await api.post(`/v1/ext/deadletter/${encodeURIComponent(delivery.id)}/redeliver`);
      toast(`${delivery.event} is sent again.`);
      await again();
    }) }, "again");
    return h("li", { data: { state: delivery.state, id: delivery.id } }, h("details", {},
      h("summary", {}, h("span", { class: "what" }, h("code", { class: "name" }, delivery.event), h("span", { class: "soft" }, when(delivery.created_at, { second: "2-digit" }), ` · ${plural(delivery.tries.length, "try", "tries")}`, delivery.reason && ` · ${delivery.reason}`)), pill(words, tone)),
      h("dl", { class: "facts" },
        h("dt", {}, "To"), h("dd", { class: "mono" }, delivery.url),
        apart && [h("dt", {}, "Agent"), h("dd", {}, link(names?.get(delivery.agent_id) ?? delivery.agent_id, `/console/agents/${delivery.agent_id}`))],
        h("dt", {}, "Id"), h("dd", { class: "mono" }, delivery.id),
        delivery.next_try && [h("dt", {}, "Next try"), h("dd", {}, when(delivery.next_try, { second: "2-digit" }))],
        apart && [h("dt", {}, "Conversation"), h("dd", {}, link(delivery.conversation_id, `/console/conversations/${delivery.conversation_id}?tab=webhooks`))]),
      tries(delivery),
      h("pre", { tabindex: "0", "aria-label": "Body" }, pretty(delivery.body))),
    send);
  }));
}
