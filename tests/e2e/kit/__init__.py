"""Building blocks of the end-to-end tests.

The server and its surroundings:

- server: the server under test, its HTTP API, CPU time and memory
- stores: its database, SQLite or PostgreSQL
- load_generator: runs the load generator and reads its report

Clients:

- call: a call in Chromium, on an instrumented page
- console: the console in Chromium, with checks of names, contrast and layout
- recorded_conversation: a recorded conversation for the console, with its file
- video_records: videos for the console, with their files
- webrtc_client: a caller without a browser (aiortc at the WHIP endpoint)
- typed_call: a whole call of that caller with typed words, from the join to the record
- provider_call: a call with the fakes of hosted providers
- recorded_call: a recorded call whose words and mouth can be found in the file
- sdp: the offer of a third-party client, as text
- livekit_client: a participant of a LiveKit room, with the official SDK
- livekit_crowd: many participants, as a process
- livekit_signals: participants without media
- livekit_pages: pages with LiveKit's clients for browsers

Stand-ins for what the server or the browser talks to:

- receivers: a webhook receiver, a web site, a tool, an OpenAI-compatible model
- webhook_receiver: a receiver of many webhooks, as a process
- mcp_server: an MCP server, as a process
- providers: hosted speech-to-text, language models and text-to-speech
- preview_stub: avatar previews without drawing
- object_storage: MinIO, with a relay in front of it
- livekit_server: livekit-server, its tokens and its API
- livekit_rooms: our servers that serve its rooms
- livekit_fake_worker: a worker that LiveKit asks, and that does not answer
- network_link: a link with limited bandwidth, between network namespaces
- relay: a network with loss, delay, reordering and limited bandwidth

Words and sounds:

- sample_knowledge: invented knowledge for an agent
- scripted_stt: the script of the scripted speech-to-text
- speech: speech synthesis (flite), recognition (PocketSphinx), word errors
- filler_sounds: voiced sounds without words

Measurement:

- audio_match: whether a sound arrived, by cross-correlation of spectra
- lips: lip sync in a browser
- recording_file: the file of a recorded call, or of a video
- seeking: which pictures a file contains, and which one Chromium shows at a time
- rtp: audio and video on the server's clock
- report: the figures of a run, in report.json
"""

import contextlib
import pathlib

CHROMIUM = str(pathlib.Path(__file__).parent / "chromium.sh")


@contextlib.contextmanager
def calls_with_file(playwright, folder, samples):
    """A Chromium whose microphone plays a file once (16-bit samples at 48 kHz)."""
    from . import call, speech

    file = folder / "microphone.wav"
    file.write_bytes(speech.wav_bytes(samples, speech.SAMPLE_RATE))
    flags = [*call.FLAGS, call.FAKE_DEVICE, f"--use-file-for-fake-audio-capture={file}%noloop"]
    chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
    try:
        yield chromium
    finally:
        chromium.close()
