//! Which poses of a person are drawn and baked.

use character::{Brows, Eyes, Head, Mouth};
use serde::Serialize;

use super::set::{Look, Stance};

/// Which poses are drawn, relative to rest.
#[derive(Serialize)]
pub struct Plan {
    /// Heads and smiles, rest first.
    pub stances: Vec<Stance>,
    /// Eyes and brows, rest first.
    pub looks: Vec<Look>,
    /// How many of the looks, from the first on, are baked with every mouth.
    pub talking: usize,
    /// Mouths, the closed one first.
    pub mouths: Vec<Mouth>,
    /// For each stance but the first the looks that it is baked with.
    pub stance_looks: Vec<Vec<u8>>,
    /// How far the chest is up, breathed out first.
    pub breaths: Vec<f32>,
    /// Stances and looks that breathe, the mouth closed.
    pub breathing: Vec<(u8, u8)>,
    /// Quantiser of the key.
    pub key_quantizer: u32,
    /// Quantisers of the poses, finest first: the first with which the set is small enough is taken.
    pub quantizers: Vec<u32>,
    /// How much coarser the further rungs are.
    pub coarser: Vec<u32>,
}

impl Plan {
    /// The poses that [`crate::face`]'s users (blinks, glances, a thinker's look away, a listener's lean and nod) ask for.
    #[must_use]
    pub fn new() -> Self {
        let look = |lids, gaze_x, gaze_y, raise| Look {
            eyes: Eyes { lids, gaze_x, gaze_y, squint: 0.0 },
            brows: Brows { raise, knit: 0.0 },
        };
        let stance = |lean: f32, nod: f32, smile: f32| Stance {
            head: Head { yaw: 0.025 * lean, pitch: 0.012 * lean + nod, roll: 0.038 * lean },
            smile,
        };
        // Open, half shut, shut, a quarter shut, glances aside.
        let calm = 0..6;
        Self {
            stances: vec![
                stance(0.0, 0.0, 0.0),
                stance(0.25, 0.0, 0.0),
                stance(0.5, 0.0, 0.0),
                stance(0.75, 0.0, 0.0),
                stance(1.0, 0.0, 0.0),
                stance(1.0, 0.017, 0.0),
                stance(1.0, 0.034, 0.0),
                stance(1.0, 0.050, 0.0),
                stance(0.0, 0.0, 0.5),
                stance(0.0, 0.0, 1.0),
                stance(1.0, 0.0, 0.5),
                stance(1.0, 0.0, 1.0),
            ],
            stance_looks: vec![
                vec![0],
                vec![0],
                vec![0],
                calm.clone().collect(),
                vec![0],
                vec![0],
                vec![0],
                vec![0, 1, 2],
                vec![0, 1, 2, 3],
                vec![0, 1, 2],
                vec![0, 1, 2, 3],
            ],
            breaths: vec![0.0, 1.0 / 3.0, 2.0 / 3.0, 1.0],
            breathing: [0, 4]
                .into_iter()
                .flat_map(|stance| calm.clone().map(move |look| (stance, look)))
                .collect(),
            looks: vec![
                look(0.0, 0.0, 0.0, 0.0),
                look(0.55, 0.0, 0.0, 0.0),
                look(1.0, 0.0, 0.0, 0.0),
                look(0.25, 0.0, 0.0, 0.0),
                look(0.0, -0.4, -0.05, 0.0),
                look(0.0, 0.4, -0.05, 0.0),
                look(0.0, 0.0, 0.0, 0.5),
                look(0.0, 0.55, 0.5, 0.4),
                look(0.55, 0.55, 0.5, 0.4),
                look(1.0, 0.0, 0.0, 0.4),
            ],
            talking: 7,
            mouths: mouths(),
            key_quantizer: 8,
            quantizers: vec![30, 34, 38, 42, 48, 54],
            coarser: vec![20],
        }
    }
}

impl Default for Plan {
    fn default() -> Self {
        Self::new()
    }
}

/// The mouths of speech: closures, then openings by shape.
fn mouths() -> Vec<Mouth> {
    let m = |jaw, width, round, tongue| Mouth { jaw, width, round, tongue, ..Mouth::default() };
    let mut all = vec![
        Mouth::default(),
        Mouth { press: 1.0, ..m(0.04, 0.0, 0.1, 0.0) },
        Mouth { press: 1.0, ..m(0.04, -0.2, 0.7, 0.0) },
        Mouth { press: 0.5, ..m(0.14, 0.1, 0.05, 0.0) },
        Mouth { press: 0.5, ..m(0.12, -0.2, 0.6, 0.0) },
        Mouth { tuck: 1.0, ..m(0.18, 0.1, 0.05, 0.0) },
        Mouth { tuck: 0.5, ..m(0.26, 0.1, 0.05, 0.0) },
        m(0.28, 0.1, 0.0, 1.0),
        m(0.18, 0.2, 0.0, 0.55),
        m(0.34, 0.2, 0.0, 0.55),
    ];
    all.extend([0.08, 0.17, 0.28, 0.40, 0.54, 0.70, 0.88].map(|jaw| m(jaw, 0.1, 0.05, 0.1)));
    all.extend([0.08, 0.17, 0.28, 0.42].map(|jaw| m(jaw, 0.55, 0.0, 0.15)));
    all.extend([0.10, 0.20, 0.30, 0.42, 0.56, 0.70].map(|jaw| m(jaw, -0.15, 0.45, 0.1)));
    all.extend([0.10, 0.20, 0.30, 0.44].map(|jaw| m(jaw, -0.25, 0.9, 0.0)));
    all
}
