//! Reads the file of a call, which may end at any byte.

use std::io::{self, Read};
use std::time::Duration;

use bytes::Bytes;

use crate::ebml::{children, read_all, read_element, uint};
use crate::webm::number::{AGENT, USER, VIDEO};
use crate::webm::{Block, flag, id, read_block};
use crate::{Frame, Packet, Size, Track};

/// Size of the largest element that is read: a cluster of half a second at some 1 Gbit/s.
const MAX_ELEMENT_BYTES: u64 = 64 << 20;

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

/// Reads packets. They are sorted within a cluster only.
pub struct CaptureReader<R> {
    input: R,
    header: Header,
    /// Packets of the current cluster, the last one first.
    packets: Vec<Packet>,
}

impl<R: Read> CaptureReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn new(mut input: R) -> Result<Self, ReadError> {
        let header = read_header(&mut input)?.ok_or(ReadError::NoHeader)?;
        Ok(Self { input, header, packets: Vec::new() })
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> Header {
        self.header
    }

    /// The next packet; `None` after the last complete cluster.
    ///
    /// # Errors
    /// The disk fails.
    pub fn next_packet(&mut self) -> io::Result<Option<Packet>> {
        while self.packets.is_empty() {
            let Some((id, content)) = read_whole(&mut self.input)? else { return Ok(None) };
            if id == id::CLUSTER {
                self.packets = read_cluster(&Bytes::from(content));
            }
        }
        Ok(self.packets.pop())
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

/// The packets of a cluster, the last one first.
fn read_cluster(content: &Bytes) -> Vec<Packet> {
    let mut start = 0;
    let mut packets = Vec::new();
    for (id, inner) in children(content) {
        if id == id::TIMESTAMP {
            start = uint(inner).unwrap_or(0);
        } else if id == id::SIMPLE_BLOCK
            && let Some(block) = read_block(inner)
            && let Some(track) = track_of(&block)
        {
            let at = start.saturating_add_signed(block.time.into());
            let data = content.slice_ref(block.data);
            packets.push(Packet { at: Duration::from_millis(at), track, data });
        }
    }
    packets.reverse();
    packets
}

fn track_of(block: &Block<'_>) -> Option<Track> {
    match block.track {
        AGENT => Some(Track::Agent),
        USER => Some(Track::User),
        VIDEO if block.flags & flag::KEY_FRAME != 0 => Some(Track::Video(Frame::Key)),
        VIDEO if block.flags & flag::DISCARDABLE != 0 => Some(Track::Video(Frame::Picture)),
        VIDEO => Some(Track::Video(Frame::Altref)),
        _ => None,
    }
}
