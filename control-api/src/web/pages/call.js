// The call page: /join/{conversation}#token=… and /embed/{agent}?username=&id=&context=.

import {
  createLevelBar,
  DeviceSelects,
  getMicrophoneTrack,
  isMicrophoneAllowed,
  LevelMeter,
  MicrophoneError,
} from "./audio-devices.js";
import { CallClient, eventName, RejectedError } from "./call-client.js";
import { Captions } from "./captions.js";
import { CaptionsView } from "./captions-view.js";
import { RecordingNotice } from "./recording-notice.js";
import { createSavedState } from "./saved-state.js";
import { Suggestions } from "./suggestions.js";
import { callErrorText, END_TEXTS, endReason, microphoneErrorText, STATE_LABELS } from "./texts.js";
import { UnheardMicrophoneDetector } from "./unheard-microphone.js";

const byId = (id) => document.getElementById(id);
const joinButtons = /** @type {HTMLButtonElement[]} */ ([byId("join"), byId("join-typing")]);
const face = /** @type {HTMLVideoElement} */ (byId("face"));
const textInput = /** @type {HTMLInputElement} */ (byId("text"));
const [, pageType, subjectId] = location.pathname.split("/");
const embedded = pageType === "embed";
const iceServers = JSON.parse(document.body.dataset.iceServers || "[]");

const savedState = createSavedState(`visavis:${pageType}:${subjectId}`);
let callClient = null;
let microphoneTrack = null;
let captions = new Captions();
let timeLimitReached = false;
const unheardMicrophone = new UnheardMicrophoneDetector();
let joining = false;

const captionsView = new CaptionsView({
  list: byId("captions"),
  liveRegion: byId("said"),
  placeholder: byId("captions-empty"),
});
const suggestions = new Suggestions(
  byId("suggestions"),
  (question) => callClient?.send("send-text", { content: question, options: {} }) ?? false,
);
const recordingNotice = new RecordingNotice({
  sentence: byId("recorded"),
  indicator: byId("recording"),
  words: byId("recording-words"),
  button: /** @type {HTMLButtonElement} */ (byId("recording-refuse")),
  send: (data, id) => callClient?.send("client-message", data, id) ?? false,
  onFailed: (text) => showNotice(text),
});
const showMicrophoneLevel = createLevelBar(byId("mine"));
const showServerLevel = createLevelBar(byId("theirs"));
const levelMeter = new LevelMeter((value) => {
  showMicrophoneLevel(value);
  checkUnheardMicrophone(value);
});
const devices = new DeviceSelects({
  microphoneSelect: byId("microphone"),
  speakerSelect: byId("speaker"),
  speakerField: byId("speaker-field"),
  video: face,
  onMicrophoneChosen: openMicrophone,
});

/** Shows one of the three screens of the page. */
function showScreen(name) {
  for (const id of ["welcome", "call", "over"]) byId(id).hidden = id !== name;
}

/** Gives the picture the shape of the video, which is known with its first frame. */
function adaptToVideo() {
  const { videoWidth: width, videoHeight: height } = face;
  if (!width || !height) return;
  const call = byId("call");
  call.style.setProperty("--aspect", String(width / height));
  call.dataset.shape = width < height ? "portrait" : "landscape";
}

function setCallState(name) {
  byId("frame").dataset.state = name;
  byId("state").textContent = STATE_LABELS[name] ?? name;
}

/** Shows a notice above the call, with at most one action. Without a text it hides the notice. */
function showNotice(text, actionLabel, onAction) {
  byId("notice").hidden = !text;
  byId("notice").dataset.topic = "";
  byId("notice-words").textContent = text ?? "";
  byId("notice-action").hidden = !actionLabel;
  byId("notice-action").textContent = actionLabel ?? "";
  byId("notice-action").onclick = onAction
    ? () => {
        showNotice();
        onAction();
      }
    : null;
}

/** Shows the agent's name everywhere. Without a name the texts keep "the agent". */
function showAgentName(name) {
  if (typeof name !== "string" || !name.trim()) return;
  captionsView.setAgentName(name);
  document.title = `${name} \u2013 video conversation`;
  byId("welcome-title").textContent = `Ready to talk with ${name}?`;
  byId("welcome-words").textContent =
    `${name} is an AI agent. It shows a face, but it is a program.`;
  byId("call-title").textContent = `Conversation with ${name}`;
  byId("stage").setAttribute("aria-label", name);
  face.setAttribute("aria-label", `Video of ${name}`);
  byId("theirs-name").textContent = `${name} hears`;
  byId("text-name").textContent = `Type a message to ${name}`;
}

/** Shows the agent's picture, a data URI, before the call. */
function showPicture(uri) {
  if (typeof uri !== "string" || !uri.startsWith("data:image/")) return;
  const picture = /** @type {HTMLImageElement} */ (byId("picture"));
  picture.src = uri;
  picture.hidden = false;
}

// --- joining ---

/** The token of a join page, from the fragment of its URL. */
function tokenFromUrl() {
  const hash = location.hash.slice(1);
  return new URLSearchParams(hash).get("token") ?? hash;
}

/**
 * What the server says about a conversation before the call. Rejects with RejectedError, or
 * TypeError if the server cannot be reached.
 */
async function fetchConversationInfo({ conversation, token }) {
  const response = await fetch(`/join/${conversation}/about`, {
    headers: { Authorization: `Bearer ${token}` },
    cache: "no-store",
  });
  if (!response.ok) throw await RejectedError.from(response);
  return response.json();
}

function showConversationInfo(info) {
  showAgentName(info.persona_name);
  showPicture(info.avatar_picture);
  suggestions.show(info.suggested_questions);
  recordingNotice.announce(info.recording);
}

/** Before the user clicks: shows the agent's name, or says that the link is no longer valid. */
async function checkLink() {
  try {
    const token = tokenFromUrl();
    if (!token) throw new RejectedError(401);
    showConversationInfo(await fetchConversationInfo({ conversation: subjectId, token }));
  } catch (error) {
    // Other errors are shown when the user joins.
    if (joining || callClient || !(error instanceof RejectedError)) return;
    if ([401, 409].includes(error.status))
      showEnd(endReason(error.status), callErrorText(error).text);
  }
}

/** The id and the token of the conversation. An embed page creates a conversation for them. */
async function fetchCredentials() {
  const saved = savedState.load();
  if (!embedded) return { conversation: subjectId, token: tokenFromUrl() };
  if (saved.conversation && saved.token) return saved;
  const query = new URLSearchParams(location.search);
  const body = {};
  for (const [name, key] of [
    ["username", "userName"],
    ["id", "userId"],
    ["context", "context"],
  ]) {
    if (query.get(name)) body[key] = query.get(name);
  }
  const response = await fetch(`/embed/${subjectId}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  if (!response.ok) throw await RejectedError.from(response);
  const created = await response.json();
  return { conversation: created.conversationId, token: created.token };
}

/**
 * Joins the call.
 * @param {boolean} withMicrophone
 * @param {boolean} afterReload whether the page joins without a click
 */
async function join(withMicrophone, afterReload = false) {
  joining = true;
  byId("problem").hidden = true;
  for (const button of joinButtons) button.disabled = true;
  byId("join").textContent = "Connecting …";
  try {
    const credentials = await fetchCredentials();
    if (!credentials.token) throw new RejectedError(401);
    if (embedded || afterReload)
      fetchConversationInfo(credentials).then(showConversationInfo, () => {});
    // If the browser shows a permission prompt, the call waits for its answer. Otherwise the
    // microphone and the call are opened at the same time.
    const noPrompt = !withMicrophone || (await isMicrophoneAllowed());
    if (!noPrompt) await openMicrophone();
    createCallClient(credentials);
    const microphoneOpened = withMicrophone && noPrompt ? openMicrophone() : null;
    await joinWhenReady();
    savedState.save({ ...credentials, joined: true, typing: !withMicrophone });
    showScreen("call");
    if (!withMicrophone)
      showNotice("You joined without a microphone: type to the agent.", "Use the microphone", () =>
        openMicrophone(),
      );
    await microphoneOpened;
    updateMuteButton();
    devices.refresh(microphoneTrack);
    if (!afterReload) (microphoneTrack ? byId("mute") : textInput).focus({ preventScroll: true });
  } catch (error) {
    if (!afterReload || !(error instanceof RejectedError)) console.warn("no call:", error);
    const { text, final } = callErrorText(error);
    discardCall();
    if (error.afterAnswer) return showEnd("full");
    if (final) return showEnd(endReason(error.status), text);
    byId("problem").textContent = text;
    byId("problem").hidden = false;
    showScreen("welcome");
    byId("join").focus();
  } finally {
    joining = false;
    for (const button of joinButtons) button.disabled = false;
    byId("join").textContent = byId("problem").hidden ? "Start talking" : "Try again";
  }
}

/** Joins the call. If the server has only just started, waits until it is ready. */
async function joinWhenReady() {
  try {
    await callClient.join();
  } catch (error) {
    if (
      !(error instanceof RejectedError) ||
      error.status !== 503 ||
      error.afterAnswer ||
      !(await waitUntilReady())
    )
      throw error;
    await callClient.join();
  }
}

/** Waits up to a minute for a server that is loading. Returns whether it became ready. */
async function waitUntilReady() {
  for (let attempt = 0; attempt < 120; attempt++) {
    const response = await fetch("/readyz", { cache: "no-store" });
    if (response.status !== 503) return response.ok && attempt > 0;
    const { reason } = await response.json().catch(() => ({}));
    // Waiting does not help if the server is full or shuts down.
    if (!/loading/.test(reason ?? "")) return false;
    byId("join").textContent = "The server is getting ready …";
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
  return false;
}

function createCallClient({ conversation, token }) {
  const saved = savedState.load();
  captions = new Captions(saved.captions);
  for (const line of captions.lines) captionsView.render(line, false);
  timeLimitReached = false;
  recordingNotice.reset();
  callClient = new CallClient({ conversation, token, iceServers });
  if (microphoneTrack) callClient.setMicrophoneTrack(microphoneTrack);
  callClient.addEventListener("stream", ({ detail }) => playStream(detail));
  callClient.addEventListener("message", ({ detail }) => onMessage(detail));
  callClient.addEventListener("status", ({ detail }) => onStatus(detail));
  callClient.addEventListener("rejected", ({ detail }) => {
    if (detail.status === 409) return showEnd(timeLimitReached ? "timeLimit" : "ended");
    if (detail.status === 503) return showEnd("full");
    showEnd("connectionLost", callErrorText(detail).text);
  });
  callClient.addEventListener("left", ({ detail }) =>
    showEnd(detail === "ended" && timeLimitReached ? "timeLimit" : detail),
  );
  setCallState("connecting");
}

function onStatus(name) {
  if (name === "connected") {
    if (
      byId("frame").dataset.state === "connecting" ||
      byId("frame").dataset.state === "reconnecting"
    )
      setCallState("listening");
    if (byId("notice").dataset.topic === "reconnecting") showNotice();
    byId("notice").dataset.topic = "";
  } else if (name === "reconnecting") {
    setCallState("reconnecting");
    showNotice("The connection is interrupted. Reconnecting …");
    byId("notice").dataset.topic = "reconnecting";
  } else if (name === "failed") {
    showEnd("connectionLost");
  }
}

async function openMicrophone(deviceId) {
  try {
    const newTrack = await getMicrophoneTrack(deviceId);
    microphoneTrack?.stop();
    microphoneTrack = newTrack;
    microphoneTrack.enabled = !document.body.classList.contains("muted");
    microphoneTrack.addEventListener("ended", () => {
      if (newTrack === microphoneTrack)
        showNotice("The microphone was disconnected.", "Try again", () => openMicrophone());
    });
    savedState.save({ typing: false });
    await callClient?.setMicrophoneTrack(microphoneTrack);
    levelMeter.setTrack(microphoneTrack);
    updateMuteButton();
    devices.refresh(microphoneTrack);
  } catch (error) {
    if (!(error instanceof MicrophoneError)) throw error;
    showNotice(
      microphoneErrorText(error.reason),
      error.reason === "insecure" || error.reason === "blockedByFrame" ? null : "Try again",
      () => openMicrophone(),
    );
  }
}

// --- the agent ---

function playStream(stream) {
  if (face.srcObject !== stream) face.srcObject = stream;
  const hideVeil = () => byId("veil").classList.add("gone");
  if (face.requestVideoFrameCallback) face.requestVideoFrameCallback(hideVeil);
  else face.addEventListener("loadeddata", hideVeil, { once: true });
  face.play().catch((error) => {
    if (error.name !== "NotAllowedError") return; // replaced by a newer stream
    face.muted = true;
    face.play().catch(() => {});
    byId("unblock").hidden = false;
  });
}

function onMessage(message) {
  recordingNotice.handle(message);
  const line = captions.handle(message);
  if (line) {
    captionsView.render(line);
    if (!line.open) savedState.save({ captions: captions.serialize() });
  }
  const { type, data } = message;
  if (type === "user-transcription" && unheardMicrophone.onHeard()) withdrawUnheardNotice();
  if (type === "server-message") {
    if (typeof data?.state === "string") setCallState(data.state);
    if (typeof data?.level === "number") onServerLevel(data.level);
    const name = eventName(message);
    if (name === "max_call_duration_timeout") timeLimitReached = true;
    if (name === "max_call_duration_warning") {
      const { call_duration: elapsed, max_call_duration: maximum } =
        (data.event.event ?? data.event).payload ?? {};
      if (maximum > elapsed)
        showNotice(`The call ends in ${Math.max(1, Math.round(maximum - elapsed))} seconds.`);
    }
  } else if (type === "bot-started-speaking") {
    setCallState("speaking");
  } else if (type === "bot-stopped-speaking" && byId("frame").dataset.state === "speaking") {
    setCallState("listening");
  } else if (type === "error" && data?.fatal) {
    showNotice(String(data.error ?? "The server reports an error."));
  }
}

function onServerLevel(value) {
  showServerLevel(value);
  if (unheardMicrophone.onServerLevel(value)) withdrawUnheardNotice();
}

/**
 * Shows a notice if the microphone hears a voice but the server reports silence, or no level at
 * all.
 */
function checkUnheardMicrophone(value) {
  if (!callClient?.connected || document.body.classList.contains("muted")) return;
  if (!unheardMicrophone.onMicrophoneLevel(value, performance.now())) return;
  showNotice(
    "Your microphone works, but its sound does not reach the agent.",
    "Choose a device",
    () => showDevicePanel(true),
  );
  byId("notice").dataset.topic = "unheard";
}

/** Hides the notice of checkUnheardMicrophone. */
function withdrawUnheardNotice() {
  if (byId("notice").dataset.topic === "unheard") showNotice();
}

// --- the end ---

/** Hangs up without an end screen, for an attempt to join that failed. */
function discardCall() {
  unheardMicrophone.onHeard();
  callClient?.hangUp();
  callClient = null;
  microphoneTrack?.stop();
  microphoneTrack = null;
  levelMeter.stop();
  showServerLevel(0);
}

/**
 * Ends the call and shows the end screen.
 * @param {keyof typeof END_TEXTS} reason
 * @param {string} [customText] shown instead of the text of `reason`
 */
function showEnd(reason, customText) {
  const [title, text] = END_TEXTS[reason];
  const canRetry = reason === "elsewhere" || reason === "connectionLost" || reason === "full";
  const previousClient = callClient;
  callClient = null;
  unheardMicrophone.onHeard();
  levelMeter.stop();
  microphoneTrack?.stop();
  microphoneTrack = null;
  if (reason === "hungUp") previousClient?.hangUp();
  face.srcObject = null;
  byId("veil").classList.remove("gone");
  showNotice();
  if (canRetry) savedState.save({ joined: false });
  else savedState.clear();
  byId("over-title").textContent = title;
  byId("over-words").textContent = customText ?? text;
  byId("again").hidden = !canRetry && !embedded;
  byId("again").textContent =
    reason === "elsewhere" ? "Continue here" : canRetry ? "Try again" : "Talk again";
  byId("again").onclick = () => location.reload();
  if (canRetry)
    byId("again").onclick = () => {
      showScreen("welcome");
      join(!savedState.load().typing);
    };
  showScreen("over");
  byId("over-title").focus();
}

function setMuted(muted) {
  document.body.classList.toggle("muted", muted);
  if (microphoneTrack) microphoneTrack.enabled = !muted;
  updateMuteButton();
}

/** Updates the mute button. Without a microphone it offers to open one. */
function updateMuteButton() {
  const muted = document.body.classList.contains("muted");
  if (microphoneTrack) byId("mute").setAttribute("aria-pressed", String(muted));
  else byId("mute").removeAttribute("aria-pressed");
  byId("mute-name").textContent = !microphoneTrack ? "Use mic" : muted ? "Unmute" : "Mute";
}

function showDevicePanel(open) {
  byId("device-panel").hidden = !open;
  byId("devices").setAttribute("aria-expanded", String(open));
  if (open) {
    devices.refresh(microphoneTrack);
    byId("microphone").focus();
  }
}

byId("join").addEventListener("click", () => join(true));
byId("join-typing").addEventListener("click", () => join(false));
face.addEventListener("loadedmetadata", adaptToVideo);
face.addEventListener("resize", adaptToVideo);
byId("mute").addEventListener("click", () => {
  if (!microphoneTrack) return openMicrophone();
  setMuted(byId("mute").getAttribute("aria-pressed") !== "true");
});
byId("hang-up").addEventListener("click", () => showEnd("hungUp"));
byId("devices").addEventListener("click", () => showDevicePanel(byId("device-panel").hidden));
byId("notice-close").addEventListener("click", () => showNotice());
byId("unblock").addEventListener("click", () => {
  face.muted = false;
  face.play().catch(() => {});
  byId("unblock").hidden = true;
});
byId("typing").addEventListener("submit", (event) => {
  event.preventDefault();
  const content = textInput.value.trim();
  if (!content) return;
  if (callClient?.send("send-text", { content, options: {} })) textInput.value = "";
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !byId("device-panel").hidden) {
    showDevicePanel(false);
    byId("devices").focus();
  }
});
document.addEventListener("pointerdown", (event) => {
  levelMeter.resume();
  const target = /** @type {Element} */ (event.target);
  if (!byId("device-panel").hidden && !target.closest("#device-panel, #devices"))
    showDevicePanel(false);
});
document.addEventListener("keydown", () => levelMeter.resume());

// An embed page has no conversation yet that it could ask.
showAgentName(document.body.dataset.agentName);
recordingNotice.announce(JSON.parse(document.body.dataset.recording || "null"));

// The buttons are disabled in the HTML, because a click before this point would have no effect.
for (const button of joinButtons) button.disabled = false;

// A reload during a call continues the call without another click.
const saved = savedState.load();
if (saved.joined) join(!saved.typing, true);
else if (!embedded) checkLink();
