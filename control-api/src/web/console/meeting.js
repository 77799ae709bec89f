// The dialog that sends an agent into an external meeting.

import * as api from "./api.js";
import { form } from "./form.js";
import { dialog, toast } from "./ui.js";

const MODES = [
  ["participant", "Participant: answers when addressed"],
  ["observer", "Observer: silent until the wake phrase"],
  ["one_to_one", "One to one: answers everything"],
];
/** The answer does not say why: it is for the caller, and the reason for the operator. */
const NOT_SENT =
  "The agent was not sent. Check the account at the meeting service: under “Providers”, the key of " +
  "Attendee, Recall.ai or MeetingBaaS, or else the operator's settings [meetings] and " +
  "server.public_url. If the service refused, the list of conversations has its reason.";

/** Sends the agent. Returns the path of its conversation in the API. */
async function send(body) {
  try {
    return await api.postForLocation("/v1/ext/externalmeeting", body);
  } catch (error) {
    if (error instanceof api.ApiError && error.status === 502)
      throw new api.ApiError(502, { error: error.message, reason: NOT_SENT });
    throw error;
  }
}

/**
 * @param {{id: string, agent_name: string, avatars: Record<string, any>[]}} agent
 * @param {(path: string) => any} navigate
 */
export const meetingDialog = (agent, navigate) =>
  dialog(`Send ${agent.agent_name} into a meeting`, (close) => {
    let isPresent = false;
    const formView = form({
      value: {
        agent_id: agent.id,
        user_name: agent.avatars?.[0]?.persona_name || agent.agent_name,
        user_id: `console-${Date.now()}`,
        mode: "participant",
      },
      label: "Send",
      needs: "operate",
      sections: [
        {
          fields: [
            {
              path: "meeting_url",
              label: "Address of the meeting",
              name: "The address",
              required: true,
              type: "url",
              class: "wide",
              placeholder: "https://meet.google.com/abc-defg-hij",
              hint: "Google Meet, Zoom or Microsoft Teams.",
            },
            { path: "user_name", label: "Name in the meeting", name: "The name", required: true },
            {
              path: "user_id",
              label: "Session id",
              required: true,
              hint: "Included in webhooks and analytics.",
            },
            { path: "mode", label: "Participation mode", kind: "select", options: MODES },
            {
              path: "wake_phrase",
              label: "Wake phrase",
              emptyValue: null,
              max: 200,
              placeholder: "Hey Ada",
              hint: "Addresses the agent in addition to its name. An observer ignores its name.",
              visibleIf: (get) => get("mode") !== "one_to_one",
            },
            {
              path: "context",
              label: "Context of the meeting",
              kind: "area",
              emptyValue: null,
              class: "wide",
            },
            {
              path: "allow_multiple",
              label: "The agent may be in this meeting more than once",
              kind: "check",
              visibleIf: () => isPresent,
            },
          ],
        },
      ],
      save: async (body) => {
        try {
          return await send(body);
        } catch (error) {
          if (error.status === 409 && /already in this meeting/i.test(error.message)) {
            isPresent = true;
            formView.field("allow_multiple").node.hidden = false;
          }
          throw error;
        }
      },
      onSaved: (location) => {
        close("");
        toast("The agent is on its way to the meeting.");
        const id = location.split("/").at(-1);
        navigate(id ? `/console/conversations/${id}` : "/console/conversations");
      },
    });
    return formView.node;
  });
