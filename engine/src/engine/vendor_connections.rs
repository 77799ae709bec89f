//! The connections to vendors that are opened before the call has its slot: at the client's first
//! authenticated STUN check, in parallel with DTLS.

use std::sync::{Arc, Weak};

use engine_api::CallConfig;
use models::Sink;
use models::llm::Llm;
use models::panic_isolation::catch_panic;
use models::stt::SttStream;
use models::tts::Tts;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::CallEngine;
use crate::messages::{self, CallId, PrepareCall, StageEvent};
use crate::model_factory::Models;
use crate::speak::tts::open_for_call;

/// What was opened before the call has its slot. Dropping it closes the connections.
#[derive(Default)]
pub struct VendorConnections {
    /// The stream of an STT that connects on opening.
    pub(super) stt: Option<Box<dyn SttStream>>,
    /// The language model, which was told to prepare its connection.
    pub(super) llm: Option<Arc<dyn Llm>>,
    /// The TTS, with the instance for the call if it needs one.
    pub(super) tts: Option<Arc<dyn Tts>>,
}

impl VendorConnections {
    /// Opens what connects to a vendor. Takes no decoder of this server, and skips what fails: the
    /// setup of the call reports it.
    fn open(models: &dyn Models, call: &CallConfig, events: Sink<StageEvent>) -> Self {
        let stt = models.stt(&call.stt).0.ok().filter(|stt| stt.connects_on_open());
        let stt = stt.and_then(|stt| stt.open(messages::stt_sink(events)).ok());
        let tts = models.tts(&call.tts).0.ok().map(|tts| open_for_call(tts, &call.tts));
        let (llm, _) = models.llm(&call.llm, &call.agent_name, false);
        llm.warm_up();
        Self { stt, llm: Some(llm), tts }
    }
}

impl CallEngine {
    /// Opens the connections of a pending call. Opens none if the call would be rejected now.
    fn open_vendor_connections(
        &self,
        thread: usize,
        key: CallId,
        call: &CallConfig,
    ) -> VendorConnections {
        let is_rejected = self.check_slot_on(thread).is_err();
        if is_rejected || self.check_models(call).is_err() {
            return VendorConnections::default();
        }
        let stage_events = self.threads[thread].inbox.stage_event_sink(key);
        VendorConnections::open(&*self.models, call, stage_events)
    }
}

/// Prepares a call that does not run yet, in tasks: opening a model may wait for a lock.
pub(super) struct CallPreparation {
    pub(super) engine: Weak<CallEngine>,
    pub(super) runtime: Handle,
    pub(super) thread: usize,
    pub(super) key: CallId,
    pub(super) call: Arc<CallConfig>,
    /// The task that opens the connections. If this is dropped, so is its result.
    pub(super) connections: Option<JoinHandle<VendorConnections>>,
}

impl PrepareCall for CallPreparation {
    fn open_connections(&mut self) {
        let (engine, call) = (Weak::clone(&self.engine), Arc::clone(&self.call));
        let (thread, key) = (self.thread, self.key);
        self.connections = Some(self.runtime.spawn(async move {
            let Some(engine) = engine.upgrade() else { return VendorConnections::default() };
            catch_panic(|| engine.open_vendor_connections(thread, key, &call)).unwrap_or_default()
        }));
    }

    fn request_setup(&mut self) {
        let (engine, call) = (Weak::clone(&self.engine), Arc::clone(&self.call));
        let (thread, key) = (self.thread, self.key);
        let connections = self.connections.take();
        self.runtime.spawn(async move {
            let connections = match connections {
                // It fails only when the runtime stops.
                Some(task) => task.await.unwrap_or_default(),
                None => VendorConnections::default(),
            };
            if let Some(engine) = engine.upgrade() {
                engine.set_up_connected_call(thread, key, call, connections);
            }
        });
    }
}
