// The warnings of an agent. While its new picture is drawn, they are fetched again.

import * as api from "./api.js";
import { isBeingDrawn } from "./background-values.js";
import { h } from "./dom.js";
import { pollWhileVisible, toast } from "./ui.js";

const POLL_SECONDS = 3;

/** The node of an agent's warnings. It stays the same, so that a screen reader announces changes. */
export function agentWarnings(agent, signal) {
  const node = h("div", { class: "agent-warnings", role: "status" });
  let shown = [];
  let isPending = false;
  const show = (warnings) => {
    isPending = isBeingDrawn(warnings);
    if (warnings.join("\n") === shown.join("\n")) return;
    shown = warnings;
    node.replaceChildren(
      ...warnings.map((text) => h("p", { class: "note" }, api.toSentence(text))),
    );
  };
  const refresh = async () => {
    let warnings;
    try {
      ({ warnings = [] } = await api.get(`/v1/ext/agent/${agent.id}`, signal));
    } catch (error) {
      // Deleted elsewhere: there is nothing to wait for.
      if (error.status === 404) isPending = false;
      throw error;
    }
    show(warnings);
    if (!isPending && !warnings.length) toast("The new picture is ready.");
  };
  show(agent.warnings ?? []);
  pollWhileVisible(POLL_SECONDS, signal, () => isPending && refresh());
  return node;
}
