//! Which of several MCP servers offers a tool whose name they share: the one that is attached first,
//! whichever answers first.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use engine_api::Tool;

/// Maximum number of names in a warning: a server may have 64 tools.
const MAX_NAMES: usize = 5;

/// The names of the tools that the servers of a call have listed so far.
#[derive(Default)]
pub(super) struct ToolNames {
    /// Position of the server that offers the tool, in the order of the agent's `mcp`.
    owners: Mutex<HashMap<String, usize>>,
}

impl ToolNames {
    /// The tools of a server that count, and a warning for each other server with which it shares
    /// names. A tool that counts replaces one that was listed before. Of several tools of the server
    /// with one name, the first counts. `servers` are the names of all servers.
    pub(super) fn select(
        &self,
        server: usize,
        tools: Vec<Tool>,
        servers: &[&str],
    ) -> (Vec<Tool>, Vec<String>) {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        let mut seen = HashSet::new();
        let mut shared = BTreeMap::<(usize, usize), Vec<String>>::new();
        let mut selected = Vec::with_capacity(tools.len());
        for tool in tools {
            if !seen.insert(tool.name.clone()) {
                continue;
            }
            let owner = owners.get(&tool.name).copied();
            if let Some(other) = owner {
                let pair = (server.min(other), server.max(other));
                shared.entry(pair).or_default().push(tool.name.clone());
            }
            if owner.is_none_or(|owner| owner > server) {
                owners.insert(tool.name.clone(), server);
                selected.push(tool);
            }
        }
        let warning = |((first, second), names): ((usize, usize), Vec<String>)| {
            warn_of_shared_names(servers[first], servers[second], &names)
        };
        (selected, shared.into_iter().map(warning).collect())
    }
}

fn warn_of_shared_names(first: &str, second: &str, names: &[String]) -> String {
    let mut list = names.iter().take(MAX_NAMES).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > MAX_NAMES {
        list.push_str(&format!(" and {} more", names.len() - MAX_NAMES));
    }
    format!(
        "The MCP servers {first:?} and {second:?} have tools with the same name ({list}): those of \
         {first:?} are used, because it is attached first."
    )
}

#[cfg(test)]
mod tests {
    use engine_api::ToolBackend;
    use serde_json::Value;

    use super::*;

    const SERVERS: [&str; 3] = ["Maps", "Shop", "Files"];

    /// Names of the selected tools, and the warnings.
    fn select(names: &ToolNames, server: usize, tools: &[&str]) -> (Vec<String>, Vec<String>) {
        let tool = |name: &&str| Tool {
            name: (*name).to_owned(),
            description: String::new(),
            parameters: Value::Null,
            backend: ToolBackend::Client,
        };
        let (selected, warnings) = names.select(server, tools.iter().map(tool).collect(), &SERVERS);
        (selected.into_iter().map(|tool| tool.name).collect(), warnings)
    }

    #[test]
    fn the_server_that_is_attached_first_wins_whichever_answers_first() {
        let warning = "The MCP servers \"Maps\" and \"Shop\" have tools with the same name (find): \
                       those of \"Maps\" are used, because it is attached first.";
        let names = ToolNames::default();
        assert_eq!(select(&names, 0, &["find", "zoom", "find"]).0, ["find", "zoom"]);
        let (second, warnings) = select(&names, 1, &["buy", "find"]);
        assert_eq!((second, warnings), (vec!["buy".to_owned()], vec![warning.to_owned()]));

        let names = ToolNames::default();
        assert_eq!(select(&names, 1, &["buy", "find"]).0, ["buy", "find"]);
        let (first, warnings) = select(&names, 0, &["find", "zoom"]);
        assert_eq!(first, ["find", "zoom"], "it replaces the other");
        assert_eq!(warnings, [warning]);
    }

    #[test]
    fn there_is_one_warning_for_each_pair_of_servers() {
        let names = ToolNames::default();
        let many: Vec<String> = (0..8).map(|n| format!("t{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(select(&names, 1, &many).1, [""; 0]);
        let (selected, warnings) = select(&names, 2, &many);
        assert_eq!((selected.len(), warnings.len()), (0, 1));
        assert!(warnings[0].contains("(t0, t1, t2, t3, t4 and 3 more)"), "{warnings:?}");
        assert!(warnings[0].contains("\"Shop\"") && warnings[0].contains("\"Files\""));
    }
}
