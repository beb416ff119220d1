//! An HTTP server without sessions, and clients with one: its results become their requests. Also what passes between
//! two sides without a session.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response as HttpResponse};
use axum::routing::post;
use bytes::Bytes;
use serde_json::{Value, json};

use super::support::*;
use crate::config::{self, Config, Prefix, Remote, Transport};
use crate::manager::Manager;
use crate::protocol::{Message, Method, Outcome, Profile, ProtocolVersion, Raw, Response};
use crate::router::{Client, Router};

/// A server of 2026-07-28 that keeps nothing: only `requestState` says what it asks next.
async fn serve(State(calls): State<Arc<AtomicUsize>>, body: Bytes) -> HttpResponse {
    let request: Value = serde_json::from_slice(&body).unwrap();
    let params = &request["params"];
    let result = match request["method"].as_str().unwrap() {
        "server/discover" => {
            json!({ "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} }, "ttlMs": 0, "cacheScope": "private" })
        }
        "tools/list" => {
            let tools: Vec<Value> = [
                "form", "sample", "both", "fails", "paced", "endless", "visit", "level", "rich", "meta", "links", "odd",
            ]
            .iter()
            .map(|name| json!({ "name": name, "inputSchema": { "type": "object" } }))
            .collect();
            json!({ "tools": tools, "ttlMs": 0, "cacheScope": "private" })
        }
        _ => {
            calls.fetch_add(1, Ordering::SeqCst);
            tool(params)
        }
    };
    let mut result = result;
    if result.get("resultType").is_none() {
        result["resultType"] = json!("complete");
    }
    let answer = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
    ([(CONTENT_TYPE, "application/json")], answer.to_string()).into_response()
}

fn tool(params: &Value) -> Value {
    let (answers, state) = (&params["inputResponses"], params["requestState"].as_str().unwrap_or_default());
    let done = |text: String| json!({ "content": [{ "type": "text", "text": text }] });
    let ask = |key: &str, method: &str, params: Value, state: &str| json!({ "resultType": "input_required", "inputRequests": { (key): { "method": method, "params": params } }, "requestState": state });
    let round = state.parse::<u32>().unwrap_or_default();
    match params["name"].as_str().unwrap() {
        "form" if answers.is_null() => ask(
            "who",
            "elicitation/create",
            json!({ "message": "who?", "requestedSchema": { "type": "object", "properties": {} } }),
            "a \u{e9} state",
        ),
        "form" => done(format!("{} {state}", answers["who"])),
        "sample" if answers.is_null() => {
            ask("s", "sampling/createMessage", json!({ "messages": [], "maxTokens": 1 }), "s")
        }
        "both" if answers.is_null() => json!({ "resultType": "input_required", "inputRequests": {
            "a": { "method": "elicitation/create", "params": { "message": "who?", "requestedSchema": {} } },
            "b": { "method": "sampling/createMessage", "params": { "messages": [], "maxTokens": 1 } },
        } }),
        "fails" if answers.is_null() => ask(
            "v",
            "elicitation/create",
            json!({ "mode": "url", "url": "https://example.com/", "message": "visit" }),
            "s",
        ),
        "fails" => json!({ "resultType": "surprise" }),
        "paced" if round < 3 => json!({ "resultType": "input_required", "requestState": (round + 1).to_string() }),
        "endless" => ask(
            "k",
            "elicitation/create",
            json!({ "message": format!("round {round}"), "requestedSchema": {} }),
            &(round + 1).to_string(),
        ),
        "visit" if round < 3 => ask(
            "v",
            "elicitation/create",
            json!({ "mode": "url", "url": "https://example.com/", "message": "visit" }),
            &(round + 1).to_string(),
        ),
        "rich" => json!({ "structuredContent": [1, 2], "content": [
            { "type": "resource_link", "uri": "file:///a", "name": "A" },
            { "type": "audio", "data": "QUJD", "mimeType": "audio/wav" },
        ], "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "behind" } } }),
        "meta" => done(params["_meta"].to_string()),
        "links" if answers.is_null() => ask(
            "c",
            "elicitation/create",
            json!({ "message": "?", "requestedSchema": { "type": "object",
            "properties": { "colors": { "type": "array", "items": { "enum": ["red", "green"] } } } } }),
            "s",
        ),
        "links" => done(answers["c"]["content"].to_string()),
        "level" => done(params["_meta"]["io.modelcontextprotocol/logLevel"].to_string()),
        "odd" => json!({ "resultType": "surprise" }),
        _ => done(format!("after {state}")),
    }
}

struct Scene {
    router: Router,
    calls: Arc<AtomicUsize>,
}

async fn scene() -> Scene {
    let calls = Arc::<AtomicUsize>::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let app = axum::Router::new().route("/mcp", post(serve)).with_state(calls.clone());
    tokio::spawn(async move { axum::serve(listener, app).await });
    let remote = Remote::new(url.parse().unwrap());
    let mut entry = config::Server::new("far", Transport::Http(remote)).unwrap();
    entry.prefix = Prefix::Never;
    entry.era = config::Era::Modern;
    let mut config = Config::default();
    config.servers.push(entry);
    let info = Raw::from_value(&json!({ "name": "test", "version": "0" }));
    let (manager, news) = Manager::start(config, &HashMap::new(), info.clone(), None, Default::default());
    Scene { router: Router::start(manager, news, info), calls }
}

impl Scene {
    fn legacy(&self, profile: Profile) -> Arc<Client> {
        self.router.admit(crate::manager::Principal::local(), ProtocolVersion::V2025_11_25, profile, None)
    }

    fn call(&self, client: &Arc<Client>, params: &Value) -> Running {
        run(&self.router, client, params)
    }

    fn answer(&self, client: &Arc<Client>, id: crate::protocol::RequestId, outcome: Outcome) {
        client.answer(Response { id: Some(id), outcome });
    }
}

fn accept() -> Outcome {
    Ok(Raw::from_value(&json!({ "action": "accept", "content": { "name": "ann" } })))
}

const ALL_OF_IT: Profile = Profile::ELICITATION_FORM.with(Profile::ELICITATION_URL).with(Profile::SAMPLING);

#[tokio::test]
async fn a_result_that_asks_becomes_a_request_and_its_answer_a_retry() {
    let scene = scene().await;
    let client = scene.legacy(ALL_OF_IT);
    let running = scene.call(&client, &call("form"));
    let question = running.question().await;
    assert_eq!(
        (&question.method, question.params.unwrap().text("message").as_deref()),
        (&Method::Elicit, Some("who?"))
    );
    scene.answer(&client, question.id, accept());
    let answer = running.answer().await;
    assert_eq!(
        text(&answer),
        "{\"action\":\"accept\",\"content\":{\"name\":\"ann\"}} a \u{e9} state",
        "the state came back as it was"
    );
    assert_eq!(answer.get("resultType"), None, "2025-11-25 has no such member");
    assert_eq!(scene.calls.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_refused_elicitation_is_a_cancel_and_a_refused_sampling_the_end() {
    let scene = scene().await;
    let client = scene.legacy(ALL_OF_IT);
    let running = scene.call(&client, &call("form"));
    let refused = || Err(crate::protocol::ErrorObject::new(-1, "User rejected"));
    scene.answer(&client, running.question().await.id, refused());
    assert!(text(&running.answer().await).starts_with(r#"{"action":"cancel"}"#));
    let running = scene.call(&client, &call("sample"));
    scene.answer(&client, running.question().await.id, refused());
    let answer = running.answer().await;
    assert!(answer["isError"] == true && text(&answer).contains("User rejected"), "{answer}");
    assert_eq!(scene.calls.load(Ordering::SeqCst), 3, "the server is not asked again");
}

#[tokio::test]
async fn rounds_without_a_question_go_on_and_rounds_with_one_end() {
    let scene = scene().await;
    let client = scene.legacy(ALL_OF_IT);
    assert_eq!(text(&scene.call(&client, &call("paced")).answer().await), "after 3");
    let running = scene.call(&client, &call("endless"));
    for round in 0..10 {
        let question = running.question().await;
        assert_eq!(question.params.unwrap().text("message").unwrap(), format!("round {round}"));
        scene.answer(&client, question.id, accept());
    }
    let answer = running.answer().await;
    assert!(answer["isError"] == true && text(&answer).contains("10 rounds"), "{answer}");
}

#[tokio::test]
async fn a_page_is_asked_for_once_and_its_end_is_told() {
    let scene = scene().await;
    let client = scene.legacy(ALL_OF_IT);
    let running = scene.call(&client, &call("visit"));
    let question = running.question().await;
    let id = question.params.unwrap().text("elicitationId").unwrap();
    assert!(id.starts_with("far:"), "{id}");
    scene.answer(&client, question.id, Ok(Raw::trusted(r#"{"action":"accept"}"#.into())));
    assert_eq!(text(&running.answer().await), "after 3");
    let Some(Message::Notification(notice)) = client.mailbox().next().await else { panic!("no notice") };
    assert_eq!((notice.method, notice.params.unwrap().text("elicitationId")), (Method::ElicitationComplete, Some(id)));
}

#[tokio::test]
async fn what_was_not_declared_is_no_answer() {
    let scene = scene().await;
    let client = scene.legacy(Profile::EMPTY);
    let answer = scene.call(&client, &call("sample")).answer().await;
    assert_eq!(answer["isError"], true, "{answer}");
    let answer = scene.call(&client, &call("odd")).answer().await;
    assert!(text(&answer).contains("surprise"), "{answer}");
}

#[tokio::test]
async fn between_two_without_a_session_questions_pass_and_states_are_sealed() {
    let scene = scene().await;
    let client = scene.router.modern(crate::manager::Principal::local(), &Raw::trusted(FORM.into())).unwrap();
    let asked = scene.call(&client, &call("form")).answer().await;
    assert_eq!(asked["inputRequests"]["who"]["params"]["message"], "who?");
    assert!(!asked["requestState"].as_str().unwrap().contains("state"));
    assert_eq!(asked["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "test", "the host answers every client");
    let answers = json!({ "who": { "action": "decline" } });
    let last = scene.call(&client, &retry(&call("form"), &asked, &answers)).answer().await;
    assert_eq!((text(&last), &last["resultType"]), ("{\"action\":\"decline\"} a \u{e9} state", &json!("complete")));
    let other = scene.call(&client, &retry(&call("visit"), &asked, &answers)).answer().await;
    assert_eq!(other["error"], -32602);
}

#[tokio::test]
async fn the_first_refusal_takes_the_other_questions_back() {
    let scene = scene().await;
    let client = scene.legacy(ALL_OF_IT);
    let running = scene.call(&client, &call("both"));
    let (one, two) = (running.question().await, running.question().await);
    let (form, sampling) = if one.method == Method::Elicit { (one, two) } else { (two, one) };
    scene.answer(&client, sampling.id, Err(crate::protocol::ErrorObject::new(-1, "User rejected")));
    let Some(Message::Notification(notice)) = running.leg.next().await else { panic!("no notice") };
    let taken_back = notice.params.unwrap().member("requestId").unwrap().read::<crate::protocol::RequestId>().unwrap();
    assert_eq!((notice.method, taken_back), (Method::Cancelled, form.id));
    let answer = running.answer().await;
    assert!(answer["isError"] == true && text(&answer).contains("User rejected"), "{answer}");
}

#[tokio::test]
async fn a_page_need_not_be_waited_for_when_its_call_has_failed() {
    let scene = scene().await;
    let client = scene.legacy(ALL_OF_IT);
    let running = scene.call(&client, &call("fails"));
    let question = running.question().await;
    let id = question.params.unwrap().text("elicitationId").unwrap();
    scene.answer(&client, question.id, Ok(Raw::trusted(r#"{"action":"accept"}"#.into())));
    assert_eq!(running.answer().await["isError"], true);
    let Some(Message::Notification(notice)) = client.mailbox().try_next() else { panic!("no notice") };
    assert_eq!((notice.method, notice.params.unwrap().text("elicitationId")), (Method::ElicitationComplete, Some(id)));
}

#[tokio::test]
async fn a_client_with_a_session_cannot_make_up_a_state() {
    let scene = scene().await;
    let client = scene.legacy(ALL_OF_IT);
    let mut made_up = call("paced");
    made_up["requestState"] = json!("3");
    made_up["inputResponses"] = json!({});
    assert_eq!(text(&scene.call(&client, &made_up).answer().await), "after 3");
    assert_eq!(scene.calls.load(Ordering::SeqCst), 4, "all rounds were gone through");
}

#[tokio::test]
async fn log_lines_are_wanted_as_by_default() {
    let scene = scene().await;
    let client = scene.legacy(ALL_OF_IT);
    assert_eq!(text(&scene.call(&client, &call("level")).answer().await), r#""info""#);
    let modern = scene.router.modern(crate::manager::Principal::local(), &Raw::empty_object()).unwrap();
    assert_eq!(text(&scene.call(&modern, &call("level")).answer().await), "null", "a request says what it wants");
}

#[tokio::test]
async fn results_come_as_each_revision_knows_them() {
    let scene = scene().await;
    let admit = |revision| scene.router.admit(crate::manager::Principal::local(), revision, Profile::EMPTY, None);
    let kinds = async |revision| {
        let result = scene.call(&admit(revision), &call("rich")).answer().await;
        assert!(result.get("structuredContent").is_none() && result.get("resultType").is_none(), "{result}");
        assert_eq!(result["_meta"]["mcp-host/serverInfo"]["name"], "behind");
        let blocks = result["content"].as_array().unwrap().clone();
        blocks.iter().map(|block| block["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(kinds(ProtocolVersion::V2025_11_25).await, "resource_link audio text");
    assert_eq!(kinds(ProtocolVersion::V2025_06_18).await, "resource_link audio text");
    assert_eq!(kinds(ProtocolVersion::V2025_03_26).await, "text audio text");
    assert_eq!(kinds(ProtocolVersion::V2024_11_05).await, "text audio text");
    let modern = scene.router.modern(crate::manager::Principal::local(), &Raw::empty_object()).unwrap();
    let result = scene.call(&modern, &call("rich")).answer().await;
    assert_eq!((&result["structuredContent"], &result["resultType"]), (&json!([1, 2]), &json!("complete")));
    assert_eq!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "test");
}

#[tokio::test]
async fn a_choice_of_several_is_asked_as_switches_and_answered_as_one_field() {
    let scene = scene().await;
    let client = scene.router.admit(
        crate::manager::Principal::local(),
        ProtocolVersion::V2025_06_18,
        Profile::ELICITATION_FORM,
        None,
    );
    let running = scene.call(&client, &call("links"));
    let question = running.question().await;
    let form: Value = question.params.unwrap().read().unwrap();
    assert_eq!(form["requestedSchema"]["properties"]["colors__1"]["type"], "boolean", "{form}");
    let answer = json!({ "action": "accept", "content": { "colors__0": false, "colors__1": true } });
    scene.answer(&client, question.id, Ok(Raw::from_value(&answer)));
    assert_eq!(text(&running.answer().await), r#"{"colors":["green"]}"#);
}

#[tokio::test]
async fn the_clients_own_meta_goes_on_and_the_hops_does_not() {
    let scene = scene().await;
    let client = scene.legacy(Profile::EMPTY);
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let mut params = call("meta");
    params["_meta"] = json!({
        "progressToken": "mine", "com.example/a": 1, "baggage": "k=v", "tracestate": "s=1",
        "traceparent": format!("00-{trace}-b7ad6b7169203331-01"),
        "io.modelcontextprotocol/protocolVersion": "1999-01-01",
    });
    let seen: Value = serde_json::from_str(text(&scene.call(&client, &params).answer().await)).unwrap();
    assert_eq!(seen["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    assert_eq!(
        (&seen["com.example/a"], &seen["baggage"], &seen["tracestate"]),
        (&json!(1), &Value::Null, &json!("s=1"))
    );
    assert!(seen["progressToken"].is_u64(), "ours: {seen}");
    let parent = seen["traceparent"].as_str().unwrap();
    assert!(parent.starts_with(&format!("00-{trace}-")) && !parent.contains("b7ad6b7169203331"), "{parent}");
}

#[tokio::test]
async fn h105_why_a_question_was_refused_is_told_in_few_characters() {
    let scene = scene().await;
    let client = scene.legacy(ALL_OF_IT);
    let running = scene.call(&client, &call("sample"));
    let why = format!("a\n\u{202e}{}", "x".repeat(1 << 20));
    scene.answer(&client, running.question().await.id, Err(crate::protocol::ErrorObject::new(-1, why)));
    let answer = running.answer().await;
    assert!(text(&answer).len() < 1024, "{} bytes", text(&answer).len());
    assert!(!text(&answer).contains(['\n', '\u{202e}']) && answer["isError"] == true, "{answer}");
}
