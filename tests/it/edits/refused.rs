//! What is not written, and what the user is told instead.

use insta::assert_snapshot;
use serde_json::json;

use super::Home;
use crate::reload::program::mcp_host;

#[test]
fn what_cannot_be_proven_is_not_written() {
    let home = Home::new();
    let text = "mcpServers:\n  a: &a\n    command: cat\n  b: *a\n";
    home.write("mcp.yaml", text);
    assert_snapshot!(home.run(&["disable", "a", "--config", "mcp.yaml"]), @"
    exit 1
    error: mcp.yaml: `a` cannot be edited here without changing something else
    help: edit it by hand; this is what is meant:
    help: disabled: true
    ");
    assert_eq!(home.read("mcp.yaml"), text);
    assert!(home.run(&["undo"]).starts_with("exit 2\nerror: there is no edit to take back"));
}

#[test]
fn an_edit_does_not_break_a_config_that_can_be_read() {
    let home = Home::new();
    // A URL without https is a mistake of this entry alone; `startTimeout` in a bare number is one of the file.
    let text = "{ \"mcpServers\": { \"a\": { \"command\": \"cat\", \"startTimeout\": 5 } } }\n";
    home.write("mcp-host/config.json", text);
    let said = home.run(&["disable", "a"]);
    assert!(said.starts_with("exit 0"), "it was not read before either: {said}");
    assert_eq!(home.run(&["get", "a"]).lines().next(), Some("exit 0"));
    home.must(&["remove", "a"]);
    assert!(home.must(&["check"]).contains("ok"));
}

#[test]
fn a_secret_is_not_written_in_plain_text_unless_the_user_says_so() {
    let home = Home::new();
    let words = ["add", "a", "--no-check", "-e", "API_TOKEN=correct-horse-battery", "--", "cat"];
    let said = home.run(&words);
    assert!(said.starts_with("exit 2\nerror: the value of API_TOKEN looks like a secret"), "{said}");
    assert!(!said.contains("correct-horse"), "{said}");
    assert!(!home.own().exists());
    let said = home.run(&["add", "a", "--secret", "API_TOKEN", "--no-check", "--", "cat"]);
    assert!(said.starts_with("exit 2\nerror: there is no terminal to ask for the value of API_TOKEN on"), "{said}");
    assert!(said.ends_with("and give ${keyring:a/API_TOKEN}"), "{said}");
    let said = home.must(&[&words[..2], &["--plain"], &words[2..]].concat());
    assert!(!said.contains("correct-horse"), "{said}");
    assert!(home.text().contains("correct-horse-battery"));
    let said = home.must(&["get", "a"]);
    assert!(said.contains("env.API_TOKEN: ***"), "{said}");
}

#[test]
fn no_server_edits_a_config() {
    let home = Home::with(&json!({ "a": { "command": "cat" } }));
    for words in [
        &["remove", "a"][..],
        &["add", "b", "--no-check", "--", "cat"],
        &["undo"],
        &["link", "cursor", "--yes"],
        &["import", "cursor", "--yes"],
        &["migrate", "cursor", "--yes"],
    ] {
        let output = mcp_host(home.path(), words).env("_MCP_HOST_CHAIN", CHAIN).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(6), "{words:?}: {said}");
        assert!(said.contains("no server may edit a config"), "{said}");
    }
}

/// The mark of a host above.
const CHAIN: &str = "00112233445566778899aabbccddeeff";

#[test]
fn a_command_without_dashes_is_told_where_it_belongs() {
    let home = Home::new();
    assert_snapshot!(home.run(&["add", "files", "npx", "-y", "@a/files"]), @"
    exit 2
    error: `-y` is no option of `add`; the command of a server stands behind `--`
    help: mcp-host add files -- npx -y @a/files
    ");
    assert_snapshot!(home.run(&["add", "files", "npx"]), @"
    exit 2
    error: `npx` is no URL, and a command stands behind `--`
    help: mcp-host add files -- npx
    ");
    assert_snapshot!(home.run(&["add", "files"]), @"
    exit 2
    error: the following required arguments were not provided: <URL>
    help: mcp-host add [OPTIONS] <NAME> (<URL> | -- <COMMAND>...)
    ");
    assert_snapshot!(home.run(&["add", "a", "-H", "hunter2", "https://a.example/mcp"]), @"
    exit 2
    error: one word has no key and no `:`
    help: write a header as 'KEY: VALUE': -H 'X-Team: core'
    ");
    assert_snapshot!(home.run(&["disable", "a", "--user"]), @"
    exit 2
    error: no config found; looked for ~/mcp-host/config.json
    help: mcp-host serve --demo needs none; else name one with --config FILE, any MCP client's will do
    ");
}
