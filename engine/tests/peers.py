"""Proves the transport against WebRTC stacks that are not ours: aiortc and a headless Chromium.

    python3 engine/tests/peers.py path/to/examples/echo [aiortc] [chromium]

Sound goes there and back, a VP8 clip is decoded, texts go round, over UDP and over ICE-TCP; only loopback is used.
Needs aiortc, numpy, playwright, ffmpeg and a Chromium at $CHROMIUM (default /usr/bin/chromium).
"""

import asyncio
import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading

import numpy as np

TONE = 440


class Echo:
    """The server under test: offers in, answers out, line by line."""

    def __init__(self, binary, clip):
        self.process = subprocess.Popen([binary, clip], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def answer(self, sdp, transport="udp"):
        self.process.stdin.write(json.dumps({"sdp": sdp, "transport": transport}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert "error" not in answer, answer
        return answer["sdp"]

    def stop(self):
        self.process.stdin.close()
        self.process.wait(10)


def peak(samples, rate):
    """The loudest frequency in Hz."""
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(np.argmax(spectrum) * rate / len(samples))


async def with_aiortc(echo):
    from fractions import Fraction

    from aiortc import MediaStreamTrack, RTCPeerConnection, RTCSessionDescription
    from av import AudioFrame

    loop = asyncio.get_running_loop()

    class Tone(MediaStreamTrack):
        kind = "audio"

        def __init__(self):
            super().__init__()
            self.at, self.began = 0, None

        async def recv(self):
            self.began = self.began or loop.time()
            await asyncio.sleep(max(0, self.began + self.at / 48000 - loop.time()))
            time = (np.arange(960) + self.at) / 48000
            samples = (np.sin(2 * np.pi * TONE * time) * 8000).astype(np.int16)
            frame = AudioFrame.from_ndarray(samples.reshape(1, -1), layout="mono")
            frame.sample_rate, frame.pts, frame.time_base = 48000, self.at, Fraction(1, 48000)
            self.at += 960
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
    await pc.setRemoteDescription(RTCSessionDescription(echo.answer(pc.localDescription.sdp), "answer"))
    await asyncio.wait_for(opened.wait(), 10)
    channel.send("hello")
    long = "x" * 40000
    channel.send(long)

    async def hear():
        samples = []
        while sum(len(part) for part in samples) < 48000 * 3:
            frame = await tracks["audio"].recv()
            samples.append(frame.to_ndarray().reshape(-1)[:: len(frame.layout.channels)])
        return np.concatenate(samples)[48000:]

    async def see():
        return [await tracks["video"].recv() for _ in range(50)]

    samples, pictures = await asyncio.wait_for(asyncio.gather(hear(), see()), 20)
    assert abs(peak(samples, 48000) - TONE) < 3, peak(samples, 48000)
    assert np.sqrt(np.mean(samples.astype(float) ** 2)) > 3000
    assert {(p.width, p.height) for p in pictures} == {(320, 240)}
    images = [p.to_ndarray(format="gray").astype(float) for p in pictures]
    assert images[0].std() > 20, "no picture in the pictures"
    moving = [np.abs(a - b).mean() for a, b in zip(images, images[1:])]
    assert np.mean(moving) > 0.1, moving
    assert "echo: hello" in texts and "echo: " + long in texts
    levels = [json.loads(t)["data"]["dbfs"] for t in texts if '"dbfs"' in t]
    assert len(levels) > 15 and max(levels[-5:]) > -20, levels
    channel.send("bye")
    await asyncio.wait_for(closed.wait(), 5)
    assert json.loads(texts[-1])["message"]["type"] == "peerLeft", texts[-3:]
    await pc.close()
    return f"aiortc: tone at {peak(samples, 48000):.1f} Hz, {len(pictures)} pictures, levels {levels[-3:]}"


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
  window.asked = performance.now()
  await pc.setRemoteDescription({type: 'answer', sdp})
  await new Promise((ok, no) => { channel.onopen = ok; setTimeout(() => no('no channel: ' + pc.iceConnectionState), 10000) })
  window.opened = performance.now()
  channel.send('hello')
  await context.resume()
}
async function report() {
  const bins = new Float32Array(analyser.frequencyBinCount); analyser.getFloatFrequencyData(bins)
  let best = 0; bins.forEach((x, i) => { if (x > bins[best]) best = i })
  const stats = {}
  for (const s of (await pc.getStats()).values()) {
    if (s.type === 'inbound-rtp') stats[s.kind] = s
    if (s.type === 'remote-outbound-rtp') stats['sr_' + s.kind] = s
    if (s.type === 'candidate-pair' && s.nominated) stats.pair = s
    if (s.type === 'local-candidate') stats.protocol = s.protocol
  }
  return {peak: best * context.sampleRate / analyser.fftSize, loud: bins[best], texts, streams, tracks, stats,
          join: opened - asked, width: v.videoWidth, height: v.videoHeight, time: v.currentTime,
          mids: pc.getTransceivers().map(t => t.currentDirection)}
}
</script>"""


async def with_chromium(echo, transport):
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
        got = await page.evaluate("report()")
        await page.evaluate("channel.send('bye')")
        await page.wait_for_function("texts.at(-1) === 'closed'", timeout=5000)
        last = (await page.evaluate("texts"))[-2]
        await browser.close()
    server.shutdown()
    stats = got["stats"]
    video, audio = stats["video"], stats["audio"]
    assert abs(got["peak"] - TONE) < 12 and got["loud"] > -40, (got["peak"], got["loud"])
    assert got["tracks"] == ["audio0", "video1"] and len(set(got["streams"])) == 1, got["streams"]
    assert got["mids"] == ["sendrecv", "recvonly", "inactive"], got["mids"]
    assert (got["width"], got["height"]) == (320, 240)
    assert video["framesDecoded"] > 90 and video.get("freezeCount", 0) == 0 and video["pliCount"] <= 1, video
    assert "echo: hello" in got["texts"]
    assert json.loads(last)["message"]["type"] == "peerLeft", last
    # Browsers synchronise what the sender reports tie together.
    lips = abs(audio["estimatedPlayoutTimestamp"] - video["estimatedPlayoutTimestamp"])
    assert lips < 100, lips
    levels = [json.loads(t)["data"]["dbfs"] for t in got["texts"] if '"dbfs"' in t]
    assert max(levels[-5:]) > -20, levels
    return (
        f"chromium over {transport}: channel {got['join']:.0f} ms after the answer, tone at {got['peak']:.0f} Hz, "
        f"{video['framesDecoded']} pictures, {video['pliCount']} PLI, lips within {lips:.0f} ms, "
        f"concealed {audio['concealedSamples'] / audio['totalSamplesReceived']:.1%}, "
        f"bandwidth {[json.loads(t)['bandwidth'] for t in got['texts'] if 'bandwidth' in t][-1:]}"
    )


async def main():
    binary, wanted = sys.argv[1], sys.argv[2:] or ["aiortc", "chromium"]
    with tempfile.TemporaryDirectory() as folder:
        clip = os.path.join(folder, "clip.ivf")
        source = ["-f", "lavfi", "-i", "testsrc=size=320x240:rate=25", "-t", "4", "-pix_fmt", "yuv420p"]
        coder = ["-c:v", "libvpx", "-b:v", "300k", "-g", "9999", "-deadline", "realtime", "-auto-alt-ref", "0"]
        subprocess.run(["ffmpeg", "-loglevel", "error", *source, *coder, clip], check=True)
        echo = Echo(binary, clip)
        try:
            if "aiortc" in wanted:
                print(await with_aiortc(echo))
            if "chromium" in wanted:
                print(await with_chromium(echo, "udp"))
                print(await with_chromium(echo, "tcp"))
        finally:
            echo.stop()


asyncio.run(main())
