//! The engine: media threads, and the interface through which the control plane starts and controls
//! calls ([`Engine`]).

mod admission;
mod audio_line;
mod config;
mod ice_tcp;
mod metrics_export;
mod offers;
mod pending_offers;
mod readiness;
mod rooms;
mod sockets;
mod vendor_connections;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use conversation::id::ConversationId;
use conversation::input::Command;
use conversation::output::CommandOutcome;
use engine_api::metrics::MetricFamily;
use engine_api::{
    AcceptedOffer, AudioLine, AudioOffer, BoxFuture, CallConfig, CallReservation, CommandError,
    Engine, EventSink, HangUp, MissingModel, OfferError, PoseSetFile, RoomOffer, RoomSession,
    SttChoice, TtsChoice,
};
use models::{Error, ErrorKind, Sink};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};

use crate::channel::Sender;
use crate::context::{EngineContext, PresenceGuard};
use crate::hear;
use crate::latency::LatencyMetrics;
use crate::media_thread::{Inbox, MediaThread};
use crate::memory::MemoryMonitor;
use crate::messages::{self, CallId, CallModels, LoopbackCall, Message, StageEvent};
use crate::model_factory::Models;
use crate::recorder::{self, Recorder};
use crate::show::{AvatarLibrary, Avatars};
use crate::stats::ThreadStats;
use crate::trace;
use crate::transport::webrtc::Certificate;
use crate::transport::{loopback, socket, tcp};
use crate::{clock, thread};
use admission::{RejectReason, RejectionCounts};
pub use config::Config;
use pending_offers::PendingOffers;
use readiness::Readiness;
use rooms::ReservedSlot;
pub use sockets::MediaAddresses;
pub use vendor_connections::VendorConnections;

/// A call that still runs this long before the end of a drain speaks its exit message.
const EXIT_MESSAGE_TIME: Duration = Duration::from_secs(10);
/// How often a drain checks whether all calls have ended.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The media thread of a call.
struct CallLocation {
    thread: usize,
    alive: Arc<AtomicBool>,
}

impl CallLocation {
    fn is_alive(&self) -> bool {
        self.alive.load(Relaxed)
    }
}

#[derive(Default)]
struct CallDirectory {
    calls: HashMap<ConversationId, CallLocation>,
    /// ICE user names, for datagrams that arrive by TCP.
    ufrags: HashMap<String, CallLocation>,
    pending_offers: PendingOffers,
    draining: bool,
}

/// Dead entries are removed whenever a map's size reaches a multiple of this number.
const CLEANUP_EVERY_INSERTS: usize = 256;

impl CallDirectory {
    /// Location of a running call, or of an offer for it.
    fn find_live(&self, id: ConversationId) -> Option<&CallLocation> {
        self.calls.get(&id).filter(|place| place.is_alive())
    }

    /// Registers a call on this thread.
    fn insert_call(&mut self, id: ConversationId, thread: usize) -> PresenceGuard {
        let presence = PresenceGuard::default();
        self.calls.insert(id, CallLocation { thread, alive: Arc::clone(&presence.0) });
        self.remove_dead();
        presence
    }

    fn remove_dead(&mut self) {
        if self.calls.len().is_multiple_of(CLEANUP_EVERY_INSERTS) {
            self.calls.retain(|_, place| place.is_alive());
        }
        if self.ufrags.len().is_multiple_of(CLEANUP_EVERY_INSERTS) {
            self.ufrags.retain(|_, place| place.is_alive());
        }
    }
}

struct MediaThreadHandle {
    inbox: Inbox,
    slots_taken: Arc<AtomicUsize>,
    stats: Arc<ThreadStats>,
}

/// The engine: starts the media threads and places calls on them.
pub struct CallEngine {
    threads: Vec<MediaThreadHandle>,
    directory: Arc<Mutex<CallDirectory>>,
    ready: watch::Sender<Readiness>,
    models: Arc<dyn Models>,
    library: AvatarLibrary,
    next_call_id: AtomicU64,
    /// Reference to itself, for connected calls that request their slot.
    weak_self: Weak<Self>,
    runtime: Handle,
    max_calls: usize,
    tcp: Option<tcp::DatagramSender>,
    trace: Option<Sender<trace::TraceMessage>>,
    recorder: Option<Recorder>,
    latencies: Arc<LatencyMetrics>,
    memory: MemoryMonitor,
    rejections: RejectionCounts,
    /// Client for requests to addresses of users and the operator.
    client: egress::Client,
    host_addresses: Vec<IpAddr>,
    media_addresses: MediaAddresses,
    certificate: OnceLock<Arc<Certificate>>,
}

impl CallEngine {
    /// Starts the media threads, and a background thread that loads the certificate and the models.
    /// Returns at once.
    ///
    /// # Errors
    /// A port is taken, a folder cannot be created, or the system has no thread left.
    pub fn start(
        config: Config,
        models: Arc<dyn Models>,
        avatars: Avatars,
        client: egress::Client,
        event_sink: Arc<dyn EventSink>,
        net: Handle,
    ) -> io::Result<Arc<Self>> {
        let trace = config.trace_dir.map(trace::start).transpose()?.map(|(sender, _)| sender);
        let recorder = config.recorder.map(recorder::start).transpose()?;
        let latencies = Arc::<LatencyMetrics>::default();
        let context = Arc::new(EngineContext {
            runtime: net.clone(),
            http_client: client.clone(),
            event_sink,
            trace: trace.clone(),
            recorder: recorder.clone(),
            timeouts: config.timeouts,
            latencies: Arc::clone(&latencies),
            max_load: config.max_load,
            max_questions_per_second: config.max_questions_per_second,
        });
        let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST)];
        // Clients on this machine use UDP.
        let tcp_hosts: &[IpAddr] =
            if config.loopback_only { &loopback } else { &config.host_addresses };
        let server = config
            .tcp_port
            .map(|port| sockets::bind_tcp(port, tcp_hosts, &config.public_addresses))
            .transpose()?;
        let ice_tcp = server.as_ref().map(|s| (s.datagram_sender(), s.candidates().to_vec()));
        let udp = socket::SocketConfig {
            host_addresses: config.host_addresses.clone(),
            public_addresses: config.public_addresses,
            ports: config.udp_ports,
            loopback_only: config.loopback_only,
        };
        let count = if config.threads == 0 { thread::cores() } else { config.threads };
        let sockets = sockets::bind_all(&udp, count)?;
        let tcp_candidates = server.as_ref().map_or(&[][..], tcp::Server::candidates);
        let media_addresses = MediaAddresses::of(&sockets, tcp_candidates, config.loopback_only);
        let mut threads = Vec::with_capacity(sockets.len());
        for (number, socket) in sockets.into_iter().enumerate() {
            let (media_thread, inbox, stats) =
                MediaThread::new(socket, ice_tcp.clone(), Arc::clone(&context), clock::now())?;
            thread::spawn(&format!("media-{number}"), move || media_thread.run())?;
            threads.push(MediaThreadHandle { inbox, slots_taken: Arc::default(), stats });
        }
        let directory = Arc::<Mutex<CallDirectory>>::default();
        if let Some(server) = server {
            ice_tcp::start(server, &directory, threads.iter().map(|t| t.inbox.clone()).collect())?;
        }
        let (ready, _) = watch::channel(Readiness::Loading);
        let engine = Arc::new_cyclic(|me| Self {
            weak_self: me.clone(),
            runtime: net,
            threads,
            directory,
            ready,
            models,
            library: AvatarLibrary::new(avatars),
            next_call_id: AtomicU64::new(1),
            max_calls: config.max_calls,
            tcp: ice_tcp.map(|(sender, _)| sender),
            trace,
            recorder,
            latencies,
            memory: MemoryMonitor::new(config.min_free_memory),
            rejections: RejectionCounts::default(),
            client,
            host_addresses: config.host_addresses,
            media_addresses,
            certificate: OnceLock::new(),
        });
        Self::spawn_loader(&engine)?;
        Ok(engine)
    }

    /// Where clients send media.
    pub fn media_addresses(&self) -> &MediaAddresses {
        &self.media_addresses
    }

    /// Counters of each media thread.
    pub fn stats(&self) -> impl Iterator<Item = &ThreadStats> {
        self.threads.iter().map(|t| &*t.stats)
    }

    /// Stops admission and waits for running calls, for at most `limit`. Offers that were answered
    /// may still connect: their clients have no reason to go to another server. Calls that still run 10 s
    /// before the limit speak their exit message; calls that run at the limit are stopped. If the
    /// limit is 10 s or less, calls are stopped at once, without an exit message. Returns when no
    /// call is left, or 3 s after the limit if a thread does not respond.
    pub async fn drain(&self, limit: Duration) {
        self.lock_directory().draining = true;
        let all_over = async {
            // A client that connects is neither pending nor a call for a moment.
            let mut idle_polls = 0;
            while idle_polls < 2 {
                let pending_offers = self.lock_directory().pending_offers.count();
                let is_idle = self.active_calls() == 0 && pending_offers == 0;
                idle_polls = if is_idle { idle_polls + 1 } else { 0 };
                if idle_polls < 2 {
                    tokio::time::sleep(DRAIN_POLL_INTERVAL).await;
                }
            }
        };
        let phases = async {
            tokio::time::sleep(limit.saturating_sub(EXIT_MESSAGE_TIME)).await;
            self.stop(limit > EXIT_MESSAGE_TIME);
            tokio::time::sleep(EXIT_MESSAGE_TIME.min(limit)).await;
            self.stop(false);
            // A hang-up takes a moment; a thread that does not complete it in time is not waited
            // for.
            tokio::time::sleep(Duration::from_secs(3)).await;
        };
        tokio::select! {
            () = all_over => {}
            () = phases => {}
        }
        if let Some(trace) = &self.trace {
            trace::flush(trace).await;
        }
    }

    /// Stops every call now, with or without its exit message.
    pub fn stop(&self, exit_message: bool) {
        for thread in &self.threads {
            drop(thread.inbox.requests.send(Message::Stop { exit_message }));
        }
    }

    /// Starts a call without a network; the returned client carries its audio. For simulation and
    /// load tests.
    ///
    /// # Errors
    /// As [`Engine::accept_offer`].
    pub fn start_loopback_call(
        &self,
        call: Arc<CallConfig>,
        commands: Vec<Command>,
    ) -> Result<loopback::LoopbackClient, OfferError> {
        if let Some(missing) = self.not_ready_reason() {
            return Err(self.rejections.reject(&RejectReason::NotReady(missing)));
        }
        let (thread, slot, presence) = {
            let mut directory = self.lock_directory();
            if directory.find_live(call.id).is_some() {
                return Err(OfferError::NoCapacity("the call is already running".into()));
            }
            let (thread, slot) =
                self.take_slot(&directory).map_err(|why| self.rejections.reject(&why))?;
            (thread, slot, directory.insert_call(call.id, thread))
        };
        let key = self.next_call_id();
        let setup = self.prepare_call(thread, key, call, slot, VendorConnections::default())?;
        let (server, client) = loopback::pair();
        let loopback_call =
            LoopbackCall { setup: Box::new(setup), early_commands: commands, server, presence };
        let sent =
            self.threads[thread].inbox.requests.send(Message::Loopback(Box::new(loopback_call)));
        sent.map_err(|_| OfferError::NoCapacity("the server is too busy".into()))?;
        Ok(client)
    }

    fn slots_taken(&self) -> usize {
        self.threads.iter().map(|t| t.slots_taken.load(Relaxed)).sum()
    }

    fn lock_directory(&self) -> MutexGuard<'_, CallDirectory> {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_call_id(&self) -> CallId {
        CallId(self.next_call_id.fetch_add(1, Relaxed))
    }

    fn thread_of_call(&self, id: ConversationId) -> Option<&MediaThreadHandle> {
        let directory = self.lock_directory();
        let place = directory.calls.get(&id).filter(|p| p.is_alive())?;
        self.threads.get(place.thread)
    }
}

impl Drop for CallEngine {
    fn drop(&mut self) {
        for thread in &self.threads {
            drop(thread.inbox.requests.send(Message::Quit));
        }
        if let Some(tcp) = &self.tcp {
            tcp.stop();
        }
    }
}

impl Engine for CallEngine {
    fn accept_offer(
        &self,
        offer: engine_api::Offer,
    ) -> BoxFuture<'_, Result<AcceptedOffer, OfferError>> {
        Box::pin(self.take_offer(offer))
    }

    fn open_audio(
        &self,
        offer: AudioOffer,
    ) -> BoxFuture<'_, Result<Box<dyn AudioLine>, OfferError>> {
        Box::pin(self.take_line(offer))
    }

    fn join_room(&self, offer: RoomOffer) -> BoxFuture<'_, Result<RoomSession, OfferError>> {
        Box::pin(self.take_room(offer))
    }

    fn send_command(
        &self,
        conversation: ConversationId,
        command: Command,
    ) -> BoxFuture<'_, Result<CommandOutcome, CommandError>> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            let thread = self.thread_of_call(conversation).ok_or(CommandError::NotRunning)?;
            let message = Message::Command { conversation, command, reply: Some(reply) };
            thread.inbox.requests.send(message).map_err(|_| CommandError::NotRunning)?;
            answer.await.unwrap_or(Err(CommandError::NotRunning))
        })
    }

    fn hang_up(&self, conversation: ConversationId, connection: String) -> BoxFuture<'_, HangUp> {
        Box::pin(async move {
            let (reply, closed) = oneshot::channel();
            let Some(thread) = self.thread_of_call(conversation) else { return HangUp::NotFound };
            let message = Message::HangUp { conversation, connection, reply };
            match thread.inbox.requests.send(message) {
                Ok(()) => closed.await.unwrap_or(HangUp::NotFound),
                Err(_) => HangUp::NotFound,
            }
        })
    }

    fn swap_pose_set(&self, avatar_key_id: &str, face: PoseSetFile) {
        self.library.swap_pose_set(avatar_key_id, &face);
    }

    fn active_calls(&self) -> usize {
        self.slots_taken()
    }

    fn capacity_error(&self) -> Option<String> {
        self.reject_reason().map(|why| why.to_string())
    }

    fn reject_new_call(&self) -> Option<String> {
        let draining = self.lock_directory().draining.then_some(RejectReason::Draining);
        let why = draining.or_else(|| Self::reject_reason(self))?;
        self.rejections.reject(&why);
        Some(why.to_string())
    }

    fn reserve_call(&self) -> Option<CallReservation> {
        let (thread, slot) = self.take_slot(&self.lock_directory()).ok()?;
        Some(CallReservation::new(ReservedSlot { thread, slot }))
    }

    fn load_ratio(&self) -> f64 {
        let loads = self.threads.iter().map(|thread| &thread.stats.load);
        loads.map(|load| load.busy_ratio().max(load.process_busy_ratio())).fold(0.0, f64::max)
    }

    fn models_unavailable(&self) -> Option<String> {
        self.models.unavailable()
    }

    fn missing_models(&self) -> Vec<MissingModel> {
        if *self.ready.borrow() == Readiness::Loading { Vec::new() } else { self.models.missing() }
    }

    fn call_obstacle(&self, stt: &SttChoice, tts: &TtsChoice) -> Option<String> {
        match &*self.ready.borrow() {
            Readiness::Loading => return None,
            Readiness::Unavailable(what) => return Some(what.clone()),
            Readiness::Ready => {}
        }
        // A call that waits for a busy model can be held later.
        let lasting = |error: &Error| error.kind() == ErrorKind::NotAvailable;
        let stt = self.models.stt(stt).0.map_or_else(Some, |stt| stt.capacity_error());
        let tts = || self.models.tts(tts).0.map_or_else(Some, |tts| tts.capacity_error());
        let error = stt.filter(lasting).or_else(|| tts().filter(lasting))?;
        Some(error.to_string())
    }

    fn degraded_reason(&self) -> Option<String> {
        let tcp = self.tcp.as_ref().and_then(|tcp| tcp.health().message("threads of ICE-TCP"));
        let reasons = [self.dead_threads_message(), tcp, self.models.degraded_reason()];
        let reasons: Vec<String> = reasons.into_iter().flatten().collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    fn not_ready_reason(&self) -> Option<String> {
        match &*self.ready.borrow() {
            Readiness::Ready => None,
            Readiness::Loading => Some("certificate and models are still loading".into()),
            Readiness::Unavailable(what) => Some(what.clone()),
        }
    }

    fn recording_error(&self) -> Option<String> {
        recorder::unavailable_reason(self.recorder.as_ref())
    }

    fn metrics(&self) -> Vec<MetricFamily> {
        self.metric_families()
    }
}

/// Resolves the models of one call. Uses those of `opened`, and opens the others.
///
/// # Errors
/// The call would have no STT or no TTS: no decoder is free, or the TTS is not available.
pub fn resolve_models(
    models: &dyn Models,
    call: &CallConfig,
    events: Sink<StageEvent>,
    opened: VendorConnections,
) -> Result<CallModels, Error> {
    let mut warnings = Vec::new();
    let (stt, warning) = models.stt(&call.stt);
    warnings.extend(warning);
    let (tts, warning) = models.tts(&call.tts);
    warnings.extend(warning);
    let (llm, warning) = models.llm(&call.llm, &call.agent_name, false);
    warnings.extend(warning);
    let llm_fallback =
        call.spec.fallback_llm.then(|| models.llm(&call.llm, &call.agent_name, true)).map(
            |(llm, warning)| {
                warnings.extend(warning);
                llm
            },
        );
    let tts = tts?;
    if let Some(error) = tts.capacity_error() {
        return Err(error);
    }
    let turn = hear::turn_detector::resolve_turn_model(models, call, &mut warnings);
    warnings.extend(crate::speak::tts::missing_voice_warning(&*tts, &call.tts.voice_id));
    let stt = match opened.stt {
        Some(stream) => stream,
        None => stt?.open(messages::stt_sink(events))?,
    };
    let tts = opened.tts.unwrap_or_else(|| crate::speak::tts::open_for_call(tts, &call.tts));
    let llm = opened.llm.unwrap_or_else(|| {
        llm.warm_up();
        llm
    });
    Ok(CallModels { stt, turn_model: turn, llm, llm_fallback, tts, tts_fallback: None, warnings })
}

/// Number of media threads and calls, for logs.
impl std::fmt::Debug for CallEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = String::new();
        write!(text, "{} media threads, {} calls", self.threads.len(), self.active_calls())?;
        f.write_str(&text)
    }
}
