//! Transit time of the packets of one stream, from the sender's clock to ours, up to a constant
//! that all streams of the sender share. It is computed from the sender reports (RFC 3550, 6.4.1).
//! The difference of two streams' offsets is the delay of one behind the other.

/// Maximum number of stored offsets: later packets add no information.
const KEPT: usize = 4_000;

/// Offsets of one stream.
pub(super) struct Offsets {
    /// Clock rate of its RTP timestamps, in Hz.
    rate: f64,
    newest: Option<u32>,
    /// From the last sender report: the sender's clock in s, and the RTP timestamp of that instant.
    report: Option<(f64, u32)>,
    values: Vec<f64>,
}

impl Offsets {
    pub(super) fn new(rate: f64) -> Self {
        Self { rate, newest: None, report: None, values: Vec::new() }
    }

    /// Handles a sender report: which instant of the sender's clock (NTP, 32 bits of s and 32 bits
    /// of fraction) an RTP timestamp corresponds to.
    pub(super) fn report(&mut self, ntp: u64, timestamp: u32) {
        self.report = Some((ntp as f64 / 4_294_967_296.0, timestamp));
    }

    /// Handles a packet with this RTP timestamp that arrived at `at` (s, on any clock common to all
    /// streams).
    pub(super) fn packet(&mut self, at: f64, timestamp: u32) {
        let first = self.newest.replace(timestamp) != Some(timestamp);
        let Some((clock, reported)) = self.report else {
            return;
        };
        if first && self.values.len() < KEPT {
            let since = f64::from(timestamp.wrapping_sub(reported) as i32) / self.rate;
            self.values.push(at - (clock + since));
        }
    }

    /// The median; `None` without a sender report.
    pub(super) fn median(&mut self) -> Option<f64> {
        self.values.sort_by(f64::total_cmp);
        self.values.get(self.values.len() / 2).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_that_come_later_than_their_sound_are_found() {
        let (mut sound, mut picture) = (Offsets::new(48_000.0), Offsets::new(90_000.0));
        let ntp = |s: f64| (s * 4_294_967_296.0) as u64;
        // At 1000 s of the sender's clock, the audio timestamp is 500, and the video timestamp is
        // just before its wrap-around.
        sound.packet(0.0, 1);
        sound.report(ntp(1000.0), 500);
        picture.report(ntp(1000.0), u32::MAX - 44_999);
        for n in 0..100_u32 {
            let t = f64::from(n) * 0.02;
            sound.packet(3.0 + t + 0.005, 500 + n * 960);
            picture.packet(3.0 + t + 0.045, (u32::MAX - 44_999).wrapping_add(n * 1800));
        }
        let behind = picture.median().unwrap() - sound.median().unwrap();
        assert!((behind - 0.04).abs() < 1e-6, "{behind}");
    }

    #[test]
    fn without_a_report_nothing_is_known() {
        let mut sound = Offsets::new(48_000.0);
        sound.packet(1.0, 5);
        assert_eq!(sound.median(), None);
    }
}
