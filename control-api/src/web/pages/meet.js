// The meeting page: /meet/{conversation}?name=&captions=1#token=…. A meeting-bot service opens it in
// a browser of its own: the page's picture is the bot's camera, its sound the bot's voice, and its
// microphone the mix of the meeting.
//
// Nobody can click here, so the page does everything by itself: it opens the microphone, joins once
// there is one (the conversation begins then, and the meeting must hear it), and reconnects until
// the conversation is over. It never hangs up: the server waits for a page that is reloaded, and
// its new offer continues the call.

import { CallClient } from "./call-client.js";
import { Captions, lineParts } from "./captions.js";
import { lastPortion } from "./meet-captions.js";
import { keepMicrophone, removeErrorBanners } from "./meet-microphone.js";

/** How often the page checks that the picture and the sound are playing. */
const PLAY_CHECK_MS = 1000;
/** How long the last caption stays after the agent has stopped speaking. */
const CAPTION_STAY_MS = 3000;
const MAX_NAME_LENGTH = 100;

const STATE_LABELS = {
  connecting: "Connecting",
  listening: "Listening",
  thinking: "Thinking",
  speaking: "Speaking",
  disconnected: "Disconnected",
  ended: "Conversation ended",
};

const byId = (id) => document.getElementById(id);
const stage = byId("stage");
const face = /** @type {HTMLVideoElement} */ (byId("face"));
const caption = byId("caption");
const [, , conversation] = location.pathname.split("/");
const query = new URLSearchParams(location.search);
const captionsWanted = query.get("captions") === "1";
const iceServers = JSON.parse(document.body.dataset.iceServers || "[]");

let callClient = null;
let microphoneTrack = null;
let captions = new Captions();
let captionTimer = 0;

function setState(name) {
  if (stage.dataset.state === name) return;
  stage.dataset.state = name;
  byId("state").textContent = STATE_LABELS[name];
}

function showName() {
  const name = [...(query.get("name") ?? "").trim()].slice(0, MAX_NAME_LENGTH).join("");
  if (!name) return;
  stage.dataset.named = "yes";
  document.title = name;
  byId("name").textContent = name;
  byId("initial").textContent = [...name][0].toUpperCase();
  face.setAttribute("aria-label", `Video of ${name}`);
}

function token() {
  const hash = location.hash.slice(1);
  return new URLSearchParams(hash).get("token") ?? hash;
}

/** Joins with the token of the URL, once there is a microphone. */
function join() {
  callClient?.leave();
  callClient = null;
  showPicture(null);
  showCaption("");
  if (!token()) return showEnd();
  setState("connecting");
  if (!microphoneTrack) return;
  const client = new CallClient({ conversation, token: token(), iceServers, persistent: true });
  const on = (type, handle) =>
    client.addEventListener(type, (event) => {
      if (client === callClient) handle(/** @type {CustomEvent} */ (event).detail);
    });
  callClient = client;
  captions = new Captions();
  on("stream", showPicture);
  on("message", onMessage);
  on("status", onStatus);
  on("rejected", showEnd);
  on("left", showEnd);
  client.setMicrophoneTrack(microphoneTrack);
  client.join();
}

function onStatus(name) {
  if (name === "reconnecting") {
    setState("disconnected");
    showCaption("");
  } else if (name === "connected" && /^(connecting|disconnected)$/.test(stage.dataset.state)) {
    setState("listening");
  }
}

function onMessage(message) {
  const { type, data } = message;
  if (type === "server-message" && Object.hasOwn(STATE_LABELS, data?.state)) setState(data.state);
  else if (type === "bot-started-speaking") setState("speaking");
  else if (type === "bot-stopped-speaking" && stage.dataset.state === "speaking")
    setState("listening");
  if (!captionsWanted) return;
  const line = captions.handle(message);
  if (line?.who === "agent") showCaption(lastPortion(lineParts(line).spoken), line.open);
}

/** Shows a caption. `stays`: until the next one; otherwise for some seconds. */
function showCaption(text, stays = true) {
  clearTimeout(captionTimer);
  if (caption.textContent !== text) caption.textContent = text;
  caption.hidden = !text;
  if (!stays) captionTimer = setTimeout(() => showCaption(""), CAPTION_STAY_MS);
}

/** @param {MediaStream | null} stream */
function showPicture(stream) {
  if (face.srcObject === stream) return;
  stage.dataset.picture = "no";
  face.srcObject = stream;
  play();
}

/** Plays the agent's stream; the browser may refuse that at first. */
function play() {
  if (face.srcObject && face.paused) face.play().catch(() => {});
}

function showEnd() {
  setState("ended");
  showPicture(null);
  showCaption("");
}

// A picture as wide as the window is below the name.
face.addEventListener("resize", () => {
  stage.dataset.shape = face.videoWidth > 1.5 * face.videoHeight ? "wide" : "";
});
face.addEventListener("loadeddata", () => {
  stage.dataset.picture = "yes";
});
setInterval(play, PLAY_CHECK_MS);
// A new token does not reload the page, because only the fragment differs.
addEventListener("hashchange", join);
removeErrorBanners();
showName();
join();
keepMicrophone((track) => {
  microphoneTrack = track;
  if (callClient) callClient.setMicrophoneTrack(track);
  else join();
});
