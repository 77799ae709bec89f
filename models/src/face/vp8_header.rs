//! Corrects the filter level of a segment in a VP8 frame. It is the only field that the encoder
//! writes in a way that decoders interpret differently.

/// Reduction of the filter level of unfiltered blocks that the encoder is given: no level is
/// higher.
pub(super) const MAX_FILTER_REDUCTION: u8 = 63;
/// The segment of the unfiltered blocks, of four.
const UNFILTERED_SEGMENT: usize = 1;

/// Limits the reduction of the filter level of unfiltered blocks
/// ([`super::vp8::BlockMode::Unfiltered`]) from [`MAX_FILTER_REDUCTION`] to the frame's filter
/// level.
///
/// libvpx accepts a level below 0: it clamps it to 0 before it adds the adjustments for reference
/// and mode (RFC 6386, 9.6). FFmpeg's decoder adds them first, and would filter edges otherwise. A
/// key frame is not changed, and neither is a frame without segments.
pub(super) fn clamp_filter_level(frame: &mut [u8]) {
    // The lowest bit of a key frame is 0. The tag takes three bytes (9.1).
    let Some((tag, partition)) = frame.split_at_mut_checked(3) else { return };
    if tag[0] & 1 == 0 {
        return;
    }
    if let Some((level, more, end)) = read_filter_level(partition)
        && more == -i16::from(MAX_FILTER_REDUCTION)
    {
        subtract_header_bits(
            partition,
            u32::from(MAX_FILTER_REDUCTION - level) * HALF_RANGE_SPLIT,
            end,
        );
    }
}

/// Reads the filter level of a frame, its adjustment in unfiltered blocks, and the number of header
/// bits up to the end of that adjustment without its sign.
fn read_filter_level(partition: &[u8]) -> Option<(u8, i16, usize)> {
    let mut header = BoolDecoder::new(partition)?;
    if !header.read_flag() {
        return None;
    }
    let (map, features) = (header.read_flag(), header.read_flag());
    if !features {
        return None;
    }
    header.read_flag();
    for _ in 0..4 {
        header.read_signed(7);
    }
    let (mut more, mut end) = (0, 0);
    for segment in 0..4 {
        let signed = header.read_signed(6);
        if segment == UNFILTERED_SEGMENT {
            // The sign follows the magnitude.
            (more, end) = (signed, header.bits_read - 1);
        }
    }
    if map {
        for _ in 0..3 {
            if header.read_flag() {
                header.read_literal(8);
            }
        }
    }
    header.read_flag();
    Some((header.read_literal(6), more, end))
}

/// The part of a range of 254 that belongs to 0 if 0 and 1 are equally likely. By RFC 6386, 7.3, it
/// is 1 + (254 - 1) / 2. Both halves of 254 are 127, and doubled they are 254 again. The first bit
/// of the header is 1 in all frames with segments, and changes the range from 255 to 254. After
/// that bit the range remains the same. Each bit that is 1 then adds 127 to the number that the
/// frame represents, doubled once for each bit after it.
const HALF_RANGE_SPLIT: u32 = 127;

/// Subtracts `number` from the written data. `number` is a value of header bits times
/// [`HALF_RANGE_SPLIT`]; the last of these bits is bit `end` of the header, counted from 1. All
/// bits after them still read the same.
fn subtract_header_bits(partition: &mut [u8], number: u32, end: usize) {
    // The first bit is compared with the first byte, so bit `end` has the weight 2^(1 - end), in
    // units of that byte.
    let (byte, shift) = ((end - 1).div_ceil(8), (end - 1).next_multiple_of(8) - (end - 1));
    let Some(digits) = partition.get_mut(..=byte) else { return };
    let mut left = number << shift;
    for digit in digits.iter_mut().rev() {
        let (less, borrows) = digit.overflowing_sub((left & 0xff) as u8);
        *digit = less;
        left = (left >> 8) + u32::from(borrows);
    }
}

/// The arithmetic decoder of RFC 6386, 7.3, for bits whose values are equally likely.
struct BoolDecoder<'a> {
    rest: std::slice::Iter<'a, u8>,
    value: u32,
    range: u32,
    bit_count: u32,
    /// Number of bits read.
    bits_read: usize,
}

impl<'a> BoolDecoder<'a> {
    fn new(data: &'a [u8]) -> Option<Self> {
        let (first, rest) = data.split_at_checked(2)?;
        let value = u32::from(first[0]) << 8 | u32::from(first[1]);
        Some(Self { rest: rest.iter(), value, range: 255, bit_count: 0, bits_read: 0 })
    }

    fn read_flag(&mut self) -> bool {
        let split = 1 + (self.range - 1) / 2;
        let set = self.value >= split << 8;
        if set {
            self.range -= split;
            self.value -= split << 8;
        } else {
            self.range = split;
        }
        while self.range < 128 {
            self.value <<= 1;
            self.range <<= 1;
            self.bit_count += 1;
            if self.bit_count.is_multiple_of(8) {
                self.value |= self.rest.next().map_or(0, |byte| u32::from(*byte));
            }
        }
        self.bits_read += 1;
        set
    }

    /// Reads at most 8 bits, the highest first.
    fn read_literal(&mut self, bits: u32) -> u8 {
        (0..bits).fold(0, |value, _| value << 1 | u8::from(self.read_flag()))
    }

    /// Reads a flag. If it is set, a number of this many bits and a sign follow; otherwise the
    /// value is 0.
    fn read_signed(&mut self, bits: u32) -> i16 {
        if !self.read_flag() {
            return 0;
        }
        let value = i16::from(self.read_literal(bits));
        if self.read_flag() { -value } else { value }
    }
}

#[cfg(test)]
mod tests {
    use super::super::picture::I420;
    use super::super::vp8::{BlockMode, Decoder, Encoder, Quantizers};
    use super::*;

    const SIDE: usize = 128;

    /// Stripes of a width that depends on `n`.
    fn scene(n: usize) -> I420 {
        let rgb: Vec<u8> = (0..SIDE * SIDE)
            .flat_map(|i| {
                [(i % SIDE / (n + 3) % 2 * 90 + i / SIDE) as u8, (i / SIDE * n % 200) as u8, 128]
            })
            .collect();
        I420::from_rgb(&rgb, SIDE, SIDE)
    }

    #[test]
    fn unfiltered_blocks_have_no_loop_filter_and_decode_the_same() {
        let mut encoder = Encoder::new(SIDE, SIDE).unwrap();
        let key = encoder.encode_key_frame(&scene(0), 8).unwrap();
        let blocks: Vec<BlockMode> = (0..64)
            .map(|at| [BlockMode::Lips, BlockMode::Unfiltered, BlockMode::Coded][at % 3])
            .collect();
        let mut levels = Vec::new();
        for n in 1..60 {
            let quantizers = Quantizers { lips: n as u32, other: n as u32 / 2 };
            let frame = encoder.encode_pose(&scene(n), quantizers, &blocks).unwrap();
            let (level, more, end) = read_filter_level(&frame[3..]).unwrap();
            assert_eq!(more, -i16::from(level), "frame {n}");
            // The frame as libvpx wrote it.
            let mut other = frame.clone();
            let less = u32::from(MAX_FILTER_REDUCTION - level) * HALF_RANGE_SPLIT;
            add_header_bits(&mut other[3..], less, end);
            assert_eq!(
                read_filter_level(&other[3..]).unwrap(),
                (level, -i16::from(MAX_FILTER_REDUCTION), end),
                "frame {n}"
            );
            let mut again = other.clone();
            clamp_filter_level(&mut again);
            assert!(again == frame, "frame {n}");
            let pictures = [frame, other].map(|frame| {
                let mut decoder = Decoder::new(SIDE, SIDE).unwrap();
                decoder.decode(&key).unwrap();
                decoder.decode(&frame).unwrap()
            });
            assert!(pictures[0] == pictures[1], "frame {n}");
            levels.push(level);
        }
        levels.sort_unstable();
        levels.dedup();
        assert!(levels.len() > 8, "{levels:?}");
    }

    /// The inverse of [`subtract_header_bits`].
    fn add_header_bits(partition: &mut [u8], number: u32, end: usize) {
        let (byte, shift) = ((end - 1).div_ceil(8), (end - 1).next_multiple_of(8) - (end - 1));
        let mut left = number << shift;
        for digit in partition[..=byte].iter_mut().rev() {
            let (more, carries) = digit.overflowing_add((left & 0xff) as u8);
            *digit = more;
            left = (left >> 8) + u32::from(carries);
        }
    }

    #[test]
    fn key_frames_and_invalid_data_are_not_changed() {
        let key = Encoder::new(SIDE, SIDE).unwrap().encode_key_frame(&scene(0), 8).unwrap();
        for data in
            [key, vec![], vec![1], vec![1, 2, 3], vec![1, 2, 3, 255], vec![1, 2, 3, 255, 255, 255]]
        {
            let mut frame = data.clone();
            clamp_filter_level(&mut frame);
            assert!(frame == data);
        }
    }
}
