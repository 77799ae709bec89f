//! One call: a conversation with its connections, ears, voice, mind and face. Lives on one media thread from birth to end.
//!
//! Nothing here waits or reads a clock. The thread tells it what happened and when; it does what the conversation asks.

mod act;
mod clocks;
mod hear;
mod links;
mod talk;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use conversation::call_config::{CallConfig, Tool};
use conversation::conversation::Conversation;
use conversation::engine::CommandError;
use conversation::event::{AgentState, Event as Fact};
use conversation::input::{Command, CommandId, Input};
use conversation::output::CommandOutcome;
use conversation::time::Time;
use models::{Handle, Sink};
use tokio::sync::oneshot;

use crate::bucket::Bucket;
use crate::clock;
use crate::graph::{CallModels, News, Opening};
use crate::hear::Hearing;
use crate::host::{Presence, Seat, Shared};
use crate::keep::trace::Trace;
use crate::link::Link;
use crate::meter::Meter;
use crate::shard::pending::{EARLY, Waited};
use crate::show::{Face, Pace};
use crate::speak::Speaking;
use crate::think::llm::Asked;
use crate::transport::Event;
use crate::transport::tell::Session;
use crate::transport::webrtc::{Protocol, Transmit};
use talk::Origin;

pub(crate) use clocks::Fate;

/// Questions that a client may type at once, as seconds of [`Shared::questions`].
const QUESTIONS_AT_ONCE: f64 = 5.0;
/// Who waits for the answer to a command.
enum Waiting {
    Host(oneshot::Sender<Result<CommandOutcome, CommandError>>),
    Client(Origin),
}

/// The face of a call.
struct Showing {
    face: Face,
    pace: Pace,
    state: AgentState,
    held: bool,
}

/// One call.
pub(crate) struct Node {
    /// The agent's settings.
    pub(crate) call: Arc<CallConfig>,
    shared: Arc<Shared>,
    news: Sink<News>,
    conversation: Conversation,
    /// When the conversation began: its time zero.
    origin: Option<Instant>,
    /// Answers that the driver owes the conversation at once.
    inputs: VecDeque<Input>,
    links: Vec<Link>,
    /// Number of the link that carries the call.
    current: Option<u32>,
    next_link: u32,
    session: Session,
    hearing: Hearing,
    /// Whether the client knows that no packet of the user's voice comes.
    told_silence: bool,
    pcm: Vec<i16>,
    speaking: Speaking,
    llm: Arc<dyn models::llm::Llm>,
    llm_fallback: Option<Arc<dyn models::llm::Llm>>,
    tts: Arc<dyn models::tts::Tts>,
    tts_fallback: Option<Arc<dyn models::tts::Tts>>,
    voice: String,
    fallback_voice: String,
    asked: Vec<Asked>,
    /// Tools that the agent's servers brought.
    brought: Vec<Tool>,
    /// The asking of these servers.
    servers: Handle,
    /// Checks of the agent's guardrails.
    checks: Vec<Handle>,
    /// What the user said last, for guardrails.
    said: String,
    client_tools: Vec<talk::ClientTool>,
    showing: Option<Showing>,
    trace: Option<Trace>,
    early: Vec<Command>,
    warnings: Vec<String>,
    /// Questions that clients may still type: each costs a request to the LLM.
    questions: Option<Bucket>,
    waiting: Vec<(CommandId, Waiting)>,
    next_command: u32,
    leaving: bool,
    ended: Option<Instant>,
    /// Links that are gone and still known by name.
    dropped: Vec<u32>,
    next_tick: Instant,
    /// [`Node::deadline`] as it was when the call was last served.
    pub(crate) due: Option<Instant>,
    /// [`Node::is_settled`], as of when it was served last.
    pub(crate) settled: bool,
    _seat: Seat,
    _presence: Presence,
}

impl Node {
    /// A call that waits for its connection.
    ///
    /// # Errors
    /// No Opus encoder can be had.
    pub(crate) fn new(
        opening: Opening,
        waited: Waited,
        shared: Arc<Shared>,
        news: Sink<News>,
        now: Instant,
    ) -> Result<Self, crate::speak::encode::Error> {
        let Opening { key, call, models, face: poses, seat } = opening;
        let Waited { links, next_link, presence, commands } = waited;
        let CallModels { stt, turn, llm, llm_fallback, tts, tts_fallback, warnings } = models;
        let own = poses.as_ref().map(|poses| poses.set().manifest().voice.clone()).unwrap_or_default();
        // The agent's voice where the engine has it, else its face's, else the engine's default.
        let voice_of = |tts: &dyn models::tts::Tts| {
            let names = [&call.tts.voice_id, &own].into_iter();
            names.filter(|name| !name.is_empty()).find(|name| tts.knows(name)).cloned().unwrap_or_default()
        };
        let voice = voice_of(&*tts);
        let fallback_voice = tts_fallback.as_deref().map(voice_of).unwrap_or_default();
        let showing = poses.map(|poses| Showing {
            face: Face::of(poses, call.avatar.frame_rate, key.0),
            pace: Pace::new(call.avatar.frame_rate, Time::ZERO),
            state: AgentState::Listening,
            held: false,
        });
        let session = talk::session(&call);
        let rate = shared.questions;
        let questions = (rate > 0.0).then(|| Bucket::new(rate, (rate * QUESTIONS_AT_ONCE).max(1.0), now));
        Ok(Self {
            conversation: Conversation::new(call.spec.clone()),
            hearing: Hearing::new(call.spec.vad, stt, turn),
            speaking: Speaking::new(now)?,
            call,
            shared,
            news,
            origin: None,
            inputs: VecDeque::with_capacity(4),
            links,
            current: None,
            next_link,
            session,
            told_silence: false,
            pcm: Vec::with_capacity(2_048),
            llm,
            llm_fallback,
            tts,
            tts_fallback,
            voice,
            fallback_voice,
            asked: Vec::with_capacity(4),
            brought: Vec::new(),
            servers: Handle::done(),
            checks: Vec::new(),
            said: String::new(),
            client_tools: Vec::new(),
            showing,
            trace: None,
            early: commands,
            warnings,
            questions,
            waiting: Vec::new(),
            next_command: 0,
            leaving: false,
            ended: None,
            dropped: Vec::new(),
            next_tick: now,
            due: None,
            settled: false,
            _seat: seat,
            _presence: presence,
        })
    }

    /// Whether a window of it waits for the detector.
    #[must_use]
    pub(crate) fn waits_for_judgement(&self) -> bool {
        !self.hearing.ready.is_empty()
    }

    /// Whether the conversation is over.
    #[must_use]
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Whether the conversation has begun: then its record must end.
    #[must_use]
    pub(crate) fn has_begun(&self) -> bool {
        self.origin.is_some() && self.ended.is_none()
    }

    /// Tells the client that the call has failed, and closes its connections without waiting.
    pub(crate) fn break_off(&mut self, now: Instant, transmit: &mut dyn FnMut(Transmit)) {
        for link in &mut self.links {
            link.break_off(now);
            while link.poll(now, transmit).is_some() {}
        }
    }

    /// Conversation time.
    fn time(&self, now: Instant) -> Time {
        let micros = self.origin.map_or(0, |origin| now.saturating_duration_since(origin).as_micros());
        Time::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// The thread's next tick.
    pub(crate) fn set_tick(&mut self, at: Instant) {
        self.next_tick = at;
    }

    /// A datagram for one of its connections.
    pub(crate) fn datagram(
        &mut self,
        now: Instant,
        number: u32,
        protocol: Protocol,
        source: SocketAddr,
        destination: SocketAddr,
        datagram: &[u8],
    ) -> bool {
        let link = self.links.iter_mut().find(|l| l.number == number);
        link.is_some_and(|l| l.receive(now, protocol, source, destination, datagram))
    }

    /// Drains all connections: what they tell happens, what they send goes to `transmit`.
    pub(crate) fn drive(&mut self, now: Instant, transmit: &mut dyn FnMut(Transmit)) {
        let mut at = 0;
        while at < self.links.len() {
            // A step of str0m that does nothing costs as much as one that sends a packet.
            while self.links[at].is_due(now)
                && let Some(event) = self.links[at].poll(now, transmit)
            {
                let number = self.links[at].number;
                self.event(now, number, event);
            }
            at += 1;
        }
        // Answers written while a later link was drained.
        for link in &mut self.links {
            while link.is_due(now) && link.poll(now, transmit).is_some() {}
        }
    }

    /// What one of its connections tells.
    pub(crate) fn event(&mut self, now: Instant, number: u32, event: Event) {
        match event {
            Event::Connected => self.connected(now, number),
            Event::Text(text) => self.client_says(now, number, &text),
            Event::KeyframeRequested => {
                if let Some(showing) = &mut self.showing {
                    showing.face.request_key();
                }
            }
            Event::Bandwidth(bps) => {
                if let Some(showing) = self.showing.as_mut().filter(|_| self.current == Some(number)) {
                    showing.face.set_bandwidth(bps);
                }
            }
            Event::Lost(part) if self.current == Some(number) => self.speaking.lost(part),
            Event::ChannelOpen => self.greet(now, number),
            // Clocks watch a closed link; voice went into the jitter buffer.
            Event::Closed | Event::Audio { .. } | Event::Lost(_) => {}
        }
    }

    /// A connection is up: the call begins, or goes on with it.
    fn connected(&mut self, now: Instant, number: u32) {
        if self.ended.is_some() || self.current == Some(number) {
            return;
        }
        let older = self.current.replace(number);
        for link in self.links.iter_mut().filter(|l| Some(l.number) == older) {
            link.hang_up(now);
        }
        if let Some(showing) = &mut self.showing {
            showing.face.request_key();
        }
        if self.origin.is_none() {
            self.begin(now);
        }
    }

    fn begin(&mut self, now: Instant) {
        let first_block = self.next_tick.max(now);
        self.origin = Some(now);
        let unix_micros = clock::unix_micros();
        if self.call.record_trace
            && let Some(disk) = &self.shared.trace
        {
            self.trace = Some(Trace::begin(disk.clone(), &self.call, unix_micros));
        }
        // On the thread's tick, so that the blocks of all calls are due together.
        self.speaking.begin(now, first_block);
        self.feed(now, Input::Start);
        self.feed(now, Input::ExternalEvent(Fact::Joined { unix_micros }));
        for text in std::mem::take(&mut self.warnings) {
            self.feed(now, Input::ExternalEvent(Fact::Warning { text }));
        }
        self.ask_servers();
        for command in std::mem::take(&mut self.early) {
            self.command(now, command, None);
        }
    }

    /// A command from outside.
    pub(crate) fn command(
        &mut self,
        now: Instant,
        command: Command,
        reply: Option<oneshot::Sender<Result<CommandOutcome, CommandError>>>,
    ) {
        let answer = |reply: Option<oneshot::Sender<_>>, answer| {
            if let Some(reply) = reply {
                // Whoever asked may have gone meanwhile.
                let _ = reply.send(answer);
            }
        };
        if self.ended.is_some() {
            return answer(reply, Err(CommandError::NotRunning));
        }
        if self.origin.is_none() {
            if matches!(command, Command::End | Command::Leave | Command::Stop { .. }) {
                self.ended = Some(now); // it never began: it leaves no trace, and the record is not ours to close
                return answer(reply, Err(CommandError::NotRunning));
            }
            if self.early.len() < EARLY {
                self.early.push(command);
            }
            return answer(reply, Ok(CommandOutcome::Accepted));
        }
        self.give_command(now, command, reply.map(Waiting::Host));
    }

    fn give_command(&mut self, now: Instant, command: Command, waiting: Option<Waiting>) {
        self.queue_command(command, waiting);
        self.settle(now);
    }

    /// The conversation is given the command with the next [`Node::settle`], or by the one that runs.
    fn queue_command(&mut self, command: Command, waiting: Option<Waiting>) {
        let id = CommandId(self.next_command);
        self.next_command += 1;
        if let Some(waiting) = waiting {
            self.waiting.push((id, waiting));
        }
        self.inputs.push_back(Input::Command { id, command });
    }

    /// A client closes one of the connections by itself: the user's leaving, if it carries the call. False if there is no such connection.
    pub(crate) fn hang_up(&mut self, now: Instant, id: &str) -> bool {
        let Some(link) = self.links.iter_mut().find(|l| l.id() == id) else { return false };
        let number = link.number;
        if self.current == Some(number) {
            self.leave(now);
        } else {
            link.hang_up(now);
            if self.origin.is_none() && self.links.iter().all(|l| l.number == number) {
                self.ended = Some(now);
            }
        }
        true
    }

    /// The user leaves.
    fn leave(&mut self, now: Instant) {
        if self.ended.is_none() && !std::mem::replace(&mut self.leaving, true) {
            self.give_command(now, Command::Leave, None);
        }
    }

    /// Sends the blocks and pictures that are due.
    pub(crate) fn speak(&mut self, now: Instant, meter: &mut Meter) {
        if self.origin.is_none() {
            return;
        }
        let current = self.current;
        let mut link = self.links.iter_mut().find(|l| Some(l.number) == current && l.is_up());
        let audible = link.is_some();
        let encode = link.as_ref().is_some_and(|l| l.wants_packets());
        self.speaking.set_talked_over(self.hearing.hears());
        while let Some(block) = self.speaking.render(now, encode, audible) {
            if let Some(link) = &mut link {
                link.sound(now, &block);
                meter.frame(now.saturating_duration_since(block.due));
            }
        }
        let (left_out, underruns) = self.speaking.losses();
        meter.losses(left_out, underruns);
        while let Some((piece, event)) = self.speaking.reports() {
            if matches!(event, conversation::input::PlayoutEvent::Finished(_)) {
                self.keep_phones();
            }
            self.feed(now, Input::Playout { segment: piece, event });
        }
        self.show(now, meter);
    }

    fn show(&mut self, now: Instant, meter: &mut Meter) {
        let time = self.time(now);
        let Some(showing) = &mut self.showing else { return };
        let Some(timestamp) = showing.pace.take(time) else { return };
        let Some(link) = self.links.iter_mut().find(|l| Some(l.number) == self.current && l.is_up()) else {
            return;
        };
        if !link.has_video() {
            return;
        }
        if showing.face.renew() {
            meter.renewed();
        }
        if let Some(frame) = showing.face.frame(time, self.speaking.mouth(now)) {
            let key = frame.key;
            if !link.picture(now, timestamp, frame) && key {
                showing.face.key_left_out();
            }
        }
    }
}
