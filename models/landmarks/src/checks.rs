//! Which photos are refused or accepted with a warning.

use std::fmt;

use crate::appearance::Appearance;
use crate::detect::distance;
use crate::picture::{Point, Pyramid};
use crate::points::index::{CHIN, FOREHEAD, LEFT_SIDE, RIGHT_SIDE};
use crate::points::{Points, eye_line};
use crate::thresholds::THRESHOLDS;

/// A part of a face.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// An unknown part.
    Face,
    /// One eye or both.
    Eyes,
    /// The mouth.
    Mouth,
}

/// Why a photo is refused. The text says what the person can do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Refusal {
    /// There is no face.
    NoFace,
    /// There is another face that is not much smaller.
    SeveralFaces,
    /// The face has too few pixels.
    TooSmall {
        /// Width of the face in pixels.
        width: f32,
    },
    /// The head is turned to the side.
    TurnedAside {
        /// Angle in degrees, positive to the right of the picture.
        degrees: f32,
    },
    /// The head is tilted towards a shoulder.
    Tilted {
        /// Angle in degrees, clockwise.
        degrees: f32,
    },
    /// The face looks up.
    LooksUp,
    /// The face looks down.
    LooksDown,
    /// Something covers a part of the face.
    Hidden(Part),
    /// The head or a part of its surroundings is outside the picture.
    CutOff,
    /// The face is too dark.
    TooDark,
    /// The face is overexposed.
    BurntOut,
    /// The face is out of focus or moved.
    Blurred,
}

impl Refusal {
    /// The reason in two or three words, for programs.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoFace => "no face",
            Self::SeveralFaces => "several faces",
            Self::TooSmall { .. } => "too small",
            Self::TurnedAside { .. } => "turned aside",
            Self::Tilted { .. } => "tilted",
            Self::LooksUp => "looks up",
            Self::LooksDown => "looks down",
            Self::Hidden(Part::Face) => "face hidden",
            Self::Hidden(Part::Eyes) => "eyes hidden",
            Self::Hidden(Part::Mouth) => "mouth hidden",
            Self::CutOff => "cut off",
            Self::TooDark => "too dark",
            Self::BurntOut => "burnt out",
            Self::Blurred => "blurred",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = THRESHOLDS;
        match self {
            Self::NoFace => f.write_str(
                "no face was found: use a photo of one person who looks into the camera",
            ),
            Self::SeveralFaces => f.write_str(
                "there is more than one face: crop the photo, so that only one person is in it",
            ),
            Self::TooSmall { width } => write!(
                f,
                "the face is {width:.0} pixels wide, at least {:.0} are needed: use a larger photo \
                 or come closer",
                table.width
            ),
            Self::TurnedAside { degrees } => write!(
                f,
                "the head is turned aside by {:.0} degrees, at most {:.0} are possible: look into \
                 the camera",
                degrees.abs(),
                table.yaw
            ),
            // Beside a half turn, the limit is not the one of an upright photo.
            Self::Tilted { degrees } if degrees.abs() > 90.0 - table.turned_roll => write!(
                f,
                "the photo is turned by {:.0} degrees: turn the photo upright",
                degrees.abs()
            ),
            Self::Tilted { degrees } => write!(
                f,
                "the head is tilted by {:.0} degrees, at most {:.0} are possible: hold it upright, \
                 or turn the photo upright",
                degrees.abs(),
                table.roll
            ),
            Self::LooksUp => f.write_str(
                "the face looks up: hold the camera at the height of the eyes and look into it",
            ),
            Self::LooksDown => f.write_str(
                "the face looks down: hold the camera at the height of the eyes and look into it",
            ),
            Self::Hidden(Part::Face) => f.write_str(
                "something hides a part of the face: both eyes, the nose and the mouth must be \
                 visible",
            ),
            Self::Hidden(Part::Eyes) => {
                f.write_str("both eyes must be visible: take off dark glasses, and open the eyes")
            }
            Self::Hidden(Part::Mouth) => f.write_str(
                "the mouth must be visible: take off what covers it, and keep hands away from it",
            ),
            Self::CutOff => f.write_str(
                "the face is cut off: the hair, both ears and the neck must be in the photo",
            ),
            Self::TooDark => f.write_str("the face is too dark: turn it towards the light"),
            Self::BurntOut => {
                f.write_str("the face is too bright to show its skin: use less light or no flash")
            }
            Self::Blurred => {
                f.write_str("the face is blurred: hold the camera still and focus on it")
            }
        }
    }
}

impl std::error::Error for Refusal {}

/// What a person should know about an accepted photo.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Warning {
    /// The face has few pixels.
    Soft {
        /// Width of the face in pixels.
        width: f32,
    },
    /// The lips seem to be open, but the named points describe closed ones.
    OpenLips,
    /// The photo was upside down or on its side, and is levelled.
    Turned {
        /// Angle in degrees, clockwise.
        degrees: f32,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Soft { width } => write!(
                f,
                "the face is only {width:.0} pixels wide, so the avatar will look soft: {:.0} or \
                 more are better",
                THRESHOLDS.soft_width
            ),
            Self::OpenLips => f.write_str(
                "the lips seem to be open, but named points describe closed lips: send the 478 \
                 points, or choose a photo with closed lips",
            ),
            Self::Turned { degrees } => {
                write!(
                    f,
                    "the photo was turned by {degrees:.0} degrees, so that the face is upright"
                )
            }
        }
    }
}

/// Checks that need the picture and the points only, so that they also apply to points that a person
/// has set.
pub(crate) fn check_points(
    pyramid: &Pyramid<'_>,
    points: &Points,
) -> Result<Vec<Warning>, Refusal> {
    let table = THRESHOLDS;
    let mut warnings = Vec::new();
    let width = distance(points[LEFT_SIDE], points[RIGHT_SIDE]);
    if width < table.width {
        return Err(Refusal::TooSmall { width });
    }
    if width < table.soft_width {
        warnings.push(Warning::Soft { width });
    }
    let degrees = eye_line(|i| points[i]).to_degrees();
    let quarter = (degrees / 90.0).round() * 90.0;
    let limit = if quarter == 0.0 { table.roll } else { table.turned_roll };
    if (degrees - quarter).abs() > limit {
        return Err(Refusal::Tilted { degrees });
    }
    if quarter != 0.0 {
        warnings.push(Warning::Turned { degrees: -degrees });
    }
    if !surroundings(points).iter().all(|point| pyramid.base().contains(*point)) {
        return Err(Refusal::CutOff);
    }
    let appearance = Appearance::new(pyramid, points);
    if appearance.median_level < table.dark {
        return Err(Refusal::TooDark);
    }
    if appearance.burnt_out > table.burnt_out {
        return Err(Refusal::BurntOut);
    }
    if appearance.sharpness < table.sharpness {
        return Err(Refusal::Blurred);
    }
    if appearance.brightest_eye_part() < table.eye_level {
        return Err(Refusal::Hidden(Part::Eyes));
    }
    if appearance.lip_redness.is_some_and(|redness| redness < -table.lip_redness) {
        return Err(Refusal::Hidden(Part::Mouth));
    }
    Ok(warnings)
}

/// Points around the face that must lie in the picture: above the forehead, below the chin, and on
/// both sides.
fn surroundings(points: &Points) -> [Point; 4] {
    let table = THRESHOLDS;
    let (top, chin) = (points[FOREHEAD], points[CHIN]);
    let height = distance(top, chin);
    let (sin, cos) = eye_line(|i| points[i]).sin_cos();
    let beyond = |[x, y]: Point, right: f32, down: f32| {
        let (right, down) = (right * height, down * height);
        [x + right * cos - down * sin, y + right * sin + down * cos]
    };
    [
        beyond(top, 0.0, -table.above),
        beyond(chin, 0.0, table.below),
        beyond(points[LEFT_SIDE], -table.beside, 0.0),
        beyond(points[RIGHT_SIDE], table.beside, 0.0),
    ]
}

#[cfg(test)]
mod tests {
    use super::Refusal;

    #[test]
    fn a_tilt_names_the_limit_that_applies() {
        for (degrees, sentence) in [
            (
                41.0,
                "the head is tilted by 41 degrees, at most 40 are possible: hold it upright, or turn \
                 the photo upright",
            ),
            (
                -58.0,
                "the head is tilted by 58 degrees, at most 40 are possible: hold it upright, or turn \
                 the photo upright",
            ),
            (132.0, "the photo is turned by 132 degrees: turn the photo upright"),
            (-147.0, "the photo is turned by 147 degrees: turn the photo upright"),
        ] {
            assert_eq!(Refusal::Tilted { degrees }.to_string(), sentence);
        }
    }
}
