//! Rules from outside: `mcp-host policy`, and the recipes of the guide.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::path::Path;

use insta::assert_snapshot;
use mcp_host::config::{Case, Config, Syntax, Vars, parse_str};
use mcp_host::policy::{Decision, Trial};

use crate::reload::program::mcp_host;

const CONFIG: &str = r#"{ "mcpServers": { "db": { "command": "no-such-program", "tags": ["data"] }, "web": { "command": "no-such-program" } },
    "host": { "views": { "review": {} },
      "auth": { "type": "bearer", "clients": { "ci": "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae" } },
      "policy": { "rules": [
        { "name": "no-prod", "verdict": "deny", "tools": ["server:db"], "when": "has(args.database) && args.database.startsWith('prod')" },
        { "name": "writes", "verdict": "ask", "tools": ["hint:not-read-only"], "unless": { "clients": ["ci"] }, "remember": "15m" },
        { "name": "no-drop", "verdict": "deny", "tools": ["*drop*"] },
        { "name": "only-review", "verdict": "deny", "tools": ["tag:data"], "views": ["review"] } ] } } }"#;

/// Runs the program on the config and on a file of cases, in its own folder.
fn run(config: &str, files: &[(&str, &str)], args: &[&str]) -> String {
    let home = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        let path = home.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let config = put("mcp.json", config);
    for (name, text) in files {
        put(name, text);
    }
    let mut command = mcp_host(home.path(), args);
    let output = command.args(["--config", config.to_str().unwrap()]).current_dir(home.path()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().replace(home.path().to_str().unwrap(), "~");
    let (data, said) = (text(output.stdout), text(output.stderr));
    format!(
        "exit {}\n{data}{}",
        output.status.code().unwrap(),
        if said.is_empty() { said } else { format!("---\n{said}") }
    )
}

#[test]
fn cases_that_hold_are_counted() {
    let cases = "
- { tool: db__query, arguments: { database: prod-eu }, expect: deny, rule: no-prod }
- { tool: db__query, arguments: { database: dev }, principal: ci, expect: allow }
- { tool: db__query, arguments: { database: dev }, expect: ask, rule: writes }
- { tool: db__query, hints: { readOnlyHint: true }, expect: allow }
- { tool: db__drop_table, principal: ci, expect: deny, rule: no-drop }
- { tool: db__query, principal: ci, view: review, expect: deny, rule: only-review }
- { tool: web__get, principal: ci, view: review, expect: allow }
- { prompt: db__report, expect: allow }
";
    assert_snapshot!(run(CONFIG, &[("cases.yaml", cases)], &["policy", "test", "cases.yaml"]), @"");
}

#[test]
fn cases_that_miss_are_told_with_what_came() {
    let cases = r#"[
        { "tool": "db__query", "arguments": { "database": "prod-eu" }, "expect": "allow" },
        { "tool": "db__query", "title": "writes of ci", "principal": "ci", "expect": "ask", "rule": "writes" },
        { "tool": "db__query", "arguments": { "database": "prod-eu" }, "expect": "deny", "rule": "no-drop" },
        { "tool": "db__query", "arguments": { "Database": "prod-eu" }, "principal": "ci", "expect": "allow" },
        { "tool": "web__get", "principal": "ci", "expect": "allow" } ]"#;
    let files = [("cases.json", cases)];
    assert_snapshot!(run(CONFIG, &files, &["policy", "test", "cases.json"]), @"");
    assert_snapshot!(run(CONFIG, &files, &["policy", "test", "cases.json", "--json"]), @"");
}

#[test]
fn a_file_with_mistakes_is_no_test() {
    let cases = "[[cases]]\ntool = 'db__query'\nexpects = 'deny'\n";
    assert_snapshot!(run(CONFIG, &[("cases.toml", cases)], &["policy", "test", "cases.toml"]), @"");
    assert_snapshot!(run(CONFIG, &[("none.json", "[]")], &["policy", "test", "none.json"]), @"");
    assert_snapshot!(run(CONFIG, &[], &["policy", "test", "missing.json"]), @"");
}

#[test]
fn a_verdict_is_explained_rule_by_rule() {
    let unlisted = ["policy", "explain", "db__drop_table", "database=prod-eu"];
    let config = CONFIG.replace(r#""command": "no-such-program""#, r#""command": "no-such-program", "disabled": true"#);
    assert_snapshot!(run(&config, &[], &unlisted), @"");
    assert_snapshot!(run(&config, &[], &["policy", "explain", "web__get", "--as", "ci", "--view", "review", "--json"]), @"");
    assert_snapshot!(run(&config, &[], &["policy", "explain", "web__get", "--as", "nobody"]), @"");
    assert_snapshot!(run(&config, &[], &["policy", "explain", "web__get", "--view", "none"]), @"");
}

#[test]
fn rules_that_do_not_count_are_noted() {
    let config = CONFIG.replace(r#""policy": {"#, r#""policy": { "mode": "report","#);
    let cases = r#"[{ "tool": "db__drop_table", "expect": "deny" }]"#;
    assert_snapshot!(run(&config, &[("cases.json", cases)], &["policy", "test", "cases.json"]), @"");
    let none = r#"{ "mcpServers": { "db": { "command": "x" } } }"#;
    assert_snapshot!(run(none, &[("cases.json", cases)], &["policy", "test", "cases.json"]), @"");
}

/// The blocks of the guide in this language.
fn blocks(language: &str) -> Vec<String> {
    let guide = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/policy.md")).unwrap();
    let fence = format!("```{language}\n");
    guide.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

fn recipes() -> Vec<Config> {
    let read = |text: &String| {
        let config = parse_str(text, Syntax::Json, "docs/policy.md", &Vars::default());
        let config = config.unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(config.notes, [], "{text}");
        config
    };
    blocks("jsonc").iter().map(read).collect()
}

#[test]
fn the_recipes_of_the_guide_do_what_it_says() {
    let recipes = recipes();
    let [first, reads, laptop, asks, prod] = &*recipes else { panic!("{} recipes", recipes.len()) };
    let decision = |config: &Config, case: &Case| Trial::of(config, case).verdict.map(|verdict| verdict.decision);
    let with = |name: &str, arguments: serde_json::Value| {
        let mut case = Case::tool(name);
        case.arguments = Some(mcp_host::Raw::from_value(&arguments));
        case
    };
    let cases = first.cases(&blocks("yaml")[0], Syntax::Yaml, "docs/policy.md").unwrap();
    assert!(cases.len() == 2 && cases.iter().all(|case| decision(first, case).ok() == case.expect));
    assert!(reads.host.policy.rules.is_empty() && reads.host.views.contains_key("reads"));
    let mut case = Case::tool("db__query");
    assert_eq!(decision(laptop, &case), Ok(Decision::Allow));
    case.principal = mcp_host::config::Audience::Client("laptop".to_owned());
    assert_eq!(decision(laptop, &case), Ok(Decision::Deny));
    let mut case = Case::tool("files__write");
    assert_eq!(decision(asks, &case), Ok(Decision::Ask));
    case.hints.read_only_hint = Some(true);
    assert_eq!(decision(asks, &case), Ok(Decision::Allow));
    for (name, arguments, expected) in [
        ("db__query", serde_json::json!({ "database": "My-PROD" }), Decision::Deny),
        ("db__query", serde_json::json!({}), Decision::Allow),
        ("k8s__apply", serde_json::json!({ "context": "dev" }), Decision::Allow),
        ("k8s__apply", serde_json::json!({ "context": "prod" }), Decision::Deny),
        ("k8s__apply", serde_json::json!({}), Decision::Deny),
    ] {
        assert_eq!(decision(prod, &with(name, arguments.clone())), Ok(expected), "{name} {arguments}");
    }
}
