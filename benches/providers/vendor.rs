//! The servers of the vendors. They use one core.

mod answer;
mod assemblyai;
mod aura;
mod cartesia;
mod deepgram;
mod elevenlabs;
mod flux;
mod openai_realtime;
mod requests;
mod scribe;
mod speech;

use std::collections::VecDeque;
use std::io::BufRead as _;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::{SinkExt as _, StreamExt as _};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep_until};
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async};

use crate::stamp::{self, Latencies};
use speech::{Part, stamped_samples};

/// What the server measures.
#[derive(Default)]
struct Measured {
    /// From the last samples of a message or request with audio to its arrival.
    stt_out: Latencies,
    /// From each 20 ms of audio to the last samples of its message: the wait until it is full.
    stt_packing: Latencies,
    /// From the request of a segment to its text.
    tts_out: Latencies,
    /// From the request of an answer to its question.
    llm_out: Latencies,
}

/// The protocol of a vendor on one connection.
trait Protocol: Send {
    /// Handles a text. Breaks if the client ends the connection.
    fn receive_text(&mut self, text: &str, replies: &mut VecDeque<Reply>) -> ControlFlow<()>;

    /// Handles a message with audio.
    fn receive_audio(&mut self, pcm: &[u8], replies: &mut VecDeque<Reply>) {
        let _ = (pcm, replies);
    }
}

/// How a stamp is written into a reply.
#[derive(Clone, Copy)]
enum StampKind {
    None,
    /// As a decimal number.
    Decimal,
    /// As the first 9 bytes of samples in base64; the last one is 0.
    Samples,
}

/// A message to the client: text, or samples of speech.
struct Reply {
    due: Instant,
    samples: Option<Part>,
    before: String,
    stamp: StampKind,
    after: String,
}

/// The place of the stamp in a message.
const STAMP: &str = "<stamp>";

impl Reply {
    fn new(due: Instant, text: impl Into<String>) -> Self {
        Self {
            due,
            samples: None,
            before: text.into(),
            stamp: StampKind::None,
            after: String::new(),
        }
    }

    /// A binary message, which begins with a stamp.
    fn samples(part: Part) -> Self {
        Self { samples: Some(part), ..Self::new(part.due, "") }
    }

    /// A message with a stamp at the place of [`STAMP`].
    fn stamped(due: Instant, stamp: StampKind, message: &Value) -> Self {
        let text = message.to_string();
        let (before, after) = text.split_once(STAMP).expect("a place for the stamp");
        Self { due, samples: None, before: before.to_owned(), stamp, after: after.to_owned() }
    }

    /// The message with the current time.
    fn into_message(self) -> Message {
        match &self.samples {
            Some(part) => Message::Binary(stamped_samples(part)),
            None => Message::text(self.into_text()),
        }
    }

    /// The text with the current time.
    fn into_text(self) -> String {
        let mut text = self.before;
        match self.stamp {
            StampKind::None => {}
            StampKind::Decimal => text.push_str(&stamp::now().to_string()),
            StampKind::Samples => {
                let mut bytes = [0; 9];
                bytes[..8].copy_from_slice(&stamp::now().to_le_bytes());
                STANDARD.encode_string(bytes, &mut text);
            }
        }
        text.push_str(&self.after);
        text
    }
}

/// How clients are connected.
#[derive(Clone, Copy)]
pub(crate) enum Transport {
    /// `WebSocket` connections.
    Sockets,
    /// HTTP requests.
    Requests,
}

/// Serves until standard input ends. With TLS if `certificate` names a file, to which the
/// certificate is written.
pub(crate) fn run(cpu: usize, transport: Transport, certificate: Option<&str>) {
    crate::pin_to(cpu);
    let measured = Arc::new(Measured::default());
    let (tls, shown) = (certificate.map(tls_acceptor), Arc::clone(&measured));
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(serve(transport, tls, measured));
    });
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("a line");
        let mut times = line.split_whitespace().map(|time| time.parse().expect("a time"));
        let (from, to) = (times.next().unwrap_or(0), times.next().unwrap_or(u64::MAX));
        let summary = json!({
            "stt_out": shown.stt_out.summary(from, to),
            "stt_packing": shown.stt_packing.summary(from, to),
            "tts_out": shown.tts_out.summary(from, to),
            "llm_out": shown.llm_out.summary(from, to),
        });
        println!("{summary}");
    }
}

/// TLS with a new certificate for this machine, which is written to a file.
fn tls_acceptor(certificate: &str) -> TlsAcceptor {
    let made = generate_simple_self_signed(["127.0.0.1".to_owned()]);
    let CertifiedKey { cert, signing_key } = made.expect("a certificate");
    std::fs::write(certificate, cert.pem()).expect("the file of the certificate");
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions of TLS")
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .expect("the certificate is valid");
    TlsAcceptor::from(Arc::new(config))
}

async fn serve(transport: Transport, tls: Option<TlsAcceptor>, measured: Arc<Measured>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    println!("{}", listener.local_addr().expect("its address").port());
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        let (tls, measured) = (tls.clone(), Arc::clone(&measured));
        tokio::spawn(async move {
            stream.set_nodelay(true).expect("a TCP socket");
            serve_connection(stream, transport, tls, measured).await;
        });
    }
}

async fn serve_connection(
    stream: TcpStream,
    transport: Transport,
    tls: Option<TlsAcceptor>,
    measured: Arc<Measured>,
) {
    match tls {
        None => serve_stream(stream, transport, measured).await,
        Some(tls) => match tls.accept(stream).await {
            Ok(stream) => serve_stream(stream, transport, measured).await,
            Err(error) => eprintln!("no TLS: {error}"),
        },
    }
}

async fn serve_stream<S>(stream: S, transport: Transport, measured: Arc<Measured>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match transport {
        Transport::Sockets => serve_socket(stream, measured).await,
        Transport::Requests => requests::serve(stream, measured).await,
    }
}

async fn serve_socket<S: AsyncRead + AsyncWrite + Unpin>(stream: S, measured: Arc<Measured>) {
    let mut path = String::new();
    #[allow(clippy::result_large_err, reason = "the type of the library")]
    let read_path = |request: &Request, response: Response| {
        request.uri().path().clone_into(&mut path);
        Ok(response)
    };
    let socket = match accept_hdr_async(stream, read_path).await {
        Ok(socket) => socket,
        Err(error) => return eprintln!("no WebSocket: {error}"),
    };
    let protocol: Box<dyn Protocol> = match path.as_str() {
        "/v1/listen" => Box::new(deepgram::Deepgram::new(measured)),
        "/v2/listen" => Box::new(flux::Flux::new(measured)),
        "/v1/speak" => Box::new(aura::Aura::new(measured)),
        "/v1/speech-to-text/realtime" => Box::new(scribe::Scribe::new(measured)),
        "/realtime" => Box::new(openai_realtime::Realtime::new(measured)),
        "/v3/ws" => Box::new(assemblyai::AssemblyAi::new(measured)),
        "/tts/websocket" => Box::new(cartesia::Cartesia::new(measured)),
        path if path.starts_with("/v1/text-to-speech/") => {
            Box::new(elevenlabs::ElevenLabs::new(measured))
        }
        path => return eprintln!("unknown path {path}"),
    };
    serve_protocol(socket, protocol).await;
}

async fn serve_protocol<S: AsyncRead + AsyncWrite + Unpin>(
    mut socket: WebSocketStream<S>,
    mut protocol: Box<dyn Protocol>,
) {
    let mut replies = VecDeque::new();
    loop {
        let due = replies.front().map(|reply: &Reply| reply.due);
        let idle = Instant::now() + Duration::from_secs(60);
        tokio::select! {
            message = socket.next() => match message {
                Some(Ok(Message::Text(text))) => {
                    if protocol.receive_text(&text, &mut replies).is_break() {
                        // The client may be gone.
                        return drop(socket.close(None).await);
                    }
                }
                Some(Ok(Message::Binary(pcm))) => protocol.receive_audio(&pcm, &mut replies),
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => {}
            },
            () = sleep_until(due.unwrap_or(idle)) => {
                if let Some(reply) = replies.pop_front()
                    && let Err(error) = socket.send(reply.into_message()).await
                {
                    return eprintln!("not sent: {error}");
                }
            }
        }
    }
}
