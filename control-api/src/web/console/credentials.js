// The keys of the workspace at vendors and meeting services. They are written and never shown.

import * as api from "./api.js";
import { button, copyable, h, pill, timeElement } from "./dom.js";
import { form } from "./form.js";
import { card, confirmDialog, dialog, runBusy, toast } from "./ui.js";

const PATH = "/v1/ext/credentials";

/** Stands for a stored secret, which it keeps. */
const STORED = "***";

/** Meeting services, beside the vendors of models: name, and where webhooks are set up there. */
const SERVICES = {
  attendee: [
    "Attendee",
    "Attendee gets this address with each agent; its secret is in the settings of your project there.",
  ],
  recall: [
    "Recall.ai",
    "Enter this address in the dashboard of Recall.ai, under Webhooks; its secret is there, too.",
  ],
  meetingbaas: [
    "MeetingBaaS",
    "Enter this address in the dashboard of MeetingBaaS, under Webhooks; its secret is there, too.",
  ],
};
const isService = (name) => Object.hasOwn(SERVICES, name);

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
 * @param {{name: string, url: string | null, webhook_secret?: string} | null} stored the key to
 *   replace
 * @param {string} [name] the vendor that is selected
 */
export async function keyDialog(providers, stored, name) {
  const services = Object.entries(SERVICES).map(([id, [service]]) => [id, service]);
  const options = [...vendors(providers), ...services];
  const initial = stored?.name ?? name ?? options[0][0];
  const title = options.find(([id]) => id === initial)?.[1] ?? initial;
  const isStoredService = stored && isService(initial);
  let saved = null;
  await dialog(
    stored ? `${isStoredService ? "Change" : "Replace"} the key of ${title}` : "Store a key",
    (close) =>
      form({
        label: "Store key",
        value: {
          name: initial,
          url: stored?.url ?? null,
          // Only the webhook secret of a service may change.
          token: isStoredService ? STORED : null,
          webhook_secret: stored?.webhook_secret ?? null,
        },
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
                hint: isStoredService
                  ? "Stored encrypted and never shown again. Unchanged, it is kept."
                  : "Stored encrypted and never shown again.",
              },
              {
                path: "url",
                label: "Address",
                type: "url",
                emptyValue: null,
                class: "wide",
                placeholder: "the vendor's own",
                hint: "Only for a proxy, a region or a server of your own. The key is sent to no other address.",
              },
              {
                path: "webhook_secret",
                label: "Webhook secret",
                kind: "secret",
                class: "wide",
                hint:
                  "Verifies reports of the service: from the project's settings in Attendee, or " +
                  "from the dashboard of Recall.ai or MeetingBaaS, under Webhooks. Without it, the " +
                  "status of an agent comes some seconds later, and names of speakers may be missing.",
                visibleIf: (get) => isService(get("name")),
              },
            ],
          },
        ],
        save: ({ name: vendor, token, url, webhook_secret: secret }) =>
          api.put(`${PATH}/${encodeURIComponent(vendor)}`, {
            token,
            url,
            ...(isService(vendor) ? { webhook_secret: secret } : {}),
          }),
        onSaved: (_, { name: vendor }) => {
          saved = vendor;
          close("");
        },
      }).node,
  );
  if (saved)
    toast(
      isService(saved)
        ? "The key is stored. Agents of this workspace join meetings with it."
        : "The key is stored. Agents without a key of their own use it.",
    );
  return Boolean(saved);
}

/** The address for webhooks of a meeting service, and what to do with it. */
const webhookAddress = ({ name, display_name: service, webhook_url: url }) =>
  h(
    "div",
    { class: "webhook-address" },
    h("p", { class: "hint" }, SERVICES[name]?.[1]),
    copyable(url, `webhook address for ${service}`),
  );

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
      credential.webhook_url &&
        pill(
          credential.webhook_secret ? "Webhook secret stored" : "No webhook secret",
          credential.webhook_secret ? "good" : "",
        ),
      button(isService(credential.name) ? "Change" : "Replace", {
        needs: "administer",
        class: "small",
        "aria-label":
          `${isService(credential.name) ? "Change" : "Replace"} the key of ` +
          credential.display_name,
        onclick: () => open(credential),
      }),
      button("Remove", {
        needs: "administer",
        class: "small risky",
        "aria-label": `Remove the key of ${credential.display_name}`,
        onclick: async ({ currentTarget }) => {
          const text = isService(credential.name)
            ? "Agents in meetings of this account cannot be removed from them without the key. " +
              "Later ones use the server's account, if it has one."
            : "Agents without a key of their own then use the server's, if it has one.";
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
      credential.webhook_url && webhookAddress(credential),
    );
  return card(
    "Keys of this workspace",
    h(
      "p",
      { class: "soft" },
      "Your own accounts at vendors and meeting services. A key is stored encrypted, sent only to " +
        "its vendor, and never shown again.",
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
