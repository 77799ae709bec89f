// The avatars that an agent can use.

import * as api from "./api.js";

/** Stock avatars, and custom avatars that have an output; all in the format of stock avatars. */
export async function selectableAvatars(signal) {
  const [stock, own] = await Promise.all([
    api.get("/v1/ext/avatars", signal),
    api.listAll("/v2/custom-avatars", signal),
  ]);
  return [
    ...stock,
    ...own
      .filter(({ output }) => output)
      .map((avatar) => ({ ...avatar, display_picture: avatar.output.preview_url })),
  ];
}
