// The dialog that sends an agent into an external meeting.

import * as api from "./api.js";
import { form } from "./form.js";
import { dialog, toast } from "./ui.js";

const MODES = [
  ["participant", "Participant: speaks when addressed or in turn"],
  ["observer", "Observer: silent until the wake phrase"],
  ["one_to_one", "One to one: talks with one person"],
];

/** @param {{id: string, agent_name: string, avatars: Record<string, any>[]}} agent */
export const meetingDialog = (agent) =>
  dialog(`Send ${agent.agent_name} into a meeting`, (close) => {
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
              placeholder: "Hey Ada",
              visibleIf: (get) => get("mode") === "observer",
            },
            {
              path: "context",
              label: "Context of the meeting",
              kind: "area",
              emptyValue: null,
              class: "wide",
            },
          ],
        },
      ],
      save: (body) => api.post("/v1/ext/externalmeeting", body),
      onSaved: (response) => {
        close("");
        toast(response);
      },
    });
    return formView.node;
  });
