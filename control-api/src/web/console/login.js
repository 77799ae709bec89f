// The login with an API key.

import { ApiError, login } from "./api.js";
import { button, h } from "./dom.js";

/** The nodes of the login form. `message`: why the form is shown, if there is a reason. */
export function loginForm(message, onLogin) {
  const errorBox = h(
    "p",
    { id: "login-problem", class: "problem", role: "alert", hidden: !message },
    message ?? "",
  );
  const keyInput = h("input", {
    id: "key",
    type: "password",
    autocomplete: "current-password",
    spellcheck: "false",
    required: true,
    "aria-describedby": "login-problem login-hint",
  });
  const submitButton = h("button", { type: "submit", class: "primary" }, "Log in");
  const showButton = button("Show", {
    class: "small",
    "aria-pressed": "false",
    "aria-label": "Show the key",
    onclick: () => {
      const visible = keyInput.type === "password";
      keyInput.type = visible ? "text" : "password";
      showButton.setAttribute("aria-pressed", String(visible));
      showButton.querySelector("span").textContent = visible ? "Hide" : "Show";
    },
  });
  const showError = (text) => {
    errorBox.textContent = text;
    errorBox.hidden = false;
    keyInput.setAttribute("aria-invalid", "true");
    keyInput.focus();
  };
  const form = h(
    "form",
    {
      novalidate: true,
      onsubmit: async (event) => {
        event.preventDefault();
        const key = keyInput.value.trim();
        if (!key) return showError("Enter an API key.");
        submitButton.disabled = true;
        try {
          await onLogin(await login(key));
        } catch (error) {
          if (!(error instanceof ApiError)) throw error;
          showError(
            error.status === 401
              ? "This is not a valid API key. Check that it was copied whole; " +
                  "it may also have expired or been revoked."
              : error.userMessage,
          );
        } finally {
          submitButton.disabled = false;
        }
      },
    },
    h(
      "div",
      { class: "field" },
      h("label", { for: "key" }, "API key"),
      h("div", { class: "input-group" }, keyInput, showButton),
    ),
    errorBox,
    submitButton,
  );
  queueMicrotask(() => keyInput.focus());
  const logo = document.querySelector(".top .mark").cloneNode(true);
  return [
    h(
      "div",
      { class: "card" },
      h("p", { class: "brand" }, logo, "Visavis"),
      h("h1", {}, "Log in to the console"),
      form,
      h(
        "p",
        { id: "login-hint", class: "hint" },
        "The server prints a key on its first start. This command creates another:",
      ),
      h(
        "pre",
        { class: "command", tabindex: "0" },
        h("code", {}, "visavis keys create --workspace default"),
      ),
    ),
  ];
}
