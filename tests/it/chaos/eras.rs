//! Servers of every era and manner, detected: modern, legacy, both, and misbehaving ones of each.

use mcp_host::{Host, StateName};
use serde_json::{Value, json};

use super::server::{Close, Hold, Reset, Seen, Server, Step, http, json_answer, text};
use super::{host, reach, still_serves};

fn error(seen: &Seen, status: u16, code: i64, data: &Value) -> Vec<Step> {
    let error = json!({ "code": code, "message": "no", "data": data });
    http(status, "application/json", &json!({ "jsonrpc": "2.0", "id": seen.body["id"], "error": error }).to_string())
}

/// How a server answers the probe, or `initialize`.
type Manner = fn(&Seen) -> Vec<Step>;

/// A server that answers the probe and `initialize` in its manner; the rest is well-behaved.
async fn server(discover: Option<Manner>, initialize: Option<Manner>) -> Server {
    Server::start(move |seen| match seen.what() {
        "server/discover" => discover.map(|manner| manner(seen)),
        "initialize" => initialize.map(|manner| manner(seen)),
        _ => None,
    })
    .await
}

fn revision(host: &Host) -> String {
    host.status().into_iter().find(|status| status.name == "bad").unwrap().revision.unwrap_or_default()
}

#[tokio::test]
async fn h32_over_http_whoever_can_be_served_is() {
    let modern_only: Manner = |seen| error(seen, 400, -32022, &json!({ "supported": ["2026-07-28"] }));
    let cases: [(&str, Option<Manner>, Option<Manner>, &str); 16] = [
        ("modern", None, Some(modern_only), "2026-07-28"),
        ("modern, dies of initialize", None, Some(|_| vec![Reset]), "2026-07-28"),
        ("both", None, None, "2026-07-28"),
        ("unknown method", Some(|seen| error(seen, 200, -32601, &Value::Null)), None, "2025-11-25"),
        ("unknown method under 404", Some(|seen| error(seen, 404, -32601, &Value::Null)), None, "2025-11-25"),
        ("no session", Some(|seen| error(seen, 400, -32000, &Value::Null)), None, "2025-11-25"),
        (
            "names older ones",
            Some(|seen| error(seen, 400, -32022, &json!({ "supported": ["2025-06-18"] }))),
            None,
            "2025-11-25",
        ),
        ("400 in words", Some(|_| http(400, "text/plain", "Bad Request: no session")), None, "2025-11-25"),
        ("405", Some(|_| http(405, "text/html", "no")), None, "2025-11-25"),
        ("a page", Some(|_| http(200, "text/html", "<html>")), None, "2025-11-25"),
        ("takes it for a notification", Some(|_| http(202, "text/plain", "")), None, "2025-11-25"),
        ("answers anything", Some(|seen| json_answer(&seen.answer(&json!({})))), None, "2025-11-25"),
        ("no JSON", Some(|_| json_answer("{\"jsonrpc\":")), None, "2025-11-25"),
        ("falls over", Some(|_| http(500, "text/plain", "Traceback")), None, "2025-11-25"),
        ("hangs up", Some(|_| vec![Close]), None, "2025-11-25"),
        ("hangs", Some(|_| vec![text("HTTP/1.1 "), Hold]), None, "2025-11-25"),
    ];
    for (case, discover, initialize, want) in cases {
        let server = server(discover, initialize).await;
        let restart = json!({ "minDelay": "10ms", "maxDelay": "20ms" });
        let entry = json!({ "type": "http", "url": server.url(), "startTimeout": "900ms", "restart": restart });
        let host = host(entry).await;
        reach(&host, StateName::Connected).await;
        still_serves(&host).await;
        assert_eq!(revision(&host), want, "{case}");
        // Nothing is called before the era is known.
        let said: Vec<String> = server.seen().iter().map(|seen| seen.what().to_owned()).collect();
        let at = |what: &str| said.iter().position(|said| said == what);
        let hello = if want == "2026-07-28" { "server/discover" } else { "initialize" };
        assert!(at(hello) < at("tools/list") && at("tools/list") < at("tools/call"), "{case}: {said:?}");
        host.shutdown().await;
    }
}

#[tokio::test]
async fn h32_over_http_whoever_cannot_be_served_is_told() {
    let cases: [(&str, Manner, StateName, &str); 4] = [
        (
            "another future",
            |seen| error(seen, 400, -32022, &json!({ "supported": ["2099-01-01"] })),
            StateName::Reconnecting,
            "2099-01-01",
        ),
        (
            "wants what we have not",
            |seen| error(seen, 400, -32021, &Value::Null),
            StateName::Reconnecting,
            "server/discover",
        ),
        ("wants credentials", |_| http(401, "text/plain", ""), StateName::Unauthorized, "wants a token"),
        (
            "contradicts itself",
            |seen| error(seen, 400, -32022, &json!({ "supported": ["2026-07-28"] })),
            StateName::Reconnecting,
            "a revision that this build speaks",
        ),
    ];
    for (case, discover, state, want) in cases {
        let server = server(Some(discover), None).await;
        let host = host(json!({ "type": "http", "url": server.url() })).await;
        let cause = reach(&host, state).await;
        assert!(cause.contains(want), "{case}: {cause}");
        assert_eq!((server.count("initialize"), server.count("tools/call")), (0, 0), "{case}");
        host.shutdown().await;
    }
}

/// A shell server. Its arguments are how it reacts to `initialize` and to the probe.
#[cfg(unix)]
fn script(initialize: &str, discover: &str) -> Value {
    let script = r#"
reply() { printf '{"jsonrpc":"2.0","id":%s,"%s":%s}\n' "$id" "$1" "$2"; }
while read -r line; do
  id=$(printf %s "$line" | sed -n 's/^{"jsonrpc":"2.0","id":\([0-9]*\|"[^"]*"\),.*/\1/p')
  case $line in
    *'"initialize"'*) INITIALIZE ;;
    *'"server/discover"'*) DISCOVER ;;
    *'"tools/list"'*) reply result '{"resultType":"complete","tools":[{"name":"good","inputSchema":{"type":"object"}}]}' ;;
    *'"tools/call"'*) reply result '{"content":[{"type":"text","text":"good"}]}' ;;
  esac
done"#;
    let script = script.replace("INITIALIZE", initialize).replace("DISCOVER", discover);
    let restart = json!({ "minDelay": "10ms", "maxDelay": "20ms" });
    json!({ "command": "sh", "args": ["-c", script], "startTimeout": "1500ms", "restart": restart })
}

#[cfg(unix)]
#[tokio::test]
async fn h32_over_a_pipe_whoever_can_be_served_is() {
    let old = r#"reply result '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{}}'"#;
    let new =
        r#"reply result '{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}'"#;
    let unknown = r#"reply error '{"code":-32601,"message":"no"}'"#;
    let modern = r#"reply error '{"code":-32022,"message":"no","data":{"supported":["2026-07-28"]}}'"#;
    let cases = [
        ("legacy", old, unknown, "auto", "2025-11-25"),
        ("legacy, dies of the probe", old, "exit 3", "auto", "2025-11-25"),
        ("legacy, dies of the probe that is wanted", old, "exit 3", "modern", "2025-11-25"),
        ("both", old, new, "auto", "2025-11-25"),
        ("both, known to be modern", old, new, "modern", "2026-07-28"),
        ("modern", modern, new, "auto", "2026-07-28"),
        ("modern, knows no initialize", unknown, new, "auto", "2026-07-28"),
        ("modern, silent on initialize", ":", new, "modern", "2026-07-28"),
        ("legacy, answers the probe with noise", old, "echo what", "modern", "2025-11-25"),
        ("legacy, answers anything", old, r#"reply result '{}'"#, "modern", "2025-11-25"),
    ];
    for (case, initialize, discover, era, want) in cases {
        let mut entry = script(initialize, discover);
        entry["era"] = json!(era);
        let host = host(entry).await;
        reach(&host, StateName::Connected).await;
        assert_eq!(revision(&host), want, "{case}");
        still_serves(&host).await;
        host.shutdown().await;
    }
}
