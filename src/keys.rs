//! `visavis keys`: manages the API keys of a data folder, also while a server runs on it.

use std::process::ExitCode;

use crate::cli::KeysCommand;
use crate::{CommandError, load_config};

pub(crate) fn run(command: &KeysCommand) -> Result<ExitCode, CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match command {
        KeysCommand::Create { workspace, scope, place } => {
            if workspace.trim().is_empty() {
                return Err(CommandError::Usage("--workspace: the name must not be empty".into()));
            }
            let server = load_config(place)?.server;
            let (data, url) = (&server.data, server.database_url.as_deref());
            let made = control_api::keys::create_scoped(data, url, workspace.trim(), *scope);
            println!("{}", runtime.block_on(made)?);
        }
        KeysCommand::List { place } => {
            let server = load_config(place)?.server;
            let (data, url) = (&server.data, server.database_url.as_deref());
            for key in runtime.block_on(control_api::keys::list(data, url))? {
                let used = key.last_used_at.as_deref().unwrap_or("never");
                println!(
                    "{}  {}  {}  {}  {}  {used}  {}",
                    key.id, key.prefix, key.workspace, key.created_at, key.scope, key.name
                );
            }
        }
        KeysCommand::Revoke { id, place } => {
            let server = load_config(place)?.server;
            let (data, url) = (&server.data, server.database_url.as_deref());
            if !runtime.block_on(control_api::keys::revoke(data, url, id))? {
                return Err(CommandError::Failed(anyhow::anyhow!("no key has the id {id}")));
            }
            println!("revoked {id}");
        }
    }
    Ok(ExitCode::SUCCESS)
}
