//! A peer for other WebRTC stacks to prove the transport against, driven by
//! `engine/tests/peers.py`: it sends the user's voice back, plays a VP8 clip, and answers on the
//! data channel. `echo CLIP.ivf`; one line of JSON on stdin per offer, one on stdout per answer:
//! `{"sdp", "transport": "udp" | "tcp"}` → `{"sdp"}` or `{"error"}`.

// An example has no engine whose clock and threads it could use.
#![allow(clippy::disallowed_methods)]

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use engine::hear::decode::{Decoder, LevelMeter};
use engine::hear::jitter::{FrameKind, JitterBuffer};
use engine::speak::encode::Encoder;
use engine::transport::demux::Demux;
use engine::transport::socket::{Socket, SocketConfig, host_addresses};
use engine::transport::webrtc::{Certificate, PeerConnection, Protocol, Transmit};
use engine::transport::{TransportEvent, VideoFrame, client_messages, server_messages, tcp};
use mio::{Events, Interest, Poll, Token, Waker};
use serde_json::{Value, json};

struct EchoCall {
    connection: PeerConnection,
    jitter_buffer: JitterBuffer,
    decoder: Decoder,
    level: LevelMeter,
    pcm: Vec<i16>,
    silence_encoder: Encoder,
    echoes: std::collections::VecDeque<Bytes>,
    next_audio: u64,
    next_video: u64,
    next_frame: usize,
    connected: bool,
}

fn read_ivf(path: &str) -> std::io::Result<Vec<Bytes>> {
    let data = std::fs::read(path)?;
    let mut rest = &data[32..];
    let mut frames = Vec::new();
    while rest.len() > 12 {
        let length = u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
        frames.push(Bytes::copy_from_slice(&rest[12..12 + length]));
        rest = &rest[12 + length..];
    }
    Ok(frames)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let frames = read_ivf(&std::env::args().nth(1).ok_or("usage: echo CLIP.ivf")?)?;
    let certificate = Certificate::generate().ok_or("cannot generate a certificate")?;
    let mut socket = Socket::bind(&SocketConfig {
        host_addresses: host_addresses(true),
        ..SocketConfig::default()
    })?;
    let mut poll = Poll::new()?;
    poll.registry().register(&mut socket, Token(0), Interest::READABLE)?;
    let waker = Arc::new(Waker::new(poll.registry(), Token(1))?);

    let (offers, incoming) = crossbeam_channel::unbounded::<String>();
    let wake = waker.clone();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let _ = offers.send(line);
            let _ = wake.wake();
        }
        std::process::exit(0);
    });

    let mut tcp = tcp::Server::bind(0, &host_addresses(true), &[])?;
    let (tcp_candidates, outlet) = (tcp.candidates().to_vec(), tcp.datagram_sender());
    let ufrags: Arc<Mutex<Vec<String>>> = Arc::default();
    let (datagrams, over_tcp) = crossbeam_channel::bounded::<tcp::Datagram>(1024);
    let known_ufrags = ufrags.clone();
    std::thread::spawn(move || {
        let deliver = |ufrag: &str, datagram| {
            let ours =
                known_ufrags.lock().is_ok_and(|ufrags| ufrags.iter().any(|name| name == ufrag));
            ours && datagrams.try_send(datagram).is_ok() && waker.wake().is_ok()
        };
        tcp.run(Instant::now, deliver)
    });

    let start = Instant::now();
    let mut calls: HashMap<usize, EchoCall> = HashMap::new();
    let mut demux: Demux<usize> = Demux::new();
    let mut events = Events::with_capacity(16);
    let mut tick = start;
    loop {
        let now = Instant::now();
        let due =
            calls.values().map(|call| call.connection.timeout()).min().unwrap_or(tick).min(tick);
        poll.poll(&mut events, Some(due.saturating_duration_since(now)))?;
        let now = Instant::now();
        let mut receive = |proto, source, destination, datagram: &[u8]| {
            let Some(id) = demux.route(now, source, datagram) else { return };
            let Some(call) = calls.get_mut(&id) else { return };
            if call.connection.receive(now, proto, source, destination, datagram) {
                demux.learn_address(source, id);
            }
        };
        while socket.receive(|source, to, datagram| receive(Protocol::Udp, source, to, datagram))?.1
        {
        }
        for datagram in over_tcp.try_iter() {
            receive(Protocol::Tcp, datagram.source, datagram.destination, &datagram.contents);
        }
        for line in incoming.try_iter() {
            let offer: Value = serde_json::from_str(&line)?;
            let candidates =
                if offer["transport"] == "tcp" { &tcp_candidates[..] } else { socket.candidates() };
            let answer = match PeerConnection::accept(
                offer["sdp"].as_str().unwrap_or(""),
                candidates,
                &certificate,
                now,
            ) {
                Ok((connection, sdp)) => {
                    let id = calls.len();
                    demux.insert(connection.ufrag(), id);
                    ufrags
                        .lock()
                        .map_err(|_| "a thread failed")?
                        .push(connection.ufrag().to_owned());
                    calls.insert(
                        id,
                        EchoCall {
                            connection,
                            jitter_buffer: JitterBuffer::new(),
                            decoder: Decoder::new()?,
                            level: LevelMeter::default(),
                            pcm: Vec::new(),
                            silence_encoder: Encoder::new()?,
                            echoes: std::collections::VecDeque::new(),
                            next_audio: 0,
                            next_video: 0,
                            next_frame: 0,
                            connected: false,
                        },
                    );
                    json!({ "sdp": sdp })
                }
                Err(error) => json!({ "error": error.to_string() }),
            };
            writeln!(std::io::stdout(), "{answer}")?;
        }
        let media = now >= tick;
        if media {
            tick = now + Duration::from_millis(10);
        }
        let mut transmit = |datagram: Transmit| match datagram.proto {
            Protocol::Udp => socket.send(datagram),
            _ => outlet.send(datagram.destination, datagram.contents.into()),
        };
        for call in calls.values_mut() {
            if call.connection.timeout() <= now {
                call.connection.handle_timeout(now);
            }
            while let Some(event) = call.connection.poll(now, &mut transmit) {
                call.handle(event, now);
            }
            if media && call.connected {
                call.send_media(now, now.duration_since(start), &frames)?;
                while let Some(event) = call.connection.poll(now, &mut transmit) {
                    call.handle(event, now);
                }
            }
        }
        socket.flush();
    }
}

impl EchoCall {
    fn handle(&mut self, event: TransportEvent, now: Instant) {
        match event {
            TransportEvent::Connected => self.connected = true,
            TransportEvent::Audio { sequence, timestamp, payload } => {
                self.jitter_buffer.push(now, sequence, timestamp, payload)
            }
            TransportEvent::KeyFrameRequested => self.next_frame = 0,
            TransportEvent::Text(text) if text == "bye" => {
                self.connection.send_text(now, client_messages::peer_left());
                self.connection.close(now);
            }
            TransportEvent::Text(text) => self.connection.send_text(now, format!("echo: {text}")),
            TransportEvent::BandwidthEstimate(bits) => {
                self.connection.send_text(now, json!({ "bandwidth": bits }).to_string())
            }
            TransportEvent::ChannelOpen
            | TransportEvent::Closed
            | TransportEvent::PacketLoss(_)
            | TransportEvent::Room(_) => {}
        }
    }

    fn send_media(
        &mut self,
        now: Instant,
        elapsed: Duration,
        frames: &[Bytes],
    ) -> Result<(), Box<dyn std::error::Error>> {
        while let Some(frame) = self.jitter_buffer.pull(now) {
            self.pcm.clear();
            self.decoder.decode(&frame, &mut self.pcm);
            self.level.add(&self.pcm);
            if let FrameKind::Packet(packet) = frame.kind {
                self.echoes.push_back(packet);
            }
        }
        while self.echoes.len() > 10 {
            self.echoes.pop_front();
        }
        if self.level.sample_count() >= 1600 {
            let level = server_messages::level_message(self.level.take());
            self.connection.send_text(now, level);
        }
        let elapsed = elapsed.as_micros() as u64;
        if self.next_audio == 0 {
            (self.next_audio, self.next_video) = (elapsed / 20_000, elapsed / 40_000);
        }
        while self.next_audio * 20_000 <= elapsed {
            let stamp = self.next_audio * 960;
            match self.echoes.pop_front() {
                Some(packet) => self.connection.send_audio(now, stamp, false, &packet),
                None => self.connection.send_audio(
                    now,
                    stamp,
                    false,
                    self.silence_encoder.encode(&[0; 960])?,
                ),
            }
            self.next_audio += 1;
        }
        while self.next_video * 40_000 <= elapsed {
            let key = self.next_frame == 0;
            let frame = VideoFrame {
                payload: frames[self.next_frame].clone(),
                is_key_frame: key,
                base_layer: true,
            };
            self.connection.send_video(now, self.next_video * 3600, &frame);
            self.next_frame = (self.next_frame + 1) % frames.len();
            self.next_video += 1;
        }
        Ok(())
    }
}
