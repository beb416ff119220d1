//! Era detection (`docs/bridging.md` 3.1), row by row.

use std::time::Duration;

use serde_json::json;

use super::support::*;
use crate::config::Era::{Auto, Legacy, Modern};
use crate::protocol::Era;
use crate::upstream::StateName;

const DISCOVER: &str = "POST server/discover";
const INITIALIZE: &str = "POST initialize";
const INITIALIZED: &str = "POST notifications/initialized";

#[tokio::test]
async fn http_a_modern_server_is_never_asked_to_initialize() {
    let server = Server::start(|seen| seen.result(&discovered(&json!({})))).await;
    let lease = Lease::start(server.target(), Auto);
    assert_eq!(lease.revision().await, "2026-07-28");
    let probe = server.until(DISCOVER, 1).await;
    assert_eq!(probe.header("mcp-protocol-version"), "2026-07-28");
    assert_eq!(probe.header("mcp-method"), "server/discover");
    assert_eq!(probe.header("accept"), "application/json, text/event-stream");
    assert!(probe.body["id"].is_string());
    let said = &probe.body["params"]["_meta"];
    assert_eq!(said["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    assert_eq!(said["io.modelcontextprotocol/clientInfo"]["name"], "host");
    assert_eq!(said["io.modelcontextprotocol/clientCapabilities"], json!({}));
    assert_eq!(lease.noted(), [Era::Modern]);
    let story = server.story();
    lease.end().await;
    assert_eq!((story, server.story()), (vec![DISCOVER.to_owned()], vec![DISCOVER.to_owned()]), "no GET, no DELETE");
}

#[tokio::test]
async fn http_what_is_no_modern_answer_is_a_legacy_candidate() {
    type Answer = fn(&Seen) -> Reply;
    let answers: [(&str, Answer); 12] = [
        ("-32601", |seen| seen.error(200, -32601, &json!({}))),
        ("-32602", |seen| seen.error(400, -32602, &json!({}))),
        ("-32000", |seen| seen.error(400, -32000, &json!({}))),
        ("code 0", |seen| seen.error(200, 0, &json!({}))),
        ("404 with -32601", |seen| seen.error(404, -32601, &json!({}))),
        ("an error without id", |_| {
            Reply::Json(
                400,
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID"}}"#
                    .to_owned(),
            )
        }),
        ("400 without body", |_| Reply::Text(400, "")),
        ("404 with HTML", |_| Reply::Text(404, "<html>")),
        ("405", |_| Reply::Text(405, "")),
        ("202", |_| Reply::Text(202, "")),
        ("legacy revisions only", |seen| {
            seen.result(&json!({"supportedVersions": ["2025-11-25"], "capabilities": {}}))
        }),
        ("-32022 with legacy revisions only", |seen| seen.error(400, -32022, &json!({"supported": ["2025-06-18"]}))),
    ];
    for (name, answer) in answers {
        let script = move |seen: &Seen| if seen.what() == DISCOVER { answer(seen) } else { legacy(seen) };
        let server = Server::start(script).await;
        let lease = Lease::start(server.target(), Auto);
        assert_eq!(lease.revision().await, "2025-11-25", "{name}");
        assert_eq!(server.story()[..3], [DISCOVER, INITIALIZE, INITIALIZED], "{name}");
        let initialize = server.until(INITIALIZE, 1).await;
        assert_eq!(initialize.body["params"]["protocolVersion"], "2025-11-25");
        let modern = ["mcp-protocol-version", "mcp-method", "mcp-session-id"];
        assert!(modern.iter().all(|name| initialize.header(name).is_empty()));
        assert!(initialize.body["params"].get("_meta").is_none());
        assert_eq!(lease.noted(), [Era::Legacy], "{name}");
        lease.end().await;
    }
}

#[tokio::test]
async fn http_a_modern_refusal_is_no_reason_to_fall_back() {
    let cases = [
        (-32020, json!({}), "refused `server/discover`"),
        (-32021, json!({"requiredCapabilities": {"sampling": {}}}), "refused `server/discover`"),
        (-32022, json!({"supported": ["2099-01-01"]}), "2099-01-01"),
        (-32022, json!({"supported": ["2026-07-28"]}), "refuses it"),
    ];
    for (code, data, why) in cases {
        let server = Server::start(move |seen| seen.error(400, code, &data)).await;
        let lease = Lease::start(server.target(), Auto);
        let cause = lease.state(StateName::Failed).await;
        assert!(cause.contains(why), "{cause}");
        assert!(server.story().iter().all(|said| said == DISCOVER), "{:?}", server.story());
        assert_eq!(lease.noted(), []);
        lease.end().await;
    }
}

#[tokio::test]
async fn http_a_mutual_version_is_probed_once_more() {
    let server = Server::start(|seen| match seen.body["params"]["_meta"].is_object() {
        true if seen.body["id"].as_str().unwrap().starts_with("discover-") && second(seen) => {
            seen.result(&discovered(&json!({})))
        }
        _ => seen.error(400, -32022, &json!({"supported": ["2026-07-28"]})),
    })
    .await;
    let lease = Lease::start(server.target(), Auto);
    assert_eq!(lease.revision().await, "2026-07-28");
    assert_eq!(server.story(), [DISCOVER, DISCOVER]);
    lease.end().await;
}

/// Whether this is not the first request; ids count up.
fn second(seen: &Seen) -> bool {
    let id: u64 = seen.body["id"].as_str().unwrap()["discover-".len()..].parse().unwrap();
    id >> 20 > 1
}

#[tokio::test]
async fn http_credentials_say_nothing_of_an_era() {
    for status in [401, 403] {
        let server = Server::start(move |_| Reply::Text(status, "")).await;
        let lease = Lease::start(server.target(), Auto);
        lease.state(StateName::Unauthorized).await;
        assert_eq!((server.story(), lease.noted()), (vec![DISCOVER.to_owned()], vec![]));
        lease.end().await;
    }
}

#[tokio::test]
async fn http_a_fault_says_nothing_of_an_era() {
    type Answer = fn(&Seen) -> Reply;
    let faults: [Answer; 3] = [|_| Reply::Text(503, ""), |seen| seen.error(500, -32603, &json!({})), |_| Reply::HangUp];
    for fault in faults {
        // The first probe fails. Then `initialize` comes first, which a modern server refuses.
        let server = Server::start(move |seen| match (seen.what().as_str(), seen.body["id"].is_string()) {
            (DISCOVER, _) if !OUT_OF_ORDER.with(|order| order.replace(true)) => fault(seen),
            (DISCOVER, _) => seen.result(&discovered(&json!({}))),
            _ => seen.error(400, -32022, &json!({"supported": ["2026-07-28"]})),
        })
        .await;
        OUT_OF_ORDER.with(|order| order.set(false));
        let lease = Lease::start(server.target(), Auto);
        lease.lost().await;
        assert_eq!(lease.noted(), []);
        lease.state(StateName::Connected).await;
        assert_eq!(lease.revision().await, "2026-07-28");
        assert_eq!(server.story(), [DISCOVER, INITIALIZE, DISCOVER]);
        lease.end().await;
    }
}

thread_local! {
    static OUT_OF_ORDER: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

#[tokio::test]
async fn http_a_server_that_cannot_bear_the_probe_is_used_all_the_same() {
    let script = |seen: &Seen| if seen.what() == DISCOVER { Reply::Text(500, "") } else { legacy(seen) };
    let server = Server::start(script).await;
    let lease = Lease::start(server.target(), Auto);
    lease.lost().await;
    lease.state(StateName::Connected).await;
    assert_eq!(lease.revision().await, "2025-11-25");
    assert_eq!(lease.noted(), [], "that was no verdict");
    lease.end().await;
}

#[tokio::test]
async fn http_a_server_that_does_not_answer_the_probe_is_used_all_the_same() {
    let script = |seen: &Seen| if seen.what() == DISCOVER { Reply::Silence } else { legacy(seen) };
    let server = Server::start(script).await;
    let lease = Lease::within(server.target(), Auto, None, Duration::from_secs(1));
    assert!(lease.lost().await.contains("server/discover"));
    lease.state(StateName::Connected).await;
    assert_eq!((lease.revision().await, lease.noted()), ("2025-11-25", vec![]));
    lease.end().await;
}

#[tokio::test]
async fn http_a_legacy_verdict_is_believed_until_it_proves_wrong() {
    let server = Server::start(legacy).await;
    let lease = Lease::remembering(server.target(), Auto, Some(Era::Legacy));
    assert_eq!(lease.revision().await, "2025-11-25");
    assert_eq!(server.story()[0], INITIALIZE);
    lease.end().await;
    let upgraded = Server::start(|seen| match seen.what().as_str() {
        DISCOVER => seen.result(&discovered(&json!({}))),
        _ => seen.error(404, -32601, &json!({})),
    })
    .await;
    let lease = Lease::remembering(upgraded.target(), Auto, Some(Era::Legacy));
    assert_eq!(lease.revision().await, "2026-07-28");
    assert_eq!(
        (upgraded.story(), lease.noted()),
        (vec![INITIALIZE.to_owned(), DISCOVER.to_owned()], vec![Era::Modern])
    );
    lease.end().await;
}

#[tokio::test]
async fn http_the_config_has_the_last_word() {
    let server = Server::start(legacy).await;
    let lease = Lease::remembering(server.target(), Legacy, Some(Era::Modern));
    assert_eq!(lease.revision().await, "2025-11-25");
    assert_eq!(server.story()[..2], [INITIALIZE, INITIALIZED]);
    lease.end().await;
    let modern = Server::start(|seen| seen.error(400, -32022, &json!({"supported": ["2026-07-28"]}))).await;
    let lease = Lease::start(modern.target(), Legacy);
    lease.state(StateName::Failed).await;
    assert!(modern.story().iter().all(|said| said == INITIALIZE), "{:?}", modern.story());
    lease.end().await;
}

#[tokio::test(start_paused = true)]
async fn stdio_a_legacy_server_never_sees_the_probe() {
    let (target, mut peers) = Peer::target();
    let lease = Lease::start(target, Auto);
    let mut peer = peers.recv().await.unwrap();
    let (id, params) = peer.hears("initialize").await;
    assert_eq!((id.is_u64(), &params["protocolVersion"]), (true, &json!("2025-11-25")));
    peer.result(&id, &initialized()).await;
    peer.hears("notifications/initialized").await;
    assert_eq!((lease.revision().await, lease.noted()), ("2025-11-25", vec![]));
}

#[tokio::test(start_paused = true)]
async fn stdio_a_refusal_of_initialize_leads_to_the_probe() {
    let refusals = [
        (-32022, json!({"supported": ["2026-07-28"], "requested": "2025-11-25"})),
        (-32600, json!("speak 2026-07-28")),
        (-32601, json!({})),
    ];
    for (code, data) in refusals {
        let (target, mut peers) = Peer::target();
        let lease = Lease::start(target, Auto);
        let mut peer = peers.recv().await.unwrap();
        let (id, _) = peer.hears("initialize").await;
        peer.error(&id, code, &data).await;
        let (id, _) = peer.hears("server/discover").await;
        peer.result(&id, &discovered(&json!({}))).await;
        assert_eq!((lease.revision().await, lease.noted()), ("2026-07-28", vec![Era::Modern]));
    }
}

#[tokio::test(start_paused = true)]
async fn stdio_a_version_of_the_same_era_is_tried_before_the_probe() {
    let (target, mut peers) = Peer::target();
    let lease = Lease::start(target, Auto);
    let mut peer = peers.recv().await.unwrap();
    let (id, _) = peer.hears("initialize").await;
    peer.error(&id, -32602, &json!({"supported": ["2024-11-05", "2025-03-26"]})).await;
    let (id, params) = peer.hears("initialize").await;
    assert_eq!(params["protocolVersion"], "2025-03-26");
    peer.result(&id, &json!({"protocolVersion": "2025-03-26", "capabilities": {}, "serverInfo": {}})).await;
    assert_eq!(lease.revision().await, "2025-03-26");
}

#[tokio::test(start_paused = true)]
async fn stdio_a_server_that_knows_neither_is_told_by_its_first_answer() {
    let (target, mut peers) = Peer::target();
    let lease = Lease::start(target, Auto);
    let mut peer = peers.recv().await.unwrap();
    let (id, _) = peer.hears("initialize").await;
    peer.error(&id, -32600, &json!({})).await;
    let (id, _) = peer.hears("server/discover").await;
    peer.error(&id, -32601, &json!({})).await;
    assert!(lease.lost().await.contains("-32600"));
}

#[tokio::test(start_paused = true)]
async fn stdio_modern_begins_with_the_probe() {
    for (era, known) in [(Modern, None), (Auto, Some(Era::Modern))] {
        let (target, mut peers) = Peer::target();
        let lease = Lease::remembering(target, era, known);
        let mut peer = peers.recv().await.unwrap();
        let (id, params) = peer.hears("server/discover").await;
        assert!(id.is_string(), "it cannot be the id of anything later");
        assert_eq!(params["_meta"]["io.modelcontextprotocol/clientInfo"]["name"], "host");
        peer.result(&id, &discovered(&json!({}))).await;
        assert_eq!(lease.revision().await, "2026-07-28");
    }
}

#[tokio::test(start_paused = true)]
async fn stdio_modern_falls_back_on_any_other_error() {
    for (code, data) in [
        (-32601, json!({})),
        (-32602, json!({})),
        (-32000, json!({})),
        (0, json!({})),
        (-32022, json!({"supported": ["2025-11-25"]})),
        (-32004, json!({"supported": ["2026-07-28"]})),
    ] {
        let (target, mut peers) = Peer::target();
        let lease = Lease::start(target, Modern);
        let mut peer = peers.recv().await.unwrap();
        let (id, _) = peer.hears("server/discover").await;
        peer.error(&id, code, &data).await;
        let (id, params) = peer.hears("initialize").await;
        assert_eq!(params["protocolVersion"], "2025-11-25");
        peer.result(&id, &initialized()).await;
        assert_eq!((lease.revision().await, lease.noted()), ("2025-11-25", vec![Era::Legacy]), "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn stdio_modern_refusals_end_the_attempt() {
    for (code, data) in [(-32022, json!({"supported": ["2099-01-01"]})), (-32020, json!({})), (-32021, json!({}))] {
        let (target, mut peers) = Peer::target();
        let lease = Lease::start(target, Modern);
        let mut peer = peers.recv().await.unwrap();
        let (id, _) = peer.hears("server/discover").await;
        peer.error(&id, code, &data).await;
        lease.lost().await;
        assert!(peer.heard.recv().await.is_none(), "no `initialize`");
    }
}

#[tokio::test(start_paused = true)]
async fn race_8_a_late_discover_result_after_initialize_is_for_the_next_start() {
    let (target, mut peers) = Peer::target();
    let lease = Lease::start(target, Modern);
    let mut peer = peers.recv().await.unwrap();
    let (probe, _) = peer.hears("server/discover").await;
    // The server stays silent for half of the start timeout.
    let (id, _) = peer.hears("initialize").await;
    peer.result(&id, &initialized()).await;
    peer.hears("notifications/initialized").await;
    assert_eq!(lease.revision().await, "2025-11-25");
    peer.result(&probe, &discovered(&json!({}))).await;
    while lease.noted().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!((lease.revision().await, lease.noted()), ("2025-11-25", vec![Era::Modern]));
    assert!(peer.heard.try_recv().is_err(), "the probe is not cancelled");
}

#[tokio::test(start_paused = true)]
async fn race_8_a_late_discover_result_counts_where_initialize_fails() {
    for discover_first in [true, false] {
        let (target, mut peers) = Peer::target();
        let lease = Lease::start(target, Modern);
        let mut peer = peers.recv().await.unwrap();
        let (probe, _) = peer.hears("server/discover").await;
        let (id, _) = peer.hears("initialize").await;
        if discover_first {
            peer.result(&probe, &discovered(&json!({}))).await;
            peer.error(&id, -32601, &json!({})).await;
        } else {
            peer.error(&id, -32601, &json!({})).await;
            peer.result(&probe, &discovered(&json!({}))).await;
        }
        assert_eq!(lease.revision().await, "2026-07-28");
    }
}

/// A process that exits on anything that comes before `initialize`, as some did.
#[cfg(unix)]
#[tokio::test]
async fn stdio_a_process_that_ends_of_the_probe_is_started_anew_and_initialized() {
    use crate::config::Stdio;
    use crate::upstream::Target;
    let script = r#"read line
        case "$line" in *server/discover*) exit 1;; esac
        id=$(printf %s "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
        printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2024-11-05","capabilities":{},"serverInfo":{}}}\n' "$id"
        while read line; do :; done"#;
    let target = Target::Stdio(Stdio {
        command: "sh".to_owned(),
        args: vec!["-c".to_owned(), script.to_owned()],
        ..Stdio::default()
    });
    let lease = Lease::start(target, Modern);
    assert_eq!(lease.revision().await, "2024-11-05");
    let status = lease.upstream.status();
    assert_eq!((status.restarts, lease.noted()), (0, vec![Era::Legacy]), "that is no loss");
    lease.end().await;
}
