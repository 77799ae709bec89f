// The client of the REST API. The session is an HttpOnly cookie, which no script can read. The CSRF
// token that each request needs is held in memory only.

/**
 * An error response, or a server that cannot be reached (status 0). `userMessage` is the text for
 * the user.
 */
export class ApiError extends Error {
  constructor(status, body = {}, retryAfter = 0) {
    const message = typeof body === "string" ? body : (body.error ?? body.message ?? "");
    super(message || `status ${status}`);
    this.status = status;
    this.details = Array.isArray(body.details) ? body.details : [];
    this.reason = body.reason ?? "";
    this.retryAfter = retryAfter;
  }

  get userMessage() {
    if (this.status === 0)
      return "The server cannot be reached. Check your connection and try again.";
    if (this.status === 401) return "Your session has ended. Log in again.";
    if (this.status === 413) return "The request is too large.";
    if (this.status === 429 && this.details.length)
      return [this.message, ...this.details.map(({ reason }) => reason)].map(toSentence).join(" ");
    if (this.status === 429 && this.reason) return toSentence(this.reason);
    if (this.status === 429)
      return `Too many requests. Try again in ${Math.max(1, Math.ceil(this.retryAfter))} seconds.`;
    if (this.status === 502 && this.reason) return toSentence(this.reason);
    if (this.status === 503)
      return (
        `The server cannot process the request now${this.reason ? `: ${this.reason}` : ""}. ` +
        "Try again in a moment."
      );
    return toSentence(this.message);
  }
}

/** `must be a number` → `Must be a number.` */
export function toSentence(text) {
  const trimmed = String(text).trim();
  if (!trimmed) return "";
  return trimmed[0].toUpperCase() + trimmed.slice(1) + (/[.!?…]$/.test(trimmed) ? "" : ".");
}

let csrfToken = null;
/** @type {(error: ApiError) => void} */
let sessionLostHandler = () => {};

/** Sets the handler for the end of the session. It gets the ApiError. */
export const onSessionLost = (handler) => {
  sessionLostHandler = handler;
};

async function errorFrom(response) {
  const text = await response.text().catch(() => "");
  let body = text;
  try {
    body = JSON.parse(text);
  } catch {
    /* plain text */
  }
  return new ApiError(
    response.status,
    body ?? {},
    Number(response.headers.get("retry-after")) || 0,
  );
}

/**
 * @typedef {{body?: any, signal?: AbortSignal, headers?: Record<string, string>}} RequestOptions
 */

/**
 * @param {string} method
 * @param {string} path
 * @param {RequestOptions} [options]
 */
async function request(method, path, options = {}) {
  const usedToken = csrfToken;
  const response = await send(method, path, options);
  if (response.ok) return response;
  // The user logged in again in another tab: the new cookie needs a new token.
  if (response.status === 401 && usedToken && (await refreshToken(usedToken))) {
    const retryResponse = await send(method, path, options);
    if (retryResponse.ok) return retryResponse;
    throw await errorFrom(retryResponse);
  }
  const error = await errorFrom(response);
  if (error.status === 401 && usedToken) {
    csrfToken = null;
    endSession(error);
  }
  throw error;
}

/** Ends the session. Views store unsaved data on `session-over`, before the login form is shown. */
function endSession(error) {
  window.dispatchEvent(new Event("session-over"));
  sessionLostHandler(error);
}

/** Fetches the session's current token. Returns whether it differs from `usedToken`. */
async function refreshToken(usedToken) {
  const response = await send("GET", "/console/session", {});
  if (response.status !== 200) return false;
  csrfToken = (await response.json()).csrf_token;
  return csrfToken !== usedToken;
}

/**
 * @param {string} method
 * @param {string} path
 * @param {RequestOptions} request
 */
async function send(method, path, { body, signal, headers = {} }) {
  /** @type {RequestInit & {headers: Record<string, string>}} */
  const options = {
    method,
    signal,
    cache: "no-store",
    credentials: "same-origin",
    headers: { ...headers },
  };
  if (csrfToken) options.headers["x-csrf-token"] = csrfToken;
  if (body instanceof FormData) options.body = body;
  else if (body !== undefined) {
    options.headers["content-type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0);
  }
}

/** Reads a response body. A body that breaks off counts as a server that cannot be reached. */
async function readBody(promise) {
  try {
    return await promise;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0);
  }
}

/** The parsed body: JSON, or text for `/v1/ext/externalmeeting`; null for a 204. */
async function parseBody(response) {
  if (response.status === 204) return null;
  return readBody(
    response.headers.get("content-type")?.startsWith("text/plain")
      ? response.text()
      : response.json(),
  );
}

export const get = async (path, signal) => parseBody(await request("GET", path, { signal }));
export const post = async (path, body = {}, signal, headers = {}) =>
  parseBody(await request("POST", path, { body, signal, headers }));
/** Posts `body` and returns the address of what was created, from the header `Location`. */
export const postForLocation = async (path, body) =>
  (await request("POST", path, { body })).headers.get("location") ?? "";
/** Posts `body` and returns the response as a Blob (a rendered picture). */
export const postForBlob = async (path, body, signal) =>
  readBody((await request("POST", path, { body, signal })).blob());
export const put = async (path, body) => parseBody(await request("PUT", path, { body }));
export const remove = async (path) => parseBody(await request("DELETE", path));

/** One page of a list: `{items, total}`. */
export async function list(path, query = {}, signal) {
  const parameters = Object.entries(query).filter(
    ([, value]) => value !== "" && value !== null && value !== undefined,
  );
  const response = await request("GET", `${path}?${new URLSearchParams(parameters)}`, { signal });
  const items = await response.json();
  return { items, total: Number(response.headers.get("x-total-count") ?? items.length) };
}

/** All items of a list, fetched page by page; at most 1000. */
export async function listAll(path, signal) {
  const collected = [];
  for (let offset = 0; offset < 1000; offset += 100) {
    const { items, total } = await list(path, { offset, perpage: 100 }, signal);
    collected.push(...items);
    if (collected.length >= total || !items.length) break;
  }
  return collected;
}

/**
 * Uploads a form. Calls `onProgress` with 0 … 1.
 * @param {string} path
 * @param {FormData} form
 * @param {(fraction: number) => void} onProgress
 * @param {AbortSignal} [signal]
 * @param {Record<string, string>} [headers]
 */
export function upload(path, form, onProgress, signal, headers = {}) {
  return new Promise((resolve, reject) => {
    const xhr = new XMLHttpRequest();
    xhr.open("POST", path);
    if (csrfToken) xhr.setRequestHeader("x-csrf-token", csrfToken);
    for (const [name, value] of Object.entries(headers)) xhr.setRequestHeader(name, value);
    xhr.upload.addEventListener("progress", ({ loaded, total }) =>
      onProgress(total ? loaded / total : 0),
    );
    xhr.addEventListener("error", () => reject(new ApiError(0)));
    xhr.addEventListener("abort", () => reject(new DOMException("stopped", "AbortError")));
    xhr.addEventListener("load", () => {
      let body = xhr.responseText;
      try {
        body = JSON.parse(body);
      } catch {
        /* plain text */
      }
      if (xhr.status < 300) return resolve(body);
      const error = new ApiError(
        xhr.status,
        body,
        Number(xhr.getResponseHeader("retry-after")) || 0,
      );
      if (error.status === 401) endSession(error);
      reject(error);
    });
    signal?.addEventListener("abort", () => xhr.abort());
    xhr.send(form);
  });
}

/**
 * Streams the events of a conversation after the sequence number `lastSeq`, until the server ends
 * the stream. A broken connection resumes after the last event. The status of a meeting comes
 * without a number before the conversation starts.
 */
export async function* streamEvents(id, signal, lastSeq = null) {
  for (let attempt = 0; attempt < 8 && !signal.aborted; attempt++) {
    if (attempt)
      await new Promise((resolve) => setTimeout(resolve, Math.min(8000, 500 * 2 ** attempt)));
    let reader;
    try {
      const headers = {
        accept: "text/event-stream",
        ...(lastSeq === null ? {} : { "last-event-id": String(lastSeq) }),
      };
      const response = await request("GET", `/v1/ext/conversation/${id}/events`, {
        signal,
        headers,
      });
      reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let buffer = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        const blocks = (buffer + value).split("\n\n");
        buffer = blocks.pop();
        for (const block of blocks) {
          const data = block
            .split("\n")
            .filter((line) => line.startsWith("data:"))
            .map((line) => line.slice(5).trimStart())
            .join("\n");
          if (!data) continue;
          const event = JSON.parse(data);
          lastSeq = event.seq ?? lastSeq;
          attempt = 0;
          yield event;
        }
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && error.status && error.status < 500 && error.status !== 429)
        throw error;
    } finally {
      reader?.cancel().catch(() => {});
    }
  }
}

// --- the session ---

/** The current session, `{csrf_token, prefix, scope}`; null without a login. */
export async function fetchSession() {
  const response = await get("/console/session");
  csrfToken = response?.csrf_token ?? null;
  return response;
}

export async function login(key) {
  const response = await post("/console/session", { key });
  csrfToken = response.csrf_token;
  return response;
}

export async function logout() {
  await remove("/console/session").catch(() => {});
  csrfToken = null;
}
