//! Forwards sender reports to the reader of a track; the WebRTC stack does not deliver them
//! otherwise.

use std::collections::VecDeque;
use std::time::Instant;

use rtc::interceptor::{
    Attribute, AttributedPacket, Interceptor, Packet, StreamInfo, TaggedPacket,
};
use rtc::rtcp::sender_report::SenderReport;
use rtc::sansio::Protocol;
use rtc::shared::error::Error;

/// The last interceptor of the chain.
#[derive(Default)]
pub(super) struct ReportForwarder {
    incoming: VecDeque<TaggedPacket>,
    outgoing: VecDeque<TaggedPacket>,
}

impl Protocol<TaggedPacket, TaggedPacket, ()> for ReportForwarder {
    type Rout = TaggedPacket;
    type Wout = TaggedPacket;
    type Eout = ();
    type Error = Error;
    type Time = Instant;

    fn handle_read(&mut self, packet: TaggedPacket) -> Result<(), Error> {
        if let Packet::Rtcp(compound) = &packet.message.packet {
            // The stack selects the track by the first stream that a packet names. That is our own
            // stream if the report also contains a reception report on it. So each sender report is
            // forwarded alone, without its reception reports.
            let reports =
                compound.iter().filter_map(|one| one.as_any().downcast_ref::<SenderReport>());
            self.incoming.extend(reports.map(|report| {
                let alone = SenderReport { reports: Vec::new(), ..report.clone() };
                let message = AttributedPacket::new(Packet::Rtcp(vec![Box::new(alone)]));
                TaggedPacket {
                    now: packet.now,
                    transport: packet.transport,
                    message: message.with(Attribute::DeliverToApplication),
                }
            }));
        }
        self.incoming.push_back(packet);
        Ok(())
    }

    fn poll_read(&mut self) -> Option<TaggedPacket> {
        self.incoming.pop_front()
    }

    fn handle_write(&mut self, packet: TaggedPacket) -> Result<(), Error> {
        self.outgoing.push_back(packet);
        Ok(())
    }

    fn poll_write(&mut self) -> Option<TaggedPacket> {
        self.outgoing.pop_front()
    }

    fn handle_timeout(&mut self, _: Instant) -> Result<(), Error> {
        Ok(())
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        None
    }
}

impl Interceptor for ReportForwarder {
    fn bind_local_stream(&mut self, _: &StreamInfo) {}
    fn unbind_local_stream(&mut self, _: &StreamInfo) {}
    fn bind_remote_stream(&mut self, _: &StreamInfo) {}
    fn unbind_remote_stream(&mut self, _: &StreamInfo) {}
}
