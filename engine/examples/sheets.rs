//! Draws contact sheets of pose sets, as a receiver decodes them. `sheets FOLDER SET…` writes two
//! files per set: `NAME-visemes.webp` (faces, in the order of [`Viseme::ALL`]) and
//! `NAME-moods.webp` (whole pictures, in the order of [`mood_poses`]).

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the program")]

use std::error::Error;
use std::path::Path;

use bytes::Bytes;
use engine::show::PoseState;
use engine::show::pose_cache::PoseCache;
use engine::show::visemes::Viseme;
use models::face::picture::I420;
use models::face::pose_plan::{
    EMPHASIS_BROWS, LISTENING_HEAD, NOD_DEPTH, SIDE_GLANCE, THINKING_BROWS, THINKING_GAZE,
};
use models::face::vp8::Decoder;
use models::face::{Brows, Eyes, Head, Look, Mouth, PoseSet, Stance, webp};

/// Quantizers of a sheet: the first with which it is no larger than [`MAX_SHEET_BYTES`].
const SHEET_QUANTIZERS: [u32; 5] = [22, 26, 30, 34, 40];
/// Bytes of a sheet.
const MAX_SHEET_BYTES: usize = 60_000;
/// Pixels a side of each picture on a sheet.
const TILE_SIZE: usize = 256;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (folder, sets) = arguments.split_first().ok_or("usage: sheets FOLDER SET…")?;
    for set in sets {
        let person = SheetAvatar::new(PoseSet::parse(&Bytes::from(std::fs::read(set)?))?)?;
        let write = |kind: &str, sheet: &Sheet| -> Result<(), Box<dyn Error>> {
            let picture =
                I420::from_rgb(&sheet.rgb, sheet.width, sheet.rgb.len() / 3 / sheet.width);
            let mut encoded = Vec::new();
            for quantizer in SHEET_QUANTIZERS {
                encoded = webp::encode_i420(&picture, quantizer)?;
                if encoded.len() <= MAX_SHEET_BYTES {
                    break;
                }
            }
            let file = Path::new(folder).join(format!("{}-{kind}.webp", person.id));
            Ok(std::fs::write(file, encoded)?)
        };
        write("visemes", &person.viseme_sheet()?)?;
        write("moods", &person.mood_sheet()?)?;
    }
    Ok(())
}

/// Neutral, breathed in, half a smile, a whole one; leaning, nodding, thinking, smiling while
/// leaning; a blink, a glance, and brows raised.
fn mood_poses(set: &PoseSet) -> [PoseState; 12] {
    let calm = PoseState::default();
    let look = |lids, [gaze_x, gaze_y]: [f32; 2], brows| {
        let eyes = Eyes { lids, gaze_x, gaze_y, squint: 0.0 };
        PoseState { look: Look { eyes, brows }, ..calm }
    };
    let (user, level) = ([0.0; 2], Brows::default());
    let stance = |head, smile| {
        let wanted = Stance { head, smile, ..Stance::default() };
        let found = set.manifest().stances.iter().position(|stance| *stance == wanted);
        PoseState { stance: found.unwrap_or_default() as u8, ..calm }
    };
    let nod = Head { pitch: LISTENING_HEAD.pitch + NOD_DEPTH, ..LISTENING_HEAD };
    [
        calm,
        PoseState { breath: 1.0, ..calm },
        stance(Head::default(), 0.5),
        stance(Head::default(), 1.0),
        stance(LISTENING_HEAD, 0.0),
        stance(nod, 0.0),
        look(0.0, THINKING_GAZE, THINKING_BROWS),
        stance(LISTENING_HEAD, 1.0),
        look(0.55, user, level),
        look(1.0, user, level),
        look(0.0, SIDE_GLANCE, level),
        look(0.0, user, EMPHASIS_BROWS),
    ]
}

/// Pictures side by side, RGB.
struct Sheet {
    rgb: Vec<u8>,
    width: usize,
}

impl Sheet {
    /// `columns` in a row; all tiles are [`TILE_SIZE`] pixels wide and high.
    fn new(tiles: &[Vec<u8>], columns: usize) -> Self {
        let mut rgb = Vec::with_capacity(tiles.len() * TILE_SIZE * TILE_SIZE * 3);
        for row in tiles.chunks_exact(columns) {
            for y in 0..TILE_SIZE {
                for tile in row {
                    rgb.extend(&tile[y * TILE_SIZE * 3..(y + 1) * TILE_SIZE * 3]);
                }
            }
        }
        Self { rgb, width: TILE_SIZE * columns }
    }
}

/// A set, and what shows it.
struct SheetAvatar {
    id: String,
    cache: PoseCache,
    size: (usize, usize),
}

impl SheetAvatar {
    fn new(set: PoseSet) -> Result<Self, Box<dyn Error>> {
        let about = set.manifest();
        Ok(Self {
            id: about.id.clone(),
            size: (about.width.try_into()?, about.height.try_into()?),
            cache: PoseCache::new(set.into()),
        })
    }

    /// The pose, decoded after the key frame and its anchor.
    fn render(&self, pose_state: &PoseState, mouth: Mouth) -> Result<I420, Box<dyn Error>> {
        let mut decoder = Decoder::new(self.size.0, self.size.1)?;
        decoder.decode(self.cache.key_frame())?;
        let shown = self.cache.nearest_frame(pose_state, mouth, false);
        if let Some(anchor) = shown.anchor {
            decoder.decode(self.cache.anchor_frame(anchor))?;
        }
        Ok(decoder.decode(self.cache.frame(shown.frame, 0))?)
    }

    /// A tile: the part of the pose from `left` and `top`, with sides of `share`. All three are
    /// fractions of the picture's sides.
    fn render_tile(
        &self,
        pose_state: &PoseState,
        mouth: Mouth,
        [left, top, share]: [f64; 3],
    ) -> Result<Vec<u8>, Box<dyn Error>> {
        /// A pixel of a tile is the mean of this many points along each side.
        const POINTS_PER_PIXEL: usize = 6;
        let rgb = self.render(pose_state, mouth)?.to_rgb();
        let (width, height) = self.size;
        let along = |sides: usize, from: f64, point: usize| {
            let at = (from + share * (point as f64 + 0.5) / (TILE_SIZE * POINTS_PER_PIXEL) as f64)
                * sides as f64;
            (at as usize).min(sides - 1)
        };
        let mut tile = Vec::with_capacity(TILE_SIZE * TILE_SIZE * 3);
        for i in 0..TILE_SIZE * TILE_SIZE {
            let mut sum = [0u32; 3];
            for point in 0..POINTS_PER_PIXEL * POINTS_PER_PIXEL {
                let x =
                    along(width, left, i % TILE_SIZE * POINTS_PER_PIXEL + point % POINTS_PER_PIXEL);
                let y =
                    along(height, top, i / TILE_SIZE * POINTS_PER_PIXEL + point / POINTS_PER_PIXEL);
                let pixel = &rgb[(y * width + x) * 3..][..3];
                sum.iter_mut().zip(pixel).for_each(|(sum, value)| *sum += u32::from(*value));
            }
            tile.extend(sum.map(|sum| (sum / (POINTS_PER_PIXEL * POINTS_PER_PIXEL) as u32) as u8));
        }
        Ok(tile)
    }

    /// Tiles of the whole face: the lips alone do not show how a speaking avatar looks.
    fn viseme_sheet(&self) -> Result<Sheet, Box<dyn Error>> {
        let face_crop = [0.125, 0.078, 0.75];
        let tiles = Viseme::ALL
            .iter()
            .map(|v| self.render_tile(&PoseState::default(), v.mouth(), face_crop));
        Ok(Sheet::new(&tiles.collect::<Result<Vec<_>, _>>()?, 5))
    }

    fn mood_sheet(&self) -> Result<Sheet, Box<dyn Error>> {
        let tiles = mood_poses(self.cache.pose_set())
            .into_iter()
            .map(|mood| self.render_tile(&mood, Mouth::default(), [0.0, 0.0, 1.0]));
        Ok(Sheet::new(&tiles.collect::<Result<Vec<_>, _>>()?, 4))
    }
}
