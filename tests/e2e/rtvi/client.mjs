// The public client, used as its documentation says; `window.client` is what the tests look at. Its default media manager loads a script of
// its vendor from the Internet; the one that it also exports does not.
import { PipecatClient, RTVIEvent } from "@pipecat-ai/client-js";
import { SmallWebRTCTransport, WavMediaManager } from "@pipecat-ai/small-webrtc-transport";

const log = [];
const pc = new PipecatClient({ transport: new SmallWebRTCTransport({ mediaManager: new WavMediaManager() }), enableMic: true, enableCam: false });
for (const [, name] of Object.entries(RTVIEvent)) pc.on(name, (...given) => log.push({ name, given: given.length }));
pc.on(RTVIEvent.TrackStarted, (track, participant) => {
  if (participant?.local) return;
  const element = document.getElementById(track.kind === "video" ? "bot" : "voice");
  element.srcObject = new MediaStream([track]);
});

window.client = {
  pc,
  log,
  failure: null,
  start(base, token) {
    const headers = new Headers({ Authorization: `Bearer ${token}` });
    pc.connect({ webrtcRequestParams: { endpoint: `${base}/api/offer`, headers } }).catch((error) => { window.client.failure = `${error?.message ?? error} ${error?.status ?? ""}`; });
  },
};
