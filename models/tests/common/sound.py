"""The test signal for comparisons with reference code: syllables (a pulse train through three
resonances, with varying pitch and loudness), noise, silence, and a loud tone. It is computed from
integers and IEEE doubles, without library functions whose last digit may differ. So Rust computes
the same samples: test_signal() in sound.rs has the same code, line by line.
"""

RATE, LENGTH = 16_000, 204_800


def samples():
    """LENGTH 16-bit samples, in segments of 0.8 s of different kinds."""
    out, noise, phase, memory = [], 1, 0.0, [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    for n in range(LENGTH):
        segment, position = n // 12_800, n % 12_800
        noise = (noise * 1_103_515_245 + 12_345) % 2_147_483_648
        white = noise / 1_073_741_824.0 - 1.0
        kind = segment % 4
        if kind == 0:
            x = white * 30.0
        elif kind == 1 or kind == 2:
            # Six syllables per segment, each rising and falling in loudness. The pitch falls from
            # 160 to 100 Hz.
            syllable = position % 2_133 / 2_133.0
            loudness = 4.0 * syllable * (1.0 - syllable)
            phase += (160.0 - 60.0 * position / 12_800.0) / RATE
            pulse = 0.0
            if phase >= 1.0:
                phase -= 1.0
                pulse = 1.0
            vowel = (position // 2_133 + segment) % 3
            x = 0.0
            for band, (a, b) in enumerate(RESONANCES[vowel]):
                y = pulse + a * memory[band][0] + b * memory[band][1]
                memory[band] = [y, memory[band][0]]
                x += y * (1.0, 0.5, 0.25)[band]
            x = x * loudness * (900.0 if kind == 1 else 250.0) + white * (
                20.0 if kind == 1 else 200.0
            )
        else:
            x = white * 3000.0 if position < 6_400 else (8000.0 if position % 32 < 16 else -8000.0)
        out.append(int(max(-32_768.0, min(32_767.0, x))))
    return out


# 2 r cos(2 pi f / 16000) and -r^2 of the first three formants of a, i, u (730 1090 2440,
# 270 2290 3010, 300 870 2240 Hz; r = .97, .97, .96), as constants.
RESONANCES = [
    [(1.8608, -0.9409), (1.7652, -0.9409), (1.1050, -0.9216)],
    [(1.9291, -0.9409), (1.2049, -0.9409), (0.7296, -0.9216)],
    [(1.9266, -0.9409), (1.8279, -0.9409), (1.2249, -0.9216)],
]
