//! `visavis keys`: API keys of a data folder, also beside a running server.

use std::process::ExitCode;

use crate::cli::Keys;
use crate::{Failure, configuration};

pub(crate) fn run(command: &Keys) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match command {
        Keys::Create { workspace, place } => {
            if workspace.trim().is_empty() {
                return Err(Failure::Usage("--workspace: a name is needed".into()));
            }
            let data = configuration(place)?.server.data;
            println!("{}", runtime.block_on(control_api::keys::create(&data, workspace.trim()))?);
        }
        Keys::List { place } => {
            let data = configuration(place)?.server.data;
            for key in runtime.block_on(control_api::keys::list(&data))? {
                println!("{}  {}  {}  {}  {}", key.id, key.prefix, key.workspace, key.created_at, key.name);
            }
        }
        Keys::Revoke { id, place } => {
            let data = configuration(place)?.server.data;
            if !runtime.block_on(control_api::keys::revoke(&data, id))? {
                return Err(Failure::Failed(anyhow::anyhow!("there is no key with the id {id}")));
            }
            println!("revoked {id}");
        }
    }
    Ok(ExitCode::SUCCESS)
}
