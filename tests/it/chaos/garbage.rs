//! Malformed messages: foreign ids, ambiguous envelopes, values of extreme shape, handshakes and results of unknown
//! kinds.

use std::time::Duration;

use bytes::Bytes;
use mcp_host::protocol::{Message, Raw};
use mcp_host::{Host, StateName};
use serde_json::{Value, json};

use super::server::{Close, EVENTS, Server, json_answer, text};
use super::{beside, call, host, reach, still_serves};

/// A host over a server that answers a call of `go` with these texts, one by one on a stream.
async fn saying(server: &Server) -> Host {
    let mut entry = server.entry();
    entry["callTimeout"] = json!("400ms");
    let host = host(entry).await;
    host.settled().await;
    host
}

fn dropped(host: &Host) -> u64 {
    host.status().into_iter().find(|status| status.name == "bad").unwrap().dropped
}

#[tokio::test]
async fn h34_answers_to_what_was_not_asked_yet_are_for_nobody() {
    let server = Server::start(|seen| {
        (seen.tool() == "go").then(|| {
            let id = seen.body["id"].as_u64().unwrap();
            let forged = |id: u64| json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [{ "type": "text", "text": "forged" }] } });
            let early: String = (id + 1..=id + 200).map(|id| format!("data: {}\n\n", forged(id))).collect();
            vec![text(EVENTS), text(early), text(format!("data: {}\n\n", seen.done("mine"))), Close]
        })
    })
    .await;
    let host = saying(&server).await;
    for round in 1..=3 {
        assert_eq!(call(&host, "go").await.as_deref(), Ok("mine"));
        still_serves(&host).await;
        assert_eq!(dropped(&host), 200 * round);
    }
    // No id is repeated, and none is the previous one plus a little.
    let calls = server.seen().into_iter().filter(|seen| seen.what() == "tools/call");
    let ids: Vec<u64> = calls.map(|seen| seen.body["id"].as_u64().unwrap()).collect();
    assert!(ids.windows(2).all(|pair| pair[1] > pair[0] + 200), "{ids:?}");
    host.shutdown().await;
}

#[tokio::test]
async fn h34_an_answer_counts_by_value_and_type_and_once() {
    let with_id = |id: &Value, text: &str| json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [{ "type": "text", "text": text }] } });
    type Ids = fn(u64) -> Vec<Value>;
    // The ids of the answers `1`, `2`, and so on, and the result of the call.
    let cases: [(&str, Ids, Option<&str>); 8] = [
        ("as text", |id| vec![json!(id.to_string())], None),
        ("as the text of a probe", |id| vec![json!(format!("discover-{id}"))], None),
        ("as a fraction", |id| vec![json!(id as f64 + 0.5)], None),
        ("as another number", |id| vec![json!(id - 1), json!(0), json!(-1)], None),
        ("in a list", |id| vec![json!([id])], None),
        ("twice", |id| vec![json!(id), json!(id)], Some("1")),
        ("wrong, then right", |id| vec![json!(id + 1), json!(id.to_string()), json!(id)], Some("3")),
        ("right, then wrong", |id| vec![json!(id), json!(id + 1)], Some("1")),
    ];
    for (case, ids, want) in cases {
        let server = Server::start(move |seen| {
            (seen.tool() == "go").then(|| {
                let ids = ids(seen.body["id"].as_u64().unwrap());
                let events =
                    ids.iter().enumerate().map(|(at, id)| format!("data: {}\n\n", with_id(id, &(at + 1).to_string())));
                vec![text(EVENTS), text(events.collect::<String>()), Close]
            })
        })
        .await;
        let host = saying(&server).await;
        let outcome = call(&host, "go").await;
        assert_eq!(outcome.as_deref().ok(), want, "{case}: {outcome:?}");
        still_serves(&host).await;
        host.shutdown().await;
    }
}

#[cfg(unix)]
#[tokio::test]
async fn h34_a_late_answer_is_no_other_calls() {
    // Over a pipe: it answers each call when the next one comes.
    let late = r#"last=; while read -r line; do
      id=$(printf %s "$line" | sed -n 's/^{"jsonrpc":"2.0","id":\([0-9]*\),.*/\1/p')
      case $line in
        *'"initialize"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{}}}\n' "$id" ;;
        *'"tools/list"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"go","inputSchema":{"type":"object"}},{"name":"good","inputSchema":{"type":"object"}}]}}\n' "$id" ;;
        *'"go"'*) last=$id ;;
        *'"good"'*)
          for one in "$last" "$id" "$id"; do
            text=good; [ "$one" = "$last" ] && text=late
            printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"%s"}]}}\n' "$one" "$text"
          done ;;
      esac; done"#;
    let host = host(json!({ "command": "sh", "args": ["-c", late], "callTimeout": "300ms" })).await;
    host.settled().await;
    for round in 1..=3 {
        let error = call(&host, "go").await.unwrap_err();
        assert!(error.contains("callTimeout"), "{error}");
        still_serves(&host).await;
        let counted = async {
            while dropped(&host) != 2 * round {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let counted = tokio::time::timeout(Duration::from_secs(10), counted).await;
        assert!(counted.is_ok(), "the late one and the second one: {}", dropped(&host));
    }
    host.shutdown().await;
}

/// Envelopes that some parsers accept, with different meanings. `ID` is the id of the call.
const TWO_MEANINGS: [&str; 22] = [
    r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[]},"error":{"code":1,"message":"x"}}"#,
    r#"{"jsonrpc":"2.0","id":ID}"#,
    r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[]},"result":{"content":[1]}}"#,
    r#"{"jsonrpc":"2.0","id":0,"id":ID,"result":{"content":[]}}"#,
    r#"{"jsonrpc":"2.0","id":ID,"id":0,"result":{"content":[]}}"#,
    r#"{"jsonrpc":"1.0","jsonrpc":"2.0","id":ID,"result":{"content":[]}}"#,
    r#"{"jsonrpc":"2.0","id":ID,"Result":{"content":[]}}"#,
    r#"{"jsonrpc":"2.0","ID_":0,"Id":ID,"result":{"content":[]}}"#,
    r#"{"jsonrpc":"2.0","id\u0000":ID,"result":{"content":[]}}"#,
    r#"{"JSONRPC":"2.0","id":ID,"result":{"content":[]}}"#,
    r#"{"id":ID,"result":{"content":[]}}"#,
    r#"{"jsonrpc":2.0,"id":ID,"result":{"content":[]}}"#,
    r#"{"jsonrpc":"2.0","id":ID,"re\u0073ult":{"content":[]},"result":{}}"#,
    r#"{"jsonrpc":"2.0","id":ID,"method":"ping","result":{"content":[]}}"#,
    r#"{"jsonrpc":"2.0","id":ID,"error":"no"}"#,
    r#"{"jsonrpc":"2.0","id":ID,"error":{"code":"1","message":"x"}}"#,
    r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}{"jsonrpc":"2.0"}"#,
    r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[]},}"#,
    r#"{"jsonrpc":"2.0","id":ID,'result':{"content":[]}}"#,
    r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[NaN]}}"#,
    r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[]}"#,
    r#"{"jsonrpc":"2.0","id":null,"result":{"content":[]}}"#,
];

#[tokio::test]
async fn h37_what_means_two_things_is_malformed() {
    let which = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let at = which.clone();
    let server = Server::start(move |seen| {
        let text = TWO_MEANINGS[at.load(std::sync::atomic::Ordering::SeqCst)];
        (seen.tool() == "go")
            .then(|| json_answer(&text.replace("ID_", "x").replace("ID", &seen.body["id"].to_string())))
    })
    .await;
    let host = saying(&server).await;
    for (number, envelope) in TWO_MEANINGS.into_iter().enumerate() {
        which.store(number, std::sync::atomic::Ordering::SeqCst);
        let error = call(&host, "go").await.unwrap_err();
        assert!(error.contains("no answer of MCP"), "{envelope}: {error}");
        // The same as a message of its own, in both ways in which we read.
        let text = Bytes::from(envelope.replace("ID_", "x").replace("ID", "7"));
        assert!(!matches!(Message::parse(&text), Ok(Message::Response(_))), "{envelope}");
    }
    still_serves(&host).await;
    host.shutdown().await;
}

#[test]
fn h37_what_we_take_others_take_alike() {
    // In every message that we accept, a plain JSON parser reads the same members, also after we write it again.
    let ids = ["1", "-1", "\"1\"", "\"\\u0031\"", "9007199254740993", "null", "1.0", "1e2", "[1]", "true"];
    let bodies = [
        r#""result":{}"#,
        r#""result":null"#,
        r#""result":{"id":2,"jsonrpc":"x"}"#,
        r#""error":{"code":-1,"message":"m","data":{"id":3}}"#,
        r#""method":"ping""#,
        r#""method":"ping","params":{"a":1e400,"b":1.0,"c":-0,"d":"\ud83d\ude00"}"#,
        r#""method":"ping","params":[]"#,
        r#""extra":{"result":1},"result":{"x":"}"}"#,
        r#""result" : {} , "x\u0000" : 1"#,
    ];
    let mut taken = 0;
    for id in ids {
        for body in bodies {
            let text = Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{id},{body}}}"#));
            let Ok(message) = Message::parse(&text) else { continue };
            taken += 1;
            let written = message.frame().into_bytes();
            let again = Message::parse(&written).unwrap();
            assert_eq!(again.frame().into_bytes(), written);
            let members = |text: &[u8]| {
                serde_json::from_slice::<std::collections::BTreeMap<String, Box<serde_json::value::RawValue>>>(text)
                    .unwrap()
            };
            let (before, after) = (members(&text), members(&written));
            for name in ["jsonrpc", "id", "method", "params", "result"] {
                let plain = |map: &std::collections::BTreeMap<String, Box<serde_json::value::RawValue>>| {
                    map.get(name).map(|value| value.get().to_owned())
                };
                let (before, after) = (plain(&before), plain(&after));
                if name == "id" {
                    let value = |text: Option<String>| text.map(|text| serde_json::from_str::<Value>(&text).unwrap());
                    let known = |id: Option<Value>| id.filter(|id| !id.is_null());
                    assert_eq!(known(value(before)), known(value(after)), "{body}");
                } else {
                    assert_eq!(before, after, "{name} of {body}");
                }
            }
        }
    }
    assert!(taken >= 30, "{taken}");
}

#[tokio::test]
async fn h38_extreme_values_pass_as_they_are_or_fail_alone() {
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    let cases: Vec<(String, bool)> = vec![
        ("1e400".to_owned(), true),
        ("-1e-400".to_owned(), true),
        ("1180591620717411303424".to_owned(), true),
        ("-0".to_owned(), true),
        ("0.10000000000000000000000000000000000001".to_owned(), true),
        (format!("{}1", "9".repeat(100_000)), true),
        (format!("{{\"{}\":1}}", "k".repeat(5 << 20)), true),
        (format!("[{}0]", "0,".repeat(500_000)), true),
        // The objects of the envelope and the result surround it.
        (nested(126), true),
        (nested(128), false),
        (nested(100_000), false),
        ("01".to_owned(), false),
        ("+1".to_owned(), false),
        ("1.".to_owned(), false),
        ("Infinity".to_owned(), false),
    ];
    for (value, passes) in cases {
        let said = value.clone();
        let server = Server::start(move |seen| {
            let body = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"content":[],"x":{said}}}}}"#, seen.body["id"]);
            (seen.tool() == "go").then(|| json_answer(&body))
        })
        .await;
        let mut entry = server.entry();
        entry["callTimeout"] = json!("20s");
        let host = host(entry).await;
        host.settled().await;
        let shown = &value[..value.len().min(40)];
        let outcome = beside(&host, async { host.call_tool("go", Raw::empty_object()).await }).await;
        match outcome {
            Ok(result) => assert!(passes && result.member("x").unwrap().as_str() == value, "{shown}"),
            Err(error) => assert!(!passes && error.to_string().contains("no answer of MCP"), "{shown}: {error}"),
        }
        still_serves(&host).await;
        host.shutdown().await;
    }
}

#[tokio::test]
async fn h43_a_handshake_of_another_shape_is_refused_and_told() {
    let cases = [
        (json!(7), "InitializeResult"),
        (json!([]), "InitializeResult"),
        (json!({}), "InitializeResult"),
        (json!({ "protocolVersion": 20_251_125 }), "InitializeResult"),
        (json!({ "protocolVersion": "1999-01-01", "capabilities": {} }), "1999-01-01"),
        (json!({ "protocolVersion": "x".repeat(5 << 20), "capabilities": {} }), "revision"),
        (json!({ "protocolVersion": "2026-07-28", "capabilities": {} }), "2026-07-28"),
    ];
    for (result, want) in cases {
        let server =
            Server::start(move |seen| (seen.what() == "initialize").then(|| json_answer(&seen.answer(&result)))).await;
        let host = host(server.entry()).await;
        let cause = reach(&host, StateName::Reconnecting).await;
        assert!(cause.contains(want) && cause.len() < 1000, "{want}: {}", &cause[..cause.len().min(300)]);
        assert_eq!(server.count("tools/call"), 0);
        host.shutdown().await;
    }
}

#[tokio::test]
async fn h43_what_is_strange_in_a_handshake_is_absent() {
    let capabilities = [
        json!({ "tools": { "listChanged": "yes" }, "prompts": true, "resources": [], "logging": 1, "tasks": "x", "": {} }),
        json!({ "tools": {}, "prompts": null }),
    ];
    for capabilities in capabilities {
        let server = Server::start(move |seen| {
            let info = json!({ "name": { "first": "x" }, "version": 1 });
            let result = json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info, "instructions": "i".repeat(5 << 20) });
            (seen.what() == "initialize").then(|| json_answer(&seen.answer(&result)))
        })
        .await;
        let host = host(server.entry()).await;
        host.settled().await;
        still_serves(&host).await;
        assert_eq!(
            (server.count("prompts/list"), server.count("resources/list"), server.count("logging/setLevel")),
            (0, 0, 0)
        );
        host.shutdown().await;
    }
    for none in [json!("tools"), json!([]), json!(null)] {
        let server = Server::start(move |seen| {
            let result = json!({ "protocolVersion": "2025-11-25", "capabilities": none, "serverInfo": "me" });
            (seen.what() == "initialize").then(|| json_answer(&seen.answer(&result)))
        })
        .await;
        let host = host(server.entry()).await;
        reach(&host, StateName::Connected).await;
        assert_eq!(server.count("tools/list"), 0);
        host.shutdown().await;
    }
}

#[tokio::test]
async fn h44_results_by_their_type() {
    let cases = [
        (None, true),
        (Some(json!("complete")), true),
        (Some(json!("Complete")), false),
        (Some(json!("partial")), false),
        (Some(json!("")), false),
        (Some(json!(7)), false),
        (Some(json!(null)), false),
        (Some(json!(["complete"])), false),
        (Some(json!({})), false),
    ];
    for (kind, taken) in cases {
        let mark = kind.clone();
        let server = Server::start(move |seen| {
            let mut result = json!({ "content": [{ "type": "text", "text": "taken" }] });
            if let Some(kind) = &mark {
                result["resultType"] = kind.clone();
            }
            (seen.tool() == "go").then(|| json_answer(&seen.answer(&result)))
        })
        .await;
        let mut entry = server.entry();
        entry["era"] = json!("modern");
        let host = host(entry).await;
        host.settled().await;
        match call(&host, "go").await {
            Ok(text) => assert!(taken && text == "taken", "{kind:?}"),
            Err(error) => assert!(!taken && error.contains("unknown type"), "{kind:?}: {error}"),
        }
        still_serves(&host).await;
        host.shutdown().await;
    }
}

#[tokio::test]
async fn h44_a_list_that_asks_something_is_no_list() {
    for kind in ["input_required", "partial"] {
        let server = Server::start(move |seen| {
            let result = json!({ "resultType": kind, "tools": [{ "name": "go", "inputSchema": { "type": "object" } }], "inputRequests": {} });
            (seen.what() == "tools/list").then(|| json_answer(&seen.answer(&result)))
        })
        .await;
        let mut entry = server.entry();
        entry["era"] = json!("modern");
        let host = host(entry).await;
        host.settled().await;
        let status = host.status().into_iter().find(|status| status.name == "bad").unwrap();
        assert_eq!(status.tools, 0, "{kind}");
        assert!(status.problems.iter().any(|problem| problem.contains("is not `complete`")), "{:?}", status.problems);
        host.shutdown().await;
    }
}

#[tokio::test]
async fn h40_a_list_without_end_is_none_and_the_last_good_one_stays() {
    type Next = fn(usize) -> Option<String>;
    let cases: [(&str, Next); 3] = [
        ("the same", |_| Some("a".to_owned())),
        ("to and fro", |page| Some(["a", "b"][page % 2].to_owned())),
        ("fresh forever", |page| Some(page.to_string())),
    ];
    for (case, next) in cases {
        let page = std::sync::atomic::AtomicUsize::new(0);
        let server = Server::start(move |seen| {
            (seen.what() == "tools/list").then(|| {
                let page = page.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                let tool = json!({ "name": format!("t{page}"), "inputSchema": { "type": "object" } });
                let mut result = json!({ "tools": [tool] });
                if let Some(cursor) = next(page) {
                    result["nextCursor"] = json!(cursor);
                }
                json_answer(&seen.answer(&result))
            })
        })
        .await;
        let host = host(server.entry()).await;
        host.settled().await;
        reach(&host, StateName::Connected).await;
        let status = host.status().into_iter().find(|status| status.name == "bad").unwrap();
        assert_eq!(status.tools, 0, "{case}: a part is not the whole");
        assert!(server.count("tools/list") <= 100, "{case}: {}", server.count("tools/list"));
        host.shutdown().await;
    }
}
