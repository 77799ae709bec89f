//! `visavis draw`: the server's child process that renders previews for the avatar editor.
//!
//! Each line of standard input is a request in JSON: `character`, `pose` and `size`, the side of a
//! square picture in pixels. The response on standard output is the length of a WebP file in bytes
//! (u32, little-endian; 0 = the request is invalid), followed by the file. Consecutive requests for
//! one character share the hair, and those with the same head pose also its lighting. Only the
//! moving parts are then rendered again, which is fast.

use std::io::{BufRead as _, Write as _};
use std::process::ExitCode;

use models::face::{Character, CharacterRenderer, Head, HeadView, Pose, Rect, webp};
use serde::Deserialize;

use crate::{Failure, child};

/// Range of `size` in pixels: small enough to render quickly, large enough to be useful.
const SIDES: std::ops::RangeInclusive<usize> = 64..=512;
/// Maximum number of cached stages (head pose and size) of one character. Drafts and full-size
/// pictures alternate, so both must be cached.
const STAGES: usize = 3;
/// VP8 quantizer.
const QUANTIZER: u32 = 14;

#[derive(Deserialize)]
struct Order {
    character: Character,
    pose: Pose,
    size: usize,
}

pub(crate) fn run() -> Result<ExitCode, Failure> {
    child::step_back(child::DRAWING)?;
    let mut next = take()?;
    while let Some(order) = next {
        next = match CharacterRenderer::new(&order.character) {
            Ok(sitter) => one_person(&sitter, order)?,
            Err(_) => {
                answer(&[])?;
                take()?
            }
        };
    }
    Ok(ExitCode::SUCCESS)
}

/// Answers consecutive requests for one character; returns the first request for another one.
fn one_person(sitter: &CharacterRenderer, first: Order) -> Result<Option<Order>, Failure> {
    let character = first.character.clone();
    let mut stages: Vec<(Head, usize, HeadView<'_>)> = Vec::new();
    let mut now = first;
    loop {
        let (head, size) = (now.pose.head, now.size);
        let known = stages.iter().position(|(h, s, _)| (*h, *s) == (head, size));
        let at = known.unwrap_or_else(|| {
            if stages.len() == STAGES {
                stages.remove(0);
            }
            stages.push((head, size, sitter.head_view(&Pose { head, ..Pose::default() }, (size, size))));
            stages.len() - 1
        });
        let picture = stages[at].2.draw(&now.pose, Rect::whole(size, size)).to_picture();
        answer(&webp::encode(&picture, QUANTIZER)?)?;
        match take()? {
            Some(order) if order.character == character => now = order,
            other => return Ok(other),
        }
    }
}

/// The next valid request; `None` at the end of the input.
fn take() -> Result<Option<Order>, Failure> {
    loop {
        let mut line = String::new();
        if std::io::stdin().lock().read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match serde_json::from_str::<Order>(&line) {
            Ok(order) if SIDES.contains(&order.size) && order.size.is_multiple_of(2) => {
                return Ok(Some(order));
            }
            _ => answer(&[])?,
        }
    }
}

fn answer(file: &[u8]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(&u32::try_from(file.len()).unwrap_or(0).to_le_bytes())?;
    out.write_all(file)?;
    out.flush()
}
