//! The STT that serves the rest of a call after a hosted one has failed.

use bytes::Bytes;
use tokio::sync::mpsc;

use super::Command;
use super::speech_buffer::SpeechBuffer;
use crate::stt::SttStream;

/// Gives `stream` the utterances that have no final transcript, then the commands of the call until
/// its end.
pub(super) async fn serve(
    mut stream: Box<dyn SttStream>,
    mut buffer: SpeechBuffer,
    mut commands: mpsc::Receiver<Command>,
) {
    let mut pcm = Vec::new();
    for speech in buffer.take() {
        stream.start_speech();
        for chunk in &speech.audio {
            stream.push_audio(decode(chunk, &mut pcm));
        }
        if speech.ended {
            stream.end_speech();
        }
    }
    while let Some(command) = commands.recv().await {
        match command {
            Command::StartSpeech => stream.start_speech(),
            Command::Audio(chunk) => stream.push_audio(decode(&chunk, &mut pcm)),
            Command::EndSpeech => stream.end_speech(),
        }
    }
}

/// The samples of a chunk, in `pcm`.
fn decode<'a>(chunk: &Bytes, pcm: &'a mut Vec<i16>) -> &'a [i16] {
    pcm.clear();
    pcm.extend(chunk.as_chunks::<2>().0.iter().map(|pair| i16::from_le_bytes(*pair)));
    pcm
}
