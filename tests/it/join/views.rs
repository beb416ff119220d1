//! Views of the program: `--view` of `stdio`, `tools` and `call`, with a daemon and without; and that a preset shows nowhere.

use std::path::Path;

use serde_json::{Value, json};

use super::PROGRAM;
use super::client::Client;
use crate::reload::program::{Daemon, mcp_host};

/// A preset that only the server may get, and that stands in a variable.
const CANARY: &str = "canary-5b1e07";

fn place() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let echo = json!({ "command": PROGRAM, "args": ["__demo-server"] });
    let preset = json!({ "text": { "value": "${CANARY}", "hide": true } });
    let config = json!({
        "mcpServers": { "code": echo, "db": echo },
        "host": { "audit": { "file": home.path().join("audit.jsonl") }, "views": {
            "review": { "include": ["code__echo"], "tools": { "code__echo": { "arguments": preset } } } } },
    });
    std::fs::write(home.path().join("mcp.json"), config.to_string()).unwrap();
    home
}

fn program(home: &Path, args: &[&str]) -> std::process::Command {
    let mut command = mcp_host(home, args);
    command.args(["--config", "mcp.json"]).env("CANARY", CANARY);
    command
}

/// Looks at everything through a client of the view.
fn look(mut client: Client) -> (i32, String) {
    let listed = client.ask("tools/list", &json!({}))["result"]["tools"].clone();
    let names: Vec<&Value> = listed.as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["code__echo"]);
    assert!(
        !listed.to_string().contains(CANARY) && listed[0]["inputSchema"]["properties"]["text"].is_null(),
        "{listed}"
    );
    let refusal = |client: &mut Client, tool: &str| {
        let id = client.call(tool, &json!({ "text": "x" }));
        client.answer(id)["error"].to_string().replace(tool, "TOOL")
    };
    let (outside, unknown) = (refusal(&mut client, "db__echo"), refusal(&mut client, "no__echo"));
    assert_eq!(outside, unknown);
    let id = client.call("code__echo", &json!({ "text": "mine" }));
    let refused = client.answer(id);
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    assert!(!refused.to_string().contains(CANARY), "{refused}");
    let id = client.call("code__echo", &json!({}));
    let echoed = client.answer(id);
    assert_eq!(echoed["result"]["content"][0]["text"], CANARY, "the server echoes what it got: {echoed}");
    assert!(!client.heard.iter().any(|message| message.to_string().contains(CANARY)));
    client.leave()
}

#[test]
fn a_view_of_the_program_is_the_same_with_a_daemon_and_without() {
    let place = place();
    let home = place.path();
    let stdio = ["stdio", "--view", "review", "-vv"];
    let (code, said) = look(Client::start(program(home, &[&stdio[..], &["--own"]].concat())).begun());
    assert_eq!(code, 0, "{said}");
    assert!(!said.contains(CANARY), "{said}");
    let serve = program(home, &["serve", "--listen", "127.0.0.1:0", "-vv"]);
    let mut daemon = Daemon::start(serve);
    daemon.hears("✓ code");
    let (code, said) = look(Client::start(program(home, &stdio)).begun());
    assert_eq!(code, 0, "{said}");
    assert!(!said.contains(CANARY), "{said}");
    let run = |args: &[&str]| {
        let output = program(home, args).output().unwrap();
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        (output.status.code().unwrap(), text)
    };
    let (code, listed) = run(&["tools", "--view", "review", "--json"]);
    assert!(code == 0 && listed.contains("code__echo") && !listed.contains("db__"), "{listed}");
    let (code, called) = run(&["call", "--view", "review", "code__echo", "--quiet"]);
    assert_eq!((code, called.trim()), (0, CANARY));
    let (code, refused) = run(&["call", "--view", "review", "db__echo", "text=x"]);
    assert_eq!(code, 2, "{refused}");
    let (code, unknown) = run(&["tools", "--view", "nowhere"]);
    assert_eq!(code, 2, "{unknown}");
    let (_, status) = run(&["status", "--json"]);
    let logged = daemon.end().join("\n");
    let audit = std::fs::read_to_string(home.join("audit.jsonl")).unwrap();
    assert!(audit.contains("\"echo\""), "{audit}");
    for text in [listed, refused, status, logged, audit] {
        assert!(!text.contains(CANARY), "{text}");
    }
}
