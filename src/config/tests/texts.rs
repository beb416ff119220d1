//! Texts of every shape, and texts that are no config.

use proptest::prelude::*;

use super::*;

#[test]
fn shapes_by_the_table() {
    for (text, syntax, expected) in [
        (r#"{ "servers": { "a": { "command": "c" } } }"#, Syntax::Json, "a"),
        (r#"{ "editor.fontSize": 12, "mcp": { "servers": { "a": { "command": "c" } } } }"#, Syntax::Json, "a"),
        (
            r#"{ "customizations": { "vscode": { "mcp": { "servers": { "a": { "url": "https://h" } } } } } }"#,
            Syntax::Json,
            "a",
        ),
        (r#"{ "amp.mcpServers": { "a": { "command": "c" } } }"#, Syntax::Json, "a"),
        (r#"{ "command": "c" }"#, Syntax::Json, "mcp"),
        (r#"{ "mcpServers": {}, "mcp": { "b": { "command": "c" } } }"#, Syntax::Json, ""),
        (r#"{ "mcpServers": null }"#, Syntax::Json, ""),
        ("\u{feff}{ /* none */ \"a\": { \"command\": \"c\", }, }", Syntax::Json, "a"),
        ("[z]\ncommand = 'c'\n[a]\nmaxConcurrent = 1_000\nurl = 'https://h'", Syntax::Toml, "z a"),
        ("z: &anchor\n  command: c\na: *anchor\n", Syntax::Yaml, "z a"),
    ] {
        let config = parse_str(text, syntax, "mcp.json", &Vars::default()).unwrap_or_else(|error| panic!("{error}"));
        let names: Vec<_> = config.servers.iter().map(|server| server.name.as_str()).collect();
        assert_eq!(names.join(" "), expected, "{text}");
    }
}

#[test]
fn yaml_problems_have_lines() {
    let text = "mcpServers:\n  a:\n    command: c\n    sharing: all\n  b:\n    url: https://example.com\n    headers:\n      'X Y': z\n";
    insta::assert_snapshot!(bad(text, Syntax::Yaml), @r#"
    mcp:4: server "a": sharing: "all" is not one of auto, profile, session, host
    mcp:8: server "b": headers.X Y: "X Y" is not a valid header name
    "#);
    let text = "mcpServers:\n- name: a\n  command: c\n- name: b\n  command: d\n  required: 1\n-\n  command: e\n";
    insta::assert_snapshot!(bad(text, Syntax::Yaml), @r#"
    mcp:6: server "b": required: expected true or false, found a number
    mcp:7: server "unnamed (line 7)": name: a server needs a name
    "#);
    let twice = bad("mcpServers:\n  a: { command: c }\n  a: { command: d }\n", Syntax::Yaml);
    assert!(twice.contains("duplicate entry"), "{twice}");
}

#[test]
fn deep_nesting_is_refused() {
    for depth in [200, 10_000] {
        let json = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(&json, &[]).is_err());
        assert!(parse_str(&json, Syntax::Yaml, "f", &Vars::default()).is_err());
        assert!(parse_str(&format!("a = {json}"), Syntax::Toml, "f", &Vars::default()).is_err());
    }
}

/// Text that is close enough to a config for the readers to get far.
fn near_config() -> impl Strategy<Value = String> {
    let token = prop_oneof![
        Just("{"),
        Just("}"),
        Just("["),
        Just("]"),
        Just(":"),
        Just(","),
        Just("\n"),
        Just("  "),
        Just("- "),
        Just("="),
        Just("\"mcpServers\""),
        Just("\"a\""),
        Just("\"command\""),
        Just("\"url\""),
        Just("\"host\""),
        Just("\"naming\""),
        Just("\"${A}\""),
        Just("\"${{é\""),
        Just("mcpServers"),
        Just("servers"),
        Just("a"),
        Just("null"),
        Just("-1e999"),
        Just("\"1.5s\""),
        Just("\"timeout\""),
        Just("true"),
        Just("'"),
        Just("é"),
        Just("#"),
        Just("\u{feff}"),
        Just("\t"),
    ];
    proptest::collection::vec(token, 0..60).prop_map(|tokens| tokens.concat())
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let keys = prop_oneof![
        Just("mcpServers"),
        Just("servers"),
        Just("mcp"),
        Just("extensions"),
        Just("host"),
        Just("command"),
        Just("args"),
        Just("env"),
        Just("url"),
        Just("headers"),
        Just("auth"),
        Just("type"),
        Just("timeout"),
        Just("restart"),
        Just("roots"),
        Just("transport"),
        Just("inputs"),
        Just("naming"),
        Just("limits"),
        Just("limits"),
        Just("listen"),
        Just("name"),
    ];
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        "\\PC{0,8}".prop_map(Into::into),
        prop_oneof![Just("stdio"), Just("http"), Just("https://h/"), Just("${A:-b}"), Just("5s"), Just("oauth")]
            .prop_map(Into::into),
    ];
    leaf.prop_recursive(5, 64, 8, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            proptest::collection::hash_map(keys.clone().prop_map(str::to_owned), inner, 0..8)
                .prop_map(|map| map.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

proptest! {
    #[test]
    fn no_text_panics(text in prop_oneof![any::<String>(), near_config()]) {
        for syntax in [Syntax::Json, Syntax::Toml, Syntax::Yaml] {
            drop(parse_str(&text, syntax, "f", &Vars::default()));
        }
    }

    #[test]
    fn no_tree_panics(tree in any_json()) {
        drop(parse(&tree.to_string(), &[]));
        drop(parse_str(&serde_yaml_ng::to_string(&tree).unwrap(), Syntax::Yaml, "f", &Vars::default()));
    }

    /// H91: a file that is cut anywhere is refused as a whole, unless the rest is blank.
    #[test]
    fn a_cut_file_is_refused(at in 0usize..400) {
        let text = fs::read_to_string("tests/fixtures/config/cursor.json").unwrap();
        let cut = &text[..at.min(text.trim_end().len() - 1)];
        prop_assert!(parse(cut, &[]).is_err());
    }
}

#[test]
fn h105_what_a_file_says_is_told_in_few_characters() {
    let long = format!("a\\n\\u202e{}", "x".repeat(1 << 20));
    for text in [
        format!(r#"{{"mcpServers": {{"{long}": {{"command": "c", "startTimeout": "soon"}}}}}}"#),
        format!(r#"{{"mcpServers": {{"s": {{"command": "c", "startTimeout": "{long}"}}}}}}"#),
        format!(r#"{{"mcpServers": {{"s": {{"url": "https://e.com/", "headers": {{"{long}": "v"}}}}}}}}"#),
        format!(r#"{{"mcpServers": {{"s": {{"command": "c", "args": ["${{{long}}}"], "{long}": 1}}}}, "{long}": 1}}"#),
    ] {
        let said: Vec<String> = match parse(&text, &[]) {
            Ok(config) => {
                let whys = config.servers.iter().filter_map(|server| Some(server.unusable.as_ref()?.to_string()));
                whys.chain(config.notes.iter().map(ToString::to_string)).collect()
            }
            Err(error) => error.problems().iter().map(ToString::to_string).collect(),
        };
        assert!(!said.is_empty(), "{text:.100}");
        for line in said {
            assert!(line.len() < 2048 && !line.contains(['\n', '\u{202e}']), "{} bytes: {line:.300}", line.len());
        }
    }
}
