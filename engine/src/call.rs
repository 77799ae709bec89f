//! One call: the conversation, its connections, audio input and output, models and avatar. A call
//! stays on one media thread for its whole life.
//!
//! A call never blocks and reads no clock. The media thread passes in what happened and the time;
//! the call executes the outputs of the conversation.
//!
//! States of a call, with the `PendingCall` from which it starts (a call over loopback
//! or with samples starts at `waiting`):
//!
//! ```text
//!  offer
//!    v                                 Connected           Output::End
//!  PendingCall -- CallSetup --> waiting -------> running --------------> ended
//!    | no connection left,       |   \                                   ^  | audio played
//!    | End, Leave, Stop          |    +- End, Leave, Stop, last hang-up -+  | (at most 2 s),
//!    v                           | no connection left                       v connections closed
//!  dropped                       +---------------------------------------> Finished
//! ```
//!
//! `waiting`: no `started_at`. `running`: [`Call::is_running`]. `ended`: [`Call::has_ended`].
//! [`Lifecycle::Finished`]: the media thread removes the call. A panic in its code removes a call
//! from any state. If the call setup fails or is lost, the `PendingCall` remains: its clients get a
//! capacity error and are hung up.

mod audio_input;
mod avatar_video;
mod client;
mod connections;
mod deadlines;
mod guardrails;
mod outputs;
pub(crate) mod pending_call;
pub(crate) mod recording;
mod room;
mod stage_events;
mod usage;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conversation::conversation::Conversation;
use conversation::event::Event;
use conversation::input::{Command, CommandId, Input};
use conversation::output::CommandOutcome;
use conversation::time::Time;
use engine_api::{CallConfig, CommandError, Tool};
use models::{Handle, Sink};
use tokio::sync::oneshot;

use crate::call::pending_call::{CallHandover, MAX_EARLY_COMMANDS};
use crate::clock;
use crate::connection::{Connection, Reception};
use crate::context::{EngineContext, PresenceGuard, Slot};
use crate::hear::AudioInput;
use crate::messages::{CallModels, CallSetup, StageEvent};
use crate::speak::AudioOutput;
use crate::stats::StepMeter;
use crate::think::llm::GenerationHandle;
use crate::token_bucket::TokenBucket;
use crate::trace::TraceWriter;
use crate::transport::TransportEvent;
use crate::transport::server_messages::RtviSession;
use crate::transport::webrtc::{Protocol, Transmit};
use crate::usage::UsageCounter;
use avatar_video::AvatarVideo;
use client::ClientRequest;
use recording::{CallRecording, EndedRecording};
use room::{RoomState, RpcRequest};

pub(crate) use deadlines::Lifecycle;

/// Burst of questions that a client may type, in seconds of
/// [`EngineContext::max_questions_per_second`].
const QUESTION_BURST_SECONDS: f64 = 5.0;
/// Context that a client may add or replace: messages per second, and burst. Each one is stored, up
/// to 8 KiB, and `overwrite` makes room for the next one.
const CONTEXT_RATE_LIMIT: (f64, f64) = (1.0, 5.0);
/// Silence after which a connection counts as lost, in a call that waits for it. A browser sends
/// audio every 20 ms, or checks every 2.5 s.
const LOST_AFTER: Duration = Duration::from_secs(6);
/// Receiver of a command's outcome.
enum ReplyTarget {
    Api(oneshot::Sender<Result<CommandOutcome, CommandError>>),
    Client(ClientRequest),
    Rpc(RpcRequest),
}

/// One call.
pub(crate) struct Call {
    /// The agent's settings.
    pub(crate) config: Arc<CallConfig>,
    context: Arc<EngineContext>,
    stage_events: Sink<StageEvent>,
    conversation: Conversation,
    /// Start of the conversation: its time zero.
    started_at: Option<Instant>,
    /// Inputs for the conversation that are queued and not yet handled.
    inputs: VecDeque<Input>,
    connections: Vec<Connection>,
    /// Number of the connection that carries the call.
    current_connection: Option<u32>,
    next_connection: u32,
    rtvi_session: RtviSession,
    audio_input: AudioInput,
    /// Whether the client was sent the level for silence because no audio packets arrive.
    silence_reported: bool,
    pcm: Vec<i16>,
    audio_output: AudioOutput,
    llm: Arc<dyn models::llm::Llm>,
    llm_fallback: Option<Arc<dyn models::llm::Llm>>,
    /// `None` after the end: a hosted TTS holds a connection.
    tts: Option<Arc<dyn models::tts::Tts>>,
    tts_fallback: Option<Arc<dyn models::tts::Tts>>,
    voice_id: String,
    fallback_voice_id: String,
    /// The avatar's voice, for a TTS that lacks the agent's.
    avatar_voice: String,
    generations: Vec<GenerationHandle>,
    /// Tools listed by the agent's tool servers.
    server_tools: Vec<Tool>,
    /// The running request for the tools of these servers.
    tool_listing: Handle,
    /// Running checks of the agent's guardrails.
    guardrail_checks: Vec<Handle>,
    usage: UsageCounter,
    /// Whether the STT stream reports its use after it was dropped.
    awaits_stt_usage: bool,
    /// The user's last utterance, for guardrails.
    last_user_text: String,
    client_tools: Vec<client::ClientTool>,
    avatar: Option<AvatarVideo>,
    trace: Option<TraceWriter>,
    recording: Option<CallRecording>,
    ended_recording: EndedRecording,
    early_commands: Vec<Command>,
    room: RoomState,
    warnings: Vec<String>,
    /// Rate limit of the questions that clients type: each costs a request to the LLM.
    question_bucket: Option<TokenBucket>,
    /// Rate limit of the context that clients add or replace.
    context_bucket: TokenBucket,
    pending_replies: Vec<(CommandId, ReplyTarget)>,
    next_command: u32,
    is_leaving: bool,
    ended_at: Option<Instant>,
    /// Connections that were removed from the call but not yet from the demultiplexer.
    dropped_connections: Vec<u32>,
    next_tick: Instant,
    /// Value of [`Call::next_deadline`] when the call was last served.
    pub(crate) cached_deadline: Option<Instant>,
    /// Value of [`Call::is_past_handshake`] when the call was last served.
    pub(crate) past_handshake: bool,
    _slot: Slot,
    _presence: PresenceGuard,
}

impl Call {
    /// A call that waits for its connection.
    ///
    /// # Errors
    /// The Opus encoder cannot be created.
    pub(crate) fn new(
        setup: CallSetup,
        handover: CallHandover,
        context: Arc<EngineContext>,
        stage_events: Sink<StageEvent>,
        now: Instant,
    ) -> Result<Self, crate::speak::encode::Error> {
        let CallSetup { id: key, config, models, poses: stock_poses, recording_error, slot } =
            setup;
        let CallHandover { connections, next_connection, presence, early_commands: commands } =
            handover;
        let CallModels { stt, turn_model: turn, llm, llm_fallback, tts, tts_fallback, warnings } =
            models;
        let warnings = warnings.into_iter().chain(recording_error.clone()).collect();
        let avatar_voice = stock_poses
            .as_ref()
            .map(|poses| poses.pose_set().manifest().voice.clone())
            .unwrap_or_default();
        let voice_of = |tts: &dyn models::tts::Tts| {
            crate::speak::tts::known_voice(tts, &[&config.tts.voice_id, &avatar_voice])
        };
        let voice = voice_of(&*tts);
        let fallback_voice = tts_fallback.as_deref().map(voice_of).unwrap_or_default();
        let frame_rate = config.avatar.frame_rate;
        let greets = config.spec.greeting.is_some();
        let avatar = stock_poses.map(|poses| AvatarVideo::new(poses, frame_rate, key.0, greets));
        let config = match recording_error {
            Some(_) => recording::without_recording(config),
            None => config,
        };
        let session = client::rtvi_session(&config);
        let rate = context.max_questions_per_second;
        let questions = (rate > 0.0)
            .then(|| TokenBucket::new(rate, (rate * QUESTION_BURST_SECONDS).max(1.0), now));
        Ok(Self {
            conversation: Conversation::new(config.spec.clone()),
            awaits_stt_usage: stt.reports_usage(),
            audio_input: AudioInput::new(config.spec.vad, stt, turn)
                .with_several_people(config.spec.participation.is_some()),
            audio_output: AudioOutput::new(now)?,
            config,
            context,
            stage_events,
            started_at: None,
            inputs: VecDeque::with_capacity(4),
            connections,
            current_connection: None,
            next_connection,
            rtvi_session: session,
            silence_reported: false,
            pcm: Vec::with_capacity(2_048),
            llm,
            llm_fallback,
            tts: Some(tts),
            tts_fallback,
            voice_id: voice,
            fallback_voice_id: fallback_voice,
            avatar_voice,
            generations: Vec::with_capacity(4),
            server_tools: Vec::new(),
            tool_listing: Handle::noop(),
            guardrail_checks: Vec::new(),
            usage: UsageCounter::default(),
            last_user_text: String::new(),
            client_tools: Vec::new(),
            avatar,
            trace: None,
            recording: None,
            ended_recording: EndedRecording::None,
            early_commands: commands,
            room: RoomState::new(now),
            warnings,
            question_bucket: questions,
            context_bucket: TokenBucket::new(CONTEXT_RATE_LIMIT.0, CONTEXT_RATE_LIMIT.1, now),
            pending_replies: Vec::new(),
            next_command: 0,
            is_leaving: false,
            ended_at: None,
            dropped_connections: Vec::new(),
            next_tick: now,
            cached_deadline: None,
            past_handshake: false,
            _slot: slot,
            _presence: presence,
        })
    }

    /// Whether a window of the user's audio waits for the VAD.
    #[must_use]
    pub(crate) fn has_vad_window(&self) -> bool {
        !self.audio_input.pending_windows.is_empty()
    }

    /// Whether the conversation has ended.
    #[must_use]
    pub(crate) fn has_ended(&self) -> bool {
        self.ended_at.is_some()
    }

    /// Whether the conversation has started and not ended. The record of such a call must be ended.
    #[must_use]
    pub(crate) fn is_running(&self) -> bool {
        self.started_at.is_some() && self.ended_at.is_none()
    }

    /// Sends the client an error that the call has failed, and closes all connections without
    /// waiting.
    pub(crate) fn abort(&mut self, now: Instant, transmit: &mut dyn FnMut(Transmit)) {
        for connection in &mut self.connections {
            connection.abort(now);
            while connection.poll(now, transmit).is_some() {}
        }
    }

    /// Conversation time.
    fn conversation_time(&self, now: Instant) -> Time {
        let micros =
            self.started_at.map_or(0, |origin| now.saturating_duration_since(origin).as_micros());
        Time::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// Sets the time of the thread's next tick.
    pub(crate) fn set_next_tick(&mut self, at: Instant) {
        self.next_tick = at;
    }

    /// Passes a datagram to one of the call's connections.
    pub(crate) fn receive_datagram(
        &mut self,
        now: Instant,
        number: u32,
        protocol: Protocol,
        source: SocketAddr,
        destination: SocketAddr,
        datagram: &[u8],
    ) -> Reception {
        let connection = self.connections.iter_mut().find(|c| c.number == number);
        connection
            .map_or(Reception::Foreign, |c| c.receive(now, protocol, source, destination, datagram))
    }

    /// Polls all connections: handles their events and passes their datagrams to `transmit`.
    pub(crate) fn poll_connections(&mut self, now: Instant, transmit: &mut dyn FnMut(Transmit)) {
        let mut at = 0;
        while at < self.connections.len() {
            // A poll of str0m that does nothing costs as much as one that sends a packet.
            while self.connections[at].is_due(now)
                && let Some(event) = self.connections[at].poll(now, transmit)
            {
                let number = self.connections[at].number;
                self.handle_event(now, number, event);
            }
            at += 1;
        }
        // Messages written to earlier connections while a later one was polled.
        for connection in &mut self.connections {
            while connection.is_due(now) && connection.poll(now, transmit).is_some() {}
        }
    }

    /// Handles an event of one of the call's connections.
    pub(crate) fn handle_event(&mut self, now: Instant, number: u32, event: TransportEvent) {
        match event {
            TransportEvent::Connected => self.on_connected(now, number),
            TransportEvent::Text(text) => self.handle_client_text(now, number, &text),
            TransportEvent::KeyFrameRequested => {
                if let Some(avatar) = &mut self.avatar {
                    avatar.animator.request_key_frame();
                }
            }
            TransportEvent::BandwidthEstimate(bps) => {
                if let Some(avatar) =
                    self.avatar.as_mut().filter(|_| self.current_connection == Some(number))
                {
                    avatar.animator.set_bandwidth(bps);
                }
            }
            TransportEvent::PacketLoss(part) if self.current_connection == Some(number) => {
                self.audio_output.on_packet_loss(part)
            }
            TransportEvent::ChannelOpen => self.on_channel_open(now, number),
            TransportEvent::Room(event) => self.handle_room_event(now, number, event),
            // Timeouts cover a closed connection; audio already went into the jitter buffer.
            TransportEvent::Closed
            | TransportEvent::Audio { .. }
            | TransportEvent::PacketLoss(_) => {}
        }
    }

    /// A connection is up: the call starts, or continues on this connection.
    fn on_connected(&mut self, now: Instant, number: u32) {
        if self.ended_at.is_some() || self.current_connection == Some(number) {
            return;
        }
        let previous = self.make_current(number);
        for connection in &mut self.connections {
            if Some(connection.number) == previous {
                connection.hang_up(now);
            } else if connection.number == number {
                connection.on_current();
            }
        }
        if let Some(avatar) = &mut self.avatar {
            avatar.animator.request_key_frame();
        }
        self.show_state_in_room();
        if self.started_at.is_none() {
            self.start(now);
        }
    }

    fn start(&mut self, now: Instant) {
        let first_block = self.next_tick.max(now);
        self.started_at = Some(now);
        let unix_micros = clock::unix_micros();
        if self.config.record_trace
            && let Some(disk) = &self.context.trace
        {
            self.trace = Some(TraceWriter::new(disk.clone(), &self.config, unix_micros));
        }
        self.start_recording();
        // Aligned with the thread's tick, so that the audio frames of all calls are due together.
        self.audio_output.start_clock(now, first_block);
        self.handle_input(now, Input::Start);
        self.handle_input(now, Input::ExternalEvent(Event::Joined { unix_micros }));
        self.set_people(now, self.room.people);
        for text in std::mem::take(&mut self.warnings) {
            self.handle_input(now, Input::ExternalEvent(Event::Warning { text }));
        }
        self.audio_input.start_call();
        self.list_server_tools();
        for command in std::mem::take(&mut self.early_commands) {
            self.handle_command(now, command, None);
        }
    }

    /// Handles a command from the API.
    pub(crate) fn handle_command(
        &mut self,
        now: Instant,
        command: Command,
        reply: Option<oneshot::Sender<Result<CommandOutcome, CommandError>>>,
    ) {
        let answer = |reply: Option<oneshot::Sender<_>>, answer| {
            if let Some(reply) = reply {
                // The requester may have stopped waiting.
                let _ = reply.send(answer);
            }
        };
        if self.ended_at.is_some() {
            return answer(reply, Err(CommandError::NotRunning));
        }
        if self.started_at.is_none() {
            if matches!(command, Command::End | Command::Leave | Command::Stop { .. }) {
                self.ended_at = Some(now); // not started: no trace, the record is not closed here
                return answer(reply, Err(CommandError::NotRunning));
            }
            if self.early_commands.len() < MAX_EARLY_COMMANDS {
                self.early_commands.push(command);
            }
            return answer(reply, Ok(CommandOutcome::Accepted));
        }
        self.submit_command(now, command, reply.map(ReplyTarget::Api));
    }

    fn submit_command(&mut self, now: Instant, command: Command, reply_to: Option<ReplyTarget>) {
        self.queue_command(command, reply_to);
        self.drain_inputs(now);
    }

    /// Queues a command. The next [`Call::drain_inputs`], or the one that is running, passes it to
    /// the conversation.
    fn queue_command(&mut self, command: Command, waiting: Option<ReplyTarget>) {
        let id = CommandId(self.next_command);
        self.next_command += 1;
        if let Some(waiting) = waiting {
            self.pending_replies.push((id, waiting));
        }
        self.inputs.push_back(Input::Command { id, command });
    }

    /// Sends the audio and video frames that are due.
    pub(crate) fn send_media(&mut self, now: Instant, meter: &mut StepMeter) {
        if self.started_at.is_none() {
            return;
        }
        let current = self.current_connection;
        // A call that waits for its client for long must not go on without it meanwhile.
        let max_silence = self.config.reconnect_timeout.map(|_| LOST_AFTER);
        let mut connection = self
            .connections
            .iter_mut()
            .find(|c| Some(c.number) == current && c.is_listening(now, max_silence));
        let audible = connection.is_some();
        let encode =
            connection.as_ref().is_some_and(|c| c.wants_packets() || self.recording.is_some());
        self.audio_output.set_user_speaking(self.audio_input.is_user_speaking());
        let started_at = self.started_at.unwrap_or(now);
        while let Some(block) = self.audio_output.render_frame(now, encode, audible) {
            if self.audio_input.looks_for_own_voice() {
                let at = block.due.saturating_duration_since(started_at);
                let at = Time::from_micros(at.as_micros() as u64);
                self.audio_input.push_sent(block.pcm, at, block.is_speech());
            }
            if let Some(connection) = &mut connection {
                connection.send_audio(now, &block);
                meter.record_frame(now.saturating_duration_since(block.due));
                if let (Some(recording), Some(start)) = (&mut self.recording, self.started_at) {
                    recording.push_agent(block.due.saturating_duration_since(start), block.packet);
                }
            }
        }
        let (left_out, underruns) = self.audio_output.take_losses();
        meter.record_losses(left_out, underruns);
        while let Some((segment, event)) = self.audio_output.next_playout_event() {
            if matches!(event, conversation::input::PlayoutEvent::Finished(_)) {
                self.prune_phones();
            }
            self.handle_input(now, Input::Playout { segment, event });
        }
        self.send_video_frame(now, meter);
        self.caption_words(now);
        self.poll_recording(now);
    }

    fn send_video_frame(&mut self, now: Instant, meter: &mut StepMeter) {
        let time = self.conversation_time(now);
        let Some(avatar) = &mut self.avatar else { return };
        let Some(timestamp) = avatar.frame_clock.take_due(time) else { return };
        let connection = self
            .connections
            .iter_mut()
            .find(|c| Some(c.number) == self.current_connection && c.is_up())
            .filter(|connection| connection.has_video());
        // A recording has pictures even if nobody sees them.
        if connection.is_none() && self.recording.is_none() {
            return;
        }
        if avatar.animator.swap_pose_set() {
            meter.record_avatar_upgrade();
        }
        let Some(frame) =
            avatar.animator.next_frame(time, self.audio_output.lip_sync_position(now))
        else {
            return;
        };
        let key = frame.is_key_frame;
        let recorded = self.recording.is_some().then(|| avatar.animator.finest(&frame));
        let sent = connection.map(|connection| connection.send_video(now, timestamp, frame));
        meter.record_video_frame(sent == Some(true));
        if sent == Some(false) && key {
            avatar.animator.on_key_frame_dropped();
        } else if let (Some(recording), Some((frame, data))) = (&mut self.recording, recorded) {
            recording.push_video(Duration::from_micros(time.as_micros()), frame, data);
        }
    }
}
