//! Checks an uploaded photo and draws its previews. Runs in a child process, because a stranger has
//! made the file.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use character::{Eyes, Framing, Mouth, Picture, Pose, Rect};
use landmarks::{CropShape, DecodeLimits, InvalidLandmarks, Landmarks, Points};
pub use landmarks::{Networks, Segmenter};
use photo::PhotoRenderer;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::photo_source::PhotoSource;
use super::{background, webp};

/// Quantizer of the previews.
const QUANTIZER: u32 = 14;

/// What the server asks.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// Check a photo.
    Photo(Request),
    /// Decode and shrink the picture of a background: a file in base64.
    Background(String),
}

/// A photo to check.
#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    /// The file in base64: PNG, JPEG or WebP.
    pub image: String,
    /// Landmarks that a person has set: they replace those of the networks.
    pub landmarks: Option<Value>,
    /// Poses to draw.
    #[serde(default)]
    pub show: Vec<PreviewPose>,
    /// Width and height in pixels of the pose set.
    pub size: [usize; 2],
    /// Whether the source of the avatar is answered.
    pub keep_source: bool,
}

/// A pose of a preview.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PreviewPose {
    /// The photo as it is.
    #[serde(rename = "rest")]
    Rest,
    /// The mouth of "father": the widest opening.
    #[serde(rename = "aa")]
    Aa,
    /// Closed lips.
    #[serde(rename = "PP")]
    Pp,
    /// The mouth of "boot".
    #[serde(rename = "ou")]
    Ou,
    /// Closed eyes.
    #[serde(rename = "blink")]
    Blink,
}

impl PreviewPose {
    fn pose(self) -> Pose {
        let mouth = |mouth: Mouth| Pose { mouth, ..Pose::default() };
        match self {
            Self::Rest => Pose::default(),
            Self::Aa => mouth(Mouth { jaw: 0.78, width: 0.1, ..Mouth::default() }),
            Self::Pp => mouth(Mouth { jaw: 0.04, round: 0.1, press: 1.0, ..Mouth::default() }),
            Self::Ou => mouth(Mouth { jaw: 0.28, width: -0.3, round: 1.0, ..Mouth::default() }),
            Self::Blink => Pose { eyes: Eyes { lids: 1.0, ..Eyes::default() }, ..Pose::default() },
        }
    }
}

/// What the child answers.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// The photo can be used.
    Accepted(Box<AcceptedPhoto>),
    /// It cannot.
    Refused {
        /// One sentence that says what the person can do.
        error: String,
        /// Two or three words, for programs.
        reason: String,
    },
    /// The landmarks of the request are invalid.
    InvalidLandmarks {
        /// Path of the field below `landmarks`; empty for all of them.
        path: String,
        /// What it must be.
        reason: String,
    },
    /// The networks are not installed: only requests with landmarks are answered. One sentence.
    NoNetworks(String),
    /// The picture of a background can be used: it as WebP file in base64.
    Background(String),
}

/// A photo that can be used.
#[derive(Serialize, Deserialize)]
pub struct AcceptedPhoto {
    /// The points of the face mesh as fractions of the picture after EXIF rotation.
    pub landmarks: Vec<[f32; 2]>,
    /// Left, top, width and height of the face, as fractions of the picture.
    #[serde(rename = "box")]
    pub bounds: [f32; 4],
    /// What the person should know: one sentence each.
    pub warnings: Vec<String>,
    /// WebP files in base64.
    pub pictures: BTreeMap<PreviewPose, String>,
    /// If it was requested.
    pub source: Option<PhotoSource>,
}

/// Draws the previews of this process in its only thread. A confined process can start no other.
pub fn draw_with_one_thread() {
    // Fails only if it was called before.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build_global();
}

/// Does what the server asks. `networks`: or one sentence that says why they are missing. Without
/// `segmenter`, the backgrounds of photos cannot be replaced later.
#[must_use]
pub fn respond(
    task: &Task,
    networks: Result<&Networks, &str>,
    segmenter: Option<&Segmenter>,
) -> Response {
    match task {
        Task::Photo(request) => match check(request, networks, segmenter) {
            Ok(accepted) => Response::Accepted(Box::new(accepted)),
            Err(response) => response,
        },
        Task::Background(file) => match background::normalize_image(file) {
            Ok(file) => Response::Background(file),
            Err(error) => refused("not readable", error),
        },
    }
}

fn refused(reason: &str, error: impl ToString) -> Response {
    Response::Refused { error: error.to_string(), reason: reason.to_owned() }
}

fn check(
    request: &Request,
    networks: Result<&Networks, &str>,
    segmenter: Option<&Segmenter>,
) -> Result<AcceptedPhoto, Response> {
    let set = request.landmarks.as_ref().filter(|landmarks| !landmarks.is_null());
    let invalid = |error: InvalidLandmarks| Response::InvalidLandmarks {
        path: error.path,
        reason: error.reason,
    };
    let set = set.map(Landmarks::from_json).transpose().map_err(invalid)?;
    let file = STANDARD.decode(&request.image).unwrap_or_default();
    let picture = landmarks::decode(&file, DecodeLimits::default())
        .map_err(|error| refused("not readable", error))?;
    let (width, height) = (picture.width(), picture.height());
    let (points, warnings) = match set {
        Some(set) => {
            let points = set.to_points(width, height);
            set.check_distance(&picture, &points, request.size).map_err(invalid)?;
            let is_named = matches!(set, Landmarks::Outline(_));
            let check = if is_named { landmarks::check_named } else { landmarks::check };
            let warnings = check(&picture, &points);
            (points, warnings.map_err(|refusal| refused(refusal.reason(), refusal))?)
        }
        None => {
            let networks = networks.map_err(|why| Response::NoNetworks(why.to_owned()))?;
            let found = landmarks::find(networks, &picture)
                .map_err(|refusal| refused(refusal.reason(), refusal))?;
            (found.points, found.warnings)
        }
    };
    let unusable = |error: &dyn ToString| refused("unusable landmarks", error.to_string());
    // A preview shows the photo as it is.
    let segmenter = segmenter.filter(|_| request.keep_source);
    let source =
        PhotoSource::new(&picture, &points, request.size, segmenter).map_err(|e| unusable(&e))?;
    let pictures = draw_previews(&source, &request.show)?;
    let mut warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    if landmarks::exceeds_photo(&picture, &points, CropShape::close(request.size)) {
        warnings.push(TOO_CLOSE.into());
    }
    Ok(AcceptedPhoto {
        landmarks: fractions(&points, width, height),
        bounds: bounds(&fractions(&points, width, height)),
        warnings,
        pictures,
        source: request.keep_source.then_some(source),
    })
}

/// The warning about a photo that does not fill the avatar's picture.
const TOO_CLOSE: &str = "the photo ends close to the face, so the rest of the picture is filled with \
    the colours of its edge: a photo with more space around the head looks better";

fn fractions(points: &Points, width: usize, height: usize) -> Vec<[f32; 2]> {
    points.iter().map(|[x, y]| [x / width as f32, y / height as f32]).collect()
}

/// Left, top, width and height of the rectangle around points.
fn bounds(points: &[[f32; 2]]) -> [f32; 4] {
    let side = |axis: usize, fold: fn(f32, f32) -> f32, start: f32| {
        points.iter().map(|point| point[axis]).fold(start, fold)
    };
    let [left, top] = [0, 1].map(|axis| side(axis, f32::min, f32::INFINITY));
    let [right, bottom] = [0, 1].map(|axis| side(axis, f32::max, f32::NEG_INFINITY));
    [left, top, right - left, bottom - top]
}

fn draw_previews(
    source: &PhotoSource,
    show: &[PreviewPose],
) -> Result<BTreeMap<PreviewPose, String>, Response> {
    let unusable = |error: &dyn ToString| refused("unusable landmarks", error.to_string());
    let (photo, landmarks, _) = source.photo(Framing::default()).map_err(|e| unusable(&e))?;
    // Also without a preview: landmarks that cannot be drawn are refused now.
    let renderer = PhotoRenderer::new(&photo, &landmarks).map_err(|e| unusable(&e))?;
    let (width, height) = renderer.size();
    let mut pictures = BTreeMap::new();
    for pose in show {
        let rgb = renderer.draw(&pose.pose(), Rect::whole(width, height));
        let rgba = rgb.chunks_exact(3).flat_map(|p| [p[0], p[1], p[2], 255]).collect();
        let picture = Picture { width, height, rgba };
        let file = webp::encode(&picture, QUANTIZER).map_err(|e| unusable(&e))?;
        pictures.insert(*pose, STANDARD.encode(file));
    }
    Ok(pictures)
}
