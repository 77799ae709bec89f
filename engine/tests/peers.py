"""Interoperability tests of the transport with other WebRTC stacks: aiortc and a headless Chromium.

    python3 engine/tests/peers.py path/to/examples/echo [aiortc] [chromium]

The server echoes audio and text messages and sends a VP8 clip, over UDP and over ICE-TCP, on
loopback only. Needs aiortc, numpy, playwright, ffmpeg and a Chromium at $CHROMIUM (default
/usr/bin/chromium).
"""

import asyncio
import http.server
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

import numpy as np

#: Frequency of the tone that the clients send, in Hz.
TONE = 440


class Echo:
    """The server under test: reads offers and writes answers, line by line."""

    def __init__(self, binary, clip):
        self.process = subprocess.Popen(
            [binary, clip], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def answer(self, sdp, transport="udp"):
        self.process.stdin.write(json.dumps({"sdp": sdp, "transport": transport}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert "error" not in answer, answer
        return answer["sdp"]

    def stop(self):
        self.process.stdin.close()
        self.process.wait(10)


def peak_frequency(samples, rate):
    """The frequency with the highest level, in Hz."""
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(np.argmax(spectrum) * rate / len(samples))


async def check_aiortc(echo):
    """Runs a call with aiortc. Returns a summary."""
    from fractions import Fraction

    from aiortc import MediaStreamTrack, RTCPeerConnection, RTCSessionDescription
    from av import AudioFrame

    loop = asyncio.get_running_loop()

    class Tone(MediaStreamTrack):
        kind = "audio"

        def __init__(self):
            super().__init__()
            self.position, self.started_at = 0, None

        async def recv(self):
            self.started_at = self.started_at or loop.time()
            await asyncio.sleep(max(0, self.started_at + self.position / 48000 - loop.time()))
            time = (np.arange(960) + self.position) / 48000
            samples = (np.sin(2 * np.pi * TONE * time) * 8000).astype(np.int16)
            frame = AudioFrame.from_ndarray(samples.reshape(1, -1), layout="mono")
            frame.sample_rate, frame.time_base = 48000, Fraction(1, 48000)
            frame.pts = self.position
            self.position += 960
            return frame

    pc = RTCPeerConnection()
    pc.addTrack(Tone())
    pc.addTransceiver("video", direction="recvonly")
    channel = pc.createDataChannel("chat")
    texts, tracks, closed = [], {}, asyncio.Event()
    channel.on("message", texts.append)
    channel.on("close", closed.set)
    pc.on("track", lambda track: tracks.__setitem__(track.kind, track))
    opened = asyncio.Event()
    channel.on("open", opened.set)
    await pc.setLocalDescription(await pc.createOffer())
    await pc.setRemoteDescription(
        RTCSessionDescription(echo.answer(pc.localDescription.sdp), "answer")
    )
    await asyncio.wait_for(opened.wait(), 10)
    channel.send("hello")
    long_text = "x" * 40000
    channel.send(long_text)

    async def receive_audio():
        """Two seconds of audio, after a first second that is discarded."""
        blocks = []
        while sum(len(block) for block in blocks) < 48000 * 3:
            frame = await tracks["audio"].recv()
            blocks.append(frame.to_ndarray().reshape(-1)[:: len(frame.layout.channels)])
        return np.concatenate(blocks)[48000:]

    async def receive_video():
        return [await tracks["video"].recv() for _ in range(50)]

    receivers = asyncio.gather(receive_audio(), receive_video())
    samples, frames = await asyncio.wait_for(receivers, 20)
    peak = peak_frequency(samples, 48000)
    assert abs(peak - TONE) < 3, peak
    assert np.sqrt(np.mean(samples.astype(float) ** 2)) > 3000
    assert {(frame.width, frame.height) for frame in frames} == {(320, 240)}
    images = [frame.to_ndarray(format="gray").astype(float) for frame in frames]
    assert images[0].std() > 20, "the frames are blank"
    differences = [np.abs(a - b).mean() for a, b in itertools.pairwise(images)]
    assert np.mean(differences) > 0.1, differences
    assert "echo: hello" in texts and "echo: " + long_text in texts
    levels = [json.loads(t)["data"]["dbfs"] for t in texts if '"dbfs"' in t]
    assert len(levels) > 15 and max(levels[-5:]) > -20, levels
    channel.send("bye")
    await asyncio.wait_for(closed.wait(), 5)
    assert json.loads(texts[-1])["message"]["type"] == "peerLeft", texts[-3:]
    await pc.close()
    return f"aiortc: tone at {peak:.1f} Hz, {len(frames)} frames, levels {levels[-3:]}"


PAGE = """<!doctype html><video id=v autoplay muted playsinline></video><script>
async function join(options) {
  window.texts = []; window.streams = []; window.tracks = []
  const pc = window.pc = new RTCPeerConnection()
  const context = window.context = new AudioContext()
  const oscillator = context.createOscillator(), sink = context.createMediaStreamDestination()
  oscillator.frequency.value = 440; oscillator.connect(sink); oscillator.start()
  pc.addTransceiver(sink.stream.getAudioTracks()[0], {direction: 'sendrecv'})
  pc.addTransceiver('video', {direction: 'sendrecv'})
  pc.addTransceiver('video', {direction: 'sendonly'})
  const channel = window.channel = pc.createDataChannel('chat')
  channel.onmessage = e => texts.push(e.data)
  channel.onclose = () => texts.push('closed')
  pc.ontrack = e => {
    streams.push(e.streams[0].id); tracks.push(e.track.kind + e.transceiver.mid)
    if (e.track.kind === 'video') { v.srcObject = e.streams[0] }
    else {
      const audio = new Audio(); audio.srcObject = e.streams[0]; audio.muted = true; audio.play()
      window.analyser = context.createAnalyser(); analyser.fftSize = 8192
      context.createMediaStreamSource(e.streams[0]).connect(analyser)
    }
  }
  await pc.setLocalDescription(await pc.createOffer())
  return pc.localDescription.sdp
}
async function answer(sdp) {
  window.answeredAt = performance.now()
  await pc.setRemoteDescription({type: 'answer', sdp})
  await new Promise((resolve, reject) => {
    channel.onopen = resolve
    setTimeout(() => reject('no channel: ' + pc.iceConnectionState), 10000)
  })
  window.openedAt = performance.now()
  channel.send('hello')
  await context.resume()
}
async function report() {
  const bins = new Float32Array(analyser.frequencyBinCount)
  analyser.getFloatFrequencyData(bins)
  let peak = 0; bins.forEach((x, i) => { if (x > bins[peak]) peak = i })
  const stats = {}
  for (const s of (await pc.getStats()).values()) {
    if (s.type === 'inbound-rtp') stats[s.kind] = s
    if (s.type === 'remote-outbound-rtp') stats['sr_' + s.kind] = s
    if (s.type === 'candidate-pair' && s.nominated) stats.pair = s
    if (s.type === 'local-candidate') stats.protocol = s.protocol
  }
  return {peak: peak * context.sampleRate / analyser.fftSize, level: bins[peak],
          texts, streams, tracks, stats,
          join: openedAt - answeredAt,
          width: v.videoWidth, height: v.videoHeight, time: v.currentTime,
          mids: pc.getTransceivers().map(t => t.currentDirection)}
}
</script>"""


async def check_chromium(echo, transport):
    """Runs a call with Chromium. Returns a summary."""
    from playwright.async_api import async_playwright

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(PAGE.encode())

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"),
            args=["--no-sandbox", "--autoplay-policy=no-user-gesture-required"],
        )
        page = await browser.new_page()
        page.on("console", lambda message: print("page:", message.text, file=sys.stderr))
        await page.goto(f"http://127.0.0.1:{server.server_port}/")
        sdp = await page.evaluate("join()")
        await page.evaluate("sdp => answer(sdp)", echo.answer(sdp, transport))
        await page.wait_for_timeout(5000)
        report = await page.evaluate("report()")
        await page.evaluate("channel.send('bye')")
        await page.wait_for_function("texts.at(-1) === 'closed'", timeout=5000)
        last = (await page.evaluate("texts"))[-2]
        await browser.close()
    server.shutdown()
    stats = report["stats"]
    video, audio = stats["video"], stats["audio"]
    peak, level = report["peak"], report["level"]
    assert abs(peak - TONE) < 12 and level > -40, (peak, level)
    assert report["tracks"] == ["audio0", "video1"], report["tracks"]
    assert len(set(report["streams"])) == 1, report["streams"]
    assert report["mids"] == ["sendrecv", "recvonly", "inactive"], report["mids"]
    assert (report["width"], report["height"]) == (320, 240)
    freezes = video.get("freezeCount", 0)
    assert video["framesDecoded"] > 90 and freezes == 0 and video["pliCount"] <= 1, video
    assert "echo: hello" in report["texts"]
    assert json.loads(last)["message"]["type"] == "peerLeft", last
    # The browser synchronizes audio and video by the sender reports.
    lip_sync_error = abs(audio["estimatedPlayoutTimestamp"] - video["estimatedPlayoutTimestamp"])
    assert lip_sync_error < 100, lip_sync_error
    levels = [json.loads(t)["data"]["dbfs"] for t in report["texts"] if '"dbfs"' in t]
    assert max(levels[-5:]) > -20, levels
    bandwidths = [json.loads(t)["bandwidth"] for t in report["texts"] if "bandwidth" in t]
    return (
        f"chromium over {transport}: channel {report['join']:.0f} ms after the answer, "
        f"tone at {peak:.0f} Hz, {video['framesDecoded']} frames, {video['pliCount']} PLI, "
        f"lip sync error {lip_sync_error:.0f} ms, "
        f"concealed {audio['concealedSamples'] / audio['totalSamplesReceived']:.1%}, "
        f"bandwidth {bandwidths[-1:]}"
    )


async def main():
    binary, clients = sys.argv[1], sys.argv[2:] or ["aiortc", "chromium"]
    with tempfile.TemporaryDirectory() as folder:
        clip = str(pathlib.Path(folder, "clip.ivf"))
        source = "-f lavfi -i testsrc=size=320x240:rate=25 -t 4 -pix_fmt yuv420p".split()
        encoder = "-c:v libvpx -b:v 300k -g 9999 -deadline realtime -auto-alt-ref 0".split()
        command = ["ffmpeg", "-loglevel", "error", *source, *encoder, clip]
        await asyncio.to_thread(subprocess.run, command, check=True)
        echo = Echo(binary, clip)
        try:
            if "aiortc" in clients:
                print(await check_aiortc(echo))
            if "chromium" in clients:
                print(await check_chromium(echo, "udp"))
                print(await check_chromium(echo, "tcp"))
        finally:
            echo.stop()


asyncio.run(main())
