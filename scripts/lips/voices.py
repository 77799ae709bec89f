"""Synthetic voices that report the end of each phone: those of flite and espeak-ng, through their C
libraries (Debian: libflite1, libespeak-ng1)."""

import ctypes as c
from typing import ClassVar

import numpy as np

# Both engines use C's random numbers for breath noise. The seed is set before each sentence, so the
# same text gives the same samples.
LIBC = c.CDLL(None)

# --- flite ------------------------------------------------------------------------------------


class Wave(c.Structure):
    """`cst_wave` of flite 2.x."""

    _fields_ = [
        ("kind", c.c_char_p),
        ("sample_rate", c.c_int),
        ("num_samples", c.c_int),
        ("num_channels", c.c_int),
        ("samples", c.POINTER(c.c_int16)),
    ]


class Utterance(c.Structure):
    """`cst_utterance`; its first field contains its features."""

    _fields_ = [("features", c.c_void_p)]


class Flite:
    """One of flite's voices (`slt`, `rms`, `awb`, `kal16`, `kal`)."""

    library = None
    # The voices that are registered in the library.
    voices: ClassVar[dict] = {}

    def __init__(self, voice):
        if Flite.library is None:
            Flite.library = lib = c.CDLL("libflite.so.1", mode=c.RTLD_GLOBAL)
            for name, result, arguments in [
                ("new_utterance", c.POINTER(Utterance), []),
                ("delete_utterance", None, [c.c_void_p]),
                ("utt_set_input_text", c.c_int, [c.c_void_p, c.c_char_p]),
                ("utt_init", c.c_void_p, [c.c_void_p, c.c_void_p]),
                ("utt_synth", c.c_void_p, [c.c_void_p]),
                ("utt_wave", c.POINTER(Wave), [c.c_void_p]),
                ("utt_relation", c.c_void_p, [c.c_void_p, c.c_char_p]),
                ("relation_head", c.c_void_p, [c.c_void_p]),
                ("item_next", c.c_void_p, [c.c_void_p]),
                ("item_feat_string", c.c_char_p, [c.c_void_p, c.c_char_p]),
                ("item_feat_float", c.c_float, [c.c_void_p, c.c_char_p]),
                ("feat_set_float", None, [c.c_void_p, c.c_char_p, c.c_float]),
            ]:
                function = getattr(lib, name)
                function.restype, function.argtypes = result, arguments
            lib.flite_init()
        if voice not in Flite.voices:
            voice_library = c.CDLL(f"libflite_cmu_us_{voice}.so.1")
            register = getattr(voice_library, f"register_cmu_us_{voice}")
            register.restype, register.argtypes = c.c_void_p, [c.c_char_p]
            Flite.voices[voice] = register(None)
        self.voice = Flite.voices[voice]

    def say(self, text, duration_factor=1.0, pitch=1.0):
        """Returns the samples (int16), their rate, and the phones as (name, end in seconds). A
        `duration_factor` of 2 doubles the duration. flite ignores `pitch`."""
        lib = Flite.library
        utterance = lib.new_utterance()
        lib.utt_set_input_text(utterance, text.encode("ascii"))
        lib.utt_init(utterance, self.voice)
        lib.feat_set_float(utterance.contents.features, b"duration_stretch", duration_factor)
        LIBC.srand(1)
        lib.utt_synth(utterance)
        phones, item = [], lib.relation_head(lib.utt_relation(utterance, b"Segment"))
        while item:
            phones.append(
                (lib.item_feat_string(item, b"name").decode(), lib.item_feat_float(item, b"end"))
            )
            item = lib.item_next(item)
        wave = lib.utt_wave(utterance).contents
        pcm = np.ctypeslib.as_array(wave.samples, (wave.num_samples,)).copy()
        rate = wave.sample_rate
        lib.delete_utterance(utterance)
        return pcm, rate, phones


# --- espeak-ng --------------------------------------------------------------------------------


class EventId(c.Union):
    """The union `id` of `espeak_EVENT`."""

    _fields_ = [("number", c.c_int), ("name", c.c_char_p), ("string", c.c_char * 8)]


class Event(c.Structure):
    """`espeak_EVENT` of espeak-ng 1.51."""

    _fields_ = [
        ("type", c.c_int),
        ("unique_identifier", c.c_uint),
        ("text_position", c.c_int),
        ("length", c.c_int),
        ("audio_position", c.c_int),
        ("sample", c.c_int),
        ("user_data", c.c_void_p),
        ("id", EventId),
    ]


CALLBACK = c.CFUNCTYPE(c.c_int, c.POINTER(c.c_int16), c.c_int, c.POINTER(Event))
SYNCHRONOUS, PHONEME_EVENTS, PHONEME, UTF8 = 2, 1, 7, 1
RATE_PARAMETER, PITCH_PARAMETER, RANGE_PARAMETER = 1, 3, 4

# espeak-ng's mnemonics for English, without stress marks, as phones of the CMU set. A mnemonic with
# a second vowel or an r has two phones.
MNEMONICS = {
    "": "pau", "_": "pau", "_:": "pau", "_!": "pau", "_|": "pau", "_^_": "pau", ";": "y",
    "?": "pau", "_;_": "pau",
    "p": "p", "b": "b", "m": "m", "f": "f", "v": "v", "T": "th", "D": "dh", "t": "t", "d": "d",
    "t2": "t", "t#": "dx", "*": "dx",
    "k": "k", "g": "g", "N": "ng", "x": "k", "h": "hh", "tS": "ch", "dZ": "jh", "S": "sh",
    "Z": "zh", "s": "s", "z": "z", "z#": "z",
    "d#": "d", "z/2": "z", "s;": "s", "n": "n", "n-": "n", "l": "l", "l#": "l", "l/": "l",
    "L": "l", "@L": "el", "r": "r", "r-": "r", "r/": "r",
    "w": "w", "W": "w", "w#": "w", "j": "y", "m-": "m",
    "@": "ax", "@#": "ax", "a#": "ax", "@2": "ax", "@5": "ax", "@-": "ax", "3": "axr", "3:": "er",
    "I": "ih", "I2": "ih", "i": "iy", "i:": "iy",
    "I#": "ih", "E": "eh", "E2": "eh", "E#": "eh", "e": "eh", "a": "ae", "aa": "ae", "A": "aa",
    "A:": "aa", "A#": "aa", "0": "aa", "0#": "aa", "02": "ah",
    "V": "ah", "V2": "ah", "O": "ao", "O2": "ao", "O:": "ao", "o": "ao", "o:": "ow", "U": "uh",
    "u": "uw", "u:": "uw", "y": "uw", "8": "uh", "W:": "uw",
    "e:": "ey", "aI": "ay", "aU": "aw", "eI": "ey", "oU": "ow", "@U": "ow", "OI": "oy",
    "aI@": "ay ax", "aI3": "ay axr", "aI2": "ay", "t[": "t",
    "aU@": "aw ax", "i@": "ih ax", "i@3": "ih r", "e@": "eh r", "E@": "eh ax", "A@": "aa r",
    "o@": "ao r", "O@": "ao r", "U@": "uh r", "u@": "uh ax",
    "3@": "er", "oU#": "ow", "@@": "er", "IR": "axr", "VR": "axr",
}  # fmt: skip


class Espeak:
    """One of espeak-ng's English voices with a variant, such as `en-us+f2`."""

    library = None
    rate = 22050

    def __init__(self, voice):
        if Espeak.library is None:
            Espeak.library = lib = c.CDLL("libespeak-ng.so.1")
            Espeak.rate = lib.espeak_Initialize(SYNCHRONOUS, 500, None, PHONEME_EVENTS)
            if Espeak.rate <= 0:
                raise RuntimeError("espeak-ng does not find its data")
            Espeak.phone_events, Espeak.chunks = [], []
            # Stored, because the library holds no reference.
            Espeak.callback = CALLBACK(Espeak.on_samples)
            lib.espeak_SetSynthCallback(Espeak.callback)
        self.voice = voice

    @staticmethod
    def on_samples(wave, count, events):
        """Receives samples and events from the library."""
        if wave and count > 0:
            Espeak.chunks.append(np.ctypeslib.as_array(wave, (count,)).copy())
        n = 0
        while events[n].type != 0:
            if events[n].type == PHONEME:
                Espeak.phone_events.append(
                    (events[n].id.string.decode(errors="replace"), events[n].sample)
                )
            n += 1
        return 0

    def say(self, text, duration_factor=1.0, pitch=1.0):
        """As [`Flite.say`]. A `pitch` of 1 is that of the voice, .5 is low, 1.5 is high."""
        lib = Espeak.library
        if lib.espeak_SetVoiceByName(self.voice.encode()) != 0:
            raise RuntimeError(f"espeak-ng has no voice {self.voice}")
        lib.espeak_SetParameter(RATE_PARAMETER, round(165 / duration_factor), 0)
        lib.espeak_SetParameter(PITCH_PARAMETER, round(50 * pitch), 0)
        lib.espeak_SetParameter(RANGE_PARAMETER, round(50 * pitch), 0)
        Espeak.phone_events, Espeak.chunks = [], []
        data = text.encode() + b"\0"
        LIBC.srand(1)
        error = lib.espeak_Synth(data, len(data), 0, 1, 0, UTF8, None, None)
        if error != 0 or lib.espeak_Synchronize() != 0:
            raise RuntimeError("espeak-ng does not synthesize the text")
        pcm = np.concatenate(Espeak.chunks)
        # An event marks the beginning of a phone.
        starts = [sample / Espeak.rate for _, sample in Espeak.phone_events]
        starts.append(len(pcm) / Espeak.rate)
        phones = []
        if starts[0] > 0:
            phones.append(("pau", starts[0]))
        for (name, _), start, end in zip(Espeak.phone_events, starts, starts[1:], strict=False):
            cmu_phones = to_cmu_phones(name, start, end)
            if cmu_phones[0][0] in STOPS and phones:
                # espeak-ng counts the closure of a stop, which is silent, as a part of the phone
                # before it.
                phones[-1] = (phones[-1][0], closure_start(pcm, start))
            phones += cmu_phones
        return pcm, Espeak.rate, phones


# Phones that begin with a closure.
STOPS = {"p", "b", "t", "d", "k", "g", "ch", "jh"}
MAX_CLOSURE_SECONDS = 0.08


def closure_start(pcm, start):
    """The beginning of the silence that ends at `start`, at most MAX_CLOSURE_SECONDS before it."""
    end = round(start * Espeak.rate)
    earliest = max(0, end - round(MAX_CLOSURE_SECONDS * Espeak.rate))
    sound = np.flatnonzero(pcm[earliest:end])
    return (earliest + sound[-1] + 1 if len(sound) else earliest) / Espeak.rate


def to_cmu_phones(mnemonic, start, end):
    """The phones of the CMU set for one of espeak-ng's, with their ends."""
    plain = mnemonic.strip("',%=|~")
    if plain not in MNEMONICS:
        raise KeyError(f"espeak-ng's phone {mnemonic!r} is not in the table")
    names = MNEMONICS[plain].split()
    # The first of two phones gets 65 % of the duration.
    ends = [end] if len(names) == 1 else [start + 0.65 * (end - start), end]
    return list(zip(names, ends, strict=True))
