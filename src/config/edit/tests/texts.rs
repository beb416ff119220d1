//! Text values inside an entry: sets them, and restores their old values.

use super::*;

/// An entry with a package, in each syntax.
const ENTRIES: [(&str, &str); 4] = [
    (
        "mcp.json",
        "{\n  // mine\n  \"mcpServers\": {\n    \"a\": { \"command\": \"npx\", \"args\": [\"-y\", \"x@1\"], \"package\": { \"version\": \"1\" } }, // a\n    \"b\": { \"command\": \"b\" }\n  }\n}\n",
    ),
    (
        "mcp-host.toml",
        "# mine\n[mcpServers.a]\ncommand = \"npx\" # a\nargs = [\"-y\", \"x@1\"]\npackage = { version = \"1\" }\n\n[mcpServers.b]\ncommand = \"b\"\n",
    ),
    (
        "mcp-host.toml",
        "[mcpServers.a]\r\ncommand = \"npx\"\r\nargs = [\r\n  \"-y\", # yes\r\n  \"x@1\",\r\n]\r\n\r\n[mcpServers.a.package]\r\nversion = \"1\"\r\n",
    ),
    (
        "mcp-host.yaml",
        "# mine\nmcpServers:\n  a:\n    command: npx # a\n    args:\n      - -y\n      - x@1\n    package:\n      version: \"1\"\n  b:\n    command: b\n",
    ),
];

fn changes() -> Vec<Change> {
    let change = |at: &[&str], value: &str| Change::Text {
        name: "a".to_owned(),
        at: at.iter().map(|word| (*word).to_owned()).collect(),
        value: value.to_owned(),
    };
    vec![
        change(&["args", "1"], "x@2"),
        change(&["package", "version"], "2"),
        change(&["package", "digest"], "sha256:00"),
        change(&["env", "TEAM"], "blue"),
    ]
}

#[test]
fn values_are_given_and_given_back() {
    let request = LoadRequest::default();
    for (name, text) in ENTRIES {
        let file = FilePath::new(name);
        let (after, done) = edit_all(text, file, &request, &changes()).unwrap_or_else(|why| panic!("{name}: {why:?}"));
        for part in ["x@2", "sha256:00", "TEAM", "blue"] {
            assert!(after.contains(part) && !after.contains("x@1"), "{after}");
        }
        assert_eq!(text.matches('#').count(), after.matches('#').count(), "{after}");
        let around = Around { before: text, after: &after };
        let now = format!("{after}{}", if name == "mcp.json" { "// since\n" } else { "# since\n" });
        let back = revert_all(&now, around, file, &request, &done).unwrap_or_else(|why| panic!("{name}: {why:?}"));
        assert!(back.contains("x@1") && !back.contains("digest") && !back.contains("blue"), "{back}");
        let other = after.replace("x@2", "x@3");
        assert!(revert_all(&other, around, file, &request, &done).is_err(), "somebody has changed it since");
    }
}

#[test]
fn a_value_that_is_no_text_stays() {
    let request = LoadRequest::default();
    let change = |at: &[&str]| Change::Text {
        name: "a".to_owned(),
        at: at.iter().map(|word| (*word).to_owned()).collect(),
        value: "x".to_owned(),
    };
    for at in [&["args"][..], &["package"], &["command", "x"], &["args", "7"]] {
        let refused = edit(ENTRIES[0].1, ENTRIES[0].0.as_ref(), &request, &change(at));
        assert!(refused.is_err(), "{at:?}: {refused:?}");
    }
}
