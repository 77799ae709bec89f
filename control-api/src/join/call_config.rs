//! From a conversation's agent, as it was configured when the conversation was created, to the
//! configuration that the engine needs for the call.

use std::sync::Arc;
use std::time::Duration;

use conversation::settings;
use conversation::spec::ToolSpec;
use engine_api::{
    AvatarChoice, CallConfig, Guardrail, LlmChoice, Pronunciation, SttChoice, Tool, ToolBackend, TtsChoice,
};
use serde_json::{Value, json};

use crate::join::prompt;
use crate::resources::secret_headers::Headers;
use crate::resources::{avatars, document_resource, knowledge_cache, mcp};
use crate::state::AppState;
use crate::store::conversation::Row;
use crate::store::secrets::{self, Secrets};
use crate::store::{self, document};

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn optional(value: &Value) -> Option<String> {
    value.as_str().filter(|s| !s.is_empty()).map(str::to_owned)
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
}

/// Maximum duration of a call of this agent, in seconds: the first positive one of three settings.
fn max_call_duration(agent: &Value, avatar: &Value) -> Option<f64> {
    let stated = [
        &agent["config"]["maxCallDuration"],
        &agent["config"]["timeout"],
        &avatar["exit_message"]["max_call_duration"],
    ];
    stated.iter().find_map(|v| v.as_f64().filter(|d| *d > 0.0))
}

/// Builds the call configuration of a conversation.
pub(crate) async fn of(shared: &AppState, row: &Row) -> store::Result<CallConfig> {
    let damaged = |what: &str| store::Error::Damaged("conversation", what.to_owned());
    let agent = document::parsed(&row.agent_document)?;
    let secrets: Secrets = secrets::open(&shared.vault, &row.agent, &row.agent_secrets)?;
    let avatar = &agent["avatars"][0];
    let hidden = secrets.avatars.into_iter().next().unwrap_or_default();
    let guardrails = guardrails(shared, row, &agent).await?;
    let mut tools = tools(shared, row, &agent).await?;
    for guardrail in guardrails.iter().filter(|guardrail| guardrail.response_message.is_none()) {
        // An earlier tool with the same name takes precedence.
        if tools.iter().all(|(tool, _)| tool.name != guardrail.key) {
            tools.push(moderation_tool(guardrail));
        }
    }
    let (llm, stt, tts) = (&avatar["config"]["llm"], &avatar["config"]["stt"], &avatar["config"]["tts"]);
    let spec = settings_of(row, &agent, tools.iter().map(|(_, spec)| spec.clone()).collect())
        .to_spec()
        .map_err(|e| damaged(&e.to_string()))?;
    Ok(CallConfig {
        id: row.id.parse().map_err(|_| damaged("its id is not a UUID"))?,
        spec,
        agent_name: row.agent_name.clone(),
        system_prompt: prompt::of(shared, row, &agent).await?,
        stt: SttChoice {
            provider: text(&stt["provider"]),
            model: text(&stt["model"]),
            fallback_model: optional(&stt["fallback_model"]),
            language: text(&stt["language"]),
        },
        llm: LlmChoice {
            provider: text(&llm["provider"]),
            model: text(&llm["model"]),
            fallback_model: optional(&llm["fallback_model"]),
            url: optional(&llm["url"]),
            token: hidden.llm,
        },
        tts: TtsChoice {
            provider: text(&tts["provider"]),
            model_id: text(&tts["model_id"]),
            voice_id: text(&tts["voice_id"]),
            sample_rate: tts["sample_rate"].as_f64().map(|rate| rate as u32),
            custom_pronunciation: tts["custom_pronunciation"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|p| Pronunciation { word: text(&p["word"]), pronunciation: text(&p["pronunciation"]) })
                .collect(),
        },
        avatar: AvatarChoice {
            avatar_key_id: row.avatar_id.clone(),
            frame_rate: avatar["frame_rate"].as_f64().unwrap_or(25.0) as u32,
        },
        pose_set: avatars::poses(shared, &row.workspace, &row.avatar_id).await?,
        tools: tools.into_iter().map(|(tool, _)| tool).collect(),
        guardrails,
        tool_servers: mcp::session::servers(shared, row, &agent).await?,
        knowledge: knowledge_cache::of(shared, &row.workspace, &document::ids(&agent, "knowledge_base"))
            .await?,
        expose_tools: agent["config"]["expose_tools"] == true,
        trust_client_context: prompt::trusts_clients(&agent),
        record_trace: agent["config"]["record_trace"] == true,
    })
}

/// The turn-taking settings of the agent, for the conversation with number
/// `row.conversation_number`.
fn settings_of<'a>(row: &Row, agent: &'a Value, tools: Vec<ToolSpec>) -> settings::AgentTurnConfig<'a> {
    let avatar = &agent["avatars"][0];
    let stt = &avatar["config"]["stt"];
    let idle = &avatar["idle_timeout"];
    let warning = &avatar["exit_heads_up_message"];
    let greetings = avatar["welcome_message"]["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    // Round robin over the agent's conversations.
    let greeting =
        usize::try_from(row.number).ok().and_then(|n| greetings.get(n.checked_rem(greetings.len())?));
    settings::AgentTurnConfig {
        turn_handling: avatar["turn_handling"].as_str(),
        interruptability: avatar["interruptability"].as_str(),
        turn: Some(&agent["config"]["turn"]),
        min_endpointing_delay: stt["min_endpointing_delay"].as_f64(),
        max_endpointing_delay: stt["max_endpointing_delay"].as_f64(),
        turn_model: stt["turn_model"] == true,
        language: stt["language"].as_str(),
        greeting: greeting.and_then(Value::as_str),
        greeting_delay: avatar["welcome_message"]["wait_time"].as_f64(),
        // Null and 0 are equivalent here: no call-outs.
        idle_timeout: Some(idle["timeout"].as_f64().unwrap_or(0.0)),
        idle_messages: texts(&idle["filler_phrases"]),
        idle_end_after: Some(idle["end_after"].as_u64().and_then(|n| u32::try_from(n).ok())),
        max_call_duration: max_call_duration(agent, avatar),
        call_warning_before: warning["callout_before"].as_f64(),
        warning_message: texts(&warning["messages"]).into_iter().next(),
        exit_message: texts(&avatar["exit_message"]["messages"]).into_iter().next(),
        error_message: Some(optional(&agent["config"]["error_message"])),
        user_id: row.user_id.clone().filter(|id| !id.is_empty()).unwrap_or_else(|| row.id.clone()),
        tools,
        fallback_llm: optional(&avatar["config"]["llm"]["fallback_model"]).is_some(),
        fallback_tts: false,
    }
}

/// The agent's tools that still exist, in its order.
async fn tools(shared: &AppState, row: &Row, agent: &Value) -> store::Result<Vec<(Tool, ToolSpec)>> {
    let ids = document::ids(agent, "tool");
    let rows = shared.store.documents(document::Table::Tool, &row.workspace, &ids).await?;
    let mut tools = Vec::new();
    for id in &ids {
        let Some(stored) = rows.iter().find(|row| row.id == *id) else { continue };
        let document: Value = serde_json::from_str(&stored.document)
            .map_err(|e| store::Error::Damaged("tool", e.to_string()))?;
        let headers: Headers = secrets::open(&shared.vault, &stored.id, &stored.secrets)?;
        tools.push(tool_of(&document, headers));
    }
    Ok(tools)
}

/// The agent's guardrails that still exist, in its order.
async fn guardrails(shared: &AppState, row: &Row, agent: &Value) -> store::Result<Vec<Guardrail>> {
    let ids = document::ids(agent, "guardrail");
    let rows = shared.store.documents(document::Table::Guardrail, &row.workspace, &ids).await?;
    let mut guardrails = Vec::new();
    for id in &ids {
        let Some(stored) = rows.iter().find(|row| row.id == *id) else { continue };
        let rule = document_resource::shown(stored)?;
        guardrails.push(Guardrail {
            key: text(&rule["key"]),
            category: text(&rule["category"]),
            prompt: text(&rule["prompt"]),
            response_message: optional(&rule["response_message"]),
            callback_url: optional(&rule["callback_url"]),
        });
    }
    Ok(guardrails)
}

/// A guardrail without its own response, as the model sees it: a tool that returns the result of a
/// moderation endpoint.
fn moderation_tool(guardrail: &Guardrail) -> (Tool, ToolSpec) {
    let tool = Tool {
        name: guardrail.key.clone(),
        description: format!("Call this before you answer if this rule applies: {}", guardrail.prompt),
        parameters: json!({"type": "object", "properties": {}, "required": []}),
        backend: ToolBackend::Moderation,
    };
    (tool, ToolSpec { name: guardrail.key.clone(), ..ToolSpec::default() })
}

fn tool_of(document: &Value, headers: Headers) -> (Tool, ToolSpec) {
    let (schema, request, messages) =
        (&document["schema"], &document["request_config"], &document["event_messages"]);
    let name = text(&schema["name"]);
    let message = |event: &str| optional(&messages[event]["message"]);
    let spec = ToolSpec {
        name: name.clone(),
        on_start: message("on_start"),
        on_delay: message("on_delay"),
        delay: Duration::from_secs_f64(
            messages["on_delay"]["delay"].as_f64().unwrap_or(5.0).clamp(0.0, 600.0),
        ),
        on_success: message("on_success"),
        on_error: message("on_error"),
    };
    let run = match document["type"].as_str() {
        Some("tool.client") => ToolBackend::Client,
        _ => ToolBackend::Http {
            method: text(&request["method"]),
            url: text(&request["url"]),
            headers: headers.into_iter().collect(),
        },
    };
    (
        Tool {
            name,
            description: text(&schema["description"]),
            parameters: schema["parameters"].clone(),
            backend: run,
        },
        spec,
    )
}

/// The call configuration, shared with the engine.
pub(crate) async fn shared(shared: &AppState, row: &Row) -> store::Result<Arc<CallConfig>> {
    of(shared, row).await.map(Arc::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_positive_limit_counts() {
        let agent =
            |max: Value, timeout: Value| json!({"config": {"maxCallDuration": max, "timeout": timeout}});
        let avatar = json!({"exit_message": {"max_call_duration": 60}});
        assert_eq!(max_call_duration(&agent(120.into(), 90.into()), &avatar), Some(120.0));
        assert_eq!(max_call_duration(&agent(0.into(), 90.into()), &avatar), Some(90.0));
        assert_eq!(max_call_duration(&agent(Value::Null, Value::Null), &avatar), Some(60.0));
        assert_eq!(max_call_duration(&agent(Value::Null, 0.into()), &json!({})), None);
    }
}
