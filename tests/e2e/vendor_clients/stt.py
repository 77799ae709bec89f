"""Speech-to-text with the vendors' own clients."""

import array
import asyncio
import base64
import io
import threading
import wave

from common import TIMEOUT, chunks, refused_status, socket_url


def deepgram_client(url: str, key: str):
    from deepgram import DeepgramClient
    from deepgram.environment import DeepgramClientEnvironment

    socket = socket_url(url)
    environment = DeepgramClientEnvironment(
        base=url, production=socket, agent=socket, agent_rest=url
    )
    return DeepgramClient(api_key=key, environment=environment)


def deepgram(url: str, key: str, file: str) -> dict:
    from deepgram.listen.v1.types.listen_v1metadata import ListenV1Metadata
    from deepgram.listen.v1.types.listen_v1results import ListenV1Results

    settings = {
        "model": "nova-3",
        "encoding": "linear16",
        "sample_rate": "16000",
        "channels": "1",
        "interim_results": "true",
        "endpointing": "false",
    }
    interims, final, words = [], None, []
    with deepgram_client(url, key).listen.v1.connect(**settings) as connection:
        connection.send_keep_alive()
        for chunk in chunks(file):
            connection.send_media(chunk)
        connection.send_finalize()
        while final is None:
            message = connection.recv()
            assert isinstance(message, ListenV1Results), message
            best = message.channel.alternatives[0]
            if message.from_finalize:
                assert message.is_final
                final, words = best.transcript, [word.punctuated_word for word in best.words]
            elif best.transcript:
                interims.append(best.transcript)
        connection.send_close_stream()
        message = connection.recv()
        assert isinstance(message, ListenV1Metadata), message
        duration = message.duration

    def with_wrong_key():
        with deepgram_client(url, "wrong").listen.v1.connect(**settings):
            pass

    return {
        "interims": interims,
        "final": final,
        "words": words,
        "duration": duration,
        "wrong_key": refused_status(with_wrong_key),
    }


def flux(url: str, key: str, file: str) -> dict:
    from deepgram.listen.v2.types.listen_v2connected import ListenV2Connected
    from deepgram.listen.v2.types.listen_v2turn_info import ListenV2TurnInfo
    from deepgram.listen.v2.types.listen_v2warning import ListenV2Warning

    settings = {
        "model": "flux-general-en",
        "encoding": "linear16",
        "sample_rate": "16000",
        "eot_threshold": "1.0",
        "eot_timeout_ms": "60000",
    }
    events, sequence, words = [], [], []
    with deepgram_client(url, key).listen.v2.connect(**settings) as connection:
        connected = connection.recv()
        assert isinstance(connected, ListenV2Connected), connected
        sequence.append(connected.sequence_id)
        # There is no turn yet.
        connection.send_force_end_turn()
        warning = connection.recv()
        assert isinstance(warning, ListenV2Warning), warning
        sequence.append(warning.sequence_id)
        for chunk in chunks(file):
            connection.send_media(chunk)
        connection.send_force_end_turn()
        trigger = None
        while trigger is None:
            message = connection.recv()
            assert isinstance(message, ListenV2TurnInfo), message
            events.append((message.event, message.transcript))
            sequence.append(message.sequence_id)
            trigger, words = message.trigger, [word.word for word in message.words]
        connection.send_close_stream()

    # The model ends the turn.
    settings |= {"eot_threshold": "0.7", "eager_eot_threshold": "0.5"}
    by_model = []
    with deepgram_client(url, key).listen.v2.connect(**settings) as connection:
        connection.recv()
        for chunk in chunks(file):
            connection.send_media(chunk)
        for _ in range(10):
            connection.send_media(bytes(3200))
        while not by_model or by_model[-1][0] != "EndOfTurn":
            message = connection.recv()
            by_model.append((message.event, message.transcript, message.trigger))
        connection.send_close_stream()

    def with_wrong_key():
        with deepgram_client(url, "wrong").listen.v2.connect(**settings):
            pass

    return {
        "events": events,
        "sequence": sequence,
        "trigger": trigger,
        "words": words,
        "by_model": by_model,
        "warning": warning.code,
        "wrong_key": refused_status(with_wrong_key),
    }


def assemblyai(url: str, key: str, file: str) -> dict:
    from assemblyai.streaming.v3 import (
        StreamingClient,
        StreamingClientOptions,
        StreamingEvents,
        StreamingParameters,
    )

    def session(key):
        seen = {"turns": [], "began": None, "ended": None, "errors": []}
        events = {
            StreamingEvents.Begin: lambda _, event: seen.update(began=event.id),
            StreamingEvents.Turn: lambda _, event: (
                seen["turns"].append((event.end_of_turn, event.transcript, len(event.words))),
                finished.set() if event.end_of_turn else None,
            ),
            StreamingEvents.Termination: lambda _, event: seen.update(
                ended=event.audio_duration_seconds
            ),
            StreamingEvents.Error: lambda _, error: (
                seen["errors"].append(getattr(error, "code", None)),
                finished.set(),
            ),
        }
        finished = threading.Event()
        options = StreamingClientOptions(api_host=socket_url(url), api_key=key, connect_timeout=10)
        client = StreamingClient(options)
        for event, handler in events.items():
            client.on(event, handler)
        client.connect(
            StreamingParameters(
                sample_rate=16000, encoding="pcm_s16le", speech_model="universal-3-5-pro"
            )
        )
        return client, seen, finished

    client, seen, finished = session(key)
    client.keep_alive()
    client.stream(chunks(file))
    client.force_endpoint()
    assert finished.wait(TIMEOUT), seen
    client.disconnect(terminate=True)
    _, refused, finished = session("wrong")
    assert finished.wait(TIMEOUT), refused
    return seen | {"wrong_key": refused["errors"]}


def scribe(url: str, key: str, file: str) -> dict:
    from elevenlabs import AudioFormat, CommitStrategy, RealtimeEvents
    from elevenlabs.client import ElevenLabs

    async def transcribe(key: str, **more) -> dict[str, list]:
        client = ElevenLabs(base_url=url, api_key=key)
        realtime = client.speech_to_text.realtime
        realtime.base_url = socket_url(url)
        connection = await realtime.connect(
            {
                "model_id": "scribe_v2_realtime",
                "audio_format": AudioFormat.PCM_16000,
                "sample_rate": 16_000,
                "commit_strategy": CommitStrategy.MANUAL,
                "language_code": "en",
                **more,
            }
        )
        seen = {event.value: [] for event in RealtimeEvents}
        finished = asyncio.Event()
        last = "committed_transcript_with_timestamps" if more else "committed_transcript"

        def listen_to(name: str):
            def note(message=None):
                seen[name].append(message)
                if name in (last, "error", "close"):
                    finished.set()

            connection.on(name, note)

        for event in RealtimeEvents:
            listen_to(event.value)
        for chunk in chunks(file):
            await connection.send({"audio_base_64": base64.b64encode(chunk).decode()})
        await connection.commit()
        await asyncio.wait_for(finished.wait(), TIMEOUT)
        await connection.close()
        return seen

    plain = asyncio.run(transcribe(key))
    timed = asyncio.run(transcribe(key, include_timestamps=True))
    words = timed["committed_transcript_with_timestamps"][0]["words"]
    return {
        "partials": [one["text"] for one in plain["partial_transcript"]],
        "committed": [one["text"] for one in plain["committed_transcript"]],
        "errors": plain["error"] + timed["error"],
        "timed": [one["text"] for one in timed["committed_transcript"]],
        "words": [one["text"] for one in words if one["type"] == "word"],
        "wrong_key": refused_status(lambda: asyncio.run(transcribe("wrong"))),
    }


def at_24_khz(audio: bytes) -> bytes:
    """Samples at 16 kHz, interpolated."""
    samples = array.array("h", audio)
    found = array.array("h")
    for number in range((len(samples) - 1) * 3 // 2):
        at, rest = divmod(2 * number, 3)
        found.append(samples[at] + (samples[at + 1] - samples[at]) * rest // 3)
    return found.tobytes()


def openai_realtime(url: str, key: str, file: str) -> dict:
    import openai as sdk

    audio = at_24_khz(b"".join(chunks(file)))

    def connect(key: str):
        client = sdk.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)
        return client.realtime.connect(extra_query={"intent": "transcription"}, max_retries=0)

    def transcribe(model: str) -> list:
        seen = []
        with connect(key) as connection:
            settings = {
                "format": {"type": "audio/pcm", "rate": 24_000},
                "transcription": {"model": model, "language": "en"},
                "turn_detection": None,
            }
            session = {"type": "transcription", "audio": {"input": settings}}
            connection.session.update(session=session)
            for start in range(0, len(audio), 4800):
                part = base64.b64encode(audio[start : start + 4800]).decode()
                connection.input_audio_buffer.append(audio=part)
            connection.input_audio_buffer.commit()
            for event in connection:
                # An event of a shape that the client does not know has no class of its own.
                assert type(event).__name__.endswith("Event") or event.type.endswith(".added")
                seen.append(event)
                if event.type.endswith(".completed"):
                    return seen
        raise AssertionError(seen)

    def with_wrong_key():
        with connect("wrong"):
            pass

    transcription = "conversation.item.input_audio_transcription."
    found = {}
    for model in ("gpt-live-transcribe", "gpt-4o-mini-transcribe"):
        events = transcribe(model)
        kinds = [event.type.removeprefix(transcription) for event in events]
        done = events[-1]
        found[model] = {
            "kinds": kinds,
            "deltas": "".join(event.delta for event in events if event.type.endswith(".delta")),
            "transcript": done.transcript,
            "is_of_item": events[kinds.index("input_audio_buffer.committed")].item_id
            == done.item_id,
            "tokens": done.usage.total_tokens,
            "model": events[kinds.index("session.updated")].session.audio.input.transcription.model,
        }
    return found | {"wrong_key": refused_status(with_wrong_key)}


def openai_transcriptions(url: str, key: str, file: str) -> dict:
    import openai as sdk

    content = io.BytesIO()
    with wave.open(content, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(16_000)
        sound.writeframes(b"".join(chunks(file)))

    def transcribe(key: str, model: str, **more):
        client = sdk.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)
        audio = ("audio.wav", content.getvalue())
        return client.audio.transcriptions.create(file=audio, model=model, **more)

    plain = transcribe(key, "gpt-transcribe", keywords=["museum"])
    verbose = transcribe(key, "whisper-1", response_format="verbose_json", language="en")
    return {
        "text": plain.text,
        "tokens": plain.usage.total_tokens,
        "verbose": verbose.text,
        "segments": [segment.text.strip() for segment in verbose.segments],
        "duration": verbose.duration,
        "billed_seconds": verbose.usage.seconds,
        "wrong_key": refused_status(lambda: transcribe("wrong", "gpt-transcribe")),
    }
