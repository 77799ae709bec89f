//! Whether an agent can be called at all, with the models that are installed.

use crate::resources::model_choices::{self, Account};
use crate::state::AppState;
use crate::store;
use crate::store::agent::Agent;
use crate::store::json_record::{self, Table};
use crate::store::secrets::{self, AgentSecrets};

/// Why no call of an agent can be held before something is installed, in one sentence. `None` if one
/// can be held, while models are loading, and if there is no such agent.
pub(crate) async fn of_agent(
    state: &AppState,
    workspace: &str,
    id: &str,
) -> store::Result<Option<String>> {
    let row = state.store.document(Table::Agent, workspace, id).await?;
    let Some(row) = row else { return Ok(None) };
    let agent: Agent = json_record::parse_document(&row.document)?;
    let secrets: AgentSecrets = secrets::open(&state.vault, &row.id, &row.secrets)?;
    let credentials = state.store.credentials(&state.vault, workspace).await?;
    let registry = state.config.registry.as_deref();
    let account = Account { workspace, credentials: &credentials, registry };
    let secrets = secrets.avatars.into_iter().next().unwrap_or_default();
    let avatar = agent.settings.first_avatar();
    let choices = model_choices::of_avatar(&avatar.config, secrets, &account);
    Ok(state.engine().call_obstacle(&choices.stt, &choices.tts))
}
