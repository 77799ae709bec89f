// The form field of the background of an agent's avatar.

import { AVATAR_PATH } from "./agent-model-fields.js";

/** The section of an agent or a template. */
export const backgroundSection = () => ({
  id: "background",
  title: "Background",
  summary: "Colour, gradient or picture behind the avatar",
  open: false,
  description:
    "A new background is drawn for about a minute after saving. Until then, calls show the " +
    "previous one. Running calls keep what they show.",
  fields: [
    {
      path: `${AVATAR_PATH}.background`,
      label: "Behind the avatar",
      name: "The background",
      kind: "background",
      class: "wide",
      hint: "An avatar from a photo can only change its background if the crop of its face was kept.",
    },
  ],
});
