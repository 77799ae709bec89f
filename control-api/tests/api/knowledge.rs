//! Knowledge bases.

use serde_json::{Value, json};

use crate::kit::{Folder, Reply, Server};

async fn upload(server: &Server, parts: &[(&str, Option<&str>, &str)]) -> Reply {
    let mut body = String::new();
    for (name, file, content) in parts {
        let file = file.map_or_else(String::new, |file| format!("; filename=\"{file}\""));
        body.push_str(&format!(
            "--edge\r\ncontent-disposition: form-data; name=\"{name}\"{file}\r\n\r\n{content}\r\n"
        ));
    }
    body.push_str("--edge--\r\n");
    let request = server.request("POST", "/v1/ext/kb").header("x-api-key", &server.key);
    server.send(request.header("content-type", "multipart/form-data; boundary=edge").body(body)).await
}

#[tokio::test]
async fn a_text_becomes_knowledge_that_the_engine_can_search() {
    let folder = Folder::new();
    let server = Server::start(&folder).await;
    let parts = [
        ("name", None, "Facts"),
        ("description", None, "d"),
        ("text", None, "The tower is 93 metres high."),
        ("input", Some("a.md"), "# Cats"),
    ];
    let made = upload(&server, &parts).await.expect(200);
    assert_eq!(made["message"], "Knowledge Base created successfully");
    let id = made["id"].as_str().unwrap();
    let read = server.get(&format!("/v1/ext/kb/{id}")).await.expect(200);
    assert_eq!(
        (&read["knowledge_base"]["name"], &read["knowledge_base"]["no_of_rec"]),
        (&json!("Facts"), &json!(2))
    );
    let documents = read["documents"].as_array().unwrap();
    assert_eq!((&documents[0]["type"], &documents[0]["status"]), (&json!("text"), &json!("ready")));
    assert_eq!((&documents[1]["name"], &documents[1]["error_message"]), (&json!("a.md"), &Value::Null));
    let list = server.get("/v1/ext/kbs").await;
    assert_eq!(list.header("x-total-count"), "1");
    assert_eq!(list.expect(200)[0]["id"], made["id"]);

    let agent = server.agent(json!({"knowledge_base": [id]})).await;
    let (conversation, token) = server.conversation(&agent).await;
    let offer = server.request("POST", &format!("/rtc/{conversation}")).bearer_auth(&token).body("v=0");
    assert_eq!(server.send(offer).await.status, 201);
    let knowledge =
        server.stage.offers.lock().unwrap()[0].call.knowledge.clone().expect("the agent knows something");
    let found = knowledge.search("how high is the tower", 3);
    assert_eq!(found[0].text, "The tower is 93 metres high.");
    assert_eq!(found[0].kb_id, id);

    server
        .delete(&format!("/v1/ext/kb/{id}"))
        .await
        .is(200, json!({"id": id, "message": "Knowledge base deleted successfully"}));
    let missing = json!({"message": "Knowledge Base not found"});
    server.get(&format!("/v1/ext/kb/{id}")).await.is(404, missing.clone());
    server.delete("/v1/ext/kb/nonsense").await.is(404, missing);
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_with_a_reason() {
    let folder = Folder::new();
    let server = Server::start(&folder).await;
    let field = |reply: Value| reply["details"][0]["field"].as_str().unwrap().to_owned();
    assert_eq!(
        field(upload(&server, &[("name", None, "x"), ("text", None, "y")]).await.expect(400)),
        "description"
    );
    let named = [("name", None, "x"), ("description", None, "d")];
    let with = |part| [named.as_slice(), &[part]].concat();
    assert_eq!(field(upload(&server, &with(("input", Some("a.pdf"), "%PDF"))).await.expect(400)), "input");
    assert_eq!(field(upload(&server, &with(("text", None, "  "))).await.expect(400)), "text");
    let large = "x".repeat((10 << 20) + 1);
    assert_eq!(field(upload(&server, &with(("text", None, &large))).await.expect(400)), "text");
    let json = server.post("/v1/ext/kb", json!({"name": "x"})).await;
    json.is(415, json!({"error": "Content-Type must be multipart/form-data"}));
}
