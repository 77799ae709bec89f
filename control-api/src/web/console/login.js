// The way in: an API key.

import { Refused, login } from "./api.js";
import { button, h } from "./dom.js";

/** The nodes of the login. `words`: why one is here. */
export function door(words, entered) {
  const problem = h("p", { id: "login-problem", class: "problem", role: "alert", hidden: !words }, words ?? "");
  const key = h("input", { id: "key", type: "password", autocomplete: "current-password", spellcheck: "false", required: true, "aria-describedby": "login-problem login-hint" });
  const send = h("button", { type: "submit", class: "primary" }, "Log in");
  const show = button("Show", { class: "small", "aria-pressed": "false", "aria-label": "Show the key", onclick: () => {
    const on = key.type === "password";
    key.type = on ? "text" : "password";
    show.setAttribute("aria-pressed", String(on));
    show.querySelector("span").textContent = on ? "Hide" : "Show";
  } });
  const refuse = (text) => {
    problem.textContent = text;
    problem.hidden = false;
    key.setAttribute("aria-invalid", "true");
    key.focus();
  };
  const form = h("form", { novalidate: true, onsubmit: async (event) => {
    event.preventDefault();
    const given = key.value.trim();
    if (!given) return refuse("Enter an API key.");
    send.disabled = true;
    try {
      await entered(await login(given));
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      refuse(error.status === 401 ? "This is not a valid API key. Check that it was copied whole; it may also have expired or been revoked." : error.sentence);
    } finally {
      send.disabled = false;
    }
  } },
    h("div", { class: "field" }, h("label", { for: "key" }, "API key"), h("div", { class: "joined" }, key, show)),
    problem, send);
  queueMicrotask(() => key.focus());
  const mark = document.querySelector(".top .mark").cloneNode(true);
  return [h("div", { class: "card" },
    h("p", { class: "brand" }, mark, "Visavis"),
    h("h1", {}, "Log in to the console"),
    form,
    h("p", { id: "login-hint", class: "hint" }, "The server prints a key on its first start. ", h("code", {}, "visavis keys create --workspace default"), " makes another."))];
}
