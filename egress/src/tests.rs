use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use super::*;

/// Serves connections one after the other on its own port; `answer` gets the head of each request.
fn serve(mut answer: impl FnMut(&mut TcpStream, String) + Send + 'static) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            loop {
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    if reader.read_line(&mut head).unwrap_or(0) == 0 {
                        break;
                    }
                }
                if head.is_empty() {
                    break;
                }
                answer(&mut stream, head);
            }
        }
    });
    port
}

fn respond_ok(stream: &mut TcpStream, body: &str) {
    write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
}

fn get(url: &str) -> Request {
    Request::new(Method::GET, url).unwrap().timeout(Some(Duration::from_secs(60)))
}

fn permissive_client() -> Client {
    Client::new(Policy { allow_private: true }).unwrap()
}

/// A client whose resolver returns these answers in turn, repeats the last one, and counts its
/// calls.
fn client_resolving_to(
    allow_private: bool,
    answers: Vec<Vec<IpAddr>>,
) -> (Client, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let lookup: Lookup = Arc::new(move |_| {
        let n = count.fetch_add(1, Ordering::SeqCst);
        let answer = answers[n.min(answers.len() - 1)].clone();
        Box::pin(async move { Ok(answer) })
    });
    (Client::with_lookup(Policy { allow_private }, lookup).unwrap(), calls)
}

#[tokio::test]
async fn loopback_is_refused_in_every_notation() {
    let client = Client::new(Policy::default()).unwrap();
    for host in [
        "127.0.0.1",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "localhost",
        "0",
    ] {
        let sent = client.send(get(&format!("http://{host}:9/"))).await;
        assert_eq!(sent.unwrap_err(), Error::ForbiddenAddress, "{host}");
    }
}

#[tokio::test]
async fn metadata_services_are_refused_even_where_everything_else_is_trusted() {
    let client = permissive_client().trusted();
    for host in ["169.254.169.254", "[fd00:ec2::254]", "[::ffff:169.254.169.254]", "2852039166"] {
        assert_eq!(
            client.send(get(&format!("http://{host}/latest"))).await.unwrap_err(),
            Error::ForbiddenAddress,
            "{host}"
        );
    }
    let (client, _) = client_resolving_to(true, vec![vec!["169.254.169.254".parse().unwrap()]]);
    assert_eq!(
        client.trusted().send(get("http://metadata.google.internal/")).await.unwrap_err(),
        Error::ForbiddenAddress
    );
}

#[tokio::test]
async fn a_name_with_one_private_address_is_refused_whole() {
    let (client, _) = client_resolving_to(
        false,
        vec![vec!["93.184.216.34".parse().unwrap(), "10.0.0.1".parse().unwrap()]],
    );
    assert_eq!(
        client.send(get("http://mixed.example/")).await.unwrap_err(),
        Error::ForbiddenAddress
    );
}

#[tokio::test]
async fn trusted_requests_reach_private_targets_under_a_strict_policy() {
    let port = serve(|stream, _| respond_ok(stream, "here"));
    let client = Client::new(Policy::default()).unwrap();
    let url = format!("http://localhost:{port}/");
    assert_eq!(client.send(get(&url)).await.unwrap_err(), Error::ForbiddenAddress);
    assert_eq!(
        client.trusted().send(get(&url)).await.unwrap().body().await.unwrap().text(),
        "here"
    );
    // An open connection of the trusted client does not bypass the policy.
    assert_eq!(client.send(get(&url)).await.unwrap_err(), Error::ForbiddenAddress);
}

#[tokio::test]
async fn a_kept_connection_is_used_again_and_a_new_one_is_checked_again() {
    let port = serve(|stream, head| {
        let last = head.starts_with("GET /last");
        let close = if last { "connection: close\r\n" } else { "" };
        write!(stream, "HTTP/1.1 200 OK\r\n{close}content-length: 2\r\n\r\nhi").unwrap();
        if last {
            stream.shutdown(std::net::Shutdown::Both).unwrap();
        }
    });
    // DNS rebinding: the name moves to a forbidden address after its first resolution.
    let (client, calls) = client_resolving_to(
        true,
        vec![vec![Ipv4Addr::LOCALHOST.into()], vec!["169.254.169.254".parse().unwrap()]],
    );
    let url = |path| format!("http://pinned.example:{port}/{path}");
    for path in ["1", "2", "last"] {
        assert_eq!(client.send(get(&url(path))).await.unwrap().body().await.unwrap().text(), "hi");
    }
    assert_eq!(calls.load(Ordering::SeqCst), 1, "one resolution for one connection");
    assert_eq!(client.send(get(&url("again"))).await.unwrap_err(), Error::ForbiddenAddress);
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn redirects_are_answers_like_any_other() {
    let port = serve(|stream, head| {
        assert!(!head.starts_with("GET /secret"), "the redirect was followed");
        write!(stream, "HTTP/1.1 302 Found\r\nlocation: /secret\r\ncontent-length: 0\r\n\r\n")
            .unwrap();
    });
    let response =
        permissive_client().send(get(&format!("http://127.0.0.1:{port}/"))).await.unwrap();
    assert_eq!((response.status(), response.header("location")), (302, Some("/secret")));
    assert!(!response.is_success());
}

#[tokio::test]
async fn a_server_that_says_nothing_times_out() {
    let (hold, held) = mpsc::channel::<()>();
    let port = serve(move |_, _| assert!(held.recv().is_err()));
    let sent = permissive_client()
        .send(get(&format!("http://127.0.0.1:{port}/")).timeout(Some(Duration::from_millis(150))))
        .await;
    assert_eq!(sent.unwrap_err(), Error::Timeout);
    drop(hold);
}

#[tokio::test]
async fn long_answers_are_cut_or_refused() {
    let port = serve(|stream, _| respond_ok(stream, &"ä".repeat(1000)));
    let url = format!("http://127.0.0.1:{port}/");
    let body = permissive_client().send(get(&url).limit(101)).await.unwrap().body().await.unwrap();
    assert!(body.truncated);
    assert_eq!((body.bytes.len(), body.text()), (101, "ä".repeat(50)));
    let body = permissive_client().send(get(&url).limit(2000)).await.unwrap().body().await.unwrap();
    assert_eq!((body.truncated, body.bytes.len()), (false, 2000));
    let mut response = permissive_client().send(get(&url).limit(101)).await.unwrap();
    let error = loop {
        match response.chunk().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the limit was exceeded"),
            Err(error) => break error,
        }
    };
    assert_eq!(error, Error::TooLarge);
}

#[tokio::test]
async fn pieces_arrive_while_the_answer_is_still_being_written() {
    let (go, wait) = mpsc::channel::<()>();
    let port = serve(move |stream, _| {
        write!(stream, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
            .unwrap();
        wait.recv().unwrap();
        write!(stream, "3\r\ntwo\r\n0\r\n\r\n").unwrap();
    });
    let mut response = permissive_client()
        .send(get(&format!("http://127.0.0.1:{port}/")).timeout(None))
        .await
        .unwrap();
    assert_eq!(response.chunk().await.unwrap().unwrap(), "one");
    go.send(()).unwrap();
    assert_eq!(response.chunk().await.unwrap().unwrap(), "two");
    assert_eq!(response.chunk().await.unwrap(), None);
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_broken() {
    let port = serve(|stream, _| {
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf").unwrap();
        stream.shutdown(std::net::Shutdown::Both).unwrap();
    });
    let response =
        permissive_client().send(get(&format!("http://127.0.0.1:{port}/"))).await.unwrap();
    assert!(matches!(response.body().await, Err(Error::Connection(_))));
}

#[tokio::test]
async fn errors_name_the_host_and_no_more() {
    // Bound, so that no other process gets the port, and never listening.
    let refusing = tokio::net::TcpSocket::new_v4().unwrap();
    refusing.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let free = refusing.local_addr().unwrap().port();
    let url = format!("http://me:hush@127.0.0.1:{free}/hook/hush?key=hush");
    let Error::Connection(words) = permissive_client().send(get(&url)).await.unwrap_err() else {
        panic!("not broken")
    };
    assert!(words.starts_with("cannot connect to 127.0.0.1"), "{words}");
    assert!(!words.contains("hush"), "{words}");
}

#[test]
fn only_http_and_clean_headers_are_taken() {
    for url in
        ["ftp://example.com/", "file:///etc/passwd", "javascript:alert(1)", "no url", "http://"]
    {
        assert!(matches!(Request::new(Method::GET, url), Err(Error::Invalid(_))), "{url}");
    }
    for (name, value) in [
        ("x-a", "b\r\nx-c: d"),
        ("x-a", "b\nc"),
        ("x-a\r\nx-b", "c"),
        ("x a", "b"),
        ("Host", "other"),
        ("content-length", "9"),
    ] {
        let request = Request::new(Method::GET, "http://example.com/").unwrap();
        let Err(Error::Invalid(words)) = request.header(name, value) else {
            panic!("{name}: {value} was accepted")
        };
        assert!(!words.contains('\n') && !words.contains("c: d"), "{words}");
    }
}

#[tokio::test]
async fn the_request_is_sent_as_asked() {
    let (head_sender, head_receiver) = mpsc::channel();
    let port = serve(move |stream, head| {
        head_sender.send(head).unwrap();
        // The body is not read: the connection ends here.
        respond_ok(stream, "");
        stream.shutdown(std::net::Shutdown::Both).unwrap();
    });
    let request = Request::new(Method::POST, &format!("http://127.0.0.1:{port}/a?b=c")).unwrap();
    let request = request.header("X-One", "1").unwrap().bearer("token").unwrap().json("{}");
    assert_eq!(permissive_client().send(request).await.unwrap().status(), 200);
    let head = head_receiver.recv().unwrap().to_lowercase();
    assert!(head.starts_with("post /a?b=c http/1.1"));
    for line in [
        "x-one: 1\r\n",
        "authorization: bearer token\r\n",
        "content-type: application/json\r\n",
        "content-length: 2\r\n",
    ] {
        assert!(head.contains(line), "{line} is missing in {head}");
    }
}
