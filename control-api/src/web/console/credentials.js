// The keys of the workspace at vendors. They are written and never shown.

import * as api from "./api.js";
import { button, h, timeElement } from "./dom.js";
import { form } from "./form.js";
import { card, confirmDialog, dialog, runBusy, toast } from "./ui.js";

const PATH = "/v1/ext/credentials";

/** Services beside the vendors of models. */
const SERVICES = [
  ["attendee", "Attendee"],
  ["recall", "Recall.ai"],
  ["meetingbaas", "MeetingBaaS"],
];

/** The vendors whose keys can be stored, each once: `[name, display name]`. */
const vendors = (providers) => [
  ...new Map(
    providers
      .filter((provider) => provider.source !== "builtin")
      .map((provider) => [provider.provider, provider.display_name]),
  ),
];

/**
 * Asks for a key. Resolves with whether it was stored.
 * @param {any[]} providers
 * @param {{name: string, url: string | null} | null} stored the key to replace
 * @param {string} [name] the vendor that is selected
 */
export async function keyDialog(providers, stored, name) {
  const options = [...vendors(providers), ...SERVICES];
  const initial = stored?.name ?? name ?? options[0][0];
  const title = options.find(([id]) => id === initial)?.[1] ?? initial;
  let saved = false;
  await dialog(
    stored ? `Replace the key of ${title}` : "Store a key",
    (close) =>
      form({
        label: "Store key",
        value: { name: initial, url: stored?.url ?? null },
        sections: [
          {
            fields: [
              {
                path: "name",
                label: "Vendor",
                kind: "select",
                options: stored ? [[initial, title]] : options,
                class: "wide",
              },
              {
                path: "token",
                label: "Key",
                kind: "secret",
                required: true,
                class: "wide",
                hint: "Stored encrypted and never shown again.",
              },
              {
                path: "url",
                label: "Address",
                type: "url",
                emptyValue: null,
                class: "wide",
                placeholder: "the vendor's own",
                hint: "Only for a proxy or a region of its own. The key is sent to no other address.",
              },
            ],
          },
        ],
        save: ({ name: vendor, token, url }) =>
          api.put(`${PATH}/${encodeURIComponent(vendor)}`, { token, url }),
        onSaved: () => {
          saved = true;
          close("");
        },
      }).node,
  );
  if (saved) toast("The key is stored. Agents without a key of their own use it.");
  return saved;
}

/** The card with the stored keys. */
export function credentialsCard(credentials, providers, reloadView) {
  const open = async (stored) => {
    if (await keyDialog(providers, stored)) await reloadView();
  };
  const item = (credential) =>
    h(
      "li",
      {},
      h(
        "div",
        { class: "item-text" },
        h("h3", {}, credential.display_name),
        h(
          "p",
          { class: "soft" },
          credential.url && [h("code", {}, credential.url), " · "],
          "Stored ",
          timeElement(credential.updated_at),
        ),
      ),
      button("Replace", {
        needs: "administer",
        class: "small",
        "aria-label": `Replace the key of ${credential.display_name}`,
        onclick: () => open(credential),
      }),
      button("Remove", {
        needs: "administer",
        class: "small risky",
        "aria-label": `Remove the key of ${credential.display_name}`,
        onclick: async ({ currentTarget }) => {
          const text = "Agents without a key of their own then use the server's, if it has one.";
          if (
            !(await confirmDialog(`Remove the key of ${credential.display_name}?`, text, "Remove"))
          )
            return;
          await runBusy(currentTarget, async () => {
            await api.remove(`${PATH}/${encodeURIComponent(credential.name)}`);
            toast("The key is removed.");
            await reloadView();
          });
        },
      }),
    );
  return card(
    "Keys of this workspace",
    h(
      "p",
      { class: "soft" },
      "Your own accounts at vendors. A key is stored encrypted, sent only to its vendor, and never " +
        "shown again.",
    ),
    credentials.length > 0 && h("ul", { class: "list inner" }, credentials.map(item)),
    h(
      "div",
      { class: "actions" },
      button(
        "Store a key",
        { needs: "administer", id: "store-key", onclick: () => open(null) },
        "plus",
      ),
    ),
  );
}
