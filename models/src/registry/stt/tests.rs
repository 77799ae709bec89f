use std::net::Ipv4Addr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::runtime::Handle as Runtime;
use tokio::sync::mpsc;

use super::*;
use crate::registry::{Account, Config, Vendor};
use crate::stt::{Event, SttStream};
use crate::{Error, Sink};

/// An STT that is never asked for words.
struct SilentStt;

struct SilentStream;

impl Stt for SilentStt {
    fn open(&self, _: Sink<Event>) -> Result<Box<dyn SttStream>, Error> {
        Ok(Box::new(SilentStream))
    }
}

impl SttStream for SilentStream {
    fn start_speech(&mut self) {}
    fn push_audio(&mut self, _: &[i16]) {}
    fn end_speech(&mut self) {}
}

/// A server that refuses each connection.
struct Server(TcpListener);

impl Server {
    async fn start() -> Self {
        Self(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap())
    }

    fn url(&self) -> String {
        format!("http://{}", self.0.local_addr().unwrap())
    }

    /// The first line and the key of the next request.
    async fn request(&self) -> (String, Option<String>) {
        let (mut stream, _) = self.0.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(b"HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        let head = String::from_utf8(head).unwrap();
        let key = head.lines().find_map(|line| line.strip_prefix("authorization: "));
        (head.lines().next().unwrap().to_owned(), key.map(str::to_owned))
    }
}

fn registry(deepgram: Option<Account>, allow_private: bool) -> Registry {
    let client = egress::Client::new(egress::Policy { allow_private }).unwrap();
    let mut config = Config::default();
    if let Some(account) = deepgram {
        config.accounts.insert(Vendor::find("deepgram").unwrap(), account);
    }
    let registry = Registry::new(config, client, Runtime::current());
    registry.set_moonshine(Arc::new(SilentStt));
    registry
}

fn choice(url: Option<&str>, token: Option<&str>) -> SttChoice {
    SttChoice {
        provider: "Deep_Gram".into(),
        url: url.map(str::to_owned),
        token: token.map(str::to_owned),
        ..SttChoice::default()
    }
}

/// Opens a stream. The receiver gets its events.
fn open(
    registry: &Registry,
    choice: &SttChoice,
) -> (Box<dyn SttStream>, mpsc::UnboundedReceiver<Event>) {
    let (stt, warning) = registry.stt(choice);
    assert_eq!(warning, None);
    let (sender, events) = mpsc::unbounded_channel();
    let stt = stt.unwrap_or_else(|error| panic!("{error}"));
    let stream = stt.open(Sink::new(move |event| drop(sender.send(event))));
    (stream.unwrap_or_else(|error| panic!("{error}")), events)
}

#[tokio::test]
async fn an_operators_key_goes_to_the_operators_server_only() {
    let (ours, theirs) = (Server::start().await, Server::start().await);
    let operator = Account {
        url: Some(ours.url()),
        token: Some("operators-key".into()),
        model: Some("nova-2".into()),
        ..Account::default()
    };
    // The operator's address is trusted, the agent's is not.
    let strict = registry(Some(operator.clone()), false);
    let _stream = open(&strict, &choice(None, None));
    let (line, key) = ours.request().await;
    assert!(line.starts_with("GET /v1/listen?model=nova-2&language=en&"), "{line}");
    assert_eq!(key.as_deref(), Some("Token operators-key"));
    let (mut stream, mut events) = open(&strict, &choice(Some(&theirs.url()), None));
    stream.start_call();
    let Some(Event::Warning(text)) = events.recv().await else { panic!("no warning") };
    assert_eq!(
        text,
        "The address of Deepgram is private, which this server does not allow; the built-in STT \
         is used instead."
    );

    let open_policy = registry(Some(operator), true);
    let _stream = open(&open_policy, &choice(Some(&theirs.url()), None));
    let (line, key) = theirs.request().await;
    assert!(line.starts_with("GET /v1/listen?model=nova-3&"), "{line}");
    assert_eq!(key, None);
    let keyterms = vec!["Visavis".to_owned()];
    let own = SttChoice { keyterms, ..choice(Some(&theirs.url()), Some(" agents-key ")) };
    let _stream = open(&open_policy, &own);
    let (line, key) = theirs.request().await;
    assert!(line.contains("&keyterm=Visavis "), "{line}");
    assert_eq!(key.as_deref(), Some("Token agents-key"));
}

#[tokio::test]
async fn what_cannot_be_used_is_replaced_by_the_built_in_stt() {
    let registry = registry(None, false);
    for (choice, expected) in [
        (
            choice(None, Some(" ")),
            "The speech-to-text provider \"deepgram\" needs an API key; the built-in STT is used \
             instead.",
        ),
        (
            choice(Some("nonsense"), Some("key")),
            "The address of Deepgram is not a valid URL; the built-in STT is used instead.",
        ),
    ] {
        let (stt, warning) = registry.stt(&choice);
        assert_eq!(warning.as_deref(), Some(expected));
        assert!(stt.is_ok());
    }
    // A language of the vendor is no fault.
    let german = SttChoice { language: "de".into(), ..choice(None, Some("key")) };
    assert_eq!(registry.stt(&german).1, None);
}

#[tokio::test]
async fn a_stream_connects_on_opening_unless_the_built_in_stt_serves_it() {
    let (server, registry) = (Server::start().await, registry(None, true));
    let connects = |choice: &SttChoice| {
        let stt = registry.stt(choice).0.unwrap_or_else(|error| panic!("{error}"));
        stt.connects_on_open()
    };
    assert!(!connects(&SttChoice::default()));
    let hosted = choice(Some(&server.url()), Some("wrong-key"));
    assert!(connects(&hosted));
    let (mut stream, mut events) = open(&registry, &hosted);
    server.request().await;
    stream.start_call();
    assert!(matches!(events.recv().await, Some(Event::Warning(_))));
    assert!(!connects(&hosted), "the account is skipped");
}

#[tokio::test]
async fn a_test_of_a_provider_asks_it_also_while_it_is_skipped() {
    let server = Server::start().await;
    let account = Account {
        url: Some(server.url()),
        token: Some("operators-key".into()),
        ..Account::default()
    };
    let registry = registry(Some(account), false);
    for _ in 0..2 {
        let stt = registry.single_stt(&choice(None, None)).unwrap();
        let (sender, mut events) = mpsc::unbounded_channel();
        let stream = stt.open(Sink::new(move |event| drop(sender.send(event)))).unwrap();
        let (line, _) = server.request().await;
        assert!(line.starts_with("GET /v1/listen?"), "{line}");
        let Some(Event::Failed(error)) = events.recv().await else { panic!("no failure") };
        assert_eq!(error.to_string(), "The API key for Deepgram is not valid");
        assert_eq!(registry.provider_states(), [("stt", "deepgram", false)]);
        drop(stream);
    }
    // Calls skip it.
    let (mut stream, mut events) = open(&registry, &choice(None, None));
    stream.start_call();
    let Some(Event::Warning(text)) = events.recv().await else { panic!("no warning") };
    assert_eq!(text, "The API key for Deepgram is not valid; the built-in STT is used instead.");
}

#[test]
fn time_limits_that_are_not_configured_have_their_defaults() {
    let seconds = std::time::Duration::from_secs;
    assert_eq!(stt_timeouts(&ProviderTimeouts::default()), Timeouts::default());
    let configured = ProviderTimeouts {
        connect: Some(seconds(1)),
        first: Some(seconds(2)),
        gap: Some(seconds(3)),
        final_transcript: Some(seconds(4)),
    };
    let (connect, first, final_transcript) = (seconds(1), seconds(2), Some(seconds(4)));
    assert_eq!(stt_timeouts(&configured), Timeouts { connect, first, final_transcript });
}
