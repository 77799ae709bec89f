//! The thresholds of all checks of a photo, in one table.

/// Limits of a usable photo.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thresholds {
    /// A candidate of the detector with more presence than this is a face. Boxes alone see faces in
    /// noise, in hair and in cats.
    pub(crate) presence: f32,
    /// A candidate with at least this presence and score, but not enough presence for a face, is a
    /// face that something hides.
    pub(crate) hidden_presence: f32,
    pub(crate) hidden_score: f32,
    /// A second face counts if it is wider than this share of the first one.
    pub(crate) second_face: f32,
    /// Width of a face in pixels; below the second one, the avatar is soft.
    pub(crate) width: f32,
    pub(crate) soft_width: f32,
    /// Angles in degrees: to the side, up and down, and in the plane of the picture.
    pub(crate) yaw: f32,
    pub(crate) pitch: [f32; 2],
    pub(crate) roll: f32,
    /// Roll in a photo that lies on its side or upside down, beside the quarter turn.
    pub(crate) turned_roll: f32,
    /// What must lie in the picture beyond the forehead, the chin and the sides, as shares of the
    /// face's height.
    pub(crate) above: f32,
    pub(crate) below: f32,
    pub(crate) beside: f32,
    /// The median level of a face that is not dark, 0 … 255.
    pub(crate) dark: f32,
    /// Share of the face where two channels are above [`BURNT_OUT_LEVEL`].
    pub(crate) burnt_out: f32,
    /// Contrast of the details of a sharp face, see `Appearance::sharpness`.
    pub(crate) sharpness: f32,
    /// Eyes are hidden if neither they nor their surroundings reach this share of the cheeks' level.
    pub(crate) eye_level: f32,
    /// A mouth is hidden if the lips are less red than the cheeks by this difference of red and
    /// green.
    pub(crate) lip_redness: f32,
}

/// A level above this one is burnt out.
pub(crate) const BURNT_OUT_LEVEL: f32 = 250.0;

/// Set on altered pictures of one face and of drawn characters.
pub(crate) const THRESHOLDS: Thresholds = Thresholds {
    presence: 0.9,
    hidden_presence: 0.3,
    hidden_score: 0.65,
    second_face: 0.3,
    width: 80.0,
    soft_width: 150.0,
    yaw: 18.0,
    pitch: [-12.0, 28.0],
    roll: 40.0,
    turned_roll: 30.0,
    above: 0.12,
    below: 0.2,
    beside: 0.08,
    dark: 45.0,
    burnt_out: 0.25,
    sharpness: 2.5,
    eye_level: 0.5,
    lip_redness: 6.0,
};
