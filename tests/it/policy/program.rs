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
    assert_snapshot!(run(CONFIG, &[("cases.yaml", cases)], &["policy", "test", "cases.yaml"]), @"
    exit 0
    8 of 8 cases as expected
    ");
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
    assert_snapshot!(run(CONFIG, &files, &["policy", "test", "cases.json"]), @r#"
    exit 1
    cases.json:2: db__query: expected allow, found deny by the rule no-prod
    cases.json:3: writes of ci: expected ask by the rule writes, found allow: no rule denies or asks
    cases.json:4: db__query: expected deny by the rule no-drop, found deny by the rule no-prod
    cases.json:5: db__query: expected allow, found the arguments are refused: /Database: the argument is called "database"
    1 of 5 cases as expected
    "#);
    assert_snapshot!(run(CONFIG, &files, &["policy", "test", "cases.json", "--json"]), @r#"
    exit 1
    {"cases":5,"missed":[{"file":"cases.json","line":2,"case":"db__query","expected":"allow","found":"deny by the rule no-prod","rule":"no-prod"},{"file":"cases.json","line":3,"case":"writes of ci","expected":"ask by the rule writes","found":"allow: no rule denies or asks","rule":null},{"file":"cases.json","line":4,"case":"db__query","expected":"deny by the rule no-drop","found":"deny by the rule no-prod","rule":"no-prod"},{"file":"cases.json","line":5,"case":"db__query","expected":"allow","found":"the arguments are refused: /Database: the argument is called \"database\"","rule":null}]}
    "#);
}

#[test]
fn a_file_with_mistakes_is_no_test() {
    let cases = "[[cases]]\ntool = 'db__query'\nexpects = 'deny'\n";
    assert_snapshot!(run(CONFIG, &[("cases.toml", cases)], &["policy", "test", "cases.toml"]), @"
    exit 2
    ---
    error: cases.toml:1: cases[0]: a case needs `expect`
    help: add `expect`: allow, ask, or deny
    error: cases.toml:3: cases[0].expects: unknown key
    help: did you mean `expect`?
    ");
    assert_snapshot!(run(CONFIG, &[("none.json", "[]")], &["policy", "test", "none.json"]), @r#"
    exit 2
    ---
    error: none.json: there is no case
    help: write a list: [ { "tool": "db__query", "expect": "deny" } ]
    "#);
    assert_snapshot!(run(CONFIG, &[], &["policy", "test", "missing.json"]), @"
    exit 2
    ---
    error: missing.json: No such file or directory (os error 2)
    ");
}

#[test]
fn a_verdict_is_explained_rule_by_rule() {
    let unlisted = ["policy", "explain", "db__drop_table", "database=prod-eu"];
    let config = CONFIG.replace(r#""command": "no-such-program""#, r#""command": "no-such-program", "disabled": true"#);
    assert_snapshot!(run(&config, &[], &unlisted), @"
    exit 0
    db__drop_table: deny by the rule no-drop; clients are not shown it
      no-prod      deny   matches
      writes       ask    matches
      no-drop      deny   matches
      only-review  deny   does not match: it is for other clients, or another view
    ---
    note: no server lists `db__drop_table`; it is judged by its name alone
    ");
    assert_snapshot!(run(&config, &[], &["policy", "explain", "web__get", "--as", "ci", "--view", "review", "--json"]), @r#"
    exit 0
    {"tool":"web__get","verdict":"allow","rule":null,"refused":null,"hidden":false,"rules":[{"name":"no-prod","verdict":"deny","matches":false,"why":"it is for something else"},{"name":"writes","verdict":"ask","matches":false,"why":"`unless` excepts it"},{"name":"no-drop","verdict":"deny","matches":false,"why":"it is for something else"},{"name":"only-review","verdict":"deny","matches":false,"why":"it is for something else"}]}
    ---
    note: no server lists `web__get`; it is judged by its name alone
    "#);
    assert_snapshot!(run(&config, &[], &["policy", "explain", "web__get", "--as", "nobody"]), @"
    exit 2
    ---
    error: there is no client `nobody`
    help: the clients are ci
    ");
    assert_snapshot!(run(&config, &[], &["policy", "explain", "web__get", "--view", "none"]), @r#"
    exit 2
    ---
    error: command line: host.view: there is no view "none"
    help: the views are all, review; others are defined in `host.views`
    "#);
}

/// What a server says of its tool counts, although its rules hide the tool and its view leaves it out.
#[test]
fn a_listed_tool_is_judged_by_what_its_server_says() {
    let config = |rule: &str| {
        let program = env!("CARGO_BIN_EXE_mcp-host");
        format!(
            r#"{{ "mcpServers": {{ "demo": {{ "command": {program:?}, "args": ["__demo-server"] }} }},
                "host": {{ "view": "none", "views": {{ "none": {{ "exclude": ["*"] }} }}, "policy": {{ "rules": [
                {{ "name": "reads", "verdict": "deny", "tools": ["hint:read-only"] }}, {rule} ] }} }} }}"#
        )
    };
    let rule =
        r#"{ "name": "hi", "verdict": "ask", "when": "args.text == 'hi'", "remember": "15m", "proof": "person" }"#;
    assert_snapshot!(run(&config(rule), &[], &["policy", "explain", "demo__echo", "text=hi"]), @"
    exit 0
    demo__echo: deny by the rule reads; clients are not shown it
      reads  deny   matches
      hi     ask    matches
    ");
    assert_snapshot!(run(&config(rule), &[], &["policy", "explain", "demo__nothing", "text=hi"]), @"
    exit 0
    demo__nothing: ask by the rule hi (the person who runs the host, and a yes counts for 15 min)
      reads  deny   does not match: it is for something else
      hi     ask    matches
    ---
    note: no server lists `demo__nothing`; it is judged by its name alone
    ");
}

#[test]
fn rules_that_do_not_count_are_noted() {
    let config = CONFIG.replace(r#""policy": {"#, r#""policy": { "mode": "report","#);
    let cases = r#"[{ "tool": "db__drop_table", "expect": "deny" }]"#;
    assert_snapshot!(run(&config, &[("cases.json", cases)], &["policy", "test", "cases.json"]), @r#"
    exit 0
    1 of 1 case as expected
    ---
    note: host.policy.mode is "report": verdicts are only written down, and nothing is refused
    "#);
    let none = r#"{ "mcpServers": { "db": { "command": "x" } } }"#;
    assert_snapshot!(run(none, &[("cases.json", cases)], &["policy", "test", "cases.json"]), @"
    exit 1
    cases.json:1: db__drop_table: expected deny, found allow: no rule denies or asks
    0 of 1 case as expected
    ---
    note: the config has no rules (host.policy.rules)
    ");
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
