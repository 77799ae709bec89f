//! The file that is delivered after a call: the video as it is, one stream of both voices, and an
//! index.

pub(crate) mod video;
pub(crate) mod writer;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{self, Read, Seek, Write};
use std::time::Duration;

use self::video::{Video, VideoBlock};
use self::writer::DeliveryWriter;
use crate::capture::{CaptureReader, ReadError};
use crate::mixer::{Mixer, samples};
use crate::{Channels, Packet, SAMPLE_RATE, Track};

/// A packet may be this much older than one before it in the file of a call: the network held it
/// back.
const MAX_REORDERING: Duration = Duration::from_secs(60);
/// The picture that is shown last lasts this long.
pub(crate) const LAST_PICTURE: Duration = Duration::from_millis(40);

/// Why no file was written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file of the call cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The file of the call contains no packet.
    #[error("nothing was recorded")]
    Empty,
    /// The new file cannot be written.
    #[error("the recording cannot be written: {0}")]
    Write(#[source] io::Error),
    /// The Opus library fails.
    #[error("the sound cannot be encoded: {0}")]
    Sound(#[from] opus::Error),
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Duration of the recording.
    pub duration: Duration,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Whether packets are missing, because the file of the call is damaged.
    pub is_damaged: bool,
}

/// Writes the delivered file from that of the call. `report` gets the time of the call up to which
/// it is written.
///
/// # Errors
/// See [`Error`].
pub fn write(
    capture: impl Read,
    output: impl Write + Seek,
    channels: Channels,
    mut report: impl FnMut(Duration),
) -> Result<Summary, Error> {
    let mut reader = CaptureReader::new(capture)?;
    let mut mixer = Mixer::new(channels)?;
    let size = reader.header().video;
    let writer = DeliveryWriter::new(output, size, "conversation", channels, mixer.delay()?);
    let mut delivery = Delivery {
        writer: writer.map_err(Error::Write)?,
        video: Video::default(),
        blocks: VecDeque::new(),
        end: Duration::ZERO,
    };
    let mut sorter = Sorter::default();
    let mut is_empty = true;
    while let Some(packet) = reader.next_packet().map_err(ReadError::from)? {
        is_empty = false;
        sorter.push(packet);
        while let Some(packet) = sorter.pop(false) {
            report(packet.at);
            delivery.push(&mut mixer, &packet)?;
        }
    }
    if is_empty {
        return Err(Error::Empty);
    }
    while let Some(packet) = sorter.pop(true) {
        delivery.push(&mut mixer, &packet)?;
    }
    let (duration, bytes) = delivery.finish(&mut mixer)?;
    Ok(Summary { duration, bytes, is_damaged: reader.is_damaged() })
}

struct Delivery<W: Write + Seek> {
    writer: DeliveryWriter<W>,
    video: Video,
    /// Frames that wait for the sound before them.
    blocks: VecDeque<VideoBlock>,
    /// End of the last picture.
    end: Duration,
}

impl<W: Write + Seek> Delivery<W> {
    /// Adds the next packet in time.
    fn push(&mut self, mixer: &mut Mixer, packet: &Packet) -> Result<(), Error> {
        // All packets before this one are here.
        let settled = mixer.settled(packet.at);
        self.write_sound(mixer, settled)?;
        match packet.track {
            Track::Video(frame) => {
                let time = u64::try_from(packet.at.as_millis()).unwrap_or(u64::MAX);
                self.video.push(time, frame, &packet.data, &mut self.blocks);
                self.end = packet.at + LAST_PICTURE;
            }
            Track::Agent | Track::User => mixer.push(packet),
        }
        Ok(())
    }

    /// Writes the sound up to a position, and the video up to it.
    fn write_sound(&mut self, mixer: &mut Mixer, until: u64) -> Result<(), Error> {
        while let Some((time, packet)) = mixer.next_packet(until)? {
            // The video of the same time comes first: a cluster begins with it.
            while let Some(block) = self.blocks.pop_front_if(|block| block.time <= time) {
                self.writer.write_video(&block).map_err(Error::Write)?;
            }
            self.writer.write_sound(time, &packet).map_err(Error::Write)?;
        }
        Ok(())
    }

    /// Returns the duration and the size.
    fn finish(mut self, mixer: &mut Mixer) -> Result<(Duration, u64), Error> {
        let end = mixer.end().max(samples(self.end));
        // The last packet contains the end.
        self.write_sound(mixer, end + 959)?;
        for block in std::mem::take(&mut self.blocks) {
            self.writer.write_video(&block).map_err(Error::Write)?;
        }
        let duration = Duration::from_micros(end * 1_000_000 / u64::from(SAMPLE_RATE));
        let bytes = self.writer.finish(duration).map_err(Error::Write)?;
        Ok((duration, bytes))
    }
}

/// Sorts packets by time. Those of the same time keep their order.
#[derive(Default)]
struct Sorter {
    heap: BinaryHeap<Reverse<Entry>>,
    latest: Duration,
    count: u64,
}

struct Entry(Duration, u64, Packet);

impl Sorter {
    fn push(&mut self, packet: Packet) {
        self.latest = self.latest.max(packet.at);
        self.count += 1;
        self.heap.push(Reverse(Entry(packet.at, self.count, packet)));
    }

    /// The earliest packet, if none before it can follow. `is_last`: none follows at all.
    fn pop(&mut self, is_last: bool) -> Option<Packet> {
        let Reverse(Entry(at, ..)) = self.heap.peek()?;
        if !is_last && *at + MAX_REORDERING > self.latest {
            return None;
        }
        self.heap.pop().map(|Reverse(Entry(.., packet))| packet)
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}

#[cfg(test)]
mod tests;
