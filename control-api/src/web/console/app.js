// The console: routing, login and logout, the menu.

import { newAgentPage } from "./agent-new.js";
import { agentPage, agentsPage } from "./agents.js";
import * as api from "./api.js";
import { avatarPage, avatarsPage } from "./avatars.js";
import { conversationPage } from "./conversation.js";
import { conversationsPage } from "./conversations.js";
import { button, h, icon } from "./dom.js";
import { editorPage } from "./editor.js";
import { guardrailPage, guardrailsPage } from "./guardrails.js";
import { keysPage } from "./keys.js";
import { knowledgeBasePage, knowledgePage } from "./knowledge.js";
import { loginForm } from "./login.js";
import { mcpPage, mcpsPage } from "./mcp.js";
import { photoPage } from "./photo.js";
import { providersPage } from "./providers.js";
import { hasScope, setScope } from "./scope.js";
import { serversPage } from "./servers.js";
import { templatePage, templatesPage } from "./templates.js";
import { toolPage, toolsPage } from "./tools.js";
import { dialog, errorMessage, loadingIndicator } from "./ui.js";
import { videoPage } from "./video.js";
import { newVideoPage } from "./video-new.js";
import { videosPage } from "./videos.js";
import { webhooksPage } from "./webhooks.js";

const byId = (id) => document.getElementById(id);

/**
 * Path → view. A view gets `{id, query, signal, navigate, reloadView, setUnsavedCheck, session}`
 * and returns its nodes. `signal` aborts when the user leaves the view.
 * @type {[string, (context: any) => Promise<any>][]}
 */
const ROUTES = [
  ["agents", agentsPage],
  ["agents/new", newAgentPage],
  ["agents/:id", agentPage],
  ["templates", templatesPage],
  ["templates/:id", templatePage],
  ["avatars", avatarsPage],
  ["avatars/new", editorPage],
  ["avatars/photo", photoPage],
  ["avatars/:id", avatarPage],
  ["knowledge", knowledgePage],
  ["knowledge/:id", knowledgeBasePage],
  ["tools", toolsPage],
  ["tools/:id", toolPage],
  ["guardrails", guardrailsPage],
  ["guardrails/:id", guardrailPage],
  ["mcp", mcpsPage],
  ["mcp/:id", mcpPage],
  ["conversations", conversationsPage],
  ["conversations/:id", conversationPage],
  ["videos", videosPage],
  ["videos/new", newVideoPage],
  ["videos/:id", videoPage],
  ["webhooks", webhooksPage],
  ["providers", providersPage],
  ["keys", keysPage],
  ["servers", serversPage],
];

/**
 * The groups of the menu: title, and name and label of each entry.
 * @type {[string, [string, string][]][]}
 */
const MENU = [
  [
    "",
    [
      ["agents", "Agents"],
      ["conversations", "Conversations"],
      ["videos", "Videos"],
    ],
  ],
  [
    "Build with",
    [
      ["templates", "Templates"],
      ["avatars", "Avatars"],
      ["knowledge", "Knowledge"],
      ["tools", "Tools"],
      ["guardrails", "Guardrails"],
      ["mcp", "MCP servers"],
    ],
  ],
  [
    "Workspace",
    [
      ["webhooks", "Webhooks"],
      ["providers", "Providers"],
      ["keys", "API keys"],
      ["servers", "Servers"],
    ],
  ],
];

let currentSession = null;
let viewAbort = null;
let hasUnsavedChanges = () => false;
let currentUrl = "";

function match(path) {
  const pathSegments = path
    .replace(/^\/console\/?/, "")
    .split("/")
    .filter(Boolean);
  if (!pathSegments.length) return { view: agentsPage, id: null, name: "agents" };
  for (const [pattern, view] of ROUTES) {
    const patternSegments = pattern.split("/");
    if (
      patternSegments.length === pathSegments.length &&
      patternSegments.every((part, i) => part === pathSegments[i] || part === ":id")
    ) {
      return {
        view,
        id: patternSegments.includes(":id") ? decodeURIComponent(pathSegments.at(-1)) : null,
        name: pathSegments[0],
      };
    }
  }
  return { view: null, id: null, name: "" };
}

/** Whether the user may leave the view. Asks if it has unsaved changes. */
async function confirmLeave() {
  if (!hasUnsavedChanges()) return true;
  const answer = await dialog("Leave without saving?", (close) => [
    h("p", {}, "The changes on this page are not saved."),
    h(
      "div",
      { class: "actions end" },
      button("Stay here", { onclick: () => close("") }),
      button("Leave", { class: "danger", onclick: () => close("yes") }),
    ),
  ]);
  return answer === "yes";
}

/** Navigates to a path of the console. `force`: without asking about unsaved changes. */
async function navigate(path, { replace = false, force = false } = {}) {
  if (!force && !(await confirmLeave())) return;
  hasUnsavedChanges = () => false;
  history[replace ? "replaceState" : "pushState"](null, "", path);
  await render(true);
}

/** Reloads the current view and restores its scroll position, open sections and focus. */
async function reloadView() {
  const openSections = [...byId("main").querySelectorAll("details[open][id]")].map(
    (section) => section.id,
  );
  const [scrollTop, focusedId] = [scrollY, document.activeElement?.id];
  await render(false, true);
  for (const id of openSections) byId(id)?.setAttribute("open", "");
  scrollTo(0, scrollTop);
  (focusedId && byId(focusedId) ? byId(focusedId) : byId("main").querySelector("h1"))?.focus({
    preventScroll: true,
  });
}

async function render(isNavigation, keepOldView = false) {
  viewAbort?.abort();
  const abort = new AbortController();
  viewAbort = abort;
  const { view, id, name } = match(location.pathname);
  currentUrl = location.pathname + location.search;
  hasUnsavedChanges = () => false;
  setMenuOpen(false);
  /** @type {NodeListOf<HTMLElement>} */
  const entries = byId("nav").querySelectorAll("a[data-name]");
  for (const entry of entries) {
    if (entry.dataset.name === name) entry.setAttribute("aria-current", "page");
    else entry.removeAttribute("aria-current");
  }
  const main = byId("main");
  main.setAttribute("aria-busy", "true");
  const loadingTimer = keepOldView
    ? 0
    : setTimeout(() => main.replaceChildren(loadingIndicator()), 250);
  let nodes;
  try {
    const context = {
      id,
      query: new URLSearchParams(location.search),
      signal: abort.signal,
      navigate,
      reloadView,
      session: currentSession,
      setUnsavedCheck: (check) => {
        hasUnsavedChanges = check;
      },
    };
    nodes = view
      ? await view(context)
      : [
          h("h1", { tabindex: "-1" }, "Nothing here"),
          h(
            "p",
            {},
            "There is no page at this address. ",
            h("a", { href: "/console/agents" }, "See your agents"),
            ".",
          ),
        ];
  } catch (error) {
    if (abort.signal.aborted) return;
    nodes = [
      h(
        "h1",
        { tabindex: "-1" },
        error.status === 404 ? "Nothing here" : "The page could not be loaded",
      ),
      errorMessage(error),
      h("div", { class: "actions" }, button("Try again", { onclick: () => render(true) }, "again")),
    ];
  } finally {
    clearTimeout(loadingTimer);
  }
  if (abort.signal.aborted) return;
  main.replaceChildren(...[nodes].flat());
  main.removeAttribute("aria-busy");
  const title = main.querySelector("h1");
  document.title = `${title?.textContent ?? "Console"} – Visavis console`;
  if (isNavigation) {
    scrollTo(0, 0);
    // A view may have set the focus itself, for example to the first field of a form.
    if (!main.contains(document.activeElement)) title?.focus({ preventScroll: true });
  }
}

function setMenuOpen(open) {
  byId("nav").classList.toggle("open", open);
  byId("menu").setAttribute("aria-expanded", String(open));
}

function renderMenu() {
  const menuEntry = ([name, label]) =>
    h("li", {}, h("a", { href: `/console/${name}`, data: { name } }, icon(name), label));
  byId("nav").replaceChildren(
    ...MENU.map(([title, entries]) =>
      h("div", {}, title && h("h2", {}, title), h("ul", {}, entries.map(menuEntry))),
    ),
    h(
      "div",
      { class: "nav-footer" },
      h(
        "p",
        { class: "soft" },
        "Key ",
        h("code", {}, `${currentSession.prefix}…`),
        !hasScope("administer") && `, scope ${currentSession.scope}`,
      ),
      h(
        "ul",
        {},
        h(
          "li",
          {},
          h(
            "a",
            { href: "/docs", target: "_blank", rel: "noopener" },
            icon("docs"),
            "API reference",
          ),
        ),
        h(
          "li",
          {},
          h(
            "button",
            { type: "button", class: "plain", onclick: logOut },
            icon("leave"),
            "Log out",
          ),
        ),
      ),
    ),
  );
}

async function logOut() {
  if (!(await confirmLeave())) return;
  hasUnsavedChanges = () => false;
  await api.logout();
  showLogin();
}

/** Shows the login form, with an optional message. */
function showLogin(message) {
  viewAbort?.abort();
  byId("shell").hidden = true;
  byId("main").replaceChildren();
  byId("skip").hidden = true;
  byId("login").hidden = false;
  document.title = "Log in – Visavis console";
  byId("login").replaceChildren(...loginForm(message, (session) => showConsole(session, true)));
}

function showConsole(session, isNavigation) {
  currentSession = session;
  setScope(session.scope);
  byId("login").hidden = true;
  byId("login").replaceChildren();
  byId("skip").hidden = false;
  byId("shell").hidden = false;
  renderMenu();
  return render(isNavigation);
}

document.addEventListener("click", (event) => {
  const target = /** @type {Element} */ (event.target);
  /** @type {HTMLAnchorElement} */
  const link = target.closest("a[href]");
  if (
    !link ||
    event.defaultPrevented ||
    event.button ||
    event.metaKey ||
    event.ctrlKey ||
    event.shiftKey ||
    event.altKey ||
    link.target
  )
    return;
  const url = new URL(link.href);
  if (url.origin !== location.origin || !/^\/console(\/|$)/.test(url.pathname) || url.hash) return;
  event.preventDefault();
  navigate(url.pathname + url.search);
});
addEventListener("popstate", async () => {
  if (location.pathname + location.search === currentUrl) return;
  if (await confirmLeave()) return render(true);
  history.pushState(null, "", currentUrl);
});
addEventListener("beforeunload", (event) => {
  if (hasUnsavedChanges()) event.preventDefault();
});
byId("menu").addEventListener("click", () =>
  setMenuOpen(byId("menu").getAttribute("aria-expanded") !== "true"),
);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && byId("nav").classList.contains("open")) {
    setMenuOpen(false);
    byId("menu").focus();
  }
});
byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId("main").focus();
});
// An open page renews its session every ten minutes.
setInterval(() => {
  if (!byId("shell").hidden) api.fetchSession().catch(() => {});
}, 600_000);
api.onSessionLost((error) => showLogin(error.userMessage));

try {
  const session = await api.fetchSession();
  if (session) await showConsole(session, false);
  else showLogin();
} catch (error) {
  showLogin(error.userMessage ?? "The console did not start. Reload the page.");
}
