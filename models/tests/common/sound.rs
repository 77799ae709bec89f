//! Syllables, noise and tones that a script can generate too.

/// The signal for which the reference code was run: `sound.py`, line by line.
pub(crate) fn test_signal() -> Vec<i16> {
    const RESONANCES: [[[f64; 2]; 3]; 3] = [
        [[1.8608, -0.9409], [1.7652, -0.9409], [1.1050, -0.9216]],
        [[1.9291, -0.9409], [1.2049, -0.9409], [0.7296, -0.9216]],
        [[1.9266, -0.9409], [1.8279, -0.9409], [1.2249, -0.9216]],
    ];
    let (mut noise, mut phase, mut memory) = (1u64, 0.0f64, [[0.0f64; 2]; 3]);
    let mut out = Vec::new();
    for n in 0..204_800 {
        let (segment, at) = (n / 12_800, n % 12_800);
        noise = (noise * 1_103_515_245 + 12_345) % 2_147_483_648;
        let white = noise as f64 / 1_073_741_824.0 - 1.0;
        let kind = segment % 4;
        let x = if kind == 0 {
            white * 30.0
        } else if kind == 1 || kind == 2 {
            let syllable = (at % 2_133) as f64 / 2_133.0;
            let loud = 4.0 * syllable * (1.0 - syllable);
            phase += (160.0 - 60.0 * at as f64 / 12_800.0) / 16_000.0;
            let mut pulse = 0.0;
            if phase >= 1.0 {
                phase -= 1.0;
                pulse = 1.0;
            }
            let vowel = (at / 2_133 + segment) % 3;
            let mut x = 0.0;
            for (band, [a, b]) in RESONANCES[vowel].into_iter().enumerate() {
                let y = pulse + a * memory[band][0] + b * memory[band][1];
                memory[band] = [y, memory[band][0]];
                x += y * [1.0, 0.5, 0.25][band];
            }
            x * loud * if kind == 1 { 900.0 } else { 250.0 }
                + white * if kind == 1 { 20.0 } else { 200.0 }
        } else if at < 6_400 {
            white * 3000.0
        } else if at % 32 < 16 {
            8000.0
        } else {
            -8000.0
        };
        out.push(x.clamp(-32_768.0, 32_767.0) as i16);
    }
    out
}
