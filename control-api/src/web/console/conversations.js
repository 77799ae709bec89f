// Conversations: the list with every filter that the API has.

import * as api from "./api.js";
import { button, h, link, pill, span, when } from "./dom.js";
import { empty, every, head, pager } from "./ui.js";

const PER = 20;
const STATES = { STARTED: ["Not joined yet", "warn"], IN_PROGRESS: ["Live", "live"], ENDED: ["Ended", ""] };
export const REASONS = { user_left: "The caller left", ended_by_api: "Ended by a program", max_call_duration: "Time was up", no_join: "Nobody joined", idle: "Silence", error: "An error", meeting_ended: "The meeting ended" };

export const state = (conversation) => pill(...(STATES[conversation.status] ?? [conversation.status]));

export function usage(conversation) {
  try {
    return JSON.parse(conversation.usage_json) ?? {};
  } catch {
    return {};
  }
}

/** `YYYY-MM-DD`, so many days later. */
function dayAfter(day) {
  const at = new Date(`${day}T00:00:00Z`);
  if (Number.isNaN(at.getTime())) return day;
  at.setUTCDate(at.getUTCDate() + 1);
  return at.toISOString().slice(0, 10);
}

const figure = (label, value) => h("td", { "data-label": label, class: value ? "figure" : "figure none" }, String(value || "–"));

export async function conversationsPage({ query, signal, go }) {
  const filter = { search: "", from: "", to: "", type: "", ...Object.fromEntries(query) };
  const offset = Number(filter.offset) || 0;
  const wanted = { offset, perpage: PER, search: filter.search, fromDate: filter.from, toDate: filter.to && dayAfter(filter.to), type: filter.type };
  const filtered = ["search", "from", "to", "type"].some((name) => filter[name]);
  const to = (change) => {
    const next = Object.entries({ ...filter, offset: 0, ...change }).filter(([, value]) => value);
    return go(`/console/conversations${next.length ? `?${new URLSearchParams(next)}` : ""}`, { replace: true });
  };
  const first = await api.list("/v1/ext/conversation", wanted, signal);
  const box = h("div", { class: "results" });

  const row = (conversation) => {
    const { duration_seconds: seconds, turns } = usage(conversation);
    return h("tr", { data: { id: conversation.id } },
      h("th", { scope: "row" }, h("a", { href: `/console/conversations/${conversation.id}` }, conversation.agent_name), h("span", { class: "soft" }, conversation.user_name || conversation.user_id || "Unnamed caller")),
      h("td", { "data-label": "State" }, state(conversation), conversation.end_reason && h("span", { class: "soft reason" }, REASONS[conversation.end_reason] ?? conversation.end_reason)),
      h("td", { "data-label": "Began" }, when(conversation.created_at)),
      figure("Length", seconds && span(seconds)), figure("Turns", turns), figure("Rating", conversation.rating && `${conversation.rating} of 5`));
  };
  const draw = ({ items, total }) => box.replaceChildren(...[
    items.length
      ? h("div", { class: "card flush" }, h("table", { class: "stack" }, h("caption", { class: "unseen" }, "Conversations"),
        h("thead", {}, h("tr", {}, ["Agent and caller", "State", "Began", "Length", "Turns", "Rating"].map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, items.map(row))))
      : filtered
        ? empty("conversations", "Nothing matches", "No conversation fits all of these filters.", button("Show all", { onclick: () => go("/console/conversations") }))
        : empty("conversations", "No conversations yet", "Talk to one of your agents: what is said appears here, word by word.", link("See your agents", "/console/agents", { class: "button" })),
    pager({ offset, perpage: PER, total }, (next) => to({ offset: next })),
  ].filter(Boolean));
  draw(first);
  let last = JSON.stringify(first);
  // States and lengths change while one looks; what did not change is not drawn anew, so that a focus in the list stays.
  every(4, signal, async () => {
    const next = await api.list("/v1/ext/conversation", wanted, signal);
    if (JSON.stringify(next) === last || box.contains(document.activeElement)) return;
    last = JSON.stringify(next);
    draw(next);
  });

  const field = (name, label, about) => h("div", { class: "field" }, h("label", { for: `by-${name}` }, label), h("input", { id: `by-${name}`, name, value: filter[name], ...about }));
  const form = h("form", { class: "filters", role: "search", "aria-label": "Filter conversations", onsubmit: (event) => {
    event.preventDefault();
    to(Object.fromEntries(new FormData(form)));
  } },
    field("search", "Search", { type: "search", placeholder: "Agent, caller, id or state", class: "grow", list: "states" }), h("datalist", { id: "states" }, Object.keys(STATES).map((value) => h("option", { value }))),
    field("from", "From", { type: "date" }), field("to", "Until", { type: "date" }), field("type", "Type", { type: "text", autocomplete: "off" }),
    h("button", { type: "submit" }, "Filter"), filtered && link("Clear", "/console/conversations", { class: "button quiet" }));
  const quick = [["", "All"], ["IN_PROGRESS", "Live"], ["STARTED", "Not joined yet"], ["ENDED", "Ended"]].map(([search, words]) =>
    h("button", { type: "button", class: "chip", "aria-pressed": String(filter.search === search), onclick: () => to({ search }) }, words));
  return [head("Conversations", "Every call, live and past."), h("div", { class: "chips", role: "group", "aria-label": "State" }, quick), form, box];
}
