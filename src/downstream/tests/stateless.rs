//! The HTTP door without sessions (2026-07-28).

use std::time::Duration;

use serde_json::{Value, json};

use super::support::*;
use crate::downstream::Eras;

#[tokio::test]
async fn requests_speak_for_themselves() {
    let house = house().await;
    let mut peer = house.connect().await;
    let (status, discovered) = peer.ask_modern(&modern("d1", "server/discover", json!({}))).await;
    assert_eq!((status, &discovered["id"]), (200, &json!("d1")));
    let result = &discovered["result"];
    assert_eq!(result["resultType"], "complete");
    assert_eq!(result["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(result["capabilities"]["tools"]["listChanged"], true);
    assert_eq!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "test");
    assert_eq!((&result["ttlMs"], &result["cacheScope"]), (&json!(30000), &json!("public")));

    let (status, listed) = peer.ask_modern(&modern(1, "tools/list", json!({}))).await;
    assert_eq!((status, listed["result"]["tools"].as_array().unwrap().len()), (200, 6));
    assert_eq!(listed["result"]["resultType"], "complete");

    let (status, called) = peer.ask_modern(&modern_call(1, "echo")).await;
    assert_eq!((status, text(&called)), (200, r#"{"id":1}"#));
    let head = peer.post_modern(&modern_call(1, "echo")).await;
    assert!(!head.headers.contains_key("mcp-session-id"));
    peer.body(&head).await;
    assert_eq!(house.stage.sessions(), 1, "one client, whatever it asks");
}

/// Every result has its type, whoever made it, and cacheable results say for how long.
#[tokio::test]
async fn results_of_every_method() {
    let house = house().await;
    let mut peer = house.connect().await;
    let reference = json!({"type": "ref/prompt", "name": "hello"});
    let argument = json!({"name": "a", "value": ""});
    let cases = [
        ("server/discover", json!({}), true),
        ("tools/list", json!({}), true),
        ("prompts/list", json!({}), true),
        ("resources/list", json!({}), true),
        ("resources/templates/list", json!({}), true),
        ("resources/read", json!({"uri": "test://watched"}), true),
        ("prompts/get", json!({"name": "hello"}), false),
        ("tools/call", json!({"name": "echo"}), false),
        ("completion/complete", json!({"ref": reference, "argument": argument}), false),
    ];
    for (method, params, kept) in cases {
        let (status, answer) = peer.ask_modern(&modern(1, method, params)).await;
        let result = &answer["result"];
        assert_eq!((status, &result["resultType"]), (200, &json!("complete")), "{method}: {answer}");
        assert_eq!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "test", "{method}");
        assert_eq!((result["ttlMs"].is_u64(), result["cacheScope"].is_string()), (kept, kept), "{method}: {answer}");
    }
    // A client with a session sees none of these members.
    let mut peer = house.client("2025-11-25").await;
    let listed = peer.ask(r#"{"jsonrpc":"2.0","id":1,"method":"prompts/list"}"#).await;
    assert_eq!(listed["result"], json!({"prompts": [{"name": "hello"}]}));
}

#[tokio::test]
async fn a_client_may_set_itself_apart() {
    let house = house().await;
    let mut peer = house.connect().await;
    for (word, clients) in
        [(json!("a"), 1), (json!("a"), 1), (json!("b"), 2), (json!(1), 3), (json!("x".repeat(129)), 3)]
    {
        let list = modern(1, "tools/list", json!({"_meta": {"mcp-host/affinity": word}}));
        assert_eq!(peer.ask_modern(&list).await.0, 200);
        assert_eq!(house.stage.sessions(), clients, "{word}");
    }
}

/// A door that serves only one era.
#[tokio::test]
async fn one_era_alone() {
    let house = house_with(stage().await, Settings { eras: Eras::Modern, ..Settings::default() }).await;
    let mut peer = house.connect().await;
    for method in ["GET", "DELETE", "PUT"] {
        let request = peer.request(method, "", "");
        let head = peer.send(&request).await;
        assert_eq!((head.status, head.headers["allow"].as_str()), (405, "POST"), "{method}");
        peer.body(&head).await;
    }
    let head = peer.post(&initialize("2025-11-25")).await;
    let refused: Value = serde_json::from_str(&peer.body(&head).await).unwrap();
    assert_eq!((head.status, &refused["error"]["code"]), (400, &json!(-32022)));
    assert_eq!(refused["error"]["data"]["supported"], json!(["2026-07-28"]));
    for (body, status) in [(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, 202), ("[]", 400)] {
        let head = peer.post(body).await;
        assert_eq!(head.status, status, "{body}");
        peer.body(&head).await;
    }
    assert_eq!(peer.ask_modern(&modern_call(1, "echo")).await.0, 200);
    let head = peer.send("GET /sse HTTP/1.1\r\nHost: HOST\r\n\r\n").await;
    assert_eq!(head.status, 404, "sessions of any kind");

    let house = house_with(stage().await, Settings { eras: Eras::Legacy, ..Settings::default() }).await;
    let mut peer = house.client("2025-11-25").await;
    let head = peer.post_modern(&modern("d", "server/discover", json!({}))).await;
    let refused: Value = serde_json::from_str(&peer.body(&head).await).unwrap();
    assert_eq!((head.status, &refused["error"]["code"]), (400, &json!(-32602)));
    assert_eq!(peer.ask(&call(1, "echo")).await["id"], 1);
}

#[tokio::test]
async fn a_session_id_means_nothing() {
    let house = house().await;
    let mut peer = house.client("2025-11-25").await;
    let (status, called) = peer.ask_modern(&modern_call(1, "echo")).await;
    assert_eq!((status, text(&called)), (200, r#"{"id":1}"#));
    peer.session = Some("0".repeat(64));
    assert_eq!(peer.ask_modern(&modern_call(1, "echo")).await.0, 200);
}

/// Invalid requests, and the status of each.
#[tokio::test]
async fn statuses_tell_whose_fault_it_is() {
    let house = house().await;
    let mut peer = house.connect().await;
    let list = modern(1, "tools/list", json!({}));
    let echo = modern_call(1, "echo");
    let name = "Mcp-Name: echo\r\n";
    let version = "MCP-Protocol-Version: 2026-07-28\r\n";
    let cases = [
        ("no revision", &list, String::new(), 400, -32020),
        ("other revision", &list, "MCP-Protocol-Version: 2025-11-25\r\n".to_owned(), 400, -32020),
        ("two revisions", &list, version.repeat(2), 400, -32020),
        ("no method", &list, version.to_owned(), 400, -32020),
        ("other method", &list, format!("{version}Mcp-Method: prompts/list\r\n"), 400, -32020),
        ("other case", &list, format!("{version}Mcp-Method: TOOLS/LIST\r\n"), 400, -32020),
        ("method twice", &list, format!("{version}Mcp-Method: tools/list\r\nMcp-Method: tools/list\r\n"), 400, -32020),
        ("lower case header", &list, format!("{version}mcp-method:tools/list\r\n"), 200, 0),
        ("upper case header", &list, format!("{version}MCP-METHOD:   tools/list  \r\n"), 200, 0),
        ("a name too much", &list, format!("{version}Mcp-Method: tools/list\r\nMcp-Name: x\r\n"), 200, 0),
        ("no name", &echo, format!("{version}Mcp-Method: tools/call\r\n"), 400, -32020),
        ("other name", &echo, format!("{version}Mcp-Method: tools/call\r\nMcp-Name: Echo\r\n"), 400, -32020),
        ("name twice", &echo, format!("{version}Mcp-Method: tools/call\r\n{name}{name}"), 400, -32020),
        ("name with blanks", &echo, format!("{version}Mcp-Method: tools/call\r\nMcp-Name: \t echo \r\n"), 200, 0),
        ("encoded", &echo, format!("{version}Mcp-Method: tools/call\r\nMcp-Name: =?base64?ZWNobw==?=\r\n"), 200, 0),
        (
            "encoded ill",
            &echo,
            format!("{version}Mcp-Method: tools/call\r\nMcp-Name: =?base64?ZWNobw?=\r\n"),
            400,
            -32020,
        ),
        ("no ASCII", &echo, format!("{version}Mcp-Method: tools/call\r\nMcp-Name: \u{e9}cho\r\n"), 400, -32020),
        ("unknown param", &echo, format!("{version}Mcp-Method: tools/call\r\n{name}Mcp-Param-X: 1\r\n"), 200, 0),
    ];
    for (what, body, more, status, code) in cases {
        let request = peer.request("POST", &more, body);
        let head = peer.send(&request).await;
        let answer: Value = serde_json::from_str(&peer.body(&head).await).unwrap();
        assert_eq!((head.status, answer["error"]["code"].as_i64().unwrap_or(0)), (status, code), "{what}: {answer}");
        assert_eq!(answer["id"], 1, "{what}");
    }
    for method in ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "a/b"] {
        let (status, answer) = peer.ask_modern(&modern(7, method, json!({}))).await;
        assert_eq!((status, &answer["error"]["code"], &answer["id"]), (404, &json!(-32601), &json!(7)), "{method}");
    }
    // The handler judges the params, and its error is an answer.
    let (status, answer) = peer.ask_modern(&modern(7, "tools/list", json!({"cursor": "x"}))).await;
    assert_eq!((status, &answer["error"]["code"]), (200, &json!(-32602)));
}

#[tokio::test]
async fn h47_the_door_compares_arguments_with_their_headers() {
    let house = house().await;
    let mut peer = house.connect().await;
    let region = json!({"type": "string", "x-mcp-header": "Region"});
    let schema = json!({"type": "object", "properties": {"region": region}});
    peer.ask_modern(&act("change", json!({"schema": schema}))).await;
    let list = modern(1, "tools/list", json!({}));
    let listed = async { while !peer.ask_modern(&list).await.1.to_string().contains("x-mcp-header") {} };
    tokio::time::timeout(Duration::from_secs(60), listed).await.unwrap();
    let (north, nothing) = (json!({"region": "north"}), json!({}));
    let cases = [
        (&north, "Mcp-Param-Region: north\r\n", 200),
        (&north, "mcp-param-region: =?base64?bm9ydGg=?=\r\n", 200),
        (&nothing, "", 200),
        (&north, "", 400),
        (&north, "Mcp-Param-Region: south\r\n", 400),
        (&north, "Mcp-Param-Region: north\r\nMcp-Param-Region: north\r\n", 400),
        (&nothing, "Mcp-Param-Region: north\r\n", 400),
    ];
    for (arguments, header, status) in cases {
        let body = modern(7, "tools/call", json!({"name": "extra", "arguments": arguments}));
        let head = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: extra\r\n";
        let request = peer.request("POST", &format!("{head}{header}"), &body);
        let head = peer.send(&request).await;
        let answer: Value = serde_json::from_str(&peer.body(&head).await).unwrap();
        let code = if status == 400 { json!(-32020) } else { Value::Null };
        assert_eq!((head.status, &answer["error"]["code"]), (status, &code), "{arguments} {header:?}: {answer}");
        assert_eq!(answer["id"], 7);
    }
}

#[tokio::test]
async fn notifications_without_a_session_mean_nothing() {
    let house = house().await;
    let mut peer = house.connect().await;
    let notice = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    let request = peer.request("POST", "MCP-Protocol-Version: 2026-07-28\r\n", notice);
    let head = peer.send(&request).await;
    assert_eq!(head.status, 202);
    assert_eq!(peer.body(&head).await, "");
}

#[tokio::test]
async fn an_answer_becomes_a_stream_late() {
    let house = house().await;
    let mut peer = house.connect().await;
    let head = peer.post_modern(&modern_call("p", "quick")).await;
    assert_eq!((head.status, head.kind()), (200, "text/event-stream"));
    assert_eq!(head.headers["x-accel-buffering"], "no");
    let progress = peer.message().await.unwrap();
    assert_eq!((&progress["params"]["progressToken"], &progress["params"]["progress"]), (&json!("p"), &json!(1)));
    let answer = peer.message().await.unwrap();
    assert_eq!((&answer["id"], text(&answer)), (&json!("p"), "done"));
    assert_eq!(peer.message().await, None);
    // The connection stays usable.
    assert_eq!(peer.ask_modern(&modern_call(2, "echo")).await.0, 200);

    peer.tell_modern(&modern_call(3, "slow")).await;
    until(|| house.stage.running() == 1).await;
    tokio::time::pause();
    assert_eq!(peer.head().await.kind(), "text/event-stream");
    assert_eq!(peer.chunk().await.unwrap(), ":\n\n", "it is open");
    assert_eq!(peer.chunk().await.unwrap(), ":\n\n", "after fifteen seconds");
    tokio::time::resume();
    house.stage.release();
    assert_eq!(peer.message().await.unwrap()["id"], 3);
}

#[tokio::test]
async fn a_large_answer_has_a_length() {
    let house = house().await;
    let mut peer = house.connect().await;
    let head = peer.post_modern(&modern_call(1, "big")).await;
    assert!(head.headers["content-length"].parse::<usize>().unwrap() > 1 << 20);
    let answer: Value = serde_json::from_str(&peer.body(&head).await).unwrap();
    assert_eq!(text(&answer).len(), 1 << 20);
}

#[tokio::test]
async fn h52_a_lost_connection_is_a_cancel() {
    let house = house().await;
    // Before the response starts, and while its stream is open.
    let mut quiet = house.connect().await;
    let mut streaming = house.connect().await;
    quiet.tell_modern(&modern_call(1, "slow")).await;
    streaming.post_modern(&modern_call(1, "progress")).await;
    until(|| house.stage.running() == 2).await;
    drop(quiet);
    until(|| house.stage.running() == 1).await;
    drop(streaming);
    until(|| house.stage.running() == 0).await;
}

/// Race 4 of the list: the client disconnects just as its answer is written.
#[tokio::test]
async fn race_4_the_client_vanishes_when_the_answer_is_written() {
    let house = house().await;
    for number in 0..40 {
        let mut peer = house.connect().await;
        peer.tell_modern(&modern_call(1, if number % 2 == 0 { "slow" } else { "progress" })).await;
        until(|| house.stage.running() == 1).await;
        house.stage.release();
        for _ in 0..number / 2 {
            tokio::task::yield_now().await;
        }
        drop(peer);
        until(|| house.stage.running() == 0).await;
        until(|| !house.stage.is_busy()).await;
    }
    assert_eq!(house.connect().await.ask_modern(&modern_call(1, "echo")).await.0, 200);
}

/// Race 14 of the list: the same id from two clients at once.
#[tokio::test]
async fn race_14_equal_ids_of_two_clients() {
    let house = house().await;
    let (mut first, mut second) = (house.connect().await, house.connect().await);
    first.post_modern(&modern_call(1, "progress")).await;
    second.post_modern(&modern_call(1, "progress")).await;
    assert_eq!(house.stage.running(), 2);
    assert_eq!(house.stage.sessions(), 1, "they are as one client");
    house.stage.release();
    house.stage.release();
    for peer in [&mut first, &mut second] {
        for progress in [1, 2] {
            let message = peer.message().await.unwrap();
            assert_eq!(
                message["params"],
                json!({"progressToken": 1, "progress": progress, "message": if progress == 1 { "one" } else { "two" }})
            );
        }
        assert_eq!(peer.message().await.unwrap()["id"], 1);
        assert_eq!(peer.message().await, None);
    }
}

#[tokio::test]
async fn h95_running_requests_finish_before_the_door_closes() {
    let house = house().await;
    let mut peer = house.connect().await;
    peer.tell_modern(&modern_call(1, "slow")).await;
    until(|| house.stage.running() == 1).await;
    house.stop.cancel();
    house.stage.release();
    let head = peer.head().await;
    assert!(peer.body(&head).await.contains("done"));
    house.served.await.unwrap().unwrap();
}

#[tokio::test]
async fn what_a_server_does_not_find_is_no_unknown_method() {
    let house = house().await;
    let mut peer = house.connect().await;
    let (status, answer) = peer.ask_modern(&modern_call(1, "lacking")).await;
    assert_eq!((status, &answer["error"]["code"]), (200, &json!(-32601)), "an error of a handler");
    let (status, answer) = peer.ask_modern(&modern(1, "tools/none", json!({}))).await;
    assert_eq!((status, &answer["error"]["code"]), (404, &json!(-32601)), "and this is one");
}
