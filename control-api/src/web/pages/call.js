// The call page: /join/{conversation}#token=… and /embed/{agent}?username=&id=&context=.

import { Captions } from "./captions.js";
import { CaptionsView } from "./captions-view.js";
import { Deafness } from "./deafness.js";
import { Link, Refused, eventName } from "./link.js";
import { Devices, Level, NoMicrophone, allowed, microphone } from "./sound.js";
import { OVER, STATE, whyNoCall, whyNoMicrophone } from "./words.js";

const at = (id) => document.getElementById(id);
const [, place, subject] = location.pathname.split("/");
const embedded = place === "embed";
const iceServers = JSON.parse(document.body.dataset.iceServers || "[]");

/** What a reload needs: where the call is, and its captions. The token of a join page is in the address. */
const memory = {
  key: `visavis:${place}:${subject}`,
  load() {
    try {
      return JSON.parse(sessionStorage.getItem(this.key)) ?? {};
    } catch {
      return {};
    }
  },
  save(change) {
    try {
      sessionStorage.setItem(this.key, JSON.stringify({ ...this.load(), ...change }));
    } catch { /* a frame without storage: a reload begins anew */ }
  },
  clear() {
    try {
      sessionStorage.removeItem(this.key);
    } catch { /* as above */ }
  },
};

let link = null;
let track = null;
let captions = new Captions();
let timeUp = false;
const deafness = new Deafness();
let joining = false;

const view = new CaptionsView({ list: at("captions"), live: at("said"), empty: at("captions-empty") });
const mine = bar(at("mine"));
const theirs = bar(at("theirs"));
const level = new Level((value) => {
  mine(value);
  suspectDeafness(value);
});
const devices = new Devices({ microphones: at("microphone"), speakers: at("speaker"), field: at("speaker-field"), face: at("face"), choose: openMicrophone });

/** A level bar; assistive technology is told twice a second. */
function bar(element) {
  let told = 0;
  return (value) => {
    element.style.setProperty("--level", value.toFixed(3));
    if (performance.now() - told < 500) return;
    told = performance.now();
    element.setAttribute("aria-valuenow", String(Math.round(value * 100)));
  };
}

function show(name) {
  for (const id of ["welcome", "call", "over"]) at(id).hidden = id !== name;
}

function state(name) {
  at("frame").dataset.state = name;
  at("state").textContent = STATE[name] ?? name;
}

/** A line above the call, with one way on. */
function notice(words, action, run) {
  at("notice").hidden = !words;
  at("notice").dataset.about = "";
  at("notice-words").textContent = words ?? "";
  at("notice-action").hidden = !action;
  at("notice-action").textContent = action ?? "";
  at("notice-action").onclick = run ? () => { notice(); run(); } : null;
}

/** Everything that names the agent; without a name it stays "the agent". */
function introduce(name) {
  if (typeof name !== "string" || !name.trim()) return;
  view.name(name);
  document.title = `${name} \u2013 video conversation`;
  at("welcome-title").textContent = `Ready to talk with ${name}?`;
  at("welcome-words").textContent = `${name} is an AI agent. It shows a face, but it is a program.`;
  at("call-title").textContent = `Conversation with ${name}`;
  at("stage").setAttribute("aria-label", name);
  at("face").setAttribute("aria-label", `Video of ${name}`);
  at("theirs-name").textContent = `${name} hears`;
  at("text-name").textContent = `Type a message to ${name}`;
}

// --- joining ---

/** The token of a join page. */
function passed() {
  const hash = location.hash.slice(1);
  return new URLSearchParams(hash).get("token") ?? hash;
}

/** What the server tells of a conversation before the call; rejects with Refused or TypeError (no server). */
async function about({ conversation, token }) {
  const answer = await fetch(`/join/${conversation}/about`, { headers: { Authorization: `Bearer ${token}` }, cache: "no-store" });
  if (!answer.ok) throw await Refused.from(answer);
  return answer.json();
}

/** A link that leads nowhere any more says so before anybody clicks; else the page says with whom one is going to talk. */
async function meet() {
  try {
    const token = passed();
    if (!token) throw new Refused(401);
    const { persona_name: name } = await about({ conversation: subject, token });
    introduce(name);
  } catch (error) {
    // Whatever else is wrong, the call itself will tell.
    if (joining || link || !(error instanceof Refused)) return;
    if (error.status === 409) over("ended", whyNoCall(error).words);
    if (error.status === 401) over("useless", whyNoCall(error).words);
  }
}

async function credentials() {
  const kept = memory.load();
  if (!embedded) return { conversation: subject, token: passed() };
  if (kept.conversation && kept.token) return kept;
  const query = new URLSearchParams(location.search);
  const body = {};
  for (const [name, key] of [["username", "userName"], ["id", "userId"], ["context", "context"]]) {
    if (query.get(name)) body[key] = query.get(name);
  }
  const answer = await fetch(`/embed/${subject}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  if (!answer.ok) throw await Refused.from(answer);
  const made = await answer.json();
  return { conversation: made.conversationId, token: made.token };
}

/** @param {boolean} withMicrophone @param {boolean} again after a reload, without a click */
async function join(withMicrophone, again = false) {
  joining = true;
  at("problem").hidden = true;
  at("join").disabled = at("join-typing").disabled = true;
  at("join").textContent = "Connecting …";
  try {
    const where = await credentials();
    if (!where.token) throw new Refused(401);
    if (embedded || again) about(where).then(({ persona_name: name }) => introduce(name), () => {});
    // A browser that still has to ask holds the call back until the person has answered; else both go on at once.
    const ready = !withMicrophone || (await allowed());
    if (!ready) await openMicrophone();
    begin(where);
    const opening = withMicrophone && ready ? openMicrophone() : null;
    await enter();
    memory.save({ ...where, joined: true, typing: !withMicrophone });
    show("call");
    if (!withMicrophone) notice("You joined without a microphone: type to the agent.", "Use the microphone", () => openMicrophone());
    await opening;
    nameMute();
    devices.refresh(track);
    if (!again) (track ? at("mute") : at("text")).focus({ preventScroll: true });
  } catch (error) {
    if (!again || !(error instanceof Refused)) console.warn("no call:", error);
    const { words, final } = whyNoCall(error);
    dismiss();
    if (error.late) return over("full");
    if (final) return over(error.status === 409 ? "ended" : "useless", words);
    at("problem").textContent = words;
    at("problem").hidden = false;
    show("welcome");
    at("join").focus();
  } finally {
    joining = false;
    at("join").disabled = at("join-typing").disabled = false;
    at("join").textContent = at("problem").hidden ? "Start talking" : "Try again";
  }
}

/** Joins; a server that has only just started is waited for. */
async function enter() {
  try {
    await link.join();
  } catch (error) {
    if (!(error instanceof Refused) || error.status !== 503 || error.late || !(await started())) throw error;
    await link.join();
  }
}

/** Whether the server was still getting ready, and now is. */
async function started() {
  for (let tries = 0; tries < 120; tries++) {
    const answer = await fetch("/readyz", { cache: "no-store" });
    if (answer.status !== 503) return answer.ok && tries > 0;
    const { reason } = await answer.json().catch(() => ({}));
    // A server that is full or drains will not be ready by waiting here.
    if (!/loading/.test(reason ?? "")) return false;
    at("join").textContent = "The server is getting ready …";
    await new Promise((done) => setTimeout(done, 500));
  }
  return false;
}

function begin({ conversation, token }) {
  const kept = memory.load();
  captions = new Captions(kept.captions);
  for (const line of captions.lines) view.show(line, false);
  timeUp = false;
  link = new Link({ conversation, token, iceServers });
  if (track) link.use(track);
  link.addEventListener("stream", ({ detail }) => play(detail));
  link.addEventListener("message", ({ detail }) => handle(detail));
  link.addEventListener("status", ({ detail }) => status(detail));
  link.addEventListener("refused", ({ detail }) => {
    if (detail.status === 409) return over(timeUp ? "limit" : "ended");
    if (detail.status === 503) return over("full");
    over("stalled", whyNoCall(detail).words);
  });
  link.addEventListener("left", ({ detail }) => over(detail === "ended" && timeUp ? "limit" : detail));
  state("connecting");
}

function status(name) {
  if (name === "connected") {
    if (at("frame").dataset.state === "connecting" || at("frame").dataset.state === "lost") state("listening");
    if (at("notice").dataset.about === "lost") notice();
    at("notice").dataset.about = "";
  } else if (name === "lost") {
    state("lost");
    notice("The connection is interrupted. Going back to the call …");
    at("notice").dataset.about = "lost";
  } else if (name === "stalled") {
    over("stalled");
  }
}

async function openMicrophone(deviceId) {
  try {
    const next = await microphone(deviceId);
    track?.stop();
    track = next;
    track.enabled = !document.body.classList.contains("muted");
    track.addEventListener("ended", () => {
      if (next === track) notice("The microphone was unplugged or taken away.", "Try again", () => openMicrophone());
    });
    memory.save({ typing: false });
    await link?.use(track);
    level.watch(track);
    nameMute();
    devices.refresh(track);
  } catch (error) {
    if (!(error instanceof NoMicrophone)) throw error;
    notice(whyNoMicrophone(error.why), error.why === "insecure" || error.why === "framed" ? null : "Try again", () => openMicrophone());
  }
}

// --- the agent ---

function play(stream) {
  const face = at("face");
  if (face.srcObject !== stream) face.srcObject = stream;
  const seen = () => at("veil").classList.add("gone");
  if (face.requestVideoFrameCallback) face.requestVideoFrameCallback(seen);
  else face.addEventListener("loadeddata", seen, { once: true });
  face.play().catch((error) => {
    if (error.name !== "NotAllowedError") return; // a newer stream took its place
    face.muted = true;
    face.play().catch(() => {});
    at("unblock").hidden = false;
  });
}

function handle(message) {
  const line = captions.handle(message);
  if (line) {
    view.show(line);
    if (!line.open) memory.save({ captions: captions.keep() });
  }
  const { type, data } = message;
  if (type === "user-transcription" && deafness.heard()) hearsAgain();
  if (type === "server-message") {
    if (typeof data?.state === "string") state(data.state);
    if (typeof data?.level === "number") hear(data.level);
    const name = eventName(message);
    if (name === "max_call_duration_timeout") timeUp = true;
    if (name === "max_call_duration_warning") {
      const { call_duration: now, max_call_duration: most } = (data.event.event ?? data.event).payload ?? {};
      if (most > now) notice(`The call ends in ${Math.max(1, Math.round(most - now))} seconds.`);
    }
  } else if (type === "bot-started-speaking") {
    state("speaking");
  } else if (type === "bot-stopped-speaking" && at("frame").dataset.state === "speaking") {
    state("listening");
  } else if (type === "error" && data?.fatal) {
    notice(String(data.error ?? "The server reports an error."));
  }
}

function hear(value) {
  theirs(value);
  if (deafness.server(value)) hearsAgain();
}

/** "It does not hear me": a voice at the microphone of which nothing arrives, be it that the server tells of silence or of nothing. */
function suspectDeafness(value) {
  if (!link?.connected || document.body.classList.contains("muted")) return;
  if (!deafness.microphone(value, performance.now())) return;
  notice("Your microphone works, but its sound does not reach the agent.", "Choose a device", () => panel(true));
  at("notice").dataset.about = "deaf";
}

function hearsAgain() {
  if (at("notice").dataset.about === "deaf") notice();
}

// --- the end ---

function dismiss() {
  deafness.heard();
  link?.leave();
  link = null;
  track?.stop();
  track = null;
  level.stop();
  theirs(0);
}

/** @param {keyof OVER} why @param {string} [words] */
function over(why, words) {
  const [title, text] = OVER[why];
  const again = why === "elsewhere" || why === "stalled" || why === "full";
  const old = link;
  link = null;
  deafness.heard();
  level.stop();
  track?.stop();
  track = null;
  if (why === "hungUp") old?.leave();
  at("face").srcObject = null;
  at("veil").classList.remove("gone");
  notice();
  if (again) memory.save({ joined: false });
  else memory.clear();
  at("over-title").textContent = title;
  at("over-words").textContent = words ?? text;
  at("again").hidden = !again && !embedded;
  at("again").textContent = why === "elsewhere" ? "Bring it back here" : again ? "Try again" : "Talk again";
  at("again").onclick = () => location.reload();
  if (again) at("again").onclick = () => { show("welcome"); join(!memory.load().typing); };
  show("over");
  at("over-title").focus();
}

function mute(on) {
  document.body.classList.toggle("muted", on);
  if (track) track.enabled = !on;
  nameMute();
}

/** Without a microphone the button asks for one. */
function nameMute() {
  const on = document.body.classList.contains("muted");
  if (track) at("mute").setAttribute("aria-pressed", String(on));
  else at("mute").removeAttribute("aria-pressed");
  at("mute-name").textContent = !track ? "Use mic" : on ? "Unmute" : "Mute";
}

function panel(open) {
  at("device-panel").hidden = !open;
  at("devices").setAttribute("aria-expanded", String(open));
  if (open) {
    devices.refresh(track);
    at("microphone").focus();
  }
}

at("join").addEventListener("click", () => join(true));
at("join-typing").addEventListener("click", () => join(false));
at("mute").addEventListener("click", () => {
  if (!track) return openMicrophone();
  mute(at("mute").getAttribute("aria-pressed") !== "true");
});
at("hang-up").addEventListener("click", () => over("hungUp"));
at("devices").addEventListener("click", () => panel(at("device-panel").hidden));
at("notice-close").addEventListener("click", () => notice());
at("unblock").addEventListener("click", () => {
  at("face").muted = false;
  at("face").play().catch(() => {});
  at("unblock").hidden = true;
});
at("typing").addEventListener("submit", (event) => {
  event.preventDefault();
  const content = at("text").value.trim();
  if (!content) return;
  if (link?.send("send-text", { content, options: {} })) at("text").value = "";
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !at("device-panel").hidden) {
    panel(false);
    at("devices").focus();
  }
});
document.addEventListener("pointerdown", (event) => {
  level.wake();
  if (!at("device-panel").hidden && !event.target.closest("#device-panel, #devices")) panel(false);
});
document.addEventListener("keydown", () => level.wake());

// Before this a click would have no effect.
at("join").disabled = at("join-typing").disabled = false;

// A reload in mid-call goes on with it, without another click.
const kept = memory.load();
if (kept.joined) join(!kept.typing, true);
else if (!embedded) meet();
