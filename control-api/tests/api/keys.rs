//! API keys and workspaces, and the order in which errors are reported.

use control_api::keys;
use serde_json::json;

use crate::harness::{TEST_API_KEY, TempFolder, TestServer, agent_body};

#[tokio::test]
async fn a_key_opens_its_own_workspace_only() {
    let folder = TempFolder::new();
    let mut server = TestServer::start(&folder).await;
    let id = server.create_agent(json!({})).await;
    let other =
        keys::create(&folder.0.join("data"), folder.database_url().await.as_deref(), "other")
            .await
            .unwrap();
    server.key = other;
    assert_eq!(server.get("/v1/ext/agent").await.expect_status(200), json!([]));
    server
        .get(&format!("/v1/ext/agent/{id}"))
        .await
        .assert_is(404, json!({"message": "Agent details not found"}));
    let refused = server.post("/v1/ext/conversation", json!({"agent_id": id})).await;
    refused.assert_is(404, json!({"message": "Agent details not found"}));
}

#[tokio::test]
async fn a_key_is_shown_once_and_can_be_revoked() {
    let folder = TempFolder::new();
    let mut server = TestServer::start(&folder).await;
    let created = server.post("/v1/ext/apikey", json!({"name": "CI"})).await.expect_status(201);
    let key = created["key"].as_str().unwrap().to_owned();
    assert!(key.starts_with(created["prefix"].as_str().unwrap()));
    let list = server.get("/v1/ext/apikey").await;
    assert!(!list.text.contains(&key));
    let list = list.expect_status(200);
    assert_eq!(
        (&list[0]["name"], &list[0]["prefix"], &list[0]["expires_at"]),
        (&json!("CI"), &created["prefix"], &json!(null))
    );
    server.key = key;
    server.get("/v1/ext/agent").await.expect_status(200);
    let path = format!("/v1/ext/apikey/{}", created["id"].as_str().unwrap());
    server.delete(&path).await.expect_status(200);
    let refused = json!({"error": "Unauthorized: not a valid authorization api key"});
    server.get("/v1/ext/agent").await.assert_is(401, refused);
    server.key = TEST_API_KEY.into();
    server.delete(&path).await.assert_is(404, json!({"message": "API key not found"}));
    let refused = server
        .post("/v1/ext/apikey", json!({"name": "old", "expires_at": "2020-01-01T00:00:00Z"}))
        .await
        .expect_status(400);
    assert_eq!(refused["details"][0]["field"], "expires_at");
}

#[tokio::test]
async fn the_command_line_makes_lists_and_revokes_keys_beside_a_running_server() {
    let folder = TempFolder::new();
    let mut server = TestServer::start(&folder).await;
    let data = folder.0.join("data");
    let url = folder.database_url().await;
    let url = url.as_deref();
    server.key = keys::create(&data, url, "shop").await.unwrap();
    server.get("/v1/ext/agent").await.expect_status(200);
    let known = keys::list(&data, url).await.unwrap();
    assert_eq!((known.len(), known[0].workspace.as_str()), (1, "shop"));
    assert!(keys::revoke(&data, url, &known[0].id).await.unwrap());
    assert!(!keys::revoke(&data, url, &known[0].id).await.unwrap());
    assert_eq!(server.get("/v1/ext/agent").await.status, 401, "a revoked key is refused at once");
}

#[tokio::test]
async fn the_command_line_makes_no_key_where_no_server_was_started() {
    let folder = TempFolder::new();
    let data = folder.0.join("typo");
    let expected = format!(
        "no Visavis data in {}: start the server once, or name its folder with --data",
        data.display()
    );
    for is_there in [false, true] {
        if is_there {
            std::fs::create_dir(&data).unwrap();
            // An empty file, as before the migrations of the first start.
            std::fs::write(data.join("visavis.db"), "").unwrap();
        }
        let refused = keys::create(&data, None, "shop").await.unwrap_err();
        assert_eq!(refused.to_string(), expected);
        assert_eq!(keys::list(&data, None).await.unwrap_err().to_string(), expected);
        assert_eq!(keys::revoke(&data, None, "id").await.unwrap_err().to_string(), expected);
        assert_eq!(data.exists(), is_there, "nothing is created");
    }
    // The database of a server that was never started, if the tests have PostgreSQL.
    if let Some(url) = folder.database_url().await {
        let refused = keys::list(&data, Some(&url)).await.unwrap_err().to_string();
        assert!(
            refused.contains("it has no tables of Visavis; start the server once"),
            "{refused}"
        );
    }
}

#[tokio::test]
async fn faults_are_told_in_their_order() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let unauthorized = json!({"error": "Unauthorized: not a valid authorization api key"});
    // Path before method before key before size before media type before body.
    let request = |method, path| server.request(method, path);
    server
        .send(request("GET", "/no/such/path"))
        .await
        .assert_is(404, json!({"error": "Not found"}));
    let refused = server.send(request("PUT", "/v1/ext/agent")).await;
    assert!(refused.header("allow").contains("POST"), "{refused:?}");
    refused.assert_is(405, json!({"error": "Method not allowed"}));
    let huge = "x".repeat(10_000_000);
    let refused = server.send(request("POST", "/v1/ext/agent").body(huge.clone())).await;
    refused.assert_is(401, unauthorized.clone());
    let keyed = |method, path| request(method, path).header("x-api-key", TEST_API_KEY);
    let refused = server
        .send(keyed("POST", "/v1/ext/agent").header("content-type", "text/plain").body(huge))
        .await;
    refused.assert_is(413, json!({"error": "Request body is too large"}));
    let refused = server
        .send(keyed("POST", "/v1/ext/agent").header("content-type", "text/plain").body("{"))
        .await;
    refused.assert_is(415, json!({"error": "Content-Type must be application/json"}));
    server
        .send(keyed("POST", "/v1/ext/agent").body("{"))
        .await
        .assert_is(400, json!({"error": "Invalid request body"}));
    // A body without a media type counts as JSON.
    server
        .send(keyed("POST", "/v1/ext/agent").body(agent_body(json!({})).to_string()))
        .await
        .expect_status(200);
    let wrong = server.request("GET", "/v1/ext/agent").header("X-API-Key", "wrong");
    server.send(wrong).await.assert_is(401, unauthorized);
}

#[tokio::test]
async fn the_first_start_shows_a_key_once_and_makes_a_demo_agent() {
    let folder = TempFolder::new();
    let mut server = TestServer::start_with(&folder.0, |config| config.api_key = None).await;
    let key = server.app.bootstrap().await.unwrap().expect("a fresh folder has no key yet");
    let demo = server.app.find_demo_agent().await.unwrap().expect("the demo agent was created");
    assert_eq!(server.app.bootstrap().await.unwrap(), None);
    server.key = key;
    let agent = server.get(&format!("/v1/ext/agent/{demo}")).await.expect_status(200);
    assert_eq!(agent["embed"], json!({"enabled": true, "origins": []}));
    assert_eq!(agent["knowledge_base"][0]["no_of_rec"], 1);
    assert_eq!(agent["config"]["suggested_questions"].as_array().unwrap().len(), 3);
    let page = server.send(server.request("GET", "/")).await;
    assert!(page.text.contains(&format!("/embed/{demo}")), "{page:?}");
    server.delete(&format!("/v1/ext/agent/{demo}")).await.expect_status(200);
    assert_eq!(server.app.find_demo_agent().await.unwrap(), None);

    let key = server.key.clone();
    server.stop().await;
    let mut server = TestServer::start_with(&folder.0, |config| config.api_key = None).await;
    assert_eq!(server.app.bootstrap().await.unwrap(), None);
    server.key = key;
    assert_eq!(server.get("/v1/ext/agent").await.expect_status(200), json!([]));
}

#[tokio::test]
async fn the_demo_agent_of_a_public_server_is_not_embedded_until_the_operator_permits_it() {
    let folder = TempFolder::new();
    let server = TestServer::start_with(&folder.0, |config| {
        config.public_url = Some("http://talk.example".into());
    })
    .await;
    assert_eq!(server.app.bootstrap().await.unwrap(), None);
    let agents = server.get("/v1/ext/agent").await.expect_status(200);
    assert_eq!(
        (agents.as_array().unwrap().len(), &agents[0]["embed"]["enabled"]),
        (1, &json!(false))
    );
    assert_eq!(server.app.find_demo_agent().await.unwrap(), None);
    let page = server.send(server.request("GET", "/").header("host", "talk.example")).await;
    assert!(!page.text.contains("/embed/"), "{page:?}");
}

#[tokio::test]
async fn a_key_from_the_environment_is_not_shown_again() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    assert_eq!(server.app.bootstrap().await.unwrap(), None);
    assert!(server.app.find_demo_agent().await.unwrap().is_some());
    server.get("/v1/ext/agent").await.expect_status(200);
}

#[tokio::test]
async fn two_servers_never_share_a_folder() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let config =
        control_api::Config { data: folder.0.join("data"), ..control_api::Config::default() };
    let net = egress::Client::new(egress::Policy { allow_private: true }).unwrap();
    let second = control_api::App::open(config, Vec::new(), net).await;
    assert!(matches!(second, Err(control_api::OpenError::InUse(_))));
    drop(server);
}
