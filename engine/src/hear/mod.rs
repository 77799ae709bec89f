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

use decode::LevelMeter;
use vad::{SpeechDetector, SpeechEvent, State, VadFramer, WINDOW};

/// Samples between two reports of the user's level: .1 s at 16 kHz.
const LEVEL_INTERVAL_SAMPLES: u32 = 1_600;

/// One call's hearing: what comes is cut into windows, kept for the STT, measured; the windows are judged together with other calls'.
pub struct AudioInput {
    framer: VadFramer,
    /// What the network remembers of this user.
    pub(crate) network_state: State,
    /// Windows to be judged, oldest first, with the instants of their ends.
    pub(crate) pending_windows: VecDeque<([f32; WINDOW], Time)>,
    speech_detector: SpeechDetector,
    stt_input: stt::SttInput,
    turn_detector: Option<turn::TurnDetector>,
    level_meter: LevelMeter,
    last_window_end: Time,
    /// How long the user has been quiet while the detector still hears speech.
    silence: Duration,
}

impl AudioInput {
    /// Ears for one call; the turn model only where one is asked.
    #[must_use]
    pub fn new(times: spec::VadTiming, stream: Box<dyn Stream>, turn: Option<Arc<dyn TurnModel>>) -> Self {
        Self {
            framer: VadFramer::default(),
            network_state: State::default(),
            pending_windows: VecDeque::with_capacity(4),
            speech_detector: SpeechDetector::new(times),
            stt_input: stt::SttInput::new(stream),
            turn_detector: turn.map(turn::TurnDetector::new),
            level_meter: LevelMeter::default(),
            last_window_end: Time::ZERO,
            silence: Duration::ZERO,
        }
    }

    /// Takes the user's sound (16 kHz mono), which ends at `end`.
    pub fn push_audio(&mut self, pcm: &[i16], end: Time) {
        self.stt_input.push_audio(pcm);
        if let Some(turn_detector) = &mut self.turn_detector {
            turn_detector.push_audio(pcm, end);
        }
        self.level_meter.add(pcm);
        let ready = &mut self.pending_windows;
        self.framer.push(pcm, end, |window, end| ready.push_back((*window, end)));
    }

    /// The probability of the oldest window is known.
    pub fn on_probability(&mut self, probability: f32) -> Option<SpeechEvent> {
        let (window, end) = self.pending_windows.pop_front()?;
        self.last_window_end = end;
        let event = self.speech_detector.push_window(probability, &window, end);
        self.silence = if self.is_user_speaking() && probability < vad::CONTINUE_THRESHOLD {
            self.silence + vad::samples_duration(WINDOW)
        } else {
            Duration::ZERO
        };
        self.apply_speech_event(event)
    }

    /// The sound stopped coming: speech under way is over.
    pub fn on_audio_gap(&mut self) -> Option<SpeechEvent> {
        let event = self.speech_detector.end_on_gap(self.last_window_end);
        self.apply_speech_event(event)
    }

    /// Whether the user has been quiet, with the last window, for long enough to have finished perhaps.
    pub(crate) fn may_have_finished(&self) -> bool {
        (turn::PREFETCH_SILENCE..turn::PREFETCH_SILENCE + vad::samples_duration(WINDOW))
            .contains(&self.silence)
    }

    /// Who asks the turn model, where there is one.
    pub(crate) fn turn_detector(&mut self) -> Option<&mut turn::TurnDetector> {
        self.turn_detector.as_mut()
    }

    /// RMS of the last .1 s in dBFS, once for each.
    pub fn take_level(&mut self) -> Option<f32> {
        (self.level_meter.sample_count() >= LEVEL_INTERVAL_SAMPLES).then(|| self.level_meter.take())
    }

    /// Whether the detector hears the user.
    #[must_use]
    pub fn is_user_speaking(&self) -> bool {
        self.speech_detector.is_speaking()
    }

    fn apply_speech_event(&mut self, event: Option<SpeechEvent>) -> Option<SpeechEvent> {
        if let (Some(SpeechEvent::Started { .. } | SpeechEvent::Continued { .. }), Some(turn_detector)) =
            (&event, &mut self.turn_detector)
        {
            turn_detector.resume_speech();
        }
        match event {
            Some(SpeechEvent::Started { .. }) => self.stt_input.start_speech(),
            Some(SpeechEvent::Stopped { .. }) => self.stt_input.end_speech(),
            Some(SpeechEvent::Continued { .. }) | None => {}
        }
        event
    }
}
