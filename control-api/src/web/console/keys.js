// The API keys of the workspace. A new key is shown only once.

import * as api from "./api.js";
import { button, copyable, h, pill, timeElement } from "./dom.js";
import { form } from "./form.js";
import { grantableScopes } from "./scope.js";
import { confirmDialog, dialog, pageHeader, pager, runBusy, toast } from "./ui.js";

const PAGE_SIZE = 50;

export async function keysPage({ query, signal, navigate, reloadView, session }) {
  const offset = Number(query.get("offset")) || 0;
  const { items, total } = await api.list("/v1/ext/apikey", { offset, perpage: PAGE_SIZE }, signal);
  const row = (key) => {
    const isOwn = key.prefix === session.prefix;
    const expired = key.expires_at && new Date(key.expires_at) <= new Date();
    return h(
      "tr",
      {},
      h("th", { scope: "row" }, key.name, " ", isOwn && pill("Current key", "good")),
      h("td", { "data-label": "Key" }, h("code", {}, `${key.prefix}…`)),
      h("td", { "data-label": "Scope" }, key.scope),
      h("td", { "data-label": "Created" }, timeElement(key.created_at)),
      h(
        "td",
        { "data-label": "Last used" },
        key.last_used_at ? timeElement(key.last_used_at) : h("span", { class: "soft" }, "Never"),
      ),
      h(
        "td",
        { "data-label": "Expires" },
        expired
          ? pill("Expired", "bad")
          : key.expires_at
            ? timeElement(key.expires_at)
            : h("span", { class: "soft" }, "Never"),
      ),
      h(
        "td",
        { class: "end" },
        button("Revoke", {
          needs: "administer",
          class: "small risky",
          "aria-label": `Revoke ${key.name}`,
          onclick: async ({ currentTarget }) => {
            const text = isOwn
              ? "You are logged in with this key: you will be logged out at once. " +
                "Programs that use it are rejected."
              : "Programs that use it are rejected at once. This cannot be undone.";
            if (!(await confirmDialog(`Revoke ${key.name}?`, text, "Revoke"))) return;
            await runBusy(currentTarget, async () => {
              await api.remove(`/v1/ext/apikey/${key.id}`);
              toast(`${key.name} is revoked.`);
              await reloadView();
            });
          },
        }),
      ),
    );
  };
  return [
    pageHeader(
      "API keys",
      "For programs and for this console. All keys of a workspace give access to the same data.",
      button(
        "New key",
        { needs: "operate", class: "primary", onclick: () => newKeyDialog(reloadView) },
        "plus",
      ),
    ),
    h(
      "div",
      { class: "card flush" },
      h(
        "table",
        { class: "keys" },
        h("caption", { class: "visually-hidden" }, "API keys"),
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            ["Name", "Key", "Scope", "Created", "Last used", "Expires"].map((name) =>
              h("th", { scope: "col" }, name),
            ),
            h("th", { scope: "col" }, h("span", { class: "visually-hidden" }, "Actions")),
          ),
        ),
        h(
          "tbody",
          {},
          items.length
            ? items.map(row)
            : h(
                "tr",
                {},
                h(
                  "td",
                  { colspan: 7, class: "soft" },
                  "The key that you use comes from the server's configuration. " +
                    "There are no other keys.",
                ),
              ),
        ),
      ),
    ),
    pager({ offset, perpage: PAGE_SIZE, total }, (next) =>
      navigate(`/console/keys?offset=${next}`),
    ),
  ].filter(Boolean);
}

/** The label of each scope. */
const SCOPE_LABELS = {
  read: "Read: view everything",
  operate: "Operate: also run conversations",
  administer: "Administer: everything",
};

async function newKeyDialog(reloadView) {
  let created = null;
  await dialog(
    "New API key",
    (close) =>
      form({
        label: "Create key",
        value: { name: "", scope: grantableScopes().at(-1) },
        needs: "operate",
        sections: [
          {
            fields: [
              {
                path: "name",
                label: "Name",
                required: true,
                hint: "Where it is used, such as “website”.",
                class: "wide",
              },
              {
                path: "scope",
                label: "Scope",
                kind: "select",
                options: grantableScopes().map((scope) => [scope, SCOPE_LABELS[scope]]),
                class: "wide",
                hint:
                  "The smallest scope that its program needs: " +
                  "a web shop that starts calls needs “Operate”.",
              },
              {
                path: "expires_at",
                label: "Expires",
                type: "datetime-local",
                hint: "Empty: never.",
                class: "wide",
              },
            ],
          },
        ],
        save: ({ name, scope, expires_at: expiresAt }) =>
          api.post("/v1/ext/apikey", {
            name,
            scope,
            expires_at: expiresAt ? new Date(expiresAt).toISOString() : null,
          }),
        onSaved: (response) => {
          created = response;
          close("");
        },
      }).node,
  );
  if (!created) return;
  await dialog("Your new key", (close) => [
    h("p", {}, "Copy it now: it is not shown again."),
    copyable(created.key, "API key"),
    h(
      "div",
      { class: "actions end" },
      button("Done", { class: "primary", onclick: () => close("") }),
    ),
  ]);
  reloadView();
}
