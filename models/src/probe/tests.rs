use std::sync::Mutex;

use super::*;
use crate::stt::SttStream;
use crate::{Handle, llm};

const LIMIT: Duration = Duration::from_secs(15);

/// A TTS with these events.
struct Tts1(Mutex<Vec<tts::Event>>);

impl Tts for Tts1 {
    fn speak(&self, _: tts::Request, sink: Sink<tts::Event>) -> Result<Handle, Error> {
        self.0.lock().unwrap().drain(..).for_each(|event| sink.send(event));
        // Its own clone stays open, as that of a request that sends no more.
        Ok(Handle::new(move || drop(sink)))
    }
}

async fn spoken(events: Vec<tts::Event>) -> Result<Speech, String> {
    let tts = Arc::new(Tts1(Mutex::new(events)));
    speak(tts, tts::Request::default(), LIMIT).await.map_err(|error| error.to_string())
}

fn audio(samples: usize) -> tts::Event {
    tts::Event::Audio { pcm: vec![1; samples], sample_rate: 24_000 }
}

#[tokio::test(start_paused = true)]
async fn a_spoken_text_is_all_of_its_sound() {
    let speech = spoken(vec![audio(10), audio(5), tts::Event::End]).await.unwrap();
    assert_eq!((speech.pcm.len(), speech.sample_rate), (15, 24_000));
}

#[tokio::test(start_paused = true)]
async fn a_voice_that_fails_is_replaced_or_does_not_stop_is_a_failure() {
    let key = || Error::new(ErrorKind::InvalidKey, "The API key is not valid.");
    for (events, expected) in [
        (vec![audio(5), tts::Event::Failed(key())], "The API key is not valid."),
        (vec![tts::Event::Warning("Another voice speaks.".into())], "Another voice speaks."),
        (vec![tts::Event::End], "the voice sent no sound"),
        (vec![audio(61 * 24_000)], "the voice does not stop speaking"),
        (vec![audio(5)], "no result within 15 s"),
        (vec![], "no result within 15 s"),
    ] {
        assert_eq!(spoken(events).await.map(|_| ()), Err(expected.to_owned()));
    }
}

/// An STT whose transcript is the number of its samples.
struct CountingStt {
    fails: bool,
    word: &'static str,
}

struct CountingStream {
    sink: Sink<stt::Event>,
    samples: usize,
    word: &'static str,
}

impl Stt for CountingStt {
    fn open(&self, sink: Sink<stt::Event>) -> Result<Box<dyn SttStream>, Error> {
        if self.fails {
            sink.send(stt::Event::Failed(Error::new(ErrorKind::NoCredit, "No credit left.")));
        }
        Ok(Box::new(CountingStream { sink, samples: 0, word: self.word }))
    }
}

impl SttStream for CountingStream {
    fn start_speech(&mut self) {
        self.sink.send(stt::Event::Interim("x".into()));
    }

    fn push_audio(&mut self, pcm: &[i16]) {
        self.samples += pcm.len();
    }

    fn end_speech(&mut self) {
        let text = if self.word.is_empty() { String::new() } else { self.samples.to_string() };
        self.sink.send(stt::Event::Final(text));
    }
}

fn second(sample_rate: u32) -> Speech {
    let pcm = vec![0; sample_rate as usize];
    Speech { pcm, sample_rate, latency: Duration::ZERO }
}

#[tokio::test(start_paused = true)]
async fn a_sentence_is_sent_at_the_pace_and_the_rate_of_speech() {
    for rate in [16_000, 22_050, 24_000, 48_000] {
        let started = Instant::now();
        let stt = CountingStt { fails: false, word: "x" };
        let result = transcribe(&stt, &second(rate), LIMIT).await.unwrap();
        assert_eq!(result.text, "20000", "{rate} Hz: a second, and the silence");
        let took = started.elapsed().as_secs_f32();
        assert!((1.2..1.4).contains(&took), "{took}");
        assert_eq!(result.latency, Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn an_stt_that_fails_or_hears_nothing_is_a_failure() {
    let failing = CountingStt { fails: true, word: "x" };
    let error = transcribe(&failing, &second(16_000), LIMIT).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (ErrorKind::NoCredit, "No credit left.")
    );
    let silent = CountingStt { fails: false, word: "" };
    let error = transcribe(&silent, &second(16_000), LIMIT).await.unwrap_err();
    assert!(error.to_string().contains("no word"), "{error}");
    let short = Duration::from_millis(500);
    let error = transcribe(&silent, &second(16_000), short).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let odd = transcribe(&silent, &second(1), LIMIT).await.unwrap_err();
    assert!(odd.to_string().contains("invalid sample rate"), "{odd}");
}

#[test]
fn a_tone_survives_the_change_of_its_rate_and_one_above_the_band_does_not() {
    let level = |hz: f32| {
        let tone = |i: usize| (2.0 * PI * hz * i as f32 / 48_000.0).sin() * 10_000.0;
        let pcm: Vec<i16> = (0..48_000).map(|i| tone(i) as i16).collect();
        let third = third_of(&pcm);
        assert_eq!(third.len(), 16_000);
        let middle = &third[1_000..15_000];
        (middle.iter().map(|s| f32::from(*s).powi(2)).sum::<f32>() / middle.len() as f32).sqrt()
    };
    assert!((6_900.0..7_200.0).contains(&level(1_000.0)), "{}", level(1_000.0));
    assert!(level(12_000.0) < 100.0, "{}", level(12_000.0));
}

/// A language model with these events.
struct Llm1(Mutex<Vec<llm::Event>>);

impl Llm for Llm1 {
    fn ask(&self, _: llm::Request, sink: Sink<llm::Event>) -> Handle {
        self.0.lock().unwrap().drain(..).for_each(|event| sink.send(event));
        Handle::new(move || drop(sink))
    }
}

async fn answered(events: Vec<llm::Event>) -> Result<String, String> {
    let answer = ask(&Llm1(Mutex::new(events)), LIMIT).await;
    answer.map(|answer| answer.text).map_err(|error| error.to_string())
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_its_text_and_at_most_its_beginning() {
    let end = || llm::Event::End { prompt_tokens: 0, cached_tokens: 0, completion_tokens: 0 };
    let text = |text: &str| llm::Event::Text(text.into());
    assert_eq!(answered(vec![text("I "), text("can."), end()]).await, Ok("I can.".into()));
    let endless = answered(vec![text(&"ä".repeat(200)), text("more")]).await.unwrap();
    assert_eq!(endless, "ä".repeat(150));
    assert_eq!(answered(vec![end()]).await, Err("the answer has no text".into()));
    let failure = Error::new(ErrorKind::Busy, "Too many requests.");
    assert_eq!(
        answered(vec![text("I "), llm::Event::Failed(failure)]).await,
        Err("Too many requests.".into())
    );
    assert_eq!(answered(vec![text("I ")]).await, Err("no result within 15 s".into()));
}
