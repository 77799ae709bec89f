// The public Pipecat client, used as documented. The tests use `window.client`. Its default media
// manager loads a vendor script from the Internet; WavMediaManager does not.
import { PipecatClient, RTVIEvent } from "@pipecat-ai/client-js";
import { SmallWebRTCTransport, WavMediaManager } from "@pipecat-ai/small-webrtc-transport";

const log = [];
const pipecatClient = new PipecatClient({
  transport: new SmallWebRTCTransport({ mediaManager: new WavMediaManager() }),
  enableMic: true,
  enableCam: false,
});
for (const [, name] of Object.entries(RTVIEvent))
  pipecatClient.on(name, (...args) => log.push({ name, given: args.length }));
pipecatClient.on(RTVIEvent.TrackStarted, (track, participant) => {
  if (participant?.local) return;
  const element = document.getElementById(track.kind === "video" ? "bot" : "voice");
  element.srcObject = new MediaStream([track]);
});

window.client = {
  pc: pipecatClient,
  log,
  failure: null,
  start(base, token) {
    const headers = new Headers({ Authorization: `Bearer ${token}` });
    pipecatClient
      .connect({ webrtcRequestParams: { endpoint: `${base}/api/offer`, headers } })
      .catch((error) => {
        window.client.failure = `${error?.message ?? error} ${error?.status ?? ""}`;
      });
  },
};
