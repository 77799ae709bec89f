// The form fields of what an agent's avatar looks like in calls: framing, size and background.

import { AVATAR_PATH } from "./agent-model-fields.js";

/** The section of an agent or a template. */
export const pictureSection = () => ({
  id: "picture",
  title: "Picture",
  summary: "Framing, size and background of the avatar",
  open: false,
  description:
    "A new picture is drawn for a few minutes after saving. Until then, calls show the avatar as " +
    "before. Running calls keep what they show.",
  fields: [
    {
      path: `${AVATAR_PATH}.framing`,
      label: "Framing",
      kind: "select",
      options: [
        ["close", "Close: the head"],
        ["bust", "Bust: head and chest"],
      ],
      hint: "How much of the avatar the video shows. A photo limits it.",
    },
    {
      path: `${AVATAR_PATH}.size`,
      label: "Size",
      kind: "select",
      emptyValue: null,
      options: [
        ["", "The avatar's own"],
        ["512x512", "Square: 512 × 512"],
        ["1280x720", "Landscape: 1280 × 720"],
        ["720x1280", "Portrait: 720 × 1280, for phones"],
      ],
      hint: "Landscape and portrait need about twice the bandwidth of square.",
    },
    {
      path: `${AVATAR_PATH}.background`,
      label: "Behind the avatar",
      name: "The background",
      kind: "background",
      class: "wide",
      hint: "An avatar from a photo can only change its picture if the crop of its face was kept.",
    },
  ],
});
