// The microphone of the meeting page: the mix of the meeting's other participants, which a
// meeting-bot service puts in place of a device.

/**
 * Everything that would change the mix is off: the bot's own voice is not in it. The services
 * deliver 16 kHz and may ignore all of this.
 */
const CONSTRAINTS = {
  audio: {
    echoCancellation: false,
    noiseSuppression: false,
    autoGainControl: false,
    channelCount: 1,
    sampleRate: 16_000,
  },
};
const RETRY_MS = 1000;

/** The error banner that Attendee adds to the page, where the whole meeting would see it. */
const BANNER_ID = "attendee-audio-error";

/**
 * Opens the microphone. The services refuse it until the meeting has sound, so this tries without
 * limit. @returns {Promise<MediaStreamTrack>} a live track
 */
async function openMicrophone() {
  for (;;) {
    try {
      const stream = await navigator.mediaDevices.getUserMedia(CONSTRAINTS);
      const [track] = stream.getAudioTracks();
      if (track?.readyState === "live") return track;
    } catch {
      // not yet
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

/** Calls `onTrack` with the microphone's track, and with a new one whenever the last one ended. */
export async function keepMicrophone(onTrack) {
  for (;;) {
    const track = await openMicrophone();
    const ended = new Promise((resolve) =>
      track.addEventListener("ended", resolve, { once: true }),
    );
    onTrack(track);
    await ended;
  }
}

/** Removes the service's error banner, now and whenever it appears. */
export function removeErrorBanners() {
  const remove = () => {
    for (const banner of document.querySelectorAll(`#${BANNER_ID}`)) banner.remove();
  };
  new MutationObserver(remove).observe(document.documentElement, {
    childList: true,
    subtree: true,
  });
  remove();
}
