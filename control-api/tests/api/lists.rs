//! What holds for every list while records are added and removed.

use std::cell::Cell;

use serde_json::json;

use crate::harness::{TempFolder, TestServer};

#[tokio::test]
async fn a_page_and_the_number_of_all_are_of_one_moment() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let agent = server.create_agent(json!({})).await;
    let (list, made) = (["/v1/ext/guardrail", "/v1/ext/conversation?perpage=100"], Cell::new(0));
    let change = async {
        for n in 0..40 {
            let guardrail = json!({"name": format!("g{n}"), "prompt": "p"});
            let guardrail = server.post(list[0], guardrail).await.expect_status(201);
            server.create_conversation(&agent).await;
            if n % 2 == 1 {
                let path = format!("{}/{}", list[0], guardrail["id"].as_str().unwrap());
                server.delete(&path).await.expect_status(200);
            }
            made.set(made.get() + 1);
        }
    };
    let read = async {
        while made.get() < 40 {
            for path in list {
                let reply = server.get(path).await;
                let total: usize = reply.header("x-total-count").parse().unwrap();
                let page = reply.expect_status(200);
                assert_eq!(page.as_array().unwrap().len(), total, "{path}");
            }
        }
    };
    tokio::join!(change, read);
    for (path, total) in list.into_iter().zip(["20", "40"]) {
        assert_eq!(server.get(path).await.header("x-total-count"), total);
    }
}

#[tokio::test]
async fn a_search_that_nothing_can_match_is_refused_on_every_list() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let agent = server.create_agent(json!({})).await;
    let (conversation, _) = server.create_conversation(&agent).await;
    let deliveries = format!("/v1/ext/conversation/{conversation}/deliveries");
    for path in [
        "/v1/ext/agent",
        "/v1/ext/templates",
        "/v1/ext/guardrail",
        "/v1/ext/tool",
        "/v1/ext/mcp",
        "/v1/ext/kbs",
        "/v1/ext/avatars",
        "/v2/custom-avatars",
        "/v1/ext/videos",
        "/v1/ext/conversation",
        "/v1/ext/deadletters",
        "/v1/ext/apikey",
        "/v1/ext/credentials",
        "/v1/ext/providers",
        "/v1/ext/servers",
        &deliveries,
    ] {
        for (search, reason) in [
            ("%00".to_owned(), "must not contain a NUL character"),
            ("a%00b".to_owned(), "must not contain a NUL character"),
            ("x".repeat(201), "must be at most 200 characters"),
        ] {
            let fault = json!({"field": "search", "reason": reason});
            let expected = json!({"error": "Invalid request body", "details": [fault]});
            server.get(&format!("{path}?search={search}")).await.assert_is(400, expected);
        }
        assert_eq!(server.get(&format!("{path}?search=a")).await.status, 200, "{path}");
    }
}
