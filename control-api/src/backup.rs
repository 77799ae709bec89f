//! `visavis backup` and `visavis restore`: a copy of a data folder, made beside a running server.
//!
//! The copy is written to `FOLDER.incomplete` and gets its name when everything is on the disk. A
//! file that the database mentions is in it: files are copied before the database, and those that
//! were added meanwhile after it.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::clock;
use crate::data_folder::{FIRST_KEY_FILE, RESTORE_FOLDER, database_file};
use crate::store::{self, DatabaseLocation, Store};

/// Description of a backup. It is the last file that is written.
const MANIFEST: &str = "backup.json";
/// What a backup has no copy of: the database, which is copied otherwise, locks, work in progress,
/// which is done again, and a key that the operator has read.
const SKIPPED: [&str; 9] = [
    "visavis.db",
    "visavis.db-wal",
    "visavis.db-shm",
    "visavis.db-journal",
    "lock",
    "bakes",
    "taps",
    FIRST_KEY_FILE,
    RESTORE_FOLDER,
];
/// Identity of a server. Two servers on one database must not have the same.
const SERVER_ID_FILE: &str = "server.id";
const SECRETS_KEY_FILE: &str = "secrets.key";
const TOKENS_KEY_FILE: &str = "tokens.key";
/// Recordings and videos, during calls and delivered.
const RECORDINGS: [&str; 3] = [engine_api::RECORDINGS_FOLDER, "storage", "videos"];

/// Why a backup or a restore failed.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A folder is not what the command needs: one sentence that says what to do.
    #[error("{0}")]
    Unsuitable(String),
    /// A file cannot be read or written.
    #[error("{0}: {1}")]
    File(PathBuf, #[source] io::Error),
    /// The database cannot be copied, or the copy cannot be read.
    #[error("the database cannot be copied: {0}")]
    Database(#[from] store::Error),
}

type Result<T> = std::result::Result<T, BackupError>;

/// Which database the data belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackedUpDatabase {
    /// Included.
    Sqlite,
    /// Not included: `pg_dump` copies it.
    Postgresql,
}

/// Which keys are in the configuration: a server needs no files for them.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConfiguredKeys {
    /// `server.secrets_key`
    pub secrets: bool,
    /// `server.tokens_key`
    pub tokens: bool,
}

#[derive(Serialize, Deserialize)]
struct Manifest {
    version: String,
    created_at: String,
    database: BackedUpDatabase,
    recordings: bool,
    /// Key files that are included.
    #[serde(default)]
    keys: Vec<String>,
}

/// Writes a copy of the data folder `data` to `folder`, which must not exist or be empty.
/// `has_sqlite`: whether the configuration names no database outside of the data folder.
/// `with_recordings`: whether recordings and videos are included.
///
/// # Errors
/// See [`BackupError`].
pub async fn backup(
    data: &Path,
    folder: &Path,
    has_sqlite: bool,
    with_recordings: bool,
) -> Result<BackedUpDatabase> {
    let is_data = if has_sqlite { database_file(data).is_file() } else { data.is_dir() };
    if !is_data {
        return unsuitable(data, "is no data folder of Visavis; name it with --data");
    }
    if !is_absent_or_empty(folder)? {
        return unsuitable(folder, "is not empty: choose another folder");
    }
    let Some(parent) = parent_folder(folder) else {
        return unsuitable(folder, "cannot be the backup");
    };
    if is_inside(folder, data)? {
        return unsuitable(folder, "is inside the data folder: choose another folder");
    }
    // A server with a database elsewhere has created an empty file, and the configuration of this
    // command may lack the URL that the environment of the server contains.
    let file = database_file(data);
    let has_sqlite = has_sqlite && Store::has_tables(DatabaseLocation::File(&file)).await?;
    let mut name = folder.file_name().unwrap_or_default().to_owned();
    name.push(".incomplete");
    let copy = parent.join(name);
    create_folder(&copy).map_err(|error| match error {
        BackupError::File(path, error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let why = "exists: another backup runs, or one was interrupted; delete the folder then";
            BackupError::Unsuitable(format!("{} {why}", path.display()))
        }
        other => other,
    })?;
    let made = write_copy(data, &copy, has_sqlite, with_recordings).await;
    let made = made.and_then(|()| fs::rename(&copy, folder).map_err(|e| file_error(folder, e)));
    if made.is_err() {
        // It is incomplete in any case.
        let _ = fs::remove_dir_all(&copy);
    }
    made.map(|()| database(has_sqlite))
}

fn database(has_sqlite: bool) -> BackedUpDatabase {
    if has_sqlite { BackedUpDatabase::Sqlite } else { BackedUpDatabase::Postgresql }
}

async fn write_copy(data: &Path, copy: &Path, has_sqlite: bool, recordings: bool) -> Result<()> {
    let is_included = |name: &str| {
        // The server may continue on a database that is not in the backup. A restored one that had
        // its identity would end its lease.
        !SKIPPED.contains(&name)
            && (has_sqlite || name != SERVER_ID_FILE)
            && (recordings || !RECORDINGS.contains(&name))
    };
    copy_folder(data, copy, &is_included)?;
    if has_sqlite {
        let database = database_file(copy);
        create_file(&database)?;
        Store::copy_file(&database_file(data), &database).await?;
    }
    // Files that were added before the database was copied.
    copy_folder(data, copy, &is_included)?;
    let keys = [SECRETS_KEY_FILE, TOKENS_KEY_FILE].into_iter();
    let manifest = Manifest {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        created_at: clock::to_iso8601(clock::now()),
        database: database(has_sqlite),
        recordings,
        keys: keys.filter(|name| copy.join(name).is_file()).map(str::to_owned).collect(),
    };
    let path = copy.join(MANIFEST);
    let text = serde_json::to_vec_pretty(&manifest).map_err(|e| file_error(&path, e.into()))?;
    create_file(&path)?.write_all(&text).map_err(|e| file_error(&path, e))?;
    sync(copy)
}

/// Puts the backup in `folder` into the data folder `data`, which must not exist or be empty.
/// `configured`: the keys that the restored server has without files.
///
/// # Errors
/// See [`BackupError`].
pub async fn restore(
    folder: &Path,
    data: &Path,
    configured: ConfiguredKeys,
) -> Result<BackedUpDatabase> {
    let path = folder.join(MANIFEST);
    let manifest: Option<Manifest> =
        fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
    let Some(manifest) = manifest else {
        return unsuitable(folder, "is no complete backup: it has no readable backup.json");
    };
    check_keys(folder, &manifest, configured)?;
    if manifest.database == BackedUpDatabase::Sqlite {
        Store::check_copy(&database_file(folder)).await?;
    }
    let incomplete = data.join(RESTORE_FOLDER);
    if incomplete.exists() {
        let why = "exists: another restore runs, or one was interrupted; in the second case, \
                   delete this folder and everything beside it, and restore again";
        return unsuitable(&incomplete, why);
    }
    if !is_absent_or_empty(data)? {
        return unsuitable(data, "is not empty: a restore needs an empty data folder");
    }
    if is_inside(data, folder)? {
        return unsuitable(data, "is inside the backup: choose another data folder");
    }
    let is_new = !data.exists();
    if is_new {
        create_folder(data)?;
    }
    // Until everything is copied, no server starts with the folder.
    create_folder(&incomplete)?;
    let mut moved = Vec::new();
    let written = write_data(folder, data, &mut moved);
    if written.is_err() && remove_data(data, &moved).is_ok() && is_new {
        // It is empty again.
        let _ = fs::remove_dir(data);
    }
    written?;
    sync(data)?;
    Ok(manifest.database)
}

/// Checks that no key file is lost: a server without it would create another key, which does not
/// fit the database. A backup that never had the file is of a server with a configured key.
fn check_keys(folder: &Path, manifest: &Manifest, configured: ConfiguredKeys) -> Result<()> {
    for (name, is_configured, setting) in [
        (SECRETS_KEY_FILE, configured.secrets, "server.secrets_key"),
        (TOKENS_KEY_FILE, configured.tokens, "server.tokens_key"),
    ] {
        let is_needed = !is_configured && manifest.keys.iter().any(|key| key == name);
        let file = folder.join(name);
        if is_needed && !file.is_file() {
            let why = format!(
                "is missing, and no server can use the data without this key: put the file back, \
                 or set {setting} to the key"
            );
            return unsuitable(&file, &why);
        }
    }
    Ok(())
}

/// Copies a backup into a folder in the data folder, and moves each entry from there to its place.
/// `moved` lists these places.
fn write_data(folder: &Path, data: &Path, moved: &mut Vec<PathBuf>) -> Result<()> {
    let incomplete = data.join(RESTORE_FOLDER);
    copy_folder(folder, &incomplete, &|name| name != MANIFEST)?;
    sync(&incomplete)?;
    for entry in entries(&incomplete)? {
        let target = data.join(entry.file_name());
        fs::rename(entry.path(), &target).map_err(|e| file_error(&target, e))?;
        moved.push(target);
    }
    fs::remove_dir(&incomplete).map_err(|e| file_error(&incomplete, e))
}

/// Removes what a failed restore has written. The folder that stops a server comes last.
fn remove_data(data: &Path, moved: &[PathBuf]) -> io::Result<()> {
    for path in moved {
        if path.is_dir() {
            fs::remove_dir_all(path)?;
        } else {
            fs::remove_file(path)?;
        }
    }
    fs::remove_dir_all(data.join(RESTORE_FOLDER))
}

/// The folder that contains `path`; `None` for the root.
fn parent_folder(path: &Path) -> Option<&Path> {
    let parent = path.parent()?;
    Some(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
}

/// Whether `path`, which need not exist, is inside of `folder` or is that folder: a copy of the
/// folder to it would not end.
fn is_inside(path: &Path, folder: &Path) -> Result<bool> {
    let resolved = |path: &Path| fs::canonicalize(path).map_err(|e| file_error(path, e));
    let existing = if path.exists() { path } else { parent_folder(path).unwrap_or(path) };
    Ok(resolved(existing)?.starts_with(resolved(folder)?))
}

/// Copies the files of a folder and of its folders that `to` does not have. `is_included` decides
/// by the names in `from` itself.
fn copy_folder(from: &Path, to: &Path, is_included: &dyn Fn(&str) -> bool) -> Result<()> {
    for entry in entries(from)? {
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| !is_included(name)) {
            continue;
        }
        let (source, target) = (entry.path(), to.join(&name));
        // Follows symbolic links: a folder of the data may be on another disk.
        let kind = match fs::metadata(&source) {
            Ok(metadata) => metadata.file_type(),
            // It was deleted meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(file_error(&source, error)),
        };
        if kind.is_dir() {
            if !target.exists() {
                create_folder(&target)?;
            }
            copy_folder(&source, &target, &|_| true)?;
        } else if kind.is_file() && !target.exists() {
            copy_file(&source, &target)?;
        }
    }
    Ok(())
}

fn copy_file(source: &Path, target: &Path) -> Result<()> {
    let mut from = match File::open(source) {
        Ok(file) => file,
        // It was deleted meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(file_error(source, error)),
    };
    let mut to = create_file(target)?;
    io::copy(&mut from, &mut to).map_err(|e| file_error(target, e))?;
    Ok(())
}

fn entries(folder: &Path) -> Result<Vec<fs::DirEntry>> {
    let all = fs::read_dir(folder).and_then(Iterator::collect);
    all.map_err(|e| file_error(folder, e))
}

fn is_absent_or_empty(folder: &Path) -> Result<bool> {
    match fs::read_dir(folder) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(file_error(folder, error)),
    }
}

/// Creates a folder that only its owner can read.
fn create_folder(path: &Path) -> Result<()> {
    DirBuilder::new().mode(0o700).create(path).map_err(|e| file_error(path, e))
}

/// Creates a file that only its owner can read.
fn create_file(path: &Path) -> Result<File> {
    let created = File::options().write(true).create_new(true).mode(0o600).open(path);
    created.map_err(|e| file_error(path, e))
}

/// Writes everything on the file system of a folder to the disk.
fn sync(folder: &Path) -> Result<()> {
    let opened = File::open(folder).map_err(|e| file_error(folder, e))?;
    rustix::fs::syncfs(opened).map_err(|e| file_error(folder, e.into()))
}

fn file_error(path: &Path, error: io::Error) -> BackupError {
    BackupError::File(path.to_owned(), error)
}

fn unsuitable<T>(path: &Path, why: &str) -> Result<T> {
    Err(BackupError::Unsuitable(format!("{} {why}", path.display())))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::app::open_store;
    use crate::data_folder::prepare_data_folder;

    /// A folder of one test, with a data folder in which a server has worked.
    struct Case(PathBuf);

    impl Case {
        async fn new(name: &str) -> (Self, Store) {
            let name = format!("visavis-backup-{name}-{}", std::process::id());
            let case = Self(std::env::temp_dir().join(name));
            let _ = fs::remove_dir_all(&case.0);
            let data = case.path("data");
            prepare_data_folder(&data).unwrap();
            let store = open_store(&data, None).await.unwrap();
            store.set_setting("color", "green").await.unwrap();
            for file in ["secrets.key", "tokens.key", "server.id", "lock", "first.key"] {
                fs::write(data.join(file), file).unwrap();
            }
            for file in ["storage/a/video.webm", "bakes/1/part", "traces/t.jsonl"] {
                fs::create_dir_all(data.join(file).parent().unwrap()).unwrap();
                fs::write(data.join(file), file).unwrap();
            }
            (case, store)
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }

        /// Runs `backup` on the data folder of a server with SQLite.
        async fn backup(&self, folder: &str) -> std::result::Result<(), String> {
            let done = backup(&self.path("data"), &self.path(folder), true, true).await.map(drop);
            done.map_err(|error| error.to_string().replace(&format!("{}/", self.0.display()), ""))
        }

        async fn restore(&self, from: &str, to: &str) -> std::result::Result<(), String> {
            self.restore_with(ConfiguredKeys::default(), from, to).await
        }

        async fn restore_with(
            &self,
            configured: ConfiguredKeys,
            from: &str,
            to: &str,
        ) -> std::result::Result<(), String> {
            let done = restore(&self.path(from), &self.path(to), configured).await.map(drop);
            done.map_err(|error| error.to_string().replace(&format!("{}/", self.0.display()), ""))
        }
    }

    impl Drop for Case {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[tokio::test]
    async fn a_backup_beside_a_running_server_restores_its_data() {
        let (case, store) = Case::new("whole").await;
        case.backup("copy").await.unwrap();
        store.set_setting("color", "blue").await.unwrap();
        case.restore("copy", "new").await.unwrap();
        let new = case.path("new");
        let restored = open_store(&new, None).await.unwrap();
        assert_eq!(restored.setting("color").await.unwrap().as_deref(), Some("green"));
        restored.close().await;
        for file in
            ["secrets.key", "tokens.key", "server.id", "storage/a/video.webm", "traces/t.jsonl"]
        {
            assert_eq!(fs::read_to_string(new.join(file)).unwrap(), file);
        }
        for file in ["lock", "first.key", "bakes", "backup.json", RESTORE_FOLDER] {
            assert!(!new.join(file).exists(), "{file}");
        }
        for file in ["copy/visavis.db", "copy/secrets.key", "new/visavis.db", "new/secrets.key"] {
            let mode = fs::metadata(case.path(file)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{file}");
        }
        assert!(!case.path("copy.incomplete").exists());
        store.close().await;
    }

    #[tokio::test]
    async fn recordings_and_a_database_on_a_server_may_be_left_out() {
        let (case, store) = Case::new("parts").await;
        let copy = case.path("copy");
        let database = backup(&case.path("data"), &copy, false, false).await.unwrap();
        assert_eq!(database, BackedUpDatabase::Postgresql);
        assert!(!copy.join("storage").exists() && !copy.join("visavis.db").exists());
        assert!(copy.join("secrets.key").exists());
        assert!(!copy.join("server.id").exists(), "the server may run on");
        let configured = ConfiguredKeys::default();
        let database = restore(&copy, &case.path("new"), configured).await.unwrap();
        assert_eq!(database, BackedUpDatabase::Postgresql);
        store.close().await;
    }

    #[tokio::test]
    async fn an_empty_database_file_is_that_of_a_server_with_another_database() {
        let (case, store) = Case::new("empty").await;
        store.close().await;
        let (data, copy) = (case.path("shared"), case.path("copy"));
        prepare_data_folder(&data).unwrap();
        for file in ["secrets.key", "tokens.key", "server.id"] {
            fs::write(data.join(file), file).unwrap();
        }
        let database = backup(&data, &copy, true, true).await.unwrap();
        assert_eq!(database, BackedUpDatabase::Postgresql);
        for (file, expected) in [
            ("secrets.key", true),
            ("tokens.key", true),
            ("server.id", false),
            ("visavis.db", false),
        ] {
            assert_eq!(copy.join(file).exists(), expected, "{file}");
        }
        case.restore("copy", "new").await.unwrap();
        assert!(case.path("new/secrets.key").exists());
    }

    #[tokio::test]
    async fn a_lost_key_file_is_missed_unless_the_key_is_configured() {
        let (case, store) = Case::new("keys").await;
        case.backup("copy").await.unwrap();
        fs::remove_file(case.path("copy/tokens.key")).unwrap();
        let error = case.restore("copy", "new").await.unwrap_err();
        assert!(error.starts_with("copy/tokens.key is missing, and no server can use"), "{error}");
        assert!(error.ends_with("set server.tokens_key to the key"), "{error}");
        assert!(!case.path("new").exists(), "nothing was created");
        let secrets = ConfiguredKeys { secrets: true, tokens: false };
        assert_eq!(case.restore_with(secrets, "copy", "new").await.unwrap_err(), error);
        let tokens = ConfiguredKeys { secrets: false, tokens: true };
        case.restore_with(tokens, "copy", "new").await.unwrap();
        // A server with configured keys has no files, and this command may not see its keys.
        for file in ["data/secrets.key", "data/tokens.key"] {
            fs::remove_file(case.path(file)).unwrap();
        }
        case.backup("configured").await.unwrap();
        case.restore("configured", "other").await.unwrap();
        store.close().await;
    }

    #[tokio::test]
    async fn a_folder_that_is_not_what_a_command_needs_is_refused() {
        let (case, store) = Case::new("refused").await;
        fs::create_dir_all(case.path("full/of")).unwrap();
        for (folder, expected) in [
            ("full", "full is not empty: choose another folder"),
            ("data/copy", "data/copy is inside the data folder: choose another folder"),
        ] {
            assert_eq!(case.backup(folder).await.unwrap_err(), expected);
        }
        fs::create_dir(case.path("copy.incomplete")).unwrap();
        let running = case.backup("copy").await.unwrap_err();
        assert!(running.starts_with("copy.incomplete exists: another backup runs"), "{running}");
        fs::remove_dir(case.path("copy.incomplete")).unwrap();
        case.backup("copy").await.unwrap();
        let full = case.restore("copy", "full").await.unwrap_err();
        assert_eq!(full, "full is not empty: a restore needs an empty data folder");
        fs::create_dir(case.path("copy/empty")).unwrap();
        for data in ["copy/new", "copy/traces/new", "copy/empty"] {
            let inside = case.restore("copy", data).await.unwrap_err();
            assert_eq!(inside, format!("{data} is inside the backup: choose another data folder"));
        }
        fs::write(case.path("copy/visavis.db"), "no database").unwrap();
        let broken = case.restore("copy", "new").await.unwrap_err();
        assert!(broken.starts_with("the database cannot be copied: "), "{broken}");
        fs::remove_file(case.path("copy").join(MANIFEST)).unwrap();
        let partial = case.restore("copy", "new").await.unwrap_err();
        assert_eq!(partial, "copy is no complete backup: it has no readable backup.json");
        assert!(!case.path("new").exists(), "nothing was created");
        store.close().await;
    }

    #[tokio::test]
    async fn a_backup_that_fails_leaves_nothing_behind() {
        let (case, store) = Case::new("failed").await;
        store.close().await;
        // No file: it leads to itself.
        let link = case.path("data/link");
        std::os::unix::fs::symlink(&link, &link).unwrap();
        let error = case.backup("copy").await.unwrap_err();
        assert!(error.starts_with("data/link: "), "{error}");
        assert!(!case.path("copy").exists() && !case.path("copy.incomplete").exists());
        fs::remove_file(&link).unwrap();
        fs::write(case.path("data/visavis.db"), "no database".repeat(100)).unwrap();
        let error = case.backup("copy").await.unwrap_err();
        assert!(error.starts_with("the database cannot be copied: "), "{error}");
        assert!(!case.path("copy").exists() && !case.path("copy.incomplete").exists());
    }

    #[tokio::test]
    async fn a_restore_that_fails_leaves_nothing_behind() {
        let (case, store) = Case::new("unwritten").await;
        store.close().await;
        case.backup("copy").await.unwrap();
        // No file: it leads to itself.
        let link = case.path("copy/link");
        std::os::unix::fs::symlink(&link, &link).unwrap();
        fs::create_dir(case.path("empty")).unwrap();
        for data in ["new", "empty"] {
            let error = case.restore("copy", data).await.unwrap_err();
            assert!(error.starts_with("copy/link: "), "{error}");
        }
        assert!(!case.path("new").exists());
        assert!(is_absent_or_empty(&case.path("empty")).unwrap() && case.path("empty").exists());
        fs::remove_file(&link).unwrap();
        case.restore("copy", "empty").await.unwrap();
    }

    #[test]
    fn what_was_moved_to_its_place_is_removed_as_well() {
        let data = std::env::temp_dir().join(format!("visavis-moved-{}", std::process::id()));
        fs::create_dir_all(data.join(RESTORE_FOLDER).join("videos")).unwrap();
        fs::create_dir(data.join("traces")).unwrap();
        fs::write(data.join("visavis.db"), "").unwrap();
        remove_data(&data, &[data.join("traces"), data.join("visavis.db")]).unwrap();
        fs::remove_dir(&data).unwrap();
    }

    #[tokio::test]
    async fn a_restore_names_what_an_interrupted_one_has_left() {
        let (case, store) = Case::new("left").await;
        store.close().await;
        case.backup("copy").await.unwrap();
        fs::create_dir_all(case.path("half").join(RESTORE_FOLDER)).unwrap();
        let error = case.restore("copy", "half").await.unwrap_err();
        assert!(error.starts_with("half/restore.incomplete exists: "), "{error}");
        assert!(error.contains("delete this folder"), "{error}");
    }

    #[tokio::test]
    async fn a_server_does_not_start_with_a_folder_whose_restore_was_interrupted() {
        let (case, store) = Case::new("interrupted").await;
        store.close().await;
        let data = case.path("half");
        fs::create_dir_all(data.join(RESTORE_FOLDER)).unwrap();
        let error = prepare_data_folder(&data).unwrap_err().to_string();
        assert!(error.contains("a restore was interrupted"), "{error}");
    }
}
