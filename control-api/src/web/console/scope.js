// The scope of this session's API key, as reported by the server. Each scope includes those before
// it. The server checks every request again.

const SCOPES = ["read", "operate", "administer"];
let sessionScope = "administer";

/** Sets the session's scope. An unknown scope counts as `read`. */
export const setScope = (scope) => {
  sessionScope = SCOPES.includes(scope) ? scope : "read";
};

/** Whether the session's key has this scope. */
export const hasScope = (scope) => SCOPES.indexOf(sessionScope) >= SCOPES.indexOf(scope);

/** The scopes that the session's key may give to new keys. */
export const grantableScopes = () => SCOPES.filter(hasScope);

export const missingScopeText = () =>
  `Your API key has scope “${sessionScope}”, which does not allow this.`;

/** Disables a control, but leaves it in place, if the session's key lacks the scope. */
export function requireScope(control, scope) {
  if (!scope || hasScope(scope)) return control;
  if (control.localName === "a") {
    control.removeAttribute("href");
    control.setAttribute("role", "link");
    control.setAttribute("aria-disabled", "true");
  } else control.disabled = true;
  control.title = missingScopeText();
  return control;
}
