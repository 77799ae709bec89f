//! The user's audio: from the connection to the windows of the VAD, and from the VAD's events to
//! the conversation.

use std::time::{Duration, Instant};

use bytes::Bytes;
use conversation::input::Input;
use conversation::time::Time;

use super::Call;
use crate::connection::Connection;
use crate::hear::AudioInput;
use crate::hear::decode::SILENCE_DBFS;
use crate::hear::jitter::Frame;
use crate::hear::vad::SpeechEvent;

/// Time without audio packets after which ongoing speech is ended.
const VOICE_GAP_TIMEOUT: Duration = Duration::from_millis(600);

impl Call {
    /// Takes the audio that has arrived; windows for the VAD may become ready.
    pub(crate) fn receive_audio(&mut self, now: Instant) {
        if self.ended_at.is_some() || self.started_at.is_none() {
            return;
        }
        let Some(connection) =
            self.connections.iter_mut().find(|c| Some(c.number) == self.current_connection)
        else {
            return;
        };
        let origin = self.started_at.unwrap_or(now);
        let recording = &mut self.recording;
        let carries_samples = connection.carries_samples();
        loop {
            let record = |frame: &Frame, packet: &Bytes| {
                if let Some(recording) = recording {
                    recording.push_user(origin, frame, packet);
                }
            };
            let Some(end) = connection.receive_audio(now, &mut self.pcm, record) else { break };
            if let Some(recording) = recording.as_mut().filter(|_| carries_samples) {
                recording.push_user_samples(origin, end, &self.pcm);
            }
            let end = end.min(now).saturating_duration_since(origin);
            self.audio_input.push_audio(&self.pcm, Time::from_micros(end.as_micros() as u64));
            self.pcm.clear();
        }
        let silent = connection
            .last_voice_at
            .is_none_or(|at| now.saturating_duration_since(at) >= VOICE_GAP_TIMEOUT);
        if silent && self.audio_input.is_user_speaking() {
            let change = self.audio_input.on_audio_gap();
            self.on_vad_event(now, change);
        }
        if let Some(level) = self.audio_input.take_level() {
            self.silence_reported = false;
            self.send_level_to_client(now, level);
        }
        // Without packets there is no level to measure, so the level for silence is sent once.
        if silent && !self.silence_reported && self.is_voice_overdue(now) {
            self.silence_reported = true;
            self.send_level_to_client(now, SILENCE_DBFS);
        }
    }

    /// Number of users' audio packets since the last call of this method that arrived faster than
    /// real time and were dropped.
    pub(crate) fn take_excess_packets(&mut self) -> u64 {
        self.connections.iter_mut().map(Connection::take_excess_packets).sum()
    }

    /// Whether the client's channel has been open long enough that an audio packet should have
    /// arrived.
    fn is_voice_overdue(&self, now: Instant) -> bool {
        let connection =
            self.connections.iter().find(|c| Some(c.number) == self.current_connection);
        connection.is_some_and(|c| {
            c.channel_opened_at
                .is_some_and(|at| now.saturating_duration_since(at) >= VOICE_GAP_TIMEOUT)
        })
    }

    /// The call's audio input, with the windows that wait for the VAD.
    pub(crate) fn audio_input(&mut self) -> &mut AudioInput {
        &mut self.audio_input
    }

    /// Handles the VAD's speech probability for the oldest window.
    pub(crate) fn on_probability(&mut self, now: Instant, p: f32) {
        let change = self.audio_input.on_probability(p);
        self.on_vad_event(now, change);
        if self.audio_input.may_have_finished() {
            self.prefetch_turn_probability();
        }
    }

    fn on_vad_event(&mut self, now: Instant, change: Option<SpeechEvent>) {
        match change {
            Some(SpeechEvent::Started { onset, window_end: until }) => {
                self.handle_input(now, Input::SpeechStarted { onset });
                self.handle_input(now, Input::SpeechContinued { until });
            }
            Some(SpeechEvent::Continued { window_end: until }) => {
                self.handle_input(now, Input::SpeechContinued { until })
            }
            Some(SpeechEvent::Stopped { end }) => {
                self.handle_input(now, Input::SpeechStopped { end });
                // The STT promises one final transcript per speech segment
                // (`models::stt::SttStream::end_speech`).
                self.handle_input(now, Input::FinalTranscriptPending);
                if self.audio_input.take_ignored_segment() {
                    let (text, trailing_interim) = (String::new(), String::new());
                    let nothing = Input::Transcript { text, is_final: true, trailing_interim };
                    self.handle_input(now, nothing);
                }
            }
            None => {}
        }
    }
}
