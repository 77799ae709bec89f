use std::sync::{Mutex, PoisonError};

use super::*;
use crate::ErrorKind;

/// Events in short.
type Recorded = Arc<Mutex<Vec<String>>>;

fn recorder() -> (Recorded, Sink<stt::Event>) {
    let events = Recorded::default();
    let push = Arc::clone(&events);
    let sink = Sink::new(move |event| {
        push.lock().unwrap_or_else(PoisonError::into_inner).push(match event {
            stt::Event::Usage(usage) => format!("{} {:?}", usage.provider, usage.audio),
            stt::Event::Provider(provider) => provider.to_owned(),
            stt::Event::Interim(text) | stt::Event::Final(text) => text,
            other => format!("{other:?}"),
        });
    });
    (events, sink)
}

fn take(events: &Recorded) -> Vec<String> {
    std::mem::take(&mut *events.lock().unwrap())
}

/// An STT whose stream sends a final transcript at the end of speech, and its usage when it is
/// dropped if `is_hosted`. With a fallback, that one serves its streams.
struct FakeStt {
    is_hosted: bool,
    fallback: Option<Arc<dyn Stt>>,
}

struct FakeStream {
    is_hosted: bool,
    sink: Sink<stt::Event>,
}

impl Stt for FakeStt {
    fn open(&self, sink: Sink<stt::Event>) -> Result<Box<dyn SttStream>, Error> {
        match &self.fallback {
            Some(fallback) => fallback.open(sink),
            None => Ok(Box::new(FakeStream { is_hosted: self.is_hosted, sink })),
        }
    }
}

impl SttStream for FakeStream {
    fn start_speech(&mut self) {
        self.sink.send(stt::Event::Warning("Noise".into()));
    }
    fn push_audio(&mut self, _: &[i16]) {}
    fn end_speech(&mut self) {
        self.sink.send(stt::Event::Final("Hello".into()));
    }
    fn reports_usage(&self) -> bool {
        self.is_hosted
    }
}

impl Drop for FakeStream {
    fn drop(&mut self) {
        if self.is_hosted {
            let usage = Usage { audio: Duration::from_secs(7), ..Usage::default() };
            self.sink.send(stt::Event::Usage(usage));
        }
    }
}

fn named(provider: &'static str, stt: FakeStt) -> NamedStt {
    NamedStt { provider, stt: Arc::new(stt) }
}

#[test]
fn the_provider_is_told_before_its_first_transcript_and_in_its_usage() {
    for (is_hosted, used) in [(true, "deepgram 7s"), (false, "deepgram 1.5s")] {
        let (events, sink) = recorder();
        let mut stream =
            named("deepgram", FakeStt { is_hosted, fallback: None }).open(sink).unwrap();
        stream.start_call();
        assert!(stream.reports_usage());
        for _ in 0..2 {
            stream.start_speech();
            stream.push_audio(&[0; 12_000]);
            stream.end_speech();
        }
        assert_eq!(
            take(&events),
            ["Warning(\"Noise\")", "deepgram", "Hello", "Warning(\"Noise\")", "Hello"]
        );
        drop(stream);
        assert_eq!(take(&events), [used]);
    }
}

#[test]
fn a_fallback_keeps_its_own_name() {
    let builtin = named("builtin", FakeStt { is_hosted: false, fallback: None });
    let hosted = FakeStt { is_hosted: true, fallback: Some(Arc::new(builtin)) };
    let (events, sink) = recorder();
    let mut stream = named("deepgram", hosted).open(sink).unwrap();
    stream.start_speech();
    stream.push_audio(&[0; 16_000]);
    stream.end_speech();
    stream.end_speech();
    assert!(stream.reports_usage());
    drop(stream);
    assert_eq!(take(&events), ["Warning(\"Noise\")", "builtin", "Hello", "Hello", "builtin 1s"]);
}

struct FakeVoice;

impl Tts for FakeVoice {
    fn speak(&self, _: tts::Request, sink: Sink<tts::Event>) -> Result<Handle, Error> {
        std::thread::spawn(move || {
            sink.send(tts::Event::Usage { provider: "", characters: 5 });
            sink.send(tts::Event::End);
        })
        .join()
        .unwrap();
        Ok(Handle::noop())
    }

    fn open_call(&self, _: &tts::Request) -> Option<Arc<dyn Tts>> {
        Some(Arc::new(Self))
    }

    fn report_connected(&self, report: &mut dyn FnMut(&'static str, Duration)) {
        report("", Duration::from_secs(3));
    }

    fn capacity_error(&self) -> Option<Error> {
        Some(Error::new(ErrorKind::Busy, "hoarse"))
    }
}

#[test]
fn a_voice_tells_its_provider_first_and_with_its_connections() {
    let entry = ChainEntry {
        name: "The voice".into(),
        provider: "builtin",
        model: Arc::new(FakeVoice) as Arc<dyn Tts>,
        breaker: None,
    };
    let voice = NamedTts(entry).open_call(&tts::Request::default()).unwrap();
    let events = Arc::new(Mutex::new(Vec::new()));
    let push = Arc::clone(&events);
    let sink = Sink::new(move |event| push.lock().unwrap().push(format!("{event:?}")));
    let _handle = voice.speak(tts::Request::default(), sink).unwrap();
    let expected = ["Provider(\"builtin\")", "Usage { provider: \"\", characters: 5 }", "End"];
    assert_eq!(*events.lock().unwrap(), expected);
    let mut connected = Vec::new();
    voice.report_connected(&mut |provider, time| connected.push((provider, time.as_secs())));
    assert_eq!(connected, [("builtin", 3)]);
    assert_eq!(voice.capacity_error().unwrap().to_string(), "hoarse");
}
