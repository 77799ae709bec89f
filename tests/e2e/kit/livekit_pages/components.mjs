// LiveKit's React components and hooks, used as documented. The tests call `window.call` and read
// `window.state`, which is JSON.
import {
  RoomAudioRenderer,
  SessionProvider,
  useAgent,
  useSession,
  useTranscriptions,
  useVoiceAssistant,
  VideoTrack,
} from "@livekit/components-react";
import { TokenSource } from "livekit-client";
import { createElement, useEffect } from "react";
import { createRoot } from "react-dom/client";

const state = { connection: null, agentStates: [], assistantStates: [], frames: 0 };
window.state = state;

/** Adds a value to a list if it differs from the last one. */
const noteChange = (list, value) => {
  if (list.at(-1) !== value) list.push(value);
};
const describeTrack = (reference) => reference?.publication?.trackSid ?? null;

function Agent({ session }) {
  const agent = useAgent();
  const assistant = useVoiceAssistant();
  const captions = useTranscriptions();
  useEffect(() => {
    noteChange(state.agentStates, agent.state);
    noteChange(state.assistantStates, assistant.state);
    state.connection = session.connectionState;
    state.agent = {
      state: agent.state,
      identity: agent.identity ?? null,
      attributes: { ...agent.attributes },
      isConnected: agent.isConnected,
      canListen: agent.canListen,
      failureReasons: agent.failureReasons,
      microphone: describeTrack(agent.microphoneTrack),
      camera: describeTrack(agent.cameraTrack),
    };
    state.assistant = {
      state: assistant.state,
      identity: assistant.agent?.identity ?? null,
      audio: describeTrack(assistant.audioTrack),
      video: describeTrack(assistant.videoTrack),
      transcriptions: assistant.agentTranscriptions.map(({ id, text, final }) => ({
        id,
        text,
        final,
      })),
    };
    state.captions = captions.map(({ text, participantInfo, streamInfo }) => ({
      text,
      identity: participantInfo.identity,
      attributes: { ...streamInfo.attributes },
    }));
  });
  return createElement(
    "main",
    null,
    assistant.videoTrack && createElement(VideoTrack, { trackRef: assistant.videoTrack }),
    createElement("p", null, "Agent: ", createElement("span", { id: "state" }, assistant.state)),
    createElement(
      "ol",
      { id: "captions" },
      captions.map(({ text, participantInfo, streamInfo }) =>
        createElement("li", { key: streamInfo.id }, `${participantInfo.identity}: ${text}`),
      ),
    ),
    createElement(RoomAudioRenderer),
  );
}

function Call({ source, options, microphone, onStart }) {
  const session = useSession(source, options);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the call is joined once.
  useEffect(() => {
    window.call.leave = () => session.end();
    onStart(session.start({ tracks: { microphone: { enabled: microphone } } }));
  }, []);
  return createElement(SessionProvider, { session }, createElement(Agent, { session }));
}

// The picture is a child of the page once there is one.
const countFrames = (video) => {
  const onFrame = (_now, { width, height }) => {
    state.frames += 1;
    state.picture = { width, height };
    video.requestVideoFrameCallback(onFrame);
  };
  video.requestVideoFrameCallback(onFrame);
};
new MutationObserver(() => {
  for (const video of document.querySelectorAll("video:not([data-counted])")) {
    video.dataset.counted = "true";
    countFrames(video);
  }
}).observe(document, { childList: true, subtree: true });

/** Resolves once the room is joined. */
const join = (source, options, microphone) =>
  new Promise((onStart) => {
    const root = createRoot(document.getElementById("root"));
    root.render(createElement(Call, { source, options, microphone, onStart }));
  });
window.call = {
  /** `microphone`: whether it is published. */
  join: (serverUrl, participantToken, { microphone = true } = {}) =>
    join(TokenSource.literal({ serverUrl, participantToken }), {}, microphone),
  /** Joins with a token of an endpoint. `options`: of `useSession`, such as `agentName`. */
  joinAtEndpoint: (url, options = {}, { headers = {}, microphone = true } = {}) =>
    join(TokenSource.endpoint(url, { headers }), options, microphone),
};
