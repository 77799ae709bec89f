//! Who is drawn: named sliders, each with its range.

use core::fmt;
use core::str::FromStr;

use glam::{Vec3, vec3};
use serde::{Deserialize, Serialize};

/// A person. Sliders without a unit are factors of an average adult's measure; [`Character::bounded`] brings all into range.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Character {
    /// Everything random (each hair, each freckle) follows from it.
    pub seed: u32,
    /// 0 young … 1 old: folds, bags, wrinkles.
    pub age: f32,
    /// Skin.
    pub skin: Skin,
    /// Bones.
    pub proportions: Proportions,
    /// Eyes.
    pub eyes: EyeShape,
    /// Brows.
    pub brows: BrowShape,
    /// Nose.
    pub nose: Nose,
    /// Lips.
    pub lips: Lips,
    /// Hair of the head.
    pub hair: Hair,
    /// 0 none … 1 full.
    pub beard: f32,
    /// Whether glasses are worn.
    pub glasses: bool,
    /// Colour of a headscarf, which hides the hair.
    pub headscarf: Option<Colour>,
    /// What is worn.
    pub clothes: Clothes,
    /// Middle and rim of the background.
    pub background: [Colour; 2],
}

/// Skin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skin {
    /// Its colour.
    pub colour: Colour,
    /// Redness of cheeks, nose and ears, 0 … 1.5.
    pub blush: f32,
    /// 0 shaved … 1 three days.
    pub stubble: f32,
    /// 0 none … 1 many.
    pub freckles: f32,
}

/// Bones. Factors, 0.7 … 1.3.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proportions {
    /// Of the face.
    pub face_width: f32,
    /// Of the jaw, beside that of the face.
    pub jaw_width: f32,
    /// From nose to chin.
    pub jaw_height: f32,
    /// Size of the chin.
    pub chin: f32,
    /// Fullness of the cheeks.
    pub cheeks: f32,
    /// Of the bone over the eyes.
    pub brow_ridge: f32,
    /// Thickness of the neck.
    pub neck: f32,
    /// Breadth of the shoulders.
    pub shoulders: f32,
}

/// Eyes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EyeShape {
    /// Factor of the ball's size, 0.8 … 1.3.
    pub size: f32,
    /// Factor of the distance between them, 0.9 … 1.1.
    pub spacing: f32,
    /// Factor of how far they open, 0.7 … 1.2.
    pub opening: f32,
    /// Outer corners up, −0.1 … 0.25.
    pub tilt: f32,
    /// Of the iris.
    pub colour: Colour,
    /// Angular radius of the iris in radians, 0.5 … 0.7.
    pub iris: f32,
    /// Factor of the lashes, 0 … 1.3.
    pub lashes: f32,
}

/// Brows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrowShape {
    /// Factor, 0.5 … 1.6.
    pub thickness: f32,
    /// 0 straight … 1 arched.
    pub arch: f32,
    /// Of brows and lashes.
    pub colour: Colour,
}

/// Nose. Factors, 0.7 … 1.4.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nose {
    /// Of tip and wings.
    pub width: f32,
    /// From the eyes to the tip.
    pub length: f32,
    /// Of the tip.
    pub tip: f32,
    /// 0 straight … 1 turned up.
    pub upturn: f32,
}

/// Lips.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lips {
    /// Their colour.
    pub colour: Colour,
    /// Factor, 0.6 … 1.4.
    pub fullness: f32,
    /// Factor, 0.7 … 1.3.
    pub width: f32,
}

/// Hair of the head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hair {
    /// The cut.
    pub style: HairStyle,
    /// The darker strands.
    pub dark: Colour,
    /// The lighter strands.
    pub light: Colour,
    /// Share of grey strands, beard included, 0 … 1.
    pub grey: f32,
}

/// A cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HairStyle {
    /// Shaved, or under a headscarf.
    None,
    /// Short, brushed back over the forehead.
    Short,
    /// Tight curls.
    Curly,
}

/// What is worn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clothes {
    /// The cut.
    pub style: ClothesStyle,
    /// Its colour.
    pub colour: Colour,
}

/// A cut of clothes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClothesStyle {
    /// A jumper with a round neck.
    Crew,
    /// A jumper with a high collar.
    Turtleneck,
}

impl Character {
    /// With every slider in its range.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let bound = |value: &mut f32, least: f32, most: f32| {
            *value = if value.is_nan() { (least + most) * 0.5 } else { value.clamp(least, most) };
        };
        let p = &mut self.proportions;
        let bones = [
            &mut p.face_width,
            &mut p.jaw_width,
            &mut p.jaw_height,
            &mut p.chin,
            &mut p.cheeks,
            &mut p.brow_ridge,
            &mut p.neck,
            &mut p.shoulders,
        ];
        bones.into_iter().for_each(|v| bound(v, 0.7, 1.3));
        for v in [&mut self.nose.width, &mut self.nose.length, &mut self.nose.tip] {
            bound(v, 0.7, 1.4);
        }
        let shares = [
            &mut self.age,
            &mut self.skin.stubble,
            &mut self.skin.freckles,
            &mut self.brows.arch,
            &mut self.nose.upturn,
            &mut self.hair.grey,
            &mut self.beard,
        ];
        shares.into_iter().for_each(|v| bound(v, 0.0, 1.0));
        bound(&mut self.skin.blush, 0.0, 1.5);
        bound(&mut self.eyes.size, 0.8, 1.3);
        bound(&mut self.eyes.spacing, 0.9, 1.1);
        bound(&mut self.eyes.opening, 0.7, 1.2);
        bound(&mut self.eyes.tilt, -0.1, 0.25);
        bound(&mut self.eyes.iris, 0.5, 0.7);
        bound(&mut self.eyes.lashes, 0.0, 1.3);
        bound(&mut self.brows.thickness, 0.5, 1.6);
        bound(&mut self.lips.fullness, 0.6, 1.4);
        bound(&mut self.lips.width, 0.7, 1.3);
        self
    }
}

/// An sRGB colour, written `#rrggbb`.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Colour(pub u32);

impl Colour {
    /// In linear light.
    pub(crate) fn linear(self) -> Vec3 {
        let channel = |shift: u32| {
            let v = (self.0 >> shift & 255) as f32 / 255.0;
            if v < 0.04045 { v / 12.92 } else { ((v + 0.055) / 1.055).powf(2.4) }
        };
        vec3(channel(16), channel(8), channel(0))
    }
}

impl fmt::Debug for Colour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{:06x}", self.0 & 0xff_ffff)
    }
}

impl From<Colour> for String {
    fn from(colour: Colour) -> Self {
        format!("{colour:?}")
    }
}

/// The text is no colour of the form `#rrggbb`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a colour of the form #rrggbb")]
pub struct NoColour;

impl FromStr for Colour {
    type Err = NoColour;

    fn from_str(text: &str) -> Result<Self, NoColour> {
        let digits =
            text.strip_prefix('#').filter(|d| d.len() == 6 && !d.starts_with('+')).ok_or(NoColour)?;
        u32::from_str_radix(digits, 16).map(Self).map_err(|_| NoColour)
    }
}

impl TryFrom<String> for Colour {
    type Error = NoColour;

    fn try_from(text: String) -> Result<Self, NoColour> {
        text.parse()
    }
}
