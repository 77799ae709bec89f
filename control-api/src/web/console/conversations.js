// The list of conversations, with all filters of the API.

import * as api from "./api.js";
import { button, formatDuration, h, link, pill, timeElement } from "./dom.js";
import { isMeeting, meetingText, saysReason } from "./meeting-status.js";
import { emptyState, pageHeader, pager, pollWhileVisible } from "./ui.js";

const PAGE_SIZE = 20;
const STATUS_LABELS = {
  STARTED: ["Not joined yet", "warn"],
  IN_PROGRESS: ["Live", "live"],
  ENDED: ["Ended", ""],
};
export const END_REASONS = {
  user_left: "The caller left",
  ended_by_api: "Ended by the API",
  max_call_duration: "Maximum duration reached",
  no_join: "Nobody joined",
  idle: "Idle",
  error: "Error",
  meeting_ended: "The meeting ended",
  agent_ended: "The agent said goodbye",
};

/** @type {(conversation: any) => HTMLElement} */
export const statusPill = (conversation) =>
  isMeeting(conversation) && conversation.status === "STARTED"
    ? pill(meetingText(conversation), "warn")
    : pill(...(STATUS_LABELS[conversation.status] ?? [conversation.status]));

/** Why a conversation has ended, or where the agent is in its meeting. */
const reasonText = (conversation) =>
  saysReason(conversation) || (isMeeting(conversation) && conversation.status === "IN_PROGRESS")
    ? meetingText(conversation)
    : (END_REASONS[conversation.end_reason] ?? conversation.end_reason);

export function parseUsage(conversation) {
  try {
    return JSON.parse(conversation.usage_json) ?? {};
  } catch {
    return {};
  }
}

/** The day after `day` (`YYYY-MM-DD`): the list's end date is exclusive. */
function dayAfter(day) {
  const date = new Date(`${day}T00:00:00Z`);
  if (Number.isNaN(date.getTime())) return day;
  date.setUTCDate(date.getUTCDate() + 1);
  return date.toISOString().slice(0, 10);
}

const numberCell = (label, value) =>
  h(
    "td",
    { "data-label": label, class: value ? "number-cell" : "number-cell empty-cell" },
    String(value || "–"),
  );

export async function conversationsPage({ query, signal, navigate }) {
  /** @type {Record<string, string>} */
  const filter = { search: "", from: "", to: "", type: "", ...Object.fromEntries(query) };
  const offset = Number(filter.offset) || 0;
  const listQuery = {
    offset,
    perpage: PAGE_SIZE,
    search: filter.search,
    fromDate: filter.from,
    toDate: filter.to && dayAfter(filter.to),
    type: filter.type,
  };
  const filtered = ["search", "from", "to", "type"].some((name) => filter[name]);
  const applyFilter = (change) => {
    const next = Object.entries({ ...filter, offset: 0, ...change }).filter(([, value]) => value);
    return navigate(`/console/conversations${next.length ? `?${new URLSearchParams(next)}` : ""}`, {
      replace: true,
    });
  };
  const first = await api.list("/v1/ext/conversation", listQuery, signal);
  const results = h("div", { class: "results" });

  const row = (conversation) => {
    const { duration_seconds: seconds, turns } = parseUsage(conversation);
    const reason = reasonText(conversation);
    return h(
      "tr",
      { data: { id: conversation.id } },
      h(
        "th",
        { scope: "row" },
        h("a", { href: `/console/conversations/${conversation.id}` }, conversation.agent_name),
        h(
          "span",
          { class: "soft" },
          isMeeting(conversation)
            ? `In a meeting as ${conversation.user_name}`
            : conversation.user_name || conversation.user_id || "Unnamed caller",
        ),
      ),
      h(
        "td",
        { "data-label": "State" },
        statusPill(conversation),
        reason && h("span", { class: "soft reason" }, reason),
      ),
      h("td", { "data-label": "Started" }, timeElement(conversation.created_at)),
      numberCell("Length", seconds && formatDuration(seconds)),
      numberCell("Turns", turns),
      numberCell("Rating", conversation.rating && `${conversation.rating} of 5`),
    );
  };
  const render = ({ items, total }) =>
    results.replaceChildren(
      ...[
        items.length
          ? h(
              "div",
              { class: "card flush" },
              h(
                "table",
                { class: "stack" },
                h("caption", { class: "visually-hidden" }, "Conversations"),
                h(
                  "thead",
                  {},
                  h(
                    "tr",
                    {},
                    ["Agent and caller", "State", "Started", "Length", "Turns", "Rating"].map(
                      (name) => h("th", { scope: "col" }, name),
                    ),
                  ),
                ),
                h("tbody", {}, items.map(row)),
              ),
            )
          : filtered
            ? emptyState(
                "conversations",
                "Nothing matches",
                "No conversation matches all filters.",
                button("Show all", { onclick: () => navigate("/console/conversations") }),
              )
            : emptyState(
                "conversations",
                "No conversations yet",
                "Talk to one of your agents: the transcript appears here during the call.",
                link("See your agents", "/console/agents", { class: "button" }),
              ),
        pager({ offset, perpage: PAGE_SIZE, total }, (next) => applyFilter({ offset: next })),
      ].filter(Boolean),
    );
  render(first);
  let lastJson = JSON.stringify(first);
  // Statuses and lengths change meanwhile. An unchanged list, or one that has the focus, is not
  // rendered again, so that the focus is not lost.
  pollWhileVisible(4, signal, async () => {
    const next = await api.list("/v1/ext/conversation", listQuery, signal);
    if (JSON.stringify(next) === lastJson || results.contains(document.activeElement)) return;
    lastJson = JSON.stringify(next);
    render(next);
  });

  const filterField = (name, label, attributes) =>
    h(
      "div",
      { class: "field" },
      h("label", { for: `by-${name}` }, label),
      h("input", { id: `by-${name}`, name, value: filter[name], ...attributes }),
    );
  const form = h(
    "form",
    {
      class: "filters",
      role: "search",
      "aria-label": "Filter conversations",
      onsubmit: (event) => {
        event.preventDefault();
        applyFilter(Object.fromEntries(new FormData(form)));
      },
    },
    filterField("search", "Search", {
      type: "search",
      placeholder: "Agent, caller, id or state",
      class: "grow",
      list: "states",
    }),
    h(
      "datalist",
      { id: "states" },
      Object.keys(STATUS_LABELS).map((value) => h("option", { value })),
    ),
    h("datalist", { id: "types" }, h("option", { value: "meeting" })),
    filterField("from", "From", { type: "date" }),
    filterField("to", "Until", { type: "date" }),
    filterField("type", "Type", { type: "text", autocomplete: "off", list: "types" }),
    h("button", { type: "submit" }, "Filter"),
    filtered && link("Clear", "/console/conversations", { class: "button quiet" }),
  );
  const onlyMeetings = filter.type === "meeting";
  const statusChips = [
    ["", "All"],
    ["IN_PROGRESS", "Live"],
    ["STARTED", "Not joined yet"],
    ["ENDED", "Ended"],
  ].map(([search, label]) =>
    h(
      "button",
      {
        type: "button",
        class: "chip",
        "aria-pressed": String(filter.search === search),
        onclick: () => applyFilter({ search }),
      },
      label,
    ),
  );
  return [
    pageHeader("Conversations", "Every call and every meeting, live and past."),
    h(
      "div",
      { class: "chips" },
      h("div", { class: "chips", role: "group", "aria-label": "State" }, statusChips),
      h(
        "button",
        {
          type: "button",
          class: "chip",
          "aria-pressed": String(onlyMeetings),
          onclick: () => applyFilter({ type: onlyMeetings ? "" : "meeting" }),
        },
        "Only meetings",
      ),
    ),
    form,
    results,
  ];
}
