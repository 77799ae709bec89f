//! Writes a file with an index.

use std::io::{self, Seek, SeekFrom, Write};
use std::time::Duration;

use super::video::VideoBlock;
use crate::ebml::{fixed_size, push_bytes, push_fixed_uint, push_id, push_master, push_uint};
use crate::webm::number::{SOUND, VIDEO};
use crate::webm::{self, TrackEntry, flag, id};
use crate::{Channels, Size};

/// Longest time of a cluster in ms.
const MAX_CLUSTER: u64 = 5_000;

/// Writes blocks in the order of their times.
pub(crate) struct DeliveryWriter<W> {
    out: W,
    /// Position of the content of the segment.
    segment: u64,
    size: Option<Size>,
    /// Name of the sound's track.
    name: &'static str,
    channels: Channels,
    /// Delay of the sound in samples.
    delay: u16,
    cluster: Vec<u8>,
    /// Time at which the cluster begins.
    cluster_time: Option<u64>,
    position: u64,
    /// Times, tracks and positions to seek to. The positions count from that of the segment.
    cues: Vec<(u64, u8, u64)>,
}

impl<W: Write + Seek> DeliveryWriter<W> {
    /// Begins a file with this size of the video, and name, channels and delay of the sound.
    pub(crate) fn new(
        mut out: W,
        size: Option<Size>,
        name: &'static str,
        channels: Channels,
        delay: u16,
    ) -> io::Result<Self> {
        out.seek(SeekFrom::Start(0))?;
        let mut writer = Self {
            out,
            segment: 0,
            size,
            name,
            channels,
            delay,
            cluster: Vec::new(),
            cluster_time: None,
            position: 0,
            cues: Vec::new(),
        };
        let header = writer.header(Duration::ZERO, 0, 0);
        writer.write(&header)?;
        Ok(writer)
    }

    /// Everything before the first cluster. Its length does not depend on the values.
    fn header(&mut self, duration: Duration, cues: u64, segment_size: u64) -> Vec<u8> {
        let mut out = Vec::new();
        webm::push_file_header(&mut out);
        push_id(&mut out, id::SEGMENT);
        out.extend(fixed_size(segment_size));
        self.segment = out.len() as u64;
        let mut info = Vec::new();
        webm::push_info(&mut info, Some(duration.as_secs_f64() * 1_000.0));
        let mut tracks = Vec::new();
        let channels = match self.channels {
            Channels::Mixed => 1,
            Channels::Split => 2,
        };
        let sound = TrackEntry::Audio { name: self.name, channels, delay: self.delay };
        let video = self.size.map(|size| (VIDEO, TrackEntry::Video(size)));
        let entries: Vec<_> = std::iter::once((SOUND, sound)).chain(video).collect();
        webm::push_tracks(&mut tracks, &entries);
        let seek_head = |at: u64| {
            let mut out = Vec::new();
            push_master(&mut out, id::SEEK_HEAD, |out| {
                let tracks_at = at + info.len() as u64;
                for (wanted, position) in
                    [(id::INFO, at), (id::TRACKS, tracks_at), (id::CUES, cues)]
                {
                    push_master(out, 0x4dbb, |out| {
                        push_bytes(out, 0x53ab, &wanted.to_be_bytes()); // SeekID
                        push_fixed_uint(out, 0x53ac, position); // SeekPosition
                    });
                }
            });
            out
        };
        // The positions have a fixed length.
        let length = seek_head(0).len() as u64;
        out.extend(seek_head(length));
        out.extend(info);
        out.extend(tracks);
        out
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.position += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    /// Adds a packet of the sound.
    pub(crate) fn write_sound(&mut self, time: u64, packet: &[u8]) -> io::Result<()> {
        let is_late = self.cluster_time.is_none_or(|start| time >= start + MAX_CLUSTER);
        // With video, a cluster begins with a place to seek to.
        if self.cluster_time.is_none() || (is_late && self.size.is_none()) {
            self.begin_cluster(time, SOUND)?;
        } else if is_late && time >= self.cluster_time.unwrap_or(time) + 6 * MAX_CLUSTER {
            // Without pictures for this long, times would not fit into a block.
            self.begin_cluster(time, SOUND)?;
        }
        self.push_block(SOUND, time, flag::KEY_FRAME, packet);
        Ok(())
    }

    /// Adds a frame of the video.
    pub(crate) fn write_video(&mut self, block: &VideoBlock) -> io::Result<()> {
        if block.is_seek_point || self.cluster_time.is_none() {
            self.begin_cluster(block.time, VIDEO)?;
        }
        self.push_block(VIDEO, block.time, block.flags, &block.data);
        Ok(())
    }

    fn push_block(&mut self, track: u8, time: u64, flags: u8, data: &[u8]) {
        let start = self.cluster_time.unwrap_or(time);
        let relative = i16::try_from(time.saturating_sub(start)).unwrap_or(i16::MAX);
        webm::push_block(&mut self.cluster, track, relative, flags, data);
    }

    fn begin_cluster(&mut self, time: u64, track: u8) -> io::Result<()> {
        self.end_cluster()?;
        self.cues.push((time, track, self.position - self.segment));
        self.cluster_time = Some(time);
        push_uint(&mut self.cluster, id::TIMESTAMP, time);
        Ok(())
    }

    fn end_cluster(&mut self) -> io::Result<()> {
        if self.cluster_time.take().is_none() {
            return Ok(());
        }
        let content = std::mem::take(&mut self.cluster);
        let mut head = Vec::new();
        push_id(&mut head, id::CLUSTER);
        head.extend(fixed_size(content.len() as u64));
        self.write(&head)?;
        self.write(&content)?;
        self.cluster = content;
        self.cluster.clear();
        Ok(())
    }

    /// Writes the index and completes the header. Returns the size of the file in bytes.
    pub(crate) fn finish(mut self, duration: Duration) -> io::Result<u64> {
        self.end_cluster()?;
        let cues_at = self.position - self.segment;
        let mut cues = Vec::new();
        push_master(&mut cues, id::CUES, |out| {
            for (time, track, position) in &self.cues {
                push_master(out, 0xbb, |out| {
                    push_uint(out, 0xb3, *time); // CueTime
                    // CueTrackPositions
                    push_master(out, 0xb7, |out| {
                        push_uint(out, 0xf7, u64::from(*track)); // CueTrack
                        push_uint(out, 0xf1, *position); // CueClusterPosition
                    });
                });
            }
        });
        self.write(&cues)?;
        let bytes = self.position;
        let header = self.header(duration, cues_at, bytes - self.segment);
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(&header)?;
        self.out.flush()?;
        Ok(bytes)
    }
}
