use serde_json::json;

use super::*;

type TimedReceiver<T> = mpsc::UnboundedReceiver<(T, Duration)>;

/// A sink and its events, stamped with the (paused) clock.
fn sink<T: Send + 'static>() -> (Sink<T>, TimedReceiver<T>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let start = Instant::now();
    (Sink::new(move |event| drop(sender.send((event, start.elapsed())))), receiver)
}

fn scripted(script: Value) -> ScriptedProvider {
    ScriptedProvider::new(serde_json::from_value(script).unwrap(), Runtime::current())
}

fn question(text: &str) -> llm::Request {
    let history = serde_json::from_value(json!([{"role": "user", "text": text}])).unwrap();
    llm::Request {
        prompt: String::new(),
        history,
        snippets: Vec::new(),
        tools: Vec::new(),
        model: String::new(),
    }
}

fn millis(duration: Duration) -> u128 {
    duration.as_millis()
}

#[tokio::test(start_paused = true)]
async fn words_are_understood_by_the_true_times_of_speech() {
    let script = json!({
        "utterances": [
            {"onset_s": 1.0, "end_s": 3.0, "transcript": "Tell me a story.", "interim": "Tell"},
            {"transcript": "Stop it now"},
        ],
    });
    let (sink, mut events) = sink();
    let mut stream = scripted(script).open(sink).unwrap();
    stream.start_speech();
    let (stt::Event::Interim(text), at) = events.recv().await.unwrap() else {
        panic!("no interim")
    };
    assert_eq!((text.as_str(), millis(at)), ("Tell", 150));
    // A pause splits the speech but not the utterance.
    stream.end_speech();
    stream.start_speech();
    let (stt::Event::Final(text), at) = events.recv().await.unwrap() else { panic!("no final") };
    assert_eq!((text.as_str(), millis(at)), ("Tell me a story.", 2100));
    // Without a length, the VAD's end of speech decides.
    stream.start_speech();
    assert!(
        matches!(events.recv().await.unwrap().0, stt::Event::Interim(text) if text == "Stop it")
    );
    stream.end_speech();
    assert!(
        matches!(events.recv().await.unwrap().0, stt::Event::Final(text) if text == "Stop it now")
    );
    drop(stream);
    assert!(events.recv().await.is_none(), "a dropped STT session gets no audio");
}

/// Audio as the engine passes it on: `seconds` of it, while the clock advances.
async fn feed_audio(stream: &mut dyn SttStream, seconds: f64) {
    for _ in 0..(seconds / 0.02) as usize {
        stream.push_audio(&[0; 320]);
        tokio::time::advance(Duration::from_millis(20)).await;
    }
}

/// A speech segment as the engine passes it on: audio before the VAD's report, `seconds` of speech,
/// and the silence that ends it.
async fn feed_speech_segment(stream: &mut dyn SttStream, before: f64, seconds: f64) {
    stream.start_speech();
    stream.push_audio(&vec![0; (before * 16_000.0) as usize]);
    feed_audio(stream, seconds + 0.25).await;
    stream.end_speech();
}

#[tokio::test(start_paused = true)]
async fn an_utterance_of_known_sound_ends_when_so_much_was_heard() {
    let script = json!({
        "utterances": [
            {"sound_s": 4.0, "transcript": "Tell me a story."},
            {"sound_s": 0.4, "transcript": "Okay."},
        ],
    });
    let (sink, mut events) = sink();
    let mut stream = scripted(script).open(sink).unwrap();
    let finals = |events: &mut TimedReceiver<stt::Event>| {
        std::iter::from_fn(|| events.try_recv().ok())
            .filter_map(
                |(event, _)| if let stt::Event::Final(text) = event { Some(text) } else { None },
            )
            .collect::<Vec<_>>()
    };
    // A pause within the utterance splits it, and its sender stalls for a second.
    feed_speech_segment(&mut *stream, 0.5, 1.5).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(finals(&mut events), [""; 0]);
    feed_speech_segment(&mut *stream, 0.2, 2.3).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(finals(&mut events), ["Tell me a story."]);
    // Speech directly after it belongs to it; later speech is the next utterance.
    feed_speech_segment(&mut *stream, 0.1, 0.2).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(finals(&mut events), [""; 0]);
    feed_speech_segment(&mut *stream, 0.5, 0.3).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(finals(&mut events), ["Okay."]);
    // An incomplete utterance ends after a timeout.
    tokio::time::sleep(Duration::from_secs(1)).await;
    feed_speech_segment(&mut *stream, 0.5, 1.5).await;
    tokio::time::sleep(Duration::from_millis(1400)).await;
    assert_eq!(finals(&mut events), [""; 0]);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(finals(&mut events), ["Tell me a story."]);
}

#[tokio::test]
async fn a_tap_keeps_the_samples_where_the_operator_gave_a_folder() {
    let folder = std::env::temp_dir().join(format!("visavis-taps-{}", std::process::id()));
    let model = |name: &str| scripted(json!({"tap": name}));
    for name in ["", "../keys", "a.b", "a/b", "é"] {
        let stream = model(name).with_tap_folder(Some(folder.clone())).open(sink().0);
        assert_eq!(stream.err().map(|error| error.kind()), Some(ErrorKind::Failed), "{name}");
    }
    assert!(model("call_1").open(sink().0).is_ok());
    assert!(!folder.exists(), "without a folder nothing is written");
    let samples: [&[i16]; 2] = [&[1, -2, i16::MAX], &[i16::MIN]];
    for part in samples {
        let mut stream =
            model("call_1").with_tap_folder(Some(folder.clone())).open(sink().0).unwrap();
        stream.start_speech();
        stream.push_audio(part);
        drop(stream);
        let file = folder.join("call_1.pcm");
        let min_bytes = if part.len() == 3 { 6 } else { 8 };
        while std::fs::metadata(&file).unwrap().len() < min_bytes {
            tokio::task::yield_now().await;
        }
    }
    let written = std::fs::read(folder.join("call_1.pcm")).unwrap();
    assert_eq!(written, [1, 0, 0xfe, 0xff, 0xff, 0x7f, 0, 0x80]);
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test(start_paused = true)]
async fn replies_come_word_by_word() {
    let llm = scripted(
        json!({"utterances": [{"transcript": "Hello there!", "reply": "Good day to you."}]}),
    );
    let (sink, mut events) = sink();
    let _handle = llm.ask(question("hello there"), sink);
    let mut all = Vec::new();
    while let Some((event, at)) = events.recv().await {
        let end = matches!(event, llm::Event::End { .. });
        all.push((
            if let llm::Event::Text(text) = event { text } else { String::new() },
            millis(at),
        ));
        if end {
            break;
        }
    }
    let expected = [("Good ", 200), ("day ", 220), ("to ", 240), ("you.", 260), ("", 280)];
    assert_eq!(all, expected.map(|(text, at)| (text.to_owned(), at)));
}

#[tokio::test(start_paused = true)]
async fn replies_may_call_tools_and_fail() {
    let llm = scripted(json!({"utterances": [
        {
            "transcript": "weather",
            "reply": "One moment.",
            "calls": [{"tool": "get_weather", "arguments": {"city": "Rome"}}],
        },
        {"transcript": "break", "fail": "scripted"},
        {"transcript": "", "reply": "Any."}]}));
    let (sender, mut events) = sink();
    let _handle = llm.ask(question("Weather?"), sender);
    let mut calls = 0;
    loop {
        match events.recv().await.unwrap().0 {
            llm::Event::ToolCall { name, arguments, .. } => {
                assert_eq!((name.as_str(), arguments), ("get_weather", json!({"city": "Rome"})));
                calls += 1;
            }
            llm::Event::End { .. } => break,
            _ => {}
        }
    }
    assert_eq!(calls, 1);
    let (sender, mut events) = sink();
    let _handle = llm.ask(question("break"), sender);
    assert!(matches!(
        events.recv().await.unwrap().0,
        llm::Event::Failed(error) if error.to_string() == "scripted"
    ));
    let (sender, mut events) = sink();
    let _handle = llm.ask(question("something else"), sender);
    assert!(matches!(events.recv().await.unwrap().0, llm::Event::Text(text) if text == "Any."));
}

#[tokio::test(start_paused = true)]
async fn speech_is_a_tone_as_long_as_its_text() {
    let (sink, mut events) = sink();
    let request =
        tts::Request { text: "Ten chars.".into(), voice: String::new(), ..tts::Request::default() };
    let _handle = scripted(json!({})).speak(request, sink).unwrap();
    let (mut samples, mut times) = (0, Vec::new());
    while let Some((tts::Event::Audio { pcm, sample_rate }, at)) = events.recv().await {
        assert_eq!(sample_rate, 24_000);
        samples += pcm.len();
        times.push(millis(at));
    }
    assert_eq!((samples, times), (14_400, vec![100, 120, 140, 160, 180, 200]));
}
