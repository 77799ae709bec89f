//! Datagrams from the network: routes each to its call, and limits how many are read in one step.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use models::panic_isolation::catch_panic;

use super::{MediaThread, transmit};
use crate::call::Call;
use crate::thread;
use crate::transport::webrtc::Protocol;

/// Limit of datagrams read in one step. It exceeds what a flood delivers within one tick, and
/// reading this many takes well under half a tick.
const MAX_DATAGRAMS_PER_STEP: usize = 4_096;
impl MediaThread {
    /// Reads up to [`MAX_DATAGRAMS_PER_STEP`] datagrams from the socket. Returns whether there may
    /// be more.
    pub(super) fn read_socket(&mut self, now: Instant) -> bool {
        let Some(mut socket) = self.socket.take() else { return false };
        let (mut taken, mut more) = (0, true);
        while more && taken < MAX_DATAGRAMS_PER_STEP {
            let read = catch_panic(|| {
                socket.receive(|source, destination, datagram| {
                    self.handle_datagram(now, Protocol::Udp, source, destination, datagram);
                })
            });
            // The socket must survive a panic in the handling of its datagrams.
            let Some(read) = read else {
                self.socket = Some(socket);
                panic!("the handling of a datagram panicked");
            };
            match read {
                Ok((count, unread)) => {
                    taken += count;
                    more = unread;
                }
                Err(error) => {
                    // The remote host refused one of our datagrams, or a similar error. The socket
                    // remains usable.
                    tracing::debug!(%error, "media socket error");
                    more = false;
                }
            }
        }
        self.socket = Some(socket);
        for datagram in std::mem::take(&mut self.final_datagrams) {
            transmit(&mut self.socket, &self.tcp, datagram);
        }
        more
    }

    pub(super) fn handle_datagram(
        &mut self,
        now: Instant,
        protocol: Protocol,
        source: SocketAddr,
        destination: SocketAddr,
        datagram: &mut [u8],
    ) {
        let target = self.demux.route(now, source, datagram);
        let taken = target.filter(|target| {
            let connection = target.connection;
            if self.calls.contains_key(&target.call) {
                let receive = |call: &mut Call| {
                    call.receive_datagram(now, connection, protocol, source, destination, datagram)
                };
                return self.with_call(now, target.call, receive).unwrap_or(false);
            }
            let Some(pending) = self.pending_calls.get_mut(&target.call) else { return false };
            thread::set_current_call(Some(pending.conversation));
            let receive =
                || pending.receive_datagram(now, connection, protocol, source, destination, datagram);
            catch_panic(receive).unwrap_or_else(|| {
                tracing::error!("the code of a pending call panicked: its offers are dropped");
                self.drop_pending_call(target.call);
                false
            })
        });
        thread::set_current_call(None);
        let Some(target) = taken else {
            self.meter.stats().unknown_datagrams.fetch_add(1, Relaxed);
            return;
        };
        self.demux.learn_address(source, target);
        self.touch(target.call);
    }
}
