//! HTTP responses that are invalid, never come, never end, or lead elsewhere.

use std::time::Duration;

use mcp_host::{Host, StateName};
use serde_json::{Value, json};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::Instant;

use super::server::{Close, Drip, EVENTS, Endless, Hold, Reset, Seen, Server, Step, http, text, with};
use super::{beside, call, host, host_with, reach, still_serves};

/// A server that does this with a call of `go`.
async fn on_go(steps: impl Fn(&Seen) -> Vec<Step> + Send + Sync + 'static) -> Server {
    Server::start(move |seen| (seen.tool() == "go").then(|| steps(seen))).await
}

async fn settled(server: &Server, more: Value) -> Host {
    let mut entry = server.entry();
    entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let host = host(entry).await;
    host.settled().await;
    host
}

#[tokio::test]
async fn h19_a_server_that_wants_to_be_left_alone_is() {
    let page = format!("{{\"x\":\"\u{1b}[2J{}\"}}", "a".repeat(5000));
    for (status, value, seconds) in
        [(429, "7", 7), (503, "-3", 1), (429, "soon", 1), (503, "Thu, 31 Dec 2099 23:59:59 GMT", 300)]
    {
        let page = page.clone();
        let server =
            on_go(move |_| with(status, &[("Content-Type", "application/json"), ("Retry-After", value)], &page)).await;
        let host = settled(&server, json!({})).await;
        tokio::time::pause();
        let error = call(&host, "go").await.unwrap_err();
        assert!(error.contains(&format!("answered {status} and wants no requests for {seconds}s")), "{error}");
        assert!(error.len() < 500 && !error.contains('\u{1b}'), "{error}");
        let error = call(&host, "good").await.unwrap_err();
        assert!(error.contains("wants no requests for another"), "{error}");
        assert_eq!(server.count("tools/call"), 1, "nothing is sent meanwhile");
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        still_serves(&host).await;
        tokio::time::resume();
        host.shutdown().await;
    }
    // Without `Retry-After` there is nothing to wait for, and with another status it means nothing.
    for (status, headers) in [(503, &[][..]), (500, &[("Retry-After", "100")][..])] {
        let server = on_go(move |_| with(status, headers, "")).await;
        let host = settled(&server, json!({})).await;
        call(&host, "go").await.unwrap_err();
        still_serves(&host).await;
        host.shutdown().await;
    }
}

#[tokio::test]
async fn h19_no_attempt_comes_before_its_time() {
    let server =
        Server::start(|seen| (seen.what() == "initialize").then(|| with(503, &[("Retry-After", "120")], ""))).await;
    let host = host(server.entry()).await;
    let cause = reach(&host, StateName::Reconnecting).await;
    assert!(cause.contains("503"), "{cause}");
    tokio::time::pause();
    beside(&host, tokio::time::sleep(Duration::from_secs(110))).await;
    assert_eq!(server.count("initialize"), 1);
    beside(&host, tokio::time::sleep(Duration::from_secs(20))).await;
    assert_eq!(server.count("initialize"), 2);
    tokio::time::resume();
    host.shutdown().await;
}

#[tokio::test]
async fn h20_a_stall_has_an_end_wherever_it_is() {
    let start = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{\"jsonrpc\":";
    let progress = |seen: &Seen| {
        let params = json!({ "progressToken": seen.body["params"]["_meta"]["progressToken"], "progress": 1 });
        let notice = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params });
        format!("data: {notice}\n\n")
    };
    let cases: [(&'static str, Value, &str, u64); 6] = [
        ("headers", json!({}), "within 60s (callTimeout)", 60),
        ("header", json!({}), "within 60s (callTimeout)", 60),
        ("body", json!({ "callTimeout": "10m" }), "did not continue its response within 60s", 60),
        ("bytes", json!({ "callTimeout": "2m" }), "within 120s (callTimeout)", 120),
        ("comments", json!({}), "within 60s (callTimeout)", 60),
        ("progress", json!({ "maxCallTime": "3m" }), "within 180s (maxCallTime)", 180),
    ];
    for (stall, more, want, seconds) in cases {
        let server = on_go(move |seen| match stall {
            "headers" => vec![Hold],
            "header" => vec![text("HTTP/1.1 200 OK\r\nX-Long: "), Drip(b"a".to_vec(), Duration::from_secs(1))],
            "body" => vec![text(start), Hold],
            "bytes" => vec![text(start), Drip(b" ".to_vec(), Duration::from_secs(1))],
            "comments" => vec![text(EVENTS), Drip(b":\n".to_vec(), Duration::from_secs(1))],
            _ => vec![text(EVENTS), Drip(progress(seen).into_bytes(), Duration::from_millis(200))],
        })
        .await;
        let host = settled(&server, more).await;
        tokio::time::pause();
        let begun = Instant::now();
        let error = call(&host, "go").await.unwrap_err();
        assert!(error.contains(want), "{stall}: {error}");
        let took = begun.elapsed().as_secs();
        assert!((seconds..seconds + 2).contains(&took), "{stall}: {took}");
        still_serves(&host).await;
        tokio::time::resume();
        host.shutdown().await;
    }
}

#[tokio::test]
async fn h20_a_stream_of_news_that_is_never_opened_is_given_up() {
    let server = Server::start(|seen| (seen.what() == "GET").then(|| vec![Hold])).await;
    let host = settled(&server, json!({})).await;
    tokio::time::pause();
    beside(&host, tokio::time::sleep(Duration::from_secs(55))).await;
    assert_eq!(server.count("GET"), 1);
    beside(&host, tokio::time::sleep(Duration::from_secs(15))).await;
    assert_eq!(server.count("GET"), 2);
    tokio::time::resume();
    host.shutdown().await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn h20_a_connection_that_is_never_made_is_given_up() {
    // A full queue: the next connection gets no answer at all.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut full = Vec::new();
    while let Ok(stream) = tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await {
        full.push(stream.unwrap());
    }
    tokio::time::pause();
    let entry = json!({ "type": "http", "url": format!("http://{address}/"), "era": "legacy" });
    let begun = Instant::now();
    let host = host(entry).await;
    let cause = reach(&host, StateName::Reconnecting).await;
    assert!(cause.contains("cannot reach"), "{cause}");
    let took = begun.elapsed().as_secs();
    // The clock runs ahead of a busy machine; a start as a whole has thirty seconds.
    assert!((9..25).contains(&took), "{took}");
    tokio::time::resume();
    host.shutdown().await;
}

#[tokio::test]
async fn h21_what_is_too_much_is_not_taken() {
    let head = |more: &str| text(format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{more}\r\n\r\n"));
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000)).into_bytes();
    // Compressed a thousand to one, without being requested.
    let cases: [(&str, Vec<Step>, &str); 5] = [
        ("said", vec![head("Content-Length: 1073741824"), Hold], "host.limits.message"),
        ("said and sent", vec![head("Content-Length: 1073741824"), Endless(b" ".to_vec())], "host.limits.message"),
        ("in chunks", vec![head("Transfer-Encoding: chunked"), Endless(chunk)], "host.limits.message"),
        ("to the end", vec![head("Connection: close"), Endless(b" ".to_vec())], "host.limits.message"),
        ("packed", vec![head("Content-Encoding: gzip\r\nContent-Length: 1000"), Endless(vec![0x1f])], "encoding gzip"),
    ];
    for (case, steps, want) in cases {
        let server = on_go(move |_| steps.clone()).await;
        let host = host_with(server.entry(), json!({ "message": "1MiB" })).await;
        host.settled().await;
        let error = call(&host, "go").await.unwrap_err();
        assert!(error.contains(want), "{case}: {error}");
        still_serves(&host).await;
        assert!(
            server.seen().iter().all(|seen| !seen.headers.contains_key("accept-encoding")),
            "no request asks for it"
        );
        host.shutdown().await;
    }
    // A refusal is read no further than it is shown.
    let server =
        on_go(|_| vec![text("HTTP/1.1 500 X\r\nContent-Type: application/json\r\n\r\n"), Endless(b"{".to_vec())]).await;
    let host = settled(&server, json!({})).await;
    let error = call(&host, "go").await.unwrap_err();
    assert!(error.contains("answered 500"), "{error}");
    host.shutdown().await;
}

#[tokio::test]
async fn h22_what_is_no_http_is_no_answer_and_its_connection_is_over() {
    let ok = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
    type Make = fn(&str, &str) -> String;
    let cases: [(&str, Make); 17] = [
        ("cut before its length", |ok, body| format!("{ok}Content-Length: {}\r\n\r\n{body}", body.len() + 1)),
        ("half a body", |ok, body| format!("{ok}Content-Length: {}\r\n\r\n{}", body.len(), &body[..body.len() / 2])),
        ("chunks without an end", |ok, body| {
            format!("{ok}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n", body.len())
        }),
        ("a chunk of no size", |ok, body| format!("{ok}Transfer-Encoding: chunked\r\n\r\nzz\r\n{body}\r\n0\r\n\r\n")),
        ("a chunk of a huge size", |ok, body| {
            format!("{ok}Transfer-Encoding: chunked\r\n\r\nfffffffffffffffffff\r\n{body}\r\n0\r\n\r\n")
        }),
        ("a chunk longer than said", |ok, body| {
            format!("{ok}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len() - 1)
        }),
        ("both lengths", |ok, body| {
            let length = body.len();
            format!(
                "{ok}Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n"
            )
        }),
        ("both lengths, another answer behind", |ok, body| {
            let length = body.len();
            let forged = body.replace("good", "forged");
            format!(
                "{ok}Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n{ok}Content-Length: {}\r\n\r\n{forged}",
                forged.len()
            )
        }),
        ("two lengths", |ok, body| format!("{ok}Content-Length: {}\r\nContent-Length: 2\r\n\r\n{body}", body.len())),
        ("a negative length", |ok, body| format!("{ok}Content-Length: -1\r\n\r\n{body}")),
        ("a length that is none", |ok, body| format!("{ok}Content-Length: many\r\n\r\n{body}")),
        ("a megabyte of headers", |ok, body| {
            format!("{ok}X: {}\r\nContent-Length: {}\r\n\r\n{body}", "x".repeat(1 << 20), body.len())
        }),
        ("two hundred headers", |ok, body| {
            format!("{ok}{}Content-Length: {}\r\n\r\n{body}", "X: x\r\n".repeat(200), body.len())
        }),
        ("no HTTP", |_, body| format!("{body}\r\n\r\n")),
        ("no status", |ok, body| format!("{}Content-Length: {}\r\n\r\n{body}", ok.replace("200", "2000"), body.len())),
        ("half a head", |ok, _| ok[..ok.len() / 2].to_owned()),
        ("nothing", |_, _| String::new()),
    ];
    for (case, make) in cases {
        for end in [Close, Reset] {
            let answer = end.clone();
            let server = on_go(move |seen| vec![text(make(ok, &seen.done("go"))), answer.clone()]).await;
            let host = settled(&server, json!({})).await;
            let outcome = call(&host, "go").await;
            assert!(outcome.is_err(), "{case}: {outcome:?}");
            still_serves(&host).await;
            let calls = server.seen().into_iter().filter(|seen| seen.what() == "tools/call").collect::<Vec<_>>();
            assert_eq!(calls.len(), 2, "{case}: a call is sent once");
            assert_ne!(calls[0].connection, calls[1].connection, "{case}: its connection is used again");
            host.shutdown().await;
        }
    }
}

#[tokio::test]
async fn h22_a_connection_with_two_lengths_is_not_used_again_though_it_stays_open() {
    let server = on_go(|seen| {
        let (body, ok) = (seen.done("go"), "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n");
        let length = body.len();
        vec![text(format!(
            "{ok}Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n"
        ))]
    })
    .await;
    let host = settled(&server, json!({})).await;
    let error = call(&host, "go").await.unwrap_err();
    assert!(error.contains("both Content-Length and Transfer-Encoding"), "{error}");
    still_serves(&host).await;
    let calls = server.seen().into_iter().filter(|seen| seen.what() == "tools/call").collect::<Vec<_>>();
    assert_ne!(calls[0].connection, calls[1].connection);
    host.shutdown().await;
}

#[tokio::test]
async fn h22_answers_before_the_answer_have_an_end() {
    let hint = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n";
    let server = on_go(move |_| vec![Endless(hint.as_bytes().to_vec())]).await;
    let host = settled(&server, json!({ "callTimeout": "500ms" })).await;
    let error = call(&host, "go").await.unwrap_err();
    assert!(error.contains("callTimeout") || error.contains("outcome is unknown"), "{error}");
    still_serves(&host).await;
    host.shutdown().await;
}

#[tokio::test]
async fn h23_what_is_no_answer_is_named_and_not_forwarded() {
    let page = "<html><form action=login>SECRET</form></html>";
    let long = format!("x/{}", "y".repeat(5000));
    let cases: Vec<(Vec<Step>, &str)> = vec![
        (http(200, "text/html; charset=utf-8", page), "text/html"),
        (http(200, "text/plain", page), "text/plain"),
        (http(200, "application/xml", page), "application/xml"),
        (http(200, "application/problem+json", "{}"), "application/problem+json"),
        (http(200, "multipart/form-data; boundary=x", page), "multipart/form-data"),
        (http(200, &long, page), "x/yyyy"),
        (with(200, &[], page), "no content type"),
        (with(200, &[("Content-Type", "")], page), "no content type"),
        (http(200, "application/json", page), "not JSON"),
        (http(200, "application/json", ""), "not JSON"),
        (http(200, "application/json", "[]"), "a batch"),
        (http(200, "application/json", "7"), "not an object"),
        (with(200, &[], ""), "status 200 and nothing else"),
        (with(202, &[], ""), "status 202 and nothing else"),
        (vec![text("HTTP/1.1 204 X\r\n\r\n")], "status 204 and nothing else"),
        (http(500, "text/html", page), "answered 500"),
        (http(404, "text/html", page), "answered 404"),
        (http(418, "application/json", "{\"message\":\"no\"}"), "answered 418"),
    ];
    for (steps, want) in cases {
        let server = on_go(move |_| steps.clone()).await;
        let host = settled(&server, json!({})).await;
        let error = call(&host, "go").await.unwrap_err();
        assert!(error.contains(want) && error.contains("no answer of MCP"), "{want}: {error}");
        assert!(!error.contains("SECRET") && error.len() < 400, "{error}");
        still_serves(&host).await;
        host.shutdown().await;
    }
}

#[tokio::test]
async fn h28_nothing_ever_goes_to_another_origin() {
    let canary = Server::start(|_| None).await;
    let port = canary.port;
    let targets = [
        format!("http://127.0.0.1:{port}/mcp"),
        format!("//127.0.0.1:{port}/mcp"),
        format!("http://localhost:{port}/mcp"),
        format!("https://127.0.0.1:{port}/mcp"),
        format!("http://user@127.0.0.1:{port}/mcp"),
        "file:///etc/passwd".to_owned(),
        "http://169.254.169.254/latest/".to_owned(),
        "http://[::1".to_owned(),
        String::new(),
        "/mcp".to_owned(),
    ];
    for target in targets {
        for status in [301, 302, 303, 307, 308] {
            let location = target.clone();
            let server = on_go(move |_| with(status, &[("Location", &location)], "")).await;
            let host = settled(&server, json!({ "headers": { "Authorization": "Bearer k", "X-Key": "k" } })).await;
            let error = call(&host, "go").await.unwrap_err();
            let hint = if target == "/mcp" || target.is_empty() { "redirects" } else { "redirects POST to" };
            assert!(error.contains(hint), "{status} {target}: {error}");
            let sent = server.count("tools/call");
            // In circles: three redirects at most.
            assert_eq!(sent, if hint == "redirects" && status > 303 { 4 } else { 1 }, "{status} {target}");
            still_serves(&host).await;
            host.shutdown().await;
        }
    }
    assert_eq!(canary.connections(), 0);
}

#[tokio::test]
async fn h31_session_ids_by_table() {
    let long = "x".repeat(1025);
    let cases: [(&str, bool); 9] = [
        ("a", true),
        ("!~-1f", true),
        (&long[..1024], true),
        (&long, false),
        ("a b", false),
        ("a\tb", false),
        ("caf\u{e9}", false),
        ("", false),
        ("a\r\nMcp-Session-Id: b", false),
    ];
    for (id, legal) in cases {
        let given = id.to_owned();
        let server = Server::start(move |seen| {
            let body = seen
                .answer(&json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} }, "serverInfo": {} }));
            let headers = [("Content-Type", "application/json"), ("Mcp-Session-Id", &*given)];
            (seen.what() == "initialize").then(|| with(200, &headers, &body))
        })
        .await;
        let host = host(server.entry()).await;
        if legal {
            host.settled().await;
            still_serves(&host).await;
            let later = server.seen().into_iter().filter(|seen| seen.what() != "initialize");
            assert!(later.into_iter().all(|seen| seen.headers["mcp-session-id"] == id), "{id}");
        } else {
            let cause = reach(&host, StateName::Reconnecting).await;
            assert!(cause.contains("session id"), "{id:?}: {cause}");
            assert!(server.seen().iter().all(|seen| !seen.headers.contains_key("mcp-session-id")), "{id:?}");
        }
        host.shutdown().await;
    }
}

#[tokio::test]
async fn h31_an_id_that_comes_after_the_handshake_is_none() {
    let server = Server::start(|seen| {
        let headers = [("Content-Type", "application/json"), ("Mcp-Session-Id", "late")];
        let tools = json!({ "tools": [{ "name": "good", "inputSchema": { "type": "object" } }] });
        (seen.what() == "tools/list").then(|| with(200, &headers, &seen.answer(&tools)))
    })
    .await;
    let host = settled(&server, json!({})).await;
    still_serves(&host).await;
    assert_eq!((server.count("tools/list"), server.count("tools/call")), (1, 1));
    assert!(server.seen().iter().all(|seen| !seen.headers.contains_key("mcp-session-id")));
    host.shutdown().await;
}

#[tokio::test]
async fn h31_another_id_ends_the_session() {
    let server = Server::start(|seen| {
        let json = ("Content-Type", "application/json");
        let session = format!("s-{}", seen.connection);
        match (seen.what(), seen.tool()) {
            ("initialize", _) => {
                let result =
                    json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} }, "serverInfo": {} });
                Some(with(200, &[json, ("Mcp-Session-Id", &session)], &seen.answer(&result)))
            }
            ("tools/call", "go") => Some(with(200, &[json, ("Mcp-Session-Id", "s-of-another")], &seen.done("stolen"))),
            _ => None,
        }
    })
    .await;
    let host = settled(&server, json!({ "restart": { "minDelay": "20ms", "maxDelay": "50ms" } })).await;
    let error = call(&host, "go").await.unwrap_err();
    assert!(error.contains("changed the session id") && error.contains("outcome is unknown"), "{error}");
    still_serves(&host).await;
    assert_eq!((server.count("initialize"), server.count("tools/call")), (2, 2));
    assert!(server.seen().iter().all(|seen| seen.headers.get("mcp-session-id").is_none_or(|id| id != "s-of-another")));
    host.shutdown().await;
}

#[tokio::test]
async fn h20_a_good_answer_that_takes_its_time_is_one() {
    let server = on_go(|seen| {
        let body = seen.done("slow");
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
        vec![text(head), Drip(body.into_bytes(), Duration::from_millis(200))]
    })
    .await;
    let host = settled(&server, json!({})).await;
    tokio::time::pause();
    assert_eq!(call(&host, "go").await.as_deref(), Ok("slow"));
    tokio::time::resume();
    host.shutdown().await;
}
