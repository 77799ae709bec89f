"""What the server's scripted speech-to-text understands (provider "script"), so that no test depends on a recogniser."""

import json

from . import voice


def script(hears: list, tap: str | None = None) -> str:
    """The script for `config.stt.model`. Each utterance is a text that voice "slt" speaks, `(text, voice)`, `(text, seconds)` where the test makes
    the sound itself (an empty text: a sound without words), or a dictionary in the form of models/src/script.rs. A call understands them in this order, one for each stretch of
    speech, and then again from the first. `tap`: the file that receives the samples which the speech-to-text is given."""
    utterances = [one if isinstance(one, dict) else utterance(*([one] if isinstance(one, str) else one)) for one in hears]
    return json.dumps({"utterances": utterances, **({"tap": tap} if tap else {})})


def utterance(text: str, sound: str | float = "slt") -> dict:
    """One utterance. Its length keeps it whole where the detector parts it at a pause."""
    seconds = voice.say(text, sound)[1] if isinstance(sound, str) else sound
    return {"transcript": text, "onset_s": 0.0, "end_s": round(seconds, 3), "sound_s": round(seconds, 3)}
