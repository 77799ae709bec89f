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
use crate::resources::secret_headers::SecretHeaders;
use crate::resources::{avatars, document_resource, knowledge_cache, mcp};
use crate::state::AppState;
use crate::store::conversation::Row;
use crate::store::secrets::{self, AgentSecrets};
use crate::store::{self, json_record};

fn string_or_empty(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn non_empty_string(value: &Value) -> Option<String> {
    value.as_str().filter(|s| !s.is_empty()).map(str::to_owned)
}

fn string_list(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
}

/// Maximum duration of a call of this agent, in seconds: the first positive one of three settings.
fn max_call_duration(agent: &Value, avatar: &Value) -> Option<f64> {
    let limits = [
        &agent["config"]["maxCallDuration"],
        &agent["config"]["timeout"],
        &avatar["exit_message"]["max_call_duration"],
    ];
    limits.iter().find_map(|v| v.as_f64().filter(|d| *d > 0.0))
}

/// Builds the call configuration of a conversation.
pub(crate) async fn build(state: &AppState, row: &Row) -> store::Result<CallConfig> {
    let corrupt = |what: &str| store::Error::CorruptRow("conversation", what.to_owned());
    let agent = json_record::parse_document(&row.agent_document)?;
    let secrets: AgentSecrets = secrets::open(&state.vault, &row.agent, &row.agent_secrets)?;
    let avatar = &agent["avatars"][0];
    let avatar_secrets = secrets.avatars.into_iter().next().unwrap_or_default();
    let guardrails = load_guardrails(state, row, &agent).await?;
    let mut tools = load_tools(state, row, &agent).await?;
    for guardrail in guardrails.iter().filter(|guardrail| guardrail.response_message.is_none()) {
        // An earlier tool with the same name takes precedence.
        if tools.iter().all(|(tool, _)| tool.name != guardrail.key) {
            tools.push(moderation_tool(guardrail));
        }
    }
    let (llm, stt, tts) = (&avatar["config"]["llm"], &avatar["config"]["stt"], &avatar["config"]["tts"]);
    let spec = turn_settings(row, &agent, tools.iter().map(|(_, spec)| spec.clone()).collect())
        .to_spec()
        .map_err(|e| corrupt(&e.to_string()))?;
    Ok(CallConfig {
        id: row.id.parse().map_err(|_| corrupt("its id is not a UUID"))?,
        spec,
        agent_name: row.agent_name.clone(),
        system_prompt: prompt::system_prompt(state, row, &agent).await?,
        stt: SttChoice {
            provider: string_or_empty(&stt["provider"]),
            model: string_or_empty(&stt["model"]),
            fallback_model: non_empty_string(&stt["fallback_model"]),
            language: string_or_empty(&stt["language"]),
        },
        llm: LlmChoice {
            provider: string_or_empty(&llm["provider"]),
            model: string_or_empty(&llm["model"]),
            fallback_model: non_empty_string(&llm["fallback_model"]),
            url: non_empty_string(&llm["url"]),
            token: avatar_secrets.llm,
        },
        tts: TtsChoice {
            provider: string_or_empty(&tts["provider"]),
            model_id: string_or_empty(&tts["model_id"]),
            voice_id: string_or_empty(&tts["voice_id"]),
            sample_rate: tts["sample_rate"].as_f64().map(|rate| rate as u32),
            custom_pronunciation: tts["custom_pronunciation"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|p| Pronunciation {
                    word: string_or_empty(&p["word"]),
                    pronunciation: string_or_empty(&p["pronunciation"]),
                })
                .collect(),
        },
        avatar: AvatarChoice {
            avatar_key_id: row.avatar_id.clone(),
            frame_rate: avatar["frame_rate"].as_f64().unwrap_or(25.0) as u32,
        },
        pose_set: avatars::load_custom_poses(state, &row.workspace, &row.avatar_id).await?,
        tools: tools.into_iter().map(|(tool, _)| tool).collect(),
        guardrails,
        tool_servers: mcp::session::load_servers(state, row, &agent).await?,
        knowledge: knowledge_cache::find_or_build(
            state,
            &row.workspace,
            &json_record::string_list(&agent, "knowledge_base"),
        )
        .await?,
        expose_tools: agent["config"]["expose_tools"] == true,
        trust_client_context: prompt::trusts_clients(&agent),
        record_trace: agent["config"]["record_trace"] == true,
    })
}

/// The turn-taking settings of the agent, for the conversation with number
/// `row.conversation_number`.
fn turn_settings<'a>(row: &Row, agent: &'a Value, tools: Vec<ToolSpec>) -> settings::AgentTurnConfig<'a> {
    let avatar = &agent["avatars"][0];
    let stt = &avatar["config"]["stt"];
    let idle = &avatar["idle_timeout"];
    let warning = &avatar["exit_heads_up_message"];
    let greetings = avatar["welcome_message"]["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    // Round robin over the agent's conversations.
    let greeting = usize::try_from(row.conversation_number)
        .ok()
        .and_then(|n| greetings.get(n.checked_rem(greetings.len())?));
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
        idle_messages: string_list(&idle["filler_phrases"]),
        idle_end_after: Some(idle["end_after"].as_u64().and_then(|n| u32::try_from(n).ok())),
        max_call_duration: max_call_duration(agent, avatar),
        call_warning_before: warning["callout_before"].as_f64(),
        warning_message: string_list(&warning["messages"]).into_iter().next(),
        exit_message: string_list(&avatar["exit_message"]["messages"]).into_iter().next(),
        error_message: Some(non_empty_string(&agent["config"]["error_message"])),
        user_id: row.user_id.clone().filter(|id| !id.is_empty()).unwrap_or_else(|| row.id.clone()),
        tools,
        fallback_llm: non_empty_string(&avatar["config"]["llm"]["fallback_model"]).is_some(),
        fallback_tts: false,
    }
}

/// The agent's tools that still exist, in its order.
async fn load_tools(state: &AppState, row: &Row, agent: &Value) -> store::Result<Vec<(Tool, ToolSpec)>> {
    let ids = json_record::string_list(agent, "tool");
    let rows = state.store.documents(json_record::Table::Tool, &row.workspace, &ids).await?;
    let mut tools = Vec::new();
    for id in &ids {
        let Some(stored) = rows.iter().find(|row| row.id == *id) else { continue };
        let document: Value = serde_json::from_str(&stored.document)
            .map_err(|e| store::Error::CorruptRow("tool", e.to_string()))?;
        let headers: SecretHeaders = secrets::open(&state.vault, &stored.id, &stored.secrets)?;
        tools.push(parse_tool(&document, headers));
    }
    Ok(tools)
}

/// The agent's guardrails that still exist, in its order.
async fn load_guardrails(state: &AppState, row: &Row, agent: &Value) -> store::Result<Vec<Guardrail>> {
    let ids = json_record::string_list(agent, "guardrail");
    let rows = state.store.documents(json_record::Table::Guardrail, &row.workspace, &ids).await?;
    let mut guardrails = Vec::new();
    for id in &ids {
        let Some(stored) = rows.iter().find(|row| row.id == *id) else { continue };
        let rule = document_resource::to_json(stored)?;
        guardrails.push(Guardrail {
            key: string_or_empty(&rule["key"]),
            category: string_or_empty(&rule["category"]),
            prompt: string_or_empty(&rule["prompt"]),
            response_message: non_empty_string(&rule["response_message"]),
            callback_url: non_empty_string(&rule["callback_url"]),
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

fn parse_tool(document: &Value, headers: SecretHeaders) -> (Tool, ToolSpec) {
    let (schema, request, messages) =
        (&document["schema"], &document["request_config"], &document["event_messages"]);
    let name = string_or_empty(&schema["name"]);
    let message = |event: &str| non_empty_string(&messages[event]["message"]);
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
            method: string_or_empty(&request["method"]),
            url: string_or_empty(&request["url"]),
            headers: headers.into_iter().collect(),
        },
    };
    (
        Tool {
            name,
            description: string_or_empty(&schema["description"]),
            parameters: schema["parameters"].clone(),
            backend: run,
        },
        spec,
    )
}

/// The call configuration, shared with the engine.
pub(crate) async fn build_shared(state: &AppState, row: &Row) -> store::Result<Arc<CallConfig>> {
    build(state, row).await.map(Arc::new)
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
