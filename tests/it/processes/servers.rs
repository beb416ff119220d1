//! Servers that make noise, hang, crash, or ask too much, seen through a host.

use std::path::Path;
use std::time::{Duration, Instant};

use mcp_host::protocol::Raw;
use mcp_host::{Host, StateName, demo};
use serde_json::{Value, json};

use super::support::{Program, entry, server, wait};

/// A host over these servers, and one in this process.
async fn host(home: &Path, servers: &Value) -> Host {
    let file = home.join("mcp.json");
    std::fs::write(&file, json!({ "mcpServers": servers, "host": { "startupWait": "300ms" } }).to_string()).unwrap();
    Host::builder().config_file(file).in_process("echo", demo::echo()).start().await.unwrap()
}

async fn echo(host: &Host) -> Duration {
    let begun = Instant::now();
    let arguments = Raw::from_value(&json!({ "text": "hello" }));
    let answer = host.call_tool("echo__echo", arguments).await.unwrap();
    assert!(answer.to_string().contains("hello"));
    begun.elapsed()
}

async fn reach(host: &Host, server: &str, state: StateName) {
    let reached = async {
        while host.status().iter().find(|status| *status.name == *server).unwrap().state != state {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(15), reached).await.unwrap_or_else(|_| panic!("{:?}", host.status()));
}

#[tokio::test]
async fn h2_noise_is_no_sign_of_life() {
    let home = tempfile::tempdir().unwrap();
    let pids = home.path().join("pids");
    let noise = entry(r#"echo $$ >"$0"; while :; do echo noise; done"#, &pids);
    let mut noise = noise;
    noise["startTimeout"] = json!("500ms");
    noise["restart"] = json!({ "maxRetries": 0 });
    let host = host(home.path(), &json!({ "noise": noise })).await;
    let begun = Instant::now();
    echo(&host).await;
    reach(&host, "noise", StateName::Failed).await;
    assert!(begun.elapsed() >= Duration::from_millis(400), "it had its time");
    let pid: u32 = std::fs::read_to_string(&pids).unwrap().trim().parse().unwrap();
    echo(&host).await;
    tokio::task::spawn_blocking(move || super::support::assert_gone([pid], Duration::from_secs(8))).await.unwrap();
    host.shutdown().await;
}

#[tokio::test]
async fn h7_one_that_hangs_holds_up_no_list() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("mcp.json");
    let hung = json!({ "command": "sleep", "args": ["600"], "startTimeout": "60s" });
    let config = json!({ "mcpServers": { "hung": hung }, "host": { "startupWait": "700ms" } });
    std::fs::write(&file, config.to_string()).unwrap();
    let mut builder = Host::builder().config_file(file);
    for number in 0..49 {
        builder = builder.in_process(&format!("s{number}"), demo::clock());
    }
    let begun = Instant::now();
    let host = builder.start().await.unwrap();
    assert_eq!(host.catalog_ready().await.tools().len(), 49);
    assert!(begun.elapsed() < Duration::from_millis(700 + 500), "the first list took {:?}", begun.elapsed());
    for _ in 0..5 {
        let begun = Instant::now();
        assert_eq!(host.catalog_ready().await.tools().len(), 49);
        assert!(begun.elapsed() < Duration::from_millis(250), "a later list took {:?}", begun.elapsed());
    }
    host.kill();
    host.shutdown().await;
}

#[test]
fn h9_a_call_that_was_begun_is_not_begun_again() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("calls");
    let script = server("", r#"echo call >>"$0"; exit 1"#);
    let mut program = Program::start(&json!({ "s": entry(&script, &file) }));
    program.ask(1, "tools/list", &json!({}));
    let answer = program.ask(2, "tools/call", &json!({ "name": "s__act", "arguments": {} }));
    let error = &answer["result"]["_meta"]["mcp-host/error"];
    assert_eq!((&error["kind"], &error["sent"]), (&json!("outcome_unknown"), &json!(true)), "{answer}");
    // It is restarted, and serves: the next call is a new one.
    let answer = program.ask(3, "tools/call", &json!({ "name": "s__act", "arguments": {} }));
    assert_eq!(answer["result"]["isError"], json!(true));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "call\ncall\n");
}

#[test]
fn h18_a_flood_of_questions_is_answered_at_a_rate() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("answers");
    // Two hundred at once, and an unknown one; everything that arrives is written down.
    let flood = r#"reply '{"content":[]}'
      { echo '{"jsonrpc":"2.0","id":"odd","method":"no/such"}'
        seq 1 200 | sed 's/.*/{"jsonrpc":"2.0","id":"q&","method":"ping"}/'; }
      head -n 201 >"$0""#;
    let script = server("", flood);
    let mut program = Program::start(&json!({ "s": entry(&script, &file) }));
    program.ask(1, "tools/list", &json!({}));
    program.ask(2, "tools/call", &json!({ "name": "s__act", "arguments": {} }));
    let answers = wait(|| {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        (text.lines().count() == 201).then_some(text)
    });
    let answers: Vec<Value> = answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let code = |id: &str| answers.iter().find(|answer| answer["id"] == json!(id)).unwrap()["error"]["code"].clone();
    assert_eq!(code("odd"), json!(-32601));
    let good = answers.iter().filter(|answer| answer.get("result").is_some()).count();
    assert_eq!(good, 49, "fifty in the first second");
    assert_eq!(code("q200"), json!(-32603));
    // It is heard again later, and others never noticed.
    assert!(program.ask(3, "ping", &json!({})).get("result").is_some());
}

/// Returns the peak memory of a process so far, in MiB.
fn most_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

#[test]
fn h3_a_line_without_end_costs_three_times_the_cap_at_most() {
    let home = tempfile::tempdir().unwrap();
    let script = server("", r"tr '\0' a </dev/zero");
    let mut program = Program::start(&json!({ "s": entry(&script, &home.path().join("none")) }));
    program.ask(1, "tools/list", &json!({}));
    let before = most_memory(program.child.id());
    let answer = program.ask(2, "tools/call", &json!({ "name": "s__act", "arguments": {} }));
    assert_eq!(answer["result"]["_meta"]["mcp-host/error"]["kind"], json!("too_large"), "{answer}");
    let after = most_memory(program.child.id());
    assert!(after <= before + 3 * 16, "{before} MiB, then {after} MiB");
}

#[test]
fn h5_a_line_without_end_on_standard_error_costs_no_memory() {
    let home = tempfile::tempdir().unwrap();
    let script = server("", r#"head -c 67108864 /dev/zero | tr '\0' e >&2; reply '{"content":[]}'"#);
    let mut program = Program::start(&json!({ "s": entry(&script, &home.path().join("none")) }));
    program.ask(1, "tools/list", &json!({}));
    let before = most_memory(program.child.id());
    let answer = program.ask(2, "tools/call", &json!({ "name": "s__act", "arguments": {} }));
    assert_eq!(answer["result"]["content"], json!([]), "{answer}");
    let after = most_memory(program.child.id());
    assert!(after <= before + 16, "{before} MiB, then {after} MiB");
}
