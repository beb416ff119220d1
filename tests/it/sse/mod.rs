//! HTTP+SSE servers, and the inferred transport: the library with a scripted server.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod server;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use mcp_host::config::{Syntax, Vars, parse_str};
use mcp_host::protocol::{Profile, Raw};
use mcp_host::{
    ClientHandler, ElicitAnswer, Elicitation, Event, Events, Host, HostBuilder, ServerStatus, StateChange, StateName,
};
use serde_json::{Value, json};

use self::server::{Script, Server};

/// A host with this server behind it, with more members in its entry.
async fn host(server: &Server, more: &Value) -> Host {
    started(server, more, Host::builder()).await
}

async fn started(server: &Server, more: &Value, builder: HostBuilder) -> Host {
    let mut entry = json!({
        "url": format!("http://127.0.0.1:{}/sse", server.port),
        "headers": {"X-Key": "k-1"},
        "restart": {"maxRetries": 0, "minDelay": "10ms"},
        "prefix": "never",
    });
    for (key, value) in more.as_object().unwrap() {
        entry[key] = value.clone();
    }
    let text = json!({"mcpServers": {"old": entry}, "host": {"startupWait": "20s"}}).to_string();
    let config = parse_str(&text, Syntax::Json, "test.json", &Vars::default()).unwrap();
    let host = builder.config(config).start().await.unwrap();
    host.settled().await;
    host
}

/// Agrees to every question.
struct Handler;

impl ClientHandler for Handler {
    fn profile(&self) -> Profile {
        Profile::ELICITATION_FORM
    }

    async fn elicit(&self, _: Elicitation) -> ElicitAnswer {
        ElicitAnswer::Accept(Raw::empty_object())
    }
}

fn status(host: &Host) -> ServerStatus {
    host.status().remove(0)
}

fn last_error(host: &Host) -> String {
    status(host).last_error.unwrap_or_default()
}

async fn call(host: &Host, tool: &str, arguments: &Value) -> String {
    let result = host.call_tool(tool, Raw::from_value(arguments)).await.unwrap();
    let result: Value = result.read().unwrap();
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

/// Returns the next change of a state.
async fn change(events: &mut Events) -> StateChange {
    loop {
        if let Event::State(change) = events.next().await.unwrap() {
            return change;
        }
    }
}

/// Waits for a change to this state.
async fn until(host: &Host, wanted: StateName) {
    let mut events = host.events();
    while status(host).state != wanted {
        events.next().await.unwrap();
    }
}

/// Returns the requests of a start with a list over HTTP+SSE, on stream number `n`.
fn start(n: u32) -> Vec<String> {
    let post = |said: &str| format!("POST /messages?session={n} {said}");
    ["GET /sse".to_owned()]
        .into_iter()
        .chain(["initialize", "notifications/initialized", "tools/list"].map(post))
        .collect()
}

#[tokio::test]
async fn everything_comes_on_the_stream() {
    let server = Server::start(Script::default()).await;
    let host = host(&server, &json!({"type": "sse"})).await;
    let now = status(&host);
    assert_eq!((now.state, now.transport, now.tools), (StateName::Connected, "sse", 3), "{:?}", now.last_error);
    assert_eq!(now.revision.as_deref(), Some("2025-06-18"));
    assert_eq!(call(&host, "echo", &json!({"a": 1})).await, r#"{"a":1}"#);
    assert_eq!(server.story()[..4], start(1));
    for (index, seen) in server.seen().iter().enumerate() {
        assert_eq!(seen.headers["x-key"], "k-1", "{}", seen.what);
        // Negotiated by the second request.
        let version = (index > 1).then_some("2025-06-18");
        assert_eq!(seen.headers.get("mcp-protocol-version").map(String::as_str), version, "{}", seen.what);
    }
    host.shutdown().await;
}

#[tokio::test]
async fn a_call_reports_and_asks() {
    let server = Server::start(Script::default()).await;
    let host = started(&server, &json!({"type": "sse"}), Host::builder().client_handler(Handler)).await;
    let steps = Arc::new(Mutex::new(Vec::new()));
    let seen = steps.clone();
    let asked = host.call_tool("ask", Raw::empty_object());
    let result = asked.on_progress(move |step| seen.lock().unwrap().push(step.progress)).await.unwrap();
    assert!(result.as_str().contains("accept"), "{result}");
    assert_eq!(*steps.lock().unwrap(), [1.0]);
    host.shutdown().await;
}

#[tokio::test]
async fn older_revisions_have_no_version_header() {
    let server = Server::start(Script { version: "2025-03-26", ..Script::default() }).await;
    let host = host(&server, &json!({"type": "sse"})).await;
    call(&host, "echo", &json!({})).await;
    assert!(server.seen().iter().all(|seen| !seen.headers.contains_key("mcp-protocol-version")));
    host.shutdown().await;
}

#[tokio::test]
async fn what_servers_get_away_with() {
    let script = Script {
        // A mark, a comment, a retry, other line ends, a whole URL of the same origin.
        first: "\u{feff}: hello\r\nretry: 5\r\n\r\nevent:endpoint\r\ndata: http://127.0.0.1:PORT/messages?session=N\r\n\r\n",
        taken: (200, "taken"),
        ..Script::default()
    };
    let server = Server::start(script).await;
    let host = host(&server, &json!({"type": "sse"})).await;
    server.say("event: message\ndata: noise\n\nevent: other\ndata: {}\n\n: comment\n\n");
    server.say("data: {\"jsonrpc\":\"2.0\",\ndata: \"method\":\"notifications/tools/list_changed\"}\n\n");
    assert_eq!(call(&host, "echo", &json!({"b": [2.0]})).await, r#"{"b":[2.0]}"#);
    host.shutdown().await;
}

#[tokio::test]
async fn h29_an_endpoint_of_another_origin_is_refused() {
    let foreign = [
        ("http://localhost:PORT/messages?session=N", "http://localhost:PORT, "),
        ("https://127.0.0.1:PORT/messages?session=N", "https://127.0.0.1:PORT, "),
        ("//localhost:PORT/messages", "http://localhost:PORT, "),
        ("http://127.0.0.1:PORT@localhost:PORT/messages", "http://localhost:PORT, "),
        ("http://127.0.0.1:1/messages", "http://127.0.0.1:1, "),
        ("file:///messages", "file:, "),
    ];
    for (elsewhere, named) in foreign {
        let first = format!("event: endpoint\ndata: {elsewhere}\n\n");
        let server = Server::start(Script { first: first.leak(), ..Script::default() }).await;
        let host = host(&server, &json!({"type": "sse"})).await;
        let error = last_error(&host);
        assert_eq!(status(&host).state, StateName::Failed);
        assert!(error.contains(&named.replace("PORT", &server.port.to_string())), "{error}");
        assert!(error.starts_with(&format!("http://127.0.0.1:{} ", server.port)), "{error}");
        assert_eq!(server.story(), ["GET /sse"]);
        host.shutdown().await;
    }
}

#[tokio::test]
async fn h29_credentials_in_an_endpoint_are_not_sent() {
    let first = "event: endpoint\ndata: http://ada:key@127.0.0.1:PORT/messages?session=N\n\n";
    let server = Server::start(Script { first, ..Script::default() }).await;
    let host = host(&server, &json!({"type": "sse"})).await;
    assert_eq!(status(&host).state, StateName::Connected);
    assert!(server.seen().iter().all(|seen| !seen.headers.contains_key("authorization")));
    host.shutdown().await;
}

#[tokio::test]
async fn h28_redirects_within_the_origin() {
    let first = "event: endpoint\ndata: moved/messages?session=N\n\n";
    let server = Server::start(Script { first, ..Script::default() }).await;
    let url = |path: &str| json!({"type": "sse", "url": format!("http://127.0.0.1:{}{path}", server.port)});
    let followed = host(&server, &url("/moved/sse")).await;
    assert_eq!(status(&followed).state, StateName::Connected, "{}", last_error(&followed));
    assert_eq!(call(&followed, "echo", &json!({})).await, "{}");
    // Each message goes to where the endpoint event says, relative to the stream's URL.
    assert_eq!(
        server.story()[..4],
        [
            "GET /moved/sse",
            "GET /sse",
            "POST /moved/messages?session=1 initialize",
            "POST /messages?session=1 initialize",
        ]
    );
    followed.shutdown().await;
    for (path, why) in [("/round", "more than 3 times"), ("/away", "another origin"), ("/nowhere", "not a URL")] {
        let refused = host(&server, &url(path)).await;
        assert!(last_error(&refused).contains(why), "{}", last_error(&refused));
        refused.shutdown().await;
    }
    let away = json!({"type": "http", "era": "legacy", "url": format!("http://127.0.0.1:{}/found", server.port)});
    let refused = host(&server, &away).await;
    assert!(last_error(&refused).contains("no longer be a POST"), "{}", last_error(&refused));
    refused.shutdown().await;
}

#[tokio::test]
async fn a_silent_server_is_made_to_speak() {
    let server = Server::start(Script::default()).await;
    let host = host(&server, &json!({"type": "sse"})).await;
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    let pings = || server.story().iter().filter(|step| step.ends_with(" ping")).count();
    while pings() < 3 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        // A comment is a sign of life as well.
        if begun.elapsed() < Duration::from_secs(100) {
            server.say(": still here\n\n");
            assert_eq!(pings(), 0);
        }
    }
    assert!((185..=200).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    tokio::time::resume();
    assert_eq!(status(&host).state, StateName::Connected);
    host.shutdown().await;
}

#[tokio::test]
async fn a_lost_stream_is_a_lost_session() {
    let server = Server::start(Script::default()).await;
    let host = host(&server, &json!({"type": "sse", "restart": {"maxRetries": 5, "minDelay": "10ms"}})).await;
    let mut events = host.events();
    let hanging = host.call_tool("never", Raw::empty_object());
    let cut = async {
        while !server.story().last().unwrap().ends_with("tools/call") {
            tokio::task::yield_now().await;
        }
        server.hang_up();
    };
    let (outcome, ()) = tokio::join!(hanging, cut);
    let error = outcome.unwrap_err();
    assert!(error.to_string().contains("outcome is unknown"), "{error}");
    while change(&mut events).await.to != StateName::Connected {}
    assert_eq!(call(&host, "echo", &json!({})).await, "{}");
    let story = server.story();
    assert_eq!(story[5..9], start(2));
    assert!(story[9..].iter().all(|step| step.starts_with("POST /messages?session=2")));
    host.shutdown().await;
}

#[tokio::test]
async fn a_forgotten_session_is_opened_again_and_the_call_repeated() {
    let server = Server::start(Script::default()).await;
    let host = host(&server, &json!({"type": "sse", "restart": {"maxRetries": 5, "minDelay": "10ms"}})).await;
    server.refuse(404);
    let mut events = host.events();
    let lost = async {
        while change(&mut events).await.to != StateName::Reconnecting {}
        server.refuse(0);
    };
    let arguments = json!({});
    let (text, ()) = tokio::join!(call(&host, "echo", &arguments), lost);
    assert_eq!(text, "{}");
    host.shutdown().await;
}

#[tokio::test]
async fn h57_a_call_that_was_taken_is_not_sent_again_when_another_is_refused() {
    let server = Server::start(Script::default()).await;
    let host = host(&server, &json!({"type": "sse", "restart": {"maxRetries": 5, "minDelay": "10ms"}})).await;
    let mut events = host.events();
    let taken = host.call_tool("never", Raw::empty_object());
    let refused = async {
        while !server.story().last().unwrap().ends_with("tools/call") {
            tokio::task::yield_now().await;
        }
        server.refuse(404);
        let lost = async {
            while change(&mut events).await.to != StateName::Reconnecting {}
            server.refuse(0);
        };
        let arguments = json!({});
        tokio::join!(call(&host, "echo", &arguments), lost).0
    };
    let (taken, text) = tokio::join!(taken, refused);
    let error = taken.unwrap_err();
    assert!(error.to_string().contains("outcome is unknown"), "{error}");
    assert_eq!(text, "{}");
    let calls = server.story().iter().filter(|step| step.ends_with("tools/call")).count();
    assert_eq!(calls, 3, "one was taken, one refused, and that one was sent again");
    host.shutdown().await;
}

#[tokio::test]
async fn a_stream_that_does_not_say_where_to_post() {
    let cases = [
        ("event: message\ndata: {}\n\n", "began its event stream with `message`"),
        ("event: endpoint\ndata: http://[\n\n", "whose data is not a URL"),
        (": nothing\n\n", "startTimeout"),
    ];
    for (first, why) in cases {
        let server = Server::start(Script { first, ..Script::default() }).await;
        let host = host(&server, &json!({"type": "sse", "startTimeout": "300ms"})).await;
        assert_eq!(status(&host).state, StateName::Failed);
        assert!(last_error(&host).contains(why), "{}", last_error(&host));
        host.shutdown().await;
    }
}

#[tokio::test]
async fn an_endpoint_that_is_not_there() {
    let first = "event: endpoint\ndata: /elsewhere?key=secret\n\n";
    let server = Server::start(Script { first, ..Script::default() }).await;
    let host = host(&server, &json!({"type": "sse"})).await;
    let error = last_error(&host);
    assert!(error.contains("answered 404 at /elsewhere, ") && !error.contains("secret"), "{error}");
    host.shutdown().await;
}

#[tokio::test]
async fn an_event_has_a_cap() {
    let server = Server::start(Script::default()).await;
    let mut entry = json!({"type": "sse", "restart": {"maxRetries": 5, "minDelay": "10ms"}});
    entry["url"] = json!(format!("http://127.0.0.1:{}/sse", server.port));
    let text = json!({"mcpServers": {"old": entry}, "host": {"limits": {"message": "64KiB"}}}).to_string();
    let config = parse_str(&text, Syntax::Json, "test.json", &Vars::default()).unwrap();
    let host = Host::builder().config(config).start().await.unwrap();
    host.settled().await;
    let mut events = host.events();
    server.say(&format!("data: {}", "x".repeat(70_000)));
    let lost = loop {
        let event = change(&mut events).await;
        if event.to == StateName::Reconnecting {
            break event.cause.unwrap();
        }
    };
    assert!(lost.contains("64 KiB"), "{lost}");
    until(&host, StateName::Connected).await;
    host.shutdown().await;
}

#[tokio::test]
async fn h18_a_server_that_asks_without_end_and_takes_no_answer_holds_few_sockets() {
    let server = Server::start(Script { deaf: true, ..Script::default() }).await;
    let host = host(&server, &json!({"type": "sse"})).await;
    let flood: Vec<String> = (0..5000)
        .map(|id| json!({"jsonrpc": "2.0", "id": id, "method": if id % 2 == 0 { "ping" } else { "no/such" }}))
        .map(|request| format!("data: {request}\n\n"))
        .collect();
    server.say(&flood.concat());
    let all = async {
        while status(&host).dropped < 4900 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all).await.unwrap_or_else(|_| panic!("{}", status(&host).dropped));
    // Its calls continue meanwhile.
    assert_eq!(call(&host, "echo", &json!({"a": 1})).await, r#"{"a":1}"#);
    let answers = server.story().into_iter().filter(|what| what == "POST /messages?session=1 -").count();
    assert!((1..=16).contains(&answers), "{answers} at once");
    host.shutdown().await;
}

#[tokio::test]
async fn without_a_type_post_is_tried_first() {
    for (code, body) in [(405, ""), (404, "<html>"), (400, "{\"error\":\"no\"}"), (415, "no")] {
        let server = Server::start(Script { post: (code, body), ..Script::default() }).await;
        let host = host(&server, &json!({"restart": {"maxRetries": 5, "minDelay": "10ms"}})).await;
        let now = status(&host);
        assert_eq!((now.state, now.transport), (StateName::Connected, "sse"), "{code}: {:?}", now.last_error);
        let story = server.story();
        assert_eq!(story[..2], ["POST /sse server/discover", "POST /sse initialize"]);
        assert_eq!(story[2..], start(1));
        // Detecting it once is enough.
        server.hang_up();
        until(&host, StateName::Reconnecting).await;
        until(&host, StateName::Connected).await;
        assert_eq!(server.story()[6..], start(2));
        host.shutdown().await;
    }
}

#[tokio::test]
async fn what_says_nothing_of_transports() {
    const REFUSAL: &str = r#"{"jsonrpc":"2.0","id":"ID","error":{"code":-32000,"message":"not today"}}"#;
    let cases = [
        (401, "", StateName::Unauthorized, "wants a token", 1),
        (403, "", StateName::Unauthorized, "403", 1),
        (429, "", StateName::Failed, "429", 1),
        (500, "", StateName::Failed, "500", 1),
        (400, REFUSAL, StateName::Failed, "not today", 2),
    ];
    for (code, body, state, why, asked) in cases {
        let server = Server::start(Script { post: (code, body), ..Script::default() }).await;
        let host = host(&server, &json!({})).await;
        assert_eq!(status(&host).state, state, "{code}");
        assert!(last_error(&host).contains(why), "{}", last_error(&host));
        assert_eq!(server.story(), ["POST /sse server/discover", "POST /sse initialize"][..asked]);
        host.shutdown().await;
    }
}

#[tokio::test]
async fn a_server_is_asked_for_its_era_once_and_not_at_every_start() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(Script::default()).await;
    let first = ["POST /sse server/discover", "POST /sse initialize", "GET /sse"];
    for story in [&first[..], &first[1..]] {
        let before = server.story().len();
        let host = started(&server, &json!({}), Host::builder().state_directory(directory.path())).await;
        assert_eq!(status(&host).state, StateName::Connected);
        assert_eq!(server.story()[before..][..story.len()], *story);
        host.shutdown().await;
    }
}

#[tokio::test]
async fn neither_transport() {
    let server = Server::start(Script { get: 404, ..Script::default() }).await;
    let host = host(&server, &json!({})).await;
    let error = last_error(&host);
    assert_eq!(status(&host).state, StateName::Failed);
    assert!(error.contains("neither") && error.contains("answered 405") && error.contains("answered 404"), "{error}");
    assert_eq!(server.story(), ["POST /sse server/discover", "POST /sse initialize", "GET /sse"]);
    host.shutdown().await;
}

#[tokio::test]
async fn credentials_may_be_wanted_for_the_stream_only() {
    let server = Server::start(Script { get: 401, ..Script::default() }).await;
    let host = host(&server, &json!({})).await;
    assert_eq!(status(&host).state, StateName::Unauthorized);
    host.shutdown().await;
}

#[tokio::test]
async fn a_type_is_taken_at_its_word() {
    let server = Server::start(Script::default()).await;
    let host = host(&server, &json!({"type": "http"})).await;
    assert_eq!((status(&host).state, status(&host).transport), (StateName::Failed, "http"));
    assert_eq!(server.story(), ["POST /sse server/discover", "POST /sse initialize"]);
    host.shutdown().await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_program_gives_headers_for_the_stream_and_for_messages() {
    let helper = json!(["sh", "-c", "printf '{\"X-Key\": \"given-%s\"}' $$"]);
    for more in [json!({ "type": "sse", "headersHelper": helper }), json!({ "headersHelper": helper })] {
        let server = Server::start(Script::default()).await;
        let host = host(&server, &more).await;
        assert_eq!(status(&host).state, StateName::Connected, "{more}");
        let keys: Vec<(String, String)> = server
            .seen()
            .into_iter()
            .map(|seen| (seen.what, seen.headers.get("x-key").cloned().unwrap_or_default()))
            .collect();
        assert!(keys.iter().all(|(_, key)| key.starts_with("given-")), "{keys:?}");
        // Once detected as this transport it is a new connection, whose stream and messages share one set of headers.
        let stream = keys.iter().position(|(what, _)| what.starts_with("GET")).unwrap();
        assert!(keys[stream..].len() > 2 && keys[stream..].iter().all(|(_, key)| *key == keys[stream].1), "{keys:?}");
    }
}
