//! Who offers a tool whose name several have: the agent itself, or else the MCP server that is
//! attached first, whichever answers first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine_api::Tool;

/// Maximum number of names in a warning: a server may have 64 tools.
const MAX_NAMES: usize = 5;

/// The names of the tools that the servers of a call have listed so far.
pub(super) struct ToolNames {
    /// The names of the tools that the agent has itself.
    own: BTreeSet<String>,
    /// Positions of the servers that list the tool, in the order of the agent's `mcp`.
    servers: Mutex<BTreeMap<String, BTreeSet<usize>>>,
}

impl ToolNames {
    pub(super) fn new(own: &[String]) -> Self {
        Self { own: own.iter().cloned().collect(), servers: Mutex::default() }
    }

    /// The tools of a server that count. A tool that counts replaces one that was listed before. Of
    /// several tools of the server with one name, the first counts.
    pub(super) fn select(&self, server: usize, tools: Vec<Tool>) -> Vec<Tool> {
        let mut known = self.lock();
        let counts = |tool: &Tool| {
            let servers = known.entry(tool.name.clone()).or_default();
            let is_first = servers.insert(server) && servers.first() == Some(&server);
            is_first && !self.own.contains(&tool.name)
        };
        tools.into_iter().filter(counts).collect()
    }

    /// A warning for each server that shares names with the agent, and for each pair of servers that
    /// share names. To be called when all have answered, because a server that answers late may be
    /// attached first. `names` are those of all servers.
    pub(super) fn warnings(&self, names: &[&str]) -> Vec<String> {
        let mut hidden = BTreeMap::<usize, Vec<String>>::new();
        let mut shared = BTreeMap::<(usize, usize), Vec<String>>::new();
        for (tool, servers) in &*self.lock() {
            if self.own.contains(tool) {
                servers.iter().for_each(|&s| hidden.entry(s).or_default().push(tool.clone()));
                continue;
            }
            let Some(&first) = servers.first() else { continue };
            for &other in servers.iter().skip(1) {
                shared.entry((first, other)).or_default().push(tool.clone());
            }
        }
        let warning = |((first, second), tools): ((usize, usize), Vec<String>)| {
            warn_of_shared_names(names[first], names[second], &tools)
        };
        let hidden =
            hidden.into_iter().map(|(server, tools)| warn_of_hidden_names(names[server], &tools));
        let mut warnings: Vec<String> = hidden.chain(shared.into_iter().map(warning)).collect();
        // Servers may share a name, too.
        warnings.dedup();
        warnings
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, BTreeSet<usize>>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn warn_of_hidden_names(server: &str, names: &[String]) -> String {
    format!(
        "The agent and the MCP server {server:?} have tools with the same name ({}): the agent's own \
         are used.",
        list_names(names)
    )
}

fn warn_of_shared_names(first: &str, second: &str, names: &[String]) -> String {
    format!(
        "The MCP servers {first:?} and {second:?} have tools with the same name ({}): those of \
         {first:?} are used, because it is attached first.",
        list_names(names)
    )
}

/// At most `MAX_NAMES` of the names, and how many more there are.
fn list_names(names: &[String]) -> String {
    let mut list = names.iter().take(MAX_NAMES).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > MAX_NAMES {
        list.push_str(&format!(" and {} more", names.len() - MAX_NAMES));
    }
    list
}

#[cfg(test)]
mod tests {
    use engine_api::ToolBackend;
    use serde_json::Value;

    use super::*;

    const SERVERS: [&str; 3] = ["Maps", "Shop", "Files"];

    /// Names of the selected tools.
    fn select(names: &ToolNames, server: usize, tools: &[&str]) -> Vec<String> {
        let tool = |name: &&str| Tool {
            name: (*name).to_owned(),
            description: String::new(),
            parameters: Value::Null,
            backend: ToolBackend::Client,
        };
        let selected = names.select(server, tools.iter().map(tool).collect());
        selected.into_iter().map(|tool| tool.name).collect()
    }

    #[test]
    fn the_server_that_is_attached_first_wins_whichever_answers_first() {
        let warning = "The MCP servers \"Maps\" and \"Shop\" have tools with the same name (find): \
                       those of \"Maps\" are used, because it is attached first.";
        let names = ToolNames::new(&[]);
        assert_eq!(select(&names, 0, &["find", "zoom", "find"]), ["find", "zoom"]);
        assert_eq!(select(&names, 1, &["buy", "find"]), ["buy"]);
        assert_eq!(names.warnings(&SERVERS), [warning]);

        let names = ToolNames::new(&[]);
        assert_eq!(select(&names, 1, &["buy", "find"]), ["buy", "find"]);
        assert_eq!(select(&names, 0, &["find", "zoom"]), ["find", "zoom"], "it replaces the other");
        assert_eq!(names.warnings(&SERVERS), [warning]);
    }

    #[test]
    fn the_warnings_name_the_server_whose_tools_are_used() {
        let names = ToolNames::new(&[]);
        for server in [2, 1, 0] {
            assert_eq!(select(&names, server, &["find"]), ["find"]);
        }
        let warnings = names.warnings(&SERVERS);
        let used = |warning: &String| warning.contains("those of \"Maps\" are used");
        assert!(warnings.len() == 2 && warnings.iter().all(used), "{warnings:?}");
        assert_eq!(names.warnings(&["Same"; 3]).len(), 1);
    }

    #[test]
    fn the_agents_own_tools_are_used_and_the_others_are_named() {
        let names = ToolNames::new(&["find".to_owned(), "end_call".to_owned()]);
        assert_eq!(select(&names, 1, &["find", "zoom"]), ["zoom"]);
        assert_eq!(select(&names, 0, &["end_call", "find", "zoom"]), ["zoom"]);
        let expected = [
            "The agent and the MCP server \"Maps\" have tools with the same name (end_call, find): \
             the agent's own are used.",
            "The agent and the MCP server \"Shop\" have tools with the same name (find): the \
             agent's own are used.",
            "The MCP servers \"Maps\" and \"Shop\" have tools with the same name (zoom): those of \
             \"Maps\" are used, because it is attached first.",
        ];
        assert_eq!(names.warnings(&SERVERS), expected);
    }

    #[test]
    fn there_is_one_warning_for_each_pair_of_servers() {
        let names = ToolNames::new(&[]);
        let many: Vec<String> = (0..8).map(|n| format!("t{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(select(&names, 1, &many).len(), 8);
        assert_eq!(select(&names, 2, &many).len(), 0);
        let warnings = names.warnings(&SERVERS);
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains("(t0, t1, t2, t3, t4 and 3 more)"), "{warnings:?}");
        assert!(warnings[0].contains("\"Shop\"") && warnings[0].contains("\"Files\""));
    }
}
