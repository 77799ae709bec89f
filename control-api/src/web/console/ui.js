// What every view is made of: head of a page, lists in pages, dialogs, short notes.

import { Refused } from "./api.js";
import { button, h, icon, link } from "./dom.js";

/** Title of the page, what it is for, and what can be done. */
export function head(title, words, ...actions) {
  return h("header", { class: "head" },
    h("div", {}, h("h1", { tabindex: "-1" }, title), words && h("p", { class: "lead" }, words)),
    actions.length > 0 && h("div", { class: "actions" }, actions));
}

export const back = (words, href) => h("p", { class: "back" }, link(`← ${words}`, href));

/** What stands where nothing is yet: why, and the way on. */
export function empty(picture, title, words, ...actions) {
  return h("div", { class: "empty" }, h("div", { class: "badge" }, icon(picture)), h("h2", {}, title), h("p", {}, words), actions.length > 0 && h("div", { class: "actions" }, actions));
}

export const card = (title, ...children) => h("section", { class: "card" }, title && h("h2", {}, title), children);

/** A refusal in its own place. */
export function problem(error) {
  if (!(error instanceof Refused)) console.error(error);
  const words = error instanceof Refused ? error.sentence : "Something in this page went wrong. Load it again.";
  return h("p", { class: "problem", role: "alert" }, words);
}

export const waiting = (words = "Loading …") => h("p", { class: "waiting", role: "status" }, h("span", { class: "spinner", "aria-hidden": "true" }), words);

/** A short note that goes by itself; it is read aloud. */
export function toast(words, bad = false) {
  const note = h("p", { class: bad ? "toast bad" : "toast" }, words);
  document.getElementById("toasts").append(note);
  setTimeout(() => note.remove(), bad ? 9000 : 5000);
}

/** Runs what a button asks for: no second click meanwhile, and a refusal is told. */
export async function busy(control, run) {
  control.disabled = true;
  control.setAttribute("aria-busy", "true");
  try {
    return await run();
  } catch (error) {
    if (!(error instanceof Refused)) console.error(error);
    toast(error instanceof Refused ? error.sentence : "Something in this page went wrong.", true);
    return undefined;
  } finally {
    control.disabled = false;
    control.removeAttribute("aria-busy");
  }
}

let dialogs = 0;

/** A dialog; resolves with what its form was closed with ("" = left). `build(close)` returns its content. */
export function dialog(title, build) {
  return new Promise((done) => {
    const id = `dialog-${++dialogs}`;
    const before = document.activeElement;
    const node = h("dialog", { class: "dialog", "aria-labelledby": id, onclose: () => {
      node.remove();
      before?.focus?.();
      done(node.returnValue);
    } });
    node.append(
      h("div", { class: "dialog-head" }, h("h2", { id }, title), button("", { class: "plain", "aria-label": "Close", onclick: () => node.close("") }, "close")),
      ...[build((value) => node.close(value))].flat());
    document.body.append(node);
    node.showModal();
  });
}

/** Asks before something that cannot be taken back. */
export async function sure(title, words, action) {
  const answer = await dialog(title, (close) => [
    h("p", {}, words),
    h("div", { class: "actions end" }, button("Cancel", { onclick: () => close("") }), button(action, { class: "danger", onclick: () => close("yes") })),
  ]);
  return answer === "yes";
}

/** Which part of a list is shown, and the ways to the others. */
export function pager({ offset, perpage, total }, turn) {
  if (total <= perpage && offset === 0) return null;
  const to = Math.min(total, offset + perpage);
  return h("div", { class: "pager" },
    h("p", { class: "soft", role: "status" }, total ? `${Math.min(offset + 1, total)}–${to} of ${total}` : "None"),
    button("Newer", { class: "small", disabled: offset === 0, onclick: () => turn(Math.max(0, offset - perpage)) }),
    button("Older", { class: "small", disabled: to >= total, onclick: () => turn(offset + perpage) }));
}

/** A search box that waits until the typing rests. */
export function search(label, value, then) {
  let timer = 0;
  const input = h("input", { type: "search", value, placeholder: label, "aria-label": label, oninput: () => {
    clearTimeout(timer);
    timer = setTimeout(() => then(input.value.trim()), 250);
  } });
  // The list was drawn anew while somebody types here: the next letter belongs behind the last one.
  if (value) requestAnimationFrame(() => {
    input.focus();
    input.setSelectionRange(value.length, value.length);
  });
  return h("div", { class: "search" }, input);
}

/** Tabs by the arrow keys too. `parts`: `[{id, name, show}]`; `show()` makes the panel's content each time it is opened. */
export function tabs(parts, first, opened = () => {}) {
  const panel = h("div", { role: "tabpanel", tabindex: "0", class: "panel" });
  const open = (part, focus) => {
    for (const tab of strip.children) {
      const on = tab.dataset.id === part.id;
      tab.setAttribute("aria-selected", String(on));
      tab.tabIndex = on ? 0 : -1;
      if (on && focus) tab.focus();
    }
    panel.setAttribute("aria-labelledby", `tab-${part.id}`);
    panel.replaceChildren(...[part.show()].flat());
    opened(part.id);
  };
  const step = (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const now = parts.findIndex((part) => part.id === event.target.dataset.id);
    open(parts[(now + by + parts.length) % parts.length], true);
  };
  const strip = h("div", { class: "tabs", role: "tablist", onkeydown: step },
    parts.map((part) => h("button", { type: "button", role: "tab", id: `tab-${part.id}`, data: { id: part.id }, onclick: () => open(part) }, part.name)));
  open(parts.find((part) => part.id === first) ?? parts[0]);
  return { node: h("div", { class: "tabbed" }, strip, panel), open: (id) => open(parts.find((part) => part.id === id)) };
}

/** Repeats `run` every `seconds` while the page is looked at, until `signal`. */
export function every(seconds, signal, run) {
  const timer = setInterval(() => { if (!document.hidden) Promise.resolve(run()).catch(() => {}); }, seconds * 1000);
  signal.addEventListener("abort", () => clearInterval(timer));
}
