// The one way to the server. The session is an HttpOnly cookie that no script can read; the token that must come with it is kept in memory.

/** The server said no, or could not be asked. `sentence` is what a person should read. */
export class Refused extends Error {
  constructor(status, body = {}, retryAfter = 0) {
    const told = typeof body === "string" ? body : body.error ?? body.message ?? "";
    super(told || `status ${status}`);
    this.status = status;
    this.details = Array.isArray(body.details) ? body.details : [];
    this.reason = body.reason ?? "";
    this.retryAfter = retryAfter;
  }

  get sentence() {
    if (this.status === 0) return "The server cannot be reached. Check your connection and try again.";
    if (this.status === 401) return "Your session is over. Log in again.";
    if (this.status === 413) return "That is too large for the server.";
    if (this.status === 429 && this.details.length) return [this.message, ...this.details.map(({ reason }) => reason)].map(sentence).join(" ");
    if (this.status === 429) return `Too many requests. Try again in ${Math.max(1, Math.ceil(this.retryAfter))} seconds.`;
    if (this.status === 503) return `The server cannot do that right now${this.reason ? `: ${this.reason}` : ""}. Try again in a moment.`;
    return sentence(this.message);
  }
}

/** `must be a number` → `Must be a number.` */
export function sentence(text) {
  const words = String(text).trim();
  if (!words) return "";
  return words[0].toUpperCase() + words.slice(1) + (/[.!?…]$/.test(words) ? "" : ".");
}

let token = null;
let lost = () => {};

/** Tells what to do when the session is over. */
export const onLost = (then) => { lost = then; };

async function refusal(answer) {
  const text = await answer.text().catch(() => "");
  let body = text;
  try {
    body = JSON.parse(text);
  } catch { /* plain text */ }
  return new Refused(answer.status, body ?? {}, Number(answer.headers.get("retry-after")) || 0);
}

async function ask(method, path, about = {}) {
  const used = token;
  const answer = await send(method, path, about);
  if (answer.ok) return answer;
  // Logged in anew in another tab: the cookie is that one's, and so is the token.
  if (answer.status === 401 && used && (await renewed(used))) {
    const second = await send(method, path, about);
    if (second.ok) return second;
    throw await refusal(second);
  }
  const refused = await refusal(answer);
  if (refused.status === 401 && used) {
    token = null;
    over(refused);
  }
  throw refused;
}

/** Pages that hold something unsaved keep it before the door is shown. */
function over(refused) {
  window.dispatchEvent(new Event("session-over"));
  lost(refused);
}

async function renewed(used) {
  const answer = await send("GET", "/console/session", {});
  if (answer.status !== 200) return false;
  token = (await answer.json()).csrf_token;
  return token !== used;
}

async function send(method, path, { body, signal, headers = {} }) {
  const about = { method, signal, cache: "no-store", credentials: "same-origin", headers: { ...headers } };
  if (token) about.headers["x-csrf-token"] = token;
  if (body instanceof FormData) about.body = body;
  else if (body !== undefined) {
    about.headers["content-type"] = "application/json";
    about.body = JSON.stringify(body);
  }
  try {
    return await fetch(path, about);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0);
  }
}

/** The body of an answer. One that breaks off is an answer that did not come. */
async function whole(body) {
  try {
    return await body;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0);
  }
}

/** What an answer holds: most are JSON, that of a meeting is text. */
async function json(answer) {
  if (answer.status === 204) return null;
  return whole(answer.headers.get("content-type")?.startsWith("text/plain") ? answer.text() : answer.json());
}

export const get = async (path, signal) => json(await ask("GET", path, { signal }));
export const post = async (path, body = {}) => json(await ask("POST", path, { body }));
/** A picture that the server makes of `body`. */
export const picture = async (path, body, signal) => whole((await ask("POST", path, { body, signal })).blob());
export const put = async (path, body) => json(await ask("PUT", path, { body }));
export const remove = async (path) => json(await ask("DELETE", path));

/** One page of a list: `{items, total}`. */
export async function list(path, query = {}, signal) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const answer = await ask("GET", `${path}?${new URLSearchParams(given)}`, { signal });
  const items = await answer.json();
  return { items, total: Number(answer.headers.get("x-total-count") ?? items.length) };
}

/** All of a list, page by page; at most a thousand. */
export async function all(path, signal) {
  const found = [];
  for (let offset = 0; offset < 1000; offset += 100) {
    const { items, total } = await list(path, { offset, perpage: 100 }, signal);
    found.push(...items);
    if (found.length >= total || !items.length) break;
  }
  return found;
}

/** Sends a form and tells how far it is: `progress(0…1)`. */
export function upload(path, form, progress, signal) {
  return new Promise((done, fail) => {
    const request = new XMLHttpRequest();
    request.open("POST", path);
    if (token) request.setRequestHeader("x-csrf-token", token);
    request.upload.addEventListener("progress", ({ loaded, total }) => progress(total ? loaded / total : 0));
    request.addEventListener("error", () => fail(new Refused(0)));
    request.addEventListener("abort", () => fail(new DOMException("stopped", "AbortError")));
    request.addEventListener("load", () => {
      let body = request.responseText;
      try {
        body = JSON.parse(body);
      } catch { /* plain text */ }
      if (request.status < 300) return done(body);
      const refused = new Refused(request.status, body, Number(request.getResponseHeader("retry-after")) || 0);
      if (refused.status === 401) over(refused);
      fail(refused);
    });
    signal?.addEventListener("abort", () => request.abort());
    request.send(form);
  });
}

/** The events of a conversation as they happen, those behind number `last` on; ends with the stream. A broken one goes on where it was. */
export async function* events(id, signal, last = null) {
  for (let tries = 0; tries < 8 && !signal.aborted; tries++) {
    if (tries) await new Promise((go) => setTimeout(go, Math.min(8000, 500 * 2 ** tries)));
    let reader;
    try {
      const headers = { accept: "text/event-stream", ...(last === null ? {} : { "last-event-id": String(last) }) };
      const answer = await ask("GET", `/v1/ext/conversation/${id}/events`, { signal, headers });
      reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        const parts = (rest + value).split("\n\n");
        rest = parts.pop();
        for (const part of parts) {
          const data = part.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart()).join("\n");
          if (!data) continue;
          const event = JSON.parse(data);
          last = event.seq;
          tries = 0;
          yield event;
        }
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Refused && error.status && error.status < 500 && error.status !== 429) throw error;
    } finally {
      reader?.cancel().catch(() => {});
    }
  }
}

// --- the session ---

/** Whose session this is, `{csrf_token, prefix}`; null where nobody is logged in. */
export async function session() {
  const answer = await get("/console/session");
  token = answer?.csrf_token ?? null;
  return answer;
}

export async function login(key) {
  const answer = await post("/console/session", { key });
  token = answer.csrf_token;
  return answer;
}

export async function logout() {
  await remove("/console/session").catch(() => {});
  token = null;
}
