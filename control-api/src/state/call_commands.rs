//! Commands to calls, wherever they run.

use std::sync::Arc;

use conversation::id::ConversationId;
use conversation::input::Command;
use conversation::output::CommandOutcome;
use engine_api::CommandError;

use super::EngineCell;
use super::relay::Relay;
use crate::error::ApiError;

/// Sends commands to the calls of this server and of others. Cheap to clone.
#[derive(Clone)]
pub(crate) struct CallCommands {
    pub(crate) engine: Arc<EngineCell>,
    pub(crate) relay: Arc<Relay>,
}

impl CallCommands {
    /// Lets a command take effect. `None` if no server runs the call.
    ///
    /// # Errors
    /// The store fails, or the other server does not respond.
    pub(crate) async fn send(
        &self,
        conversation: ConversationId,
        command: Command,
    ) -> Result<Option<CommandOutcome>, ApiError> {
        if let Some(holder) = self.relay.other_holder(conversation).await? {
            return self.relay.send_command(&holder, conversation, command).await;
        }
        let Some(engine) = self.engine.get() else { return Ok(None) };
        match engine.send_command(conversation, command).await {
            Ok(outcome) => Ok(Some(outcome)),
            Err(CommandError::Rejected(reason)) => Ok(Some(CommandOutcome::Rejected(reason))),
            Err(CommandError::NotRunning) => Ok(None),
        }
    }
}
