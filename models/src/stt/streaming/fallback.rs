//! The STT that serves the rest of a call after a hosted one has failed.

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::Command;
use super::speech_buffer::SpeechBuffer;
use crate::Sink;
use crate::stt::{Event, SttStream};

/// Sends the sentence that tells of the change when the call has started: earlier events are lost.
pub(super) async fn warn(text: String, call_started: oneshot::Receiver<()>, sink: Sink<Event>) {
    if call_started.await.is_ok() {
        sink.send(Event::Warning(text));
    }
}

/// Gives `stream` the utterances that have no final transcript, then the commands of the call until
/// its end. `warning` runs meanwhile.
pub(super) async fn serve(
    mut stream: Box<dyn SttStream>,
    buffer: SpeechBuffer,
    mut commands: mpsc::Receiver<Command>,
    warning: impl Future<Output = ()>,
) {
    let mut pcm = Vec::new();
    let mut forward = move |command: Command| match command {
        Command::StartSpeech => stream.start_speech(),
        Command::Audio(chunk) => stream.push_audio(decode(&chunk, &mut pcm)),
        Command::EndSpeech => stream.end_speech(),
    };
    let forward = async {
        buffer.commands().for_each(&mut forward);
        drop(buffer);
        while let Some(command) = commands.recv().await {
            forward(command);
        }
    };
    // In this order: the warning comes before the first transcript if the call has started.
    tokio::join!(biased; warning, forward);
}

/// The samples of a chunk, in `pcm`.
fn decode<'a>(chunk: &Bytes, pcm: &'a mut Vec<i16>) -> &'a [i16] {
    pcm.clear();
    pcm.extend(chunk.as_chunks::<2>().0.iter().map(|pair| i16::from_le_bytes(*pair)));
    pcm
}
