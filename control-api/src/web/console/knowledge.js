// Knowledge bases and their documents, with how far an upload and its reading are.

import * as api from "./api.js";
import { button, bytes, h, icon, link, pill, plural, when } from "./dom.js";
import { form } from "./form.js";
import { back, busy, card, empty, every, head, pager, search, sure, toast } from "./ui.js";

const PER = 20;
const KINDS = ".pdf,.docx,.txt,.md,.json,.html,.htm,.csv";
const STATES = { started: ["Waiting", "warn"], processing: ["Reading", "warn"], ready: ["Ready", "good"], error: ["Failed", "bad"] };

export async function knowledgePage({ query, signal, go }) {
  const offset = Number(query.get("offset")) || 0;
  const wanted = query.get("search") ?? "";
  const { items, total } = await api.list("/v1/ext/kbs", { offset, perpage: PER, search: wanted }, signal);
  const to = (next) => go(`/console/knowledge?${new URLSearchParams(next)}`);
  return [
    head("Knowledge", "Documents that agents answer from. Attach a base to as many agents as you like.", link("New knowledge base", "/console/knowledge/new", { needs: "administer", class: "button primary" }, "plus")),
    (total > PER || wanted) && search("Search knowledge bases", wanted, (text) => to({ search: text })),
    items.length
      ? h("ul", { class: "list" }, items.map((base) => h("li", {},
        h("div", { class: "what" }, h("h2", {}, h("a", { href: `/console/knowledge/${base.id}` }, base.name)), h("p", { class: "soft clip" }, base.description)),
        h("p", { class: "tags" }, pill(plural(base.no_of_rec, "document")), when(base.updated_at)))))
      : empty("knowledge", wanted ? "Nothing matches" : "No knowledge yet", "Upload PDF, Word, text, Markdown, HTML, CSV or JSON files, or paste text.", link("New knowledge base", "/console/knowledge/new", { needs: "administer", class: "button" }, "plus")),
    pager({ offset, perpage: PER, total }, (next) => to({ offset: next, ...(wanted && { search: wanted }) })),
  ].filter(Boolean);
}

function newBase({ go, keep }) {
  const made = form({
    keep, label: "Create and add documents", value: { name: "", description: "" },
    sections: [{ id: "base", fields: [
      { path: "name", label: "Name", required: true },
      { path: "description", label: "What it is about", required: true, class: "wide", hint: "Helps the agent to know when to look here." },
    ] }],
    extra: [link("Cancel", "/console/knowledge", { class: "button quiet" })],
    save: ({ name, description }) => {
      const body = new FormData();
      body.set("name", name);
      body.set("description", description);
      return api.post("/v1/ext/kb", body);
    },
    done: ({ id }) => go(`/console/knowledge/${id}`, { force: true }),
  });
  return [back("Knowledge", "/console/knowledge"), head("New knowledge base"), made.node];
}

export async function knowledgeBasePage(context) {
  const { id, signal, go, keep } = context;
  if (id === "new") return newBase(context);
  const path = `/v1/ext/kb/${encodeURIComponent(id)}`;
  const first = await api.get(path, signal);
  const base = first.knowledge_base;
  const list = h("ul", { class: "list documents", "aria-label": "Documents" });
  const none = h("p", { class: "soft" }, "No documents yet.");
  const count = h("span", { class: "soft", role: "status" });

  const draw = (documents) => {
    count.textContent = plural(documents.length, "document");
    none.hidden = documents.length > 0;
    list.replaceChildren(...documents.map((document) => {
      const [words, tone] = STATES[document.status] ?? [document.status, ""];
      return h("li", { data: { status: document.status } }, icon("file"),
        h("div", { class: "what" }, h("p", { class: "name" }, document.name || "Text"), document.error_message && h("p", { class: "fault" }, api.sentence(document.error_message))),
        pill(words, tone),
        button("", { needs: "administer", class: "plain", "aria-label": `Delete ${document.name}`, onclick: async ({ currentTarget }) => {
          if (!(await sure(`Delete ${document.name}?`, "Agents no longer answer from it.", "Delete"))) return;
          await busy(currentTarget, () => api.remove(`/v1/ext/kb/doc/${document.id}`));
          refresh();
        } }, "bin"));
    }));
  };
  let reading = false;
  const refresh = async () => {
    const { documents } = await api.get(path, signal);
    reading = documents.some(({ status }) => status === "started" || status === "processing");
    draw(documents);
  };
  draw(first.documents);
  reading = first.documents.some(({ status }) => status === "started" || status === "processing");
  every(1, signal, () => reading && refresh());

  const { name, description } = base;
  const rename = form({
    keep, value: { name, description }, label: "Save",
    sections: [{ id: "about", title: "About", fields: [{ path: "name", label: "Name", required: true }, { path: "description", label: "What it is about", required: true, class: "wide" }] }],
    save: (body) => api.put(path, body),
    done: (_, body) => {
      document.querySelector("#main h1").textContent = body.name;
      toast("Saved.");
    },
  });
  return [
    back("Knowledge", "/console/knowledge"),
    head(base.name, base.description),
    h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, "Documents"), count), list, none, adder(`${path}/doc`, signal, refresh)),
    rename.node,
    card("Delete", h("p", { class: "soft" }, "With all of its documents. Agents to which it is attached go on without it."), button("Delete this knowledge base", { needs: "administer", class: "small risky", onclick: async ({ currentTarget }) => {
      if (!(await sure(`Delete ${base.name}?`, "Its documents go with it. This cannot be undone.", "Delete"))) return;
      await busy(currentTarget, async () => {
        await api.remove(path);
        go("/console/knowledge", { force: true });
      });
    } }, "bin")),
  ];
}

/** Files by choice or by dropping, each with its own bar; or text. */
function adder(path, signal, refresh) {
  const running = h("ul", { class: "uploads", "aria-label": "Uploads" });
  const send = async (file) => {
    const bar = h("progress", { max: "1", value: 0, "aria-label": `Upload of ${file.name}` });
    const state = h("span", { class: "soft", role: "status" }, `0 % of ${bytes(file.size)}`);
    const row = h("li", {}, h("p", { class: "name" }, file.name), bar, state);
    running.append(row);
    const body = new FormData();
    body.set("input", file, file.name);
    try {
      await api.upload(path, body, (part) => {
        bar.value = part;
        state.textContent = part < 1 ? `${Math.round(part * 100)} % of ${bytes(file.size)}` : "Sent. The server takes it in …";
      }, signal);
      row.remove();
      toast(`${file.name} is uploaded.`);
    } catch (error) {
      if (error.name === "AbortError") return;
      const [detail] = error.details ?? [];
      bar.remove();
      state.className = "fault";
      state.textContent = detail ? api.sentence(`The file ${detail.reason.replace(/^a document /, "")}`) : error.sentence;
      row.append(button("", { class: "plain", "aria-label": `Dismiss ${file.name}`, onclick: () => row.remove() }, "close"));
    }
    refresh();
  };
  // One after the other: a slow line is not shared by ten files that all stay half done.
  const sendAll = async (files) => { for (const file of files) await send(file); };
  const input = h("input", { needs: "administer", type: "file", id: "files", multiple: true, accept: KINDS, class: "unseen", "aria-describedby": "files-hint", onchange: () => {
    const files = [...input.files];
    input.value = "";
    sendAll(files);
  } });
  const drop = h("div", { class: "drop" }, icon("file"), h("p", {}, h("label", { for: "files" }, "Choose files"), " or drop them here"), input, h("p", { class: "hint", id: "files-hint" }, "PDF, Word, text, Markdown, HTML, CSV or JSON, at most 10 MB each."));
  const over = (on) => (event) => {
    event.preventDefault();
    drop.classList.toggle("over", on);
  };
  drop.addEventListener("dragover", over(true));
  drop.addEventListener("dragleave", over(false));
  drop.addEventListener("drop", (event) => {
    over(false)(event);
    if (!input.disabled) sendAll([...event.dataTransfer.files]);
  });
  const text = form({
    value: { text: "" }, label: "Add text", sections: [{ open: false, title: "Or paste text", fields: [{ path: "text", label: "Text", kind: "area", rows: 6, class: "wide", required: true }] }],
    save: ({ text: words }) => {
      const body = new FormData();
      body.set("text", words);
      return api.post(path, body);
    },
    done: () => {
      text.field("text").made.first().value = "";
      toast("The text is added.");
      refresh();
    },
  });
  text.node.querySelector("details").append(text.node.querySelector(".actions"));
  return [running, drop, text.node];
}
