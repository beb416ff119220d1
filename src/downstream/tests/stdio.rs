//! The stdio door on pipes in memory.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::support::*;
use crate::downstream::Eras;
use crate::downstream::stdio::serve;
use crate::protocol::Raw;
use crate::router::Principal;

struct Pipe {
    stage: Stage,
    input: DuplexStream,
    output: BufReader<DuplexStream>,
    stop: CancellationToken,
    served: JoinHandle<std::io::Result<()>>,
}

fn open(stage: Stage) -> Pipe {
    open_for(stage, Eras::Both)
}

fn open_for(stage: Stage, eras: Eras) -> Pipe {
    let (input, theirs_in) = duplex(64 * 1024);
    let (theirs_out, output) = duplex(64 * 1024);
    let stop = CancellationToken::new();
    let served = tokio::spawn({
        let (router, stop) = (stage.router.clone(), stop.clone());
        async move { serve(router, eras, theirs_in, theirs_out, stop).await }
    });
    Pipe { stage, input, output: BufReader::new(output), stop, served }
}

async fn opened() -> Pipe {
    let mut pipe = open(stage().await);
    pipe.write(&initialize("2025-11-25")).await;
    assert_eq!(pipe.read().await["result"]["protocolVersion"], "2025-11-25");
    pipe
}

impl Pipe {
    async fn write(&mut self, line: &str) {
        self.input.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    async fn read(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

#[tokio::test]
async fn before_and_after_initialize() {
    let mut pipe = open(stage().await);
    pipe.write(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    pipe.write(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).await;
    assert_eq!(pipe.read().await, json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
    pipe.write(r#"{"jsonrpc":"2.0","id":"a","method":"tools/list"}"#).await;
    let refused = pipe.read().await;
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!("a"), &json!(-32600)));
    assert!(refused["error"]["message"].as_str().unwrap().contains("`tools/list` before `initialize`"));
    pipe.write(r#"{"jsonrpc":"2.0","id":2,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#).await;
    assert_eq!(pipe.read().await["error"]["code"], -32602);
    pipe.write(&initialize("2025-06-18")).await;
    assert_eq!(pipe.read().await["result"]["protocolVersion"], "2025-06-18");
    pipe.write(&initialize("2025-06-18")).await;
    assert_eq!(pipe.read().await["error"]["code"], -32600);
    pipe.write(&call(3, "echo")).await;
    assert_eq!(text(&pipe.read().await), r#"{"id":3}"#);
}

#[tokio::test]
async fn bad_lines_hurt_nobody() {
    let mut pipe = open(stage_with(|limits| limits.body = 200).await);
    let cases = [("{", -32700), ("[]", -32600), (r#"{"jsonrpc":"2.0","id":1}"#, -32600), (&*"x".repeat(300), -32600)];
    for (line, code) in cases {
        pipe.write(line).await;
        assert_eq!(pipe.read().await["error"]["code"], code, "{line}");
    }
    pipe.write("\r\n\n  ").await;
    pipe.write(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).await;
    assert_eq!(pipe.read().await["id"], 1);
}

#[tokio::test]
async fn calls_run_side_by_side_and_in_order_within() {
    let mut pipe = opened().await;
    pipe.write(&call(1, "progress")).await;
    pipe.write(&call(2, "big")).await;
    pipe.write(&call(3, "quick")).await;
    let mut first = Vec::new();
    for _ in 0..4 {
        let message = pipe.read().await;
        let id = message["id"].as_u64();
        let about_third = id == Some(3);
        assert!(!about_third || first.contains(&None), "progress comes before its answer");
        first.push(id);
    }
    first.sort_unstable();
    assert_eq!(first, [None, None, Some(2), Some(3)]);
    pipe.stage.announce(None);
    assert_eq!(pipe.read().await["method"], "notifications/tools/list_changed");
    pipe.stage.release();
    assert_eq!(pipe.read().await["params"]["progress"], 2);
    assert_eq!(pipe.read().await["id"], 1);
}

#[tokio::test]
async fn many_requests_at_once() {
    let mut pipe = opened().await;
    let all: String = (1..=1000).map(|id| call(id, "echo") + "\n").collect();
    let (mut input, output) = (pipe.input, &mut pipe.output);
    let writer = tokio::spawn(async move {
        input.write_all(all.as_bytes()).await.unwrap();
        input
    });
    let mut ids = Vec::new();
    let mut line = String::new();
    while ids.len() < 1000 {
        line.clear();
        output.read_line(&mut line).await.unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(text(&answer), format!(r#"{{"id":{}}}"#, answer["id"]));
        ids.push(answer["id"].as_u64().unwrap());
    }
    ids.sort_unstable();
    assert!(ids.into_iter().eq(1..=1000));
    drop(writer.await.unwrap());
    pipe.served.await.unwrap().unwrap();
}

#[tokio::test]
async fn h52_a_cancelled_call_is_not_answered() {
    let mut pipe = opened().await;
    pipe.write(&call(1, "slow")).await;
    pipe.write(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#).await;
    pipe.write(&call(2, "echo")).await;
    assert_eq!(pipe.read().await["id"], 2);
    until(|| pipe.stage.running() == 0).await;
}

#[tokio::test]
async fn h96_the_end_of_the_input_ends_the_session() {
    let mut pipe = opened().await;
    pipe.write(&call(1, "slow")).await;
    pipe.write(&call(2, "echo")).await;
    assert_eq!(pipe.read().await["id"], 2);
    tokio::time::pause();
    let begun = Instant::now();
    drop(pipe.input);
    pipe.served.await.unwrap().unwrap();
    assert_eq!(pipe.stage.sessions(), 0);
    assert!(begun.elapsed() < Duration::from_secs(3), "a call that does not end holds it up for {:?}", begun.elapsed());
}

#[tokio::test]
async fn h106_calls_under_way_are_answered_after_the_end_of_the_input() {
    let mut pipe = opened().await;
    pipe.write(&listen("changes", json!({"toolsListChanged": true}))).await;
    assert_eq!(subscription(&pipe.read().await), "changes");
    pipe.write(&call(1, "slow")).await;
    pipe.write(&modern_call(2, "slow")).await;
    let Pipe { stage, input, mut output, served, stop: _stop } = pipe;
    drop(input);
    let mut next = async || {
        let mut line = String::new();
        output.read_line(&mut line).await.unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    };
    // A change stream never ends by itself: nothing waits for it, and it is withdrawn.
    until(|| stage.router.meter().gauges().listens == 0 && stage.running() == 2).await;
    stage.release();
    stage.release();
    let mut ids = [next().await["id"].clone(), next().await["id"].clone()];
    ids.sort_by_key(Value::as_u64);
    assert_eq!(ids, [json!(1), json!(2)]);
    served.await.unwrap().unwrap();
    let mut rest = String::new();
    output.read_line(&mut rest).await.unwrap();
    assert_eq!(rest, "", "nothing more is answered");
}

/// A script may write its requests, close the pipe, and read the answers much later.
#[tokio::test]
async fn h96_answers_that_are_ready_are_written_after_the_end_of_the_input() {
    let mut pipe = opened().await;
    pipe.write(&call(1, "big")).await;
    let Pipe { stage, input, mut output, served, .. } = pipe;
    assert!(!output.fill_buf().await.unwrap().is_empty(), "it has begun");
    tokio::time::pause();
    drop(input);
    until_some_time(|| stage.sessions() == 0).await;
    tokio::time::advance(Duration::from_secs(9)).await;
    tokio::time::resume();
    let mut line = String::new();
    output.read_line(&mut line).await.unwrap();
    let answer: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(text(&answer).len(), 1 << 20);
    served.await.unwrap().unwrap();
}

#[tokio::test]
async fn h96_a_broken_output_ends_the_session() {
    let mut pipe = opened().await;
    drop(pipe.output);
    pipe.input.write_all(format!("{}\n", call(1, "echo")).as_bytes()).await.unwrap();
    pipe.served.await.unwrap().unwrap();
    assert_eq!(pipe.stage.sessions(), 0);
}

#[tokio::test]
async fn h95_stop_lets_calls_finish() {
    let mut pipe = opened().await;
    pipe.write(&call(1, "slow")).await;
    until(|| pipe.stage.running() == 1).await;
    pipe.stop.cancel();
    pipe.stage.release();
    assert_eq!(pipe.read().await["id"], 1);
    pipe.served.await.unwrap().unwrap();
    assert_eq!(pipe.stage.sessions(), 0);
}

#[tokio::test]
async fn h95_a_new_request_is_refused_while_calls_end() {
    let mut pipe = opened().await;
    pipe.write(&call(1, "slow")).await;
    until(|| pipe.stage.running() == 1).await;
    pipe.stop.cancel();
    pipe.write(&call(2, "echo")).await;
    let refused = pipe.read().await;
    assert_eq!(refused["id"], 2);
    let details = &refused["result"]["_meta"]["mcp-host/error"];
    assert_eq!((&details["kind"], &details["sent"]), (&"shutting_down".into(), &false.into()), "{refused}");
    pipe.write(r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#).await;
    assert_eq!(pipe.read().await["result"], json!({}));
    pipe.stage.release();
    assert_eq!(pipe.read().await["id"], 1);
    pipe.served.await.unwrap().unwrap();
}

#[tokio::test]
async fn h95_what_outlasts_the_drain_is_answered() {
    let mut pipe = open(stage_with(|limits| limits.drain = Duration::from_millis(20)).await);
    pipe.write(&initialize("2025-11-25")).await;
    pipe.read().await;
    pipe.write(&call(1, "slow")).await;
    until(|| pipe.stage.running() == 1).await;
    pipe.stop.cancel();
    let answer = pipe.read().await;
    let details = &answer["result"]["_meta"]["mcp-host/error"];
    assert_eq!((&details["kind"], &details["sent"]), (&"shutting_down".into(), &true.into()), "{answer}");
    pipe.served.await.unwrap().unwrap();
    until(|| pipe.stage.running() == 0).await;
}

#[tokio::test]
async fn h49_a_client_that_reads_nothing_is_cut_off() {
    let mut pipe = open(stage_with(|limits| limits.client_queue = 1 << 20).await);
    pipe.write(&initialize("2025-11-25")).await;
    pipe.read().await;
    for number in 0..5 {
        let params = json!([number, "x".repeat(300_000)]);
        pipe.stage.announce(Some(Raw::from_value(&params)));
    }
    until(|| pipe.stage.sessions() == 0).await;
    drop(pipe.output);
    pipe.served.await.unwrap().unwrap();
}

#[tokio::test]
async fn requests_without_a_session() {
    let mut pipe = open(stage().await);
    pipe.write(&modern("d", "server/discover", json!({}))).await;
    let discovered = pipe.read().await;
    assert_eq!((&discovered["id"], &discovered["result"]["resultType"]), (&json!("d"), &json!("complete")));
    pipe.write(&modern_call(1, "progress")).await;
    pipe.write(&modern_call("1", "quick")).await;
    let mut seen = Vec::new();
    for _ in 0..3 {
        let message = pipe.read().await;
        seen.push(if message["id"].is_null() {
            message["params"]["progressToken"].clone()
        } else {
            message["id"].clone()
        });
    }
    assert_eq!(seen.iter().filter(|id| **id == json!("1")).count(), 2, "{seen:?}");
    assert_eq!(seen.iter().filter(|id| **id == json!(1)).count(), 1, "{seen:?}");
    pipe.write(&modern_call(1, "echo")).await;
    let refused = pipe.read().await;
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(1), &json!(-32600)), "the id is in use");
    pipe.stage.release();
    assert_eq!(pipe.read().await["params"]["progress"], 2);
    assert_eq!(text(&pipe.read().await), "done");
    for method in ["initialize", "ping", "resources/subscribe"] {
        pipe.write(&modern(2, method, json!({}))).await;
        assert_eq!(pipe.read().await["error"]["code"], -32601, "{method}");
    }
    pipe.write(&modern_call(1, "echo")).await;
    assert_eq!(text(&pipe.read().await), r#"{"id":1}"#, "the id is free again");
}

#[tokio::test]
async fn h52_a_withdrawn_request_says_nothing_more() {
    let mut pipe = open(stage().await);
    pipe.write(&modern_call(1, "progress")).await;
    assert_eq!(pipe.read().await["params"]["progress"], 1);
    pipe.write(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"1"}}"#).await;
    pipe.write(&modern_call(2, "echo")).await;
    assert_eq!(pipe.read().await["id"], 2);
    assert_eq!(pipe.stage.running(), 1, "the other one was not named");
    pipe.write(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#).await;
    until(|| pipe.stage.running() == 0).await;
    pipe.write(&modern_call(1, "echo")).await;
    assert_eq!(text(&pipe.read().await), r#"{"id":1}"#);
}

/// Race 18 of the list: requests of both eras on one pipe.
#[tokio::test]
async fn race_18_a_stateless_request_beside_a_session() {
    let mut pipe = opened().await;
    pipe.write(&call(1, "slow")).await;
    pipe.write(&modern_call(2, "slow")).await;
    until(|| pipe.stage.running() == 2).await;
    pipe.write(&modern(3, "tools/list", json!({}))).await;
    assert_eq!(pipe.read().await["result"]["resultType"], "complete");
    pipe.write(r#"{"jsonrpc":"2.0","id":4,"method":"tools/list"}"#).await;
    assert_eq!(pipe.read().await["result"].get("resultType"), None);
    pipe.write(r#"{"jsonrpc":"2.0","id":5,"method":"ping"}"#).await;
    assert_eq!(pipe.read().await, json!({"jsonrpc": "2.0", "id": 5, "result": {}}));
    pipe.write(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#).await;
    until(|| pipe.stage.running() == 1).await;
    pipe.stage.release();
    assert_eq!(pipe.read().await["id"], 1);
    pipe.stage.announce(None);
    assert_eq!(pipe.read().await["method"], "notifications/tools/list_changed");
}

#[tokio::test]
async fn one_era_alone() {
    let mut pipe = open_for(stage().await, Eras::Modern);
    pipe.write(&initialize("2025-11-25")).await;
    let refused = pipe.read().await;
    assert_eq!(refused["error"]["code"], -32022);
    assert_eq!(refused["error"]["data"], json!({"supported": ["2026-07-28"], "requested": "2025-11-25"}));
    pipe.write(&modern_call(1, "echo")).await;
    assert_eq!(pipe.read().await["id"], 1);
    let mut pipe = open_for(stage().await, Eras::Legacy);
    pipe.write(&modern("d", "server/discover", json!({}))).await;
    assert_eq!(pipe.read().await["error"]["code"], -32602);
    pipe.write(&initialize("2026-07-28")).await;
    assert_eq!(pipe.read().await["result"]["protocolVersion"], "2025-11-25");
}

#[tokio::test]
async fn h39_batches_are_taken_apart() {
    let mut pipe = open(stage().await);
    pipe.write(r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#).await;
    assert_eq!(pipe.read().await["error"]["code"], -32600, "there is no session yet");
    pipe.write(&initialize("2025-03-26")).await;
    assert_eq!(pipe.read().await["result"]["protocolVersion"], "2025-03-26");
    pipe.write(&format!(r#"[{},1,{{"jsonrpc":"2.0","method":"x"}},{}]"#, call(1, "echo"), call(2, "slow"))).await;
    let mut ids = [pipe.read().await["id"].clone(), pipe.read().await["id"].clone()];
    ids.sort_by_key(Value::is_null);
    assert_eq!(ids, [json!(1), Value::Null]);
    pipe.stage.release();
    assert_eq!(pipe.read().await["id"], 2);
    pipe.write("[]").await;
    assert_eq!(pipe.read().await["error"]["code"], -32600);
}

#[tokio::test]
async fn streams_of_changes_share_the_pipe() {
    let mut pipe = open(stage().await);
    pipe.write(&listen("a", json!({"toolsListChanged": true}))).await;
    assert_eq!(subscription(&pipe.read().await), "a");
    pipe.write(&listen(1, json!({"resourceSubscriptions": ["test://watched"]}))).await;
    let acknowledged = pipe.read().await;
    assert_eq!(acknowledged["params"]["notifications"], json!({"resourceSubscriptions": ["test://watched"]}));
    assert_eq!(subscription(&acknowledged), 1);
    pipe.write(&act("touch", json!({"uri": "test://watched"}))).await;
    let (first, second) = (pipe.read().await, pipe.read().await);
    let (updated, answer) = if first["id"].is_null() { (first, second) } else { (second, first) };
    assert_eq!((subscription(&updated), text(&answer)), (&json!(1), "true"));
    // One stream is withdrawn: nothing more comes from it, not even an end.
    pipe.write(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#).await;
    loop {
        pipe.write(&act("touch", json!({"uri": "test://watched"}))).await;
        let answer = pipe.read().await;
        assert_eq!(answer["id"], "act");
        if text(&answer) == "false" {
            break;
        }
    }
    // The other one ends with the host.
    pipe.stop.cancel();
    let end = pipe.read().await;
    assert_eq!(
        (&end["id"], subscription(&end), &end["result"]["resultType"]),
        (&json!("a"), &json!("a"), &json!("complete"))
    );
    pipe.served.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_client_without_a_session_stays_as_long_as_its_pipe() {
    let stage = stage_with(|limits| limits.session_idle = Duration::from_millis(20)).await;
    let mut pipe = open(stage.clone());
    pipe.write(&modern_call(1, "echo")).await;
    pipe.read().await;
    let piped = stage.router.present().remove(0);
    // A later client outside the pipe: once it is gone, the search for idle clients has visited both.
    stage.router.pool().get(Principal::local(), &Raw::empty_object(), Some("elsewhere")).unwrap();
    assert_eq!(stage.sessions(), 2);
    until_some_time(|| stage.sessions() < 2).await;
    let left = stage.router.present();
    assert!(left.len() == 1 && Arc::ptr_eq(&left[0], &piped), "{left:?}");
    drop(pipe.input);
    pipe.served.await.unwrap().unwrap();
    until_some_time(|| stage.sessions() == 0).await;
}

#[tokio::test]
async fn h39_batches_of_other_revisions_are_refused_whole() {
    for revision in ["2024-11-05", "2025-06-18", "2025-11-25"] {
        let mut pipe = open(stage().await);
        pipe.write(&initialize(revision)).await;
        pipe.read().await;
        pipe.write(&format!("[{}]", call(1, "echo"))).await;
        let refused = pipe.read().await;
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&Value::Null, &json!(-32600)), "{revision}");
        pipe.write(r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#).await;
        assert_eq!(pipe.read().await["id"], 2, "{revision}");
    }
}

#[tokio::test]
async fn h38_what_nests_deeper_than_the_limit_is_refused() {
    let mut pipe = open(stage_with(|limits| limits.depth = 8).await);
    pipe.write(&initialize("2025-11-25")).await;
    pipe.read().await;
    for (depth, code) in [(8, Value::Null), (9, json!(-32700)), (8, Value::Null)] {
        pipe.write(&nested(depth)).await;
        assert_eq!(pipe.read().await["error"]["code"], code, "{depth}");
    }
}

#[tokio::test]
async fn h100_a_line_without_an_end_is_refused_once_and_ends_the_session() {
    let Pipe { stage: _stage, mut input, mut output, stop: _stop, served } =
        open(stage_with(|limits| limits.body = 1000).await);
    let filled = tokio::spawn(async move {
        // Until no more is read.
        while input.write_all(&[b'a'; 500]).await.is_ok() {}
    });
    let mut said = String::new();
    output.read_line(&mut said).await.unwrap();
    let refused: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&Value::Null, &json!(-32600)));
    let error = timeout(Duration::from_secs(30), served).await.unwrap().unwrap().unwrap_err();
    let expected =
        "the client sent more than 4000 bytes without ending its line; a message may have 1000 (host.limits.body)";
    assert_eq!(error.to_string(), expected);
    filled.await.unwrap();
    said.clear();
    output.read_line(&mut said).await.unwrap();
    assert_eq!(said, "", "it is told once");
}

#[tokio::test]
async fn h100_a_line_that_proves_endless_while_calls_finish_holds_nothing_up() {
    let Pipe { stage: _stage, mut input, output: _output, stop, served } =
        open(stage_with(|limits| (limits.body, limits.drain) = (1000, Duration::from_millis(200))).await);
    for line in [&*initialize("2025-11-25"), &call(1, "slow")] {
        input.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }
    stop.cancel();
    while input.write_all(&[b'a'; 500]).await.is_ok() {}
    timeout(Duration::from_secs(60), served).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn h100_a_drain_ends_with_its_last_call_though_that_has_no_answer() {
    let mut pipe = opened().await;
    pipe.write(&call(1, "slow")).await;
    until(|| pipe.stage.running() == 1).await;
    pipe.stop.cancel();
    pipe.write(r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#).await;
    assert_eq!(pipe.read().await["id"], 2);
    tokio::time::pause();
    let begun = Instant::now();
    pipe.write(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#).await;
    pipe.served.await.unwrap().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1), "nothing was left to wait for: {:?}", begun.elapsed());
}
