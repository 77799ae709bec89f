"""Text-to-speech with the vendors' own clients."""

import json

from common import TEXTS, TIMEOUT, refused_status, socket_url
from stt import deepgram_client

VOICE = "JBFqnCBsd6RMkjVDRZzb"


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


def aura(url: str, key: str) -> dict:
    from deepgram.speak.v1.types.speak_v1metadata import SpeakV1Metadata
    from deepgram.speak.v1.types.speak_v1text import SpeakV1Text

    settings = {"model": "aura-2-thalia-en", "encoding": "linear16", "sample_rate": "24000"}
    parts, sequence = [], []
    with deepgram_client(url, key).speak.v1.connect(**settings) as connection:
        metadata = connection.recv()
        assert isinstance(metadata, SpeakV1Metadata), metadata
        for text in TEXTS:
            connection.send_text(SpeakV1Text(text=text))
            connection.send_flush()
        for _ in TEXTS:
            size = 0
            while isinstance(message := connection.recv(), bytes):
                size += len(message)
            assert message.type == "Flushed", message
            parts.append(size)
            sequence.append(message.sequence_id)
        connection.send_text(SpeakV1Text(text=" ".join(TEXTS)))
        connection.send_flush()
        assert isinstance(connection.recv(), bytes)
        connection.send_clear()
        cancelled = 0
        while isinstance(message := connection.recv(), bytes):
            cancelled += len(message)
        assert message.type == "Cleared", message
        sequence.append(message.sequence_id)
        connection.send_close()

    def with_wrong_key():
        with deepgram_client(url, "wrong").speak.v1.connect(**settings):
            pass

    return {
        "model": metadata.model_name,
        "bytes": parts,
        "sequence": sequence,
        "cancelled_bytes": cancelled,
        "wrong_key": refused_status(with_wrong_key),
    }


def openai_speech(url: str, key: str) -> dict:
    import openai as sdk

    def speak(key: str, kind: str) -> tuple[str, bytes]:
        client = sdk.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)
        speaking = client.audio.speech.with_streaming_response.create(
            model="gpt-4o-mini-tts", voice="coral", input=TEXTS[0], response_format=kind
        )
        with speaking as response:
            return response.headers["content-type"], b"".join(response.iter_bytes())

    kind, samples = speak(key, "pcm")
    wav_kind, wav = speak(key, "wav")
    return {
        "kinds": [kind, wav_kind],
        "bytes": len(samples),
        "wav_is_the_same": wav.endswith(samples) and wav.startswith(b"RIFF"),
        "wav_header": len(wav) - len(samples),
        "wrong_key": refused_status(lambda: speak("wrong", "pcm")),
    }
