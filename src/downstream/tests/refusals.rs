//! Requests that the HTTP door refuses, and its answers.

use serde_json::Value;

use super::support::*;

/// Refused requests: name, request, status, error code, and a part of the message.
const CASES: &[(&str, &str, u16, i64, &str)] = &[
    ("no host", "POST /mcp HTTP/1.1\r\n\r\n", 400, -32600, "`Host` is missing"),
    ("foreign host", "POST /mcp HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403, -32600, "allowedHosts"),
    ("foreign host elsewhere", "GET /healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403, -32600, "allowedHosts"),
    ("foreign host nowhere", "GET /x HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403, -32600, "allowedHosts"),
    ("foreign origin", "GET /mcp HTTP/1.1\r\nHost: HOST\r\nOrigin: http://evil.example\r\n\r\n", 403, -32600, "Origin"),
    ("web page", "GET /readyz HTTP/1.1\r\nHost: HOST\r\nSec-Fetch-Site: cross-site\r\n\r\n", 403, -32600, "web sites"),
    ("options", "OPTIONS /mcp HTTP/1.1\r\nHost: HOST\r\n\r\n", 405, -32600, "POST, GET or DELETE"),
    ("put", "PUT /mcp HTTP/1.1\r\nHost: HOST\r\n\r\n", 405, -32600, "POST, GET or DELETE"),
    ("nothing there", "POST /nowhere HTTP/1.1\r\nHost: HOST\r\n\r\n", 404, -32600, "/mcp"),
    ("no type", "POST /mcp HTTP/1.1\r\nHost: HOST\r\n\r\n", 415, -32600, "application/json"),
    (
        "a form",
        "POST /mcp HTTP/1.1\r\nHost: HOST\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}",
        415,
        -32600,
        "application/json",
    ),
    (
        "json only",
        "POST /mcp HTTP/1.1\r\nHost: HOST\r\nContent-Type: application/json\r\nAccept: application/json\r\n\r\n",
        406,
        -32600,
        "text/event-stream",
    ),
    ("get of a page", "GET /mcp HTTP/1.1\r\nHost: HOST\r\nAccept: text/html\r\n\r\n", 406, -32600, "text/event-stream"),
    ("get without session", "GET /mcp HTTP/1.1\r\nHost: HOST\r\n\r\n", 400, -32600, "Mcp-Session-Id"),
    (
        "get of an unknown session",
        "GET /mcp HTTP/1.1\r\nHost: HOST\r\nMcp-Session-Id: 1\r\n\r\n",
        404,
        -32600,
        "no such session",
    ),
    (
        "two sessions",
        "GET /mcp HTTP/1.1\r\nHost: HOST\r\nMcp-Session-Id: 1\r\nMcp-Session-Id: 2\r\n\r\n",
        400,
        -32600,
        "more than one",
    ),
    (
        "delete in a newer revision",
        "DELETE /mcp HTTP/1.1\r\nHost: HOST\r\nMCP-Protocol-Version: 2026-07-28\r\n\r\n",
        405,
        -32600,
        "no sessions in this revision",
    ),
    (
        "get in an unknown revision",
        "GET /mcp HTTP/1.1\r\nHost: HOST\r\nMCP-Protocol-Version: 2025-01-01\r\n\r\n",
        400,
        -32600,
        "one of 2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25",
    ),
];

#[tokio::test]
async fn refusals_by_head() {
    let house = house().await;
    for (what, request, status, code, part) in CASES {
        let mut peer = house.connect().await;
        let head = peer.send(request).await;
        let body = peer.body(&head).await;
        let error: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((head.status, error["error"]["code"].as_i64()), (*status, Some(*code)), "{what}");
        assert!(error["error"]["message"].as_str().unwrap().contains(part), "{what}: {body}");
        assert_eq!(error.get("id"), None, "{what}");
        assert!(!head.headers.keys().any(|name| name.starts_with("access-control")), "{what}");
        assert_eq!(head.headers.contains_key("allow"), *status == 405, "{what}");
    }
}

#[tokio::test]
async fn h82_refusals_by_body_keep_the_connection() {
    let house = house().await;
    let claim = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    let cases = [
        ("", 400, -32700, None),
        ("{", 400, -32700, None),
        ("[]", 400, -32600, None),
        (r#"[{"jsonrpc":"2.0","id":7,"method":"ping"}]"#, 400, -32600, None),
        (r#"{"jsonrpc":"2.0","id":7}"#, 400, -32600, Some(7)),
        (r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#, 400, -32600, Some(7)),
        (claim, 400, -32020, Some(7)),
    ];
    let mut peer = house.connect().await;
    for (body, status, code, id) in cases {
        let head = peer.post(body).await;
        let answer: Value = serde_json::from_str(&peer.body(&head).await).unwrap();
        assert_eq!((head.status, answer["error"]["code"].as_i64()), (status, Some(code)), "{body}");
        assert_eq!(answer.get("id").and_then(Value::as_i64), id, "{body}");
    }
    peer.session = Some("0".repeat(64));
    let head = peer.post(&call(7, "echo")).await;
    assert_eq!(head.status, 404);
    peer.body(&head).await;
    let request = peer.request("POST", "MCP-Protocol-Version: 2026-07-28\r\n", &call(7, "echo"));
    assert_eq!(peer.send(&request).await.status, 400);
}

#[tokio::test]
async fn h81_bodies_have_a_cap() {
    let house = house_of(stage_with(|limits| limits.body = 1000).await).await;
    let mut peer = house.client("2025-11-25").await;
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    for (length, status) in [(999, 200), (1000, 200), (1001, 413), (3999, 413), (5000, 413)] {
        let body = format!("{ping}{}", " ".repeat(length - ping.len()));
        let head = peer.post(&body).await;
        assert_eq!(head.status, status, "{length}");
        let answer: Value = serde_json::from_str(&peer.body(&head).await).unwrap();
        assert_eq!(answer.get("error").is_some(), status == 413);
    }
}

#[tokio::test]
async fn accept_may_be_wide_or_missing() {
    let house = house().await;
    for accept in [
        "",
        "Accept: */*\r\n",
        "Accept: text/*;q=0.5, application/*\r\n",
        "accept: text/event-stream\r\nAccept: Application/JSON\r\n",
    ] {
        let mut peer = house.connect().await;
        let body = initialize("2025-06-18");
        let head = peer
            .send(&format!(
                "POST /mcp HTTP/1.1\r\nHost: HOST\r\nContent-Type: application/json; charset=utf-8\r\n{accept}Content-Length: {}\r\n\r\n{body}",
                body.len()
            ))
            .await;
        assert_eq!(head.status, 200, "{accept}");
    }
}

/// Bytes that are not HTTP, or that state two lengths, end their own connection and no other.
#[tokio::test]
async fn h82_broken_framing_ends_its_own_connection() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let house = house().await;
    let mut other = house.client("2025-11-25").await;
    other.tell(&call(1, "slow")).await;
    until(|| house.stage.running() == 1).await;
    let cases: [&[u8]; 12] = [
        b"\r\n\r\n\0\0\0",
        b"nonsense\r\n\r\n",
        b"POST /mcp HTTP/9.9\r\n\r\n",
        b"POST /mcp\x00 HTTP/1.1\r\nHost: HOST\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost HOST\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: HOST\r\nX: \x00\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: HOST\r\nContent-Length: -1\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: HOST\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /mcp HTTP/1.1\r\nHost: HOST\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: gzip\r\n\r\n{}",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ];
    for said in cases {
        let host = format!("127.0.0.1:{}", house.port);
        let said = match std::str::from_utf8(said) {
            Ok(text) => text.replace("HOST", &host).into_bytes(),
            Err(_) => said.to_vec(),
        };
        let mut peer = house.connect().await;
        peer.stream.write_all(&said).await.unwrap();
        let mut answer = Vec::new();
        let read = peer.stream.read_to_end(&mut answer);
        let _ = tokio::time::timeout(std::time::Duration::from_secs(30), read).await.expect("it is closed");
        let text = String::from_utf8_lossy(&answer);
        let refused = !answer.starts_with(b"HTTP/1.1") || answer.starts_with(b"HTTP/1.1 4");
        assert!(refused, "{:?}: {text}", String::from_utf8_lossy(&said));
    }
    house.stage.release();
    let head = other.head().await;
    assert_eq!(head.status, 200);
}

#[tokio::test]
async fn h38_what_nests_deeper_than_the_limit_is_refused() {
    let house = house_of(stage_with(|limits| limits.depth = 8).await).await;
    let mut peer = house.client("2025-11-25").await;
    for (depth, status) in [(8, 200), (9, 400), (100_000, 400), (8, 200)] {
        let head = peer.post(&nested(depth)).await;
        peer.body(&head).await;
        assert_eq!(head.status, status, "{depth}");
    }
}

/// A body over the limit is discarded as it arrives, up to four times the limit; the rest is not read.
#[tokio::test]
async fn h81_a_body_far_over_the_cap_is_refused_before_its_end() {
    let house = house_of(stage_with(|limits| limits.body = 1000).await).await;
    let whole = |body: &str, length: &str| {
        let more = format!("Host: HOST\r\nContent-Type: application/json\r\n{length}");
        format!("POST /mcp HTTP/1.1\r\n{more}\r\n\r\n{body}")
    };
    let chunk = format!("3e8\r\n{}\r\n", " ".repeat(1000)).repeat(5);
    for request in [whole("", "Content-Length: 4001"), whole(&chunk, "Transfer-Encoding: chunked")] {
        let mut peer = house.connect().await;
        let answered = tokio::time::timeout(std::time::Duration::from_secs(20), peer.send(&request)).await;
        assert_eq!(answered.expect("it is waited for").status, 413, "{request:.80}");
    }
}
