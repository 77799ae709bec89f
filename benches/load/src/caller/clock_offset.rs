//! Transit time of the packets of one stream, from the sender's clock to ours, up to a constant
//! that all streams of the sender share. It is computed from the sender reports (RFC 3550, 6.4.1).
//! The difference of two streams' offsets is the delay of one behind the other.

/// Maximum number of stored offsets: later packets add no information.
const MAX_OFFSETS: usize = 4_000;

/// Offsets of one stream.
pub(super) struct ClockOffsets {
    /// Clock rate of its RTP timestamps, in Hz.
    rate: f64,
    last_timestamp: Option<u32>,
    /// From the last sender report: the sender's clock in s, and the RTP timestamp of that instant.
    last_report: Option<(f64, u32)>,
    offsets: Vec<f64>,
}

impl ClockOffsets {
    pub(super) fn new(rate: f64) -> Self {
        Self { rate, last_timestamp: None, last_report: None, offsets: Vec::new() }
    }

    /// Handles a sender report: which instant of the sender's clock (NTP, 32 bits of s and 32 bits
    /// of fraction) an RTP timestamp corresponds to.
    pub(super) fn add_report(&mut self, ntp: u64, timestamp: u32) {
        self.last_report = Some((ntp as f64 / 4_294_967_296.0, timestamp));
    }

    /// Handles a packet with this RTP timestamp that arrived at `at` (s, on any clock common to all
    /// streams).
    pub(super) fn add_packet(&mut self, at: f64, timestamp: u32) {
        let first = self.last_timestamp.replace(timestamp) != Some(timestamp);
        let Some((clock, reported)) = self.last_report else {
            return;
        };
        if first && self.offsets.len() < MAX_OFFSETS {
            let since = f64::from(timestamp.wrapping_sub(reported) as i32) / self.rate;
            self.offsets.push(at - (clock + since));
        }
    }

    /// The median; `None` without a sender report.
    pub(super) fn median(&mut self) -> Option<f64> {
        self.offsets.sort_by(f64::total_cmp);
        self.offsets.get(self.offsets.len() / 2).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_that_come_later_than_their_sound_are_found() {
        let (mut sound, mut picture) = (ClockOffsets::new(48_000.0), ClockOffsets::new(90_000.0));
        let ntp = |s: f64| (s * 4_294_967_296.0) as u64;
        // At 1000 s of the sender's clock, the audio timestamp is 500, and the video timestamp is
        // just before its wrap-around.
        sound.add_packet(0.0, 1);
        sound.add_report(ntp(1000.0), 500);
        picture.add_report(ntp(1000.0), u32::MAX - 44_999);
        for n in 0..100_u32 {
            let t = f64::from(n) * 0.02;
            sound.add_packet(3.0 + t + 0.005, 500 + n * 960);
            picture.add_packet(3.0 + t + 0.045, (u32::MAX - 44_999).wrapping_add(n * 1800));
        }
        let delay = picture.median().unwrap() - sound.median().unwrap();
        assert!((delay - 0.04).abs() < 1e-6, "{delay}");
    }

    #[test]
    fn without_a_report_nothing_is_known() {
        let mut sound = ClockOffsets::new(48_000.0);
        sound.add_packet(1.0, 5);
        assert_eq!(sound.median(), None);
    }
}
