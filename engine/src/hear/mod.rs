//! From packets of the user's audio to transcripts.

pub mod decode;
pub mod jitter;
mod loudness;
pub mod own_voice;
pub mod stt;
pub mod turn_detector;
pub mod vad;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use conversation::spec;
use conversation::time::Time;
use models::stt::SttStream;
use models::turn::TurnModel;

use decode::LevelMeter;
use own_voice::{OwnVoice, Verdict};
use vad::{NetworkState, SpeechDetector, SpeechEvent, VadFramer, WINDOW};

/// Samples between two reports of the user's level: .1 s at 16 kHz.
const LEVEL_INTERVAL_SAMPLES: u32 = 1_600;

/// Samples of the longest block of audio, 120 ms.
const MAX_BLOCK_SAMPLES: usize = 1_920;
/// What is heard instead of the agent's own voice.
static SILENCE: [i16; MAX_BLOCK_SAMPLES] = [0; MAX_BLOCK_SAMPLES];
/// How long the STT waits while it is open whether a speech segment is the agent's own voice.
const OWN_VOICE_WAIT: Duration = Duration::from_millis(600);

/// Whether the STT hears the speech segment that the detector reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SttState {
    /// It does, or there is none.
    Hears,
    /// It is open until then whether the segment is the agent's own voice.
    Waits { until: Time },
    /// The segment is the agent's own voice.
    Ignores,
}

/// The audio input of one call. It cuts the user's audio into windows, buffers it for the STT and
/// measures its level. The VAD processes the windows in one batch with those of other calls.
pub struct AudioInput {
    framer: VadFramer,
    /// State of the VAD network for this user.
    pub(crate) network_state: NetworkState,
    /// Windows to be processed, oldest first, with the time of their end.
    pub(crate) pending_windows: VecDeque<([f32; WINDOW], Time)>,
    speech_detector: SpeechDetector,
    stt_input: stt::SttInput,
    stt_state: SttState,
    /// In calls of several people.
    own_voice: Option<Box<OwnVoice>>,
    /// The last speech segment was the agent's own voice, so the STT sends no transcript for it.
    has_ignored_segment: bool,
    turn_detector: Option<turn_detector::TurnDetector>,
    level_meter: LevelMeter,
    last_window_end: Time,
    /// How long the user has been quiet while the detector still reports speech.
    silence: Duration,
}

impl AudioInput {
    /// The input of one call; `turn` is the turn model, if the call uses one.
    #[must_use]
    pub fn new(
        times: spec::VadTiming,
        stream: Box<dyn SttStream>,
        turn: Option<Arc<dyn TurnModel>>,
    ) -> Self {
        Self {
            framer: VadFramer::default(),
            network_state: NetworkState::default(),
            pending_windows: VecDeque::with_capacity(4),
            speech_detector: SpeechDetector::new(times),
            stt_input: stt::SttInput::new(stream),
            stt_state: SttState::Hears,
            own_voice: None,
            has_ignored_segment: false,
            turn_detector: turn.map(turn_detector::TurnDetector::new),
            level_meter: LevelMeter::default(),
            last_window_end: Time::ZERO,
            silence: Duration::ZERO,
        }
    }

    /// The same input for several people, one of whom may send back the agent's voice.
    #[must_use]
    pub fn with_several_people(self, are_several: bool) -> Self {
        Self { own_voice: are_several.then(Box::default), ..self }
    }

    /// Sets whether there are several people, where their number is known. One person is heard as
    /// in other calls: the client cancels the echo.
    pub(crate) fn set_several_people(&mut self, are_several: bool) {
        match are_several {
            true => {
                self.own_voice.get_or_insert_default();
            }
            false => self.own_voice = None,
        }
    }

    /// Whether the agent's voice may come back, so that [`Self::push_sent`] is needed.
    pub(crate) fn looks_for_own_voice(&self) -> bool {
        self.own_voice.is_some()
    }

    /// Takes a frame of the agent's audio, 48 kHz mono, that leaves at `at`.
    pub fn push_sent(&mut self, pcm: &[i16], at: Time, is_speech: bool) {
        if let Some(own_voice) = &mut self.own_voice {
            own_voice.push_sent(pcm, at, is_speech);
        }
    }

    /// The call has started.
    pub fn start_call(&mut self) {
        self.stt_input.start_call();
    }

    /// The call has ended: the STT stream is closed.
    pub fn end_call(&mut self) {
        self.stt_input.end_call();
    }

    /// Takes the user's audio (16 kHz mono), which ends at `end`.
    pub fn push_audio(&mut self, pcm: &[i16], end: Time) {
        let is_own = pcm.len() <= MAX_BLOCK_SAMPLES && self.hears_own_voice(pcm, end);
        let pcm = if is_own { &SILENCE[..pcm.len()] } else { pcm };
        self.stt_input.push_audio(pcm);
        if let Some(turn_detector) = &mut self.turn_detector {
            turn_detector.push_audio(pcm, end);
        }
        self.level_meter.add(pcm);
        let ready = &mut self.pending_windows;
        self.framer.push(pcm, end, |window, end| ready.push_back((*window, end)));
    }

    /// Takes the probability of the oldest window.
    pub fn on_probability(&mut self, probability: f32) -> Option<SpeechEvent> {
        let (window, end) = self.pending_windows.pop_front()?;
        self.last_window_end = end;
        if let SttState::Waits { until } = self.stt_state
            && end >= until
        {
            self.stt_state = SttState::Hears;
            self.stt_input.start_speech();
        }
        let event = self.speech_detector.push_window(probability, &window, end);
        self.silence = if self.is_user_speaking() && probability < vad::CONTINUE_THRESHOLD {
            self.silence + vad::samples_duration(WINDOW)
        } else {
            Duration::ZERO
        };
        self.apply_speech_event(event)
    }

    /// The audio stopped arriving: ends a speech segment that is active.
    pub fn on_audio_gap(&mut self) -> Option<SpeechEvent> {
        let event = self.speech_detector.end_on_gap(self.last_window_end);
        self.apply_speech_event(event)
    }

    /// Whether the user has just been quiet long enough to have possibly finished. True for one
    /// window per silence.
    pub(crate) fn may_have_finished(&self) -> bool {
        (turn_detector::PREFETCH_SILENCE
            ..turn_detector::PREFETCH_SILENCE + vad::samples_duration(WINDOW))
            .contains(&self.silence)
    }

    /// The turn detector, if the call uses a turn model.
    pub(crate) fn turn_detector(&mut self) -> Option<&mut turn_detector::TurnDetector> {
        self.turn_detector.as_mut()
    }

    /// RMS level of the last .1 s in dBFS, once per .1 s.
    pub fn take_level(&mut self) -> Option<f32> {
        (self.level_meter.sample_count() >= LEVEL_INTERVAL_SAMPLES).then(|| self.level_meter.take())
    }

    /// Whether the detector reports speech.
    #[must_use]
    pub fn is_user_speaking(&self) -> bool {
        self.speech_detector.is_speaking()
    }

    fn apply_speech_event(&mut self, event: Option<SpeechEvent>) -> Option<SpeechEvent> {
        if let (
            Some(SpeechEvent::Started { .. } | SpeechEvent::Continued { .. }),
            Some(turn_detector),
        ) = (&event, &mut self.turn_detector)
        {
            turn_detector.resume_speech();
        }
        match event {
            Some(SpeechEvent::Started { window_end, .. }) => self.start_stt(window_end),
            Some(SpeechEvent::Stopped { .. }) => self.end_stt(),
            Some(SpeechEvent::Continued { .. }) | None => {}
        }
        event
    }

    /// Whether the last speech segment was the agent's own voice. Asked once for each segment.
    pub(crate) fn take_ignored_segment(&mut self) -> bool {
        std::mem::take(&mut self.has_ignored_segment)
    }

    /// Whether a block of the users' audio is the agent's own voice.
    fn hears_own_voice(&mut self, pcm: &[i16], end: Time) -> bool {
        let Some(own_voice) = &mut self.own_voice else { return false };
        match own_voice.push_heard(pcm, end) {
            Verdict::Clear => false,
            Verdict::Own => true,
            Verdict::OwnFromNow => {
                self.stt_input.mute_pre_roll();
                if matches!(self.stt_state, SttState::Waits { .. }) {
                    self.stt_state = SttState::Ignores;
                }
                true
            }
            Verdict::ClearFromNow => {
                self.stt_input.restore_pre_roll(own_voice.muted_tail());
                // At the end of the agent's voice, nobody else speaks.
                if self.stt_state == SttState::Ignores && own_voice.has_sound() {
                    self.stt_state = SttState::Hears;
                    self.stt_input.start_speech();
                }
                false
            }
        }
    }

    fn start_stt(&mut self, now: Time) {
        self.has_ignored_segment = false;
        if self.own_voice.as_ref().is_some_and(|own_voice| own_voice.is_undecided()) {
            self.stt_state = SttState::Waits { until: now + OWN_VOICE_WAIT };
            self.stt_input.keep_pre_roll();
        } else {
            self.stt_state = SttState::Hears;
            self.stt_input.start_speech();
        }
    }

    fn end_stt(&mut self) {
        match std::mem::replace(&mut self.stt_state, SttState::Hears) {
            SttState::Hears => {}
            SttState::Waits { .. } => self.stt_input.start_speech(),
            SttState::Ignores => {
                self.stt_input.drop_pre_roll();
                self.has_ignored_segment = true;
            }
        }
        self.stt_input.end_speech();
    }
}
