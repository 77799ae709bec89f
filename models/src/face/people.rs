//! The people that can be baked: how each looks, is called and sounds. Those in `assets/avatars` are shipped.

use character::{
    BrowShape, Brows, Character, Clothes, ClothesStyle, Colour, EyeShape, Eyes, Hair, HairStyle, Head, Lips,
    Mouth, Nose, Pose, Proportions, Skin,
};

/// A person and how it holds itself.
#[derive(Clone, Debug)]
pub struct Person {
    /// `avatar_key_id`.
    pub id: &'static str,
    /// The name.
    pub name: &'static str,
    /// `female` or `male`.
    pub gender: &'static str,
    /// The built-in voice that suits.
    pub voice: &'static str,
    /// The looks.
    pub character: Character,
    /// The face at rest, to which all other poses are relative: friendly, mouth closed, looking at the user.
    pub rest: Pose,
}

/// All of them.
#[must_use]
pub fn all() -> Vec<Person> {
    vec![theo(), amina(), martin()]
}

/// The person with this id.
#[must_use]
pub fn find(id: &str) -> Option<Person> {
    all().into_iter().find(|p| p.id == id)
}

/// Friendly, three quarters to the user. The gaze makes up for the turn of the head.
fn friendly() -> Pose {
    Pose {
        mouth: Mouth::default(),
        smile: 0.5,
        eyes: Eyes { lids: 0.0, squint: 0.15, gaze_x: -0.16, gaze_y: 0.0 },
        brows: Brows { raise: 0.2, knit: 0.0 },
        head: Head { yaw: 0.07, pitch: 0.02, roll: -0.02 },
    }
}

fn theo() -> Person {
    Person {
        id: "theo",
        name: "Theo",
        gender: "male",
        voice: "rms",
        rest: friendly(),
        character: Character {
            seed: 23,
            age: 0.1,
            skin: Skin { colour: Colour(0x8c634a), blush: 0.4, stubble: 0.5, freckles: 0.0 },
            proportions: Proportions {
                face_width: 1.0,
                jaw_width: 1.04,
                jaw_height: 0.98,
                chin: 1.15,
                cheeks: 1.0,
                brow_ridge: 1.15,
                neck: 1.05,
                shoulders: 1.08,
            },
            eyes: EyeShape {
                size: 0.987,
                spacing: 1.02,
                opening: 1.0,
                tilt: 0.05,
                colour: Colour(0x4a2e1c),
                iris: 0.62,
                lashes: 0.5,
            },
            brows: BrowShape { thickness: 1.0, arch: 0.75, colour: Colour(0x18100c) },
            nose: Nose { width: 1.25, length: 0.98, tip: 1.1, upturn: 0.8 },
            lips: Lips { colour: Colour(0x85503f), fullness: 1.25, width: 1.055 },
            hair: Hair {
                style: HairStyle::Curly,
                dark: Colour(0x1c120d),
                light: Colour(0x3a2417),
                grey: 0.0,
            },
            beard: 0.0,
            glasses: false,
            headscarf: None,
            clothes: Clothes { style: ClothesStyle::Turtleneck, colour: Colour(0xc9a24b) },
            background: [Colour(0xb9ccc4), Colour(0x5e7f78)],
        },
    }
}

fn amina() -> Person {
    Person {
        id: "amina",
        name: "Amina",
        gender: "female",
        voice: "slt",
        rest: friendly(),
        character: Character {
            seed: 7,
            age: 0.05,
            skin: Skin { colour: Colour(0xc0906f), blush: 0.6, stubble: 0.0, freckles: 0.0 },
            proportions: Proportions {
                face_width: 0.96,
                jaw_width: 0.83,
                jaw_height: 0.93,
                chin: 0.92,
                cheeks: 1.0,
                brow_ridge: 0.7,
                neck: 0.87,
                shoulders: 0.92,
            },
            eyes: EyeShape {
                size: 1.12,
                spacing: 1.02,
                opening: 0.97,
                tilt: 0.10,
                colour: Colour(0x6b4226),
                iris: 0.62,
                lashes: 1.0,
            },
            brows: BrowShape { thickness: 1.05, arch: 1.0, colour: Colour(0x2a1a12) },
            nose: Nose { width: 1.0, length: 0.98, tip: 0.92, upturn: 0.8 },
            lips: Lips { colour: Colour(0xa8564f), fullness: 1.15, width: 0.91 },
            hair: Hair { style: HairStyle::None, dark: Colour(0x2a1a12), light: Colour(0x2a1a12), grey: 0.0 },
            beard: 0.0,
            glasses: false,
            headscarf: Some(Colour(0x8e5a73)),
            clothes: Clothes { style: ClothesStyle::Crew, colour: Colour(0x40384a) },
            background: [Colour(0xe0cfc4), Colour(0x9c7f78)],
        },
    }
}

/// Not fit to ship yet: where beard hairs grow depends on the pose, so the beard flickers with the jaw.
fn martin() -> Person {
    Person {
        id: "martin",
        name: "Martin",
        gender: "male",
        voice: "rms",
        rest: friendly(),
        character: Character {
            seed: 11,
            age: 0.75,
            skin: Skin { colour: Colour(0xddae92), blush: 0.7, stubble: 0.2, freckles: 0.0 },
            proportions: Proportions {
                face_width: 1.03,
                jaw_width: 1.08,
                jaw_height: 1.0,
                chin: 1.15,
                cheeks: 0.97,
                brow_ridge: 1.2,
                neck: 1.13,
                shoulders: 1.14,
            },
            eyes: EyeShape {
                size: 0.91,
                spacing: 0.98,
                opening: 0.92,
                tilt: 0.02,
                colour: Colour(0x436079),
                iris: 0.58,
                lashes: 0.7,
            },
            brows: BrowShape { thickness: 1.35, arch: 0.5, colour: Colour(0x554e4a) },
            nose: Nose { width: 1.18, length: 1.06, tip: 1.12, upturn: 0.0 },
            lips: Lips { colour: Colour(0xb4736a), fullness: 0.85, width: 1.055 },
            hair: Hair {
                style: HairStyle::Short,
                dark: Colour(0x3a3634),
                light: Colour(0x7a7571),
                grey: 0.5,
            },
            beard: 1.0,
            glasses: true,
            headscarf: None,
            clothes: Clothes { style: ClothesStyle::Crew, colour: Colour(0x2e4057) },
            background: [Colour(0xd8cfc2), Colour(0x8c7b6b)],
        },
    }
}
