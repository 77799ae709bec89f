// MCP servers, whose tools an agent may use.

import { pill } from "./dom.js";
import { recordListPage, recordPage } from "./records.js";

const KIND = {
  name: "mcp",
  title: "MCP servers",
  singular: "MCP server",
  plural: "MCP servers",
  path: "/v1/ext/mcp",
  description:
    "Servers of the Model Context Protocol. An agent requests their tools when a call begins.",
  purpose: "Attach an MCP server to an agent, and the agent can use all of its tools in a call.",
  defaults: {
    name: "",
    description: "",
    type: "shttp/sse",
    request_config: { url: "", headers: {} },
  },
  toForm: (record) => record,
  toBody: ({ name, description, type, request_config }) => ({
    name,
    description,
    type,
    request_config,
  }),
  toListItem: (record) => ({
    title: record.name,
    description: record.description || record.request_config.url,
    tags: [pill(record.type)],
  }),
  sections: () => [
    {
      id: "server",
      fields: [
        { path: "name", label: "Name", required: true },
        {
          path: "type",
          label: "Transport",
          kind: "select",
          options: [
            ["shttp/sse", "Automatic"],
            ["shttp", "Streamable HTTP"],
            ["sse", "Server-sent events (older)"],
          ],
        },
        { path: "description", label: "Description", class: "wide" },
        {
          path: "request_config.url",
          label: "Address",
          required: true,
          type: "url",
          class: "wide",
          placeholder: "https://example.com/mcp",
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
        },
      ],
    },
  ],
};

export const mcpsPage = (context) => recordListPage(context, KIND);
export const mcpPage = (context) => recordPage(context, KIND);
