// The common views of guardrails, tools and MCP servers: a list, and a form for one record.
//
// A `kind` describes one of them: `name` (in the console's paths), `title`, `singular`, `plural`,
// `path` (of the API), `description` (of the list), `purpose` (of an empty list and a new record),
// `defaults` (of a new record), `sections(record)` (of the form), and these functions:
// - `toForm(record)`: the value of the form.
// - `toBody(value)`: the request body for the form's value.
// - `toListItem(record)`: `{title, description, tags}`.
// - `decorate(formView, record)`: optional, adds further nodes to the form.

import * as api from "./api.js";
import { button, h, link } from "./dom.js";
import { form } from "./form.js";
import { backLink, card, confirmDialog, emptyState, pageHeader, runBusy, toast } from "./ui.js";

/** The list of a kind. */
export async function recordListPage({ signal }, kind) {
  const records = await api.listAll(kind.path, signal);
  const newLink = link(
    `New ${kind.singular}`,
    `/console/${kind.name}/new`,
    { needs: "administer", class: "button primary" },
    "plus",
  );
  return [
    pageHeader(kind.title, kind.description, newLink),
    records.length
      ? h(
          "ul",
          { class: "list" },
          records.map((record) => {
            const { title, description, tags } = kind.toListItem(record);
            return h(
              "li",
              {},
              h(
                "div",
                { class: "item-text" },
                h("h2", {}, h("a", { href: `/console/${kind.name}/${record.id}` }, title)),
                h("p", { class: "soft clip" }, description),
              ),
              h("p", { class: "tags" }, tags),
            );
          }),
        )
      : emptyState(
          kind.name,
          `No ${kind.plural} yet`,
          kind.purpose,
          link(
            `New ${kind.singular}`,
            `/console/${kind.name}/new`,
            { needs: "administer", class: "button" },
            "plus",
          ),
        ),
  ];
}

/** The form of one record, or of a new one. */
export async function recordPage({ id, signal, navigate, setUnsavedCheck }, kind) {
  const isNew = id === "new";
  const record = isNew
    ? structuredClone(kind.defaults)
    : kind.toForm(await api.get(`${kind.path}/${encodeURIComponent(id)}`, signal));
  const formView = form({
    setUnsavedCheck,
    value: record,
    sections: kind.sections(record),
    label: isNew ? `Create ${kind.singular}` : "Save changes",
    extra: [link("Cancel", `/console/${kind.name}`, { class: "button quiet" })],
    save: (body) =>
      isNew
        ? api.post(kind.path, kind.toBody(body))
        : api.put(`${kind.path}/${id}`, kind.toBody(body)),
    onSaved: (_, body) => {
      toast(
        isNew
          ? `${kind.toListItem(kind.toBody(body)).title} is created. ` +
              "Attach it to an agent under “Knowledge, tools and rules”."
          : "Saved.",
      );
      navigate(`/console/${kind.name}`, { force: true });
    },
  });
  kind.decorate?.(formView, record);
  const title = isNew ? `New ${kind.singular}` : kind.toListItem(record).title;
  return [
    backLink(kind.title, `/console/${kind.name}`),
    pageHeader(title, isNew ? kind.purpose : undefined),
    formView.node,
    !isNew &&
      card(
        "Delete",
        h("p", { class: "soft" }, "Agents to which it is attached continue without it."),
        button(
          `Delete this ${kind.singular}`,
          {
            needs: "administer",
            class: "small risky",
            onclick: async ({ currentTarget }) => {
              if (!(await confirmDialog(`Delete ${title}?`, "This cannot be undone.", "Delete")))
                return;
              await runBusy(currentTarget, async () => {
                await api.remove(`${kind.path}/${id}`);
                toast(`${title} is deleted.`);
                navigate(`/console/${kind.name}`, { force: true });
              });
            },
          },
          "bin",
        ),
      ),
  ].filter(Boolean);
}
