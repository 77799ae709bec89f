// API keys of the workspace. A key is shown once.

import * as api from "./api.js";
import { button, copyable, h, pill, when } from "./dom.js";
import { form } from "./form.js";
import { lesser } from "./scope.js";
import { busy, dialog, head, pager, sure, toast } from "./ui.js";

const PER = 50;

export async function keysPage({ query, signal, go, again, whose }) {
  const offset = Number(query.get("offset")) || 0;
  const { items, total } = await api.list("/v1/ext/apikey", { offset, perpage: PER }, signal);
  const row = (key) => {
    const own = key.prefix === whose.prefix;
    const over = key.expires_at && new Date(key.expires_at) <= new Date();
    return h("tr", {},
      h("th", { scope: "row" }, key.name, " ", own && pill("Yours now", "good")),
      h("td", { "data-label": "Key" }, h("code", {}, `${key.prefix}…`)),
      h("td", { "data-label": "Scope" }, key.scope),
      h("td", { "data-label": "Made" }, when(key.created_at)),
      h("td", { "data-label": "Last used" }, key.last_used_at ? when(key.last_used_at) : h("span", { class: "soft" }, "Never")),
      h("td", { "data-label": "Expires" }, over ? pill("Expired", "bad") : key.expires_at ? when(key.expires_at) : h("span", { class: "soft" }, "Never")),
      h("td", { class: "end" }, button("Revoke", { needs: "administer", class: "small risky", "aria-label": `Revoke ${key.name}`, onclick: async ({ currentTarget }) => {
        const words = own ? "You are logged in with this key: you will be logged out at once. Programs that use it are refused." : "Programs that use it are refused at once. This cannot be undone.";
        if (!(await sure(`Revoke ${key.name}?`, words, "Revoke"))) return;
        await busy(currentTarget, async () => {
          await api.remove(`/v1/ext/apikey/${key.id}`);
          toast(`${key.name} is revoked.`);
          await again();
        });
      } })));
  };
  return [
    head("API keys", "For your programs and for this console. All keys of a workspace see the same things.", button("New key", { needs: "operate", class: "primary", onclick: () => create(again) }, "plus")),
    h("div", { class: "card flush" }, h("table", { class: "keys" }, h("caption", { class: "unseen" }, "API keys"),
      h("thead", {}, h("tr", {}, ["Name", "Key", "Scope", "Made", "Last used", "Expires"].map((name) => h("th", { scope: "col" }, name)), h("th", { scope: "col" }, h("span", { class: "unseen" }, "Actions")))),
      h("tbody", {}, items.length ? items.map(row) : h("tr", {}, h("td", { colspan: 7, class: "soft" }, "The key that you use comes from the server's configuration. No others were made."))))),
    pager({ offset, perpage: PER, total }, (next) => go(`/console/keys?offset=${next}`)),
  ].filter(Boolean);
}

/** What a key may do, in words. */
const SCOPES = { read: "Read: look at everything", operate: "Operate: also hold conversations", administer: "Administer: everything" };

async function create(again) {
  let made = null;
  await dialog("New API key", (close) => form({
    label: "Create key", value: { name: "", scope: lesser().at(-1) }, needs: "operate",
    sections: [{ fields: [
      { path: "name", label: "Name", required: true, hint: "Where it is used, such as “website”.", class: "wide" },
      { path: "scope", label: "It may", kind: "select", options: lesser().map((scope) => [scope, SCOPES[scope]]), class: "wide", hint: "As little as its program needs: a web shop that starts calls needs “Operate”." },
      { path: "expires_at", label: "Expires", type: "datetime-local", hint: "Empty: never.", class: "wide" },
    ] }],
    save: ({ name, scope, expires_at: at }) => api.post("/v1/ext/apikey", { name, scope, expires_at: at ? new Date(at).toISOString() : null }),
    done: (answer) => {
      made = answer;
      close("");
    },
  }).node);
  if (!made) return;
  await dialog("Your new key", (close) => [h("p", {}, "Copy it now: it is not shown again."), copyable(made.key, "API key"), h("div", { class: "actions end" }, button("Done", { class: "primary", onclick: () => close("") }))]);
  again();
}
