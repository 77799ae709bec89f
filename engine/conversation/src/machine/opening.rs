//! The first words of a call: the greeting, and the message that the call is recorded.
//!
//! The recording message is a notice to the user. So user speech before its first sample postpones
//! it until the floor is free again, after the answer to the user's turn. Once it is audible, it
//! can be interrupted as a greeting can, and is not repeated.

use crate::contract::output::SpeechSource;
use crate::contract::spec::Greeting;
use crate::contract::time::Time;
use crate::machine::conversation::Conversation;
use crate::machine::reply::ReplyKind;

impl Conversation {
    /// Queues the first words.
    pub(crate) fn open_call(&mut self) {
        if let Some(greeting) = self.spec.greeting.clone() {
            self.push_opening(ReplyKind::Greeting, SpeechSource::Greeting, greeting);
        }
        self.recording_message_pending = self.spec.recording_message.is_some();
    }

    /// Starts the recording message if it is pending and the floor is free. Returns whether it did.
    pub(crate) fn say_recording_message(&mut self) -> bool {
        if !self.recording_message_pending || self.is_ending() || !self.is_floor_free() {
            return false;
        }
        let Some(message) = self.spec.recording_message.clone() else { return false };
        self.explain_decision(|| "recording_message is spoken: the floor is free".into());
        self.push_opening(ReplyKind::RecordingMessage, SpeechSource::RecordingMessage, message);
        true
    }

    /// Nothing is recorded any more: the recording message would be false.
    pub(crate) fn withdraw_recording_message(&mut self) {
        self.recording_message_pending = false;
        if let Some(index) =
            self.floor.iter().position(|reply| reply.kind == ReplyKind::RecordingMessage)
        {
            self.explain_decision(|| "cancelled: the call is not recorded any more".into());
            self.cancel_reply(index, true);
        }
    }

    fn push_opening(&mut self, kind: ReplyKind, source: SpeechSource, opening: Greeting) {
        let interruptible = self.spec.allow_interruptions;
        let mut reply = self.new_message_reply(kind, source, opening.text, interruptible);
        reply.not_before = Time::ZERO + opening.delay;
        self.floor.push_back(reply);
    }
}
