//! Other clients on the machine: which are here, and servers that are taken over from their files.

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::{Home, entry};
use crate::daemon::run;

const CODEX: &str =
    "model = \"x\"\n\n[mcp_servers.files]\ncommand = \"cat\"\nargs = [\"/srv\"]\nstartup_timeout_sec = 90\n";

/// A home with four clients: one broken, one without servers.
fn home() -> Home {
    let home = Home::new();
    home.write(".codex/config.toml", CODEX);
    let cursor = json!({ "mcpServers": {
        "files": { "command": "cat", "args": ["/tmp"] },
        "again": { "command": "cat", "args": ["/srv"] },
        "notes": { "command": "npx", "args": ["-y", "mcp-remote", "https://notes.example/mcp", "--header", "Authorization:${AUTH}"], "env": { "AUTH": "Bearer planted" } },
        "github": { "url": "https://github.example/mcp", "headers": { "X-Key": "${env:GITHUB_KEY}" } },
    } });
    home.write(".cursor/mcp.json", &format!("{cursor:#}\n"));
    home.write(".codeium/windsurf/mcp_config.json", "{ \"mcpServers\": ");
    home.write("goose/config.yaml", "GOOSE_MODEL: x\n");
    home
}

#[test]
fn the_clients_on_the_machine_are_listed() {
    let home = home();
    home.write(".vscode/mcp.json", "{}");
    assert_snapshot!(home.run(&["clients"]), @"
    exit 0
    CLIENT STATE SERVERS FILE
    codex not linked 1 ~/.codex/config.toml
    cursor not linked 4 ~/.cursor/mcp.json
    windsurf broken - ~/.codeium/windsurf/mcp_config.json
    goose not linked 0 ~/goose/config.yaml
    `files` is started by Codex, Cursor
    warning: Windsurf: ~/.codeium/windsurf/mcp_config.json:1:17: not valid JSON: Expected value after colon in object property
    mcp-host migrate --all moves them here and starts each once
    ");
    let told: Value = serde_json::from_str(run(home.path(), &["clients", "--json"]).lines().nth(1).unwrap()).unwrap();
    assert_eq!(told["twice"], json!([{ "server": "files", "by": ["Codex", "Cursor"] }]));
    assert_eq!((&told["clients"][1]["mostTools"], &told["clients"][1]["servers"]), (&json!(40), &json!(4)));
    assert_snapshot!(Home::new().run(&["clients"]), @"
    exit 0
    none of the clients that are known here is on this machine
    ");
}

#[test]
fn servers_are_taken_over_with_their_references() {
    let home = home();
    let said = home.run(&["import", "--all"]);
    assert!(said.starts_with("exit 6\n") && !home.own().exists(), "{said}");
    assert!(
        said.ends_with(
            "error: nothing was written: there is no terminal to ask on\nhelp: mcp-host import … --yes writes it"
        ),
        "{said}"
    );
    assert!(!said.contains("planted"), "{said}");
    assert!(home.run(&["import", "--all", "--dry-run"]).starts_with("exit 1\n") && !home.own().exists());
    let said = home.run(&["import", "codex", "cursor", "windsurf", "--yes"]);
    let tail = &said[said.find("4 servers added").unwrap()..];
    assert_snapshot!(tail, @"
    4 servers added to ~/mcp-host/config.json; mcp-host undo 1
    warning: Windsurf: ~/.codeium/windsurf/mcp_config.json:1:17: not valid JSON: Expected value after colon in object property
    note: `again` of Cursor is the same server as `files`
    note: `files` of Cursor is called `files-cursor` here: another server has that name
    ");
    assert_snapshot!(home.text(), @r#"
    {
      "mcpServers": {
        "files": {
          "command": "cat",
          "args": ["/srv"],
          "startTimeout": "90s"
        },
        "files-cursor": {
          "command": "cat",
          "args": ["/tmp"]
        },
        "github": {
          "url": "https://github.example/mcp",
          "headers": {
            "X-Key": "${env:GITHUB_KEY}"
          }
        },
        "notes": {
          "url": "https://notes.example/mcp",
          "headers": {
            "Authorization": "Bearer planted"
          }
        }
      }
    }
    "#);
    use std::os::unix::fs::PermissionsExt as _;
    assert_eq!(std::fs::metadata(home.own()).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(home.read(".codex/config.toml"), CODEX, "the clients' files stay as they are");
    // What is there is not taken over again.
    let again = home.must(&["import", "codex", "cursor"]);
    assert!(
        again.contains("nothing to write") && again.contains("`files` of Cursor is the same server as `files-cursor`"),
        "{again}"
    );
    home.must(&["undo"]);
    assert!(!home.own().exists());
}

#[test]
fn approvals_and_tokens_are_not_taken_over() {
    let home = Home::new();
    let cline = json!({ "mcpServers": { "a": { "type": "streamableHttp", "url": "https://a.example/mcp", "autoApprove": ["t"],
        "oauth": { "tokens": { "access_token": "planted-token" } } } } });
    home.write(".cline/mcp.json", &cline.to_string());
    let said = home.must(&["import", "cline-cli", "--yes"]);
    assert!(said.contains("note: `a` of Cline CLI: not taken over: autoApprove, oauth"), "{said}");
    assert!(!home.text().contains("planted-token") && !home.text().contains("autoApprove"));
}

#[test]
fn what_cannot_be_taken_over_is_named_and_the_rest_is() {
    let home = Home::with(&json!({ "a": entry() }));
    home.write(
        ".codex/config.toml",
        "[mcp_servers.a]\ncommand = \"cat\"\n[mcp_servers.a-codex]\ncommand = \"cat\"\nargs = [\"${HOME}\"]\n[mcp_servers.off]\ncommand = \"cat\"\nargs = [\"-n\"]\nenabled = false\n",
    );
    let said = home.run(&["import", "codex", "--yes"]);
    assert!(said.starts_with("exit 1\n"), "{said}");
    assert!(
        said.contains("warning: Codex: `a-codex`: args[0]: `${` is plain text there, and would be a variable here"),
        "{said}"
    );
    let config: Value = serde_json::from_str(&home.text()).unwrap();
    assert_eq!(config["mcpServers"]["a-codex"], json!({ "command": "cat" }));
    assert_eq!(config["mcpServers"]["off"]["disabled"], json!(true));
    let told = run(home.path(), &["import", "codex", "--json"]);
    let told: Value = serde_json::from_str(told.lines().nth(1).unwrap()).unwrap();
    assert_eq!(told["edit"], Value::Null);
    assert_eq!(told["refused"][0]["server"], "a-codex");
}

#[test]
fn a_server_that_one_client_uses_is_used() {
    let home = Home::new();
    home.write(".codex/config.toml", "[mcp_servers.off]\ncommand = \"cat\"\nenabled = false\n");
    home.write(".cursor/mcp.json", &json!({ "mcpServers": { "on": { "command": "cat" } } }).to_string());
    home.must(&["import", "codex", "cursor", "--yes"]);
    let config: Value = serde_json::from_str(&home.text()).unwrap();
    assert_eq!(config["mcpServers"], json!({ "on": { "command": "cat" } }));
}

#[test]
fn a_client_that_is_unknown_or_not_here_is_named() {
    let home = Home::new();
    assert_snapshot!(home.run(&["import", "cursr"]), @"
    exit 2
    error: no client is called `cursr`
    help: did you mean `cursor`?
    ");
    assert_snapshot!(home.run(&["import", "cursor", "--yes"]), @"
    exit 1
    warning: Cursor: is not here: there is neither ~/.cursor/mcp.json nor ~/.cursor
    nothing to write
    ");
    assert!(home.run(&["import"]).starts_with("exit 2\n"));
    let said = home.run(&["import", "cursor", "--project", "."]);
    assert!(
        said.starts_with("exit 2\nerror: clients are linked with your own config, not with that of a project"),
        "{said}"
    );
}
