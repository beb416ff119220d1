//! `mcp-host asks`: a person decides on a call of a running daemon; and the audit of what was decided.

use std::io::Read as _;
use std::process::Stdio;

use serde_json::{Value, json};

use super::{daemon, run};
use crate::reload::program::mcp_host;

#[test]
fn a_person_decides_on_calls_of_a_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let rules = json!([{ "name": "no-ask", "verdict": "deny", "tools": ["echo__ask"] }, { "name": "careful", "verdict": "ask", "tools": ["hint:read-only"], "proof": "person", "remember": "1h" }]);
    let echo = json!({ "command": env!("CARGO_BIN_EXE_mcp-host"), "args": ["__demo-server"] });
    let host = json!({ "policy": { "rules": rules }, "audit": { "file": "audit.jsonl" } });
    let mut daemon = daemon(home, &json!({ "host": host, "mcpServers": { "echo": echo } }));
    daemon.hears("✓ echo");
    assert_eq!(run(home, &["asks"]), "exit 0\nnothing waits for your permission\n");
    let needs = run(home, &["check", "--needs", "echo__echo,echo__ask"]);
    assert!(needs.starts_with("exit 6\n") && needs.contains("echo__echo: callable\necho__ask: denied"), "{needs}");
    let unknown = run(home, &["asks", "7", "--yes"]);
    assert!(unknown.starts_with("exit 2\n") && unknown.contains("nothing with the number 7 waits"), "{unknown}");
    for (answer, code) in [("--no", 6), ("--yes", 0), ("--remember", 0)] {
        // A command of the same config is a client of the daemon, and judges nothing itself.
        let args = ["call", "echo__echo", r#"{"text":"hi\u001b[31m"}"#, "--config", "mcp.json"];
        let mut call = mcp_host(home, &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let ask = loop {
            let output = mcp_host(home, &["asks", "--json"]).output().unwrap();
            let asks: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
            if let Some(ask) = asks.get(0) {
                break ask.clone();
            }
        };
        assert_eq!(
            (&ask["rule"], &ask["server"], &ask["personOnly"]),
            (&json!("careful"), &json!("echo"), &json!(true))
        );
        let listed = run(home, &["asks"]);
        let id = ask["id"].to_string();
        assert!(listed.contains(&format!("{id}: tools/call echo of echo, for local")), "{listed}");
        assert!(listed.contains(&format!("mcp-host asks {id} --yes | --remember (1 h 0 min) | --no")), "{listed}");
        assert!(!listed.contains('\u{1b}'), "{listed}");
        let done = if answer == "--no" { "refused" } else { "allowed" };
        assert_eq!(run(home, &["asks", &id, answer]), format!("exit 0\n{id}: {done}\n"));
        let mut said = String::new();
        call.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(call.wait().unwrap().code(), Some(code), "{answer}: {said}");
    }
    // The permission counts for an hour.
    assert!(run(home, &["call", "echo__echo", r#"{"text":"again"}"#]).starts_with("exit 0\n"));
    // Killed, it would lose the last line.
    daemon.end();
    let audit = std::fs::read_to_string(home.join("audit.jsonl")).unwrap();
    let lines = audit.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let verdicts: Vec<Value> =
        lines.filter(|line| line["method"] == "tools/call").map(|line| line["verdict"].clone()).collect();
    let verdict = |asked: &Value| json!({ "verdict": "ask", "rule": "careful", "enforced": true, "asked": asked });
    assert_eq!(verdicts, [json!("no"), json!("yes"), json!("yes"), Value::Null].map(|asked| verdict(&asked)));
    // Without a daemon no person can be asked, so nobody is waited for.
    let alone = run(home, &["call", "echo__echo", r#"{"text":"alone"}"#, "--config", "mcp.json"]);
    assert!(alone.starts_with("exit 6\n") && alone.contains("no person can be asked here"), "{alone}");
}

/// Runs a command at a terminal of its own, types lines there, and returns what the terminal shows.
#[cfg(target_os = "linux")]
fn at_terminal(home: &std::path::Path, line: &str, typed: &str) -> String {
    use std::io::Write as _;
    let mut script = std::process::Command::new("script");
    script.args(["-qec", line, "/dev/null"]).current_dir(home);
    script.envs(mcp_host(home, &[]).get_envs().filter_map(|(name, value)| Some((name, value?))));
    script.env("PROGRAM", env!("CARGO_BIN_EXE_mcp-host")).env("SHELL", "/bin/sh").env("NO_COLOR", "1");
    let mut script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // It stays open: the terminal would go away with it.
    let mut keys = script.stdin.take().unwrap();
    keys.write_all(typed.as_bytes()).unwrap();
    let mut shown = String::new();
    script.stdout.take().unwrap().read_to_string(&mut shown).unwrap();
    script.wait().unwrap();
    shown.replace('\r', "")
}

#[test]
fn a_question_of_the_host_is_not_one_of_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let rules = json!([{ "name": "careful", "verdict": "ask", "tools": ["echo__echo"] }]);
    let echo = json!({ "command": env!("CARGO_BIN_EXE_mcp-host"), "args": ["__demo-server"] });
    let config = json!({ "host": { "policy": { "rules": rules } }, "mcpServers": { "echo": echo } });
    let daemon = daemon(home, &config);
    daemon.hears("✓ echo");
    // Once beside a daemon, which asks, and once without one, where the command itself is the host.
    let mut told = Vec::new();
    for daemon in [Some(daemon), None] {
        let calls = [&["echo__echo", "text=x"][..], &["echo__ask"]];
        told.push(calls.map(|words| {
            let said = run(home, &[&["call", "--config", "mcp.json"], words].concat());
            let of_question = said.lines().filter(|line| line.contains("asked"));
            of_question.collect::<Vec<_>>().join("\n")
        }));
        #[cfg(target_os = "linux")]
        {
            let line = "exec \"$PROGRAM\" call --config mcp.json echo__echo text='one\ntwo'";
            let shown = at_terminal(home, line, "maybe\ny\n");
            // The lines of the host are lines; what the client sent is escaped.
            let asked = "mcp-host asks: mcp-host wants to call echo of the server \"echo\". The rule \"careful\" wants you to decide.\n\n\
                         Arguments: {\"text\":\"one\\ntwo\"}\n";
            assert!(shown.contains(asked) && !shown.contains("server `"), "{shown}");
            assert!(shown.contains("May it? (y = once / n = no):"), "{shown}");
            assert!(shown.contains("please give one of y = once / n = no\n"), "{shown}");
            assert!(shown.trim_end().ends_with("one\ntwo"), "{shown}");
            let refused = at_terminal(home, line, "no\n");
            assert!(refused.contains("the answer was no"), "{refused}");
        }
        drop(daemon);
    }
    insta::assert_snapshot!(told[0].join("\n"), @r#"
    note: mcp-host asked "mcp-host wants to call echo of the server "echo". The rule…" and was declined: there is no terminal
    note: server `echo` asked "Who are you?" and was declined: there is no terminal
    "#);
    assert_eq!(told[0], told[1]);
}
