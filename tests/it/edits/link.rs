//! Clients that get this host as a server: what stands in their files, and that it works.

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::{Home, entry};
use crate::daemon::run;

const PROGRAM: &str = env!("CARGO_BIN_EXE_mcp-host");

fn home() -> Home {
    let home = Home::with(&json!({ "a": entry() }));
    home.write(".cursor/mcp.json", "{\n  \"mcpServers\": {} // none\n}\n");
    home.write(".codex/config.toml", "model = \"x\"\r\n");
    std::fs::create_dir_all(home.path().join(".junie")).unwrap();
    home
}

#[test]
fn each_client_starts_the_host_with_this_config() {
    let home = home();
    let (own, cursor, codex) = (home.text(), home.read(".cursor/mcp.json"), home.read(".codex/config.toml"));
    let said = home.run(&["link", "--all", "--yes"]);
    assert!(said.starts_with("exit 0\n"), "{said}");
    assert!(said.ends_with("linked 3 clients with ~/mcp-host/config.json; mcp-host undo 1\nstart again, so that they notice: Codex, Cursor, Junie"), "{said}");
    assert_snapshot!(home.read(".codex/config.toml").replace(PROGRAM, "PROGRAM").replace(home.path().to_str().unwrap(), "~").replace('\r', ""), @r#"
    model = "x"

    [mcp_servers.mcp-host]
    command = "PROGRAM"
    args = ["stdio", "--config", "~/mcp-host/config.json"]
    "#);
    assert!(home.read(".cursor/mcp.json").contains("} // none\n"));
    let config: Value = serde_json::from_str(&home.text()).unwrap();
    assert_eq!(config["host"], json!({ "join": "start" }));
    // It is there, and nothing is left to do.
    let again = home.must(&["link", "--all"]);
    assert!(again.contains("nothing to write") && again.contains("note: Junie is linked already"), "{again}");
    assert!(home.must(&["clients"]).contains("junie linked 0"));
    home.must(&["undo"]);
    assert_eq!((home.text(), home.read(".cursor/mcp.json"), home.read(".codex/config.toml")), (own, cursor, codex));
    assert!(!home.path().join(".junie/mcp/mcp.json").exists());
}

#[test]
fn what_link_writes_into_a_client_starts_this_host() {
    let home = home();
    home.must(&["link", "junie", "--yes"]);
    let text = home.read(".junie/mcp/mcp.json");
    let config: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(config["mcpServers"]["mcp-host"]["args"][0], "stdio");
    // The file of the client, served: its one server is a host with the server of our config.
    let said = run(home.path(), &["tools", "--config", ".junie/mcp/mcp.json"]);
    assert!(said.contains("a__echo"), "{said}");
}

#[test]
fn a_client_gets_the_address_of_a_daemon() {
    let home = home();
    home.must(&["link", "cursor", "codex", "junie", "--url", "--yes"]);
    assert!(home.read(".cursor/mcp.json").contains("\"url\": \"http://127.0.0.1:8808/mcp\""));
    assert!(home.read(".codex/config.toml").contains("url = \"http://127.0.0.1:8808/mcp\"\r\n"));
    assert!(home.read(".junie/mcp/mcp.json").contains("stdio"), "it only starts programs");
    // Another address takes the place of the first one.
    home.must(&["link", "cursor", "--url=http://127.0.0.1:9000/mcp/work", "--yes"]);
    let text = home.read(".cursor/mcp.json");
    assert!(text.contains("9000/mcp/work") && text.matches("mcp-host").count() == 1, "{text}");
    let said = home.run(&["link", "cursor", "--url=ftp://x", "--yes"]);
    assert!(said.starts_with("exit 2\nerror: `ftp://x` is no http or https URL"), "{said}");
}

#[test]
fn a_host_that_wants_tokens_makes_one_for_each_client() {
    use std::os::unix::fs::PermissionsExt as _;

    let home = home();
    let hash = format!("sha256:{}", "0".repeat(64));
    let auth = json!({ "type": "bearer", "clients": { "laptop": hash } });
    home.write(
        "mcp-host/config.json",
        &json!({ "mcpServers": { "a": entry() }, "host": { "auth": auth } }).to_string(),
    );
    let said = home.run(&["link", "cursor", "--url", "--yes"]);
    assert!(
        said.starts_with("exit 1\n") && said.contains("its entry would hold a token, and others may read"),
        "{said}"
    );
    let file = home.path().join(".cursor/mcp.json");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let said = home.must(&["link", "cursor", "--url", "--yes"]);
    let text = home.read(".cursor/mcp.json");
    let token = text.split("Bearer ").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    assert!(token.starts_with("mcph_") && !said.contains(token), "{said}");
    let config: Value = serde_json::from_str(&home.text()).unwrap();
    let clients = config["host"]["auth"]["clients"].as_object().unwrap();
    assert!(
        clients.contains_key("laptop") && clients["cursor"].as_str().unwrap().starts_with("sha256:"),
        "{clients:?}"
    );
    assert!(home.must(&["check"]).contains("config.json: ok"));
    // Its token stays.
    home.must(&["link", "cursor", "--url", "--yes"]);
    assert_eq!(home.read(".cursor/mcp.json"), text);
    // A work tree may be published.
    std::fs::create_dir(home.path().join(".codex/.git")).unwrap();
    let said = home.run(&["link", "codex", "--url", "--yes"]);
    assert!(said.contains("is in the git work tree"), "{said}");
    let said = home.must(&["export", "gemini", "--url"]);
    assert!(said.contains("Bearer TOKEN") && said.contains("mcp-host token gemini makes the TOKEN"), "{said}");
}

#[test]
fn what_link_would_write_is_printed() {
    let home = home();
    assert_snapshot!(home.run(&["export", "goose", "--url"]), @r#"
    exit 0
    extensions:
    mcp-host:
    enabled: true
    name: mcp-host
    type: streamable_http
    uri: "http://127.0.0.1:8808/mcp"
    timeout: 300
    it belongs into ~/goose/config.yaml
    "#);
    assert_snapshot!(home.run(&["export", "copilot"]), @r#"
    exit 0
    {
    "mcpServers": {
    "mcp-host": {
    "type": "local",
    "command": "PROGRAM",
    "args": ["stdio", "--config", "~/mcp-host/config.json"],
    "env": {
    "HOME": "~"
    },
    "tools": ["*"]
    }
    }
    }
    it belongs into ~/.copilot/mcp-config.json
    "#);
    assert_eq!(home.text(), format!("{:#}\n", json!({ "mcpServers": { "a": entry() } })));
}

#[test]
fn an_entry_of_that_name_that_is_something_else_stays() {
    let home = home();
    let text = "{ \"mcpServers\": { \"mcp-host\": { \"command\": \"cat\" } } }\n";
    home.write(".cursor/mcp.json", text);
    let said = home.run(&["link", "cursor", "codex", "--yes"]);
    assert!(
        said.starts_with("exit 1\n") && said.contains("warning: Cursor: a server is called `mcp-host` already"),
        "{said}"
    );
    assert_eq!(home.read(".cursor/mcp.json"), text);
    assert!(home.read(".codex/config.toml").contains("mcp-host"));
    home.must(&["unlink", "--all", "--yes"]);
    assert_eq!(home.read(".cursor/mcp.json"), text);
    assert!(!home.read(".codex/config.toml").contains("mcp-host"));
}

#[test]
fn without_a_config_there_is_nothing_to_link() {
    let home = Home::new();
    home.write(".cursor/mcp.json", "{}");
    let said = home.run(&["link", "cursor", "--yes"]);
    assert!(said.starts_with("exit 2\nerror: there is no config yet that clients could be linked with"), "{said}");
}
