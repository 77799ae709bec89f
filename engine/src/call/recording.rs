//! The recording of a call: its packets on their way to the recorder.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use conversation::event::Event;
use conversation::id::ConversationId;
use conversation::input::Input;
use engine_api::CallConfig;
use recording::{Frame, Packet, Size, Track};

use super::Call;
use crate::hear;
use crate::recorder::cost::CostSampler;
use crate::recorder::sample_encoder::SampleEncoder;
use crate::recorder::{Recorder, RecorderMessage, RecordingState};
use crate::speak::FRAME_DURATION;

/// Packets of this time are sent to the recorder together.
const BATCH: Duration = Duration::from_millis(200);
/// Packets of a batch: the agent's voice in frames of 10 ms, the user's voice and the video.
const BATCH_PACKETS: usize = 40;
/// Bytes of the agent's voice that one allocation holds: one to two seconds.
const VOICE_BUFFER_BYTES: usize = 16 << 10;
/// The CPU time of one in this many packets, and of one in this many batches, is measured.
const PACKETS_PER_SAMPLE: u32 = 101;
const BATCHES_PER_SAMPLE: u32 = 7;
/// Why a recording ends whose packets the recorder does not take.
const TOO_SLOW: &str = "the disk is too slow";
/// The recording ends if the recorder has not taken a batch for this time: its thread is stuck in a
/// write. Otherwise the channel would take hours to fill with few calls, and all that waits in it
/// would be lost if the process was killed.
const MAX_WAIT: Duration = Duration::from_secs(3);
const NOT_RECORDED: &str = "This call is not recorded";

impl Call {
    /// Starts the recording, if the call is recorded.
    pub(super) fn start_recording(&mut self) {
        let Some(choice) = &self.config.recording else { return };
        if let Some(recorder) = &self.context.recorder {
            self.warnings.extend(choice.warning.clone());
            let video = self.avatar.as_ref().map(|avatar| avatar.animator.size());
            self.recording = Some(CallRecording::new(recorder.clone(), self.config.id, video));
        }
    }

    /// Sends what was recorded to the recorder.
    pub(super) fn poll_recording(&mut self, now: Instant) {
        let since_start = Duration::from_micros(self.conversation_time(now).as_micros());
        let Some(recording) = &mut self.recording else { return };
        match recording.poll(since_start) {
            Ok(false) => {}
            Ok(true) => self.handle_input(now, Input::ExternalEvent(Event::RecordingStarted)),
            Err(reason) => {
                let Some(recording) = self.recording.take() else { return };
                let is_discarded = recording.state.is_refused();
                let text = if is_discarded {
                    format!("This call is not recorded: {reason}.")
                } else {
                    // What was recorded remains, unless the user discards it before the end of the
                    // call.
                    self.ended_recording = EndedRecording::Failed(Box::new(recording));
                    format!("The recording ends here: {reason}.")
                };
                self.handle_input(now, Input::ExternalEvent(Event::Warning { text }));
                let ended = Event::RecordingEnded { is_discarded };
                self.handle_input(now, Input::ExternalEvent(ended));
            }
        }
    }

    /// Executes the user's choice: discards the recording, or accepts that it continues.
    ///
    /// # Errors
    /// Why that is not possible.
    pub(super) fn choose_recording(
        &mut self,
        now: Instant,
        enabled: bool,
    ) -> Result<(), &'static str> {
        let Some(choice) = &self.config.recording else { return Err(NOT_RECORDED) };
        if self.ended_at.is_some() {
            return Err("The call has ended");
        }
        match (&self.ended_recording, enabled) {
            (EndedRecording::Discarded, false) => return Ok(()),
            (EndedRecording::Discarded, true) => {
                return Err("The recording was discarded and cannot be restored");
            }
            (EndedRecording::Failed(_), true) => return Err("The recording has failed"),
            (EndedRecording::None, true) if self.recording.is_some() => return Ok(()),
            _ => {}
        }
        if !choice.is_optional {
            return Err("The recording of this call cannot be turned off");
        }
        let failed = std::mem::take(&mut self.ended_recording);
        let Some(recording) = self.recording.take().or(failed.into_failed()) else {
            return Err(NOT_RECORDED);
        };
        recording.discard();
        self.ended_recording = EndedRecording::Discarded;
        let ended = Event::RecordingEnded { is_discarded: true };
        self.handle_input(now, Input::ExternalEvent(ended));
        Ok(())
    }
}

/// The settings of a call that is not recorded, so that no message says that it is.
pub(super) fn without_recording(config: Arc<CallConfig>) -> Arc<CallConfig> {
    let mut config = Arc::unwrap_or_clone(config);
    config.recording = None;
    config.spec.recording_message = None;
    config.spec.record_words = false;
    Arc::new(config)
}

/// A recording that has ended before its call.
#[derive(Default)]
pub(super) enum EndedRecording {
    /// There is none.
    #[default]
    None,
    /// The recorder cannot write it. It is complete at the end of the call.
    Failed(Box<CallRecording>),
    /// The user does not want it.
    Discarded,
}

impl EndedRecording {
    fn into_failed(self) -> Option<CallRecording> {
        if let Self::Failed(recording) = self { Some(*recording) } else { None }
    }
}

/// Sends the packets of a call to the recorder. The recording is complete when this is dropped.
pub struct CallRecording {
    recorder: Recorder,
    id: ConversationId,
    state: Arc<RecordingState>,
    /// The message that starts the recording, until the recorder takes it.
    pending_start: Option<RecorderMessage>,
    batch: Vec<Packet>,
    /// Memory for the next packets of the agent.
    voice: BytesMut,
    /// Encodes the user's voice if it arrives as samples; created with the first ones.
    user_encoder: Option<SampleEncoder>,
    packet_cost: CostSampler,
    batch_cost: CostSampler,
    /// When the batch is sent.
    send_at: Duration,
    /// Whether the recorder has packets.
    has_sent: bool,
    /// A message that the recorder may not have taken yet: the number of messages up to it, of all
    /// calls, and when it was sent. The last batch, as long as the recorder keeps up.
    watched: (u64, Duration),
    is_discarded: bool,
}

impl CallRecording {
    /// Starts a recording. `video` is the size of the video, if there is one.
    #[must_use]
    pub fn new(recorder: Recorder, id: ConversationId, video: Option<Size>) -> Self {
        let state = Arc::<RecordingState>::default();
        let start = RecorderMessage::Start { id, video, state: Arc::clone(&state) };
        let pending_start = recorder.sender.send(start).err();
        // The last bits of an id are random.
        let phase = id.0 as u64;
        Self {
            recorder,
            id,
            state,
            pending_start,
            batch: Vec::with_capacity(BATCH_PACKETS),
            voice: BytesMut::with_capacity(VOICE_BUFFER_BYTES),
            user_encoder: None,
            packet_cost: CostSampler::new(PACKETS_PER_SAMPLE, phase),
            batch_cost: CostSampler::new(BATCHES_PER_SAMPLE, phase),
            send_at: BATCH,
            has_sent: false,
            watched: (0, Duration::ZERO),
            is_discarded: false,
        }
    }

    /// Adds a packet of the agent's voice, which leaves at `at`, since the start of the call. It may
    /// be empty.
    pub fn push_agent(&mut self, at: Duration, packet: &[u8]) {
        if packet.is_empty() {
            return;
        }
        let Self { recorder, batch, voice, packet_cost, .. } = self;
        packet_cost.measure(&recorder.stats.cost.media, || {
            voice.extend_from_slice(packet);
            batch.push(Packet { at, track: Track::Agent, data: voice.split().freeze() });
        });
    }

    /// Adds a packet of the user's voice. `start`: of the call.
    pub fn push_user(&mut self, start: Instant, frame: &hear::jitter::Frame, data: &Bytes) {
        let Self { recorder, batch, packet_cost, .. } = self;
        packet_cost.measure(&recorder.stats.cost.media, || {
            let length = Duration::from_micros(u64::from(frame.samples) * 1_000 / 48);
            let end = frame.end_time.saturating_duration_since(start);
            // Words from before the start are no part of the call.
            if let Some(at) = end.checked_sub(length) {
                batch.push(Packet { at, track: Track::User, data: data.clone() });
            }
        });
    }

    /// Adds 20 ms of the user's voice that arrived as samples (16 kHz mono), and ended at `end`.
    /// `start`: of the call.
    pub fn push_user_samples(&mut self, start: Instant, end: Instant, pcm: &[i16]) {
        // An encoder that cannot be created leaves the track empty, and is tried again.
        if self.user_encoder.is_none() {
            self.user_encoder = SampleEncoder::new().ok();
        }
        let Self { recorder, batch, packet_cost, user_encoder, .. } = self;
        let Some(encoder) = user_encoder else { return };
        packet_cost.measure(&recorder.stats.cost.media, || {
            let at = end.saturating_duration_since(start).checked_sub(FRAME_DURATION);
            if let (Some(at), Some(data)) = (at, encoder.encode(pcm)) {
                batch.push(Packet { at, track: Track::User, data });
            }
        });
    }

    /// Adds a frame of the video, shown at `at` since the start of the call.
    pub fn push_video(&mut self, at: Duration, frame: Frame, data: Bytes) {
        let Self { recorder, batch, packet_cost, .. } = self;
        packet_cost.measure(&recorder.stats.cost.media, || {
            batch.push(Packet { at, track: Track::Video(frame), data });
        });
    }

    /// Sends the batch if it is due. `now`: since the start of the call. Returns whether these are
    /// the first packets.
    ///
    /// # Errors
    /// Why the recording has ended.
    pub fn poll(&mut self, now: Duration) -> Result<bool, String> {
        if now < self.send_at {
            return Ok(false);
        }
        self.send_at = now + BATCH;
        if let Some(reason) = self.state.failure() {
            return Err(reason.to_owned());
        }
        let (stats, mut cost) = (Arc::clone(&self.recorder.stats), self.batch_cost);
        let has_packets = !self.batch.is_empty();
        let is_sent = cost.measure(&stats.cost.media, || !self.is_stuck(now) && self.send());
        self.batch_cost = cost;
        if !is_sent {
            // The recorder may have found another reason in the meantime.
            if self.state.fail(TOO_SLOW.into()) {
                stats.failed.fetch_add(1, Relaxed);
            }
            return Err(self.state.failure().unwrap_or(TOO_SLOW).to_owned());
        }
        Ok(has_packets && !std::mem::replace(&mut self.has_sent, true))
    }

    /// Whether a batch has waited for too long. Only reads atomic numbers.
    fn is_stuck(&mut self, now: Duration) -> bool {
        let (number, sent_at) = self.watched;
        let sender = &self.recorder.sender;
        if sender.taken_count() >= number {
            // The next batch is sent now.
            self.watched = (sender.sent_count() + 1, now);
            return false;
        }
        now.saturating_sub(sent_at) > MAX_WAIT
    }

    /// Deletes the recording.
    pub(super) fn discard(mut self) {
        self.is_discarded = true;
        // The message may not fit into a full channel.
        self.state.discard();
    }

    fn send(&mut self) -> bool {
        if let Some(start) = self.pending_start.take() {
            self.pending_start = self.recorder.sender.send(start).err();
        }
        if self.pending_start.is_some() {
            return false;
        }
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH_PACKETS));
        match self.recorder.sender.send(RecorderMessage::Packets(self.id, batch)) {
            Err(RecorderMessage::Packets(_, batch)) => {
                self.count_dropped(&batch);
                false
            }
            result => result.is_ok(),
        }
    }

    fn count_dropped(&self, packets: &[Packet]) {
        self.recorder.stats.dropped_packets.fetch_add(packets.len() as u64, Relaxed);
    }
}

impl Drop for CallRecording {
    fn drop(&mut self) {
        let last = if self.is_discarded {
            RecorderMessage::Discard(self.id)
        } else {
            if !self.send() {
                self.count_dropped(&self.batch);
            }
            RecorderMessage::End(self.id)
        };
        // If the channel is full, the recorder detects the end by itself.
        drop(self.recorder.sender.send(last));
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::Receiver;

    use super::*;
    use crate::channel::{self, Channel, Overflow};
    use crate::recorder::{self, RecorderConfig};

    /// Space for the start of a recording and one batch.
    static NARROW: Channel =
        Channel { name: "test, narrow", capacity: 2, overflow: Overflow::Drop };

    fn take_packets(receiver: &Receiver<RecorderMessage>) -> impl Iterator<Item = Packet> + '_ {
        let batches = receiver.try_iter().filter_map(|message| match message {
            RecorderMessage::Packets(_, packets) => Some(packets),
            _ => None,
        });
        batches.flatten()
    }

    #[test]
    fn packets_that_do_not_fit_into_the_channel_are_counted() {
        let (sender, receiver) = channel::open(&NARROW, None);
        let recorder = Recorder::with_sender(sender);
        let stats = Arc::clone(&recorder.stats);
        let mut recording = CallRecording::new(recorder, ConversationId(1), None);
        recording.push_agent(Duration::ZERO, b"first");
        assert_eq!(recording.poll(BATCH), Ok(true));
        for n in 0..3 {
            recording.push_agent(BATCH + Duration::from_millis(n * 20), b"lost");
        }
        assert_eq!(recording.poll(BATCH * 2), Err(TOO_SLOW.into()));
        drop(recording);
        assert_eq!(stats.dropped_packets.load(Relaxed), 3);
        let data: Vec<_> = take_packets(&receiver).map(|packet| packet.data).collect();
        assert_eq!(data, [&b"first"[..]]);
    }

    #[test]
    fn the_cost_of_the_media_thread_is_estimated() {
        let (sender, receiver) = channel::open(&channel::RECORDER, None);
        let recorder = Recorder::with_sender(sender);
        let stats = Arc::clone(&recorder.stats);
        let mut recording = CallRecording::new(recorder, ConversationId(1), None);
        let packet = [7; 100];
        let mut packets = Vec::new();
        for n in 1..=100 * PACKETS_PER_SAMPLE {
            let at = Duration::from_millis(20) * n;
            recording.push_agent(at, &packet);
            assert!(recording.poll(at).is_ok());
            packets.extend(take_packets(&receiver));
        }
        drop(recording);
        assert!(stats.cost.media.load(Relaxed) > 0);
        // Packets share memory, and none overwrites another one.
        packets.extend(take_packets(&receiver));
        assert_eq!(packets.len(), 100 * PACKETS_PER_SAMPLE as usize);
        assert!(packets.iter().all(|sent| sent.data == packet[..]));
    }

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
