// Templates: the settings of an agent without its identity. Agents can be created from them.

import { agentSections, toFormValue } from "./agent-fields.js";
import { avatarImage, loadFormOptions } from "./agents.js";
import * as api from "./api.js";
import { button, h, link } from "./dom.js";
import { form } from "./form.js";
import { selectableAvatars } from "./selectable-avatars.js";
import {
  backLink,
  card,
  confirmDialog,
  dialog,
  emptyState,
  pageHeader,
  pager,
  runBusy,
  toast,
} from "./ui.js";

const PAGE_SIZE = 20;

/** The explicit defaults of a new template. In the form, an empty field means something else. */
const DEFAULTS = {
  template_name: "",
  template_system_prompt: "",
  config: {},
  avatars: [
    {
      turn_handling: "balanced",
      interruptability: "medium",
      frame_rate: 25,
      welcome_message: { wait_time: 1, messages: [] },
      idle_timeout: { timeout: 30, filler_phrases: [], end_after: 3 },
      exit_heads_up_message: { callout_before: 10, messages: [] },
    },
  ],
};

export async function templatesPage({ query, signal, navigate }) {
  const offset = Number(query.get("offset")) || 0;
  const [{ items, total }, avatars] = await Promise.all([
    api.list("/v1/ext/templates", { offset, perpage: PAGE_SIZE }, signal),
    selectableAvatars(signal),
  ]);
  const newTemplateLink = () =>
    link(
      "New template",
      "/console/templates/new",
      { needs: "administer", class: "button primary" },
      "plus",
    );
  return [
    pageHeader(
      "Templates",
      "Settings for many agents: instructions, models and attached resources.",
      newTemplateLink(),
    ),
    items.length
      ? h(
          "ul",
          { class: "list" },
          items.map((template) =>
            h(
              "li",
              {},
              avatarImage(avatars, template, "small"),
              h(
                "div",
                { class: "item-text" },
                h(
                  "h2",
                  {},
                  h("a", { href: `/console/templates/${template.id}` }, template.template_name),
                ),
                h("p", { class: "soft clip" }, template.template_system_prompt),
              ),
              button(
                "Create an agent",
                {
                  needs: "administer",
                  class: "small",
                  "aria-label": `Create an agent from ${template.template_name}`,
                  onclick: () => agentFromTemplateDialog(template, avatars, navigate),
                },
                "plus",
              ),
            ),
          ),
        )
      : emptyState(
          "templates",
          "No templates yet",
          "Configure everything once, then create agents from it for each avatar, customer or " +
            "language.",
          newTemplateLink(),
        ),
    pager({ offset, perpage: PAGE_SIZE, total }, (next) =>
      navigate(`/console/templates?offset=${next}`),
    ),
  ].filter(Boolean);
}

/** Asks for the settings of a new agent that its template does not contain. */
function agentFromTemplateDialog(template, avatars, navigate) {
  const options = avatars.map((avatar) => ({
    id: avatar.avatar_key_id,
    name: avatar.avatar_name,
    picture: avatar.display_picture,
  }));
  return dialog(
    `An agent from ${template.template_name}`,
    (close) =>
      form({
        value: {
          template_id: template.id,
          avatar_key_id: template.avatars?.[0]?.avatar_key_id ?? options[0]?.id,
        },
        label: "Create agent",
        sections: [
          {
            fields: [
              {
                path: "avatar_key_id",
                label: "Avatar",
                kind: "cards",
                single: true,
                showPictures: true,
                options,
                class: "wide",
                required: true,
              },
              {
                path: "context_override",
                label: "Additional instructions",
                kind: "area",
                rows: 3,
                class: "wide",
                hint: "Added to the template's instructions.",
              },
              {
                path: "email",
                label: "E-mail for meeting invitations",
                type: "email",
                class: "wide",
              },
            ],
          },
        ],
        save: ({ context_override, email, ...rest }) =>
          api.post("/v1/ext/agentbytemplate", {
            ...rest,
            ...(context_override && { context_override }),
            ...(email && { email }),
          }),
        onSaved: ({ id }) => {
          close("");
          navigate(`/console/agents/${id}?new`);
        },
      }).node,
  );
}

export async function templatePage({ id, signal, navigate, setUnsavedCheck }) {
  const isNew = id === "new";
  const [template, formOptions] = await Promise.all([
    isNew ? DEFAULTS : api.get(`/v1/ext/template/${encodeURIComponent(id)}`, signal),
    loadFormOptions(signal),
  ]);
  const formView = form({
    sections: agentSections({ ...formOptions, template: true }),
    value: toFormValue(template),
    setUnsavedCheck,
    label: isNew ? "Create template" : "Save changes",
    sticky: true,
    save: (body) => {
      // The avatar of a template is optional.
      if (!body.avatars?.[0]?.avatar_key_id) delete body.avatars?.[0]?.avatar_key_id;
      if (isNew && body.config.error_message === null) delete body.config.error_message;
      return isNew ? api.post("/v1/ext/template", body) : api.put(`/v1/ext/template/${id}`, body);
    },
    onSaved: () => {
      toast(isNew ? "The template is created." : "Saved. Existing agents are not changed.");
      navigate("/console/templates", { force: true });
    },
  });
  return [
    backLink("Templates", "/console/templates"),
    pageHeader(
      isNew ? "New template" : template.template_name,
      "Agents created from it copy all of these settings. Later changes do not affect them.",
      !isNew &&
        button(
          "Create an agent",
          {
            needs: "administer",
            onclick: () => agentFromTemplateDialog(template, formOptions.avatars, navigate),
          },
          "plus",
        ),
    ),
    formView.node,
    !isNew &&
      card(
        "Delete",
        h("p", { class: "soft" }, "Agents created from it are kept."),
        button(
          "Delete this template",
          {
            needs: "administer",
            class: "small risky",
            onclick: async ({ currentTarget }) => {
              if (
                !(await confirmDialog(
                  `Delete ${template.template_name}?`,
                  "This cannot be undone.",
                  "Delete",
                ))
              )
                return;
              await runBusy(currentTarget, async () => {
                await api.remove(`/v1/ext/template/${id}`);
                navigate("/console/templates", { force: true });
              });
            },
          },
          "bin",
        ),
      ),
  ].filter(Boolean);
}
