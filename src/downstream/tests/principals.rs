//! Authentication with tokens, and ownership of sessions.

use serde_json::Value;

use super::support::*;

/// Returns the status and the challenge, if any, of a request without a body.
async fn ask(house: &House, head: &str) -> (u16, Option<String>) {
    let mut peer = house.connect().await;
    let head = peer.send(&head.replace("ANN", ANN)).await;
    (head.status, head.headers.get("www-authenticate").cloned())
}

#[tokio::test]
async fn h80_a_request_carries_its_own_token() {
    let house = house_of(bearer(stage().await)).await;
    let plain = Some("Bearer".to_owned());
    let invalid = Some(r#"Bearer error="invalid_token""#.to_owned());
    let malformed = Some(r#"Bearer error="invalid_request""#.to_owned());
    // With a valid token the content type is checked next.
    let cases = [
        ("none", "", 401, plain.clone()),
        ("another scheme", "Authorization: Basic YTpi\r\n", 401, plain.clone()),
        ("no token in it", "Authorization: Bearer \r\n", 401, plain.clone()),
        ("no blank before it", "Authorization: Bearerthe token of ann\r\n", 401, plain.clone()),
        ("wrong", "Authorization: Bearer the token of eve\r\n", 401, invalid.clone()),
        ("begun", "Authorization: Bearer the token of an\r\n", 401, invalid.clone()),
        ("longer", "Authorization: Bearer the token of anna\r\n", 401, invalid.clone()),
        ("twice", "Authorization: Bearer ANN\r\nAuthorization: Bearer ANN\r\n", 400, malformed),
        ("the hash", "Authorization: Bearer sha256:HASH\r\n", 401, invalid.clone()),
        ("a header of a proxy", "X-Forwarded-User: ann\r\nX-Forwarded-For: 127.0.0.1\r\n", 401, plain.clone()),
        ("right", "Authorization: Bearer ANN\r\n", 415, None),
        ("right, in capitals", "AUTHORIZATION: BEARER  ANN\r\n", 415, None),
    ];
    let hash = crate::config::BearerClient::of_token("ann", ANN).unwrap().to_string();
    for (what, header, status, challenge) in cases {
        let header = header.replace("sha256:HASH", &hash);
        let request = format!("POST /mcp HTTP/1.1\r\nHost: HOST\r\n{header}\r\n");
        assert_eq!(ask(&house, &request).await, (status, challenge), "{what}");
    }
    for path in ["/mcp?access_token=ANN", "/mcp?token=ANN", "/sse?access_token=ANN", "/messages?access_token=ANN"] {
        let path = path.replace("ANN", &ANN.replace(' ', "%20"));
        let request = format!("GET {path} HTTP/1.1\r\nHost: HOST\r\n\r\n");
        assert_eq!(ask(&house, &request).await, (401, plain.clone()), "{path}");
    }
}

#[tokio::test]
async fn h80_nothing_is_told_before_a_token() {
    let house = house_of(bearer(stage().await)).await;
    for path in ["/mcp", "/sse", "/messages", "/console", "/metrics", "/nowhere", "/healthz/", "/READYZ", "*"] {
        for method in ["GET", "POST", "DELETE", "PUT", "OPTIONS"] {
            let request = format!("{method} {path} HTTP/1.1\r\nHost: HOST\r\n\r\n");
            assert_eq!(ask(&house, &request).await.0, 401, "{method} {path}");
        }
    }
    // The body is not waited for.
    let request = "POST /mcp HTTP/1.1\r\nHost: HOST\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n";
    assert_eq!(ask(&house, request).await.0, 401);
    // Supervisors have no token. They learn whether the host is ready, but not which servers are not.
    for (path, text) in [("/healthz", "ok\n"), ("/readyz", "ready\n")] {
        let mut peer = house.connect().await;
        let head = peer.send(&format!("GET {path} HTTP/1.1\r\nHost: HOST\r\n\r\n")).await;
        assert_eq!((head.status, &*peer.body(&head).await), (200, text));
        let head = peer.send(&format!("HEAD {path} HTTP/1.1\r\nHost: HOST\r\n\r\n")).await;
        assert_eq!(head.status, 200);
        let head = peer.send(&format!("POST {path} HTTP/1.1\r\nHost: HOST\r\n\r\n")).await;
        assert_eq!((head.status, head.headers.get("allow").map(String::as_str)), (405, Some("GET, HEAD")));
    }
}

#[tokio::test]
async fn h60_a_session_is_of_the_token_that_made_it() {
    let house = house_of(bearer(stage().await)).await;
    let ann = house.client_as(Some(ANN), "2025-03-26").await;
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let bodies = [ping, &format!("[{ping}]"), r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#];
    let mut strangers = Vec::new();
    for session in [ann.session.clone(), Some("0".repeat(64))] {
        let mut bob = house.connect().await;
        (bob.token, bob.session) = (Some(BOB), session);
        let mut answers = Vec::new();
        for body in bodies {
            let head = bob.post(body).await;
            answers.push((head.status, bob.body(&head).await));
        }
        for method in ["GET", "DELETE"] {
            let request = bob.request(method, "", "");
            let head = bob.send(&request).await;
            answers.push((head.status, bob.body(&head).await));
        }
        assert!(answers.iter().all(|(status, _)| *status == 404), "{answers:?}");
        strangers.push(answers);
    }
    assert_eq!(strangers[0], strangers[1], "a session of somebody else looks as if it was not there");
    // Without any token the answer reveals nothing about sessions.
    let mut nobody = house.again(&ann).await;
    nobody.token = None;
    assert_eq!(nobody.post(ping).await.status, 401);
    let mut again = house.again(&ann).await;
    assert_eq!(again.ask(ping).await["result"], Value::Object(Default::default()));
}

#[tokio::test]
async fn h60_a_stream_of_messages_is_of_the_token_that_opened_it() {
    let house = house_of(bearer(stage().await)).await;
    let mut ann = house.connect().await;
    let head = ann.send(&format!("GET /sse HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer {ANN}\r\n\r\n")).await;
    assert_eq!(head.status, 200);
    let first = ann.chunk().await.unwrap();
    let path = first.trim_end().rsplit(' ').next().unwrap().to_owned();
    let body = initialize("2024-11-05");
    for (token, status) in [(BOB, 404), ("", 401), (ANN, 202)] {
        let mut peer = house.connect().await;
        let token = if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: HOST\r\n{token}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        assert_eq!(peer.send(&request).await.status, status, "{token}");
    }
}

/// Sends a GET of `path` as another system user; returns the first line of the answer.
#[cfg(target_os = "linux")]
async fn get_as(user: u32, port: u16, path: &str) -> String {
    get_with(user, port, path, "").await
}

/// Does the same with another header.
#[cfg(target_os = "linux")]
pub(super) async fn get_with(user: u32, port: u16, path: &str, header: &str) -> String {
    let host = format!("127.0.0.1:{port}");
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'GET {path} HTTP/1.1\\r\\nHost: {host}\\r\\n{header}Connection: close\\r\\n\\r\\n' >&3; \
         IFS= read -r line <&3; printf %s \"$line\""
    );
    let mut command = tokio::process::Command::new("bash");
    let output = command.args(["-c", &script]).uid(user).current_dir("/").output().await.expect("bash runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn h80_another_user_of_this_machine_is_refused() {
    let me = rustix::process::geteuid();
    let house = house().await;
    assert_eq!(get_as(me.as_raw(), house.port, "/sse").await, "HTTP/1.1 200 OK");
    // Only root can act as another user; otherwise the table in `peer.rs` has to suffice.
    if me.is_root() {
        for (path, line) in [
            ("/sse", "HTTP/1.1 403 Forbidden"),
            ("/mcp", "HTTP/1.1 403 Forbidden"),
            ("/nowhere", "HTTP/1.1 403 Forbidden"),
            ("/healthz", "HTTP/1.1 200 OK"),
        ] {
            assert_eq!(get_as(65_534, house.port, path).await, line, "{path}");
        }
        // With tokens, the token identifies the client.
        let house = house_of(bearer(stage().await)).await;
        assert_eq!(get_as(65_534, house.port, "/mcp").await, "HTTP/1.1 401 Unauthorized");
    }
}
