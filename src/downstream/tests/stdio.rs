//! The stdio door on pipes in memory.

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::support::*;
use crate::downstream::stdio::serve;
use crate::protocol::Raw;

struct Pipe {
    stage: Stage,
    input: DuplexStream,
    output: BufReader<DuplexStream>,
    stop: CancellationToken,
    served: JoinHandle<std::io::Result<()>>,
}

fn open(stage: Stage) -> Pipe {
    let (input, theirs_in) = duplex(64 * 1024);
    let (theirs_out, output) = duplex(64 * 1024);
    let stop = CancellationToken::new();
    let served = tokio::spawn({
        let (router, stop) = (stage.router.clone(), stop.clone());
        async move { serve(router, theirs_in, theirs_out, stop).await }
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
    drop(pipe.input);
    pipe.served.await.unwrap().unwrap();
    assert_eq!(pipe.stage.sessions(), 0);
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
