//! The log level of a server with a session and several listeners: the most verbose one counts, and the server knows it
//! before the call that it is for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Response as HttpResponse};
use axum::routing::post;
use bytes::Bytes;
use serde_json::{Value, json};

use super::support::{call, text};
use crate::config::{self, Config, Prefix, Remote, Transport};
use crate::manager::{Manager, Principal};
use crate::protocol::{Message, Method, Profile, ProtocolVersion, Raw, Request, RequestId};
use crate::router::{Client, Mailbox, Router};

/// A server of 2025-11-25 that is slow to change its level, returns the level with each call, and logs one line at it.
async fn serve(State(level): State<Arc<Mutex<String>>>, body: Bytes) -> HttpResponse {
    let request: Value = serde_json::from_slice(&body).unwrap();
    let result = match request["method"].as_str().unwrap_or_default() {
        "initialize" => {
            json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {}, "logging": {} }, "serverInfo": { "name": "s", "version": "1" } })
        }
        "tools/list" => json!({ "tools": [{ "name": "level", "inputSchema": { "type": "object" } }] }),
        "logging/setLevel" => {
            tokio::time::sleep(Duration::from_millis(50)).await;
            *level.lock().unwrap() = request["params"]["level"].as_str().unwrap().to_owned();
            json!({})
        }
        "tools/call" => {
            let level = level.lock().unwrap().clone();
            let result = json!({ "content": [{ "type": "text", "text": level }] });
            let line = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": level, "logger": "core", "data": 1 } });
            let answer = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
            let events = format!("data: {line}\n\ndata: {answer}\n\n");
            return ([(CONTENT_TYPE, "text/event-stream")], events).into_response();
        }
        _ => return StatusCode::ACCEPTED.into_response(),
    };
    let answer = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
    let session = HeaderName::from_static("mcp-session-id");
    ([(CONTENT_TYPE, "application/json"), (session, "s")], answer.to_string()).into_response()
}

async fn router() -> Router {
    let level = Arc::new(Mutex::new("none".to_owned()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let app = axum::Router::new().route("/mcp", post(serve)).with_state(level);
    tokio::spawn(async move { axum::serve(listener, app).await });
    let remote = Remote::new(url.parse().unwrap());
    let mut entry = config::Server::new("far", Transport::Http(remote)).unwrap();
    entry.prefix = Prefix::Never;
    entry.era = config::Era::Legacy;
    let mut config = Config::default();
    config.servers.push(entry);
    let info = Raw::from_value(&json!({ "name": "test", "version": "0" }));
    let (manager, news) = Manager::start(config, &HashMap::new(), info.clone(), None, Default::default());
    Router::start(manager, news, info)
}

fn legacy(router: &Router) -> Arc<Client> {
    router.admit(Principal::local(), ProtocolVersion::V2025_11_25, Profile::EMPTY, None)
}

async fn set(router: &Router, client: &Arc<Client>, level: &str) {
    let params = Some(Raw::from_value(&json!({ "level": level })));
    let request = Request { id: RequestId::Number(1), method: Method::SetLevel, params };
    router.request(client, request, &client.leg(router.limits())).await.unwrap().unwrap();
}

/// Returns the server's level during a call, and the logger of the line that comes with it.
async fn logged(router: &Router, client: &Arc<Client>, leg: &Arc<Mailbox>) -> (String, Option<String>) {
    let params = Some(Raw::from_value(&call("level")));
    let request = Request { id: RequestId::Number(2), method: Method::ToolsCall, params };
    let answer: Value = router.request(client, request, leg).await.unwrap().unwrap().read().unwrap();
    let line = match leg.try_next() {
        Some(Message::Notification(notice)) => notice.params.unwrap().text("logger"),
        _ => None,
    };
    (text(&answer).to_owned(), line)
}

const LINE: Option<&str> = Some("far/core");

#[tokio::test]
async fn h54_the_most_verbose_wish_counts_and_comes_before_the_call() {
    let router = router().await;
    let (loud, quiet) = (legacy(&router), legacy(&router));
    set(&router, &loud, "debug").await;
    let told = logged(&router, &loud, &loud.leg(router.limits())).await;
    assert_eq!((&*told.0, told.1.as_deref()), ("debug", LINE), "said before there was a connection");
    set(&router, &quiet, "error").await;
    let told = logged(&router, &quiet, &quiet.leg(router.limits())).await;
    assert_eq!((&*told.0, told.1.as_deref()), ("debug", None), "what one does not want the other gets");
    set(&router, &loud, "warning").await;
    let told = logged(&router, &quiet, &quiet.leg(router.limits())).await;
    assert_eq!((&*told.0, told.1.as_deref()), ("warning", None));
    router.clients().close(&loud);
    set(&router, &quiet, "emergency").await;
    assert_eq!(logged(&router, &quiet, &quiet.leg(router.limits())).await.1.as_deref(), LINE);
}

#[tokio::test]
async fn requests_of_modern_clients_say_what_they_want_one_by_one() {
    let router = router().await;
    let client = router.modern(Principal::local(), &Raw::empty_object()).unwrap();
    let told = logged(&router, &client, &router.modern_leg(None)).await;
    assert_eq!((&*told.0, told.1), ("none", None), "no client wants logs");
    let told = logged(&router, &client, &router.modern_leg(Some("notice"))).await;
    assert_eq!((&*told.0, told.1.as_deref()), ("notice", LINE));
    let told = logged(&router, &client, &router.modern_leg(Some("debug"))).await;
    assert_eq!((&*told.0, told.1.as_deref()), ("debug", LINE));
    assert_eq!(logged(&router, &client, &router.modern_leg(None)).await.1, None);
}
