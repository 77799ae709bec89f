//! Writes the file of a call.

use std::io::{self, Write};
use std::time::Duration;

use crate::ebml::{UNKNOWN_SIZE, fixed_size, push_bytes, push_id, push_uint};
use crate::webm::number::{AGENT, USER, VIDEO};
use crate::webm::{self, TrackEntry, flag, id};
use crate::{Frame, OPUS_DELAY, Packet, Size, Track};

/// Duration of a cluster. Packets of a shorter time are lost if the process is killed.
const CLUSTER: Duration = Duration::from_millis(500);
/// The latest time of a packet in its cluster, in ms. A stalled network delivers old packets.
const MAX_TIME: u64 = 30_000;

/// Writes packets to a file. Each write is a complete cluster.
pub struct CaptureWriter<W> {
    out: W,
    /// Packets of the next cluster.
    pending: Vec<Packet>,
    cluster: Vec<u8>,
    buffer: Vec<u8>,
    bytes: u64,
}

impl<W: Write> CaptureWriter<W> {
    /// Begins a file. `video` is the size of the video, if there is one.
    ///
    /// # Errors
    /// The header cannot be written.
    pub fn new(mut out: W, video: Option<Size>) -> io::Result<Self> {
        let mut header = Vec::new();
        webm::push_file_header(&mut header);
        push_id(&mut header, id::SEGMENT);
        header.extend(fixed_size(UNKNOWN_SIZE));
        webm::push_info(&mut header, None);
        let audio = |name| TrackEntry::Audio { name, channels: 1, delay: OPUS_DELAY };
        let tracks = [(AGENT, audio("agent")), (USER, audio("user"))].into_iter();
        let video = video.map(|size| (VIDEO, TrackEntry::Video(size)));
        let tracks: Vec<_> = tracks.chain(video).collect();
        webm::push_tracks(&mut header, &tracks);
        out.write_all(&header)?;
        let bytes = header.len() as u64;
        Ok(Self { out, pending: Vec::new(), cluster: Vec::new(), buffer: Vec::new(), bytes })
    }

    /// Adds a packet. The packets of a track are in order; those of different tracks may be up to
    /// seconds apart.
    ///
    /// # Errors
    /// A cluster cannot be written. The file remains valid up to the cluster before.
    pub fn push(&mut self, packet: Packet) -> io::Result<()> {
        let is_full = self.pending.first().is_some_and(|first| packet.at >= first.at + CLUSTER);
        if is_full {
            self.flush()?;
        }
        self.pending.push(packet);
        Ok(())
    }

    /// Writes the packets so far.
    ///
    /// # Errors
    /// See [`CaptureWriter::push`].
    pub fn flush(&mut self) -> io::Result<()> {
        // Stable: frames of the same time depend on each other.
        self.pending.sort_by_key(|packet| packet.at);
        let mut packets = self.pending.drain(..).peekable();
        self.buffer.clear();
        while let Some(start) = packets.peek().map(|packet| milliseconds(packet.at)) {
            self.cluster.clear();
            push_uint(&mut self.cluster, id::TIMESTAMP, start);
            let fits = |packet: &Packet| milliseconds(packet.at) - start <= MAX_TIME;
            while let Some(packet) = packets.next_if(fits) {
                let (track, flags) = match packet.track {
                    Track::Agent => (AGENT, flag::KEY_FRAME),
                    Track::User => (USER, flag::KEY_FRAME),
                    Track::Video(Frame::Key) => (VIDEO, flag::KEY_FRAME),
                    Track::Video(Frame::Altref) => (VIDEO, 0),
                    Track::Video(Frame::Picture) => (VIDEO, flag::DISCARDABLE),
                };
                let time = i16::try_from(milliseconds(packet.at) - start).unwrap_or(i16::MAX);
                webm::push_block(&mut self.cluster, track, time, flags, &packet.data);
            }
            push_bytes(&mut self.buffer, id::CLUSTER, &self.cluster);
        }
        drop(packets);
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.out.write_all(&self.buffer)?;
        self.bytes += self.buffer.len() as u64;
        self.out.flush()
    }

    /// Number of bytes written.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

fn milliseconds(time: Duration) -> u64 {
    // Rounded, so that the times of a track have no bias.
    u64::try_from((time.as_micros() + 500) / 1_000).unwrap_or(u64::MAX)
}
