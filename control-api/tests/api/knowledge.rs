//! The endpoints of knowledge bases.

use serde_json::{Value, json};

use crate::harness::{Reply, TempFolder, TestServer, wait_for};

async fn upload(server: &TestServer, parts: &[(&str, Option<&str>, &str)]) -> Reply {
    let parts: Vec<_> =
        parts.iter().map(|(name, file, content)| (*name, *file, content.as_bytes())).collect();
    upload_to(server, "/v1/ext/kb", &parts).await
}

pub(crate) async fn upload_to(
    server: &TestServer,
    path: &str,
    parts: &[(&str, Option<&str>, &[u8])],
) -> Reply {
    let mut body = Vec::new();
    for (name, file, content) in parts {
        let file = file.map_or_else(String::new, |file| format!("; filename=\"{file}\""));
        let head =
            format!("--edge\r\ncontent-disposition: form-data; name=\"{name}\"{file}\r\n\r\n");
        body.extend_from_slice(&[head.as_bytes(), content, b"\r\n"].concat());
    }
    body.extend_from_slice(b"--edge--\r\n");
    let request = server.request("POST", path).header("x-api-key", &server.key);
    server
        .send(request.header("content-type", "multipart/form-data; boundary=edge").body(body))
        .await
}

/// A PDF with one line of text: a header, five objects, a cross-reference table and a trailer.
fn pdf(line: &str) -> Vec<u8> {
    let content = format!("BT /F1 24 Tf 72 700 Td ({line}) Tj ET");
    let objects = [
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>".to_owned(),
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R \
         /Resources << /Font << /F1 5 0 R >> >> >>"
            .to_owned(),
        format!("<< /Length {} >>\nstream\n{content}\nendstream", content.len()),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"
            .to_owned(),
    ];
    let mut file = String::from("%PDF-1.4\n");
    let mut places = Vec::new();
    for (i, object) in objects.iter().enumerate() {
        places.push(file.len());
        file.push_str(&format!("{} 0 obj\n{object}\nendobj\n", i + 1));
    }
    let table = file.len();
    file.push_str("xref\n0 6\n0000000000 65535 f \n");
    for place in places {
        file.push_str(&format!("{place:010} 00000 n \n"));
    }
    file.push_str(&format!("trailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n{table}\n%%EOF\n"));
    file.into_bytes()
}

/// A knowledge base as soon as each of its documents is ready or has failed.
async fn wait_for_documents(server: &TestServer, path: &str) -> Value {
    wait_for("the documents to be read", async || {
        let base = server.get(path).await.expect_status(200);
        let states = base["documents"].as_array().unwrap().iter();
        states.map(|d| &d["status"]).all(|s| s == "ready" || s == "error").then_some(base)
    })
    .await
}

/// The search results of an agent with the knowledge base `base`.
pub(crate) async fn search_results(server: &TestServer, base: &str, question: &str) -> Vec<String> {
    let agent = server.create_agent(json!({"knowledge_base": [base]})).await;
    let (conversation, token) = server.create_conversation(&agent).await;
    let offer =
        server.request("POST", &format!("/rtc/{conversation}")).bearer_auth(&token).body("v=0");
    assert_eq!(server.send(offer).await.status, 201);
    let knowledge = server.engine.offers.lock().unwrap().last().unwrap().config.knowledge.clone();
    let Some(knowledge) = knowledge else { return Vec::new() };
    knowledge.search(question, 3).await.into_iter().map(|s| s.text).collect()
}

#[tokio::test]
async fn every_kind_of_document_is_read_in_the_background() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let pdf = pdf("The lighthouse keeper is called Ottoline.");
    let created = upload_to(
        &server,
        "/v1/ext/kb",
        &[
            ("name", None, b"K"),
            ("description", None, b"d"),
            ("input", Some("a.pdf"), &pdf),
            ("input", Some("b.html"), b"<h1>Hours</h1><p>The museum opens at ten.</p>"),
            ("input", Some("c.json"), br#"{"bakery": {"speciality": "walnut bread"}}"#),
            ("input", Some("d.csv"), b"Flower,Price\nPeony,4 euros\n"),
            ("input", Some("e.pdf"), b"%PDF-1.4 broken"),
            ("input", Some("f.txt"), b"The ferry leaves at noon."),
        ],
    )
    .await
    .expect_status(200);
    let id = created["id"].as_str().unwrap();
    let path = format!("/v1/ext/kb/{id}");
    let base = wait_for_documents(&server, &path).await;
    let statuses: Vec<(&str, &str)> = base["documents"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| (d["name"].as_str().unwrap(), d["status"].as_str().unwrap()))
        .collect();
    let ready = |name| (name, "ready");
    assert_eq!(
        statuses,
        [
            ready("a.pdf"),
            ready("b.html"),
            ready("c.json"),
            ready("d.csv"),
            ("e.pdf", "error"),
            ready("f.txt")
        ],
        "{base}"
    );
    let reason = base["documents"][4]["error_message"].as_str().unwrap();
    assert!(reason.starts_with("cannot read the PDF"), "{reason}");
    for (question, word) in [
        ("who is the lighthouse keeper", "Ottoline"),
        ("when does the museum open", "ten"),
        ("what is the speciality of the bakery", "walnut"),
        ("price of a peony", "4 euros"),
        ("when does the ferry leave", "noon"),
    ] {
        let found = search_results(&server, id, question).await;
        assert!(found.iter().any(|text| text.contains(word)), "{question}: {found:?}");
    }
}

#[tokio::test]
async fn documents_come_and_go() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let named = [("name", None, "K"), ("description", None, "d")];
    let created = upload(&server, &named).await.expect_status(200);
    let id = created["id"].as_str().unwrap();
    let (path, more) = (format!("/v1/ext/kb/{id}"), format!("/v1/ext/kb/{id}/doc"));
    let added =
        upload_to(&server, &more, &[("text", None, b"The password of the cellar is swordfish.")])
            .await;
    let added = added.expect_status(200);
    let expected = json!({
        "added": 1,
        "doc_id": added["doc_id"],
        "message": "Content added successfully to existing Knowledge Base",
    });
    assert_eq!(added, expected);
    assert_eq!(search_results(&server, id, "password of the cellar").await.len(), 1);
    let read = server.get(&path).await.expect_status(200);
    assert_eq!(
        (&read["documents"][0]["id"], &read["knowledge_base"]["no_of_rec"]),
        (&added["doc_id"], &json!(1))
    );

    let document = format!("/v1/ext/kb/doc/{}", added["doc_id"].as_str().unwrap());
    server
        .delete(&document)
        .await
        .assert_is(200, json!({"id": added["doc_id"], "message": "Document deleted successfully"}));
    assert!(
        search_results(&server, id, "password of the cellar").await.is_empty(),
        "a deleted document is not found"
    );
    for gone in [document.as_str(), "/v1/ext/kb/doc/x"] {
        server.delete(gone).await.assert_is(404, json!({"message": "Document not found"}));
    }

    let changed = server.send_json("PUT", &path, json!({"name": "N", "description": "e"})).await;
    changed.assert_is(200, json!({"id": id, "message": "Knowledge base updated successfully"}));
    let read = server.get(&path).await.expect_status(200);
    assert_eq!(
        (&read["knowledge_base"]["name"], &read["knowledge_base"]["description"]),
        (&json!("N"), &json!("e"))
    );
    let refused = server.send_json("PUT", &path, json!({"name": "N"})).await;
    refused.assert_is(
        400,
        json!({
            "error": "Invalid request body",
            "details": [{"field": "description", "reason": "is required"}],
        }),
    );
    let refused = upload_to(&server, &more, &[("name", None, b"x")]).await;
    refused.assert_is(
        400,
        json!({
            "error": "Invalid request body",
            "details": [{"field": "input", "reason": "is required"}],
        }),
    );
    let missing = json!({"message": "Knowledge Base not found"});
    let none = "/v1/ext/kb/00000000-0000-4000-8000-000000000000";
    server
        .send_json("PUT", none, json!({"name": "N", "description": "e"}))
        .await
        .assert_is(404, missing.clone());
    upload_to(&server, &format!("{none}/doc"), &[("text", None, b"x")])
        .await
        .assert_is(404, missing);
}

#[tokio::test]
async fn a_document_whose_reading_was_cut_short_is_read_after_the_restart() {
    let folder = TempFolder::new();
    let server = TestServer::start_with(&folder.0, |config| {
        // The command never ends by itself.
        config.extract_command =
            Some(["sh", "-c", "exec tail -f /dev/null", "--"].map(Into::into).to_vec());
    })
    .await;
    let parts = [
        ("name", None, "K"),
        ("description", None, "d"),
        ("input", Some("a.json"), "{\"a\": \"b\"}"),
    ];
    let created = upload(&server, &parts).await.expect_status(200);
    let path = format!("/v1/ext/kb/{}", created["id"].as_str().unwrap());
    wait_for("the reading", async || {
        let base = server.get(&path).await.expect_status(200);
        (base["documents"][0]["status"] == "processing").then_some(())
    })
    .await;
    server.stop().await;
    let server = TestServer::start(&folder).await;
    assert_eq!(wait_for_documents(&server, &path).await["documents"][0]["status"], "ready");
}

#[tokio::test]
async fn a_text_becomes_knowledge_that_the_engine_can_search() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let parts = [
        ("name", None, "Facts"),
        ("description", None, "d"),
        ("text", None, "The tower is 93 metres high."),
        ("input", Some("a.md"), "# Cats"),
    ];
    let created = upload(&server, &parts).await.expect_status(200);
    assert_eq!(created["message"], "Knowledge Base created successfully");
    let id = created["id"].as_str().unwrap();
    let read = server.get(&format!("/v1/ext/kb/{id}")).await.expect_status(200);
    assert_eq!(
        (&read["knowledge_base"]["name"], &read["knowledge_base"]["no_of_rec"]),
        (&json!("Facts"), &json!(2))
    );
    let documents = read["documents"].as_array().unwrap();
    assert_eq!((&documents[0]["type"], &documents[0]["status"]), (&json!("text"), &json!("ready")));
    assert_eq!(
        (&documents[1]["name"], &documents[1]["error_message"]),
        (&json!("a.md"), &Value::Null)
    );
    let list = server.get("/v1/ext/kbs").await;
    assert_eq!(list.header("x-total-count"), "1");
    assert_eq!(list.expect_status(200)[0]["id"], created["id"]);

    let agent = server.create_agent(json!({"knowledge_base": [id]})).await;
    let (conversation, token) = server.create_conversation(&agent).await;
    let offer =
        server.request("POST", &format!("/rtc/{conversation}")).bearer_auth(&token).body("v=0");
    assert_eq!(server.send(offer).await.status, 201);
    let knowledge = server.engine.offers.lock().unwrap()[0]
        .config
        .knowledge
        .clone()
        .expect("the agent has knowledge");
    let found = knowledge.search("how high is the tower", 3).await;
    assert_eq!(found[0].text, "The tower is 93 metres high.");
    assert_eq!(found[0].kb_id, id);

    server
        .delete(&format!("/v1/ext/kb/{id}"))
        .await
        .assert_is(200, json!({"id": id, "message": "Knowledge base deleted successfully"}));
    let missing = json!({"message": "Knowledge Base not found"});
    server.get(&format!("/v1/ext/kb/{id}")).await.assert_is(404, missing.clone());
    server.delete("/v1/ext/kb/nonsense").await.assert_is(404, missing);
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_with_a_reason() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let field = |reply: Value| reply["details"][0]["field"].as_str().unwrap().to_owned();
    assert_eq!(
        field(
            upload(&server, &[("name", None, "x"), ("text", None, "y")]).await.expect_status(400)
        ),
        "description"
    );
    let named = [("name", None, "x"), ("description", None, "d")];
    let with = |part| [named.as_slice(), &[part]].concat();
    assert_eq!(
        field(upload(&server, &with(("input", Some("a.exe"), "MZ"))).await.expect_status(400)),
        "input"
    );
    assert_eq!(
        field(upload(&server, &with(("text", None, "  "))).await.expect_status(400)),
        "text"
    );
    let large = "x".repeat((10 << 20) + 1);
    assert_eq!(
        field(upload(&server, &with(("text", None, &large))).await.expect_status(400)),
        "text"
    );
    let json = server.post("/v1/ext/kb", json!({"name": "x"})).await;
    json.assert_is(415, json!({"error": "Content-Type must be multipart/form-data"}));
}
