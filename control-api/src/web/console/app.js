// The console: which view an address shows, the way in and out, the menu.

import * as api from "./api.js";
import { button, h, icon } from "./dom.js";
import { door } from "./login.js";
import { may, setScope } from "./scope.js";
import { dialog, problem, waiting } from "./ui.js";
import { agentPage, agentsPage } from "./agents.js";
import { newAgentPage } from "./agent-new.js";
import { avatarPage, avatarsPage } from "./avatars.js";
import { conversationPage } from "./conversation.js";
import { conversationsPage } from "./conversations.js";
import { editorPage } from "./editor.js";
import { guardrailPage, guardrailsPage } from "./guardrails.js";
import { keysPage } from "./keys.js";
import { knowledgeBasePage, knowledgePage } from "./knowledge.js";
import { mcpPage, mcpsPage } from "./mcp.js";
import { providersPage } from "./providers.js";
import { templatePage, templatesPage } from "./templates.js";
import { toolPage, toolsPage } from "./tools.js";
import { webhooksPage } from "./webhooks.js";

const at = (id) => document.getElementById(id);

/** Address → view. A view gets `{id, query, signal, go, again, keep, whose}` and returns its nodes. */
const VIEWS = [
  ["agents", agentsPage], ["agents/new", newAgentPage], ["agents/:id", agentPage],
  ["templates", templatesPage], ["templates/:id", templatePage],
  ["avatars", avatarsPage], ["avatars/new", editorPage], ["avatars/:id", avatarPage],
  ["knowledge", knowledgePage], ["knowledge/:id", knowledgeBasePage],
  ["tools", toolsPage], ["tools/:id", toolPage],
  ["guardrails", guardrailsPage], ["guardrails/:id", guardrailPage],
  ["mcp", mcpsPage], ["mcp/:id", mcpPage],
  ["conversations", conversationsPage], ["conversations/:id", conversationPage],
  ["webhooks", webhooksPage], ["providers", providersPage], ["keys", keysPage],
];

const MENU = [
  ["", [["agents", "Agents"], ["conversations", "Conversations"]]],
  ["Build with", [["templates", "Templates"], ["avatars", "Avatars"], ["knowledge", "Knowledge"], ["tools", "Tools"], ["guardrails", "Guardrails"], ["mcp", "MCP servers"]]],
  ["Workspace", [["webhooks", "Webhooks"], ["providers", "Providers"], ["keys", "API keys"]]],
];

let whose = null;
let leaving = null;
let unsaved = () => false;
let shown = "";

function match(path) {
  const parts = path.replace(/^\/console\/?/, "").split("/").filter(Boolean);
  if (!parts.length) return { view: agentsPage, id: null, name: "agents" };
  for (const [pattern, view] of VIEWS) {
    const wanted = pattern.split("/");
    if (wanted.length === parts.length && wanted.every((part, i) => part === parts[i] || part === ":id")) {
      return { view, id: wanted.includes(":id") ? decodeURIComponent(parts.at(-1)) : null, name: parts[0] };
    }
  }
  return { view: null, id: null, name: "" };
}

/** Whether a form with changes may be left. */
async function mayLeave() {
  if (!unsaved()) return true;
  const answer = await dialog("Leave without saving?", (close) => [
    h("p", {}, "What you changed on this page is not saved yet."),
    h("div", { class: "actions end" }, button("Stay here", { onclick: () => close("") }), button("Leave", { class: "danger", onclick: () => close("yes") })),
  ]);
  return answer === "yes";
}

/** Goes to an address of the console. */
async function go(path, { replace = false, force = false } = {}) {
  if (!force && !(await mayLeave())) return;
  unsaved = () => false;
  history[replace ? "replaceState" : "pushState"](null, "", path);
  await render(true);
}

/** Shows the same address anew, where it was: scrolled, unfolded and focused as before. */
async function again() {
  const open = [...at("main").querySelectorAll("details[open][id]")].map((one) => one.id);
  const [top, focus] = [scrollY, document.activeElement?.id];
  await render(false, true);
  for (const id of open) at(id)?.setAttribute("open", "");
  scrollTo(0, top);
  (focus && at(focus) ? at(focus) : at("main").querySelector("h1"))?.focus({ preventScroll: true });
}

async function render(moved, still = false) {
  leaving?.abort();
  const stop = (leaving = new AbortController());
  const { view, id, name } = match(location.pathname);
  shown = location.pathname + location.search;
  unsaved = () => false;
  menu(false);
  for (const entry of at("nav").querySelectorAll("a[data-name]")) {
    if (entry.dataset.name === name) entry.setAttribute("aria-current", "page");
    else entry.removeAttribute("aria-current");
  }
  const main = at("main");
  main.setAttribute("aria-busy", "true");
  const slow = still ? 0 : setTimeout(() => main.replaceChildren(waiting()), 250);
  let nodes;
  try {
    const context = { id, query: new URLSearchParams(location.search), signal: stop.signal, go, again, whose, keep: (dirty) => { unsaved = dirty; } };
    nodes = view ? await view(context) : [h("h1", { tabindex: "-1" }, "Nothing here"), h("p", {}, "There is no page under this address. ", h("a", { href: "/console/agents" }, "See your agents"), ".")];
  } catch (error) {
    if (stop.signal.aborted) return;
    nodes = [h("h1", { tabindex: "-1" }, error.status === 404 ? "Nothing here" : "This did not load"), problem(error),
      h("div", { class: "actions" }, button("Try again", { onclick: () => render(true) }, "again"))];
  } finally {
    clearTimeout(slow);
  }
  if (stop.signal.aborted) return;
  main.replaceChildren(...[nodes].flat());
  main.removeAttribute("aria-busy");
  const title = main.querySelector("h1");
  document.title = `${title?.textContent ?? "Console"} – Visavis console`;
  if (moved) {
    scrollTo(0, 0);
    // A view may have put the focus where it belongs, as into the first field of a form.
    if (!main.contains(document.activeElement)) title?.focus({ preventScroll: true });
  }
}

function menu(open) {
  at("nav").classList.toggle("open", open);
  at("menu").setAttribute("aria-expanded", String(open));
}

function build() {
  const entry = ([name, words]) => h("li", {}, h("a", { href: `/console/${name}`, data: { name } }, icon(name), words));
  at("nav").replaceChildren(
    ...MENU.map(([title, entries]) => h("div", {}, title && h("h2", {}, title), h("ul", {}, entries.map(entry)))),
    h("div", { class: "foot" },
      h("p", { class: "soft" }, "Key ", h("code", {}, `${whose.prefix}…`), !may("administer") && ` may ${whose.scope}`),
      h("ul", {}, h("li", {}, h("a", { href: "/docs", target: "_blank", rel: "noopener" }, icon("docs"), "API reference")),
        h("li", {}, h("button", { type: "button", class: "plain", onclick: leave }, icon("leave"), "Log out")))));
}

async function leave() {
  if (!(await mayLeave())) return;
  unsaved = () => false;
  await api.logout();
  enter();
}

/** Shows the way in. */
function enter(words) {
  leaving?.abort();
  at("shell").hidden = true;
  at("main").replaceChildren();
  at("skip").hidden = true;
  at("door").hidden = false;
  document.title = "Log in – Visavis console";
  at("door").replaceChildren(...door(words, (session) => open(session, true)));
}

function open(session, moved) {
  whose = session;
  setScope(session.scope);
  at("door").hidden = true;
  at("door").replaceChildren();
  at("skip").hidden = false;
  at("shell").hidden = false;
  build();
  return render(moved);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href]");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey || link.target) return;
  const url = new URL(link.href);
  if (url.origin !== location.origin || !/^\/console(\/|$)/.test(url.pathname) || url.hash) return;
  event.preventDefault();
  go(url.pathname + url.search);
});
addEventListener("popstate", async () => {
  if (location.pathname + location.search === shown) return;
  if (await mayLeave()) return render(true);
  history.pushState(null, "", shown);
});
addEventListener("beforeunload", (event) => { if (unsaved()) event.preventDefault(); });
at("menu").addEventListener("click", () => menu(at("menu").getAttribute("aria-expanded") !== "true"));
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && at("nav").classList.contains("open")) {
    menu(false);
    at("menu").focus();
  }
});
at("skip").addEventListener("click", (event) => {
  event.preventDefault();
  at("main").focus();
});
// A page that stays open keeps its session.
setInterval(() => { if (!at("shell").hidden) api.session().catch(() => {}); }, 600_000);
api.onLost((refused) => enter(refused.sentence));

try {
  const session = await api.session();
  if (session) await open(session, false);
  else enter();
} catch (error) {
  enter(error.sentence ?? "The console did not start. Load it again.");
}
