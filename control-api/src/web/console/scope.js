// What the key of this session may do, as the server told it: each scope includes those before it. The server checks it again.

const SCOPES = ["read", "operate", "administer"];
let own = "administer";

/** The session's scope; one that this page does not know allows nothing but reading. */
export const setScope = (scope) => { own = SCOPES.includes(scope) ? scope : "read"; };

/** Whether the key may do what needs this scope. */
export const may = (needed) => SCOPES.indexOf(own) >= SCOPES.indexOf(needed);

/** The scopes of keys that it may make. */
export const lesser = () => SCOPES.filter(may);

export const whyNot = () => `Your API key has scope “${own}”, which does not allow this.`;

/** Leaves a control in its place, without effect, if the key may not use it. */
export function guard(control, needed) {
  if (!needed || may(needed)) return control;
  if (control.localName === "a") {
    control.removeAttribute("href");
    control.setAttribute("role", "link");
    control.setAttribute("aria-disabled", "true");
  } else control.disabled = true;
  control.title = whyNot();
  return control;
}
