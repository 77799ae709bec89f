"""From samples to what the network hears, and what makes one voice sound like many."""

import numpy as np

# A frame tells of 10 ms and sees 25: from 7.5 ms before to 7.5 ms after them. Its bins are 40 Hz apart at any rate.
FRAMES_PER_SECOND, BIN = 100, 40
BANDS, LOWEST, HIGHEST = 24, 60.0, 7_600.0
# Power that is added to every band: what is quieter than about -65 dBFS is silence.
FLOOR = 1e-9


def mel(hertz):
    return 2595.0 * np.log10(1.0 + hertz / 700.0)


def filters(bins):
    """[bins, BANDS]: triangles of height 1, evenly spaced on the mel scale."""
    edges = 700.0 * (10.0 ** (np.linspace(mel(LOWEST), mel(HIGHEST), BANDS + 2) / 2595.0) - 1.0)
    f = np.arange(bins)[:, None] * BIN
    low, middle, high = edges[:-2], edges[1:-1], edges[2:]
    return np.maximum(np.minimum((f - low) / (middle - low), (high - f) / (high - middle)), 0.0)


def features(sound, rate):
    """[frames, BANDS]: logarithms of the power in each band. `sound` is within -1..1; `rate` a multiple of 400 Hz, so that windows are whole."""
    window, hop = rate // BIN, rate // FRAMES_PER_SECOND
    frames = len(sound) // hop
    before = (window - hop) // 2
    padded = np.concatenate([np.zeros(before), sound, np.zeros(window)]).astype(np.float32)
    at = np.arange(frames)[:, None] * hop + np.arange(window)
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    spectrum = np.fft.rfft(padded[at] * (hann / hann.sum()).astype(np.float32), axis=1)
    power = spectrum.real**2 + spectrum.imag**2
    return np.log(power @ filters(power.shape[1]).astype(np.float32) + np.float32(FLOOR)).astype(np.float32)


def resample(sound, length):
    """The same sound in `length` samples: band-limited, by its spectrum."""
    spectrum = np.fft.rfft(sound)
    bins = length // 2 + 1
    kept = np.zeros(bins, complex)
    kept[: min(bins, len(spectrum))] = spectrum[:bins]
    return np.fft.irfft(kept, length) * (length / len(sound))


def varied(pcm, rate, random, plain):
    """Sound at 16 kHz, within -1..1, and by how much it is longer than it was. `plain`: unchanged but for loudness and rate."""
    sound = pcm / 32_768.0
    # Played slower or faster: another vocal tract, pitch and tempo.
    longer = 1.0 if plain else float(np.exp(random.uniform(np.log(0.84), np.log(1.2))))
    sound = resample(sound, round(len(sound) * 16_000 / rate * longer))
    loud = np.sqrt(np.mean(sound**2)) + 1e-6
    # From -32 to -14 dBFS over all, pauses included.
    sound = sound * (10 ** (random.uniform(-32, -14) / 20) / loud)
    if plain:
        return sound, longer
    if random.random() < 0.2:
        # A room: echoes of .1 to .3 s that die away, 8 to 20 dB below the voice.
        time = np.arange(4_800) / 16_000
        echo = random.standard_normal(4_800) * np.exp(-6.9 * time / random.uniform(0.1, 0.3))
        echo *= 10 ** (-random.uniform(8, 20) / 20) / np.sqrt(np.sum(echo**2))
        echo[0] = 1.0
        n = len(sound) + 4_800
        sound = np.fft.irfft(np.fft.rfft(sound, n) * np.fft.rfft(echo, n), n)[: len(sound)]
    spectrum = np.fft.rfft(sound)
    f = np.linspace(0, 8_000, len(spectrum))
    # Another microphone: a slope and two bumps.
    gain = random.uniform(-4, 4) * np.log2(np.maximum(f, 100) / 1_000)
    for _ in range(2):
        centre, width = random.uniform(200, 7_000), random.uniform(300, 2_000)
        gain += random.uniform(-6, 6) * np.exp(-(((f - centre) / width) ** 2))
    # A source of 8 kHz, or one whose upper bands are weak.
    edge = random.choice([3_700, random.uniform(4_500, 8_000), 8_000], p=[0.12, 0.28, 0.6])
    gain -= np.clip((f - edge) / 300, 0, 1) * 80
    spectrum *= 10 ** (np.clip(gain, -90, 20) / 20)
    if random.random() < 0.5:
        # Noise 25 to 55 dB below the voice, white to brown.
        noise = random.standard_normal(len(spectrum)) + 1j * random.standard_normal(len(spectrum))
        noise *= np.maximum(f, 50) ** -random.uniform(0, 1)
        ratio = np.linalg.norm(spectrum) / np.linalg.norm(noise)
        spectrum += noise * ratio * 10 ** (-random.uniform(25, 55) / 20)
    return np.clip(np.fft.irfft(spectrum, len(sound)), -1, 1), longer
