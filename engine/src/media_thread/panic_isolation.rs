//! A panic in a call's code ends that call, and one in the thread's own code ends its calls and no more.

use std::time::Instant;

use models::contain::contained;
use smallvec::SmallVec;

use super::{MediaThread, transmit};
use crate::call::Call;
use crate::clock;
use crate::messages::CallId;
use crate::stats::StepMeter;
use crate::thread;
use crate::transport::socket::Demux;

impl MediaThread {
    /// Lets a call do something; `None` if it is not here, or broke by that.
    pub(super) fn with_call<T>(
        &mut self,
        now: Instant,
        key: CallId,
        work: impl FnOnce(&mut Call) -> T,
    ) -> Option<T> {
        let call = self.calls.get_mut(&key)?;
        thread::set_current_call(Some(call.config.id));
        let done = contained(|| work(call));
        if done.is_none() {
            self.fail_call(now, key);
        }
        done
    }

    /// Lets every call do something.
    pub(super) fn for_each_call(&mut self, now: Instant, mut work: impl FnMut(&mut Call, &mut StepMeter)) {
        let mut broken: SmallVec<[CallId; 4]> = SmallVec::new();
        for (key, call) in &mut self.calls {
            thread::set_current_call(Some(call.config.id));
            if contained(|| work(call, &mut self.meter)).is_none() {
                broken.push(*key);
            }
        }
        thread::set_current_call(None);
        for key in broken {
            self.fail_call(now, key);
        }
    }

    /// A call's code panicked: what it may have left half done is not used again but to tell its client.
    pub(super) fn fail_call(&mut self, now: Instant, key: CallId) {
        self.end_failed_call(now, key);
        // The thread begins anew then, and tells it again.
        assert!(self.unreported_failures.is_empty(), "the ledger did not take that a call broke");
    }

    /// Ends a call that cannot go on. Nothing that panics on the way keeps it.
    fn end_failed_call(&mut self, now: Instant, key: CallId) {
        let Some(call) = self.calls.get(&key) else { return };
        let id = call.config.id;
        tracing::error!(conversation = %id, "a fault of the server ends the call");
        if call.is_running() {
            self.unreported_failures.push(id);
        }
        let Some(mut call) = self.remove_call(key) else { return };
        // While it still counts as present: a client that comes back must find that its call is over.
        self.report_failed_calls();
        let mut final_datagrams = Vec::new();
        // If that panics, too, the client learns it from the silence.
        contained(|| call.abort(now, &mut |datagram| final_datagrams.push(datagram)));
        contained(|| drop(call));
        if self.socket.is_some() {
            final_datagrams.into_iter().for_each(|datagram| transmit(&mut self.socket, &self.tcp, datagram));
        } else {
            // It is being read.
            self.final_datagrams.append(&mut final_datagrams);
        }
        thread::set_current_call(None);
    }

    /// Tells the ledger which calls broke, each apart. Whether it took all of them.
    fn report_failed_calls(&mut self) -> bool {
        let ledger = &self.context.event_sink;
        self.unreported_failures.retain(|id| contained(|| ledger.call_panicked(*id)).is_none());
        self.unreported_failures.is_empty()
    }

    /// The thread's own code failed. Its calls cannot be trusted to be whole, so they end; socket, inbox and models go on.
    ///
    /// # Panics
    /// Something is left to do, for the next restart.
    pub(super) fn reset_after_failure(&mut self) {
        let now = clock::now();
        thread::set_current_call(None);
        for key in self.calls.keys().copied().collect::<Vec<_>>() {
            contained(|| self.end_failed_call(now, key));
        }
        for key in self.pending_calls.keys().copied().collect::<Vec<_>>() {
            contained(|| self.drop_pending_call(key));
        }
        // Nothing that the failure may have left half done is looked at again.
        self.demux = Demux::new();
        self.by_conversation.clear();
        self.touched.clear();
        self.next_deadline = None;
        self.reads_socket_on_tick = false;
        self.socket_unread = true;
        assert!(self.report_failed_calls(), "the ledger did not take that calls broke");
    }
}
