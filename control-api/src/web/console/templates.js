// Templates: everything of an agent but who it is; agents are made of them.

import { known, picture } from "./agents.js";
import { sections, shown } from "./agent-fields.js";
import * as api from "./api.js";
import { button, h, link } from "./dom.js";
import { faces } from "./faces.js";
import { form } from "./form.js";
import { back, busy, card, dialog, empty, head, pager, sure, toast } from "./ui.js";

const PER = 20;

/** What counts where nothing is said, stated: an empty field would say something else. */
const FRESH = {
  template_name: "", template_system_prompt: "", config: {},
  avatars: [{
    turn_handling: "balanced", interruptability: "medium", frame_rate: 25, welcome_message: { wait_time: 1, messages: [] },
    idle_timeout: { timeout: 30, filler_phrases: [], end_after: 3 }, exit_heads_up_message: { callout_before: 10, messages: [] },
  }],
};

export async function templatesPage({ query, signal, go }) {
  const offset = Number(query.get("offset")) || 0;
  const [{ items, total }, avatars] = await Promise.all([api.list("/v1/ext/templates", { offset, perpage: PER }, signal), faces(signal)]);
  const add = () => link("New template", "/console/templates/new", { needs: "administer", class: "button primary" }, "plus");
  return [
    head("Templates", "A setup to make many agents of: instructions, models and what is attached.", add()),
    items.length
      ? h("ul", { class: "list" }, items.map((template) => h("li", {}, picture(avatars, template, "small"),
        h("div", { class: "what" }, h("h2", {}, h("a", { href: `/console/templates/${template.id}` }, template.template_name)), h("p", { class: "soft clip" }, template.template_system_prompt)),
        button("Make an agent", { needs: "administer", class: "small", "aria-label": `Make an agent of ${template.template_name}`, onclick: () => use(template, avatars, go) }, "plus"))))
      : empty("templates", "No templates yet", "Set everything up once, then make an agent of it for each face, customer or language.", add()),
    pager({ offset, perpage: PER, total }, (next) => go(`/console/templates?offset=${next}`)),
  ].filter(Boolean);
}

/** Asks for what an agent has of its own. */
function use(template, avatars, go) {
  const options = avatars.map((a) => ({ id: a.avatar_key_id, name: a.avatar_name, picture: a.display_picture }));
  return dialog(`An agent of ${template.template_name}`, (close) => form({
    value: { template_id: template.id, avatar_key_id: template.avatars?.[0]?.avatar_key_id ?? options[0]?.id },
    label: "Create agent",
    sections: [{ fields: [
      { path: "avatar_key_id", label: "Face", kind: "cards", single: true, pictures: true, options, class: "wide", required: true },
      { path: "context_override", label: "More for this agent", kind: "area", rows: 3, class: "wide", hint: "Added to the template's instructions." },
      { path: "email", label: "E-mail for meeting invitations", type: "email", class: "wide" },
    ] }],
    save: ({ context_override, email, ...rest }) => api.post("/v1/ext/agentbytemplate", { ...rest, ...(context_override && { context_override }), ...(email && { email }) }),
    done: ({ id }) => {
      close("");
      go(`/console/agents/${id}?new`);
    },
  }).node);
}

export async function templatePage({ id, signal, go, keep }) {
  const fresh = id === "new";
  const [template, all] = await Promise.all([fresh ? FRESH : api.get(`/v1/ext/template/${encodeURIComponent(id)}`, signal), known(signal)]);
  const made = form({
    sections: sections({ ...all, template: true }), value: shown(template), keep, label: fresh ? "Create template" : "Save changes", sticky: true,
    save: (body) => {
      // A template may leave the face open.
      if (!body.avatars?.[0]?.avatar_key_id) delete body.avatars?.[0]?.avatar_key_id;
      if (fresh && body.config.error_message === null) delete body.config.error_message;
      return fresh ? api.post("/v1/ext/template", body) : api.put(`/v1/ext/template/${id}`, body);
    },
    done: () => {
      toast(fresh ? "The template is made." : "Saved. Agents that were made of it before stay as they are.");
      go("/console/templates", { force: true });
    },
  });
  return [
    back("Templates", "/console/templates"),
    head(fresh ? "New template" : template.template_name, "Agents made of it get all of this; later changes here do not reach them.",
      !fresh && button("Make an agent", { needs: "administer", onclick: () => use(template, all.avatars, go) }, "plus")),
    made.node,
    !fresh && card("Delete", h("p", { class: "soft" }, "Agents that were made of it stay."), button("Delete this template", { needs: "administer", class: "small risky", onclick: async ({ currentTarget }) => {
      if (!(await sure(`Delete ${template.template_name}?`, "This cannot be undone.", "Delete"))) return;
      await busy(currentTarget, async () => {
        await api.remove(`/v1/ext/template/${id}`);
        go("/console/templates", { force: true });
      });
    } }, "bin")),
  ].filter(Boolean);
}
