//! Events on their way to a sink, in one order.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Sink;

/// Sends the events of several threads to a sink in the order in which they were pushed.
///
/// An event is pushed while the state that it belongs to is locked, and sent after that: a sink may
/// block, and may cancel the request.
pub(super) struct Outbox<E> {
    sink: Sink<E>,
    queue: Mutex<Queue<E>>,
}

struct Queue<E> {
    events: VecDeque<E>,
    /// Whether a thread is sending. It also sends what others push meanwhile.
    is_sending: bool,
}

impl<E> Outbox<E> {
    pub(super) fn new(sink: Sink<E>) -> Self {
        Self { sink, queue: Mutex::new(Queue { events: VecDeque::new(), is_sending: false }) }
    }

    fn lock(&self) -> MutexGuard<'_, Queue<E>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event. Never blocks for long, and does not call the sink.
    pub(super) fn push(&self, event: E) {
        self.lock().events.push_back(event);
    }

    /// Sends all events, unless another thread is sending them.
    pub(super) fn flush(&self) {
        if std::mem::replace(&mut self.lock().is_sending, true) {
            return;
        }
        loop {
            let event = {
                let mut queue = self.lock();
                let Some(event) = queue.events.pop_front() else {
                    queue.is_sending = false;
                    return;
                };
                event
            };
            self.sink.send(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, OnceLock};

    use super::*;

    #[test]
    fn what_the_sink_pushes_is_sent_after_the_events_before_it() {
        let outbox: Arc<OnceLock<Outbox<u32>>> = Arc::default();
        let sent = Arc::new(Mutex::new(Vec::new()));
        let (all, again) = (Arc::clone(&sent), Arc::clone(&outbox));
        let sink = Sink::new(move |event| {
            all.lock().unwrap().push(event);
            if event == 1 {
                let outbox = again.get().unwrap();
                outbox.push(3);
                outbox.flush();
                assert_eq!(*all.lock().unwrap(), [1], "the outer call sends it");
            }
        });
        let outbox = outbox.get_or_init(|| Outbox::new(sink));
        outbox.push(1);
        outbox.push(2);
        assert!(sent.lock().unwrap().is_empty());
        outbox.flush();
        outbox.push(4);
        outbox.flush();
        assert_eq!(*sent.lock().unwrap(), [1, 2, 3, 4]);
    }
}
