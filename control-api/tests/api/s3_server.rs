//! A small S3 server, which checks signatures, and a relay in front of it that makes faults.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::harness::TempFolder;

const ACCESS_KEY: &str = "key-of-the-test";
const SECRET_KEY: &str = "secret-of-the-test";
const BUCKET: &str = "bucket";

/// What the relay does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It passes the request on.
    None,
    /// It answers 503.
    Unavailable,
    /// It closes the connection after this many bytes of the request.
    Cut(u64),
    /// It passes the request on, and the answer when the fault is over.
    Slow,
}

pub(crate) struct S3Server {
    folder: TempFolder,
    address: SocketAddr,
    fault: watch::Sender<Fault>,
    connections: Arc<Mutex<u64>>,
}

impl S3Server {
    pub(crate) async fn start() -> Self {
        let folder = TempFolder::new();
        std::fs::create_dir_all(folder.0.join(BUCKET)).unwrap();
        let server = start_server(&folder).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (fault, faults) = watch::channel(Fault::None);
        let connections = Arc::<Mutex<u64>>::default();
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                *count.lock().unwrap() += 1;
                let faults = faults.clone();
                // A client that closes its connection is no failure of the test.
                tokio::spawn(async move { relay(client, server, faults).await.ok() });
            }
        });
        Self { folder, address, fault, connections }
    }

    /// The configuration of a server that stores here, with this secret.
    pub(crate) fn config(&self, secret: Option<&str>) -> control_api::StorageConfig {
        let options = [
            ("AWS_ENDPOINT", format!("http://{}", self.address)),
            ("AWS_ALLOW_HTTP", "true".into()),
            ("AWS_REGION", "us-east-1".into()),
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY.into()),
            ("AWS_SECRET_ACCESS_KEY", secret.unwrap_or(SECRET_KEY).into()),
        ];
        control_api::StorageConfig {
            url: Some(format!("s3://{BUCKET}/calls")),
            options: options.map(|(name, value)| (name.into(), value)).to_vec(),
        }
    }

    pub(crate) fn set_fault(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }

    /// Number of connections so far.
    pub(crate) fn connections(&self) -> u64 {
        *self.connections.lock().unwrap()
    }

    /// The objects whose names begin with a folder, as files.
    pub(crate) fn objects(&self, folder: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.folder.0.join(BUCKET).join("calls").join(folder));
        entries.into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
    }
}

async fn start_server(folder: &TempFolder) -> SocketAddr {
    let mut builder = S3ServiceBuilder::new(FileSystem::new(&folder.0).unwrap());
    builder.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
    let service = builder.build();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service.clone());
            tokio::spawn(async move { connection.await.ok() });
        }
    });
    address
}

async fn relay(
    mut client: TcpStream,
    server: SocketAddr,
    mut faults: watch::Receiver<Fault>,
) -> std::io::Result<()> {
    let fault = *faults.borrow();
    if fault == Fault::Unavailable {
        let _ = client.read(&mut [0; 4096]).await?;
        let answer = b"HTTP/1.1 503 Slow Down\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        return client.write_all(answer).await;
    }
    let mut server = TcpStream::connect(server).await?;
    match fault {
        Fault::Cut(bytes) => {
            let (from_client, mut to_client) = client.split();
            let (mut from_server, mut to_server) = server.split();
            let mut request = from_client.take(bytes);
            tokio::select! {
                sent = tokio::io::copy(&mut request, &mut to_server) => drop(sent?),
                answered = tokio::io::copy(&mut from_server, &mut to_client) => drop(answered?),
            }
            return Ok(());
        }
        Fault::Slow => {
            let (mut from_client, mut to_client) = client.split();
            let (mut from_server, mut to_server) = server.split();
            let request = tokio::io::copy(&mut from_client, &mut to_server);
            let answer = async {
                // The sender lives as long as the test.
                let _ = faults.wait_for(|fault| *fault != Fault::Slow).await;
                tokio::io::copy(&mut from_server, &mut to_client).await
            };
            tokio::try_join!(request, answer)?;
        }
        _ => drop(tokio::io::copy_bidirectional(&mut client, &mut server).await?),
    }
    Ok(())
}
