//! From the stored document to the response: attached records in full, delays filled in, secrets
//! masked.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::turn;
use crate::clock;
use crate::resources::{document_resource, knowledge};
use crate::state::AppState;
use crate::store;
use crate::store::document::{self, Table, ids};
use crate::store::secrets;

/// The records attached to a page of agents, by id, read once for all of them.
pub(crate) struct Attached {
    knowledge_base: HashMap<String, Value>,
    tool: HashMap<String, Value>,
    guardrail: HashMap<String, Value>,
    mcp: HashMap<String, Value>,
}

impl Attached {
    /// Reads the records that these documents reference.
    pub(crate) async fn read(shared: &AppState, workspace: &str, documents: &[Value]) -> store::Result<Self> {
        let named = |list: &str| {
            let mut all: Vec<String> = documents.iter().flat_map(|d| ids(d, list)).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        let records = async |table, list| {
            let rows = shared.store.documents(table, workspace, &named(list)).await?;
            rows.iter()
                .map(|row| Ok((row.id.clone(), document_resource::shown(row)?)))
                .collect::<store::Result<HashMap<_, _>>>()
        };
        let kbs = shared.store.kbs(workspace, &named("knowledge_base")).await?;
        Ok(Self {
            knowledge_base: kbs.iter().map(|row| (row.id.clone(), knowledge::shown(row))).collect(),
            tool: records(Table::Tool, "tool").await?,
            guardrail: records(Table::Guardrail, "guardrail").await?,
            mcp: records(Table::Mcp, "mcp").await?,
        })
    }

    fn list(&self, document: &Value, list: &str) -> Value {
        let known = match list {
            "knowledge_base" => &self.knowledge_base,
            "tool" => &self.tool,
            "guardrail" => &self.guardrail,
            _ => &self.mcp,
        };
        match &document[list] {
            Value::Array(_) => ids(document, list).iter().filter_map(|id| known.get(id).cloned()).collect(),
            _ => Value::Null,
        }
    }
}

/// An agent or template as JSON.
pub(crate) fn shown(row: &document::Row, document: &Value, attached: &Attached) -> Value {
    let mut agent = Map::new();
    agent.insert("id".into(), row.id.clone().into());
    if let Value::Object(map) = document {
        for (name, value) in map {
            let value = match name.as_str() {
                "avatars" => {
                    let turn = &document["config"]["turn"];
                    value.as_array().into_iter().flatten().map(|stored| avatar(stored, turn)).collect()
                }
                list if super::parse::ATTACHED.contains(&list) => attached.list(document, list),
                _ => value.clone(),
            };
            agent.insert(name.clone(), value);
        }
    }
    if document.get("agent_name").is_some() {
        agent.insert("webhook_secret".into(), secrets::STARS.into());
    }
    agent.insert("created_at".into(), clock::iso(row.created_at).into());
    agent.insert("updated_at".into(), clock::iso(row.updated_at).into());
    Value::Object(agent)
}

/// An avatar with its effective delays.
fn avatar(stored: &Value, turn: &Value) -> Value {
    let mut avatar = stored.clone();
    let (min, max) = turn::delays(stored["turn_handling"].as_str().unwrap_or_default(), turn);
    if let Some(stt) = avatar.pointer_mut("/config/stt") {
        for (name, delay) in [("min_endpointing_delay", min), ("max_endpointing_delay", max)] {
            if stt[name].is_null() {
                stt[name] = delay.into();
            }
        }
    }
    avatar
}
