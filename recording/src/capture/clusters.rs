//! Finds the clusters of the file of a call, also behind damaged bytes.

use std::io::{self, Cursor, Read};
use std::time::Duration;

use bytes::Bytes;

use super::reader::MAX_ELEMENT_BYTES;
use crate::ebml::{next_child, read_element, uint};
use crate::webm::number::{AGENT, USER, VIDEO};
use crate::webm::{Block, flag, id, read_block};
use crate::{Frame, Packet, Track};

/// The bytes with which a cluster begins.
const CLUSTER_ID: [u8; 4] = id::CLUSTER.to_be_bytes();
/// Bytes that are searched at once for the next cluster.
const SEARCH_BYTES: u64 = 64 << 10;

/// A cluster.
pub(super) struct Cluster {
    /// Its time, in ms.
    pub(super) start: u64,
    /// The last one first.
    pub(super) packets: Vec<Packet>,
}

/// Reads one cluster after the other.
pub(super) struct ClusterReader<R> {
    /// Bytes that were read, and are to be read again.
    again: Cursor<Vec<u8>>,
    input: R,
    /// Whether damaged bytes were skipped.
    pub(super) is_damaged: bool,
}

impl<R: Read> ClusterReader<R> {
    pub(super) fn new(input: R) -> Self {
        Self { again: Cursor::default(), input, is_damaged: false }
    }

    /// The next cluster; `None` after the last complete one.
    pub(super) fn next(&mut self) -> io::Result<Option<Cluster>> {
        loop {
            let mut read = Vec::new();
            let is_whole = self.read_cluster(&mut read)?;
            if let Some(header) = is_whole {
                let (cluster, is_damaged) = parse(&Bytes::from(read).slice(header..));
                self.is_damaged |= is_damaged;
                match cluster {
                    Some(cluster) => return Ok(Some(cluster)),
                    None => continue,
                }
            }
            if !self.find_next(read)? {
                return Ok(None);
            }
        }
    }

    /// Reads a cluster into `read`. Returns the length of its header if it is whole.
    fn read_cluster(&mut self, read: &mut Vec<u8>) -> io::Result<Option<usize>> {
        let mut input = Read::chain(&mut self.again, &mut self.input);
        let element = read_element(&mut Copying { input: &mut input, copy: read })?;
        let Some(size) = element.filter(|element| element.id == id::CLUSTER).and_then(|e| e.size)
        else {
            return Ok(None);
        };
        if size > MAX_ELEMENT_BYTES {
            return Ok(None);
        }
        let header = read.len();
        let length = input.take(size).read_to_end(read)?;
        Ok((length as u64 == size).then_some(header))
    }

    /// Continues at the next cluster after the start of `read`, which is none, or is not complete.
    /// False if there is no further one. Bytes that no cluster follows are the end of a file whose
    /// process was killed, if they begin as a cluster does.
    fn find_next(&mut self, mut read: Vec<u8>) -> io::Result<bool> {
        if read.is_empty() {
            return Ok(false);
        }
        let begins = read.len().min(CLUSTER_ID.len());
        let is_cut = read[..begins] == CLUSTER_ID[..begins];
        loop {
            let found = read.get(1..).and_then(|rest| {
                rest.windows(CLUSTER_ID.len()).position(|bytes| bytes == CLUSTER_ID)
            });
            if let Some(at) = found {
                self.is_damaged = true;
                // What is left of earlier bytes follows.
                let position = usize::try_from(self.again.position()).unwrap_or(usize::MAX);
                let left = self.again.get_ref().get(position..).unwrap_or_default();
                let mut again = read.split_off(1 + at);
                again.extend_from_slice(left);
                self.again = Cursor::new(again);
                return Ok(true);
            }
            // The id may continue in the next bytes.
            read.drain(1..read.len().saturating_sub(CLUSTER_ID.len() - 1).max(1));
            let input = Read::chain(&mut self.again, &mut self.input);
            if input.take(SEARCH_BYTES).read_to_end(&mut read)? == 0 {
                self.is_damaged |= !is_cut;
                return Ok(false);
            }
        }
    }
}

/// Copies what is read.
struct Copying<'a, R> {
    input: &'a mut R,
    copy: &'a mut Vec<u8>,
}

impl<R: Read> Read for Copying<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.input.read(buffer)?;
        self.copy.extend_from_slice(&buffer[..length]);
        Ok(length)
    }
}

/// The cluster with this content, without what is damaged, and whether something is.
fn parse(content: &Bytes) -> (Option<Cluster>, bool) {
    let mut rest = &content[..];
    let mut start = None;
    let mut packets = Vec::new();
    let mut is_damaged = false;
    while !rest.is_empty() {
        let Some((id, inner)) = next_child(&mut rest) else {
            is_damaged = true;
            break;
        };
        if id == id::TIMESTAMP && start.is_none() {
            start = uint(inner);
        } else if id == id::SIMPLE_BLOCK
            && let (Some(start), Some(block)) = (start, read_block(inner))
            && let Some(track) = track_of(&block)
        {
            let at = u64::saturating_add_signed(start, block.time.into());
            let data = content.slice_ref(block.data);
            packets.push(Packet { at: Duration::from_millis(at), track, data });
        } else {
            is_damaged = true;
        }
    }
    packets.reverse();
    (start.map(|start| Cluster { start, packets }), is_damaged || start.is_none())
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
