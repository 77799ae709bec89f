//! How long packets of one stream take from the sender's clock to us, up to a constant that all its streams share: what the sender's reports
//! (RFC 3550, 6.4.1) are for. The difference of two streams' is how far one comes behind the other.

/// Packets that are kept: what comes later is like what came before.
const KEPT: usize = 4_000;

/// One stream's.
pub(super) struct Offsets {
    /// Hz of its time stamps.
    rate: f64,
    newest: Option<u32>,
    /// The sender's clock in s at a time stamp.
    report: Option<(f64, u32)>,
    values: Vec<f64>,
}

impl Offsets {
    pub(super) fn new(rate: f64) -> Self {
        Self { rate, newest: None, report: None, values: Vec::new() }
    }

    /// The sender told which instant of its clock (NTP, 32 bits of s and 32 below) a time stamp means.
    pub(super) fn report(&mut self, ntp: u64, timestamp: u32) {
        self.report = Some((ntp as f64 / 4_294_967_296.0, timestamp));
    }

    /// A packet with this time stamp came at `at` (s, by any clock that all streams share).
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

    /// The median; `None` where nothing was reported.
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
        // At 1000 s of the sender's clock the sound's time stamp was 500, the picture's just before its turn.
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
