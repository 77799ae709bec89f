//! The storage of recordings and videos: a folder, or object storage of Amazon (and compatible
//! servers), Google or Azure.

use std::io;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::signer::{Method, Signer};
use object_store::{
    Attribute, Attributes, ClientOptions, GetOptions, GetRange, ObjectStore, ObjectStoreExt as _,
    PutMultipartOptions, RetryConfig, WriteMultipart,
};
use tokio::io::AsyncReadExt as _;
use url::Url;

use crate::config::StorageConfig;

/// Folder in the data folder, if no storage is configured.
const STORAGE_FOLDER: &str = "storage";
/// Size of the parts of an upload. At least 5 MiB for Amazon, and at most 10,000 parts.
const PART_BYTES: usize = 16 << 20;
/// Parts that are sent at the same time.
const CONCURRENT_PARTS: usize = 2;
/// Timeouts of a connection, and of a request that sends or reads one part: 1.1 Mbit/s.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);
/// Attempts of a request. The caller tries again later.
const RETRIES: usize = 2;
const RETRY_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time of [`check`].
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);

/// An error of the storage.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The local file, or the local folder.
    #[error("{0}: {1}")]
    File(String, #[source] io::Error),
    #[error(transparent)]
    Store(#[from] object_store::Error),
    #[error("{0}")]
    Url(String),
}

impl Error {
    fn file(path: &Path, error: io::Error) -> Self {
        Self::File(path.display().to_string(), error)
    }

    /// Says in plain words what is wrong, as the end of a sentence. The message itself names
    /// addresses and files of the server, and is for the log.
    pub(crate) fn describe(&self) -> &'static str {
        use object_store::Error as Store;
        match self {
            Self::Store(Store::PermissionDenied { .. } | Store::Unauthenticated { .. }) => {
                return "the storage refuses the access of this server";
            }
            Self::Store(Store::NotFound { .. }) => return "the bucket of the storage is missing",
            _ => {}
        }
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(self);
        while let Some(error) = cause {
            match error.downcast_ref::<io::Error>().map(io::Error::kind) {
                Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
                    return "the disk of the storage is full";
                }
                Some(io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) => {
                    return "this server may not write into the folder of the storage";
                }
                Some(
                    io::ErrorKind::NotFound
                    | io::ErrorKind::NotADirectory
                    | io::ErrorKind::AlreadyExists,
                ) => return "the folder of the storage is missing",
                _ => cause = error.source(),
            }
        }
        "the storage cannot be reached, or fails"
    }

    /// Whether the object or the file does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        match self {
            Self::File(_, error) => error.kind() == io::ErrorKind::NotFound,
            Self::Store(error) => matches!(error, object_store::Error::NotFound { .. }),
            Self::Url(_) => false,
        }
    }
}

/// A connection to the storage.
pub(crate) struct Storage {
    store: Arc<dyn ObjectStore>,
    /// The local folder, if it is one.
    folder: Option<PathBuf>,
    /// Makes links; `None` for a local folder.
    signer: Option<Arc<dyn Signer>>,
    /// Folder in the bucket.
    prefix: ObjectPath,
    /// Origin of links, if it is not `https`.
    insecure_origin: Option<String>,
}

/// What a file is, for those who read it.
pub(crate) struct FileKind<'a> {
    pub(crate) content_type: &'static str,
    /// Name under which a browser stores it.
    pub(crate) name: &'a str,
}

impl FileKind<'_> {
    /// The header `Content-Disposition`. `kind`: `inline`, or `attachment` for a file that a browser
    /// saves.
    pub(crate) fn disposition(&self, kind: &str) -> String {
        format!("{kind}; filename=\"{}\"", self.name)
    }
}

impl Storage {
    /// Opens the storage. A folder is created.
    pub(crate) fn open(data: &Path, config: &StorageConfig) -> Result<Self, Error> {
        let Some(text) = &config.url else {
            return Self::open_folder(&data.join(STORAGE_FOLDER));
        };
        let invalid = |reason: &str| Error::Url(format!("storage.url: \"{text}\" {reason}"));
        StorageConfig::check_url(text).map_err(|reason| invalid(&reason))?;
        let url = Url::parse(text).map_err(|error| invalid(&error.to_string()))?;
        if url.scheme() == "file" {
            let folder = url.to_file_path().map_err(|()| invalid("is not a path"))?;
            return Self::open_folder(&folder);
        }
        let client = ClientOptions::new()
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_timeout(REQUEST_TIMEOUT);
        let retry = RetryConfig {
            max_retries: RETRIES,
            retry_timeout: RETRY_TIMEOUT,
            ..RetryConfig::default()
        };
        let options = || config.options.iter().map(|(name, value)| (name.to_lowercase(), value));
        let mut endpoint = None;
        let (store, signer): (Arc<dyn ObjectStore>, Arc<dyn Signer>) = match url.scheme() {
            "s3" => {
                let known = options().filter_map(|(name, value)| {
                    Some((name.parse::<AmazonS3ConfigKey>().ok()?, value))
                });
                let mut builder =
                    AmazonS3Builder::new().with_client_options(client).with_retry(retry);
                for (key, value) in known {
                    builder = builder.with_config(key, value);
                }
                endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
                let store = Arc::new(builder.with_url(text).build()?);
                (Arc::clone(&store) as _, store)
            }
            "gs" => {
                let known = options().filter_map(|(name, value)| {
                    Some((name.parse::<GoogleConfigKey>().ok()?, value))
                });
                let mut builder =
                    GoogleCloudStorageBuilder::new().with_client_options(client).with_retry(retry);
                for (key, value) in known {
                    builder = builder.with_config(key, value);
                }
                let store = Arc::new(builder.with_url(text).build()?);
                (Arc::clone(&store) as _, store)
            }
            _ => {
                let known = options().filter_map(|(name, value)| {
                    Some((name.parse::<AzureConfigKey>().ok()?, value))
                });
                let mut builder =
                    MicrosoftAzureBuilder::new().with_client_options(client).with_retry(retry);
                for (key, value) in known {
                    builder = builder.with_config(key, value);
                }
                endpoint = builder.get_config_value(&AzureConfigKey::Endpoint);
                let store = Arc::new(builder.with_url(text).build()?);
                (Arc::clone(&store) as _, store)
            }
        };
        let insecure_origin = endpoint
            .and_then(|endpoint| Url::parse(&endpoint).ok())
            .filter(|endpoint| endpoint.scheme() == "http")
            .map(|endpoint| endpoint.origin().ascii_serialization());
        let prefix = ObjectPath::from_url_path(url.path()).map_err(object_store::Error::from)?;
        Ok(Self { store, folder: None, signer: Some(signer), prefix, insecure_origin })
    }

    fn open_folder(folder: &Path) -> Result<Self, Error> {
        create_private_folder(folder)?;
        let store = LocalFileSystem::new_with_prefix(folder)?.with_fsync(true);
        Ok(Self {
            store: Arc::new(store),
            folder: Some(folder.to_owned()),
            signer: None,
            prefix: ObjectPath::default(),
            insecure_origin: None,
        })
    }

    /// Whether files are read through this server.
    pub(crate) fn is_local(&self) -> bool {
        self.signer.is_none()
    }

    /// Origin of the links to files, if it is not `https`. A page must be permitted to read it.
    pub(crate) fn insecure_origin(&self) -> Option<&str> {
        self.insecure_origin.as_deref()
    }

    fn path(&self, key: &str) -> ObjectPath {
        self.prefix.parts().chain(ObjectPath::from(key).parts()).collect()
    }

    /// Stores a file under `key`, in parts. An existing object is replaced when all is there.
    pub(crate) async fn upload(
        &self,
        key: &str,
        file: &Path,
        kind: &FileKind<'_>,
    ) -> Result<(), Error> {
        let mut input =
            tokio::fs::File::open(file).await.map_err(|error| Error::file(file, error))?;
        self.prepare_folder(key)?;
        self.remove_partial_uploads(key).await?;
        let mut options = PutMultipartOptions::default();
        // A folder has no attributes.
        if !self.is_local() {
            options.attributes = Attributes::from_iter([
                (Attribute::ContentType, kind.content_type.to_owned()),
                // A page of another origin cannot make a browser save a file that is `inline`. A
                // player ignores this.
                (Attribute::ContentDisposition, kind.disposition("attachment")),
            ]);
        }
        let upload = self.store.put_multipart_opts(&self.path(key), options).await?;
        let mut upload = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
        match send_parts(&mut upload, &mut input, file).await {
            Ok(()) => drop(upload.finish().await?),
            Err(error) => {
                // Parts of an upload that is not completed cost money.
                if let Err(error) = upload.abort().await {
                    tracing::warn!(%key, %error, "cannot abort an upload");
                }
                return Err(error);
            }
        }
        if let Some(folder) = &self.folder {
            let file = folder.join(key);
            set_mode(&file, 0o600).map_err(|error| Error::file(&file, error))?;
        }
        Ok(())
    }

    /// Creates the folder of an object in a local folder. Only the owner may use it, also while an
    /// upload writes into it with the default permissions.
    fn prepare_folder(&self, key: &str) -> Result<(), Error> {
        let Some(path) = self.folder.as_ref().map(|folder| folder.join(key)) else { return Ok(()) };
        let Some(folder) = path.parent() else { return Ok(()) };
        create_private_folder(folder)?;
        set_mode(folder, 0o700).map_err(|error| Error::file(folder, error))
    }

    /// Removes what earlier processes have left of uploads of `key` to a local folder: files named
    /// `KEY#NUMBER`. Object storage deletes such parts itself, by a rule of its bucket.
    async fn remove_partial_uploads(&self, key: &str) -> Result<(), Error> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let path = folder.join(key);
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
        let failed = |error| Error::file(folder, error);
        let mut entries = match tokio::fs::read_dir(folder).await {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        let start = [name.as_encoded_bytes(), b"#"].concat();
        while let Some(entry) = entries.next_entry().await.map_err(failed)? {
            if entry.file_name().as_encoded_bytes().starts_with(&start) {
                tokio::fs::remove_file(entry.path()).await.map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Deletes an object, and what is left of uploads of it. One that does not exist counts as
    /// deleted.
    pub(crate) async fn delete(&self, key: &str) -> Result<(), Error> {
        self.remove_partial_uploads(key).await?;
        match self.store.delete(&self.path(key)).await {
            Err(error) if !matches!(error, object_store::Error::NotFound { .. }) => {
                Err(error.into())
            }
            _ => Ok(()),
        }
    }

    /// A link by which anyone can read the object for this time; `None` for a local folder.
    pub(crate) async fn link(&self, key: &str, validity: Duration) -> Option<Result<Url, Error>> {
        let signer = self.signer.as_ref()?;
        let link = signer.signed_url(Method::GET, &self.path(key), validity).await;
        Some(link.map_err(Error::from))
    }

    /// Size of an object in bytes.
    pub(crate) async fn size(&self, key: &str) -> Result<u64, Error> {
        Ok(self.store.head(&self.path(key)).await?.size)
    }

    /// Bytes of an object.
    pub(crate) async fn read(
        &self,
        key: &str,
        range: Range<u64>,
    ) -> Result<BoxStream<'static, object_store::Result<Bytes>>, Error> {
        let options = GetOptions { range: Some(GetRange::Bounded(range)), ..GetOptions::default() };
        Ok(self.store.get_opts(&self.path(key), options).await?.into_stream())
    }

    /// Writes, reads and deletes a small object.
    async fn check(&self) -> Result<(), Error> {
        let path = self.path(&format!("visavis-check-{}", crate::store::new_id()));
        let content = Bytes::from_static(b"visavis check");
        self.store.put(&path, content.clone().into()).await?;
        let read = self.store.get(&path).await?.bytes().await?;
        self.store.delete(&path).await?;
        if read == content { Ok(()) } else { Err(Error::Url("it returns other data".into())) }
    }
}

/// Creates a folder that only the owner may use, if it does not exist.
fn create_private_folder(folder: &Path) -> Result<(), Error> {
    let mut builder = std::fs::DirBuilder::new();
    let created = builder.recursive(true).mode(0o700).create(folder);
    created.map_err(|error| Error::file(folder, error))
}

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

async fn send_parts(
    upload: &mut WriteMultipart,
    input: &mut tokio::fs::File,
    file: &Path,
) -> Result<(), Error> {
    let mut buffer = vec![0; 1 << 20];
    loop {
        let length = input.read(&mut buffer).await.map_err(|error| Error::file(file, error))?;
        if length == 0 {
            return Ok(());
        }
        upload.wait_for_capacity(CONCURRENT_PARTS).await?;
        upload.write(&buffer[..length]);
    }
}

/// Checks that recordings can be stored: where they are, or why they cannot be stored, each in one
/// sentence. Creates no folder.
///
/// # Errors
/// The storage cannot be written, read or changed.
pub async fn check(data: &Path, config: &StorageConfig) -> Result<String, String> {
    let place = config.url.clone().unwrap_or_else(|| {
        let folder: PathBuf = data.join(STORAGE_FOLDER);
        folder.display().to_string()
    });
    let folder = match config.url.as_deref().map(Url::parse) {
        None => Some(data.join(STORAGE_FOLDER)),
        Some(Ok(url)) if url.scheme() == "file" => url.to_file_path().ok(),
        Some(_) => None,
    };
    if folder.is_some_and(|folder| !folder.exists()) {
        return Ok(format!("recordings are stored in {place}, which the first start creates"));
    }
    let storage = Storage::open(data, config).map_err(|error| error.to_string())?;
    match tokio::time::timeout(CHECK_TIMEOUT, storage.check()).await {
        Ok(Ok(())) => Ok(format!("recordings are stored in {place}")),
        Ok(Err(error)) => Err(format!("recordings cannot be stored in {place}: {error}")),
        Err(_) => Err(format!(
            "recordings cannot be stored in {place}: no answer within {} s",
            CHECK_TIMEOUT.as_secs()
        )),
    }
}
