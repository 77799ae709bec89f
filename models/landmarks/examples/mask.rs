//! Writes the mask of the person in a picture as a gray PNG file: `mask NETWORKS PICTURE OUT.png`,
//! where NETWORKS is the folder of the network files.

use std::error::Error;
use std::path::PathBuf;

use landmarks::{DecodeLimits, MASK_SIDE, Segmenter, decode};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [networks, picture, out] = &arguments[..] else {
        return Err("usage: mask NETWORKS PICTURE OUT.png".into());
    };
    let segmenter = Segmenter::load(networks)?;
    let picture = decode(&std::fs::read(picture)?, DecodeLimits::default())?;
    let mask = segmenter.mask(&picture);
    let levels: Vec<u8> = mask.iter().map(|v| (v * 255.0 + 0.5) as u8).collect();
    let side = u32::try_from(MASK_SIDE)?;
    image::save_buffer(out, &levels, side, side, image::ColorType::L8)?;
    Ok(())
}
