"""The script of the server's scripted speech-to-text (provider "script"). With it, no test depends
on a recognizer."""

import json

from . import speech


def stt_script(transcripts: list, tap: str | None = None) -> str:
    """The script for `config.stt.model`. Each utterance is one of these: a text that voice "slt"
    speaks; `(text, voice)`; `(text, seconds)` where the test makes the sound itself (an empty text
    is a sound without words); or a dictionary in the form of models/src/scripted.rs. A call
    recognizes them in this order, one for each speech segment, and then starts again from the
    first. `tap` names the file that receives the samples given to the speech-to-text."""
    utterances = [
        one if isinstance(one, dict) else utterance(*([one] if isinstance(one, str) else one))
        for one in transcripts
    ]
    return json.dumps({"utterances": utterances, **({"tap": tap} if tap else {})})


def utterance(text: str, sound: str | float = "slt") -> dict:
    """One utterance. Its length keeps it whole where the VAD splits it at a pause."""
    seconds = speech.speak_wav(text, sound)[1] if isinstance(sound, str) else sound
    return {
        "transcript": text,
        "onset_s": 0.0,
        "end_s": round(seconds, 3),
        "sound_s": round(seconds, 3),
    }
