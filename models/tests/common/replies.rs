//! Replies of an agent, for tests in which a recognizer hears a voice.

use crossbeam_channel::Receiver;
use models::stt::{self, SttStream};

/// What agents say, in the words of the recognizer's transcripts.
pub(crate) const REPLIES: [&str; 15] = [
    "Certainly, I can help you with that.",
    "The museum opens at nine in the morning, except on Mondays.",
    "I have booked a table for four people on Friday evening.",
    "Could you please tell me your order number?",
    "The weather will be sunny tomorrow, with a light wind from the west.",
    "That jacket is available in blue, green, and black.",
    "It takes about half an hour to get to the airport.",
    "I am sorry, I did not understand the question.",
    "Your package was delivered yesterday afternoon.",
    "Please hold the line while I look for your account.",
    "The record shows that you used to live in London.",
    "We close early on Sundays, but the garden stays open.",
    "Once upon a time, there was a little dog who loved to read.",
    "You will receive an email with all the details.",
    "Thank you very much for calling, and have a wonderful day.",
];

/// Text that a recognizer finds in one utterance at 16 kHz.
pub(crate) fn transcribe(
    stream: &mut dyn SttStream,
    events: &Receiver<stt::Event>,
    pcm: &[i16],
) -> String {
    stream.start_speech();
    stream.push_audio(pcm);
    stream.end_speech();
    loop {
        match events.recv_timeout(super::common::HANG_TIMEOUT).expect("an answer") {
            stt::Event::Interim(_) => {}
            stt::Event::Final(text) => return text,
            other => panic!("{other:?}"),
        }
    }
}
