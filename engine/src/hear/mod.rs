//! From packets of the user's voice to words.

pub mod decode;
pub mod jitter;
mod loudness;
pub mod stt;
pub mod turn;
pub mod vad;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use conversation::spec;
use conversation::time::Time;
use models::stt::Stream;
use models::turn::TurnModel;

use decode::Level;
use vad::{Change, Listener, State, WINDOW, Windows};

/// Samples between two reports of the user's level: .1 s at 16 kHz.
const LEVEL_EVERY: u32 = 1_600;

/// One call's hearing: what comes is cut into windows, kept for the STT, measured; the windows are judged together with other calls'.
pub struct Hearing {
    windows: Windows,
    /// What the network remembers of this user.
    pub(crate) state: State,
    /// Windows to be judged, oldest first, with the instants of their ends.
    pub(crate) ready: VecDeque<([f32; WINDOW], Time)>,
    listener: Listener,
    ear: stt::Ear,
    asker: Option<turn::Asker>,
    level: Level,
    until: Time,
    /// How long the user has been quiet while the detector still hears speech.
    pause: Duration,
}

impl Hearing {
    /// Ears for one call; the turn model only where one is asked.
    #[must_use]
    pub fn new(times: spec::VadTiming, stream: Box<dyn Stream>, turn: Option<Arc<dyn TurnModel>>) -> Self {
        Self {
            windows: Windows::default(),
            state: State::default(),
            ready: VecDeque::with_capacity(4),
            listener: Listener::new(times),
            ear: stt::Ear::new(stream),
            asker: turn.map(turn::Asker::new),
            level: Level::default(),
            until: Time::ZERO,
            pause: Duration::ZERO,
        }
    }

    /// Takes the user's sound (16 kHz mono), which ends at `end`.
    pub fn take(&mut self, pcm: &[i16], end: Time) {
        self.ear.audio(pcm);
        if let Some(asker) = &mut self.asker {
            asker.audio(pcm, end);
        }
        self.level.add(pcm);
        let ready = &mut self.ready;
        self.windows.push(pcm, end, |window, end| ready.push_back((*window, end)));
    }

    /// The probability of the oldest window is known.
    pub fn judged(&mut self, p: f32) -> Option<Change> {
        let (window, end) = self.ready.pop_front()?;
        self.until = end;
        let change = self.listener.window(p, &window, end);
        self.pause =
            if self.hears() && p < vad::STAYS { self.pause + vad::span(WINDOW) } else { Duration::ZERO };
        self.follow(change)
    }

    /// The sound stopped coming: speech under way is over.
    pub fn gap(&mut self) -> Option<Change> {
        let change = self.listener.interrupt(self.until);
        self.follow(change)
    }

    /// Whether the user has been quiet, with the last window, for long enough to have finished perhaps.
    pub(crate) fn may_have_finished(&self) -> bool {
        (turn::AHEAD..turn::AHEAD + vad::span(WINDOW)).contains(&self.pause)
    }

    /// Who asks the turn model, where there is one.
    pub(crate) fn asker(&mut self) -> Option<&mut turn::Asker> {
        self.asker.as_mut()
    }

    /// RMS of the last .1 s in dBFS, once for each.
    pub fn level(&mut self) -> Option<f32> {
        (self.level.count() >= LEVEL_EVERY).then(|| self.level.take())
    }

    /// Whether the detector hears the user.
    #[must_use]
    pub fn hears(&self) -> bool {
        self.listener.hears()
    }

    fn follow(&mut self, change: Option<Change>) -> Option<Change> {
        if let (Some(Change::Started { .. } | Change::Heard { .. }), Some(asker)) = (&change, &mut self.asker)
        {
            asker.went_on();
        }
        match change {
            Some(Change::Started { .. }) => self.ear.begin(),
            Some(Change::Stopped { .. }) => self.ear.end(),
            Some(Change::Heard { .. }) | None => {}
        }
        change
    }
}
