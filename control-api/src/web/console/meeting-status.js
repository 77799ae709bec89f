// Where an agent is in an external meeting: words and icons of the status, and the card of the
// meeting on the page of its conversation.

import { h, icon, link } from "./dom.js";

/**
 * Label, icon and colour of each status, in this order: a later one is never followed by an earlier
 * one.
 * @type {Record<string, [string, string, string]>}
 */
const STATUSES = {
  joining: ["Joining", "enter", "warn"],
  waiting_room: ["In the waiting room", "clock", "warn"],
  in_call: ["In the meeting", "camera", "good"],
  left: ["Left", "leave", ""],
  done: ["Finished", "done", ""],
  error: ["Failed", "alert", "bad"],
};
/** The conversation has ended, and the service has not reported yet that the agent has left. */
const LEAVING = ["Leaving", "leave", "warn"];
const ORDER = Object.keys(STATUSES);

/** Why the agent is not in the meeting any more. */
const DETAILS = {
  denied: "the host refused the agent",
  lobby_timeout: "nobody admitted the agent in time",
  removed: "a participant removed the agent",
  alone: "everyone else had left",
  ended: "the meeting is over",
  service_error: "an error of the meeting service",
  not_found: "the meeting does not exist",
  login_required: "the meeting admits only people who have signed in",
  host_missing: "the host did not come",
};

export const isMeeting = (record) => record.type === "meeting";

/** Whether the service will report nothing more about the agent. */
export const isMeetingOver = (record) => ["done", "error"].includes(record.meeting_status);

function lookUp(record) {
  const known = STATUSES[record.meeting_status] ?? [
    record.meeting_status ?? "Unknown",
    "clock",
    "",
  ];
  return record.status === "ENDED" && ORDER.indexOf(record.meeting_status) < ORDER.indexOf("left")
    ? LEAVING
    : known;
}

/**
 * Why the agent is not in the meeting any more; "" if the conversation was ended from outside. The
 * service then also reports that the meeting is over.
 */
function reasonOf({ meeting_detail: detail, end_reason: endReason }) {
  const isOfMeeting = !endReason || ["meeting_ended", "error"].includes(endReason);
  return isOfMeeting && detail ? (DETAILS[detail] ?? detail) : "";
}

/** Whether the text of the meeting says why the conversation has ended. */
export const saysReason = (record) => isMeeting(record) && reasonOf(record) !== "";

/** Where the agent is, and why: `Failed: the host refused the agent`. */
export function meetingText(record) {
  const [label] = lookUp(record);
  const reason = reasonOf(record);
  return reason ? `${label}: ${reason}` : label;
}

/** Whether a report, late or repeated, is older than what the record says. */
const isOlder = (record, { meeting_status: status }) =>
  ORDER.indexOf(status) < ORDER.indexOf(record.meeting_status);

/** The record with a status of an event. */
export const withMeetingEvent = (record, { status, detail }) =>
  isOlder(record, { meeting_status: status })
    ? record
    : { ...record, meeting_status: status, meeting_detail: detail };

/** A record that was read, with the status that is known if an event has overtaken the answer. */
export const withKnownStatus = (known, next) =>
  isOlder(known, next)
    ? { ...next, meeting_status: known.meeting_status, meeting_detail: known.meeting_detail }
    : next;

/** The address of the meeting. Only an address of the web becomes a link. */
export const meetingLink = ({ meeting_url: url }) =>
  url?.startsWith("https://")
    ? link(url, url, { target: "_blank", rel: "noopener noreferrer" })
    : (url ?? "");

/** The card of the meeting. `show(record)` updates it. */
export class MeetingCard {
  #status = h("p", { class: "meeting-status", role: "status" });
  #warnings = h("ul", { class: "note", hidden: true });
  #shown = "";

  constructor(record) {
    this.node = h(
      "section",
      { class: "card meeting", "aria-label": "The meeting" },
      this.#status,
      h(
        "dl",
        { class: "facts" },
        [
          ["Meeting", meetingLink(record)],
          ["Name in the meeting", record.user_name],
        ].map(([name, value]) => value && [h("dt", {}, name), h("dd", {}, value)]),
      ),
      this.#warnings,
    );
    this.show(record);
  }

  show(record) {
    const text = meetingText(record);
    // A text that is set again may be announced again.
    if (text !== this.#shown) {
      const [, iconName, tone] = lookUp(record);
      this.#shown = text;
      this.#status.dataset.tone = tone;
      this.#status.replaceChildren(icon(iconName), h("span", {}, text));
    }
    // The service's own words, which the status does not say.
    const warnings = record.meeting_detail === "service_error" ? (record.warnings ?? []) : [];
    this.#warnings.hidden = !warnings.length;
    if (this.#warnings.childElementCount !== warnings.length)
      this.#warnings.replaceChildren(...warnings.map((warning) => h("li", {}, warning)));
  }
}
