//! `visavis backup` and `visavis restore`.

use std::process::ExitCode;

use control_api::backup::{self, BackedUpDatabase, ConfiguredKeys};

use crate::cli::{BackupArgs, RestoreArgs};
use crate::{CommandError, load_config};

pub(crate) fn run(arguments: &BackupArgs) -> Result<ExitCode, CommandError> {
    let BackupArgs { folder, without_recordings, place } = arguments;
    let config = load_config(place)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let url = config.server.database_url.as_deref();
    let made = backup::backup(&config.server.data, folder, url.is_none(), !without_recordings);
    let database = runtime.block_on(made)?;
    println!("{} is a backup of {}", folder.display(), config.server.data.display());
    match (database, url) {
        (BackedUpDatabase::Sqlite, _) => {}
        (BackedUpDatabase::Postgresql, Some(url)) => println!(
            "It does not contain the database at {}: back that up with pg_dump",
            control_api::database_address(url)
        ),
        (BackedUpDatabase::Postgresql, None) => println!(
            "It contains no database, because the server of this folder uses another one: set \
             server.database_url (VISAVIS_SERVER_DATABASE_URL) as for the server, and back the \
             database up with pg_dump"
        ),
    }
    if let Some(url) = config.storage.url.as_deref().filter(|_| !without_recordings) {
        println!("It does not contain the delivered recordings and videos at {url}");
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn restore(arguments: &RestoreArgs) -> Result<ExitCode, CommandError> {
    let RestoreArgs { folder, place } = arguments;
    let server = load_config(place)?.server;
    let data = &server.data;
    let configured = ConfiguredKeys {
        secrets: server.secrets_key.is_some(),
        tokens: server.tokens_key.is_some(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let database = runtime.block_on(backup::restore(folder, data, configured))?;
    println!("{} is restored from {}", data.display(), folder.display());
    if database == BackedUpDatabase::Postgresql {
        println!("The database is not part of the backup: restore it with pg_restore or psql");
    }
    Ok(ExitCode::SUCCESS)
}
