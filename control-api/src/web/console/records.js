// What guardrails, tools and MCP servers have in common: a list of named things, and a form for one of them.

import * as api from "./api.js";
import { button, h, link } from "./dom.js";
import { form } from "./form.js";
import { back, busy, card, empty, head, sure, toast } from "./ui.js";

/** The list of a kind. `row(record)` returns `{title, words, tags}`. */
export async function recordsPage({ signal }, kind) {
  const records = await api.all(kind.path, signal);
  const add = link(`New ${kind.one}`, `/console/${kind.name}/new`, { needs: "administer", class: "button primary" }, "plus");
  return [
    head(kind.title, kind.words, add),
    records.length
      ? h("ul", { class: "list" }, records.map((record) => {
        const { title, words, tags } = kind.row(record);
        return h("li", {}, h("div", { class: "what" }, h("h2", {}, h("a", { href: `/console/${kind.name}/${record.id}` }, title)), h("p", { class: "soft clip" }, words)), h("p", { class: "tags" }, tags));
      }))
      : empty(kind.name, `No ${kind.many} yet`, kind.why, link(`New ${kind.one}`, `/console/${kind.name}/new`, { needs: "administer", class: "button" }, "plus")),
  ];
}

/** One of a kind, or a new one. */
export async function recordPage({ id, signal, go, keep }, kind) {
  const fresh = id === "new";
  const record = fresh ? structuredClone(kind.fresh) : kind.shown(await api.get(`${kind.path}/${encodeURIComponent(id)}`, signal));
  const made = form({
    keep, value: record, sections: kind.sections(record), label: fresh ? `Create ${kind.one}` : "Save changes",
    extra: [link("Cancel", `/console/${kind.name}`, { class: "button quiet" })],
    save: (body) => (fresh ? api.post(kind.path, kind.sent(body)) : api.put(`${kind.path}/${id}`, kind.sent(body))),
    done: (_, body) => {
      toast(fresh ? `${kind.row(kind.sent(body)).title} is made. Attach it to an agent under “Knowledge, tools and rules”.` : "Saved.");
      go(`/console/${kind.name}`, { force: true });
    },
  });
  kind.dress?.(made, record);
  const title = fresh ? `New ${kind.one}` : kind.row(record).title;
  return [
    back(kind.title, `/console/${kind.name}`),
    head(title, fresh ? kind.why : undefined),
    made.node,
    !fresh && card("Delete", h("p", { class: "soft" }, "Agents to which it is attached go on without it."), button(`Delete this ${kind.one}`, { needs: "administer", class: "small risky", onclick: async ({ currentTarget }) => {
      if (!(await sure(`Delete ${title}?`, "This cannot be undone.", "Delete"))) return;
      await busy(currentTarget, async () => {
        await api.remove(`${kind.path}/${id}`);
        toast(`${title} is deleted.`);
        go(`/console/${kind.name}`, { force: true });
      });
    } }, "bin")),
  ].filter(Boolean);
}
