//! The stdio front end when its client is gone or has closed its side, and its output: H96, H100, H106.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::support::{Program, assert_gone, entry, is_alive, server, wait};

#[test]
fn h96_a_client_that_is_killed_ends_the_host_and_its_servers() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    let script = server("echo $$ >\"$0\"", "reply '{}'");
    std::fs::write(at("mcp.json"), json!({ "mcpServers": { "a": entry(&script, &at("server")) } }).to_string())
        .unwrap();
    // The client holds the only end that could write to the host, and is killed.
    let client = r#"mkfifo in; "$0" stdio --config mcp.json <in >out & echo $! >host; exec 9>in; wait"#;
    let mut client = Command::new("sh")
        .args(["-c", client, env!("CARGO_BIN_EXE_mcp-host")])
        .current_dir(home.path())
        .env_clear()
        .env("HOME", home.path())
        .env("PATH", std::env::var_os("PATH").unwrap())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = |name: &str| wait(|| std::fs::read_to_string(at(name)).ok()?.trim().parse::<u32>().ok());
    let pids = [pid("host"), pid("server")];
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    client.kill().unwrap();
    client.wait().unwrap();
    assert_gone(pids, Duration::from_secs(5));
}

#[test]
fn h96_nothing_but_messages_is_on_stdout() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let noisy = server("echo noise; echo more >&2", "echo noise; reply '{\"content\":[]}'; exit 3");
    let servers = json!({
        "noisy": entry(&noisy, file.path()), "gone": { "command": "there-is-no-such-program" },
        "off": { "command": "x", "env": { "KEY": "${NOT_SET}" } },
    });
    let mut program = Program::start_by(&servers, |program| {
        let mut command = Command::new("sh");
        command.args(["-c", r#"RUST_LOG=trace exec "$0" "$@" -vvv"#, program]);
        command
    });
    // `answer` takes each line for a message, and fails on any other.
    program.say(&Value::from("no message"));
    program.ask(1, "tools/list", &json!({}));
    program.ask(2, "tools/call", &json!({ "name": "noisy__act", "arguments": {} }));
    program.ask(3, "tools/call", &json!({ "name": "none", "arguments": {} }));
    program.ask(4, "no/such", &json!({}));
    drop(program.stdin.take());
    assert!(program.child.wait().unwrap().success());
    program.rest().for_each(|line| assert!(serde_json::from_str::<Value>(&line).unwrap().is_object(), "{line}"));
}

#[test]
fn h106_a_script_that_closes_its_side_has_its_answers() {
    let home = tempfile::tempdir().unwrap();
    let act = server("", "reply '{\"content\":[]}'");
    let servers = json!({ "mcpServers": { "a": entry(&act, &home.path().join("unused")) } });
    std::fs::write(home.path().join("mcp.json"), servers.to_string()).unwrap();
    let client =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let mut lines = vec![
        json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": client }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
    ];
    lines.extend((1..=20).map(|id| {
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "a__act", "arguments": {} } })
    }));
    let said: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(home.path().join("said"), said).unwrap();
    // Everything is written, and the input closed, before the host has started its server.
    let mut host = Command::new(env!("CARGO_BIN_EXE_mcp-host"));
    host.args(["stdio", "--config", "mcp.json"]).current_dir(home.path()).env_clear().env("HOME", home.path());
    host.env("PATH", std::env::var_os("PATH").unwrap()).stdin(std::fs::File::open(home.path().join("said")).unwrap());
    let ended = host.output().unwrap();
    let told = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(0), "{told}");
    let answers = String::from_utf8(ended.stdout).unwrap();
    let answers = answers.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut answered: Vec<u64> =
        answers.filter(|message| message["result"].is_object()).filter_map(|message| message["id"].as_u64()).collect();
    answered.sort_unstable();
    assert_eq!(answered, (0..=20).collect::<Vec<_>>(), "{told}");
}

#[test]
fn h100_a_line_without_an_end_ends_the_host_whatever_comes_after_it() {
    const MIB: usize = 1 << 20;
    // How much is written, and what happens then.
    for (size, then) in [(17, "EOF"), (17, "TERM"), (300, "EOF"), (300, "TERM")] {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("mcp.json"), r#"{ "mcpServers": {} }"#).unwrap();
        let mut host = Command::new(env!("CARGO_BIN_EXE_mcp-host"));
        host.args(["stdio", "--config", "mcp.json"]).current_dir(home.path()).env_clear().env("HOME", home.path());
        let mut host = host.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut input = host.stdin.take().unwrap();
        // Until it takes no more.
        let part = vec![b'a'; MIB];
        let taken = (0..size).take_while(|_| input.write_all(&part).is_ok()).count();
        if then == "TERM" {
            let pid = rustix::process::Pid::from_child(&host);
            // It may have ended already.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        drop(input);
        let ended = host.wait_with_output().unwrap();
        let (said, told) = (String::from_utf8(ended.stdout).unwrap(), String::from_utf8(ended.stderr).unwrap());
        let told: Vec<_> = told.lines().filter(|line| line.starts_with("error: ")).collect();
        let expected = "error: standard input or output: the client sent more than 16777216 bytes without ending its line; \
                        a message may have 4194304 (host.limits.body)";
        assert_eq!((ended.status.code(), told), (Some(1), vec![expected]), "{size} MiB, {then}");
        assert_eq!(said.lines().count(), 1, "it is reported once: {said}");
        assert!(taken <= 18, "it took {taken} MiB");
    }
}
