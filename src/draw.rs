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

use crate::{CommandError, child_process};

/// Range of `size` in pixels: small enough to render quickly, large enough to be useful.
const SIDE_RANGE: std::ops::RangeInclusive<usize> = 64..=512;
/// Maximum number of cached stages (head pose and size) of one character. Drafts and full-size
/// pictures alternate, so both must be cached.
const MAX_CACHED_STAGES: usize = 3;
/// VP8 quantizer.
const QUANTIZER: u32 = 14;

#[derive(Deserialize)]
struct PreviewRequest {
    character: Character,
    pose: Pose,
    size: usize,
}

pub(crate) fn run() -> Result<ExitCode, CommandError> {
    child_process::run_as_preview()?;
    let mut next = read_request()?;
    while let Some(request) = next {
        next = match CharacterRenderer::new(&request.character) {
            Ok(sitter) => draw_character(&sitter, request)?,
            Err(_) => {
                write_response(&[])?;
                read_request()?
            }
        };
    }
    Ok(ExitCode::SUCCESS)
}

/// Answers consecutive requests for one character; returns the first request for another one.
fn draw_character(
    renderer: &CharacterRenderer,
    first: PreviewRequest,
) -> Result<Option<PreviewRequest>, CommandError> {
    let character = first.character.clone();
    let mut stages: Vec<(Head, usize, HeadView<'_>)> = Vec::new();
    let mut request = first;
    loop {
        let (head, size) = (request.pose.head, request.size);
        let known = stages.iter().position(|(h, s, _)| (*h, *s) == (head, size));
        let at = known.unwrap_or_else(|| {
            if stages.len() == MAX_CACHED_STAGES {
                stages.remove(0);
            }
            stages.push((
                head,
                size,
                renderer.head_view(&Pose { head, ..Pose::default() }, (size, size)),
            ));
            stages.len() - 1
        });
        let picture = stages[at].2.draw(&request.pose, Rect::whole(size, size)).to_picture();
        write_response(&webp::encode(&picture, QUANTIZER)?)?;
        match read_request()? {
            Some(order) if order.character == character => request = order,
            other => return Ok(other),
        }
    }
}

/// The next valid request; `None` at the end of the input.
fn read_request() -> Result<Option<PreviewRequest>, CommandError> {
    loop {
        let mut line = String::new();
        if std::io::stdin().lock().read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match serde_json::from_str::<PreviewRequest>(&line) {
            Ok(order) if SIDE_RANGE.contains(&order.size) && order.size.is_multiple_of(2) => {
                return Ok(Some(order));
            }
            _ => write_response(&[])?,
        }
    }
}

fn write_response(file: &[u8]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(&u32::try_from(file.len()).unwrap_or(0).to_le_bytes())?;
    out.write_all(file)?;
    out.flush()
}
