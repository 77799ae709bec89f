//! From the stored document to the response: attached records in full, delays filled in, secrets
//! masked.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::turn;
use crate::clock;
use crate::resources::{document_resource, knowledge};
use crate::state::AppState;
use crate::store;
use crate::store::json_record::{self, Table, string_list};
use crate::store::secrets;

/// The records attached to a page of agents, by id, read once for all of them.
pub(crate) struct AttachedRecords {
    knowledge_base: HashMap<String, Value>,
    tool: HashMap<String, Value>,
    guardrail: HashMap<String, Value>,
    mcp: HashMap<String, Value>,
}

impl AttachedRecords {
    /// Reads the records that these documents reference.
    pub(crate) async fn read(state: &AppState, workspace: &str, documents: &[Value]) -> store::Result<Self> {
        let referenced_ids = |list: &str| {
            let mut all: Vec<String> = documents.iter().flat_map(|d| string_list(d, list)).collect();
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
            knowledge_base: kbs.iter().map(|row| (row.id.clone(), knowledge::to_json(row))).collect(),
            tool: records(Table::Tool, "tool").await?,
            guardrail: records(Table::Guardrail, "guardrail").await?,
            mcp: records(Table::Mcp, "mcp").await?,
        })
    }

    fn to_json(&self, document: &Value, list: &str) -> Value {
        let known = match list {
            "knowledge_base" => &self.knowledge_base,
            "tool" => &self.tool,
            "guardrail" => &self.guardrail,
            _ => &self.mcp,
        };
        match &document[list] {
            Value::Array(_) => {
                string_list(document, list).iter().filter_map(|id| known.get(id).cloned()).collect()
            }
            _ => Value::Null,
        }
    }
}

/// An agent or template as JSON.
pub(crate) fn to_json(row: &json_record::Row, document: &Value, attached: &AttachedRecords) -> Value {
    let mut agent = Map::new();
    agent.insert("id".into(), row.id.clone().into());
    if let Value::Object(map) = document {
        for (name, value) in map {
            let value = match name.as_str() {
                "avatars" => {
                    let turn = &document["config"]["turn"];
                    value
                        .as_array()
                        .into_iter()
                        .flatten()
                        .map(|stored| avatar_to_json(stored, turn))
                        .collect()
                }
                list if super::parse::ATTACHMENT_FIELDS.contains(&list) => attached.to_json(document, list),
                _ => value.clone(),
            };
            agent.insert(name.clone(), value);
        }
    }
    if document.get("agent_name").is_some() {
        agent.insert("webhook_secret".into(), secrets::SECRET_MASK.into());
    }
    agent.insert("created_at".into(), clock::to_iso8601(row.created_at).into());
    agent.insert("updated_at".into(), clock::to_iso8601(row.updated_at).into());
    Value::Object(agent)
}

/// An avatar with its effective delays.
fn avatar_to_json(stored: &Value, turn: &Value) -> Value {
    let mut avatar = stored.clone();
    let (min, max) = turn::endpointing_delays(stored["turn_handling"].as_str().unwrap_or_default(), turn);
    if let Some(stt) = avatar.pointer_mut("/config/stt") {
        for (name, delay) in [("min_endpointing_delay", min), ("max_endpointing_delay", max)] {
            if stt[name].is_null() {
                stt[name] = delay.into();
            }
        }
    }
    avatar
}
