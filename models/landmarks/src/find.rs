//! From a picture to the points of its face, or the reason why it is refused.

use crate::checks::{Part, Refusal, Warning, check_points};
use crate::detect::{Detection, detect, distance};
use crate::networks::Networks;
use crate::open_lips::open_lips;
use crate::picture::{Picture, Pyramid};
use crate::points::{Face, Points};
use crate::thresholds::THRESHOLDS;

/// Maximum number of candidates that are looked at: it bounds the time.
const MAX_CANDIDATES: usize = 6;

/// A face that can be used.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its points in pixels of the picture.
    pub points: Points,
    /// Rectangle around the points, in pixels: left, top, width and height.
    pub bounds: [f32; 4],
    /// Yaw, pitch and roll of the head in degrees.
    pub angles: [f32; 3],
    /// What the person should know.
    pub warnings: Vec<Warning>,
}

/// Finds the one face of a picture, and checks whether it can be used.
///
/// # Errors
/// Why it cannot be used.
pub fn find(networks: &Networks, picture: &Picture) -> Result<Found, Refusal> {
    let pyramid = Pyramid::new(picture);
    let face = find_face(networks, &pyramid)?;
    let points = face.with_irises(networks, &pyramid).ok_or(Refusal::NoFace)?;
    let angles = face.angles();
    let [yaw, pitch, _] = angles;
    // The reasons in the order in which they are most likely the cause of the others.
    let width_and_light = check_points(&pyramid, &points);
    if let Err(refusal @ (Refusal::TooSmall { .. } | Refusal::Tilted { .. })) = width_and_light {
        return Err(refusal);
    }
    if yaw.abs() > THRESHOLDS.yaw {
        return Err(Refusal::TurnedAside { degrees: yaw });
    }
    if pitch < THRESHOLDS.pitch[0] {
        return Err(Refusal::LooksUp);
    }
    if pitch > THRESHOLDS.pitch[1] {
        return Err(Refusal::LooksDown);
    }
    Ok(Found { bounds: bounds(&points), points, angles, warnings: width_and_light? })
}

/// Checks points that a person has set: all checks that need no network.
///
/// # Errors
/// Why they cannot be used.
pub fn check(picture: &Picture, points: &Points) -> Result<Vec<Warning>, Refusal> {
    check_points(&Pyramid::new(picture), points)
}

/// As [`check`], for points of which a person has set only the named ones: these describe closed
/// lips.
///
/// # Errors
/// Why they cannot be used.
pub fn check_named(picture: &Picture, points: &Points) -> Result<Vec<Warning>, Refusal> {
    let pyramid = Pyramid::new(picture);
    let mut warnings = check_points(&pyramid, points)?;
    if open_lips(&pyramid, points) {
        warnings.push(Warning::OpenLips);
    }
    Ok(warnings)
}

/// The only face. A candidate of the detector counts if the mesh network sees a face there, too.
fn find_face(networks: &Networks, pyramid: &Pyramid<'_>) -> Result<Face, Refusal> {
    let mut candidates = detect(networks, pyramid);
    candidates.truncate(MAX_CANDIDATES);
    candidates.sort_by(|a, b| b.width.total_cmp(&a.width));
    let mut hidden = false;
    let mut found: Vec<(Detection, Face)> = Vec::new();
    for candidate in candidates {
        let too_narrow = |(first, _): &(Detection, Face)| {
            candidate.width <= THRESHOLDS.second_face * first.width
        };
        if found.first().is_some_and(too_narrow) {
            break;
        }
        let Some(face) = Face::look(networks, pyramid, &candidate) else { continue };
        if face.presence > THRESHOLDS.presence {
            // The second look may move to a face that another candidate has found.
            let same = |(_, other): &(Detection, Face)| face.overlaps(other);
            match found.iter_mut().find(|found| same(found)) {
                Some(same) if candidate.score > same.0.score => *same = (candidate, face),
                Some(_) => {}
                None => found.push((candidate, face)),
            }
            if found.len() > 1 {
                break;
            }
        } else if face.presence > THRESHOLDS.hidden_presence
            && candidate.score > THRESHOLDS.hidden_score
        {
            hidden = true;
        }
    }
    let mut found = found.into_iter().map(|(_, face)| face);
    match (found.next(), found.next()) {
        (Some(face), None) => Ok(face),
        (Some(_), Some(_)) => Err(Refusal::SeveralFaces),
        _ if hidden => Err(Refusal::Hidden(Part::Face)),
        _ => Err(Refusal::NoFace),
    }
}

impl Face {
    /// Whether the centre of one face lies within the other.
    fn overlaps(&self, other: &Self) -> bool {
        use crate::points::index::{CHIN, FOREHEAD};
        let centre = |face: &Self| {
            let (top, chin) = (face.point(FOREHEAD), face.point(CHIN));
            [(top[0] + chin[0]) / 2.0, (top[1] + chin[1]) / 2.0]
        };
        let height = |face: &Self| distance(face.point(FOREHEAD), face.point(CHIN));
        distance(centre(self), centre(other)) < 0.5 * height(self).max(height(other))
    }
}

/// The rectangle around all points: left, top, width and height.
fn bounds(points: &Points) -> [f32; 4] {
    let (mut low, mut high) = (points[0], points[0]);
    for point in points {
        for axis in 0..2 {
            low[axis] = low[axis].min(point[axis]);
            high[axis] = high[axis].max(point[axis]);
        }
    }
    [low[0], low[1], high[0] - low[0], high[1] - low[1]]
}
