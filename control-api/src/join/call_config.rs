//! From a conversation's agent, as it was configured when the conversation was created, to the
//! configuration that the engine needs for the call.

use std::sync::Arc;
use std::time::Duration;

use conversation::participation::{Participation, ParticipationMode};
use conversation::settings;
use conversation::spec::ToolSpec;
use engine_api::{
    AvatarChoice, CallConfig, Guardrail, PoseSetFile, RecordingChoice, SttChoice, Tool, ToolBackend,
};
use models::registry::Kind;
use serde_json::{Value, json};

use crate::join::prompt;
use crate::resources::call_limits::max_call_duration;
use crate::resources::meetings::settings::MeetingSettings;
use crate::resources::model_choices::{self, Account, non_empty, number};
use crate::resources::secret_headers::SecretHeaders;
use crate::resources::{avatars, knowledge_cache, mcp, recordings, variants};
use crate::state::AppState;
use crate::store::agent::{Agent, AgentSettings, Avatar};
use crate::store::conversation::Row;
use crate::store::guardrail::GuardrailDocument;
use crate::store::providers::Llm;
use crate::store::secrets::{self, AgentSecrets};
use crate::store::tool::{EventMessage, ToolDocument, ToolKind};
use crate::store::{self, json_record};

/// Name of the tool that ends the call. A tool of the agent with this name takes precedence.
const END_CALL_TOOL: &str = "end_call";

/// Frames per second of a meeting's page: services capture no more.
const MEETING_FRAME_RATE: u32 = 15;

/// Where a call takes place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Venue {
    /// Between the server and a client, or an external meeting.
    Direct,
    /// In a LiveKit room.
    Room,
}

/// Builds the call configuration of a conversation.
pub(crate) async fn build(state: &AppState, row: &Row, venue: Venue) -> store::Result<CallConfig> {
    let corrupt = |what: &str| store::Error::CorruptRow("conversation", what.to_owned());
    let agent: Agent = json_record::parse_document(&row.agent_document)?;
    let secrets: AgentSecrets = secrets::open(&state.vault, &row.agent, &row.agent_secrets)?;
    let (settings, avatar) = (&agent.settings, agent.settings.first_avatar());
    let avatar_secrets = secrets.avatars.into_iter().next().unwrap_or_default();
    let guardrails = load_guardrails(state, row, settings.attached_ids("guardrail")).await?;
    let mut tools = load_tools(state, row, settings.attached_ids("tool")).await?;
    for guardrail in guardrails.iter().filter(|guardrail| guardrail.response_message.is_none()) {
        // An earlier tool with the same name takes precedence.
        if tools.iter().all(|(tool, _)| tool.name != guardrail.key) {
            tools.push(moderation_tool(guardrail));
        }
    }
    if settings.config.end_call && tools.iter().all(|(tool, _)| tool.name != END_CALL_TOOL) {
        tools.push(end_call_tool());
    }
    let turn = Value::Object(settings.config.turn.0.clone());
    let mut turn_config = turn_settings(
        row,
        settings,
        &avatar,
        &turn,
        tools.iter().map(|(_, spec)| spec.clone()).collect(),
        has_llm_fallback(state, row, &avatar.config.llm),
    );
    let meeting = MeetingSettings::of_row(row)?;
    if let Some(meeting) = &meeting {
        let rules = meeting.participation(turn.get("meeting"));
        turn_config.participation = Some(rules.map_err(|e| corrupt(&e.to_string()))?);
        turn_config.max_call_duration = turn_config
            .max_call_duration
            .or(Some(state.config.meetings.max_duration.as_secs_f64()));
    }
    if venue == Venue::Room {
        let rules = room_participation(&row.agent_name, turn.get("meeting"));
        turn_config.participation = Some(rules.map_err(|e| corrupt(&e.to_string()))?);
    }
    let spec = turn_config.to_spec().map_err(|e| corrupt(&e.to_string()))?;
    let credentials = state.store.credentials(&state.vault, &row.workspace).await?;
    let account = Account {
        workspace: &row.workspace,
        credentials: &credentials,
        registry: state.config.registry.as_deref(),
    };
    let recording_warning =
        if settings.record { recordings::storage_warning(state).await? } else { None };
    let (avatar_key_id, pose_set) = load_shown_avatar(state, row, &avatar).await?;
    let mut choices = model_choices::of_avatar(&avatar.config, avatar_secrets, &account);
    if let Some(meeting) = &meeting {
        // What addresses the agent must be recognized.
        let words = [Some(&meeting.name), meeting.wake_phrase.as_ref()];
        add_keyterms(&mut choices.stt, &words);
    }
    let own_tools = tools.iter().map(|(tool, _)| tool.name.clone()).collect();
    let servers = settings.attached_ids("mcp");
    Ok(CallConfig {
        id: row.id.parse().map_err(|_| corrupt("its id is not a UUID"))?,
        spec,
        agent_name: row.agent_name.clone(),
        system_prompt: prompt::system_prompt(state, row, &agent).await?,
        stt: choices.stt,
        llm: choices.llm,
        tts: choices.tts,
        avatar: AvatarChoice {
            avatar_key_id,
            frame_rate: match &meeting {
                Some(_) => MEETING_FRAME_RATE,
                None => number(Some(&avatar.frame_rate)).unwrap_or(25.0) as u32,
            },
        },
        pose_set,
        tools: tools.into_iter().map(|(tool, _)| tool).collect(),
        guardrails,
        tool_servers: mcp::session::load_servers(state, row, servers, own_tools).await?,
        knowledge: knowledge_cache::find_or_build(
            state,
            &row.workspace,
            settings.attached_ids("knowledge_base"),
        )
        .await?,
        expose_tools: settings.config.expose_tools,
        trust_client_context: settings.config.trust_client_context,
        record_trace: settings.config.record_trace,
        offers_expressions: settings.config.expressions,
        recording: settings.record.then_some(RecordingChoice {
            notice: settings.config.recording.notice,
            is_optional: settings.config.recording.optional,
            warning: recording_warning,
        }),
        reconnect_timeout: meeting.map(|_| state.config.meetings.reconnect_timeout),
    })
}

/// Lets the speech-to-text expect these words, too.
fn add_keyterms(stt: &mut SttChoice, words: &[Option<&String>]) {
    for word in words.iter().flatten().filter(|word| !word.trim().is_empty()) {
        if !stt.keyterms.contains(word) {
            stt.keyterms.push((*word).clone());
        }
    }
    stt.fallback.iter_mut().for_each(|fallback| add_keyterms(fallback, words));
}

/// What the call shows: the id by which calls share it, and its pose set unless it is a stock
/// avatar.
async fn load_shown_avatar(
    state: &AppState,
    row: &Row,
    avatar: &Avatar,
) -> store::Result<(String, Option<PoseSetFile>)> {
    if let Some(shown) = variants::find_shown(state, row, avatar).await?
        && let Some(poses) = avatars::load_custom_poses(state, &row.workspace, &shown.id).await?
    {
        return Ok((shown.id, Some(poses)));
    }
    let poses = avatars::load_custom_poses(state, &row.workspace, &row.avatar_id).await?;
    Ok((row.avatar_id.clone(), poses))
}

/// Whether another language model answers if the first one fails within its answer.
fn has_llm_fallback(state: &AppState, row: &Row, llm: &Llm) -> bool {
    if non_empty(llm.provider.as_ref()).is_none() {
        let registry = state.config.registry.as_ref();
        return registry.is_some_and(|r| r.default_providers(Kind::Llm, &row.workspace).len() > 1);
    }
    non_empty(llm.fallback_model.as_ref()).is_some() || !llm.fallback.is_empty()
}

/// The turn-taking settings of the agent, for the conversation with number
/// `row.conversation_number`. `turn` is `config.turn`.
fn turn_settings<'a>(
    row: &Row,
    agent: &'a AgentSettings,
    avatar: &'a Avatar,
    turn: &'a Value,
    tools: Vec<ToolSpec>,
    fallback_llm: bool,
) -> settings::AgentTurnConfig<'a> {
    let stt = &avatar.config.stt;
    let greetings = &avatar.welcome_message.messages;
    // Round robin over the agent's conversations.
    let greeting = usize::try_from(row.conversation_number)
        .ok()
        .and_then(|n| greetings.get(n.checked_rem(greetings.len())?));
    settings::AgentTurnConfig {
        turn_handling: Some(avatar.turn_handling.name()),
        interruptability: Some(avatar.interruptability.name()),
        turn: Some(turn),
        min_endpointing_delay: number(stt.min_endpointing_delay.as_ref()),
        max_endpointing_delay: number(stt.max_endpointing_delay.as_ref()),
        turn_model: stt.turn_model,
        language: stt.language.as_deref(),
        greeting: greeting.map(String::as_str),
        recording_message: agent.config.recording.message.as_deref().filter(|_| agent.record),
        greeting_delay: number(Some(&avatar.welcome_message.wait_time)),
        // Null and 0 are equivalent here: no call-outs.
        idle_timeout: Some(number(avatar.idle_timeout.timeout.as_ref()).unwrap_or(0.0)),
        idle_messages: avatar.idle_timeout.filler_phrases.clone(),
        idle_end_after: Some(avatar.idle_timeout.end_after),
        max_call_duration: max_call_duration(&agent.config, avatar),
        call_warning_before: number(Some(&avatar.exit_heads_up_message.callout_before)),
        warning_message: avatar.exit_heads_up_message.messages.first().cloned(),
        exit_message: avatar.exit_message.messages.first().cloned(),
        error_message: Some(non_empty(agent.config.error_message.as_ref())),
        participation: None,
        user_id: row.user_id.clone().filter(|id| !id.is_empty()).unwrap_or_else(|| row.id.clone()),
        tools,
        fallback_llm,
        fallback_tts: false,
        record_words: agent.record,
    }
}

/// The agent's tools that still exist, in its order.
async fn load_tools(
    state: &AppState,
    row: &Row,
    ids: &[String],
) -> store::Result<Vec<(Tool, ToolSpec)>> {
    let rows = state.store.documents(json_record::Table::Tool, &row.workspace, ids).await?;
    let mut tools = Vec::new();
    for id in ids {
        let Some(stored) = rows.iter().find(|row| row.id == *id) else { continue };
        let tool: ToolDocument = json_record::parse_document(&stored.document)?;
        let headers: SecretHeaders = secrets::open(&state.vault, &stored.id, &stored.secrets)?;
        tools.push(build_tool(tool, headers));
    }
    Ok(tools)
}

/// The agent's guardrails that still exist, in its order.
async fn load_guardrails(
    state: &AppState,
    row: &Row,
    ids: &[String],
) -> store::Result<Vec<Guardrail>> {
    let rows = state.store.documents(json_record::Table::Guardrail, &row.workspace, ids).await?;
    let mut guardrails = Vec::new();
    for id in ids {
        let Some(stored) = rows.iter().find(|row| row.id == *id) else { continue };
        let rule: GuardrailDocument = json_record::parse_document(&stored.document)?;
        guardrails.push(Guardrail {
            response_message: non_empty(Some(&rule.response_message)),
            callback_url: non_empty(Some(&rule.callback_url)),
            key: rule.key,
            category: rule.category,
            prompt: rule.prompt,
        });
    }
    Ok(guardrails)
}

/// A guardrail without its own response, as the model sees it: a tool that returns the result of a
/// moderation endpoint.
fn moderation_tool(guardrail: &Guardrail) -> (Tool, ToolSpec) {
    let tool = Tool {
        name: guardrail.key.clone(),
        description: format!(
            "Call this before you answer if this rule applies: {}",
            guardrail.prompt
        ),
        parameters: json!({"type": "object", "properties": {}, "required": []}),
        backend: ToolBackend::Moderation,
    };
    (tool, ToolSpec { name: guardrail.key.clone(), ..ToolSpec::default() })
}

/// The tool that ends the call.
fn end_call_tool() -> (Tool, ToolSpec) {
    let farewell = json!({
        "type": "string",
        "description": "What you say last, if you have not said goodbye yet",
    });
    let tool = Tool {
        name: END_CALL_TOOL.into(),
        description: "Ends the call. Use it only when the user has said goodbye, or asks you to \
                      hang up."
            .into(),
        parameters: json!({"type": "object", "properties": {"farewell": farewell}, "required": []}),
        backend: ToolBackend::EndCall,
    };
    (tool, ToolSpec { name: END_CALL_TOOL.into(), ends_call: true, ..ToolSpec::default() })
}

fn build_tool(document: ToolDocument, headers: SecretHeaders) -> (Tool, ToolSpec) {
    let ToolDocument { kind, schema, request_config, event_messages } = document;
    let message =
        |message: Option<EventMessage>| non_empty(message.and_then(|m| m.message).as_ref());
    let on_delay = event_messages.on_delay.unwrap_or_default();
    let spec = ToolSpec {
        name: schema.name.clone(),
        on_start: message(event_messages.on_start),
        delay: Duration::from_secs_f64(
            number(Some(&on_delay.delay)).unwrap_or(5.0).clamp(0.0, 600.0),
        ),
        on_delay: non_empty(on_delay.message.as_ref()),
        on_success: message(event_messages.on_success),
        on_error: message(event_messages.on_error),
        ends_call: false,
    };
    let backend = match kind {
        ToolKind::Client => ToolBackend::Client,
        ToolKind::Api => {
            let request = request_config.unwrap_or_default();
            ToolBackend::Http {
                method: request.method,
                url: request.url.unwrap_or_default(),
                headers: headers.into_iter().collect(),
            }
        }
    };
    let tool = Tool {
        name: schema.name,
        description: schema.description,
        parameters: json!(schema.parameters),
        backend,
    };
    (tool, spec)
}

/// The call configuration, shared with the engine.
pub(crate) async fn build_shared(
    state: &AppState,
    row: &Row,
    venue: Venue,
) -> store::Result<Arc<CallConfig>> {
    build(state, row, venue).await.map(Arc::new)
}

/// How an agent takes part in a LiveKit room: as in a call with one person, and from the second one
/// on only when it is addressed. `settings`: `config.turn.meeting` of the agent.
fn room_participation(
    agent_name: &str,
    settings: Option<&Value>,
) -> Result<Participation, settings::SettingError> {
    let mode = settings.and_then(|settings| settings["room_mode"].as_str());
    let mut rules = Participation {
        mode: ParticipationMode::from_name(mode),
        only_with_several: mode.is_none(),
        names: vec![agent_name.to_owned()],
        ..Participation::default()
    };
    rules.apply(settings)?;
    Ok(rules)
}
