//! For tests: the server of a vendor on the loopback device, in virtual time.
//!
//! A paused clock does not move by itself while a [`Loopback`] exists, although all tasks wait. It
//! moves by [`clock`] alone, so a test does not depend on the speed of the machine.

pub(crate) mod clock;
pub(crate) mod exchange;
pub(crate) mod json;
mod probe;
pub(crate) mod random;
pub(crate) mod refusals;
pub(crate) mod sentences;
pub(crate) mod socket;

use std::net::Ipv4Addr;

use tokio::net::{TcpListener, TcpStream};

pub(crate) use clock::{advance, settle, soon, within};
pub(crate) use exchange::{Exchange, Status};
pub(crate) use random::Random;
pub(crate) use sentences::{Logs, assert_clear, assert_no_key};
pub(crate) use socket::{Frame, Socket};

/// The key of the vendor. No sentence and no line of the log contains six characters of it.
pub(crate) const KEY: &str = "key-0123456789abcdef";

/// A server.
pub(crate) struct Loopback {
    /// `None` = connections are refused.
    pub(crate) listener: Option<TcpListener>,
    address: String,
    /// While it exists, the paused clock does not move by itself.
    _clock: std::sync::mpsc::Sender<()>,
}

impl Loopback {
    pub(crate) async fn bind() -> Self {
        let (hold, held) = std::sync::mpsc::channel::<()>();
        tokio::task::spawn_blocking(move || held.recv());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        Self { listener: Some(listener), address, _clock: hold }
    }

    /// The address with a scheme, without a path.
    pub(crate) fn url(&self, scheme: &str) -> String {
        format!("{scheme}://{}", self.address)
    }

    /// Accepts a connection and sends nothing.
    pub(crate) async fn accept(&self) -> TcpStream {
        let stream = self.listener.as_ref().expect("a listener").accept().await.unwrap().0;
        // Small messages are not held back until earlier ones are acknowledged.
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Accepts a WebSocket.
    pub(crate) async fn socket(&self) -> Socket {
        Socket::accept(self.accept().await).await
    }

    /// Accepts a request. On a busy machine, a client may give up a connection before its request.
    pub(crate) async fn request(&self) -> Exchange {
        loop {
            if let Some(exchange) = Exchange::read(self.accept().await).await {
                return exchange;
            }
        }
    }

    /// Answers all requests with a status. Never returns.
    pub(crate) async fn refuse_all(&self, status: &Status) -> ! {
        loop {
            self.refuse(status.line, &status.body).await;
        }
    }

    /// Answers the next request with a status, such as `401 Unauthorized`, and a body. Further
    /// headers may follow the status. Returns the target of the request.
    pub(crate) async fn refuse(&self, status: &str, body: &str) -> String {
        let exchange = self.request().await;
        let target = exchange.target().to_owned();
        exchange.reply(status, body).await;
        target
    }
}

thread_local! {
    static CLIENT: egress::Client =
        egress::Client::new(egress::Policy { allow_private: true }).unwrap();
}

/// A client that may connect to the server. A test has one, because to make one takes long.
pub(crate) fn client() -> egress::Client {
    CLIENT.with(Clone::clone)
}
