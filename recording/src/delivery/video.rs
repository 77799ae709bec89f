//! Adds key frames that are not shown, so that a player can begin at any of them.
//!
//! A picture of the avatar depends on the key frame or on the altref frame. Both are sent once, and
//! a key frame shows the avatar at rest. A copy of them that is not shown (`show_frame` 0, RFC 6386,
//! 9.1) makes the next picture a place to seek to, and changes no picture.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::Frame;
use crate::webm::flag;

/// Time between two places to seek to, in ms.
const SEEK_INTERVAL: u64 = 5_000;
/// Bit of the first byte of a frame that says whether it is shown.
const SHOW_FRAME: u8 = 0x10;

/// A frame of the delivered file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VideoBlock {
    /// In ms.
    pub(crate) time: u64,
    pub(crate) flags: u8,
    /// Whether a player can begin here.
    pub(crate) is_seek_point: bool,
    pub(crate) data: Bytes,
}

/// The references of the current picture.
#[derive(Default)]
pub(crate) struct Video {
    /// The key frame, and the time of the last place to seek to.
    key: Option<(Bytes, u64)>,
    altref: Option<Bytes>,
}

impl Video {
    /// Adds the blocks of a frame.
    pub(crate) fn push(
        &mut self,
        time: u64,
        frame: Frame,
        data: &Bytes,
        blocks: &mut VecDeque<VideoBlock>,
    ) {
        let block = |flags, data: &Bytes| VideoBlock {
            time,
            flags,
            is_seek_point: flags & flag::KEY_FRAME != 0,
            data: data.clone(),
        };
        match frame {
            Frame::Key => {
                self.key = Some((data.clone(), time));
                self.altref = None;
                return blocks.push_back(block(flag::KEY_FRAME, data));
            }
            Frame::Altref => self.altref = Some(data.clone()),
            Frame::Picture => {}
        }
        // Nothing can be shown before the first key frame.
        let Some((key, last)) = &mut self.key else { return };
        if frame == Frame::Picture && time >= *last + SEEK_INTERVAL {
            *last = time;
            blocks.push_back(block(flag::KEY_FRAME | flag::INVISIBLE, &hidden(key)));
            if let Some(altref) = &self.altref {
                blocks.push_back(block(flag::INVISIBLE, &hidden(altref)));
            }
        }
        let flags = if frame == Frame::Picture { flag::DISCARDABLE } else { 0 };
        blocks.push_back(block(flags, data));
    }
}

/// A frame that is decoded and not shown.
fn hidden(frame: &Bytes) -> Bytes {
    let mut frame = frame.to_vec();
    if let Some(first) = frame.first_mut() {
        *first &= !SHOW_FRAME;
    }
    frame.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(video: &mut Video, time: u64, frame: Frame, data: &'static [u8]) -> Vec<VideoBlock> {
        let mut blocks = VecDeque::new();
        video.push(time, frame, &Bytes::from_static(data), &mut blocks);
        blocks.into()
    }

    #[test]
    fn references_are_repeated_unseen_before_a_picture() {
        let mut video = Video::default();
        let key = push(&mut video, 0, Frame::Key, &[0x10, 1]);
        assert!(key[0].is_seek_point && key[0].flags == flag::KEY_FRAME);
        assert_eq!(push(&mut video, 40, Frame::Picture, &[0x31, 2]).len(), 1);
        let copies = push(&mut video, 5_000, Frame::Picture, &[0x31, 2]);
        let seen: Vec<_> = copies.iter().map(|b| (b.flags, b.is_seek_point, &b.data[..])).collect();
        assert_eq!(seen, [(0x88, true, &[0, 1][..]), (1, false, &[0x31, 2])]);
        assert_eq!(push(&mut video, 5_040, Frame::Altref, &[0x31, 3]).len(), 1);
        let copies = push(&mut video, 10_000, Frame::Picture, &[0x31, 2]);
        let seen: Vec<_> = copies.iter().map(|b| (b.flags, b.is_seek_point, &b.data[..])).collect();
        assert_eq!(
            seen,
            [(0x88, true, &[0, 1][..]), (0x08, false, &[0x21, 3]), (1, false, &[0x31, 2])]
        );
        // A new key frame invalidates the altref frame.
        assert_eq!(push(&mut video, 12_000, Frame::Key, &[0x10, 4]).len(), 1);
        assert_eq!(push(&mut video, 17_000, Frame::Picture, &[0x31, 2]).len(), 2);
    }

    #[test]
    fn frames_before_the_first_key_frame_are_dropped() {
        let mut video = Video::default();
        assert!(push(&mut video, 0, Frame::Picture, &[0x31]).is_empty());
        assert!(push(&mut video, 0, Frame::Altref, &[0x31]).is_empty());
    }
}
