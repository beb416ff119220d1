//! `check --connect` names what is odd about tools: browsers that all clients of one process share, and invalid schemas.

use insta::assert_snapshot;
use serde_json::json;

use crate::reload::program::mcp_host;

/// A browser as a shell server: `$0` holds the definitions of its tools.
const SERVER: &str = r#"
reply() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; };
while read -r line; do
  id=$(printf %s "$line" | sed -n 's/^{"jsonrpc":"2.0","id":\([0-9]*\),.*/\1/p')
  case $line in
    *'"initialize"'*) reply '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"tools/list"'*) reply "{\"tools\":[$0]}" ;;
  esac
done"#;

fn tools(names: &[&str]) -> String {
    let tools = names.iter().map(|name| json!({ "name": name, "inputSchema": { "type": "object" } }).to_string());
    tools.collect::<Vec<_>>().join(",")
}

#[test]
fn check_names_browsers_that_clients_share() {
    let home = tempfile::tempdir().unwrap();
    let browser = tools(&["browser_click", "browser_close", "browser_type", "wait"]);
    let entry = |args: &[&str], sharing: &str| {
        let args: Vec<&str> = ["-c", SERVER].iter().chain(args).copied().collect();
        json!({ "command": "sh", "args": args, "sharing": sharing })
    };
    let config = json!({ "mcpServers": {
        "pages": entry(&[&browser], "auto"),
        "apart": entry(&[&browser, "--isolated"], "auto"),
        "own": entry(&[&browser], "session"),
        "notes": entry(&[&tools(&["read_browser", "write"])], "auto"),
    } });
    std::fs::write(home.path().join("mcp.json"), config.to_string()).unwrap();
    let run = |args: &[&str]| {
        let output = mcp_host(home.path(), args).env("PATH", std::env::var_os("PATH").unwrap()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert_snapshot!(run(&["check", "--connect", "--config", "mcp.json"]), @r#"
    help: clients share the browser of `apart` (`browser_click` and 2 more); `"sharing": "session"` gives each its own
    help: clients share the browser of `pages` (`browser_click` and 2 more); `"sharing": "session"` gives each its own, with `--isolated` in its `args` if it is to keep their profiles apart
    "#);
    assert_eq!(run(&["check", "--connect", "--config", "mcp.json", "--json"]), "");
}

#[cfg(feature = "schemas")]
#[test]
fn check_notes_schemas_that_are_not_valid() {
    let home = tempfile::tempdir().unwrap();
    let definitions = [
        json!({ "name": "good", "inputSchema": { "type": "object", "properties": { "a": { "pattern": "^a$" } } } }),
        json!({ "name": "count", "inputSchema": { "type": "object", "minProperties": "two" } }),
        json!({
            "name": "both",
            "inputSchema": { "type": "object", "properties": { "a": { "pattern": "(" } } },
            "outputSchema": { "type": "object", "properties": { "b": { "$ref": "http://127.0.0.1:9/b.json" } } },
        }),
    ];
    let list = definitions.map(|definition| definition.to_string()).join(",");
    let config = json!({ "mcpServers": {
        "fine": { "command": "sh", "args": ["-c", SERVER, tools(&["read"])] },
        "My Server": { "command": "sh", "args": ["-c", SERVER, list] },
    } });
    std::fs::write(home.path().join("mcp.json"), config.to_string()).unwrap();
    let run = |args: &[&str]| {
        let output = mcp_host(home.path(), args).env("PATH", std::env::var_os("PATH").unwrap()).output().unwrap();
        assert!(output.status.success(), "it is no failure: {output:?}");
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert!(stdout.contains("connected") && stdout.contains("My Server"), "{stdout}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert_snapshot!(run(&["check", "--connect", "--config", "mcp.json"]), @r#"
    note: server `My Server`, tool `count`: its `inputSchema` is not a valid JSON Schema at "/minProperties"
    note: server `My Server`, tool `both`: its `inputSchema` has a `pattern` that is not a plain regular expression
    note: server `My Server`, tool `both`: its `outputSchema` has a `$ref` to something that is not in it
    "#);
    assert_eq!(run(&["check", "--connect", "--config", "mcp.json", "--json"]), "");
}
