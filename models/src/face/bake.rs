//! From a person to a pose set: draws every part once, puts the parts together, encodes every combination.

use bytes::Bytes;
use character::{Brows, Eyes, Head, Mouth, Patch, Picture, Pose, Rect, Sitter};

use super::people::Person;
use super::picture::I420;
use super::set::{self, Key, Look, Manifest, PoseSet};
use super::vp8::{self, Encoder};

/// Which poses are drawn, relative to rest.
pub struct Plan {
    /// Head poses, rest first.
    pub heads: Vec<Head>,
    /// Eyes and brows, rest first.
    pub looks: Vec<Look>,
    /// How many of the looks, from the first on, are baked with every mouth.
    pub talking: usize,
    /// Mouths, the closed one first.
    pub mouths: Vec<Mouth>,
    /// For each head but the first the looks that it is baked with.
    pub head_looks: Vec<Vec<u8>>,
    /// Quantisers of the key, of poses in which lips or eyes move, and of those in which the head moves.
    pub quantizers: [u32; 3],
}

impl Plan {
    /// The poses that [`crate::face`]'s users (blinks, glances, a thinker's look away, a listener's lean and nod) ask for.
    #[must_use]
    pub fn new() -> Self {
        let look = |lids, gaze_x, gaze_y, raise| Look {
            eyes: Eyes { lids, gaze_x, gaze_y, squint: 0.0 },
            brows: Brows { raise, knit: 0.0 },
        };
        let lean = |k: f32, nod: f32| Head { yaw: 0.025 * k, pitch: 0.012 * k + nod, roll: 0.038 * k };
        Self {
            heads: vec![
                Head::default(),
                lean(0.25, 0.0),
                lean(0.5, 0.0),
                lean(0.75, 0.0),
                lean(1.0, 0.0),
                lean(1.0, 0.017),
                lean(1.0, 0.034),
                lean(1.0, 0.050),
            ],
            head_looks: vec![vec![0], vec![0], vec![0], vec![0, 1, 2, 3, 4, 5], vec![0], vec![0], vec![0]],
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
            quantizers: [8, 30, 30],
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

/// Baking failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The encoder refused.
    #[error(transparent)]
    Vp8(#[from] vp8::Error),
    /// The set does not fit together.
    #[error(transparent)]
    Set(#[from] set::Error),
}

/// What baking makes.
pub struct Baked {
    /// The poses.
    pub set: PoseSet,
    /// A small WebP picture of the person at rest.
    pub display_picture: Vec<u8>,
    /// For each frame of the set what was encoded.
    pub pictures: Vec<I420>,
}

/// Pixels over which a moved part fades into the rest.
const FEATHER: usize = 12;
/// Differences up to this are not worth a macroblock: rounding of the bloom.
const TOLERANCE: u8 = 2;
/// Quantiser of the display picture.
const DISPLAY_QUANTIZER: u32 = 14;

/// Draws and encodes a person. `progress` is told what is done, 0 … 1.
///
/// # Errors
/// The encoder's.
pub fn bake(
    person: &Person,
    size: usize,
    plan: &Plan,
    mut progress: impl FnMut(f64),
) -> Result<Baked, Error> {
    let sitter = Sitter::new(&person.character);
    let mut pictures: Vec<(Key, I420)> = Vec::new();
    // Drawing a mouth or a look counts one, a head four.
    let parts = plan.mouths.len() + plan.looks.len() + plan.head_looks.iter().map(Vec::len).sum::<usize>();
    let total = (parts + plan.heads.len() * 4) as f64;
    let mut done = 0.0;
    let mut step = |n: f64| {
        done += n;
        progress(done / total);
    };

    let stage = sitter.stage(&person.rest, (size, size));
    let rest = stage.draw(&person.rest, Rect::whole(size, size));
    let rest_picture = rest.finish();
    step(4.0);
    let part = |rect: Rect| Part { before: stage.draw(&person.rest, rect), rect };
    let (lips, eyes) = (part(stage.mouth_rect()), part(stage.eyes_rect()));
    let mouths: Vec<Patch> = plan
        .mouths
        .iter()
        .map(|mouth| {
            step(1.0);
            stage.draw(&Pose { mouth: *mouth, ..person.rest }, lips.rect)
        })
        .collect();
    let looks: Vec<Patch> = plan
        .looks
        .iter()
        .map(|look| {
            step(1.0);
            stage.draw(&pose(&person.rest, Head::default(), *look), eyes.rect)
        })
        .collect();
    for (l, look) in looks.iter().enumerate() {
        let with: &[Patch] = if l < plan.talking { &mouths } else { &mouths[..1] };
        for (m, mouth) in with.iter().enumerate() {
            let mut whole = rest.clone();
            whole.add_change(&lips.before, mouth, FEATHER);
            whole.add_change(&eyes.before, look, FEATHER);
            let key = Key { head: 0, look: l as u8, mouth: m as u8 };
            pictures.push((key, to_i420(&whole.finish())));
        }
    }
    for (h, (head, with)) in plan.heads.iter().skip(1).zip(&plan.head_looks).enumerate() {
        let base = pose(&person.rest, *head, Look::default());
        let stage = sitter.stage(&base, (size, size));
        let drawn = stage.draw(&base, Rect::whole(size, size));
        let rect = stage.eyes_rect();
        let before = (with.len() > 1).then(|| stage.draw(&base, rect));
        step(4.0);
        for &l in with {
            let mut whole = drawn.clone();
            if let Some(before) = before.as_ref().filter(|_| l != 0) {
                let look = plan.looks[usize::from(l)];
                whole.add_change(before, &stage.draw(&pose(&person.rest, *head, look), rect), FEATHER);
            }
            step(1.0);
            let key = Key { head: h as u8 + 1, look: l, mouth: 0 };
            pictures.push((key, to_i420(&whole.finish())));
        }
    }
    let set = encode(person, size, plan, &to_i420(&rest_picture), &pictures)?;
    let display_picture = webp(&half(&rest_picture))?;
    Ok(Baked { set, display_picture, pictures: pictures.into_iter().map(|(_, p)| p).collect() })
}

/// A part of the picture in which something moves, and how it looks at rest.
struct Part {
    before: Patch,
    rect: Rect,
}

/// Rest, with a head and a look relative to it. The eyes hold on to the user while the head moves.
#[must_use]
pub fn pose(rest: &Pose, head: Head, look: Look) -> Pose {
    let mut pose = *rest;
    pose.head.yaw += head.yaw;
    pose.head.pitch += head.pitch;
    pose.head.roll += head.roll;
    pose.eyes.lids += look.eyes.lids;
    pose.eyes.squint += look.eyes.squint;
    pose.eyes.gaze_x += look.eyes.gaze_x - head.yaw / 0.45;
    pose.eyes.gaze_y += look.eyes.gaze_y + head.pitch / 0.35;
    pose.brows.raise += look.brows.raise;
    pose.brows.knit += look.brows.knit;
    pose
}

fn encode(
    person: &Person,
    size: usize,
    plan: &Plan,
    rest: &I420,
    pictures: &[(Key, I420)],
) -> Result<PoseSet, Error> {
    let mut encoder = Encoder::new(size, size)?;
    let key = encoder.key(rest, plan.quantizers[0])?;
    let frames: Vec<Bytes> = pictures
        .iter()
        .map(|(key, picture)| {
            let quantizer = plan.quantizers[if key.head == 0 { 1 } else { 2 }];
            encoder.pose(picture, quantizer, &picture.changed_blocks(rest, TOLERANCE)).map(Bytes::from)
        })
        .collect::<Result<_, _>>()?;
    let manifest = Manifest {
        id: person.id.into(),
        name: person.name.into(),
        gender: person.gender.into(),
        voice: person.voice.into(),
        width: size as u32,
        height: size as u32,
        quantizers: [plan.quantizers[0], plan.quantizers[1]],
        heads: plan.heads.clone(),
        looks: plan.looks.clone(),
        mouths: plan.mouths.clone(),
        frames: pictures.iter().map(|(key, _)| (*key, 0)).collect(),
        key_length: 0,
    };
    Ok(PoseSet::new(manifest, key.into(), frames)?)
}

fn to_i420(picture: &Picture) -> I420 {
    I420::from_rgb(&picture.rgb(), picture.width, picture.height)
}

/// Half the size in both directions, by the mean of four pixels.
fn half(picture: &Picture) -> Picture {
    let (width, height) = (picture.width / 2, picture.height / 2);
    let at = |x: usize, y: usize, k: usize| u32::from(picture.rgba[(y * picture.width + x) * 4 + k]);
    let rgba = (0..width * height * 4)
        .map(|i| {
            let (x, y, k) = (i / 4 % width * 2, i / 4 / width * 2, i % 4);
            ((at(x, y, k) + at(x + 1, y, k) + at(x, y + 1, k) + at(x + 1, y + 1, k) + 2) / 4) as u8
        })
        .collect();
    Picture { width, height, rgba }
}

/// A lossy WebP file: a VP8 key frame in a RIFF container.
fn webp(picture: &Picture) -> Result<Vec<u8>, vp8::Error> {
    let frame = Encoder::new(picture.width, picture.height)?.key(&to_i420(picture), DISPLAY_QUANTIZER)?;
    let padded = frame.len().next_multiple_of(2);
    let mut file = b"RIFF".to_vec();
    file.extend((padded as u32 + 12).to_le_bytes());
    file.extend(b"WEBPVP8 ");
    file.extend((frame.len() as u32).to_le_bytes());
    file.extend(&frame);
    file.resize(padded + 20, 0);
    Ok(file)
}
