// One conversation, live or ended: transcript, latencies of its turns, events, webhooks, details.

import * as api from "./api.js";
import { callControls } from "./control.js";
import { END_REASONS, parseUsage, statusPill } from "./conversations.js";
import { deliveryList } from "./deliveries.js";
import { button, formatDuration, h, link, timeElement } from "./dom.js";
import {
  isMeeting,
  isMeetingOver,
  MeetingCard,
  meetingLink,
  meetingText,
  saysReason,
  withKnownStatus,
  withMeetingEvent,
} from "./meeting-status.js";
import { RecordingPanel } from "./recording.js";
import { linesFromRecord, Transcript } from "./transcript.js";
import { TranscriptView } from "./transcript-view.js";
import { turnTable } from "./turns.js";
import {
  backLink,
  confirmDialog,
  errorMessage,
  loadingIndicator,
  pager,
  pollWhileVisible,
  runBusy,
  tabs,
  toast,
} from "./ui.js";

/** How often the record of a meeting is read after its end, until the agent has left. */
const MAX_READS_AFTER_END = 30;
/** Events that the event list hides by default. */
const MINOR_EVENTS = new Set([
  "agent.heard",
  "agent.words",
  "llm.text",
  "playout.started",
  "playout.ducked",
  "playout.unducked",
  "playout.held",
  "playout.resumed",
  "playout.finished",
  "tts.started",
  "agent.state",
  "user.transcript",
  "turn.heard",
]);

/** The events of a conversation so far, shared by all tabs, and their subscribers. */
class EventFollower {
  transcript = new Transcript();
  events = [];
  #subscribers = new Set();

  subscribe(subscriber) {
    this.#subscribers.add(subscriber);
    return () => this.#subscribers.delete(subscriber);
  }

  add(event, live) {
    this.events.push(event);
    const line = this.transcript.handle(event);
    for (const subscriber of this.#subscribers) subscriber(event, line, live);
  }
}

export async function conversationPage({ id, query, signal, navigate }) {
  const path = `/v1/ext/conversation/${encodeURIComponent(id)}`;
  let record = await api.get(path, signal);
  const follower = new EventFollower();
  const live = record.status !== "ENDED";
  if (!live)
    for (const event of await api.get(`${path}/events`, signal)) follower.add(event, false);

  const meetingCard = isMeeting(record) ? new MeetingCard(record) : null;
  const names = {
    agent: record.agent_name,
    user: meetingCard ? "Participant" : record.user_name || "Caller",
  };
  const view = new TranscriptView(names);
  const lines = follower.events.length ? follower.transcript.lines : linesFromRecord(record);
  for (const line of lines) view.render(line);
  const emptyNote = h(
    "p",
    { class: "soft", hidden: lines.some((line) => !line.removed) },
    !live
      ? "Nothing was said."
      : meetingCard
        ? "What is said in the meeting appears here as it is said."
        : "What both say appears here as they say it.",
  );

  const heading = h(
    "h1",
    { tabindex: "-1" },
    meetingCard
      ? `${record.agent_name} in a meeting`
      : `${record.agent_name} and ${record.user_name || record.user_id || "a caller"}`,
  );
  const status = h("p", { class: "tags", role: "status" });
  const agentState = h("span", { class: "agent-state", hidden: true });
  const controlsBar = live
    ? callControls(id, {
        isMeeting: Boolean(meetingCard),
        status: () => record.status,
        // The button that had the focus disappears.
        onEnded: () => heading.focus({ preventScroll: true }),
      })
    : null;
  const eraseButton = button(
    "Erase",
    {
      needs: "operate",
      class: "small risky",
      hidden: true,
      onclick: async ({ currentTarget }) => {
        if (
          !(await confirmDialog(
            "Erase this conversation?",
            "Its transcript, events, webhooks and recording are deleted permanently.",
            "Erase",
          ))
        )
          return;
        await runBusy(currentTarget, async () => {
          await api.remove(path);
          toast("The conversation is erased.");
          navigate("/console/conversations");
        });
      },
    },
    "bin",
  );
  const updateHeader = () => {
    const ended = record.status === "ENDED";
    meetingCard?.show(record);
    status.replaceChildren(
      // The card of the meeting says where an agent is before the conversation starts, and why it
      // left.
      meetingCard && record.status === "STARTED" ? "" : statusPill(record),
      ended && record.end_reason && !saysReason(record)
        ? h("span", { class: "soft" }, END_REASONS[record.end_reason] ?? record.end_reason)
        : "",
      agentState,
    );
    agentState.hidden = record.status !== "IN_PROGRESS" || !follower.transcript.state;
    agentState.textContent =
      { listening: "Listening", thinking: "Thinking", speaking: "Speaking" }[
        follower.transcript.state
      ] ?? "";
    agentState.dataset.state = follower.transcript.state;
    if (controlsBar) controlsBar.hidden = ended;
    eraseButton.hidden = !ended;
  };
  updateHeader();

  follower.subscribe((event, line, isLive) => {
    if (line) {
      view.render(line, isLive);
      emptyNote.hidden = true;
    }
    if (event.what === "agent.state") updateHeader();
  });
  const reloadRecord = async () => {
    record = withKnownStatus(record, await api.get(path, signal));
    updateHeader();
  };
  // There are no events before a user joins, so the status is polled. The stream ends with the
  // conversation, and an agent leaves its meeting after that.
  let readsAfterEnd = 0;
  const poll = () => {
    if (record.status !== "ENDED") return reloadRecord();
    const isLeaving = meetingCard && !isMeetingOver(record);
    return isLeaving && readsAfterEnd++ < MAX_READS_AFTER_END ? reloadRecord() : undefined;
  };
  if (live || meetingCard) pollWhileVisible(2, signal, poll);
  if (live) follow();

  /** Follows a live call until it ends, then loads its final record. */
  async function follow() {
    try {
      // The stream also ends when its server stops. Another server may take over the call.
      for (let lastSeq = null; !signal.aborted && record.status !== "ENDED"; await reloadRecord()) {
        for await (const event of api.streamEvents(id, signal, lastSeq)) {
          if (event.what === "meeting.status") {
            record = withMeetingEvent(record, event);
            updateHeader();
          }
          if (event.seq === undefined) continue;
          if (lastSeq === null) await reloadRecord();
          lastSeq = event.seq;
          follower.add(event, true);
        }
      }
      if (!signal.aborted) tabStrip.open(currentTab);
    } catch (error) {
      if (!signal.aborted) view.node.append(errorMessage(error));
    }
  }

  const tabDefinitions = [
    {
      id: "transcript",
      name: "Transcript",
      show: () => {
        if (record.status === "ENDED" && record.is_recorded)
          recordingPanel ??= new RecordingPanel({
            path,
            record,
            lines: follower.events.length ? follower.transcript.lines : lines,
            view,
            signal,
          });
        return (
          recordingPanel?.node ??
          h("section", { class: "card", "aria-label": "What was said" }, emptyNote, view.node)
        );
      },
    },
    {
      id: "turns",
      name: "Times",
      show: () =>
        asyncPanel(signal, async () =>
          turnTable(
            await api.get(`${path}/turns`, signal),
            follower.transcript.lines
              .filter((line) => line.who === "user")
              .map((line) => line.spoken),
          ),
        ),
    },
    { id: "events", name: "Events", show: () => eventList(follower, signal) },
    {
      id: "webhooks",
      name: "Webhooks",
      show: () => asyncPanel(signal, () => deliveriesPanel(path, signal)),
    },
    { id: "about", name: "Details", show: () => detailsPanel(record) },
  ];
  /** @type {RecordingPanel | null} */
  let recordingPanel = null;
  let currentTab = query.get("tab") ?? "transcript";
  const tabStrip = tabs(tabDefinitions, currentTab, (opened) => {
    currentTab = opened;
    history.replaceState(
      null,
      "",
      opened === "transcript" ? location.pathname : `${location.pathname}?tab=${opened}`,
    );
  });
  return [
    backLink("Conversations", "/console/conversations"),
    h(
      "header",
      { class: "head" },
      h("div", {}, heading, status),
      h("div", { class: "actions" }, eraseButton),
    ),
    meetingCard?.node,
    controlsBar,
    tabStrip.node,
  ].filter(Boolean);
}

/** A panel that shows a loading indicator until `load()` resolves with its content. */
function asyncPanel(signal, load) {
  const panel = h("div", { class: "async-panel" }, loadingIndicator());
  load().then(
    (nodes) => panel.replaceChildren(...[nodes].flat()),
    (error) => {
      if (!signal.aborted) panel.replaceChildren(errorMessage(error));
    },
  );
  return panel;
}

function eventList(follower, signal) {
  const list = h("ol", { class: "events", "aria-label": "Events" });
  const showAllCheckbox = h("input", {
    type: "checkbox",
    id: "all-events",
    onchange: () => render(),
  });
  const eventItem = (event) => {
    const { seq, at, timestamp, what, ...fields } = event;
    const text = Object.keys(fields).length ? JSON.stringify(fields) : "";
    return h(
      "li",
      { class: MINOR_EVENTS.has(what) ? "minor" : "" },
      h("span", { class: "timestamp", title: timestamp }, `${at.toFixed(2)} s`),
      h("code", {}, what),
      h("span", { class: "soft mono clip", title: text }, text),
    );
  };
  const isShown = (event) => showAllCheckbox.checked || !MINOR_EVENTS.has(event.what);
  const render = () => list.replaceChildren(...follower.events.filter(isShown).map(eventItem));
  render();
  const unsubscribe = follower.subscribe((event) => {
    if (list.isConnected) {
      if (isShown(event)) list.append(eventItem(event));
    } else unsubscribe();
  });
  signal.addEventListener("abort", unsubscribe);
  const downloadButton = button("Download", {
    class: "small",
    onclick: () => {
      const url = URL.createObjectURL(
        new Blob([JSON.stringify(follower.events, null, 2)], { type: "application/json" }),
      );
      h("a", { href: url, download: "events.json" }).click();
      URL.revokeObjectURL(url);
    },
  });
  return [
    h(
      "div",
      { class: "space-between" },
      h("label", { class: "inline", for: "all-events" }, showAllCheckbox, "Show all events"),
      downloadButton,
    ),
    h("div", { class: "card flush" }, list),
  ];
}

async function deliveriesPanel(path, signal) {
  const panel = h("div", {});
  const showPage = async (offset) => {
    const { items, total } = await api.list(`${path}/deliveries`, { offset, perpage: 50 }, signal);
    panel.replaceChildren(
      ...[
        items.length
          ? h(
              "div",
              { class: "card flush" },
              deliveryList(items, { onRedelivered: () => showPage(offset) }),
            )
          : h(
              "p",
              { class: "soft" },
              "No webhooks: the agent has no webhook address, or none of its events occurred.",
            ),
        pager({ offset, perpage: 50, total }, showPage),
      ].filter(Boolean),
    );
  };
  await showPage(0);
  return panel;
}

function detailsPanel(record) {
  const usage = parseUsage(record);
  const details = [
    ["Id", h("code", {}, record.id)],
    ["Agent", link(record.agent_name, `/console/agents/${record.agent_id}`)],
    ["Avatar", record.avatar_id],
    ...(isMeeting(record)
      ? [
          ["Meeting", meetingLink(record)],
          ["Status in the meeting", meetingText(record)],
          ["Name in the meeting", record.user_name],
          ["Session id", record.user_id],
        ]
      : [["Caller", [record.user_name, record.user_id].filter(Boolean).join(" · ")]]),
    ["Type", record.type],
    ["Created", timeElement(record.created_at, { second: "2-digit" })],
    ["Joined", record.joined_at && timeElement(record.joined_at, { second: "2-digit" })],
    ["Ended", record.ended_at && timeElement(record.ended_at, { second: "2-digit" })],
    ["Length", usage.duration_seconds && formatDuration(usage.duration_seconds)],
    ["Speech recognized", usage.stt_seconds && `${usage.stt_seconds} s`],
    [
      "Tokens",
      usage.llm &&
        `${usage.llm.prompt_tokens} in prompts, ${usage.llm.completion_tokens} in answers`,
    ],
    ["Characters spoken", usage.tts_characters],
    [
      "Rating",
      record.rating && `${record.rating} of 5${record.feedback ? `: ${record.feedback}` : ""}`,
    ],
    ["Context", record.context && h("pre", { tabindex: "0" }, record.context)],
    [
      "Metadata",
      record.meta_data && h("pre", { tabindex: "0" }, JSON.stringify(record.meta_data, null, 2)),
    ],
  ].filter(([, value]) => value);
  const snippets = record.snippets?.items ?? [];
  return [
    record.warnings.length > 0 &&
      h(
        "ul",
        { class: "note" },
        record.warnings.map((text) => h("li", {}, text)),
      ),
    h(
      "section",
      { class: "card" },
      h(
        "dl",
        { class: "facts" },
        details.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
      ),
    ),
    snippets.length > 0 &&
      h(
        "section",
        { class: "card" },
        h("h2", {}, "Knowledge used"),
        h(
          "ul",
          { class: "list inner" },
          snippets.map((one) =>
            h(
              "li",
              {},
              h("p", { class: "item-text" }, one.text),
              link("Base", `/console/knowledge/${one.kb_id}`),
            ),
          ),
        ),
      ),
  ].filter(Boolean);
}
