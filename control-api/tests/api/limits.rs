//! Limits, the check of the Host header, headers of every response, health and metrics.

use std::sync::atomic::Ordering;

use engine_api::MissingModel;
use serde_json::json;

use crate::harness::{TempFolder, TestServer};

#[tokio::test]
async fn a_key_that_asks_too_often_is_told_when_to_come_back() {
    let folder = TempFolder::new();
    let server = TestServer::start_with(&folder.0, |config| config.limits.per_key = 2).await;
    for _ in 0..2 {
        server.get("/v1/ext/avatars").await.expect_status(200);
    }
    let refused = server.get("/v1/ext/avatars").await;
    assert_eq!(refused.header("ratelimit-limit"), "2");
    assert_eq!(refused.header("ratelimit-remaining"), "0");
    assert!(refused.header("retry-after").parse::<u32>().unwrap() <= 30);
    assert!(refused.header("ratelimit-reset").parse::<u32>().unwrap() <= 60);
    refused.assert_is(429, json!({"error": "Too many requests"}));
}

#[tokio::test]
async fn addresses_are_limited_where_the_server_is_public() {
    let folder = TempFolder::new();
    let server = TestServer::start_with(&folder.0, |config| {
        config.public_url = Some("http://talk.example".into());
        config.limits.embeds = 1;
        config.limits.offers = 1;
    })
    .await;
    let agent = server.create_agent(json!({"embed": {"enabled": true}})).await;
    // Behind a proxy on this machine, the client's address is the last one that the proxy reports.
    let click = async |from: &str| {
        let request = server
            .request("POST", &format!("/embed/{agent}"))
            .header("x-forwarded-for", format!("6.6.6.6, {from}"));
        server.send(request.body("{}")).await
    };
    let created = click("192.0.2.1").await.expect_status(200);
    assert!(created["url"].as_str().unwrap().starts_with("http://talk.example/join/"));
    assert_eq!(click("192.0.2.1").await.status, 429);
    assert_eq!(click("192.0.2.2").await.status, 200);
    let (id, token) =
        (created["conversationId"].as_str().unwrap(), created["token"].as_str().unwrap());
    let offer = async || {
        server
            .send(server.request("POST", &format!("/rtc/{id}")).bearer_auth(token).body("v=0"))
            .await
    };
    assert_eq!(offer().await.status, 201);
    let refused = offer().await;
    assert_eq!((refused.status, refused.header("access-control-allow-origin")), (429, "*"));
}

#[tokio::test]
async fn a_page_elsewhere_cannot_reach_a_loopback_server_by_a_name_of_its_own() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let with = |host: &str| server.request("GET", "/healthz").header("host", host.to_owned());
    assert_eq!(server.send(with("localhost:1234")).await.status, 200);
    let reason = "the server is for this machine only; behind a proxy, set server.public_url to \
                  the address that browsers open";
    let body = json!({"error": "Unknown host", "reason": reason});
    server.send(with("evil.example")).await.assert_is(421, body);
}

#[tokio::test]
async fn every_answer_has_the_headers_that_protect_pages() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    for path in
        ["/", "/healthz", "/nothing", "/v1/ext/agent", "/join/00000000-0000-4000-8000-000000000000"]
    {
        let reply = server.send(server.request("GET", path)).await;
        assert_eq!(reply.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(reply.header("referrer-policy"), "no-referrer", "{path}");
        assert!(reply.header("content-security-policy").contains("default-src 'none'"), "{path}");
    }
}

#[tokio::test]
async fn health_and_readiness_are_open_and_tell_what_is_missing() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    server.send(server.request("GET", "/healthz")).await.assert_is(200, json!({"status": "ok"}));
    server.wait_for_readiness(200, json!({"status": "ready"})).await;
    let reason = "media threads that have failed and are restarting: 1 of 2";
    *server.engine.degraded_reason.lock().unwrap() = Some(reason.into());
    server.wait_for_readiness(200, json!({"status": "ready", "reason": reason})).await;
    server.engine.loading.store(true, Ordering::Relaxed);
    server.wait_for_readiness(503, json!({"status": "not ready", "reason": "models load"})).await;
}

#[tokio::test]
async fn a_server_without_a_voice_says_so_before_the_microphone_is_asked_for() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let agent = server.create_agent(json!({"embed": {"enabled": true}})).await;
    let (id, token) = server.create_conversation(&agent).await;
    let model = |name, kind, needed| MissingModel {
        name,
        kind,
        needed,
        reason: format!("{name} is not installed"),
    };
    *server.engine.missing_models.lock().unwrap() =
        vec![model("flite", "tts", true), model("smart-turn", "turn", false)];
    let missing = json!([
        {"name": "flite", "kind": "tts", "needed": true, "reason": "flite is not installed"},
        {"name": "smart-turn", "kind": "turn", "needed": false,
            "reason": "smart-turn is not installed"},
    ]);
    // A hosted voice serves.
    server.wait_for_readiness(200, json!({"status": "ready", "missing": missing})).await;
    *server.engine.call_obstacle.lock().unwrap() = Some("no TTS engine is installed".into());
    let refused = json!({"error": "Service unavailable", "reason": "no TTS engine is installed"});
    server.post(&format!("/embed/{agent}"), json!({})).await.assert_is(503, refused.clone());
    // A conversation that was created before is refused in the same way when somebody joins.
    let offer = server.request("POST", &format!("/rtc/{id}")).bearer_auth(&token);
    let offer = offer.header("content-type", "application/sdp").body("v=0 offer");
    server.send(offer).await.assert_is(503, refused);
    assert!(server.engine.offers.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_server_without_room_takes_no_new_conversations_and_says_so() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let agent = server.create_agent(json!({"embed": {"enabled": true}})).await;
    let running = server.create_running_call(json!({})).await;
    *server.engine.capacity_error.lock().unwrap() =
        Some("the media threads have no CPU time for another call".into());
    let overload = "the media threads have no CPU time for another call";
    let refused = format!("{{\"error\":\"No capacity\",\"reason\":\"{overload}\"}}");
    for (path, body) in [
        ("/v1/ext/conversation", json!({"agent_id": agent})),
        ("/v1/auth/conversation", json!({"agentId": agent})),
        (&format!("/embed/{agent}") as &str, json!({})),
    ] {
        let reply = server.post(path, body).await;
        assert_eq!((reply.status, reply.text.as_str()), (503, refused.as_str()), "{path}");
        assert_eq!(reply.header("retry-after"), "2", "{path}");
    }
    server.wait_for_readiness(503, json!({"status": "not ready", "reason": overload})).await;
    let spoken = server
        .send_json("PUT", &format!("/v1/conversation/{running}/speak"), json!({"text": "Hello."}))
        .await;
    assert_eq!(spoken.status, 200, "running calls continue");
    *server.engine.capacity_error.lock().unwrap() = None;
    assert_eq!(server.post("/v1/ext/conversation", json!({"agent_id": agent})).await.status, 201);
    server.engine.models_unavailable.store(true, Ordering::Relaxed);
    let reason = "all 2 STT decoders are in use";
    server.wait_for_readiness(503, json!({"status": "not ready", "reason": reason})).await;
    let created = server.post("/v1/ext/conversation", json!({"agent_id": agent})).await;
    assert_eq!(created.status, 201, "a decoder may be free when the user joins");
}

#[tokio::test]
async fn metrics_are_for_this_machine_or_for_the_token() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    server.create_running_call(json!({})).await;
    let text = server.send(server.request("GET", "/metrics")).await;
    assert_eq!(text.status, 200);
    assert!(text.text.contains("\nvisavis_calls 3\n"), "{}", text.text);
    assert!(
        text.text.contains("visavis_conversations{state=\"in_progress\"} 1\n"),
        "{}",
        text.text
    );
    for line in [
        "# TYPE visavis_stage_seconds histogram",
        "visavis_stage_seconds_bucket{le=\"0.01\",thread=\"0\"} 4",
        "visavis_stage_seconds_bucket{le=\"+Inf\",thread=\"0\"} 5",
        "visavis_stage_seconds_sum{thread=\"0\"} 0.5",
    ] {
        assert!(text.text.contains(&format!("\n{line}\n")), "{line}: {}", text.text);
    }
    for name in [
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_threads",
        "process_start_time_seconds",
        "tokio_workers",
        "tokio_global_queue",
    ] {
        assert!(text.text.contains(&format!("\n{name} ")), "{name}: {}", text.text);
    }
    assert_eq!(
        text.header("content-type"),
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    );
    assert!(text.text.ends_with("# EOF\n"));

    let folder = TempFolder::new();
    let server = TestServer::start_with(&folder.0, |config| {
        config.public_url = Some("http://talk.example".into());
        config.metrics_token = Some("look".into());
    })
    .await;
    assert_eq!(server.send(server.request("GET", "/metrics")).await.status, 401);
    assert_eq!(
        server.send(server.request("GET", "/metrics").bearer_auth("wrong")).await.status,
        401
    );
    assert_eq!(
        server.send(server.request("GET", "/metrics").bearer_auth("look")).await.status,
        200
    );
}
