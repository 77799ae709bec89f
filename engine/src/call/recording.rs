//! The recording of a call: its packets on their way to the recorder.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use conversation::event::Event;
use conversation::id::ConversationId;
use conversation::input::Input;
use recording::{Frame, Packet, Size, Track};

use super::Call;
use crate::hear;
use crate::recorder::{NO_RECORDER, Recorder, RecorderMessage, RecordingState};

/// Packets of this time are sent to the recorder together.
const BATCH: Duration = Duration::from_millis(200);
/// Packets of a batch: two voices and the video.
const BATCH_PACKETS: usize = 32;
/// Why a recording ends whose packets the recorder does not take.
const TOO_SLOW: &str = "the disk is too slow";

impl Call {
    /// Starts the recording, if the agent wants one.
    pub(super) fn start_recording(&mut self) {
        if self.config.recording.is_none() {
            return;
        }
        match &self.context.recorder {
            Some(recorder) => {
                let video = self.avatar.as_ref().map(|avatar| avatar.animator.size());
                let recording = CallRecording::new(recorder.clone(), self.config.id, video);
                self.recording = Some(recording);
            }
            None => self.warnings.push(NO_RECORDER.into()),
        }
    }

    /// Sends what was recorded to the recorder.
    pub(super) fn poll_recording(&mut self, now: Instant) {
        let since_start = Duration::from_micros(self.conversation_time(now).as_micros());
        let Some(recording) = &mut self.recording else { return };
        let event = match recording.poll(since_start) {
            Ok(false) => return,
            Ok(true) => Event::RecordingStarted,
            Err(reason) => {
                // What was recorded remains.
                self.recording = None;
                Event::Warning { text: format!("The recording ends here: {reason}.") }
            }
        };
        self.handle_input(now, Input::ExternalEvent(event));
    }
}

/// Sends the packets of a call to the recorder. The recording is complete when this is dropped.
pub(super) struct CallRecording {
    recorder: Recorder,
    id: ConversationId,
    state: Arc<RecordingState>,
    /// The message that starts the recording, until the recorder takes it.
    pending_start: Option<RecorderMessage>,
    batch: Vec<Packet>,
    /// When the batch is sent.
    send_at: Duration,
    /// Whether the recorder has packets.
    has_sent: bool,
    is_discarded: bool,
}

impl CallRecording {
    /// Starts a recording.
    pub(super) fn new(recorder: Recorder, id: ConversationId, video: Option<Size>) -> Self {
        let state = Arc::<RecordingState>::default();
        let start = RecorderMessage::Start { id, video, state: Arc::clone(&state) };
        let pending_start = recorder.sender.send(start).err();
        Self {
            recorder,
            id,
            state,
            pending_start,
            batch: Vec::with_capacity(BATCH_PACKETS),
            send_at: BATCH,
            has_sent: false,
            is_discarded: false,
        }
    }

    /// Adds a packet of the agent's voice, which leaves at `at`. It may be empty.
    pub(super) fn push_agent(&mut self, at: Duration, packet: &[u8]) {
        if !packet.is_empty() {
            let data = Bytes::copy_from_slice(packet);
            self.batch.push(Packet { at, track: Track::Agent, data });
        }
    }

    /// Adds a packet of the user's voice. `start`: of the call.
    pub(super) fn push_user(&mut self, start: Instant, frame: &hear::jitter::Frame, data: &Bytes) {
        let length = Duration::from_micros(u64::from(frame.samples) * 1_000 / 48);
        let end = frame.end_time.saturating_duration_since(start);
        // Words from before the start are no part of the call.
        if let Some(at) = end.checked_sub(length) {
            self.batch.push(Packet { at, track: Track::User, data: data.clone() });
        }
    }

    /// Adds a frame of the video.
    pub(super) fn push_video(&mut self, at: Duration, frame: Frame, data: Bytes) {
        self.batch.push(Packet { at, track: Track::Video(frame), data });
    }

    /// Sends the batch if it is due. `now`: since the start of the call. Returns whether these are
    /// the first packets.
    ///
    /// # Errors
    /// Why the recording has ended.
    pub(super) fn poll(&mut self, now: Duration) -> Result<bool, String> {
        if now < self.send_at {
            return Ok(false);
        }
        self.send_at = now + BATCH;
        if let Some(reason) = self.state.failure() {
            return Err(reason.to_owned());
        }
        let has_packets = !self.batch.is_empty();
        if !self.send() {
            return Err(TOO_SLOW.into());
        }
        Ok(has_packets && !std::mem::replace(&mut self.has_sent, true))
    }

    /// Deletes the recording.
    pub(super) fn discard(mut self) {
        self.is_discarded = true;
    }

    fn send(&mut self) -> bool {
        if let Some(start) = self.pending_start.take() {
            self.pending_start = self.recorder.sender.send(start).err();
        }
        if self.pending_start.is_some() {
            return false;
        }
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH_PACKETS));
        self.recorder.sender.send(RecorderMessage::Packets(self.id, batch)).is_ok()
    }
}

impl Drop for CallRecording {
    fn drop(&mut self) {
        let last = if self.is_discarded {
            RecorderMessage::Discard(self.id)
        } else {
            self.send();
            RecorderMessage::End(self.id)
        };
        // If the channel is full, the recorder detects the end of the call by itself.
        drop(self.recorder.sender.send(last));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::{self, RecorderConfig};

    #[test]
    fn the_first_packets_are_reported_once() {
        let folder =
            std::env::temp_dir().join(format!("visavis-first-packets-{}", std::process::id()));
        let on_complete = Arc::new(|_| {});
        let config = RecorderConfig { folder: folder.clone(), min_free: 0, on_complete };
        let recorder = recorder::start(config).unwrap();
        let mut recording = CallRecording::new(recorder, ConversationId(1), None);
        let mut reported = Vec::new();
        for n in 1..5 {
            if n >= 2 {
                recording.push_agent(BATCH * n, &[0xf8, 0xff, 0xfe]);
            }
            reported.push(recording.poll(BATCH * n));
        }
        assert_eq!(reported, [Ok(false), Ok(true), Ok(false), Ok(false)]);
        drop(recording);
        let _ = std::fs::remove_dir_all(folder);
    }
}
