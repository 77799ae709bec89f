// Building blocks of all views: page header, pager, dialogs, toasts, tabs.

import { ApiError } from "./api.js";
import { button, h, icon, link } from "./dom.js";

/** The page header: title, description, actions. */
export function pageHeader(title, description, ...actions) {
  return h(
    "header",
    { class: "head" },
    h(
      "div",
      {},
      h("h1", { tabindex: "-1" }, title),
      description && h("p", { class: "lead" }, description),
    ),
    actions.length > 0 && h("div", { class: "actions" }, actions),
  );
}

export const backLink = (label, href) => h("p", { class: "back" }, link(`← ${label}`, href));

/** The placeholder of an empty list: icon, title, explanation, actions. */
export function emptyState(iconName, title, text, ...actions) {
  return h(
    "div",
    { class: "empty" },
    h("div", { class: "badge" }, icon(iconName)),
    h("h2", {}, title),
    h("p", {}, text),
    actions.length > 0 && h("div", { class: "actions" }, actions),
  );
}

export const card = (title, ...children) =>
  h("section", { class: "card" }, title && h("h2", {}, title), children);

/** An error, shown in place of the content that failed. */
export function errorMessage(error) {
  if (!(error instanceof ApiError)) console.error(error);
  const text =
    error instanceof ApiError ? error.userMessage : "An error occurred in this page. Reload it.";
  return h("p", { class: "problem", role: "alert" }, text);
}

export const loadingIndicator = (text = "Loading …") =>
  h(
    "p",
    { class: "waiting", role: "status" },
    h("span", { class: "spinner", "aria-hidden": "true" }),
    text,
  );

/** A short message that disappears by itself. Screen readers announce it. */
export function toast(text, isError = false) {
  const element = h("p", { class: isError ? "toast bad" : "toast" }, text);
  document.getElementById("toasts").append(element);
  setTimeout(() => element.remove(), isError ? 9000 : 5000);
}

/** Runs the action of a control. Disables the control meanwhile, and shows an error as a toast. */
export async function runBusy(control, run) {
  control.disabled = true;
  control.setAttribute("aria-busy", "true");
  try {
    return await run();
  } catch (error) {
    if (!(error instanceof ApiError)) console.error(error);
    toast(error instanceof ApiError ? error.userMessage : "An error occurred in this page.", true);
    return undefined;
  } finally {
    control.disabled = false;
    control.removeAttribute("aria-busy");
  }
}

let dialogs = 0;

/**
 * Shows a modal dialog. `build(close)` returns its content. Resolves with the value that was passed
 * to `close`; "" means dismissed.
 */
export function dialog(title, build) {
  return new Promise((resolve) => {
    const id = `dialog-${++dialogs}`;
    const previousFocus = /** @type {HTMLElement} */ (document.activeElement);
    const node = h("dialog", {
      class: "dialog",
      "aria-labelledby": id,
      onclose: () => {
        node.remove();
        previousFocus?.focus?.();
        resolve(node.returnValue);
      },
    });
    node.append(
      h(
        "div",
        { class: "dialog-head" },
        h("h2", { id }, title),
        button(
          "",
          { class: "plain", "aria-label": "Close", onclick: () => node.close("") },
          "close",
        ),
      ),
      ...[build((value) => node.close(value))].flat(),
    );
    document.body.append(node);
    node.showModal();
  });
}

/** Asks for confirmation of an action that cannot be undone. */
export async function confirmDialog(title, text, action) {
  const answer = await dialog(title, (close) => [
    h("p", {}, text),
    h(
      "div",
      { class: "actions end" },
      button("Cancel", { onclick: () => close("") }),
      button(action, { class: "danger", onclick: () => close("yes") }),
    ),
  ]);
  return answer === "yes";
}

/** The pager of a list: the range that is shown, and buttons for newer and older items. */
export function pager({ offset, perpage, total }, onTurn) {
  if (total <= perpage && offset === 0) return null;
  const to = Math.min(total, offset + perpage);
  return h(
    "div",
    { class: "pager" },
    h(
      "p",
      { class: "soft", role: "status" },
      total ? `${Math.min(offset + 1, total)}–${to} of ${total}` : "None",
    ),
    button("Newer", {
      class: "small",
      disabled: offset === 0,
      onclick: () => onTurn(Math.max(0, offset - perpage)),
    }),
    button("Older", {
      class: "small",
      disabled: to >= total,
      onclick: () => onTurn(offset + perpage),
    }),
  );
}

/** A search box. Calls `onSearch` 250 ms after the last input. */
export function searchBox(label, value, onSearch) {
  let timer = 0;
  const input = h("input", {
    type: "search",
    value,
    placeholder: label,
    "aria-label": label,
    oninput: () => {
      clearTimeout(timer);
      timer = setTimeout(() => onSearch(input.value.trim()), 250);
    },
  });
  // The view was rendered again while the user types: the caret belongs at the end.
  if (value)
    requestAnimationFrame(() => {
      input.focus();
      input.setSelectionRange(value.length, value.length);
    });
  return h("div", { class: "search" }, input);
}

/**
 * Tabs, also usable with the arrow keys. `definitions`: `[{id, name, show}]`; `show()` creates the
 * panel's content each time the tab is opened.
 * @param {{id: string, name: string, show: () => any}[]} definitions
 * @param {string} initialId
 * @param {(id: string) => void} [onOpen]
 */
export function tabs(definitions, initialId, onOpen = () => {}) {
  const panel = h("div", { role: "tabpanel", tabindex: "0", class: "panel" });
  const openTab = (definition, focus) => {
    for (const tab of tabList.children) {
      const selected = tab.dataset.id === definition.id;
      tab.setAttribute("aria-selected", String(selected));
      tab.tabIndex = selected ? 0 : -1;
      if (selected && focus) tab.focus();
    }
    panel.setAttribute("aria-labelledby", `tab-${definition.id}`);
    panel.replaceChildren(...[definition.show()].flat());
    onOpen(definition.id);
  };
  const onKeyDown = (event) => {
    const offset = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!offset) return;
    event.preventDefault();
    const current = definitions.findIndex(
      (definition) => definition.id === event.target.dataset.id,
    );
    openTab(definitions[(current + offset + definitions.length) % definitions.length], true);
  };
  const tabList = h(
    "div",
    { class: "tabs", role: "tablist", onkeydown: onKeyDown },
    definitions.map((definition) =>
      h(
        "button",
        {
          type: "button",
          role: "tab",
          id: `tab-${definition.id}`,
          data: { id: definition.id },
          onclick: () => openTab(definition),
        },
        definition.name,
      ),
    ),
  );
  openTab(definitions.find((definition) => definition.id === initialId) ?? definitions[0]);
  return {
    node: h("div", { class: "tabbed" }, tabList, panel),
    open: (id) => openTab(definitions.find((definition) => definition.id === id)),
  };
}

/** Replaces the children of a node. The focus moves to the new element with the same id. */
export function replaceKeepingFocus(node, children) {
  const focusedId = node.contains(document.activeElement) && document.activeElement.id;
  node.replaceChildren(...children);
  if (focusedId) document.getElementById(focusedId)?.focus();
}

/** Runs `run` every `seconds` while the page is visible, until `signal` aborts. */
export function pollWhileVisible(seconds, signal, run) {
  const timer = setInterval(() => {
    if (!document.hidden) Promise.resolve(run()).catch(() => {});
  }, seconds * 1000);
  signal.addEventListener("abort", () => clearInterval(timer));
}
