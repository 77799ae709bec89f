// One conversation: live with captions, or as it was; its turns, events, webhooks, and what is known of it.

import * as api from "./api.js";
import { REASONS, state, usage } from "./conversations.js";
import { controls } from "./control.js";
import { deliveryList } from "./deliveries.js";
import { button, h, link, span, when } from "./dom.js";
import { Transcript, ofRecord } from "./transcript.js";
import { TranscriptView } from "./transcript-view.js";
import { turnBars } from "./turns.js";
import { back, busy, every, pager, problem, sure, tabs, toast, waiting } from "./ui.js";

const QUIET = new Set(["agent.heard", "llm.text", "playout.started", "playout.ducked", "playout.unducked", "playout.held", "playout.resumed", "playout.finished", "tts.started", "agent.state", "user.transcript", "turn.heard"]);

/** Follows the events of a conversation, one reader for all tabs. */
class Follower {
  transcript = new Transcript();
  events = [];
  #watchers = new Set();

  watch(then) {
    this.#watchers.add(then);
    return () => this.#watchers.delete(then);
  }

  take(event, live) {
    this.events.push(event);
    const line = this.transcript.handle(event);
    for (const then of this.#watchers) then(event, line, live);
  }
}

export async function conversationPage({ id, query, signal, go }) {
  const path = `/v1/ext/conversation/${encodeURIComponent(id)}`;
  let record = await api.get(path, signal);
  const follower = new Follower();
  const live = record.status !== "ENDED";
  if (!live) for (const event of await api.get(`${path}/events`, signal)) follower.take(event, false);

  const names = { agent: record.agent_name, user: record.user_name || "Caller" };
  const view = new TranscriptView(names);
  const lines = follower.events.length ? follower.transcript.lines : ofRecord(record);
  for (const line of lines) view.show(line);
  const nothing = h("p", { class: "soft", hidden: lines.some((line) => !line.gone) }, live ? "What both say appears here as they say it." : "Nothing was said.");

  const status = h("p", { class: "tags", role: "status" });
  const mood = h("span", { class: "mood", hidden: true });
  const bar = live ? controls(id, () => record.status) : null;
  const erase = button("Erase", { needs: "operate", class: "small risky", hidden: true, onclick: async ({ currentTarget }) => {
    if (!(await sure("Erase this conversation?", "Its transcript, events, webhooks and recording are gone for good.", "Erase"))) return;
    await busy(currentTarget, async () => {
      await api.remove(path);
      toast("The conversation is erased.");
      go("/console/conversations");
    });
  } }, "bin");
  const describe = () => {
    const over = record.status === "ENDED";
    status.replaceChildren(state(record), over && record.end_reason ? h("span", { class: "soft" }, REASONS[record.end_reason] ?? record.end_reason) : "", mood);
    mood.hidden = record.status !== "IN_PROGRESS" || !follower.transcript.state;
    mood.textContent = { listening: "Listening", thinking: "Thinking", speaking: "Speaking" }[follower.transcript.state] ?? "";
    mood.dataset.state = follower.transcript.state;
    if (bar) bar.hidden = over;
    erase.hidden = !over;
  };
  describe();

  follower.watch((event, line, isLive) => {
    if (line) {
      view.show(line, isLive);
      nothing.hidden = true;
    }
    if (event.what === "agent.state") describe();
  });
  if (live) follow();

  /** Goes with the call until it is over, then reads the record that it left. */
  async function follow() {
    const reread = async () => {
      record = await api.get(path, signal);
      describe();
    };
    // Until somebody joins there are no events: the state is asked for.
    every(2, signal, () => record.status !== "ENDED" && reread());
    try {
      // A server that stops ends the stream too; the call may be taken over by another one.
      for (let last = null; !signal.aborted && record.status !== "ENDED"; await reread()) {
        for await (const event of api.events(id, signal, last)) {
          if (last === null) await reread();
          last = event.seq;
          follower.take(event, true);
        }
      }
      if (!signal.aborted) strip.open(current);
    } catch (error) {
      if (!signal.aborted) view.node.append(problem(error));
    }
  }

  const parts = [
    { id: "transcript", name: "Transcript", show: () => [...recording(record), h("section", { class: "card", "aria-label": "What was said" }, nothing, view.node)] },
    { id: "turns", name: "Times", show: () => later(signal, async () => turnBars(await api.get(`${path}/turns`, signal), follower.transcript.lines.filter((line) => line.who === "user").map((line) => line.spoken))) },
    { id: "events", name: "Events", show: () => eventList(follower, signal) },
    { id: "webhooks", name: "Webhooks", show: () => later(signal, () => deliveries(path, signal)) },
    { id: "about", name: "Details", show: () => about(record) },
  ];
  let current = query.get("tab") ?? "transcript";
  const strip = tabs(parts, current, (opened) => {
    current = opened;
    history.replaceState(null, "", opened === "transcript" ? location.pathname : `${location.pathname}?tab=${opened}`);
  });
  return [
    back("Conversations", "/console/conversations"),
    h("header", { class: "head" }, h("div", {}, h("h1", { tabindex: "-1" }, `${record.agent_name} and ${record.user_name || record.user_id || "a caller"}`), status), h("div", { class: "actions" }, erase)),
    bar,
    strip.node,
  ].filter(Boolean);
}

/** A panel whose content has yet to come. */
function later(signal, make) {
  const box = h("div", { class: "later" }, waiting());
  make().then((nodes) => box.replaceChildren(...[nodes].flat()), (error) => { if (!signal.aborted) box.replaceChildren(problem(error)); });
  return box;
}

/** The player, where the call was recorded. */
function recording(record) {
  if (!record.is_recorded || !record.recording_url) return [];
  return [h("figure", { class: "recording" }, h("figcaption", {}, "Recording"), h("audio", { controls: true, preload: "metadata", src: record.recording_url }))];
}

function eventList(follower, signal) {
  const list = h("ol", { class: "events", "aria-label": "Events" });
  const all = h("input", { type: "checkbox", id: "all-events", onchange: () => draw() });
  const row = (event) => {
    const { seq, at, timestamp, what, ...rest } = event;
    const text = Object.keys(rest).length ? JSON.stringify(rest) : "";
    return h("li", { class: QUIET.has(what) ? "quiet" : "" }, h("span", { class: "at", title: timestamp }, `${at.toFixed(2)} s`), h("code", {}, what), h("span", { class: "soft mono clip", title: text }, text));
  };
  const fits = (event) => all.checked || !QUIET.has(event.what);
  const draw = () => list.replaceChildren(...follower.events.filter(fits).map(row));
  draw();
  const stop = follower.watch((event) => { if (list.isConnected) { if (fits(event)) list.append(row(event)); } else stop(); });
  signal.addEventListener("abort", stop);
  const save = button("Download", { class: "small", onclick: () => {
    const url = URL.createObjectURL(new Blob([JSON.stringify(follower.events, null, 2)], { type: "application/json" }));
    h("a", { href: url, download: "events.json" }).click();
    URL.revokeObjectURL(url);
  } });
  return [h("div", { class: "between" }, h("label", { class: "inline", for: "all-events" }, all, "Show the small steps too"), save), h("div", { class: "card flush" }, list)];
}

async function deliveries(path, signal) {
  const box = h("div", {});
  const turn = async (offset) => {
    const { items, total } = await api.list(`${path}/deliveries`, { offset, perpage: 50 }, signal);
    box.replaceChildren(...[items.length ? h("div", { class: "card flush" }, deliveryList(items, { again: () => turn(offset) })) : h("p", { class: "soft" }, "No webhooks: its agent had no address, or none of its events happened."), pager({ offset, perpage: 50, total }, turn)].filter(Boolean));
  };
  await turn(0);
  return box;
}

function about(record) {
  const used = usage(record);
  const facts = [
    ["Id", h("code", {}, record.id)], ["Agent", link(record.agent_name, `/console/agents/${record.agent_id}`)], ["Face", record.avatar_id],
    ["Caller", [record.user_name, record.user_id].filter(Boolean).join(" · ")], ["Type", record.type], ["Made", when(record.created_at, { second: "2-digit" })],
    ["Joined", record.joined_at && when(record.joined_at, { second: "2-digit" })], ["Ended", record.ended_at && when(record.ended_at, { second: "2-digit" })],
    ["Length", used.duration_seconds && span(used.duration_seconds)], ["Speech heard", used.stt_seconds && `${used.stt_seconds} s`], ["Tokens", used.llm && `${used.llm.prompt_tokens} asked, ${used.llm.completion_tokens} answered`],
    ["Characters spoken", used.tts_characters], ["Rating", record.rating && `${record.rating} of 5${record.feedback ? `: ${record.feedback}` : ""}`], ["Context", record.context && h("pre", { tabindex: "0" }, record.context)],
    ["Metadata", record.meta_data && h("pre", { tabindex: "0" }, JSON.stringify(record.meta_data, null, 2))],
  ].filter(([, value]) => value);
  const snippets = record.snippets?.items ?? [];
  return [
    record.warnings.length > 0 && h("ul", { class: "note" }, record.warnings.map((text) => h("li", {}, text))),
    h("section", { class: "card" }, h("dl", { class: "facts" }, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]))),
    snippets.length > 0 && h("section", { class: "card" }, h("h2", {}, "Knowledge that it used"), h("ul", { class: "list inner" }, snippets.map((one) => h("li", {}, h("p", { class: "what" }, one.text), link("Base", `/console/knowledge/${one.kb_id}`))))),
  ].filter(Boolean);
}
