//! A panic in a call's code ends only that call. A panic in the thread's own code ends only the
//! calls of that thread.

use std::time::Instant;

use models::panic_isolation::catch_panic;
use smallvec::SmallVec;

use super::{MediaThread, transmit};
use crate::call::Call;
use crate::clock;
use crate::messages::CallId;
use crate::stats::StepMeter;
use crate::thread;
use crate::transport::demux::Demux;

impl MediaThread {
    /// Runs `work` on a call. Returns `None` if the call is not on this thread, or if it panicked
    /// in `work`.
    pub(super) fn with_call<T>(
        &mut self,
        now: Instant,
        key: CallId,
        work: impl FnOnce(&mut Call) -> T,
    ) -> Option<T> {
        let call = self.calls.get_mut(&key)?;
        thread::set_current_call(Some(call.config.id));
        let done = catch_panic(|| work(call));
        if done.is_none() {
            self.fail_call(now, key);
        }
        done
    }

    /// Runs `work` on every call.
    pub(super) fn for_each_call(
        &mut self,
        now: Instant,
        mut work: impl FnMut(&mut Call, &mut StepMeter),
    ) {
        let mut broken: SmallVec<[CallId; 4]> = SmallVec::new();
        for (key, call) in &mut self.calls {
            thread::set_current_call(Some(call.config.id));
            if catch_panic(|| work(call, &mut self.meter)).is_none() {
                broken.push(*key);
            }
        }
        thread::set_current_call(None);
        for key in broken {
            self.fail_call(now, key);
        }
    }

    /// Ends a call whose code panicked. Its state may be inconsistent, so it is used only to notify
    /// its client.
    pub(super) fn fail_call(&mut self, now: Instant, key: CallId) {
        self.end_failed_call(now, key);
        // The panic restarts the thread, and the restart reports the calls again.
        assert!(
            self.unreported_failures.is_empty(),
            "the event sink did not accept the report of a failed call"
        );
    }

    /// Ends a failed call. A panic on the way does not prevent its removal.
    fn end_failed_call(&mut self, now: Instant, key: CallId) {
        let Some(call) = self.calls.get(&key) else { return };
        let id = call.config.id;
        tracing::error!(conversation = %id, "call ended by an internal error");
        if call.is_running() {
            self.unreported_failures.push(id);
        }
        let Some(mut call) = self.remove_call(key) else { return };
        // Reported while the call still counts as present, so that a client that reconnects finds
        // the call ended.
        self.report_failed_calls();
        let mut final_datagrams = Vec::new();
        // If this panics too, the client detects the failure only because nothing more arrives.
        catch_panic(|| call.abort(now, &mut |datagram| final_datagrams.push(datagram)));
        catch_panic(|| drop(call));
        if self.socket.is_some() {
            final_datagrams
                .into_iter()
                .for_each(|datagram| transmit(&mut self.socket, &self.tcp, datagram));
        } else {
            // The socket is being read at the moment.
            self.final_datagrams.append(&mut final_datagrams);
        }
        thread::set_current_call(None);
    }

    /// Reports failed calls to the event sink, each in isolation. Returns whether it accepted all
    /// of them.
    fn report_failed_calls(&mut self) -> bool {
        let event_sink = &self.context.event_sink;
        self.unreported_failures
            .retain(|id| catch_panic(|| event_sink.call_panicked(*id)).is_none());
        self.unreported_failures.is_empty()
    }

    /// Resets the thread after a failure of its own code. Its calls may be inconsistent, so they
    /// end. The socket, inbox and models stay.
    ///
    /// # Panics
    /// Work is left for the next restart.
    pub(super) fn reset_after_failure(&mut self) {
        let now = clock::now();
        thread::set_current_call(None);
        for key in self.calls.keys().copied().collect::<Vec<_>>() {
            catch_panic(|| self.end_failed_call(now, key));
        }
        for key in self.pending_calls.keys().copied().collect::<Vec<_>>() {
            catch_panic(|| self.drop_pending_call(key));
        }
        // State that the failure may have left inconsistent is discarded.
        self.demux = Demux::new();
        self.by_conversation.clear();
        self.touched.clear();
        self.next_deadline = None;
        self.reads_socket_on_tick = false;
        self.socket_unread = true;
        assert!(
            self.report_failed_calls(),
            "the event sink did not accept the reports of failed calls"
        );
    }
}
