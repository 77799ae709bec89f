// LLM servers on the machine of the server: offered by name, with one action that enters provider,
// model and address into the open form.

import * as api from "./api.js";
import { button, h } from "./dom.js";

/**
 * Loads the servers and shows them. `use({provider, model, url})` enters one into the form.
 * @param {AbortSignal} signal
 * @param {(choice: {provider: string, model: string | null, url: string | null}) => void} use
 */
export function localServers(signal, use) {
  const status = h("p", { class: "soft", role: "status" });
  const list = h("ul", { class: "list inner local-servers" });
  const node = h(
    "div",
    { class: "field wide", hidden: true },
    h("p", { class: "label" }, "On the server's own machine"),
    list,
    status,
  );
  const item = (server, i) => {
    const models = h(
      "select",
      { id: `local-model-${i}`, "aria-label": `Model of ${server.name}` },
      server.models.map((model) => h("option", { value: model }, model)),
    );
    return h(
      "li",
      {},
      h(
        "div",
        { class: "item-text" },
        h("h3", {}, server.name),
        h("p", { class: "soft" }, h("code", {}, server.url)),
      ),
      server.models.length > 0 && models,
      button(`Use ${server.name}`, {
        needs: "administer",
        class: "small",
        onclick: () => {
          // The address of Ollama is the default of its provider.
          const url = server.provider === "custom" ? server.url : null;
          use({ provider: server.provider, model: models.value || null, url });
          status.textContent = `${server.name} is selected. Save the changes to use it.`;
        },
      }),
    );
  };
  api
    .get("/v1/ext/providers/local", signal)
    .then((servers) => {
      list.replaceChildren(...servers.map(item));
      node.hidden = !servers.length;
    })
    // Without the list, the fields can still be filled in.
    .catch(() => {});
  return node;
}
