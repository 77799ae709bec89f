//! The demo agent of a first start, with a small knowledge base and a page of its own.

use serde_json::json;

use crate::error::ApiError;
use crate::resources::{agents, knowledge};
use crate::state::AppState;
use crate::store;
use crate::store::agent::Agent;
use crate::store::json_record::{self, Table};
use crate::store::knowledge_base::Content;

const DEMO_AGENT_SETTING: &str = "demo_agent";

const ABOUT_DOCUMENT: &str = include_str!("demo/visavis.md");

/// Creates the demo agent with its knowledge base.
pub(crate) async fn create(state: &AppState) -> store::Result<()> {
    // A woman, because the best built-in voice is a woman's.
    let woman = state.stock_avatars.iter().find(|avatar| avatar.gender == "female");
    let Some(avatar) = woman.or(state.stock_avatars.first()) else {
        tracing::warn!("the server has no avatar: the demo agent is not created");
        return Ok(());
    };
    let about = Content::Text(ABOUT_DOCUMENT.into());
    let documents = [("visavis.md", "md", &about)];
    let workspace = &state.default_workspace;
    let kb = knowledge::insert(
        state,
        workspace,
        "Demo",
        "What Visavis is, what it costs, and how to begin",
        &documents,
    )
    .await?;
    let body = json!({
        "agent_name": "Visavis demo",
        "agent_system_prompt": format!(
            "You are {}, the friendly host of a Visavis demo. Answer briefly, in one or two spoken \
             sentences, from what you know.",
            avatar.avatar_name
        ),
        "avatars": [{
            "avatar_key_id": avatar.avatar_key_id,
            "persona_name": avatar.avatar_name,
            "welcome_message": {"wait_time": 1, "messages": [
                "Hello! Ask me what Visavis is, what it costs, or how to begin.",
                "Hi there! I answer questions about Visavis. What would you like to know?",
            ]},
            "idle_timeout": {
                "timeout": 30,
                "filler_phrases": [
                    "Are you still there?",
                    "I am still here if you have a question.",
                ],
            },
            "exit_heads_up_message": {
                "callout_before": 20,
                "messages": ["We have about twenty seconds left."],
            },
            "exit_message": {"messages": ["Our time is up. Thank you for the visit, goodbye!"]},
            "interruptability": "high",
        }],
        "config": {
            "maxCallDuration": 600,
            "suggested_questions": [
                "What is this program?",
                "What does it cost to run?",
                "How do I begin?",
            ],
        },
        "knowledge_base": [kb],
        // A server with a public URL is not a laptop: its demo agent, which anyone could call, may
        // be embedded only after the operator permits it.
        "embed": {"enabled": state.config.public_url.is_none(), "origins": []},
    });
    let (id, _) = agents::insert_with_limits(state, workspace, body, false).await.map_err(
        |error| match error {
            ApiError::Internal(_, cause) => store::Error::CorruptRow("agent", cause),
            // A rejection of the built-in demo agent is an error in this file, which its test
            // detects.
            refused => store::Error::CorruptRow("agent", format!("{refused:?}")),
        },
    )?;
    state.store.set_setting(DEMO_AGENT_SETTING, &id).await
}

/// The demo agent's id, while it exists and may be embedded.
pub(crate) async fn find(state: &AppState) -> store::Result<Option<String>> {
    let Some(id) = state.store.setting(DEMO_AGENT_SETTING).await? else { return Ok(None) };
    let row = state.store.document(Table::Agent, &state.default_workspace, &id).await?;
    Ok(row
        .and_then(|row| json_record::parse_document::<Agent>(&row.document).ok())
        .filter(|agent| agent.settings.embed.enabled)
        .map(|_| id))
}
