"""What the end-to-end tests are made of."""

import contextlib
import pathlib

CHROMIUM = str(pathlib.Path(__file__).parent / "chromium.sh")


@contextlib.contextmanager
def calls_with_file(playwright, folder, samples):
    """A Chromium whose microphone is a file (16-bit samples at 48 kHz), once."""
    from . import call, voice

    file = folder / "microphone.wav"
    file.write_bytes(voice.wav(samples, voice.RATE))
    flags = [*call.FLAGS, call.FAKE_DEVICE, f"--use-file-for-fake-audio-capture={file}%noloop"]
    chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
    try:
        yield chromium
    finally:
        chromium.close()
