//! Who is in front: the mask of the person in a picture.

use std::io;
use std::path::Path;

use crate::picture::{Border, Frame, Picture, Pyramid};
use crate::tflite::Network;

/// File of the network.
pub const MASK_FILE: &str = "selfie_segmentation.tflite";
/// Side of the mask, and of the network's input, in pixels.
pub const MASK_SIDE: usize = 256;

/// The network that separates a person from the background.
#[derive(Debug)]
pub struct Segmenter {
    network: Network,
}

impl Segmenter {
    /// Loads the network from `folder`, where `make setup` installs it.
    ///
    /// # Errors
    /// One sentence that names the file, and says what to do.
    pub fn load(folder: &Path) -> Result<Self, String> {
        let path = folder.join(MASK_FILE);
        let file = std::fs::read(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => format!("{} is missing: run `make setup`", path.display()),
            _ => format!("{} cannot be read ({error}): run `make setup`", path.display()),
        })?;
        let network = Network::read(&file).and_then(|network| {
            let fits = network.input_shape() == [1, MASK_SIDE, MASK_SIDE, 3]
                && network.output_lengths() == [MASK_SIDE * MASK_SIDE];
            if fits { Ok(network) } else { Err("it is another network".to_owned()) }
        });
        network.map(|network| Self { network }).map_err(|why| {
            format!("{} is damaged ({why}): remove it and run `make setup`", path.display())
        })
    }

    /// How likely each place shows the person, 0 … 1: [`MASK_SIDE`] × [`MASK_SIDE`] places that
    /// cover the whole picture, row by row. The network is meant for one person within 2 m.
    #[must_use]
    pub fn mask(&self, picture: &Picture) -> Vec<f32> {
        let size = [picture.width() as f32, picture.height() as f32];
        let frame = Frame { centre: size.map(|length| length / 2.0), size, turn: 0.0 };
        let mut input = Vec::with_capacity(MASK_SIDE * MASK_SIDE * 3);
        Pyramid::new(picture).sample(frame, [MASK_SIDE; 2], Border::Nearest, |colour| {
            input.extend(colour.map(|value| value / 255.0));
        });
        let outputs = self.network.run(input).unwrap_or_default();
        outputs.into_iter().next().unwrap_or_default()
    }
}
