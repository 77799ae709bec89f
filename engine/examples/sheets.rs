//! Draws contact sheets of pose sets, as a receiver decodes them: `sheets FOLDER SET…` writes `NAME-visemes.webp` (the lower face, in the order
//! of [`Viseme::ALL`]) and `NAME-moods.webp` (in the order of [`moods`]) for each set.

use std::error::Error;
use std::path::Path;

use bytes::Bytes;
use engine::show::life::Manner;
use engine::show::pose::Viseme;
use engine::show::pose_cache::PoseCache;
use models::face::picture::I420;
use models::face::plan::{ASIDE, AWAY, LISTENING, NOD_DEPTH};
use models::face::vp8::Decoder;
use models::face::{Brows, Eyes, Head, Look, Mouth, PoseSet, Stance, webp};

/// Quantiser of a sheet.
const QUANTIZER: u32 = 26;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (folder, sets) = arguments.split_first().ok_or("say where to, and which sets")?;
    for set in sets {
        let person = Person::new(PoseSet::parse(&Bytes::from(std::fs::read(set)?))?)?;
        let write = |kind: &str, sheet: &Sheet| -> Result<(), Box<dyn Error>> {
            let picture = I420::from_rgb(&sheet.rgb, sheet.width, sheet.rgb.len() / 3 / sheet.width);
            let file = Path::new(folder).join(format!("{}-{kind}.webp", person.id));
            Ok(std::fs::write(file, webp::encode_i420(&picture, QUANTIZER)?)?)
        };
        write("visemes", &person.visemes()?)?;
        write("moods", &person.moods()?)?;
    }
    Ok(())
}

/// Neutral, breathed in, half a smile, a whole one; leaning, nodding, thinking, smiling while leaning; a blink, a glance, and brows raised.
fn moods() -> [Manner; 12] {
    let calm = Manner::default();
    let eyes = |lids, [gaze_x, gaze_y]: [f32; 2], raise| Look {
        eyes: Eyes { lids, gaze_x, gaze_y, squint: 0.0 },
        brows: Brows { raise, knit: 0.0 },
    };
    let look = |lids, gaze, raise| Manner { look: eyes(lids, gaze, raise), ..calm };
    let stance = |head, smile| Manner { stance: Stance { head, smile }, ..calm };
    let nod = Head { pitch: LISTENING.pitch + NOD_DEPTH, ..LISTENING };
    [
        calm,
        Manner { breath: 1.0, ..calm },
        stance(Head::default(), 0.5),
        stance(Head::default(), 1.0),
        stance(LISTENING, 0.0),
        stance(nod, 0.0),
        look(0.0, AWAY, 0.4),
        stance(LISTENING, 1.0),
        look(0.55, [0.0; 2], 0.0),
        look(1.0, [0.0; 2], 0.0),
        look(0.0, ASIDE, 0.0),
        look(0.0, [0.0; 2], 0.5),
    ]
}

/// Pictures side by side, RGB.
struct Sheet {
    rgb: Vec<u8>,
    width: usize,
}

impl Sheet {
    /// `columns` in a row; all tiles are `width × height`.
    fn new(tiles: &[Vec<u8>], columns: usize, (width, height): (usize, usize)) -> Self {
        let mut rgb = Vec::with_capacity(tiles.len() * width * height * 3);
        for row in tiles.chunks_exact(columns) {
            for y in 0..height {
                for tile in row {
                    rgb.extend(&tile[y * width * 3..(y + 1) * width * 3]);
                }
            }
        }
        Self { rgb, width: width * columns }
    }
}

/// A set, and what shows it.
struct Person {
    id: String,
    cache: PoseCache,
    size: (usize, usize),
    mouths: Vec<Mouth>,
}

impl Person {
    fn new(set: PoseSet) -> Result<Self, Box<dyn Error>> {
        let about = set.manifest();
        Ok(Self {
            id: about.id.clone(),
            size: (about.width.try_into()?, about.height.try_into()?),
            mouths: about.mouths.clone(),
            cache: PoseCache::new(set.into()),
        })
    }

    /// The pose as it is decoded behind key and anchor.
    fn shown(&self, manner: &Manner, mouth: Mouth) -> Result<I420, Box<dyn Error>> {
        let mut decoder = Decoder::new(self.size.0, self.size.1)?;
        decoder.decode(self.cache.key())?;
        if !self.cache.anchor().is_empty() {
            decoder.decode(self.cache.anchor())?;
        }
        Ok(decoder.decode(self.cache.frame(self.cache.nearest(manner, mouth, false), 0))?)
    }

    fn visemes(&self) -> Result<Sheet, Box<dyn Error>> {
        let calm = Manner::default();
        // Where the widest mouth moves, in macroblocks.
        let widest = self.mouths.iter().copied().max_by(|a, b| a.jaw.total_cmp(&b.jaw)).unwrap_or_default();
        let changed = self.shown(&calm, widest)?.changed_blocks(&self.shown(&calm, Mouth::default())?, 16);
        let columns = self.size.0.div_ceil(16);
        let moved = || (0..changed.len()).filter(|block| changed[*block]).map(|b| (b % columns, b / columns));
        let span = |of: fn((usize, usize)) -> usize| {
            let least = moved().map(of).min().unwrap_or(0);
            (least * 16, (moved().map(of).max().unwrap_or(0) + 1) * 16)
        };
        let ((x0, x1), (y0, y1)) = (span(|b| b.0), span(|b| b.1));
        let (x1, y1) = (x1.min(self.size.0), y1.min(self.size.1));
        let cut = |rgb: &[u8]| -> Vec<u8> {
            (y0..y1)
                .flat_map(|y| rgb[(y * self.size.0 + x0) * 3..(y * self.size.0 + x1) * 3].to_vec())
                .collect()
        };
        let tiles = Viseme::ALL.iter().map(|v| Ok(cut(&self.shown(&calm, v.mouth())?.to_rgb())));
        let tiles = tiles.collect::<Result<Vec<_>, Box<dyn Error>>>()?;
        Ok(Sheet::new(&tiles, 5, (x1 - x0, y1 - y0)))
    }

    /// At half the size.
    fn moods(&self) -> Result<Sheet, Box<dyn Error>> {
        let (width, height) = (self.size.0 / 2, self.size.1 / 2);
        let half = |rgb: &[u8]| -> Vec<u8> {
            let at = |x: usize, y: usize, k: usize| u16::from(rgb[(y * self.size.0 + x) * 3 + k]);
            (0..width * height * 3)
                .map(|i| {
                    let (x, y, k) = (i / 3 % width * 2, i / 3 / width * 2, i % 3);
                    ((at(x, y, k) + at(x + 1, y, k) + at(x, y + 1, k) + at(x + 1, y + 1, k) + 2) / 4) as u8
                })
                .collect()
        };
        let tiles = moods().map(|mood| Ok(half(&self.shown(&mood, Mouth::default())?.to_rgb())));
        let tiles = tiles.into_iter().collect::<Result<Vec<_>, Box<dyn Error>>>()?;
        Ok(Sheet::new(&tiles, 4, (width, height)))
    }
}
