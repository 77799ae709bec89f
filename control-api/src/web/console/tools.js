// Tools that an agent can call: an HTTP request, or a function in the caller's browser.

import { button, h, pill } from "./dom.js";
import { recordListPage, recordPage } from "./records.js";

const TYPES = ["string", "number", "integer", "boolean"];

/**
 * Whether a schema can be edited as rows of name, type and description. Any other schema is edited
 * as JSON.
 */
export function isSimpleSchema(parameters) {
  const known = new Set(["type", "description"]);
  const others = Object.keys(parameters ?? {}).filter(
    (key) => !["type", "properties", "required"].includes(key),
  );
  return (
    !others.length &&
    Object.values(parameters?.properties ?? {}).every(
      (value) =>
        value && TYPES.includes(value.type) && Object.keys(value).every((key) => known.has(key)),
    )
  );
}

const messageOrNull = (value) => (value?.message ? value : null);
const isApiTool = (get) => get("type") === "tool.api";

const KIND = {
  name: "tools",
  title: "Tools",
  singular: "tool",
  plural: "tools",
  path: "/v1/ext/tool",
  description:
    "What agents can do besides talking: look something up, book something, open a page.",
  purpose:
    "A tool is an HTTP request, or a function in the caller's page, that the agent may use " +
    "while it talks.",
  defaults: {
    type: "tool.api",
    schema: {
      type: "function",
      name: "",
      description: "",
      parameters: { type: "object", properties: {}, required: [] },
    },
    request_config: { method: "GET", url: "", headers: {} },
    event_messages: {},
  },
  toForm: (record) => ({
    ...record,
    request_config: record.request_config ?? { method: "GET", url: "", headers: {} },
    event_messages: record.event_messages ?? {},
  }),
  toBody: ({ type, schema, request_config, event_messages: messages }) => ({
    type,
    schema,
    request_config: type === "tool.api" ? request_config : null,
    event_messages: {
      on_start: messageOrNull(messages.on_start),
      on_success: messageOrNull(messages.on_success),
      on_error: messageOrNull(messages.on_error),
      on_delay: messageOrNull(messages.on_delay) && {
        ...messages.on_delay,
        delay: messages.on_delay.delay ?? undefined,
      },
    },
  }),
  toListItem: (record) => ({
    title: record.schema.name,
    description: record.schema.description || record.request_config?.url,
    tags: [
      pill(
        record.type === "tool.client"
          ? "In the browser"
          : `HTTP ${record.request_config?.method ?? ""}`,
      ),
    ],
  }),
  sections: (record) => [
    {
      id: "what",
      title: "What it is",
      fields: [
        {
          path: "schema.name",
          label: "Name",
          required: true,
          code: true,
          placeholder: "opening_hours",
          hint: "Letters, digits, _ - and dots; the model calls the tool by this name.",
        },
        {
          path: "type",
          label: "Runs",
          kind: "select",
          options: [
            ["tool.api", "On the server: an HTTP request"],
            ["tool.client", "In the caller's page"],
          ],
        },
        {
          path: "schema.description",
          label: "Description",
          kind: "area",
          rows: 2,
          class: "wide",
          hint: "Tells the model what it does and when to use it.",
        },
        ...(isSimpleSchema(record.schema.parameters)
          ? []
          : [
              {
                path: "schema.parameters",
                label: "Parameters",
                kind: "json",
                class: "wide",
                emptyValue: { type: "object", properties: {}, required: [] },
              },
            ]),
      ],
    },
    {
      id: "request",
      title: "Request",
      fields: [
        {
          path: "request_config.method",
          label: "Method",
          kind: "select",
          options: ["GET", "POST", "PUT", "PATCH", "DELETE"],
          visibleIf: isApiTool,
        },
        {
          path: "request_config.url",
          label: "Address",
          type: "url",
          class: "wide",
          placeholder: "https://example.com/hours/{day}",
          hint:
            "{name} is replaced by the parameter of that name; the others go into the query or " +
            "the JSON body.",
          visibleIf: isApiTool,
        },
        {
          path: "request_config.headers",
          label: "Headers",
          kind: "pairs",
          secret: true,
          singular: "header",
          labels: ["Name", "Value"],
          class: "wide",
          hint: "Values are stored encrypted and never shown again.",
          visibleIf: isApiTool,
        },
      ],
    },
    {
      id: "said",
      title: "What the agent says while the tool runs",
      fields: [
        {
          path: "event_messages.on_start.message",
          label: "On start",
          placeholder: "Let me look that up.",
        },
        { path: "event_messages.on_success.message", label: "On success" },
        { path: "event_messages.on_error.message", label: "On error" },
        { path: "event_messages.on_delay.message", label: "On delay" },
        {
          path: "event_messages.on_delay.delay",
          label: "Delay",
          kind: "number",
          unit: "s",
          min: 0,
          placeholder: "5",
          visibleIf: (get) => get("event_messages.on_delay.message"),
        },
      ],
    },
  ],
  decorate: (formView, record) => {
    if (isSimpleSchema(record.schema.parameters))
      formView.field("schema.description").node.after(parameterRows(record));
    const updateRequestSection = () => {
      formView.node.querySelector("#request").hidden = formView.get("type") !== "tool.api";
    };
    formView.node.addEventListener("change", updateRequestSection);
    updateRequestSection();
  },
};

/** Parameters as rows. Changes are written into the record itself, which the form sends. */
function parameterRows(record) {
  const { parameters } = record.schema;
  const list = h("div", { class: "rows" });
  const updateSchema = () => {
    const properties = {};
    const required = [];
    for (const row of list.children) {
      const [name, type, description, isRequired] = row.querySelectorAll("input, select");
      if (!name.value.trim()) continue;
      properties[name.value.trim()] = {
        type: type.value,
        ...(description.value.trim() && { description: description.value.trim() }),
      };
      if (isRequired.checked) required.push(name.value.trim());
    }
    record.schema.parameters = { type: "object", properties, required };
  };
  const add = (name = "", value = { type: "string" }, isRequired = true) => {
    const row = h(
      "div",
      { class: "row parameter" },
      h("input", {
        type: "text",
        value: name,
        placeholder: "Name",
        "aria-label": "Parameter: name",
        spellcheck: "false",
        autocomplete: "off",
      }),
      h(
        "select",
        { "aria-label": "Parameter: type" },
        TYPES.map((type) => h("option", { selected: type === value.type }, type)),
      ),
      h("input", {
        type: "text",
        value: value.description ?? "",
        placeholder: "What it is",
        "aria-label": "Parameter: description",
        autocomplete: "off",
      }),
      h(
        "label",
        { class: "inline" },
        h("input", { type: "checkbox", checked: isRequired }),
        "required",
      ),
      button(
        "",
        {
          class: "plain",
          "aria-label": "Remove this parameter",
          onclick: () => {
            row.remove();
            updateSchema();
            list.dispatchEvent(new Event("input", { bubbles: true }));
            addButton.focus();
          },
        },
        "bin",
      ),
    );
    list.append(row);
    return row;
  };
  for (const [name, value] of Object.entries(parameters?.properties ?? {}))
    add(name, value, parameters.required?.includes(name));
  const addButton = button(
    "Add a parameter",
    { class: "small", onclick: () => add().querySelector("input").focus() },
    "plus",
  );
  list.addEventListener("input", updateSchema);
  list.addEventListener("change", updateSchema);
  return h(
    "fieldset",
    { class: "field wide" },
    h("legend", {}, "Parameters"),
    h("p", { class: "hint" }, "What the model provides when it calls the tool."),
    list,
    addButton,
  );
}

export const toolsPage = (context) => recordListPage(context, KIND);
export const toolPage = (context) => recordPage(context, KIND);
