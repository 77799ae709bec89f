//! From the stored document to the response: attached records in full, delays filled in, secrets
//! masked.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Number, Value};

use super::parse::AgentDocument;
use super::turn;
use crate::clock;
use crate::resources::{avatars, document_resource, knowledge, variants};
use crate::state::AppState;
use crate::store;
use crate::store::agent::{ATTACHMENT_FIELDS, AgentSettings};
use crate::store::json_record::{self, Row, Table};
use crate::store::secrets;

/// Warning of an agent whose avatar was deleted.
const WARNING_AVATAR_GONE: &str =
    "Calls show another avatar, because that of the agent was deleted: choose one that exists.";

/// The records attached to a page of agents, by id, read once for all of them.
struct AttachedRecords {
    knowledge_base: HashMap<String, Value>,
    tool: HashMap<String, Value>,
    guardrail: HashMap<String, Value>,
    mcp: HashMap<String, Value>,
}

impl AttachedRecords {
    /// Reads the records that these documents reference.
    async fn read<D: AgentDocument>(
        state: &AppState,
        workspace: &str,
        documents: &[D],
    ) -> store::Result<Self> {
        let referenced_ids = |list: &str| {
            let mut all: Vec<String> =
                documents.iter().flat_map(|d| d.settings().attached_ids(list)).cloned().collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        let records = async |table, list| {
            let rows = state.store.documents(table, workspace, &referenced_ids(list)).await?;
            rows.iter()
                .map(|row| Ok((row.id.clone(), document_resource::to_json(row)?)))
                .collect::<store::Result<HashMap<_, _>>>()
        };
        let kbs = state.store.kbs(workspace, &referenced_ids("knowledge_base")).await?;
        Ok(Self {
            knowledge_base: kbs
                .iter()
                .map(|row| (row.id.clone(), knowledge::to_json(row)))
                .collect(),
            tool: records(Table::Tool, "tool").await?,
            guardrail: records(Table::Guardrail, "guardrail").await?,
            mcp: records(Table::Mcp, "mcp").await?,
        })
    }

    /// The records of a list that still exist; null if the list is not set.
    fn to_json(&self, settings: &AgentSettings, list: &str) -> Value {
        let known = match list {
            "knowledge_base" => &self.knowledge_base,
            "tool" => &self.tool,
            "guardrail" => &self.guardrail,
            _ => &self.mcp,
        };
        match settings.attachments(list) {
            Some(ids) => ids.0.iter().filter_map(|id| known.get(id).cloned()).collect(),
            None => Value::Null,
        }
    }
}

/// Agents or templates as JSON.
pub(crate) async fn to_json_list<D: AgentDocument>(
    state: &AppState,
    workspace: &str,
    rows: &[Row],
) -> store::Result<Vec<Value>> {
    let documents: Vec<D> = json_record::parse_documents(rows)?;
    let attached = AttachedRecords::read(state, workspace, &documents).await?;
    let settings = rows.iter().zip(&documents).map(|(row, d)| (row.id.as_str(), d.settings()));
    let warnings = variants::warnings(state, workspace, settings).await?;
    let available: HashSet<String> = avatars::list_available(state, workspace)
        .await?
        .into_iter()
        .map(|avatar| avatar.avatar_key_id)
        .collect();
    let to_json = |(row, document): (&Row, D)| {
        let is_gone = document
            .settings()
            .first_avatar()
            .avatar_key_id
            .as_ref()
            .is_some_and(|id| !id.is_empty() && !available.contains(id));
        let of_avatar = is_gone.then_some(WARNING_AVATAR_GONE);
        let warning = warnings.get(&row.id).copied().or(of_avatar);
        to_json(row, document, &attached, warning.as_slice())
    };
    Ok(rows.iter().zip(documents).map(to_json).collect())
}

/// An agent or template as JSON, with the effective endpointing delays. `warnings` are those of an
/// agent.
fn to_json<D: AgentDocument>(
    row: &Row,
    mut document: D,
    attached: &AttachedRecords,
    warnings: &[&str],
) -> Value {
    let settings = document.settings_mut();
    for avatar in &mut settings.avatars {
        let (min, max) = turn::endpointing_delays(avatar.turn_handling, &settings.config.turn);
        let stt = &mut avatar.config.stt;
        stt.min_endpointing_delay =
            stt.min_endpointing_delay.take().or_else(|| Number::from_f64(min));
        stt.max_endpointing_delay =
            stt.max_endpointing_delay.take().or_else(|| Number::from_f64(max));
    }
    let mut agent = Map::new();
    agent.insert("id".into(), row.id.clone().into());
    if let Ok(Value::Object(fields)) = serde_json::to_value(&document) {
        agent.extend(fields);
    }
    for list in ATTACHMENT_FIELDS {
        agent.insert(list.into(), attached.to_json(document.settings(), list));
    }
    if agent.contains_key("agent_name") {
        agent.insert("webhook_secret".into(), secrets::SECRET_MASK.into());
        agent.insert("warnings".into(), warnings.into());
    }
    agent.insert("created_at".into(), clock::to_iso8601(row.created_at).into());
    agent.insert("updated_at".into(), clock::to_iso8601(row.updated_at).into());
    Value::Object(agent)
}
