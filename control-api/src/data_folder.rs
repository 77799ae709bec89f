//! The data folder: its files, which only their owner may read.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::store;

/// File of a data folder that contains the first key, where it is not printed.
pub const FIRST_KEY_FILE: &str = "first.key";
/// Folder in a data folder that contains what a restore has copied so far.
pub(crate) const RESTORE_FOLDER: &str = "restore.incomplete";
/// Files of the data folder that only their owner may read. SQLite gives its other files the mode
/// of the first one.
#[cfg(unix)]
const PRIVATE_FILES: [&str; 8] = [
    FIRST_KEY_FILE,
    "lock",
    "secrets.key",
    "server.id",
    "tokens.key",
    "visavis.db",
    "visavis.db-shm",
    "visavis.db-wal",
];
/// The data folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataFolderError {
    /// Its absolute path, and what fails, as the end of a sentence.
    #[error("the data folder {0} (server.data) {1}")]
    Unusable(PathBuf, String),
    /// A restore of it was interrupted.
    #[error("{0}: a restore was interrupted; empty the folder, and run `visavis restore` again")]
    IncompleteRestore(PathBuf),
}

impl DataFolderError {
    /// The folder cannot be `purpose` (created, read or written).
    pub(crate) fn new(data: &Path, purpose: &str, error: &io::Error) -> Self {
        // The number that the standard library appends means nothing to most people.
        let text = error.to_string();
        let reason = text.split(" (os error ").next().unwrap_or(&text);
        let data = std::path::absolute(data).unwrap_or_else(|_| data.to_owned());
        Self::Unusable(data, format!("cannot be {purpose}: {reason}"))
    }
}

/// Creates the data folder if it is absent, for its owner only.
pub(crate) fn prepare_data_folder(data: &Path) -> Result<(), DataFolderError> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(data).map_err(|error| DataFolderError::new(data, "created", &error))?;
    // An existing folder keeps its mode; the files in it are private in any case.
    #[cfg(unix)]
    if is_open_to_others(data).map_err(|error| DataFolderError::new(data, "read", &error))? {
        tracing::warn!(
            folder = %data.display(),
            "other users can list the data folder; run chmod 700 on it"
        );
    }
    if data.join(RESTORE_FOLDER).exists() {
        return Err(DataFolderError::IncompleteRestore(data.to_owned()));
    }
    open_private_file(&database_file(data))
        .map_err(|error| DataFolderError::new(data, "written", &error))?;
    #[cfg(unix)]
    PRIVATE_FILES.iter().for_each(|name| restrict_to_owner(&data.join(name)));
    Ok(())
}

/// Whether other users than the owner have any permission for a file or folder.
#[cfg(unix)]
fn is_open_to_others(path: &Path) -> io::Result<bool> {
    let permissions = std::fs::metadata(path)?.permissions();
    Ok(std::os::unix::fs::PermissionsExt::mode(&permissions) & 0o077 != 0)
}

/// Takes from other users the permissions for a file that an earlier server or a copy left. The
/// file is not opened: closing it would release the locks that SQLite holds on it in this process.
#[cfg(unix)]
fn restrict_to_owner(file: &Path) {
    if is_open_to_others(file).unwrap_or(false)
        && let Err(error) =
            std::fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o600))
    {
        tracing::warn!(
            file = %file.display(),
            %error,
            "cannot restrict the file's permissions to its owner"
        );
    }
}

/// Opens a file for appending. If it is absent, it is created for its owner only.
pub(crate) fn open_private_file(file: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(file)
}

/// Path of the database file.
pub(crate) fn database_file(data: &Path) -> PathBuf {
    data.join("visavis.db")
}

/// This server's id: created once and stored in its data folder.
pub(crate) fn load_server_id(file: &Path) -> io::Result<String> {
    match std::fs::read_to_string(file) {
        Ok(id) if !id.trim().is_empty() => Ok(id.trim().to_owned()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => {
            let id = store::new_id();
            open_private_file(file)?.write_all(id.as_bytes())?;
            Ok(id)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A path in the temporary folder, for this test only.
    fn test_folder(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("visavis-data-folder-{name}-{}", std::process::id()))
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn created_files_are_readable_by_the_owner_only() {
        let data = test_folder("new");
        prepare_data_folder(&data).unwrap();
        open_private_file(&data.join("lock")).unwrap();
        let id = load_server_id(&data.join("server.id")).unwrap();
        assert_eq!(mode(&data), 0o700);
        assert!(!is_open_to_others(&data).unwrap(), "nothing to warn of");
        for name in ["lock", "server.id", "visavis.db"] {
            assert_eq!(mode(&data.join(name)), 0o600, "{name}");
        }
        assert_eq!(load_server_id(&data.join("server.id")).unwrap(), id);
        fs::remove_dir_all(data).unwrap();
    }

    #[test]
    fn files_with_open_permissions_are_restricted_and_the_folder_is_reported() {
        let data = test_folder("earlier");
        fs::create_dir_all(&data).unwrap();
        fs::set_permissions(&data, Permissions::from_mode(0o755)).unwrap();
        for name in PRIVATE_FILES {
            fs::write(data.join(name), "as it was").unwrap();
            fs::set_permissions(data.join(name), Permissions::from_mode(0o644)).unwrap();
        }
        prepare_data_folder(&data).unwrap();
        assert!(is_open_to_others(&data).unwrap(), "the operator is warned");
        assert_eq!(mode(&data), 0o755, "and decides");
        for name in PRIVATE_FILES {
            assert_eq!(mode(&data.join(name)), 0o600, "{name}");
            assert_eq!(fs::read_to_string(data.join(name)).unwrap(), "as it was", "{name}");
        }
        assert_eq!(load_server_id(&data.join("server.id")).unwrap(), "as it was");
        fs::remove_dir_all(data).unwrap();
    }
}
