//! VP8 for the pose cache: one key frame, anchors, and frames that depend only on one of these.
//!
//! A pose frame refers only to golden, which is the key frame, or only to altref, which is an
//! anchor: a second reference frame for another head. It updates nothing: no reference and no
//! probability. Pose frames may therefore be sent in any order, dropped, repeated and shared by all
//! calls (libvpx's flags `NO_REF_*` and `NO_UPD_*`, error resilient, fixed quantizer). An anchor
//! refers to the key frame and replaces the previous one; every key frame invalidates it.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_long, c_uint};
use std::ptr::{self, NonNull};

use super::picture::I420;
use super::vp8_header;

/// Error code of libvpx.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("libvpx error {0}")]
pub struct Error(i64);

/// Coarsest quantizer; 0 is the finest.
pub const MAX_QUANTIZER: u32 = 63;

/// What a frame refers to, and which reference it replaces: as in `vp8.c`.
#[derive(Clone, Copy)]
enum FrameKind {
    KeyFrame,
    Altref,
    Pose,
    AltrefPose,
}

/// Coding of a macroblock in a frame that is not a key frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BlockMode {
    /// Copied from the reference frame.
    Skipped,
    /// Encoded without the loop filter, so that it looks the same in all frames with the same
    /// content here.
    Unfiltered,
    /// Encoded.
    Coded,
    /// Encoded with a quantizer of its own.
    Lips,
}

/// Quantizers of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantizers {
    /// Quantizer of the lips.
    pub lips: u32,
    /// Quantizer of all other blocks, accurate to one or two steps.
    pub other: u32,
}

impl Quantizers {
    /// One quantizer for all blocks.
    #[must_use]
    pub fn uniform(quantizer: u32) -> Self {
        Self { lips: quantizer, other: quantizer }
    }

    /// Reduction of the lips' quantizer for all other blocks, as libvpx expects it, −63 … 63. libvpx
    /// converts a difference of quantizers as if it started at 0, where a step is smaller. The
    /// factor compensates for that.
    fn segment_delta(self) -> i32 {
        let limit = MAX_QUANTIZER as i32;
        ((self.lips as i32 - self.other as i32) * 7 / 4).clamp(-limit, limit)
    }
}

/// An encoder for one picture size. The same picture and blocks yield the same frame, regardless of
/// the frames in between.
pub struct Encoder {
    raw: NonNull<RawEncoder>,
    width: usize,
    height: usize,
    decoder: Decoder,
    /// The last key frame and the last altref frame, decoded.
    golden: I420,
    altref: I420,
}

// SAFETY: libvpx contexts are bound to no thread; `&mut self` separates calls.
unsafe impl Send for Encoder {}

impl Encoder {
    /// An encoder for pictures of this size; both sides are even.
    ///
    /// # Errors
    /// If libvpx cannot allocate memory or rejects the size.
    pub fn new(width: usize, height: usize) -> Result<Self, Error> {
        let (Ok(w), Ok(h)) = (c_uint::try_from(width), c_uint::try_from(height)) else {
            return Err(Error(-1));
        };
        // SAFETY: plain numbers; the result is owned by `Self` and freed once.
        let raw = unsafe { visavis_vp8_encoder_new(w, h) };
        let raw = NonNull::new(raw).ok_or(Error(-1))?;
        let (golden, altref) = (I420::black(width, height), I420::black(width, height));
        Ok(Self { raw, width, height, decoder: Decoder::new(width, height)?, golden, altref })
    }

    /// An encoder that continues after a key frame and an altref frame, given as decoded pictures.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_references(key: I420, altref: I420) -> Result<Self, Error> {
        let mut new = Self::new(key.width(), key.height())?;
        (new.golden, new.altref) = (key, altref);
        Ok(new)
    }

    /// Encodes a key frame: the reference of every later pose.
    ///
    /// # Errors
    /// Error of libvpx.
    pub fn encode_key_frame(&mut self, picture: &I420, quantizer: u32) -> Result<Vec<u8>, Error> {
        let frame =
            self.encode(picture, FrameKind::KeyFrame, Quantizers::uniform(quantizer), None)?;
        self.golden = self.decoder.decode(&frame)?;
        Ok(frame)
    }

    /// Encodes a frame that depends only on the last key frame. `blocks` says for each macroblock
    /// (16×16, row by row) how it differs from that one.
    ///
    /// # Errors
    /// Error of libvpx.
    ///
    /// # Panics
    /// If `blocks` does not have one entry for each macroblock.
    pub fn encode_pose(
        &mut self,
        picture: &I420,
        quantizers: Quantizers,
        blocks: &[BlockMode],
    ) -> Result<Vec<u8>, Error> {
        self.encode(picture, FrameKind::Pose, quantizers, Some(blocks))
    }

    /// Encodes an altref frame, a second reference frame derived from the key frame: the reference
    /// of every later altref pose.
    ///
    /// # Errors
    /// Error of libvpx.
    ///
    /// # Panics
    /// As [`Self::encode_pose`].
    pub fn encode_altref(
        &mut self,
        picture: &I420,
        quantizer: u32,
        blocks: &[BlockMode],
    ) -> Result<Vec<u8>, Error> {
        let frame =
            self.encode(picture, FrameKind::Altref, Quantizers::uniform(quantizer), Some(blocks))?;
        self.altref = self.decoder.decode(&frame)?;
        Ok(frame)
    }

    /// Encodes a frame that depends only on the last altref frame. `blocks` says how macroblocks
    /// differ from that one.
    ///
    /// # Errors
    /// Error of libvpx.
    ///
    /// # Panics
    /// As [`Self::encode_pose`].
    pub fn encode_altref_pose(
        &mut self,
        picture: &I420,
        quantizers: Quantizers,
        blocks: &[BlockMode],
    ) -> Result<Vec<u8>, Error> {
        self.encode(picture, FrameKind::AltrefPose, quantizers, Some(blocks))
    }

    fn encode(
        &mut self,
        picture: &I420,
        kind: FrameKind,
        quantizers: Quantizers,
        blocks: Option<&[BlockMode]>,
    ) -> Result<Vec<u8>, Error> {
        assert_eq!(
            (picture.width(), picture.height()),
            (self.width, self.height),
            "the picture has the size of the encoder"
        );
        let count = self.width.div_ceil(16) * self.height.div_ceil(16);
        let map: Vec<u8> = blocks.map_or_else(
            || vec![BlockMode::Coded as u8; count],
            |b| b.iter().map(|b| *b as u8).collect(),
        );
        assert_eq!(map.len(), count, "one entry for each macroblock");
        let reference =
            if matches!(kind, FrameKind::AltrefPose) { &self.altref } else { &self.golden };
        let mut data = ptr::null();
        // SAFETY: the picture's size was checked, the map's length too, and references are of the
        // same size; `data` is copied before the next call.
        let length = unsafe {
            visavis_vp8_encode(
                self.raw.as_ptr(),
                picture.bytes().as_ptr(),
                kind as c_int,
                quantizers.lips.min(MAX_QUANTIZER),
                quantizers.segment_delta(),
                map.as_ptr(),
                reference.bytes().as_ptr(),
                &raw mut data,
            )
        };
        match usize::try_from(length) {
            // SAFETY: libvpx says that `length` bytes live at `data` until the next call.
            Ok(length) if length > 0 => {
                let mut frame = unsafe { std::slice::from_raw_parts(data, length) }.to_vec();
                vp8_header::clamp_filter_level(&mut frame);
                Ok(frame)
            }
            _ => Err(Error(length as i64)),
        }
    }
}

impl Drop for Encoder {
    fn drop(&mut self) {
        // SAFETY: made by `visavis_vp8_encoder_new`, freed once.
        unsafe { visavis_vp8_encoder_free(self.raw.as_ptr()) }
    }
}

/// A decoder for bakes and tests, not for calls.
pub struct Decoder {
    raw: NonNull<RawDecoder>,
    width: usize,
    height: usize,
}

// SAFETY: as for the encoder.
unsafe impl Send for Decoder {}

impl Decoder {
    /// A decoder of streams of this size; both sides are even.
    ///
    /// # Errors
    /// If libvpx cannot allocate memory.
    pub fn new(width: usize, height: usize) -> Result<Self, Error> {
        // SAFETY: no arguments; the result is owned by `Self` and freed once.
        let raw = unsafe { visavis_vp8_decoder_new() };
        NonNull::new(raw).map(|raw| Self { raw, width, height }).ok_or(Error(-1))
    }

    /// Decodes the next frame.
    ///
    /// # Errors
    /// Error of libvpx, or the frame has another size.
    pub fn decode(&mut self, frame: &[u8]) -> Result<I420, Error> {
        let mut picture = I420::black(self.width, self.height);
        // SAFETY: the picture holds width × height × 3 / 2 bytes, which is what the shim writes
        // after it has compared the sizes.
        let code = unsafe {
            visavis_vp8_decode(
                self.raw.as_ptr(),
                frame.as_ptr(),
                frame.len(),
                picture.bytes_mut().as_mut_ptr(),
                self.width as c_uint,
                self.height as c_uint,
            )
        };
        if code == 0 { Ok(picture) } else { Err(Error(code.into())) }
    }
}

impl Drop for Decoder {
    fn drop(&mut self) {
        // SAFETY: made by `visavis_vp8_decoder_new`, freed once.
        unsafe { visavis_vp8_decoder_free(self.raw.as_ptr()) }
    }
}

#[repr(C)]
struct RawEncoder {
    _opaque: [u8; 0],
}

#[repr(C)]
struct RawDecoder {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn visavis_vp8_encoder_new(width: c_uint, height: c_uint) -> *mut RawEncoder;
    fn visavis_vp8_encode(
        encoder: *mut RawEncoder,
        i420: *const u8,
        kind: c_int,
        quantizer: c_uint,
        finer: c_int,
        blocks: *const u8,
        reference: *const u8,
        data: *mut *const u8,
    ) -> c_long;
    fn visavis_vp8_encoder_free(encoder: *mut RawEncoder);
    fn visavis_vp8_decoder_new() -> *mut RawDecoder;
    fn visavis_vp8_decode(
        decoder: *mut RawDecoder,
        data: *const u8,
        length: usize,
        i420: *mut u8,
        width: c_uint,
        height: c_uint,
    ) -> c_int;
    fn visavis_vp8_decoder_free(decoder: *mut RawDecoder);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIDE: usize = 128;

    /// A picture with a disc on a gradient; `n` determines its position and size.
    fn scene(n: usize) -> I420 {
        let (cx, cy, r) = (40 + n * 13 % 50, 50 + n * 29 % 40, 8 + n * 7 % 20);
        let rgb: Vec<u8> = (0..SIDE * SIDE)
            .flat_map(|i| {
                let (x, y) = (i % SIDE, i / SIDE);
                let inside = x.abs_diff(cx).pow(2) + y.abs_diff(cy).pow(2) < r * r;
                if inside { [(n * 40) as u8, 90, 200] } else { [x as u8, y as u8, 128] }
            })
            .collect();
        I420::from_rgb(&rgb, SIDE, SIDE)
    }

    /// Marks every changed block as coded.
    fn changed_block_modes(picture: &I420, from: &I420) -> Vec<BlockMode> {
        let moves = |changed| if changed { BlockMode::Coded } else { BlockMode::Skipped };
        picture.changed_blocks(from, 0).into_iter().map(moves).collect()
    }

    #[test]
    fn random_splices_with_loss_decode_to_the_same_bits_as_each_pose_alone() {
        let rest = scene(0);
        let mut encoder = Encoder::new(SIDE, SIDE).unwrap();
        let key = encoder.encode_key_frame(&rest, 8).unwrap();
        let poses: Vec<Vec<u8>> = (1..40)
            .map(|n| {
                let picture = scene(n);
                encoder
                    .encode_pose(
                        &picture,
                        Quantizers::uniform(24),
                        &changed_block_modes(&picture, &rest),
                    )
                    .unwrap()
            })
            .collect();
        // The picture of each pose directly after the key frame.
        let alone: Vec<I420> = poses
            .iter()
            .map(|pose| {
                let mut decoder = Decoder::new(SIDE, SIDE).unwrap();
                decoder.decode(&key).unwrap();
                decoder.decode(pose).unwrap()
            })
            .collect();
        let mut decoder = Decoder::new(SIDE, SIDE).unwrap();
        decoder.decode(&key).unwrap();
        let mut random = 7u32;
        for step in 0..2000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let n = (random >> 16) as usize % poses.len();
            if random.is_multiple_of(20) {
                continue; // lost
            }
            if step % 300 == 299 {
                decoder.decode(&key).unwrap();
            }
            assert!(decoder.decode(&poses[n]).unwrap() == alone[n], "step {step}, pose {n}");
        }
    }

    #[test]
    fn poses_of_key_and_anchor_may_be_mixed_and_lost() {
        let (rest, lean) = (scene(0), scene(5));
        let mut encoder = Encoder::new(SIDE, SIDE).unwrap();
        let key = encoder.encode_key_frame(&rest, 8).unwrap();
        let altref = encoder.encode_altref(&lean, 16, &changed_block_modes(&lean, &rest)).unwrap();
        let poses: Vec<Vec<u8>> = (1..40)
            .map(|n| {
                let picture = scene(n);
                if n % 2 == 0 {
                    encoder
                        .encode_pose(
                            &picture,
                            Quantizers { lips: 34, other: 24 },
                            &changed_block_modes(&picture, &rest),
                        )
                        .unwrap()
                } else {
                    encoder
                        .encode_altref_pose(
                            &picture,
                            Quantizers::uniform(24),
                            &changed_block_modes(&picture, &lean),
                        )
                        .unwrap()
                }
            })
            .collect();
        let decoder_at_references = || {
            let mut decoder = Decoder::new(SIDE, SIDE).unwrap();
            decoder.decode(&key).unwrap();
            decoder.decode(&altref).unwrap();
            decoder
        };
        let alone: Vec<I420> =
            poses.iter().map(|pose| decoder_at_references().decode(pose).unwrap()).collect();
        for (n, picture) in alone.iter().enumerate() {
            assert!(picture.psnr(&scene(n + 1)) > 30.0, "pose {n}");
        }
        let mut decoder = decoder_at_references();
        let mut random = 3u32;
        for step in 0..1000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if step % 250 == 249 {
                decoder = decoder_at_references();
            }
            let n = (random >> 16) as usize % poses.len();
            assert!(decoder.decode(&poses[n]).unwrap() == alone[n], "step {step}, pose {n}");
        }
    }

    #[test]
    fn a_pose_resembles_its_picture_and_keeps_the_key_elsewhere() {
        let rest = scene(0);
        let mut encoder = Encoder::new(SIDE, SIDE).unwrap();
        let key = encoder.encode_key_frame(&rest, 8).unwrap();
        let picture = scene(3);
        let blocks = changed_block_modes(&picture, &rest);
        assert!(blocks.contains(&BlockMode::Coded) && blocks.contains(&BlockMode::Skipped));
        let pose = encoder.encode_pose(&picture, Quantizers::uniform(20), &blocks).unwrap();
        let mut decoder = Decoder::new(SIDE, SIDE).unwrap();
        decoder.decode(&key).unwrap();
        assert!(decoder.decode(&pose).unwrap().psnr(&picture) > 34.0);
    }

    #[test]
    fn lips_may_be_finer_or_coarser_than_the_rest() {
        let (rest, picture) = (scene(0), scene(3));
        let mut encoder = Encoder::new(SIDE, SIDE).unwrap();
        let key = encoder.encode_key_frame(&rest, 8).unwrap();
        let mut blocks = changed_block_modes(&picture, &rest);
        let coded: Vec<usize> =
            (0..blocks.len()).filter(|at| blocks[*at] == BlockMode::Coded).collect();
        let lips = |at: &usize| at.is_multiple_of(2);
        coded.iter().filter(|at| lips(at)).for_each(|at| blocks[*at] = BlockMode::Lips);
        let mut errors = |quantizers| {
            let pose = encoder.encode_pose(&picture, quantizers, &blocks).unwrap();
            let mut decoder = Decoder::new(SIDE, SIDE).unwrap();
            decoder.decode(&key).unwrap();
            let shown = decoder.decode(&pose).unwrap();
            [true, false].map(|which| {
                let part = coded.iter().filter(|at| lips(at) == which);
                let pixels = part.flat_map(|at| {
                    let (x, y) = (at % (SIDE / 16) * 16, at / (SIDE / 16) * 16);
                    (0..256).map(move |i| (x + i % 16, y + i / 16))
                });
                let difference =
                    |(x, y)| u64::from(shown.luma(x, y).abs_diff(picture.luma(x, y))).pow(2);
                pixels.map(difference).sum::<u64>()
            })
        };
        let equal = errors(Quantizers::uniform(44));
        let finer = errors(Quantizers { lips: 20, other: 44 });
        let coarser = errors(Quantizers { lips: 44, other: 20 });
        assert!(finer[0] * 2 < equal[0] && finer[1] * 2 > equal[1], "{finer:?}, {equal:?}");
        assert!(coarser[0] * 2 > equal[0] && coarser[1] * 2 < equal[1], "{coarser:?}, {equal:?}");
    }

    #[test]
    fn invalid_data_is_an_error_and_not_a_crash() {
        let mut decoder = Decoder::new(SIDE, SIDE).unwrap();
        assert!(decoder.decode(&[1, 2, 3, 4, 5]).is_err());
    }
}
