"""Talks to the fake of one vendor with the vendor's own client, and prints what the client
understood as JSON. It runs with the packages of requirements.txt, and knows nothing of the fakes.

    check.py VENDOR URL KEY [FILE]    FILE: 16-bit samples at 16 kHz, for speech-to-text
"""

import json
import pathlib
import sys
import threading

#: Seconds for an answer.
TIMEOUT = 20
#: 100 ms of audio.
CHUNK_BYTES = 3200
VOICE = "JBFqnCBsd6RMkjVDRZzb"
TEXTS = ["Hello there, how are you? ", "The museum opens at nine. "]


def chunks(file: str):
    samples = pathlib.Path(file).read_bytes()
    for at in range(0, len(samples), CHUNK_BYTES):
        yield samples[at : at + CHUNK_BYTES].ljust(CHUNK_BYTES, b"\0")


def socket_url(url: str) -> str:
    return url.replace("http://", "ws://")


def refused_status(work) -> int | None:
    """The status with which `work()` is refused. Each client wraps it in its own way."""
    try:
        work()
    except Exception as error:
        response = getattr(error, "response", None)
        status = getattr(error, "status_code", None) or getattr(response, "status_code", None)
        if status is None:
            raise
        return status
    return None


def deepgram(url: str, key: str, file: str) -> dict:
    from deepgram import DeepgramClient
    from deepgram.environment import DeepgramClientEnvironment
    from deepgram.listen.v1.types.listen_v1metadata import ListenV1Metadata
    from deepgram.listen.v1.types.listen_v1results import ListenV1Results

    def client(key):
        socket = socket_url(url)
        environment = DeepgramClientEnvironment(
            base=url, production=socket, agent=socket, agent_rest=url
        )
        return DeepgramClient(api_key=key, environment=environment)

    settings = {
        "model": "nova-3",
        "encoding": "linear16",
        "sample_rate": "16000",
        "channels": "1",
        "interim_results": "true",
        "endpointing": "false",
    }
    interims, final, words = [], None, []
    with client(key).listen.v1.connect(**settings) as connection:
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
        with client("wrong").listen.v1.connect(**settings):
            pass

    return {
        "interims": interims,
        "final": final,
        "words": words,
        "duration": duration,
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


def anthropic(url: str, key: str) -> dict:
    import anthropic as sdk

    def stream(key):
        client = sdk.Anthropic(base_url=url, api_key=key, max_retries=0)
        return client.messages.stream(
            model="claude-haiku-4-5",
            max_tokens=100,
            messages=[{"role": "user", "content": "What is new?"}],
        )

    with stream(key) as events:
        deltas = list(events.text_stream)
        message = events.get_final_message()

    def with_wrong_key():
        with stream("wrong"):
            pass

    return {
        "deltas": len(deltas),
        "text": "".join(deltas),
        "whole": message.content[0].text,
        "stop_reason": message.stop_reason,
        "output_tokens": message.usage.output_tokens,
        "wrong_key": refused_status(with_wrong_key),
    }


def openai(url: str, key: str) -> dict:
    import openai as sdk

    def stream(key):
        client = sdk.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)
        return client.chat.completions.create(
            model="gpt-4.1-mini",
            messages=[{"role": "user", "content": "What is new?"}],
            stream=True,
            stream_options={"include_usage": True},
        )

    parts, reasons, usage = [], [], None
    for chunk in stream(key):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            parts += [choice.delta.content] if choice.delta.content else []
            reasons += [choice.finish_reason] if choice.finish_reason else []
    return {
        "deltas": len(parts),
        "text": "".join(parts),
        "finish_reasons": reasons,
        "completion_tokens": usage.completion_tokens,
        "wrong_key": refused_status(lambda: stream("wrong")),
    }


def elevenlabs(url: str, key: str) -> dict:
    """The client has a stream of one context. For several contexts it has only the types of the
    messages, which are sent and read here."""
    from elevenlabs import (
        AudioOutputMulti,
        CloseContext,
        CloseSocket,
        FinalOutputMulti,
        InitializeConnectionMulti,
        SendTextMulti,
    )
    from elevenlabs.client import ElevenLabs
    from elevenlabs.core.unchecked_base_model import construct_type
    from websockets.sync.client import connect

    client = ElevenLabs(base_url=url, api_key=key)
    # The client accepts no address without TLS.
    client.text_to_speech._ws_base_url = socket_url(url)
    single = b"".join(
        client.text_to_speech.convert_realtime(
            VOICE, text=iter(TEXTS), model_id="eleven_flash_v2_5", output_format="pcm_24000"
        )
    )
    path = f"/v1/text-to-speech/{VOICE}/multi-stream-input"
    query = "?model_id=eleven_flash_v2_5&output_format=pcm_24000&auto_mode=true"
    seen = {"audio": 0, "characters": [], "starts": [], "final": None}
    with connect(
        socket_url(url) + path + query, additional_headers={"xi-api-key": key}, compression=None
    ) as socket:

        def send(message):
            socket.send(json.dumps({k: v for k, v in message.dict().items() if v is not None}))

        send(InitializeConnectionMulti(text=" ", context_id="r1"))
        for text in TEXTS:
            send(SendTextMulti(text=text, context_id="r1", flush=True))
        flushes = 0
        while seen["final"] is None:
            data = json.loads(socket.recv(TIMEOUT))
            if data.get("type") == "flush_done":
                flushes += 1
                if flushes == len(TEXTS):
                    send(CloseContext(context_id="r1", close_context=True))
                continue
            kind = FinalOutputMulti if data.get("isFinal") else AudioOutputMulti
            message = construct_type(type_=kind, object_=data)
            if kind is FinalOutputMulti:
                assert message.is_final is True
                seen["final"] = message.context_id
                continue
            assert message.context_id == "r1"
            seen["audio"] += len(message.audio)
            alignment = message.alignment
            seen["characters"] += alignment.chars
            seen["starts"] += alignment.char_start_times_ms
        send(CloseSocket(close_socket=True))
    voices = client.voices.search()
    return {
        "single_bytes": len(single),
        "text": "".join(seen["characters"]),
        "starts": len(seen["starts"]),
        "has_audio": seen["audio"] > 0,
        "final": seen["final"],
        "voices": [voice.name for voice in voices.voices],
        "wrong_key": refused_status(ElevenLabs(base_url=url, api_key="wrong").voices.search),
    }


def cartesia(url: str, key: str) -> dict:
    from cartesia import Cartesia

    def client(key):
        return Cartesia(api_key=key, base_url=url, websocket_base_url=socket_url(url))

    request = {
        "model_id": "sonic-3.5",
        "voice": {"mode": "id", "id": "6ccbfb76-1fc6-48f7-b71d-91ac6298247b"},
        "language": "en",
        "output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24000},
        "context_id": "r1",
        "add_timestamps": True,
        "max_buffer_delay_ms": 0,
    }
    audio, words, ends, kinds = 0, [], [], []
    with client(key).tts.websocket_connect() as connection:
        for number, text in enumerate(TEXTS):
            is_last = number == len(TEXTS) - 1
            connection.send({**request, "transcript": text, "continue": not is_last})
        for message in connection:
            kinds.append(message.type)
            if message.type == "chunk":
                audio += len(message.audio)
            elif message.type == "timestamps":
                words += message.word_timestamps.words
                ends += message.word_timestamps.end
            elif message.type == "done":
                break
        connection.send({**request, "context_id": "r2", "transcript": TEXTS[0], "continue": True})
        connection.send({"context_id": "r2", "cancel": True})
        for message in connection:
            if message.type == "done" and message.context_id == "r2":
                break

    def with_wrong_key():
        with client("wrong").tts.websocket_connect():
            pass

    return {
        "bytes": audio,
        "words": words,
        "ends": ends,
        "kinds": sorted(set(kinds)),
        "wrong_key": refused_status(with_wrong_key),
    }


VENDORS = {
    "deepgram": deepgram,
    "assemblyai": assemblyai,
    "anthropic": anthropic,
    "openai": openai,
    "elevenlabs": elevenlabs,
    "cartesia": cartesia,
}

if __name__ == "__main__":
    vendor, *arguments = sys.argv[1:]
    print(json.dumps(VENDORS[vendor](*arguments)))
