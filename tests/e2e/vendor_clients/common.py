"""What the checks of all vendors share."""

import pathlib

#: Seconds for an answer.
TIMEOUT = 20
#: 100 ms of audio.
CHUNK_BYTES = 3200
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
