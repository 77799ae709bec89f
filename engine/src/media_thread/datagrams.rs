//! Datagrams from the network: reads them within the step's budget, and routes each to its call.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use models::panic_isolation::catch_panic;

use super::read_budget::{DATAGRAMS_PER_CLOCK_READING, ReadBudget, TCP_DATAGRAMS, UDP_DATAGRAMS};
use super::{ConnectionRef, MediaThread, transmit};
use crate::call::Call;
use crate::connection::Reception;
use crate::thread;
use crate::transport::tcp;
use crate::transport::webrtc::Protocol;

impl MediaThread {
    /// Reads the datagrams that arrived by TCP. Returns whether there are more.
    pub(super) fn read_tcp(&mut self, now: Instant, budget: &ReadBudget<'_>) -> bool {
        let mut taken = 0_usize;
        while !taken.is_multiple_of(DATAGRAMS_PER_CLOCK_READING)
            || budget.admits(TCP_DATAGRAMS, taken)
        {
            let Ok(datagram) = self.tcp_datagrams.try_recv() else { return false };
            taken += 1;
            let tcp::Datagram { source, destination, mut contents } = datagram;
            self.handle_datagram(now, Protocol::Tcp, source, destination, &mut contents);
        }
        !self.tcp_datagrams.is_empty()
    }

    /// Reads the datagrams of the socket. Returns whether there may be more.
    pub(super) fn read_socket(&mut self, now: Instant, budget: &ReadBudget<'_>) -> bool {
        let Some(mut socket) = self.socket.take() else { return false };
        let (mut taken, mut more) = (0, true);
        while more && budget.admits(UDP_DATAGRAMS, taken) {
            let read = catch_panic(|| {
                socket.receive_batch(|source, destination, datagram| {
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

    fn handle_datagram(
        &mut self,
        now: Instant,
        protocol: Protocol,
        source: SocketAddr,
        destination: SocketAddr,
        datagram: &mut [u8],
    ) {
        let target = self.demux.route(now, source, datagram);
        let reception = target.map_or(Reception::Foreign, |target| {
            self.pass_to_connection(now, target, protocol, source, destination, datagram)
        });
        thread::set_current_call(None);
        match (reception, target) {
            (Reception::Accepted, Some(target)) => {
                self.demux.learn_address(source, target);
                self.touch(target.call);
            }
            (Reception::RateLimited, _) => {
                self.meter.stats().rate_limited_datagrams.fetch_add(1, Relaxed);
            }
            _ => {
                self.meter.stats().unknown_datagrams.fetch_add(1, Relaxed);
            }
        }
    }

    fn pass_to_connection(
        &mut self,
        now: Instant,
        target: ConnectionRef,
        protocol: Protocol,
        source: SocketAddr,
        destination: SocketAddr,
        datagram: &[u8],
    ) -> Reception {
        let connection = target.connection;
        if self.calls.contains_key(&target.call) {
            let receive = |call: &mut Call| {
                call.receive_datagram(now, connection, protocol, source, destination, datagram)
            };
            return self.with_call(now, target.call, receive).unwrap_or(Reception::Foreign);
        }
        let Some(pending) = self.pending_calls.get_mut(&target.call) else {
            return Reception::Foreign;
        };
        thread::set_current_call(Some(pending.conversation));
        let receive =
            || pending.receive_datagram(now, connection, protocol, source, destination, datagram);
        catch_panic(receive).unwrap_or_else(|| {
            tracing::error!("the code of a pending call panicked: its offers are dropped");
            self.drop_pending_call(target.call);
            Reception::Foreign
        })
    }
}
