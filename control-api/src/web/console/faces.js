// Whom agents can look like: the people of the server, and the workspace's own that can be shown.

import * as api from "./api.js";

/** All of them as stock avatars are told. */
export async function faces(signal) {
  const [stock, own] = await Promise.all([api.get("/v1/ext/avatars", signal), api.all("/v2/custom-avatars", signal)]);
  return [...stock, ...own.filter(({ output }) => output).map((avatar) => ({ ...avatar, display_picture: avatar.output.preview_url }))];
}
