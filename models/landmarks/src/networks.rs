//! The three networks of MediaPipe, and what they answer for one region of a picture.

use std::io;
use std::path::Path;

use crate::picture::{Border, Frame, Pyramid};
use crate::tflite::Network;

/// File of the face detector.
pub const DETECTOR_FILE: &str = "face_detection_short_range.tflite";
/// File of the network that finds the points of a face.
pub const MESH_FILE: &str = "face_landmark.tflite";
/// File of the network that finds an iris.
pub const IRIS_FILE: &str = "iris_landmark.tflite";

/// Side of the detector's input in pixels.
pub(crate) const DETECTOR_SIDE: usize = 128;
/// Number of boxes that the detector answers.
pub(crate) const ANCHORS: usize = 896;
/// Numbers of a box: centre, size, and six points.
pub(crate) const BOX_NUMBERS: usize = 16;
/// Side of the mesh network's input.
const MESH_SIDE: usize = 192;
/// Number of points of the mesh.
pub(crate) const MESH_POINTS: usize = 468;
/// Side of the iris network's input.
const IRIS_SIDE: usize = 64;
/// Number of points of an iris: its centre and four points of its edge.
pub(crate) const IRIS_POINTS: usize = 5;

/// The networks, ready to run.
#[derive(Debug)]
pub struct Networks {
    detector: Network,
    mesh: Network,
    iris: Network,
}

/// Points of a face in fractions of a frame, with depth in the same unit.
pub(crate) struct Mesh {
    pub(crate) points: Vec<[f32; 3]>,
    /// How likely the frame shows a face, 0 … 1.
    pub(crate) presence: f32,
}

impl Networks {
    /// Loads the networks from `folder`, where `make setup` installs them.
    ///
    /// # Errors
    /// One sentence that names the file, and says what to do.
    pub fn load(folder: &Path) -> Result<Self, String> {
        Self::from_files(|name| {
            let path = folder.join(name);
            std::fs::read(&path).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => {
                    format!("{} is missing: run `make setup`", path.display())
                }
                _ => format!("{} cannot be read ({error}): run `make setup`", path.display()),
            })
        })
    }

    /// The same from files that `read` gives by their names.
    ///
    /// # Errors
    /// The error of `read`, or one sentence that names the file that is damaged.
    pub fn from_files(read: impl Fn(&str) -> Result<Vec<u8>, String>) -> Result<Self, String> {
        let load = |name: &str, side: usize, outputs: &[usize]| {
            let network = Network::read(&read(name)?).and_then(|network| {
                let fits = network.input_shape() == [1, side, side, 3]
                    && network.output_lengths() == outputs;
                if fits { Ok(network) } else { Err("it is another network".to_owned()) }
            });
            network
                .map_err(|why| format!("{name} is damaged ({why}): remove it and run `make setup`"))
        };
        Ok(Self {
            detector: load(DETECTOR_FILE, DETECTOR_SIDE, &[ANCHORS * BOX_NUMBERS, ANCHORS])?,
            mesh: load(MESH_FILE, MESH_SIDE, &[MESH_POINTS * 3, 1])?,
            iris: load(IRIS_FILE, IRIS_SIDE, &[71 * 3, IRIS_POINTS * 3])?,
        })
    }

    /// Boxes and scores of the detector for a region: [`ANCHORS`] × [`BOX_NUMBERS`] in pixels of its
    /// input, and as many logits.
    pub(crate) fn detect(&self, pyramid: &Pyramid<'_>, frame: Frame) -> Option<[Vec<f32>; 2]> {
        let input = input(pyramid, frame, DETECTOR_SIDE, Border::Black, [-1.0, 1.0]);
        self.detector.run(input)?.try_into().ok()
    }

    /// The points of the face that fills a region.
    pub(crate) fn mesh(&self, pyramid: &Pyramid<'_>, frame: Frame) -> Option<Mesh> {
        let input = input(pyramid, frame, MESH_SIDE, Border::Nearest, [0.0, 1.0]);
        let [points, presence]: [Vec<f32>; 2] = self.mesh.run(input)?.try_into().ok()?;
        let points = triples(&points).map(|point| point.map(|v| v / MESH_SIDE as f32)).collect();
        Some(Mesh { points, presence: sigmoid(*presence.first()?) })
    }

    /// Centre of the iris in a region, then its right, upper, left and lower edge, in fractions of
    /// the region. The network knows eyes of one
    /// side; with `mirrored`, it sees the mirrored region.
    pub(crate) fn iris(
        &self,
        pyramid: &Pyramid<'_>,
        frame: Frame,
        mirrored: bool,
    ) -> Option<Vec<[f32; 2]>> {
        let mut input = input(pyramid, frame, IRIS_SIDE, Border::Nearest, [0.0, 1.0]);
        if mirrored {
            for row in input.chunks_exact_mut(IRIS_SIDE * 3) {
                for left in 0..IRIS_SIDE / 2 {
                    let right = IRIS_SIDE - 1 - left;
                    (0..3).for_each(|c| row.swap(left * 3 + c, right * 3 + c));
                }
            }
        }
        let [_, iris]: [Vec<f32>; 2] = self.iris.run(input)?.try_into().ok()?;
        let points = triples(&iris).map(|[x, y, _]| {
            let [x, y] = [x / IRIS_SIDE as f32, y / IRIS_SIDE as f32];
            [if mirrored { 1.0 - x } else { x }, y]
        });
        let mut points: Vec<[f32; 2]> = points.collect();
        if mirrored && points.len() == IRIS_POINTS {
            // The edge is listed as right, top, left, bottom for both eyes.
            points.swap(1, 3);
        }
        Some(points)
    }
}

/// The pixels of a region as numbers in `range`.
fn input(
    pyramid: &Pyramid<'_>,
    frame: Frame,
    side: usize,
    border: Border,
    [low, high]: [f32; 2],
) -> Vec<f32> {
    let mut input = Vec::with_capacity(side * side * 3);
    let scale = (high - low) / 255.0;
    pyramid.sample(frame, [side, side], border, |colour| {
        input.extend(colour.map(|value| low + value * scale));
    });
    input
}

fn triples(numbers: &[f32]) -> impl Iterator<Item = [f32; 3]> {
    numbers.chunks_exact(3).map(|n| [n[0], n[1], n[2]])
}

pub(crate) fn sigmoid(logit: f32) -> f32 {
    1.0 / (1.0 + (-logit).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_or_damaged_file_is_named_with_the_remedy() {
        let missing = Networks::load(Path::new("no/such/folder")).unwrap_err();
        assert_eq!(missing, format!("no/such/folder/{DETECTOR_FILE} is missing: run `make setup`"));
        let damaged = Networks::from_files(|_| Ok(b"damaged".to_vec())).unwrap_err();
        assert_eq!(
            damaged,
            format!(
                "{DETECTOR_FILE} is damaged (it is not a TensorFlow Lite file): remove it and run \
                 `make setup`"
            )
        );
    }
}
