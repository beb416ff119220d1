//! Clients that send very many requests, very large ones, or ones that name nothing that exists.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::Target;
use super::wire::{Wire, call, get, head, hello, modern_post, post, post_text, request, within};

/// Time between two rounds of one client.
const AGAIN: Duration = Duration::from_millis(50);
/// Requests per round over one connection.
const BURST: u64 = 100;
/// How long responses are left unread.
const STAY: Duration = Duration::from_secs(6);

/// Sessions, one after the other, none of them ended.
pub(super) fn initialize(target: &Target) -> LocalBoxFuture<'static, ()> {
    let of = target.hoards();
    target.many(8, AGAIN, move |_| {
        let target = of.clone();
        async move {
            let mut wire = Wire::open(&target).await?;
            for _ in 0..BURST {
                wire.ask(&post(&target, "", &hello(&json!({})))).await?;
            }
            Ok(())
        }
    })
}

/// Pipelined requests on a connection whose responses are not read.
pub(super) fn unread(target: &Target) -> LocalBoxFuture<'static, ()> {
    let of = target.clone();
    target.many(16, AGAIN, move |number| {
        let target = of.clone();
        async move {
            let mut wire = Wire::narrow(&target).await?;
            let list = modern_post(&target, "tools/list", json!({}), "flood");
            let call = modern_post(
                &target,
                "tools/call",
                json!({ "name": "work__echo", "arguments": {} }),
                &number.to_string(),
            );
            let flood = async {
                // Continues until the buffers of both sockets are full.
                while wire.send(&list).await.is_ok() && wire.send(&call).await.is_ok() {}
            };
            let _ = timeout(STAY, flood).await;
            Ok(())
        }
    })
}

/// Results of megabytes, of which only the first bytes are read.
pub(super) fn huge(target: &Target) -> LocalBoxFuture<'static, ()> {
    let of = target.clone();
    target.many(32, AGAIN, move |number| {
        let target = of.clone();
        async move {
            let mut wire = Wire::narrow(&target).await?;
            let tool = if number % 2 == 0 { "big__bulk" } else { "big__stream" };
            if number % 8 == 0 {
                let session = wire.session(&target, &json!({})).await?;
                wire.send(&post(&target, &within(&session), &call(1, tool))).await?;
                wire.answer(true).await?;
                sleep(STAY).await;
                return Wire::open(&target).await?.end(&target, &session).await;
            }
            let params = json!({ "name": tool, "arguments": {}, "_meta": { "progressToken": 1 } });
            wire.send(&modern_post(&target, "tools/call", params, "huge")).await?;
            let mut some = [0; 512];
            wire.0.readable().await?;
            wire.0.try_read(&mut some)?;
            sleep(STAY).await;
            Ok(())
        }
    })
}

/// Cancellations, progress, and responses that belong to nothing.
pub(super) fn notices(target: &Target) -> LocalBoxFuture<'static, ()> {
    let of = target.clone();
    target.many(4, AGAIN, move |_| {
        let target = of.clone();
        async move {
            let mut wire = Wire::open(&target).await?;
            let session = wire.session(&target, &json!({})).await?;
            let within = within(&session);
            let notice = |name: &str, params| json!({ "jsonrpc": "2.0", "method": name, "params": params });
            for number in 0..BURST {
                let message = match number % 4 {
                    0 => notice("notifications/cancelled", json!({ "requestId": number, "reason": "x".repeat(1000) })),
                    1 => notice("notifications/progress", json!({ "progressToken": number, "progress": number })),
                    2 => json!({ "jsonrpc": "2.0", "id": number, "result": {} }),
                    _ => json!({ "jsonrpc": "2.0", "id": format!("q{number}"), "error": { "code": 1, "message": "" } }),
                };
                let answer = wire.ask(&post(&target, &within, &message)).await?;
                if answer.status >= 500 && answer.status != 503 {
                    target.wrong(format!("a notice was answered {}", answer.text));
                }
            }
            wire.end(&target, &session).await
        }
    })
}

/// Bodies that are not JSON, JSON that is not a message, JSON that nests too deep, and names of a mebibyte.
pub(super) fn malformed(target: &Target) -> LocalBoxFuture<'static, ()> {
    let of = target.clone();
    let mib = "x".repeat(1 << 20);
    let long = json!({ "name": mib, "arguments": { "text": "bad" } });
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let within_call = |inner: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"work__echo","arguments":{{"text":{inner}}}}}}}"#
        )
    };
    let bodies = [
        String::new(),
        "{".to_owned(),
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":".to_owned(),
        "\u{0}\u{1b}]52;c;\u{7}".to_owned(),
        deep(100_000),
        within_call(&deep(10_000)),
        within_call(&format!("{}1", "{\"a\":".repeat(50_000))),
        request(1, "tools/call", &long).to_string(),
        request(1, "prompts/get", &json!({ "name": mib })).to_string(),
        request(1, &mib, &json!({})).to_string(),
        request(1, "resources/read", &json!({ "uri": mib })).to_string(),
        format!("[{}]", vec!["{}"; 50_000].join(",")),
        format!("{{{}}}", vec!["\"id\":1"; 50_000].join(",")),
        format!(r#"{{"jsonrpc":"2.0","id":{},"method":"ping"}}"#, "9".repeat(100_000)),
    ];
    let bodies = Rc::new(bodies);
    target.many(4, AGAIN, move |_| {
        let (target, bodies) = (of.clone(), bodies.clone());
        async move {
            let mut wire = Wire::open(&target).await?;
            let session = wire.session(&target, &json!({})).await?;
            let within = within(&session);
            for body in bodies.iter() {
                let answer = wire.ask(&post_text(&target, &within, body)).await?;
                if answer.status >= 500 && answer.status != 503 {
                    target.wrong(format!("a malformed request was answered {}", answer.status));
                }
                // An error repeats at most 256 characters of a name.
                if answer.text.len() > 64 * 1024 {
                    target.wrong(format!("a malformed request was answered with {} bytes", answer.text.len()));
                }
                target.did();
            }
            wire.end(&target, &session).await
        }
    })
}

/// Invalid hosts, origins, tokens, sessions, and paths.
pub(super) fn guesses(target: &Target) -> LocalBoxFuture<'static, ()> {
    let of = target.clone();
    target.many(4, AGAIN, move |_| {
        let target = of.clone();
        async move {
            let address = target.place.address;
            let hello = hello(&json!({})).to_string();
            let bare = |headers: String| {
                format!("POST /mcp HTTP/1.1\r\n{headers}Content-Length: {}\r\n\r\n{hello}", hello.len())
            };
            let json = "Content-Type: application/json\r\n";
            for round in 0..BURST / 10 {
                let session = format!("{round:064x}");
                let guesses = [
                    bare(format!("Host: evil.example\r\n{json}")),
                    bare(format!("Host: {address}\r\nOrigin: http://evil.example\r\n{json}")),
                    bare(format!("Host: {address}\r\n{json}")),
                    bare(format!("Host: {address}\r\nAuthorization: Bearer {round}\r\n{json}")),
                    post(&target, &within(&session), &call(1, "good__echo")),
                    get(&target, &within(&session)),
                    format!("{}\r\n", head(&target, "GET /messages?sessionId=1", "")),
                    format!("{}\r\n", head(&target, "DELETE /mcp", &within(&session))),
                    format!("{}\r\n", head(&target, "GET /../etc/passwd", "")),
                ];
                let mut wire = Wire::open(&target).await?;
                for guess in guesses {
                    let Ok(answer) = wire.ask(&guess).await else {
                        // Some of them cost the connection.
                        wire = Wire::open(&target).await?;
                        continue;
                    };
                    if answer.status < 400 {
                        let line = guess.lines().next().unwrap_or_default();
                        target.wrong(format!("a guess was right: {line}: {}", answer.text));
                    }
                }
            }
            Ok::<(), io::Error>(())
        }
    })
}
