//! The page and its API over HTTP: who gets them, and what they give.

use std::time::Duration;

use serde_json::{Value, json};

use super::support::*;
use crate::config::{Console, HostAuth, Metrics};
use crate::downstream::console::ROUTES;
use crate::downstream::console::access::Access;

/// A door, and who may use its page.
struct Home {
    house: House,
    access: Access,
}

async fn home() -> Home {
    home_of(stage().await).await
}

async fn home_of(stage: Stage) -> Home {
    let access = Access::default();
    let settings = Settings { access: access.clone(), ..Settings::default() };
    Home { house: house_with(stage, settings).await, access }
}

/// An answer of the API.
#[derive(Debug)]
struct Said {
    head: Head,
    text: String,
}

impl Said {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// Returns the status and the kind of refusal.
    fn no(&self) -> (u16, String) {
        (self.head.status, self.json()["error"].as_str().unwrap_or_default().to_owned())
    }
}

impl Home {
    fn set(&self, console: Console) {
        self.house.stage.router.manager().configure(|settings| settings.console = console);
    }

    async fn send(&self, request: &str) -> Said {
        let mut peer = self.house.connect().await;
        let head = peer.send(request).await;
        let text = if request.starts_with("HEAD") { String::new() } else { peer.body(&head).await };
        Said { head, text }
    }

    async fn get(&self, path: &str, token: &str) -> Said {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer {token}\r\n\r\n")).await
    }

    async fn post(&self, path: &str, token: &str, body: &Value) -> Said {
        self.send(&post(path, token, body)).await
    }

    /// Begins a session, and returns its token.
    async fn session(&self, is_read_only: bool) -> String {
        let (code, _) = self.access.code(is_read_only, false).unwrap();
        let said = self.post("/console/session", "none", &json!({ "code": code })).await;
        assert_eq!((said.head.status, &said.json()["readOnly"]), (200, &json!(is_read_only)), "{said:?}");
        said.json()["token"].as_str().unwrap().to_owned()
    }

    /// Calls a tool, and returns the connection after the first line.
    async fn call(&self, token: &str, body: &Value) -> Peer {
        let mut peer = self.house.connect().await;
        let head = peer.send(&post("/console/call", token, body)).await;
        assert_eq!((head.status, head.kind()), (200, "application/x-ndjson"));
        peer
    }
}

fn post(path: &str, token: &str, body: &Value) -> String {
    let (body, head) = (body.to_string(), "Host: HOST\r\nOrigin: http://HOST\r\nContent-Type: application/json\r\n");
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\n{head}Authorization: Bearer {token}\r\nContent-Length: {length}\r\n\r\n{body}")
}

/// Returns the next line of a stream.
async fn line(peer: &mut Peer) -> Option<Value> {
    let chunk = peer.chunk().await?;
    assert_eq!(chunk.matches('\n').count(), 1, "{chunk}");
    Some(serde_json::from_str(&chunk).unwrap())
}

async fn lines(peer: &mut Peer) -> Vec<Value> {
    let mut all = Vec::new();
    while let Some(mut line) = line(peer).await {
        if let Some(ms) = line.get_mut("ms") {
            assert!(ms.take().is_f64());
        }
        all.push(line);
    }
    all
}

#[test]
fn tools_are_written_on_a_thread_that_may_block() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let home = home().await;
        let token = home.session(true).await;
        // The only thread that may block has something else to do.
        let (free, held) = std::sync::mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || held.recv());
        let mut tools = std::pin::pin!(home.get("/console/tools", &token));
        tokio::select! {
            biased;
            said = &mut tools => panic!("the runtime's thread has written them: {said:?}"),
            said = home.send("GET / HTTP/1.1\r\nHost: HOST\r\n\r\n") => assert_eq!(said.head.status, 200),
        }
        drop(free);
        assert_eq!(tools.await.head.status, 200);
        assert!(busy.await.unwrap().is_err());
    });
}

#[tokio::test]
async fn the_files_of_the_page_are_for_everybody_at_this_machine_and_hold_no_data() {
    let home = home().await;
    let said = home.send("GET / HTTP/1.1\r\nHost: HOST\r\n\r\n").await;
    assert_eq!((said.head.status, said.head.kind()), (200, "text/html; charset=utf-8"));
    assert!(!said.text.contains("script\""), "no server is named");
    let header = |name: &str| said.head.headers.get(name).map(String::as_str);
    insta::assert_snapshot!(header("content-security-policy").unwrap(), @"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'");
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cache-control", "no-cache"),
    ] {
        assert_eq!(header(name), Some(value), "{name}");
    }
    assert_eq!(header("set-cookie"), None);
    let tag = header("etag").unwrap();
    let again = home.send(&format!("GET / HTTP/1.1\r\nHost: HOST\r\nIf-None-Match: {tag}\r\n\r\n")).await;
    assert_eq!((again.head.status, again.text.as_str()), (304, ""));
    let head = home.send("HEAD / HTTP/1.1\r\nHost: HOST\r\n\r\n").await;
    assert_eq!((head.head.status, &head.head.headers["content-length"]), (200, &said.text.len().to_string()));
    for (path, kind) in [("app.css", "text/css"), ("app.js", "text/javascript"), ("icon.svg", "image/svg+xml")] {
        let said = home.send(&format!("GET /console/{path} HTTP/1.1\r\nHost: HOST\r\n\r\n")).await;
        assert!(said.head.status == 200 && said.head.kind().starts_with(kind), "{path}");
    }
    assert_eq!(home.send("POST / HTTP/1.1\r\nHost: HOST\r\n\r\n").await.no(), (405, "method".to_owned()));
    assert_eq!(home.send("GET /console/nothing.js HTTP/1.1\r\nHost: HOST\r\n\r\n").await.head.status, 404);
}

#[tokio::test]
async fn a_code_begins_one_session_and_comes_twice_in_vain() {
    let home = home().await;
    let begin = async |code: &str| home.post("/console/session", "none", &json!({ "code": code })).await;
    let (code, _) = home.access.code(false, false).unwrap();
    let said = begin(&code).await;
    assert_eq!((said.head.status, said.head.headers["cache-control"].as_str()), (200, "no-store"));
    assert_eq!(said.json()["idleMs"], 43_200_000);
    let token = said.json()["token"].as_str().unwrap().to_owned();
    assert_eq!(home.get("/console/tools", &token).await.head.status, 200);
    let mut feed = home.house.connect().await;
    let head =
        feed.send(&format!("GET /console/feed HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer {token}\r\n\r\n")).await;
    assert_eq!(head.status, 200);
    assert_eq!(begin(&code).await.no(), (403, "code_used".to_owned()));
    while feed.chunk().await.is_some() {}
    assert_eq!(home.get("/console/tools", &token).await.no(), (401, "no_session".to_owned()));
    for _ in 0..5 {
        assert_eq!(begin("c0de").await.no(), (403, "code_late".to_owned()));
    }
    assert_eq!(begin("c0de").await.no(), (429, "busy".to_owned()));
    let (good, _) = home.access.code(false, false).unwrap();
    assert_eq!(begin(&good).await.no(), (429, "busy".to_owned()));
}

#[tokio::test]
async fn a_session_ends_when_its_page_says_so() {
    let home = home().await;
    let (token, other) = (home.session(false).await, home.session(true).await);
    let delete = |origin: &str| {
        format!("DELETE /console/session HTTP/1.1\r\nHost: HOST\r\n{origin}Authorization: Bearer {token}\r\n\r\n")
    };
    assert_eq!(home.send(&delete("")).await.no(), (403, "refused".to_owned()));
    assert_eq!(home.send(&delete("Origin: http://HOST\r\n")).await.json(), json!({ "ended": true }));
    assert_eq!(home.get("/console/tools", &token).await.no(), (401, "no_session".to_owned()));
    assert_eq!(home.get("/console/tools", &other).await.head.status, 200);
    assert_eq!(home.access.end_all(), 1);
    assert_eq!(home.get("/console/tools", &other).await.no(), (401, "no_session".to_owned()));
}

/// A new member of a request must not be a command, an argument, a path, an environment, or a URL.
#[tokio::test]
async fn h83_the_requests_have_these_members() {
    let home = home().await;
    let token = home.session(false).await;
    let mut told = Vec::new();
    for (path, methods, _) in ROUTES {
        if methods.starts_with("POST") {
            let said = home.post(path, &token, &json!({ "no such": 1 })).await;
            assert_eq!(said.no(), (400, "malformed".to_owned()), "{path}");
            let message = said.json()["message"].as_str().unwrap().to_owned();
            let members = message.split("`no such`, ").nth(1).unwrap().split(" at line").next().unwrap();
            told.push(format!("{path}: {members}"));
        }
    }
    insta::assert_snapshot!(told.join("\n"), @r"
    /console/session: expected `code`
    /console/call: expected `tool` or `arguments`
    /console/answer: expected one of `call`, `question`, `action`, `content`
    /console/cancel: expected `call`
    /console/decide: expected `ask` or `verdict`
    /console/restart: expected `server`
    /console/enable: expected `server`
    /console/disable: expected `server`
    /console/login: expected `server` or `device`
    /console/logout: expected `server`
    /console/reload: there are no fields
    /console/approve: expected one of `kind`, `server`, `hash`
    ");
}

/// Every route of the API with every method, and what does not open it.
#[tokio::test]
async fn h80_only_a_token_of_a_session_opens_the_api() {
    let home = home_of(bearer(stage().await)).await;
    let token = home.session(false).await;
    let body = json!({ "code": "wrong" }).to_string();
    let request = |method: &str, path: &str, header: &str| {
        let head = "Host: HOST\r\nOrigin: http://HOST\r\nContent-Type: application/json\r\n";
        format!("{method} {path} HTTP/1.1\r\n{head}{header}Content-Length: {}\r\n\r\n{body}", body.len())
    };
    for (path, methods, _) in ROUTES {
        for method in ["GET", "POST", "DELETE", "PUT", "OPTIONS", "HEAD"] {
            for header in [
                String::new(),
                format!("Authorization: Bearer {ANN}\r\n"),
                format!("Authorization: Bearer {token}0\r\n"),
                format!("Authorization: Basic {token}\r\n"),
                format!("Authorization: Bearer {token}\r\nAuthorization: Bearer {token}\r\n"),
                format!("Cookie: token={token}\r\n"),
            ] {
                let is_taken = methods.split(", ").any(|known| known == method);
                let wanted = match (path, method) {
                    _ if !is_taken => 405,
                    // Nobody has a token before this. The code is wrong.
                    ("/console/session", "POST") => 403,
                    _ => 401,
                };
                let said = home.send(&request(method, path, &header)).await;
                let is_busy = wanted == 403 && said.head.status == 429;
                assert!(said.head.status == wanted || is_busy, "{method} {path} {header} {said:?}");
                assert!(!said.head.headers.keys().any(|name| name.starts_with("access-control")));
            }
        }
        let query = format!("{path}?token={token}&access_token={token}");
        let said = home.send(&format!("GET {query} HTTP/1.1\r\nHost: HOST\r\n\r\n")).await;
        assert!(matches!(said.head.status, 401 | 405), "{query}");
    }
    assert_eq!(home.get("/console/tools", &token).await.head.status, 200);
}

#[tokio::test]
async fn h80_a_token_of_a_session_opens_nothing_else() {
    let home = home_of(bearer(stage().await)).await;
    let token = home.session(false).await;
    home.house.stage.router.manager().configure(|settings| settings.metrics = Metrics::default().token("scraper"));
    for path in ["/mcp", "/sse", "/messages", "/metrics", "/nowhere"] {
        for method in ["GET", "POST", "DELETE"] {
            let head = "Host: HOST\r\nOrigin: http://HOST\r\nContent-Type: application/json\r\n";
            let request = format!("{method} {path} HTTP/1.1\r\n{head}Authorization: Bearer {token}\r\n\r\n");
            assert_eq!(home.send(&request).await.head.status, 401, "{method} {path}");
        }
    }
    assert_eq!(home.get("/console/tools", "scraper").await.no(), (401, "no_session".to_owned()));
}

/// Sends what the page of another site could send. The guard checks every request, so the page's own files are refused, too.
#[tokio::test]
async fn h79_another_page_gets_nothing() {
    let home = home().await;
    let token = home.session(false).await;
    let body = json!({ "tool": "echo" }).to_string();
    let paths = ROUTES.iter().map(|(path, ..)| *path).chain(["/", "/console/app.css", "/console/app.js"]);
    for path in paths.collect::<Vec<_>>() {
        for method in ["GET", "POST", "DELETE", "OPTIONS"] {
            for (headers, status) in [
                ("Host: evil.example\r\nOrigin: http://evil.example\r\n", 403),
                ("Host: HOST\r\nOrigin: http://evil.example\r\n", 403),
                ("Host: HOST\r\nOrigin: http://localhost:3000\r\n", 403),
                ("Host: HOST\r\nOrigin: null\r\n", 403),
                ("Host: HOST\r\nSec-Fetch-Site: cross-site\r\n", 403),
                ("Host: 127.0.0.1.evil.example\r\n", 403),
                ("", 400),
            ] {
                let head = format!("{headers}Authorization: Bearer {token}\r\nContent-Type: application/json\r\n");
                let request = format!("{method} {path} HTTP/1.1\r\n{head}Content-Length: {}\r\n\r\n{body}", body.len());
                assert_eq!(home.send(&request).await.head.status, status, "{method} {path} {headers}");
            }
        }
    }
    // Origins that the config allows for clients, and our other names, are not the page's own.
    let allowed = "https://app.example";
    home.house.stage.router.manager().configure(|settings| settings.allowed_origins = vec![allowed.to_owned()]);
    let port = home.house.port;
    for origin in [String::new(), format!("Origin: {allowed}\r\n"), format!("Origin: http://localhost:{port}\r\n")] {
        let request =
            post("/console/call", &token, &json!({ "tool": "echo" })).replace("Origin: http://HOST\r\n", &origin);
        assert_eq!(home.send(&request).await.no(), (403, "refused".to_owned()), "{origin}");
    }
    // A form cannot send JSON.
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
        let request = post("/console/call", &token, &json!({ "tool": "echo" })).replace("application/json", kind);
        assert_eq!(home.send(&request).await.head.status, 415, "{kind}");
    }
}

#[tokio::test]
async fn the_config_decides_who_gets_the_page() {
    let home = home().await;
    let token = home.session(false).await;
    const VIA: [&str; 4] =
        ["Forwarded: for=1.2.3.4\r\n", "X-Forwarded-For: 1.2.3.4\r\n", "X-Forwarded-Host: a\r\n", "Via: 1.1 proxy\r\n"];
    let ask = async |path: &str, header: &str| {
        let head = format!("Host: HOST\r\nAuthorization: Bearer {token}\r\n{header}");
        home.send(&format!("GET {path} HTTP/1.1\r\n{head}\r\n")).await.head.status
    };
    for header in VIA {
        assert_eq!((ask("/", header).await, ask("/console/tools", header).await), (404, 404), "{header}");
    }
    assert_eq!((ask("/", "").await, ask("/console/tools", "").await), (200, 200));
    home.set(Console::Off);
    assert_eq!((ask("/", "").await, ask("/console/tools", "").await), (404, 404));
    home.set(Console::On);
    assert_eq!((ask("/", VIA[1]).await, ask("/console/tools", VIA[1]).await), (200, 401), "its session is over");
    let token = home.session(false).await;
    assert_eq!(home.get("/console/tools", &token).await.head.status, 200);
}

#[tokio::test]
async fn a_read_only_session_looks_and_does_nothing() {
    let home = home().await;
    let token = home.session(true).await;
    for (path, methods, _) in ROUTES {
        if methods == "POST" {
            assert_eq!(home.post(path, &token, &json!({})).await.no(), (403, "read_only".to_owned()), "{path}");
        }
    }
    assert_eq!(home.get("/console/server?name=script", &token).await.json()["server"]["state"], "connected");
}

#[tokio::test]
async fn the_tools_are_told_with_their_definitions() {
    let home = home_of(bearer(stage().await)).await;
    let token = home.session(false).await;
    let names = async || {
        let said = home.get("/console/tools", &token).await.json();
        let names = said["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(names().await, ["echo", "slow", "progress", "quick", "hang_up", "big"]);
    let said = home.get("/console/tools?server=script", &token).await.json();
    let echo = said["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "echo").unwrap();
    let definition = json!({ "name": "echo", "inputSchema": { "type": "object" } });
    let bytes = definition.to_string().len();
    let wanted = json!({
        "name": "echo", "server": "script", "tool": "echo", "readOnly": false, "destructive": false,
        "bytes": bytes, "tokens": bytes.div_ceil(4), "definition": definition,
    });
    assert_eq!(*echo, wanted);
    assert_eq!(home.get("/console/tools?server=none", &token).await.no(), (404, "unknown".to_owned()));
    assert_eq!(home.get("/console/tools?view=all", &token).await.no(), (400, "malformed".to_owned()));
    assert_eq!(home.get("/console/server?name=none", &token).await.no(), (404, "unknown".to_owned()));
    assert_eq!(home.get("/console/server", &token).await.no(), (400, "malformed".to_owned()));
}

#[tokio::test]
async fn a_call_tells_its_progress_and_its_answer() {
    let home = home().await;
    let token = home.session(false).await;
    let mut call = home.call(&token, &json!({ "tool": "quick", "arguments": { "a": 1.50 } })).await;
    let content = json!([{ "type": "text", "text": "done" }]);
    assert_eq!(
        lines(&mut call).await,
        [
            json!({ "type": "begin", "call": 1, "tool": "quick", "server": "script" }),
            json!({ "type": "progress", "progress": 1, "message": "one" }),
            json!({ "type": "end", "outcome": "ok", "ms": null, "result": { "content": content } }),
        ]
    );
    let mut call = home.call(&token, &json!({ "tool": "no_such" })).await;
    let said = lines(&mut call).await;
    // Names of this server have no prefix, so it is asked for those that it does not list, too.
    assert_eq!((&said[0]["server"], &said[1]["outcome"]), (&json!("script"), &json!("error")));
    assert_eq!(said[1]["error"]["code"], -32602);
    for (body, status) in [
        (json!({}), 400),
        (json!({ "tool": "echo", "arguments": [] }), 400),
        (json!({ "tool": "echo", "command": "sh" }), 400),
        (json!({ "tool": 1 }), 400),
        (json!("echo"), 400),
    ] {
        assert_eq!(home.post("/console/call", &token, &body).await.no(), (status, "malformed".to_owned()), "{body}");
    }
    let large = json!({ "tool": "x".repeat(5 << 20) });
    assert_eq!(home.post("/console/call", &token, &large).await.no(), (413, "malformed".to_owned()));
}

#[tokio::test]
async fn the_page_is_a_client_named_console() {
    let home = home().await;
    let token = home.session(false).await;
    let mut call = home.call(&token, &json!({ "tool": "slow" })).await;
    assert_eq!(line(&mut call).await.unwrap()["call"], 1);
    until(|| home.house.stage.running() == 1).await;
    let clients = home.house.stage.router.clients().list();
    let told: Vec<_> = clients.iter().map(|client| (&*client.name, client.transport, client.user.as_deref())).collect();
    assert_eq!(told, [("mcp-host console", "console", Some("console"))]);
    home.house.stage.release();
    assert_eq!(lines(&mut call).await[0]["outcome"], "ok");
    home.access.end_all();
    until(|| home.house.stage.router.clients().list().is_empty()).await;
}

#[tokio::test]
async fn a_call_ends_with_its_stream_its_cancellation_or_its_session() {
    let home = home().await;
    let (token, other) = (home.session(false).await, home.session(false).await);
    let begin = async || {
        let mut call = home.call(&token, &json!({ "tool": "slow" })).await;
        let number = line(&mut call).await.unwrap()["call"].as_u64().unwrap();
        until(|| home.house.stage.running() == 1).await;
        (call, number)
    };
    let (call, _) = begin().await;
    drop(call);
    until_some_time(|| home.house.stage.running() == 0).await;
    let (mut call, number) = begin().await;
    let cancel = json!({ "call": number });
    assert_eq!(home.post("/console/cancel", &other, &cancel).await.no(), (404, "unknown".to_owned()));
    assert_eq!(home.house.stage.running(), 1);
    assert_eq!(home.post("/console/cancel", &token, &cancel).await.json(), json!({ "cancelled": true }));
    assert_eq!(lines(&mut call).await, [json!({ "type": "end", "outcome": "cancelled", "ms": null })]);
    assert_eq!(home.post("/console/cancel", &token, &cancel).await.no(), (404, "unknown".to_owned()));
    let (mut call, _) = begin().await;
    home.access.end_all();
    assert!(lines(&mut call).await.is_empty());
    until_some_time(|| home.house.stage.running() == 0).await;
}

#[tokio::test]
async fn feeds_are_eight_at_most_and_tell_what_the_socket_tells() {
    let home = home().await;
    home.house.stage.router.manager().record().open();
    let token = home.session(true).await;
    let open = async |query: &str| {
        let mut peer = home.house.connect().await;
        let path = format!("/console/feed{query}");
        let head =
            peer.send(&format!("GET {path} HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer {token}\r\n\r\n")).await;
        (head.status, peer)
    };
    let mut feeds = Vec::new();
    for _ in 0..8 {
        let (status, peer) = open("?past=10&parts=servers,calls").await;
        assert_eq!(status, 200);
        feeds.push(peer);
    }
    let (status, mut refused) = open("").await;
    assert_eq!(status, 429);
    drop(refused.chunk());
    let mut told = feeds[0].chunk().await.unwrap();
    while !told.contains(r#""type":"snapshot""#) {
        told += &feeds[0].chunk().await.unwrap();
    }
    let hello: Value = serde_json::from_str(told.lines().next().unwrap()).unwrap();
    assert_eq!((&hello["type"], &hello["v"]), (&json!("hello"), &json!(1)));
    feeds.pop();
    let end = tokio::time::Instant::now() + Duration::from_secs(60);
    while open("").await.0 != 200 {
        assert!(tokio::time::Instant::now() < end, "the place of a feed that was closed is free");
    }
    for (query, status) in
        [("?from=x", 400), ("?parts=x", 400), ("?command=sh", 400), ("?past=1&past=2", 400), ("?server=none", 404)]
    {
        assert_eq!(open(query).await.0, status, "{query}");
    }
    home.house.stop.cancel();
    while feeds[0].chunk().await.is_some() {}
}

#[tokio::test]
async fn a_host_that_stops_begins_no_session() {
    let home = home().await;
    let token = home.session(false).await;
    let mut peer = home.house.connect().await;
    let mut call = home.call(&token, &json!({ "tool": "slow" })).await;
    line(&mut call).await;
    until(|| home.house.stage.running() == 1).await;
    // A connection that has carried a request is served until its answers are written.
    let head = peer.send("GET / HTTP/1.1\r\nHost: HOST\r\n\r\n").await;
    peer.body(&head).await;
    home.house.stop.cancel();
    home.house.stage.release();
    assert_eq!(lines(&mut call).await[0]["outcome"], "ok", "a call in flight gets its answer");
}

/// Another user of this machine gets not even the files.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn h80_another_user_of_this_machine_gets_no_page() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let home = home_of(bearer(stage().await)).await;
    let token = home.session(false).await;
    let header = format!("Authorization: Bearer {token}\\r\\n");
    for auth in [true, false] {
        for path in ["/", "/console/app.css", "/console/tools", "/console/feed"] {
            let line = super::principals::get_with(65_534, home.house.port, path, &header).await;
            assert_eq!(line, "HTTP/1.1 403 Forbidden", "{path} {auth}");
        }
        home.house.stage.router.manager().configure(|settings| settings.auth = HostAuth::None);
    }
}
