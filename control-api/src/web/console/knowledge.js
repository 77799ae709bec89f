// Knowledge bases and their documents, with the progress of uploads and of processing.

import * as api from "./api.js";
import { button, formatBytes, h, icon, link, pill, plural, timeElement } from "./dom.js";
import { form } from "./form.js";
import {
  backLink,
  card,
  confirmDialog,
  emptyState,
  pageHeader,
  pager,
  pollWhileVisible,
  runBusy,
  searchBox,
  toast,
} from "./ui.js";

const PAGE_SIZE = 20;
const FILE_TYPES = ".pdf,.docx,.txt,.md,.json,.html,.htm,.csv";
const STATUS_LABELS = {
  started: ["Waiting", "warn"],
  processing: ["Processing", "warn"],
  ready: ["Ready", "good"],
  error: ["Failed", "bad"],
};

export async function knowledgePage({ query, signal, navigate }) {
  const offset = Number(query.get("offset")) || 0;
  const searchText = query.get("search") ?? "";
  const { items, total } = await api.list(
    "/v1/ext/kbs",
    { offset, perpage: PAGE_SIZE, search: searchText },
    signal,
  );
  const applyQuery = (next) => navigate(`/console/knowledge?${new URLSearchParams(next)}`);
  return [
    pageHeader(
      "Knowledge",
      "Documents that agents answer from. Attach a base to as many agents as you like.",
      link(
        "New knowledge base",
        "/console/knowledge/new",
        { needs: "administer", class: "button primary" },
        "plus",
      ),
    ),
    (total > PAGE_SIZE || searchText) &&
      searchBox("Search knowledge bases", searchText, (text) => applyQuery({ search: text })),
    items.length
      ? h(
          "ul",
          { class: "list" },
          items.map((base) =>
            h(
              "li",
              {},
              h(
                "div",
                { class: "item-text" },
                h("h2", {}, h("a", { href: `/console/knowledge/${base.id}` }, base.name)),
                h("p", { class: "soft clip" }, base.description),
              ),
              h(
                "p",
                { class: "tags" },
                pill(plural(base.no_of_rec, "document")),
                timeElement(base.updated_at),
              ),
            ),
          ),
        )
      : emptyState(
          "knowledge",
          searchText ? "Nothing matches" : "No knowledge yet",
          "Upload PDF, Word, text, Markdown, HTML, CSV or JSON files, or paste text.",
          link(
            "New knowledge base",
            "/console/knowledge/new",
            { needs: "administer", class: "button" },
            "plus",
          ),
        ),
    pager({ offset, perpage: PAGE_SIZE, total }, (next) =>
      applyQuery({ offset: next, ...(searchText && { search: searchText }) }),
    ),
  ].filter(Boolean);
}

function newKnowledgeBasePage({ navigate, setUnsavedCheck }) {
  const formView = form({
    setUnsavedCheck,
    label: "Create and add documents",
    value: { name: "", description: "" },
    sections: [
      {
        id: "base",
        fields: [
          { path: "name", label: "Name", required: true },
          {
            path: "description",
            label: "What it is about",
            required: true,
            class: "wide",
            hint: "Helps the agent to decide when to search it.",
          },
        ],
      },
    ],
    extra: [link("Cancel", "/console/knowledge", { class: "button quiet" })],
    save: ({ name, description }) => {
      const body = new FormData();
      body.set("name", name);
      body.set("description", description);
      return api.post("/v1/ext/kb", body);
    },
    onSaved: ({ id }) => navigate(`/console/knowledge/${id}`, { force: true }),
  });
  return [
    backLink("Knowledge", "/console/knowledge"),
    pageHeader("New knowledge base"),
    formView.node,
  ];
}

export async function knowledgeBasePage(context) {
  const { id, signal, navigate, setUnsavedCheck } = context;
  if (id === "new") return newKnowledgeBasePage(context);
  const path = `/v1/ext/kb/${encodeURIComponent(id)}`;
  const first = await api.get(path, signal);
  const base = first.knowledge_base;
  const list = h("ul", { class: "list documents", "aria-label": "Documents" });
  const emptyNote = h("p", { class: "soft" }, "No documents yet.");
  const countLabel = h("span", { class: "soft", role: "status" });

  const render = (documents) => {
    countLabel.textContent = plural(documents.length, "document");
    emptyNote.hidden = documents.length > 0;
    list.replaceChildren(
      ...documents.map((document) => {
        const [label, tone] = STATUS_LABELS[document.status] ?? [document.status, ""];
        return h(
          "li",
          { data: { status: document.status } },
          icon("file"),
          h(
            "div",
            { class: "item-text" },
            h("p", { class: "name" }, document.name || "Text"),
            document.error_message &&
              h("p", { class: "fault" }, api.toSentence(document.error_message)),
          ),
          pill(label, tone),
          button(
            "",
            {
              needs: "administer",
              class: "plain",
              "aria-label": `Delete ${document.name}`,
              onclick: async ({ currentTarget }) => {
                if (
                  !(await confirmDialog(
                    `Delete ${document.name}?`,
                    "Agents no longer use it.",
                    "Delete",
                  ))
                )
                  return;
                await runBusy(currentTarget, () => api.remove(`/v1/ext/kb/doc/${document.id}`));
                refresh();
              },
            },
            "bin",
          ),
        );
      }),
    );
  };
  let processing = false;
  const refresh = async () => {
    const { documents } = await api.get(path, signal);
    processing = documents.some(({ status }) => status === "started" || status === "processing");
    render(documents);
  };
  render(first.documents);
  processing = first.documents.some(
    ({ status }) => status === "started" || status === "processing",
  );
  pollWhileVisible(1, signal, () => processing && refresh());

  const { name, description } = base;
  const formView = form({
    setUnsavedCheck,
    value: { name, description },
    label: "Save",
    sections: [
      {
        id: "about",
        title: "About",
        fields: [
          { path: "name", label: "Name", required: true },
          { path: "description", label: "What it is about", required: true, class: "wide" },
        ],
      },
    ],
    save: (body) => api.put(path, body),
    onSaved: (_, body) => {
      document.querySelector("#main h1").textContent = body.name;
      toast("Saved.");
    },
  });
  return [
    backLink("Knowledge", "/console/knowledge"),
    pageHeader(base.name, base.description),
    h(
      "section",
      { class: "card" },
      h("div", { class: "card-head" }, h("h2", {}, "Documents"), countLabel),
      list,
      emptyNote,
      documentUploader(`${path}/doc`, signal, refresh),
    ),
    formView.node,
    card(
      "Delete",
      h(
        "p",
        { class: "soft" },
        "With all of its documents. Agents to which it is attached continue without it.",
      ),
      button(
        "Delete this knowledge base",
        {
          needs: "administer",
          class: "small risky",
          onclick: async ({ currentTarget }) => {
            if (
              !(await confirmDialog(
                `Delete ${base.name}?`,
                "Its documents are deleted too. This cannot be undone.",
                "Delete",
              ))
            )
              return;
            await runBusy(currentTarget, async () => {
              await api.remove(path);
              navigate("/console/knowledge", { force: true });
            });
          },
        },
        "bin",
      ),
    ),
  ];
}

/** Adds documents: selected or dropped files, each with a progress bar, or pasted text. */
function documentUploader(path, signal, refresh) {
  const uploads = h("ul", { class: "uploads", "aria-label": "Uploads" });
  const upload = async (file) => {
    const progressBar = h("progress", {
      max: "1",
      value: 0,
      "aria-label": `Upload of ${file.name}`,
    });
    const state = h("span", { class: "soft", role: "status" }, `0 % of ${formatBytes(file.size)}`);
    const row = h("li", {}, h("p", { class: "name" }, file.name), progressBar, state);
    uploads.append(row);
    const body = new FormData();
    body.set("input", file, file.name);
    try {
      await api.upload(
        path,
        body,
        (fraction) => {
          progressBar.value = fraction;
          state.textContent =
            fraction < 1
              ? `${Math.round(fraction * 100)} % of ${formatBytes(file.size)}`
              : "Sent. The server processes it …";
        },
        signal,
      );
      row.remove();
      toast(`${file.name} is uploaded.`);
    } catch (error) {
      if (error.name === "AbortError") return;
      const [detail] = error.details ?? [];
      progressBar.remove();
      state.className = "fault";
      state.textContent = detail
        ? api.toSentence(`The file ${detail.reason.replace(/^a document /, "")}`)
        : error.userMessage;
      row.append(
        button(
          "",
          { class: "plain", "aria-label": `Dismiss ${file.name}`, onclick: () => row.remove() },
          "close",
        ),
      );
    }
    refresh();
  };
  // One file at a time: on a slow connection, some are complete before the others start.
  const uploadAll = async (files) => {
    for (const file of files) await upload(file);
  };
  const fileInput = h("input", {
    needs: "administer",
    type: "file",
    id: "files",
    multiple: true,
    accept: FILE_TYPES,
    class: "visually-hidden",
    "aria-describedby": "files-hint",
    onchange: () => {
      const files = [...fileInput.files];
      fileInput.value = "";
      uploadAll(files);
    },
  });
  const dropZone = h(
    "div",
    { class: "drop" },
    icon("file"),
    h("p", {}, h("label", { for: "files" }, "Choose files"), " or drop them here"),
    fileInput,
    h(
      "p",
      { class: "hint", id: "files-hint" },
      "PDF, Word, text, Markdown, HTML, CSV or JSON, at most 10 MB each.",
    ),
  );
  const onDrag = (isOver) => (event) => {
    event.preventDefault();
    dropZone.classList.toggle("drag-over", isOver);
  };
  dropZone.addEventListener("dragover", onDrag(true));
  dropZone.addEventListener("dragleave", onDrag(false));
  dropZone.addEventListener("drop", (event) => {
    onDrag(false)(event);
    if (!fileInput.disabled) uploadAll([...event.dataTransfer.files]);
  });
  const textForm = form({
    value: { text: "" },
    label: "Add text",
    sections: [
      {
        open: false,
        title: "Or paste text",
        fields: [
          { path: "text", label: "Text", kind: "area", rows: 6, class: "wide", required: true },
        ],
      },
    ],
    save: ({ text }) => {
      const body = new FormData();
      body.set("text", text);
      return api.post(path, body);
    },
    onSaved: () => {
      textForm.field("text").control.focusTarget().value = "";
      toast("The text is added.");
      refresh();
    },
  });
  textForm.node.querySelector("details").append(textForm.node.querySelector(".actions"));
  return [uploads, dropZone, textForm.node];
}
