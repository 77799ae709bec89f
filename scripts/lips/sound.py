"""Audio features of the phone network, and augmentation, which makes one voice sound like many."""

import numpy as np

# A frame represents 10 ms and is computed from 25 ms: 7.5 ms more on either side. The bins of the
# spectrum are 40 Hz apart at any sample rate.
FRAMES_PER_SECOND, BIN_HZ = 100, 40
BANDS, MIN_HZ, MAX_HZ = 24, 60.0, 7_600.0
# Power that is added to every band. It hides everything below about -65 dBFS.
POWER_FLOOR = 1e-9


def hertz_to_mel(hertz):
    return 2595.0 * np.log10(1.0 + hertz / 700.0)


def mel_filters(bins):
    """[bins, BANDS]: triangles of height 1, evenly spaced on the mel scale."""
    mels = np.linspace(hertz_to_mel(MIN_HZ), hertz_to_mel(MAX_HZ), BANDS + 2)
    edges = 700.0 * (10.0 ** (mels / 2595.0) - 1.0)
    f = np.arange(bins)[:, None] * BIN_HZ
    low, middle, high = edges[:-2], edges[1:-1], edges[2:]
    return np.maximum(np.minimum((f - low) / (middle - low), (high - f) / (high - middle)), 0.0)


def log_mel_features(sound, rate):
    """[frames, BANDS]: logarithms of the power in each band. `sound` is in the range -1..1; `rate`
    is a multiple of 400 Hz, so that windows have a whole number of samples."""
    window, hop = rate // BIN_HZ, rate // FRAMES_PER_SECOND
    frames = len(sound) // hop
    before = (window - hop) // 2
    padded = np.concatenate([np.zeros(before), sound, np.zeros(window)]).astype(np.float32)
    indices = np.arange(frames)[:, None] * hop + np.arange(window)
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    spectrum = np.fft.rfft(padded[indices] * (hann / hann.sum()).astype(np.float32), axis=1)
    power = spectrum.real**2 + spectrum.imag**2
    band_power = power @ mel_filters(power.shape[1]).astype(np.float32)
    return np.log(band_power + np.float32(POWER_FLOOR)).astype(np.float32)


def resample(sound, length):
    """The same sound in `length` samples, band-limited by its spectrum."""
    spectrum = np.fft.rfft(sound)
    bins = length // 2 + 1
    cropped = np.zeros(bins, complex)
    cropped[: min(bins, len(spectrum))] = spectrum[:bins]
    return np.fft.irfft(cropped, length) * (length / len(sound))


def augment(pcm, rate, rng, plain):
    """Returns a random variation of the sound, at 16 kHz and in the range -1..1, and the ratio of
    its duration to the original. `plain`: only the loudness and the sample rate change."""
    sound = pcm / 32_768.0
    # Slower or faster playback imitates another vocal tract, pitch and tempo.
    duration_factor = 1.0 if plain else float(np.exp(rng.uniform(np.log(0.84), np.log(1.2))))
    sound = resample(sound, round(len(sound) * 16_000 / rate * duration_factor))
    rms = np.sqrt(np.mean(sound**2)) + 1e-6
    # From -32 to -14 dBFS on average, pauses included.
    sound = sound * (10 ** (rng.uniform(-32, -14) / 20) / rms)
    if plain:
        return sound, duration_factor
    if rng.random() < 0.2:
        # A room: an echo that decays within .1 to .3 s, 8 to 20 dB below the voice.
        time = np.arange(4_800) / 16_000
        echo = rng.standard_normal(4_800) * np.exp(-6.9 * time / rng.uniform(0.1, 0.3))
        echo *= 10 ** (-rng.uniform(8, 20) / 20) / np.sqrt(np.sum(echo**2))
        echo[0] = 1.0
        n = len(sound) + 4_800
        sound = np.fft.irfft(np.fft.rfft(sound, n) * np.fft.rfft(echo, n), n)[: len(sound)]
    spectrum = np.fft.rfft(sound)
    f = np.linspace(0, 8_000, len(spectrum))
    # Another microphone: a slope and two peaks.
    gain = rng.uniform(-4, 4) * np.log2(np.maximum(f, 100) / 1_000)
    for _ in range(2):
        centre, width = rng.uniform(200, 7_000), rng.uniform(300, 2_000)
        gain += rng.uniform(-6, 6) * np.exp(-(((f - centre) / width) ** 2))
    # A source at 8 kHz, or one whose upper bands are weak.
    cutoff = rng.choice([3_700, rng.uniform(4_500, 8_000), 8_000], p=[0.12, 0.28, 0.6])
    gain -= np.clip((f - cutoff) / 300, 0, 1) * 80
    spectrum *= 10 ** (np.clip(gain, -90, 20) / 20)
    if rng.random() < 0.5:
        # Noise 25 to 55 dB below the voice, white to brown.
        noise = rng.standard_normal(len(spectrum)) + 1j * rng.standard_normal(len(spectrum))
        noise *= np.maximum(f, 50) ** -rng.uniform(0, 1)
        ratio = np.linalg.norm(spectrum) / np.linalg.norm(noise)
        spectrum += noise * ratio * 10 ** (-rng.uniform(25, 55) / 20)
    return np.clip(np.fft.irfft(spectrum, len(sound)), -1, 1), duration_factor
