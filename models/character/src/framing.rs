//! How much of the person a picture shows, and where.

use serde::{Deserialize, Serialize};

use crate::character::{Character, HairStyle};

/// The part of the person that a picture shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Framing {
    /// Head and collar: the face, from the top of the forehead to the chin, fills 55 % of the
    /// height. A wide picture shows the person at a third of its width.
    #[default]
    Close,
    /// Head and shoulders in the middle of the picture: the face fills 47 % of the height.
    Bust,
}

impl Framing {
    /// The serialized word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Close => "close",
            Self::Bust => "bust",
        }
    }

    /// The framing with this serialized word.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Close, Self::Bust].into_iter().find(|framing| framing.as_str() == name)
    }
}

/// What the camera shows.
pub(crate) struct View {
    /// Height of the picture's centre.
    pub(crate) centre_y: f32,
    /// Half of the height that the picture shows at the face.
    pub(crate) half_height: f32,
    /// Column of the person, as a share of the picture's width.
    pub(crate) centre_x: f32,
}

/// Height of the centre in [`Framing::Bust`].
const BUST_CENTRE_Y: f32 = -0.20;
/// Half of the height that [`Framing::Bust`] shows.
const BUST_HALF_HEIGHT: f32 = 1.82;
/// How much lower the centre of [`Framing::Bust`] is, relative to the growth of a narrow picture's
/// half height. The chin is then at most at 63 % of the height, above the captions of a phone.
const BUST_DROP: f32 = 0.62;
/// Share of the face in the height of [`Framing::Close`].
const FACE_SHARE: f32 = 0.5475;
/// Distance of the eyes from the upper edge, as a share of the height. Hair moves it down by at
/// most [`MAX_EYE_SHIFT`].
const EYE_LINE: f32 = 0.43;
/// Space above the hair, as a share of the height.
const AIR: f32 = 0.022;
/// Higher hair is cut off.
const MAX_EYE_SHIFT: f32 = 0.035;
/// Half of the width of a narrow picture, relative to the half height of a square one. The head,
/// without hair and ears, then fills 62 % of the width.
const NARROW_HALF_WIDTH: f32 = 0.81;
/// A picture with a larger ratio of width and height is wide.
const WIDE_ASPECT: f32 = 1.25;

impl View {
    /// `aspect` is the picture's width divided by its height.
    pub(crate) fn new(aspect: f32, framing: Framing, character: &Character) -> Self {
        let narrow = (NARROW_HALF_WIDTH / aspect).max(1.0);
        if framing == Framing::Bust {
            let half_height = BUST_HALF_HEIGHT * narrow;
            let centre_y = BUST_CENTRE_Y - BUST_DROP * (narrow - 1.0);
            return Self { centre_y, half_height, centre_x: 0.5 };
        }
        let half_height = face_height(character) / FACE_SHARE * 0.5 * narrow;
        let height = half_height * 2.0;
        let centre_y = (EYE_LINE - 0.5) * height;
        let air = 0.5 - (hair_top(character) - centre_y) / height;
        let shift = (AIR - air).clamp(0.0, MAX_EYE_SHIFT);
        Self {
            centre_y: centre_y + shift * height,
            half_height,
            centre_x: if aspect > WIDE_ASPECT { 1.0 / 3.0 } else { 0.5 },
        }
    }
}

/// Height of the face on the plane through the head's centre, from the top of the forehead (point
/// 10 of the face mesh) to the chin. Fitted to the nine people of this project.
fn face_height(character: &Character) -> f32 {
    let shape = &character.proportions;
    1.70 + 0.6 * (shape.jaw_height - 0.98) + 0.3 * (shape.chin - 1.0)
}

/// Height of the highest hair on the same plane, measured in pictures of each cut.
fn hair_top(character: &Character) -> f32 {
    if character.headscarf.is_some() {
        return 1.20;
    }
    match character.hair.style {
        HairStyle::None => 1.12,
        HairStyle::Buzz => 1.16,
        HairStyle::Bob => 1.25,
        HairStyle::Side | HairStyle::Long => 1.285,
        HairStyle::Bun => 1.32,
        HairStyle::Short => 1.365,
        HairStyle::Curly => 1.57,
    }
}

#[cfg(test)]
mod tests {
    use glam::{Vec3, vec3};

    use super::*;
    use crate::camera::Camera;
    use crate::pose::Pose;
    use crate::scene::Scene;

    /// The people of this project.
    fn people() -> impl Iterator<Item = (&'static str, Character)> {
        #[derive(Deserialize)]
        struct Person {
            character: Character,
        }
        [
            ("amina", include_str!("../../../assets/people/amina.toml")),
            ("clara", include_str!("../../../assets/people/clara.toml")),
            ("ingrid", include_str!("../../../assets/people/ingrid.toml")),
            ("leo", include_str!("../../../assets/people/leo.toml")),
            ("martin", include_str!("../../../assets/people/martin.toml")),
            ("mei", include_str!("../../../assets/people/mei.toml")),
            ("nia", include_str!("../../../assets/people/nia.toml")),
            ("raj", include_str!("../../../assets/people/raj.toml")),
            ("theo", include_str!("../../../assets/people/theo.toml")),
        ]
        .into_iter()
        .map(|(name, file)| (name, toml::from_str::<Person>(file).unwrap().character))
    }

    /// Heights of forehead, eyes and chin in a picture, and the column of the nose, as shares.
    fn geometry(character: &Character, size: (usize, usize), framing: Framing) -> [f32; 4] {
        let scene = Scene::new(character, &Pose::default());
        let camera = Camera::new(size, framing, character);
        let at = |p: Vec3| {
            let (x, y, _) = camera.project(p);
            [x / size.0 as f32, y / size.1 as f32]
        };
        let surface = |y: f32| vec3(0.0, y, scene.face_depth(0.0, y));
        // The chin ends where the profile runs back to the throat.
        let heights = (0..200).map(|i| -0.85 - i as f32 * 0.002);
        let chin = heights.take_while(|y| scene.face_depth(0.0, *y) > 0.45).last().unwrap();
        let [x, forehead] = at(surface(0.555));
        let eye = at(vec3(0.0, 0.0, scene.eye.z));
        [forehead, eye[1], at(surface(chin))[1], x]
    }

    #[test]
    fn a_close_picture_shows_the_face_at_its_size_and_the_eyes_above_the_middle() {
        for (name, character) in people() {
            let [forehead, eyes, chin, x] = geometry(&character, (512, 512), Framing::Close);
            assert!((0.53..0.58).contains(&(chin - forehead)), "{name}: {forehead} to {chin}");
            assert!((0.41..0.47).contains(&eyes), "{name}: {eyes}");
            assert!((x - 0.5).abs() < 1e-4, "{name}: {x}");
            let [forehead, _, chin, _] = geometry(&character, (512, 512), Framing::Bust);
            assert!((0.44..0.50).contains(&(chin - forehead)), "{name}: {forehead} to {chin}");
        }
    }

    #[test]
    fn a_wide_picture_shows_the_person_at_a_third_and_a_tall_one_fits_its_width() {
        for (name, character) in people() {
            let square = geometry(&character, (512, 512), Framing::Close);
            let wide = geometry(&character, (1280, 720), Framing::Close);
            let moved = square.iter().zip(wide).take(3).map(|(a, b)| (a - b).abs());
            assert!(moved.fold(0.0, f32::max) < 1e-4, "{name}: {square:?} and {wide:?}");
            assert!((wide[3] - 1.0 / 3.0).abs() < 1e-4, "{name}: {wide:?}");
            let [forehead, eyes, chin, x] = geometry(&character, (720, 1280), Framing::Close);
            assert!((0.36..0.41).contains(&(chin - forehead)), "{name}: {forehead} to {chin}");
            assert!((0.41..0.45).contains(&eyes) && (x - 0.5).abs() < 1e-4, "{name}: {eyes}, {x}");
            let bust = geometry(&character, (1280, 720), Framing::Bust);
            assert!((bust[3] - 0.5).abs() < 1e-4, "{name}: {bust:?}");
            let bust = geometry(&character, (720, 1280), Framing::Bust);
            assert!(bust[2] - bust[0] < 0.9 * (chin - forehead), "{name}: {bust:?}");
            // The captions of a phone lie below the chin.
            assert!(bust[2] < 0.63, "{name}: {bust:?}");
        }
    }
}
