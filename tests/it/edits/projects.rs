//! Which config an edit is about, and what it means for the approval of a project.

use serde_json::json;

use super::{Home, demo, entry};

fn project() -> Home {
    let home = Home::with(&json!({ "own": { "command": "cat" } }));
    home.write("mcp-host.json", &json!({ "mcpServers": { "a": entry(), "b": entry() } }).to_string());
    home
}

#[test]
fn where_two_configs_could_be_meant_the_user_says_which() {
    let home = project();
    for words in [&["remove", "a"][..], &["add", "x", "--no-check", "--", "cat"]] {
        let said = home.run(words);
        assert!(said.starts_with("exit 2\nerror: which config is meant: mcp-host.json of this directory"), "{said}");
        assert!(said.ends_with("--project for the one of this directory, --user for your own"), "{said}");
    }
    let (own, shared) = (home.text(), home.read("mcp-host.json"));
    home.must(&["remove", "own", "--user"]);
    assert!(home.text() != own && home.read("mcp-host.json") == shared);
    home.must(&["remove", "a", "--project"]);
    assert!(home.read("mcp-host.json") != shared);
    assert!(home.must(&["get", "--project", "b"]).contains("~/mcp-host.json:1"));
    assert!(home.must(&["list", "--user"]).starts_with("exit 0\nno servers"));
}

#[test]
fn a_project_is_begun_with_its_first_server() {
    let home = Home::new();
    std::fs::create_dir(home.path().join("shop")).unwrap();
    home.must(&["add", "a", "--project=shop", "--no-check", "--", "cat"]);
    assert!(home.read("shop/mcp-host.json").contains("\"command\": \"cat\""));
    assert!(!home.own().exists());
}

#[test]
fn h93_what_was_approved_stays_approved_after_our_own_edits() {
    let home = project();
    home.must(&["approve", "a", "--yes"]);
    let works = |name: &str, exit: u8| {
        let said = home.run(&["tools", name]);
        assert!(said.starts_with(&format!("exit {exit}")), "{name}: {said}");
    };
    works("a", 0);
    works("b", 6);
    home.must(&["disable", "--project", "a"]);
    home.must(&["enable", "--project", "a"]);
    works("a", 0);
    home.must(&["disable", "--project", "a"]);
    home.must(&["undo"]);
    works("a", 0);
    home.must(&["rename", "--project", "a", "c"]);
    works("c", 0);
    home.must(&["undo"]);
    works("a", 0);
    home.must(&["remove", "--project", "a"]);
    home.must(&["undo"]);
    works("a", 0);
    // What nobody approved waits, whatever is done with it.
    home.must(&["rename", "--project", "b", "d"]);
    works("d", 6);
    home.must(&["undo"]);
    works("b", 6);
    // What the user types, the user approves.
    home.must(&demo("e", &["--project"]));
    works("e", 0);
    works("b", 6);
}

#[test]
fn of_several_files_the_one_with_the_server_is_edited() {
    let home = Home::new();
    home.write("one.json", r#"{ "mcpServers": { "a": { "command": "cat" } } }"#);
    home.write("two.toml", "[mcpServers.b]\ncommand = \"cat\"\n");
    let both = ["--config", "one.json", "--config", "two.toml"];
    home.must(&[&["disable", "b"][..], &both].concat());
    assert_eq!(home.read("two.toml"), "[mcpServers.b]\ncommand = \"cat\"\ndisabled = true\n");
    let said = home.run(&[&["disable", "nothing"][..], &both].concat());
    assert_eq!(said, "exit 2\nerror: no server is called `nothing`\nhelp: the config has: a, b");
    let said = home.run(&[&["add", "c", "--no-check"][..], &both, &["--", "cat"]].concat());
    assert!(said.starts_with("exit 2\nerror: several configs are named"), "{said}");
}
