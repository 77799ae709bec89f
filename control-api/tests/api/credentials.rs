//! The keys of a workspace at vendors and services.

use control_api::keys;
use serde_json::{Value, json};
use sqlx::Connection as _;

use crate::harness::{TempFolder, TestServer};

const PATH: &str = "/v1/ext/credentials";
const SECRET: &str = "sk-the-secret-of-this-test";

/// The LLM choice of a new call of an agent with this LLM.
async fn offered_llm(server: &TestServer, llm: Value) -> (Option<String>, Option<String>) {
    let avatars = json!([{"avatar_key_id": "ada", "config": {"llm": llm}}]);
    let agent = server.create_agent(json!({"avatars": avatars})).await;
    let (_, token) = server.create_conversation(&agent).await;
    let offer = json!({"sdp": "v=0", "type": "offer"});
    let request =
        server.request("POST", "/api/offer").header("authorization", format!("Bearer {token}"));
    let request = request.header("content-type", "application/json").body(offer.to_string());
    server.send(request).await.expect_status(200);
    let offers = server.engine.offers.lock().unwrap();
    let llm = &offers.last().unwrap().config.llm;
    (llm.url.clone(), llm.token.clone())
}

#[tokio::test]
async fn a_key_is_stored_encrypted_and_read_as_stars() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    assert_eq!(server.get(PATH).await.expect_status(200), json!([]));
    let stored = server
        .send_json("PUT", &format!("{PATH}/11labs"), json!({"token": format!(" {SECRET} ")}))
        .await;
    stored.assert_is(200, json!({"id": "elevenlabs", "message": "Credential stored"}));
    let list = server.get(PATH).await;
    assert!(!list.text.contains(SECRET) && list.header("x-total-count") == "1", "{list:?}");
    let list = list.expect_status(200);
    assert_eq!(
        (&list[0]["name"], &list[0]["display_name"], &list[0]["token"], &list[0]["url"]),
        (&json!("elevenlabs"), &json!("ElevenLabs"), &json!("***"), &Value::Null)
    );
    let mut connection = folder.connect().await;
    let row: String = sqlx::query_scalar("SELECT secrets FROM credential")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
    assert!(!row.contains(SECRET), "it is encrypted");
    let providers =
        server.get("/v1/ext/providers?search=elevenlabs&type=tts").await.expect_status(200);
    assert_eq!(
        (&providers[0]["source"], &providers[0]["configured"]),
        (&json!("workspace"), &json!(true))
    );
    let path = format!("{PATH}/elevenlabs");
    server
        .delete(&path)
        .await
        .assert_is(200, json!({"id": "elevenlabs", "message": "Credential deleted"}));
    server.delete(&path).await.assert_is(404, json!({"message": "Credential not found"}));
    let providers =
        server.get("/v1/ext/providers?search=elevenlabs&type=tts").await.expect_status(200);
    assert_eq!(providers[0]["source"], "none");
}

#[tokio::test]
async fn an_agent_without_a_key_uses_the_one_of_its_workspace_at_its_address_only() {
    let folder = TempFolder::new();
    let mut server = TestServer::start(&folder).await;
    let url = "http://127.0.0.1:9/v1";
    let put = |body: Value| server.send_json("PUT", "/v1/ext/credentials/openai", body);
    put(json!({"token": SECRET, "url": url})).await.expect_status(200);
    let some = |text: &str| Some(text.to_owned());
    let openai = || json!({"provider": "openai"});
    assert_eq!(offered_llm(&server, openai()).await, (some(url), some(SECRET)));
    let elsewhere = json!({"provider": "openai", "url": "http://127.0.0.1:10/v1"});
    assert_eq!(offered_llm(&server, elsewhere).await, (some("http://127.0.0.1:10/v1"), None));
    let own = json!({"provider": "openai", "token": "own"});
    assert_eq!(offered_llm(&server, own).await, (None, some("own")));
    // The stars keep the key, but never for another address.
    put(json!({"token": "***", "url": url})).await.expect_status(200);
    assert_eq!(offered_llm(&server, openai()).await, (some(url), some(SECRET)));
    for body in [json!({"token": "***", "url": "http://127.0.0.1:11/v1"}), json!({"token": "***"})]
    {
        let refused = put(body).await.expect_status(400);
        assert_eq!(refused["details"][0]["field"], "token");
    }
    server.key =
        keys::create(&folder.0.join("data"), folder.database_url().await.as_deref(), "other")
            .await
            .unwrap();
    assert_eq!(server.get(PATH).await.expect_status(200), json!([]));
    server
        .delete("/v1/ext/credentials/openai")
        .await
        .assert_is(404, json!({"message": "Credential not found"}));
    assert_eq!(offered_llm(&server, openai()).await, (None, None));
}

#[tokio::test]
async fn bad_names_keys_and_addresses_are_refused_without_repeating_the_key() {
    let folder = TempFolder::new();
    let server = TestServer::start_with(&folder.0, |config| {
        config.allow_private_targets = Some(false);
    })
    .await;
    for name in ["nobody", "builtin", "script", "%FF"] {
        let path = format!("{PATH}/{name}");
        let unknown = json!({"message": "Provider not found"});
        server
            .send_json("PUT", &path, json!({"token": SECRET}))
            .await
            .assert_is(404, unknown.clone());
        server.delete(&path).await.assert_is(404, unknown);
    }
    let path = format!("{PATH}/openai");
    for (body, field) in [
        (json!({}), "token"),
        (json!({"token": null}), "token"),
        (json!({"token": 5}), "token"),
        (json!({"token": "***"}), "token"),
        (json!({"token": format!("{SECRET}\r\nx: y")}), "token"),
        (json!({"token": SECRET.repeat(1000)}), "token"),
        (json!({"token": SECRET, "url": 5}), "url"),
        (json!({"token": SECRET, "url": format!("https://{SECRET}@api.example")}), "url"),
        (json!({"token": SECRET, "url": "http://127.0.0.1:1"}), "url"),
        (json!({"token": SECRET, "url": "http://[fd00:ec2::254]"}), "url"),
        (json!({"token": format!("{SECRET}\0")}), "token"),
    ] {
        let refused = server.send_json("PUT", &path, body.clone()).await;
        assert!(!refused.text.contains(SECRET), "{refused:?}");
        assert_eq!(refused.expect_status(400)["details"][0]["field"], field, "{body}");
    }
    server.send_json("PUT", &path, json!([])).await.expect_status(400);
    assert_eq!(server.get(PATH).await.expect_status(200), json!([]));
}
