//! Reads the file of a call, which may end at any byte.

use std::io::{self, Read};

use super::clusters::{Cluster, ClusterReader};
use crate::ebml::{children, read_all, read_element, uint};
use crate::webm::id;
use crate::{Packet, Size};

/// Size of the largest element that is read: a cluster of half a second at some 1 Gbit/s.
pub(super) const MAX_ELEMENT_BYTES: u64 = 64 << 20;
/// A cluster may begin this much before the one that was written before it, in ms: the network held
/// its packets back.
const MAX_STEP_BACK: u64 = 60_000;
/// The last cluster begins at most this long after the one before, in ms.
const MAX_LAST_STEP: u64 = 3_600_000;
/// Latest start of a cluster, in ms: a week.
const MAX_START: u64 = 7 * 24 * 3_600_000;

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The disk fails.
    #[error("the file cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The file ends before its list of tracks, or is not of this program.
    #[error("the file has no valid header")]
    NoHeader,
}

/// What the file contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Size of the video, if there is one.
    pub video: Option<Size>,
}

/// Reads packets. They are sorted within a cluster only. Damaged parts are skipped.
pub struct CaptureReader<R> {
    clusters: ClusterReader<R>,
    header: Header,
    /// Packets of the current cluster, the last one first.
    packets: Vec<Packet>,
    /// The next cluster.
    next: Option<Cluster>,
    /// Start of the last cluster whose packets were returned, in ms.
    last_start: Option<u64>,
    is_damaged: bool,
}

impl<R: Read> CaptureReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn new(mut input: R) -> Result<Self, ReadError> {
        let header = read_header(&mut input)?.ok_or(ReadError::NoHeader)?;
        let mut clusters = ClusterReader::new(input);
        let next = clusters.next()?;
        let packets = Vec::new();
        Ok(Self { clusters, header, packets, next, last_start: None, is_damaged: false })
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> Header {
        self.header
    }

    /// Whether a part that was read so far is damaged, so that packets are missing. A file that ends
    /// within a cluster is not: its process was killed.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.is_damaged || self.clusters.is_damaged
    }

    /// The next packet; `None` after the last complete cluster.
    ///
    /// # Errors
    /// The disk fails.
    pub fn next_packet(&mut self) -> io::Result<Option<Packet>> {
        while self.packets.is_empty() {
            let Some(cluster) = self.next.take() else { return Ok(None) };
            self.next = self.clusters.next()?;
            if self.is_time_plausible(cluster.start) {
                self.last_start = Some(cluster.start);
                self.packets = cluster.packets;
            } else {
                self.is_damaged = true;
            }
        }
        Ok(self.packets.pop())
    }

    /// Whether the time of a cluster fits to those before and after it.
    fn is_time_plausible(&self, start: u64) -> bool {
        let follows =
            self.last_start.is_none_or(|last| last <= start.saturating_add(MAX_STEP_BACK));
        let latest = match &self.next {
            Some(next) => next.start.saturating_add(MAX_STEP_BACK),
            None => self.last_start.map_or(MAX_START, |last| last.saturating_add(MAX_LAST_STEP)),
        };
        follows && start <= latest.min(MAX_START)
    }
}

fn read_header(input: &mut impl Read) -> io::Result<Option<Header>> {
    let Some((id::EBML, _)) = read_whole(input)? else { return Ok(None) };
    match read_element(input)? {
        Some(element) if element.id == id::SEGMENT => {}
        _ => return Ok(None),
    }
    loop {
        match read_whole(input)? {
            Some((id::TRACKS, content)) => return Ok(Some(Header { video: video_size(&content) })),
            Some((id::CLUSTER, _)) | None => return Ok(None),
            Some(_) => {}
        }
    }
}

/// Size of the video in a list of tracks.
fn video_size(tracks: &[u8]) -> Option<Size> {
    let entries = children(tracks).filter(|(id, _)| *id == id::TRACK_ENTRY);
    let video = entries.flat_map(|(_, entry)| children(entry)).find(|(id, _)| *id == id::VIDEO)?.1;
    let value = |wanted| {
        let (_, content) = children(video).find(|(id, _)| *id == wanted)?;
        u32::try_from(uint(content)?).ok()
    };
    Some(Size { width: value(id::PIXEL_WIDTH)?, height: value(id::PIXEL_HEIGHT)? })
}

/// An element with its content; `None` if the file ends in it, or if it is too large.
fn read_whole(input: &mut impl Read) -> io::Result<Option<(u32, Vec<u8>)>> {
    let Some(element) = read_element(input)? else { return Ok(None) };
    let Some(size) = element.size.filter(|size| *size <= MAX_ELEMENT_BYTES) else {
        return Ok(None);
    };
    let mut content = vec![0; usize::try_from(size).unwrap_or(0)];
    Ok(read_all(input, &mut content)?.then_some((element.id, content)))
}
