//! Parameters of a character: named sliders, each with its unit and range.

use core::fmt;
use core::str::FromStr;

use glam::{Vec3, vec3};
use serde::{Deserialize, Serialize};

use crate::slider::{OutOfRange, Slider, check, sliders, validated_serde};

/// A character. A field that is missing in a file is as in [`Character::default`]. Unknown fields
/// and values out of range ([`SLIDERS`]) are rejected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", default, deny_unknown_fields)]
pub struct Character {
    /// Seed of everything random (each hair, each freckle).
    pub seed: u32,
    /// 0 young … 1 old: pores, folds, bags, wrinkles.
    pub age: f32,
    /// Difference between the two sides of the face, 0 … 1.
    pub asymmetry: f32,
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
    /// Glasses.
    pub glasses: Glasses,
    /// Color of the glasses' frame.
    pub frame: Colour,
    /// Golden studs in the ears.
    pub earrings: bool,
    /// A golden chain with a pendant around the neck.
    pub necklace: bool,
    /// Color of a headscarf, which hides the hair.
    pub headscarf: Option<Colour>,
    /// Clothes.
    pub clothes: Clothes,
    /// Colors of the background: center and rim.
    pub background: [Colour; 2],
}

/// Skin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Skin {
    /// Color.
    pub colour: Colour,
    /// Redness of cheeks, nose and ears, 0 … 1.5.
    pub blush: f32,
    /// 0 shaved … 1 three days.
    pub stubble: f32,
    /// 0 none … 1 many.
    pub freckles: f32,
    /// How visible pores are: 0 smooth … 1 coarse.
    pub pores: f32,
    /// Tone of the hollows under the eyes: 0 as around … 1 tired.
    pub under_eyes: f32,
}

impl Default for Skin {
    fn default() -> Self {
        Self {
            colour: Colour(0xd0a080),
            blush: 0.5,
            stubble: 0.0,
            freckles: 0.0,
            pores: 0.4,
            under_eyes: 0.0,
        }
    }
}

/// Bones. Factors, 0.7 … 1.3. For face width, jaw width and jaw height, the effect decreases far
/// from the average.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Proportions {
    /// Width of the face.
    pub face_width: f32,
    /// Width of the jaw, relative to that of the face.
    pub jaw_width: f32,
    /// Distance from nose to chin.
    pub jaw_height: f32,
    /// Size of the chin.
    pub chin: f32,
    /// Fullness of the cheeks.
    pub cheeks: f32,
    /// Size of the bone over the eyes.
    pub brow_ridge: f32,
    /// Thickness of the neck.
    pub neck: f32,
    /// Breadth of the shoulders.
    pub shoulders: f32,
}

impl Default for Proportions {
    fn default() -> Self {
        Self {
            face_width: 1.0,
            jaw_width: 1.0,
            jaw_height: 1.0,
            chin: 1.0,
            cheeks: 1.0,
            brow_ridge: 1.0,
            neck: 1.0,
            shoulders: 1.0,
        }
    }
}

/// Eyes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EyeShape {
    /// Factor of the eyeball's size, 0.8 … 1.3.
    pub size: f32,
    /// Factor of the distance between the eyes, 0.9 … 1.1.
    pub spacing: f32,
    /// Factor of the opening between the lids, 0.7 … 1.2.
    pub opening: f32,
    /// Slope of the eye, outer corner up, −0.1 … 0.25.
    pub tilt: f32,
    /// Color of the iris.
    pub colour: Colour,
    /// Angular radius of the iris in radians, 0.5 … 0.7.
    pub iris: f32,
    /// Factor of the lashes, 0 … 1.3.
    pub lashes: f32,
}

impl Default for EyeShape {
    fn default() -> Self {
        Self {
            size: 1.0,
            spacing: 1.0,
            opening: 1.0,
            tilt: 0.04,
            colour: Colour(0x4a2e1c),
            iris: 0.6,
            lashes: 0.8,
        }
    }
}

/// Brows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BrowShape {
    /// Factor, 0.5 … 1.6.
    pub thickness: f32,
    /// 0 straight … 1 arched.
    pub arch: f32,
    /// Color of brows and lashes.
    pub colour: Colour,
}

impl Default for BrowShape {
    fn default() -> Self {
        Self { thickness: 1.0, arch: 0.6, colour: Colour(0x201810) }
    }
}

/// Nose. Factors, 0.7 … 1.4. For length and tip, the effect decreases far from the average.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Nose {
    /// Width of tip and wings.
    pub width: f32,
    /// Distance from the eyes to the tip.
    pub length: f32,
    /// Size of the tip.
    pub tip: f32,
    /// 0 straight … 1 turned up.
    pub upturn: f32,
    /// Width of the bridge between the eyes and the tip.
    pub bridge: f32,
    /// Size of the wings beside the tip.
    pub wings: f32,
}

impl Default for Nose {
    fn default() -> Self {
        Self { width: 1.0, length: 1.0, tip: 1.0, upturn: 0.3, bridge: 1.0, wings: 1.0 }
    }
}

/// Lips.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Lips {
    /// Color.
    pub colour: Colour,
    /// Factor, 0.6 … 1.4.
    pub fullness: f32,
    /// Factor, 0.7 … 1.3. Its effect decreases far from the average.
    pub width: f32,
    /// Factor of the upper lip alone, 0.7 … 1.5.
    pub upper: f32,
    /// Cupid's bow: 0 a flat upper lip … 1 two clear peaks.
    pub bow: f32,
    /// Groove between nose and upper lip, 0 … 1.
    pub philtrum: f32,
    /// Corners of the closed lips: 0 pinched … 1 full and soft.
    pub corners: f32,
    /// How much more one corner is lifted than the other, as a share of the face's asymmetry.
    pub smirk: f32,
}

impl Default for Lips {
    fn default() -> Self {
        Self {
            colour: Colour(0xa06050),
            fullness: 1.0,
            width: 1.0,
            upper: 1.0,
            bow: 0.3,
            philtrum: 0.4,
            corners: 0.0,
            smirk: 1.0,
        }
    }
}

/// Hair of the head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Hair {
    /// The cut.
    pub style: HairStyle,
    /// Color of the darker strands.
    pub dark: Colour,
    /// Color of the lighter strands.
    pub light: Colour,
    /// Share of gray strands, beard included, 0 … 1.
    pub grey: f32,
}

impl Default for Hair {
    fn default() -> Self {
        Self { style: HairStyle::Short, dark: Colour(0x1c120d), light: Colour(0x3a2417), grey: 0.0 }
    }
}

/// A hair style.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HairStyle {
    /// Shaved, or under a headscarf.
    None,
    /// A few millimetres.
    Buzz,
    /// Short, brushed back over the forehead.
    Short,
    /// Short, parted at the side.
    Side,
    /// Tight curls.
    Curly,
    /// To the chin, parted.
    Bob,
    /// Over the shoulders, parted.
    Long,
    /// Pulled back into a knot.
    Bun,
}

/// Clothes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Clothes {
    /// The style.
    pub style: ClothesStyle,
    /// Color.
    pub colour: Colour,
    /// Color of the shirt under a jacket.
    pub under: Colour,
    /// Color of a tie, worn with a shirt or a suit.
    pub tie: Option<Colour>,
}

impl Default for Clothes {
    fn default() -> Self {
        Self {
            style: ClothesStyle::Crew,
            colour: Colour(0x2e4057),
            under: Colour(0xe8e6e1),
            tie: None,
        }
    }
}

/// A style of clothes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClothesStyle {
    /// A jumper with a round neck.
    Crew,
    /// A jumper with a high collar.
    Turtleneck,
    /// A shirt with the top button open.
    Shirt,
    /// A jacket over a round neck.
    Blazer,
    /// A jacket over a shirt.
    Suit,
}

/// A shape of glasses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Glasses {
    /// No glasses.
    #[default]
    None,
    /// Large, with round corners.
    Square,
    /// Circles.
    Round,
    /// Low and wide.
    Slim,
}

impl Default for Character {
    fn default() -> Self {
        Self {
            seed: 1,
            age: 0.2,
            asymmetry: 0.5,
            skin: Skin::default(),
            proportions: Proportions::default(),
            eyes: EyeShape::default(),
            brows: BrowShape::default(),
            nose: Nose::default(),
            lips: Lips::default(),
            hair: Hair::default(),
            beard: 0.0,
            glasses: Glasses::None,
            frame: Colour(0x302a28),
            earrings: false,
            necklace: false,
            headscarf: None,
            clothes: Clothes::default(),
            background: [Colour(0xc9ccd0), Colour(0x74808c)],
        }
    }
}

/// All sliders of a [`Character`].
pub const SLIDERS: &[Slider<Character>] = sliders![Character;
    "share" 0.0 ..= 1.0: age;
    "share" 0.0 ..= 1.0: asymmetry;
    "share" 0.0 ..= 1.5: skin.blush;
    "share" 0.0 ..= 1.0: skin.stubble;
    "share" 0.0 ..= 1.0: skin.freckles;
    "share" 0.0 ..= 1.0: skin.pores;
    "share" 0.0 ..= 1.0: skin.under_eyes;
    "factor" 0.7 ..= 1.3: proportions.face_width;
    "factor" 0.7 ..= 1.3: proportions.jaw_width;
    "factor" 0.7 ..= 1.3: proportions.jaw_height;
    "factor" 0.7 ..= 1.3: proportions.chin;
    "factor" 0.7 ..= 1.3: proportions.cheeks;
    "factor" 0.7 ..= 1.3: proportions.brow_ridge;
    "factor" 0.7 ..= 1.3: proportions.neck;
    "factor" 0.7 ..= 1.3: proportions.shoulders;
    "factor" 0.8 ..= 1.3: eyes.size;
    "factor" 0.9 ..= 1.1: eyes.spacing;
    "factor" 0.7 ..= 1.2: eyes.opening;
    "slope" -0.1 ..= 0.25: eyes.tilt;
    "radians" 0.5 ..= 0.7: eyes.iris;
    "factor" 0.0 ..= 1.3: eyes.lashes;
    "factor" 0.5 ..= 1.6: brows.thickness;
    "share" 0.0 ..= 1.0: brows.arch;
    "factor" 0.7 ..= 1.4: nose.width;
    "factor" 0.7 ..= 1.4: nose.length;
    "factor" 0.7 ..= 1.4: nose.tip;
    "share" 0.0 ..= 1.0: nose.upturn;
    "factor" 0.7 ..= 1.4: nose.bridge;
    "factor" 0.7 ..= 1.4: nose.wings;
    "factor" 0.6 ..= 1.4: lips.fullness;
    "factor" 0.7 ..= 1.3: lips.width;
    "factor" 0.7 ..= 1.5: lips.upper;
    "share" 0.0 ..= 1.0: lips.bow;
    "share" 0.0 ..= 1.0: lips.philtrum;
    "share" 0.0 ..= 1.0: lips.corners;
    "share" 0.0 ..= 1.0: lips.smirk;
    "share" 0.0 ..= 1.0: hair.grey;
    "share" 0.0 ..= 1.0: beard;
];

impl Character {
    /// Checks that every slider is in its range.
    ///
    /// # Errors
    /// The first slider that is out of range.
    pub fn check(&self) -> Result<(), OutOfRange> {
        check(SLIDERS, self)
    }
}

validated_serde!(Character);

/// An sRGB color, written `#rrggbb`.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Colour(pub u32);

impl Colour {
    /// The color in linear light.
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

/// The text is not a color of the form `#rrggbb`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a colour of the form #rrggbb")]
pub struct InvalidColour;

impl FromStr for Colour {
    type Err = InvalidColour;

    fn from_str(text: &str) -> Result<Self, InvalidColour> {
        let digits = text
            .strip_prefix('#')
            .filter(|d| d.len() == 6 && !d.starts_with('+'))
            .ok_or(InvalidColour)?;
        u32::from_str_radix(digits, 16).map(Self).map_err(|_| InvalidColour)
    }
}

impl TryFrom<String> for Colour {
    type Error = InvalidColour;

    fn try_from(text: String) -> Result<Self, InvalidColour> {
        text.parse()
    }
}
