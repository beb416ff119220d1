//! Entries of each client in our format: their meaning stays, references stay references, tokens and approvals are
//! removed.

use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::config::Transport;

fn found(text: &str, file: &str) -> Vec<Candidate> {
    candidates(text, &PathBuf::from("/home/ada").join(file), None).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Returns the one entry of a file as JSON.
fn one(text: &str, file: &str) -> String {
    let found = found(text, file);
    let [candidate] = &found[..] else { panic!("{found:?}") };
    let mut out = String::new();
    written(candidate.entry.as_ref().unwrap().node(), false, &mut out);
    out
}

fn json(entry: &str, file: &str) -> String {
    one(&format!("{{ \"mcpServers\": {{ \"a\": {entry} }} }}"), file)
}

#[test]
fn an_entry_of_each_client_is_in_our_words() {
    for (file, text, wanted) in [
        (
            ".codex/config.toml",
            "[mcp_servers.a]\ncommand = \"x\"\nenv_vars = [\"K\"]\nstartup_timeout_sec = 20\ntool_timeout_sec = 1.5\nenabled_tools = [\"t\"]\n",
            r#"{"command": "x", "inheritEnv": ["K"], "includeTools": ["t"], "startTimeout": "20s", "callTimeout": "1500ms"}"#,
        ),
        (
            ".codex/config.toml",
            "[mcp_servers.a]\nurl = \"https://a.example/mcp\"\nbearer_token_env_var = \"T\"\nhttp_headers = { X = \"1\" }\nenv_http_headers = { Y = \"V\" }\n",
            r#"{"type": "http", "url": "https://a.example/mcp", "headers": {"Authorization": "Bearer ${T}", "X": "1", "Y": "${V}"}}"#,
        ),
        (
            ".config/opencode/opencode.json",
            r#"{ "mcp": { "a": { "type": "local", "command": ["x", "{env:K}"], "environment": { "F": "{file:./key.txt}" }, "enabled": false, "timeout": 9000 } } }"#,
            r#"{"command": "x", "args": ["${env:K}"], "env": {"F": "${file:/home/ada/.config/opencode/key.txt}"}, "startTimeout": "9s", "disabled": true}"#,
        ),
        (
            ".config/goose/config.yaml",
            "extensions:\n  developer: { type: builtin, enabled: true }\n  a:\n    enabled: true\n    type: streamable_http\n    uri: https://a.example/mcp\n    headers: { X: \"$R ${S}\" }\n    envs: { R: eu }\n    env_keys: [S]\n    timeout: 300\n",
            r#"{"type": "http", "url": "https://a.example/mcp", "headers": {"X": "eu ${S}"}, "callTimeout": "300s"}"#,
        ),
        (
            ".continue/config.yaml",
            "mcpServers:\n  - name: a\n    command: x\n    env: { K: \"${{ secrets.K }}\", Z: \"${{ inputs.z }}\" }\n    connectionTimeout: 90000\n",
            r#"{"command": "x", "env": {"K": "${env:K}", "Z": "${input:z}"}, "startTimeout": "90s"}"#,
        ),
        (
            ".gemini/settings.json",
            r#"{ "theme": "dark", "mcpServers": { "a": { "httpUrl": "http://$H:8080/mcp", "headers": { "X": "${K}" }, "timeout": 5000, "trust": true } } }"#,
            r#"{"type": "http", "url": "http://${H}:8080/mcp", "headers": {"X": "${K}"}, "callTimeout": "5s"}"#,
        ),
        (
            ".config/zed/settings.json",
            r#"{ "context_server_timeout": 45, "context_servers": { "a": { "command": { "path": "x", "args": ["y"] } }, } }"#,
            r#"{"command": "x", "args": ["y"], "callTimeout": "45s"}"#,
        ),
        (
            ".config/Code/User/mcp.json",
            r#"{ "servers": { "a": { "type": "stdio", "command": "x", "cwd": "sub", "envFile": "${workspaceFolder}/.env", "env": { "N": 1, "U": null } } } }"#,
            r#"{"command": "x", "env": {"N": "1"}, "envFile": "${workspaceFolder}/.env", "cwd": "/home/ada/.config/Code/User/sub"}"#,
        ),
    ] {
        assert_eq!(one(text, file), wanted, "{file}");
    }
}

#[test]
fn approvals_and_tokens_stay_where_they_are() {
    let text = r#"{ "mcpServers": { "a": { "type": "streamableHttp", "url": "https://a.example/mcp", "autoApprove": ["t"], "alwaysAllow": [],
        "oauth": { "tokens": { "access_token": "planted" } } } } }"#;
    let found = found(text, "cline_mcp_settings.json");
    assert_eq!(found[0].left, ["autoApprove", "oauth"]);
    let entry = found[0].entry.as_ref().unwrap();
    assert_eq!(entry.shown(), [r#"type: "http""#, r#"url: "https://a.example/mcp""#]);
    assert!(!format!("{found:?}").contains("planted"));
}

#[test]
fn a_bridge_becomes_the_url_that_it_leads_to() {
    let text = r#"{ "command": "npx", "args": ["-y", "mcp-remote", "https://a.example/sse", "--header", "X:${K}"], "env": { "K": "v" } }"#;
    assert_eq!(json(text, "mcp.json"), r#"{"url": "https://a.example/sse", "headers": {"X": "v"}}"#);
}

#[test]
fn what_means_something_else_here_is_not_taken() {
    let entry = |text: &str, file: &str| found(text, file).remove(0).entry.unwrap_err();
    let codex = "[mcp_servers.a]\ncommand = \"x\"\nargs = [\"${HOME}\"]\n";
    assert_eq!(entry(codex, ".codex/config.toml"), "args[0]: `${` is plain text there, and would be a variable here");
    let crush = r#"{ "mcp": { "a": { "type": "stdio", "command": "$(which x)" } } }"#;
    assert!(entry(crush, ".config/crush/crush.json").contains("would run a command"));
    assert_eq!(
        entry(r#"{ "mcpServers": { "a": { "args": [] } } }"#, "mcp.json"),
        "neither `command` nor `url` is given"
    );
    assert!(candidates("{", "/home/ada/mcp.json".as_ref(), None).is_err());
}

#[test]
fn settings_that_look_like_servers_are_none() {
    let zed = r#"{ "terminal": { "command": "zsh" }, "agent": { "type": "x" } }"#;
    assert_eq!(found(zed, ".config/zed/settings.json"), []);
    assert_eq!(found("", ".cursor/mcp.json"), []);
    assert_eq!(found("# mine\n", ".codex/config.toml"), []);
    assert_eq!(found(r#"{ "mcp": {} }"#, ".config/opencode/opencode.json"), []);
    let claude = r#"{ "mcpServers": { "a": { "command": "x" } }, "projects": { "/home/ada": { "mcpServers": { "b": { "command": "y" } } } } }"#;
    assert_eq!(found(claude, ".claude.json").len(), 1, "a project's servers are the project's");
}

#[test]
fn what_was_taken_is_read_as_it_was_meant() {
    let text = r#"{ "mcpServers": { "a": { "url": "https://a.example/mcp", "headers": { "X": "${K:-d}" }, "oauth": { "clientId": "me", "scopes": "r w" },
        "sharing": "session", "idleStop": "5m", "tools": { "t*": { "title": "x" } }, "disabled": true } } }"#;
    let entry = found(text, ".claude.json").remove(0).entry.unwrap();
    let request =
        LoadRequest { files: vec!["/home/ada/.config/mcp-host/config.toml".into()], ..LoadRequest::default() };
    let server = entry.server("a", &request).unwrap();
    let theirs = crate::config::parse_str(text, Syntax::Json, "/home/ada/.claude.json", &Vars::default()).unwrap();
    assert!(server.same_as(&theirs.servers[0]), "{server:?}\n{:?}", theirs.servers[0]);
    assert!(matches!(&server.transport, Transport::Auto(remote) if remote.headers[0].1.expose() == "d"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_text_with_references_is_taken_or_refused(text in r#"[a-zA-Z :./$(){}%-]{0,24}"#, kind in 0..6_usize) {
        let (file, entry) = [
            (".cursor/mcp.json", "{ \"mcpServers\": { \"a\": { \"command\": TEXT, \"cwd\": TEXT } } }"),
            (".gemini/settings.json", "{ \"mcpServers\": { \"a\": { \"httpUrl\": TEXT, \"headers\": { \"X\": TEXT } } } }"),
            (".config/opencode/opencode.json", "{ \"mcp\": { \"a\": { \"type\": \"local\", \"command\": [TEXT] } } }"),
            (".codex/config.toml", "mcp_servers.a.command = \"x\"\nmcp_servers.a.args = [TEXT]\n"),
            (".config/goose/config.yaml", "extensions: { a: { type: streamable_http, uri: TEXT, headers: { X: TEXT } } }\n"),
            (".continue/config.yaml", "mcpServers: [{ name: a, command: x, args: [TEXT] }]\n"),
        ][kind];
        let quoted = serde_json::to_string(&text).unwrap();
        for candidate in found(&entry.replace("TEXT", &quoted), file) {
            // A converted entry can be read, whatever its variables are.
            if let Ok(entry) = candidate.entry {
                let request = LoadRequest { files: vec!["/home/ada/mcp-host.json".into()], ..LoadRequest::default() };
                prop_assert!(entry.server("a", &request).is_ok(), "{:?}", entry.shown());
            }
        }
    }
}
