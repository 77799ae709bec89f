use std::net::Ipv4Addr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::handshake::server::{Request as Handshake, Response as Reply};

use super::*;
use crate::Policy;

async fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

fn permissive_client() -> Client {
    Client::new(Policy { allow_private: true }).unwrap()
}

/// A server that accepts one connection, and what its handshake contained.
async fn accept(listener: TcpListener) -> (WebSocketStream<TcpStream>, Handshake) {
    let (stream, _) = listener.accept().await.unwrap();
    let mut handshake = None;
    #[expect(clippy::result_large_err, reason = "the signature of the crate")]
    let inspect = |request: &Handshake, reply: Reply| {
        handshake = Some(request.clone());
        Ok(reply)
    };
    let stream = tokio_tungstenite::accept_hdr_async(stream, inspect).await.unwrap();
    (stream, handshake.unwrap())
}

/// Answers the first request with these bytes.
async fn answer(listener: TcpListener, reply: &str) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    stream.write_all(reply.as_bytes()).await.unwrap();
}

#[tokio::test]
async fn messages_pass_in_both_directions_until_the_server_closes() {
    let (listener, port) = listen().await;
    let server = async {
        let (mut stream, handshake) = accept(listener).await;
        assert_eq!(handshake.headers()["authorization"], "Token secret");
        assert_eq!(handshake.uri(), "/v1/listen?model=nova-3");
        while let Some(Ok(frame)) = stream.next().await {
            if frame == Frame::text("close") {
                let frame = CloseFrame { code: CloseCode::Error, reason: "no audio".into() };
                stream.close(Some(frame)).await.unwrap();
            } else if frame.is_text() || frame.is_binary() {
                stream.send(Frame::Ping(Bytes::new())).await.unwrap();
                stream.send(frame).await.unwrap();
            }
        }
    };
    let client = async {
        let url = format!("ws://127.0.0.1:{port}/v1/listen?model=nova-3");
        let request = Request::websocket(&url).unwrap();
        let request = request.header("authorization", "Token secret").unwrap();
        let mut socket = permissive_client().connect(request).await.unwrap();
        socket.send_text("hello").await.unwrap();
        assert_eq!(socket.receive().await, Ok(Some(Message::Text("hello".into()))));
        socket.send_binary(vec![0, 255]).await.unwrap();
        let bytes = Bytes::from_static(&[0, 255]);
        assert_eq!(socket.receive().await, Ok(Some(Message::Binary(bytes))));
        socket.ping().await.unwrap();
        socket.send_text("close").await.unwrap();
        let close = Message::Close { code: 1011, reason: "no audio".into() };
        assert_eq!(socket.receive().await, Ok(Some(close)));
        assert_eq!(socket.receive().await, Ok(None));
        assert!(socket.send_text("late").await.is_err());
    };
    tokio::join!(server, client);
}

#[tokio::test]
async fn a_connection_that_breaks_is_an_error_that_names_the_host_only() {
    let (listener, port) = listen().await;
    let server = async { drop(accept(listener).await) };
    let client = async {
        let request = Request::websocket(&format!("http://127.0.0.1:{port}/secret")).unwrap();
        let mut socket = permissive_client().connect(request).await.unwrap();
        let error = socket.receive().await.unwrap_err().to_string();
        assert!(error.contains("127.0.0.1") && !error.contains("secret"), "{error}");
    };
    tokio::join!(server, client);
}

#[tokio::test]
async fn a_refusal_has_its_status_its_delay_and_the_server_s_words() {
    let reply = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\ncontent-length: 9\r\n\r\n\
                 {\"a\":\"b\"}";
    let (listener, port) = listen().await;
    let request = Request::websocket(&format!("ws://127.0.0.1:{port}/")).unwrap();
    let client = permissive_client();
    let (refused, ()) = tokio::join!(client.connect(request), answer(listener, reply));
    let Err(HandshakeError::Refused(refusal)) = refused else { panic!("{refused:?}") };
    assert_eq!(refusal.status, 429);
    assert_eq!(refusal.retry_after, Some(Duration::from_secs(7)));
    assert_eq!(refusal.body, "{\"a\":\"b\"}");
}

#[tokio::test]
async fn another_server_is_recognized() {
    for (reply, expected) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "with status 200"),
        (
            "HTTP/1.1 302 Found\r\nlocation: ws://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
            "with status 302",
        ),
        (
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-accept: wrong\r\n\r\n",
            "does not speak WebSocket",
        ),
        ("gibberish\r\n\r\n", "127.0.0.1"),
    ] {
        let (listener, port) = listen().await;
        let request = Request::websocket(&format!("ws://127.0.0.1:{port}/")).unwrap();
        let client = permissive_client();
        let (refused, ()) = tokio::join!(client.connect(request), answer(listener, reply));
        let error = refused.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn private_addresses_need_the_operator_s_permission() {
    let client = Client::new(Policy::default()).unwrap();
    for url in ["ws://127.0.0.1:9/", "ws://localhost:9/", "wss://[::1]:9/"] {
        let refused = client.connect(Request::websocket(url).unwrap()).await;
        let forbidden = matches!(refused, Err(HandshakeError::Request(Error::ForbiddenAddress)));
        assert!(forbidden, "{url}: {refused:?}");
    }
    let (listener, port) = listen().await;
    let request = Request::websocket(&format!("ws://127.0.0.1:{port}/")).unwrap();
    let trusted = client.trusted();
    let (opened, _) = tokio::join!(trusted.connect(request), accept(listener));
    assert!(opened.is_ok());
}

#[tokio::test]
async fn other_schemes_are_refused() {
    for url in ["ftp://host/", "file:///etc/passwd", "host", "ws:///"] {
        assert!(matches!(Request::websocket(url), Err(Error::Invalid(_))), "{url}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_is_given_up() {
    let (_listener, port) = listen().await;
    let request = Request::websocket(&format!("ws://127.0.0.1:{port}/")).unwrap();
    let refused = permissive_client().connect(request).await;
    assert!(matches!(refused, Err(HandshakeError::Request(Error::Timeout))), "{refused:?}");
}
