//! A drawn character whose lips and irises can be measured in a picture.

use std::sync::OnceLock;

use character::{
    Character, CharacterRenderer, Colour, EyeShape, Framing, Hair, HairStyle, Lips, Pose, Rect,
};
use photo::{EyePoints, FacePoints, Landmarks, MouthPoints, NosePoints, Point};

/// Width and height of the pictures.
pub(crate) const SIDE: usize = 256;
fn sitter() -> Character {
    Character {
        seed: 3,
        asymmetry: 0.0,
        background: [Colour(0x8a_8f_94); 2],
        lips: Lips { colour: Colour(0x10_30_e0), ..Lips::default() },
        eyes: EyeShape { colour: Colour(0x10_b0_30), ..EyeShape::default() },
        hair: Hair { style: HairStyle::None, ..Hair::default() },
        ..Character::default()
    }
}

/// The points that a user would mark, in pixels of a picture of [`SIDE`].
pub(crate) fn landmarks() -> Landmarks {
    let half = |[x, y]: Point| [x * 0.5, y * 0.5];
    Landmarks::Points(Box::new(FacePoints {
        mouth: MouthPoints {
            left: [213.5, 319.4],
            right: [298.8, 319.4],
            upper: [256.2, 308.3],
            lower: [256.2, 335.7],
        },
        nose: NosePoints { base: [255.6, 289.0] },
        chin: [256.0, 384.8],
        left_eye: EyePoints {
            outer: [176.7, 225.9],
            inner: [238.1, 225.9],
            upper: [206.5, 207.2],
            lower: [206.5, 240.5],
            brow: [200.0, 189.0],
            iris: [207.7, 224.8],
        },
        right_eye: EyePoints {
            inner: [274.3, 225.9],
            outer: [334.4, 225.9],
            upper: [304.7, 207.2],
            lower: [304.7, 240.5],
            brow: [312.0, 188.0],
            iris: [304.0, 224.8],
        },
    }))
    .map(half)
}

/// An RGB picture of [`SIDE`].
pub(crate) type Rgb = Vec<u8>;

pub(crate) fn drawn(pose: &Pose) -> Rgb {
    static RENDERER: OnceLock<CharacterRenderer> = OnceLock::new();
    let renderer = RENDERER
        .get_or_init(|| CharacterRenderer::new(&sitter()).unwrap().with_framing(Framing::Bust));
    let view = renderer.head_view(&Pose::default(), (SIDE, SIDE));
    view.draw(pose, Rect::whole(SIDE, SIDE)).to_picture().rgb()
}

pub(crate) fn pixel(rgb: &[u8], x: usize, y: usize) -> [f32; 3] {
    let i = (y * SIDE + x) * 3;
    [rgb[i].into(), rgb[i + 1].into(), rgb[i + 2].into()]
}

/// How blue a pixel is: 0 skin, teeth, tongue … 1 lips.
pub(crate) fn blueness(c: [f32; 3]) -> f32 {
    ((c[2] - c[0].max(c[1])) / 60.0).clamp(0.0, 1.0)
}
