//! Files of every syntax and shape, times every edit: what an edit does, and that every other byte stays.

mod clients;
mod kept;
mod texts;

use std::path::Path as FilePath;

use proptest::prelude::*;

use super::op::path_to;
use super::*;

/// Files as people and clients write them: a name, and a text with two servers or more.
const FILES: &[(&str, &str)] = &[
    (
        "mcp.json",
        "{\n  \"mcpServers\": {\n    \"a\": {\n      \"command\": \"a\",\n      \"args\": [\"-y\", \"x\"]\n    },\n    \"b\": { \"command\": \"b\" }\n  }\n}\n",
    ),
    (
        "mcp.json",
        "{\n\t\"mcpServers\": {\n\t\t\"a\": {\n\t\t\t\"command\": \"a\"\n\t\t},\n\t\t\"b\": {\n\t\t\t\"command\": \"b\",\n\t\t\t\"env\": {\n\t\t\t\t\"K\": \"v\"\n\t\t\t}\n\t\t}\n\t}\n}\n",
    ),
    ("mcp.json", "{\"mcpServers\":{\"a\":{\"command\":\"a\"},\"b\":{\"command\":\"b\"}}}"),
    (
        "mcp.json",
        "{ \"mcpServers\": { \"a\": { \"command\": \"a\" }, \"b\": { \"url\": \"https://b.example/mcp\" } }, \"host\": { \"startupWait\": \"1s\" } }\n",
    ),
    (
        "mcp.json",
        "// mine\n{\n    /* servers */\n    \"mcpServers\": {\n        // the first\n        \"a\": { \"command\": \"a\" }, // of two\n        // the second\n        \"b\": { \"command\": \"b\" }, // of two, too\n        // the end\n    },\n}\n",
    ),
    (
        "mcp.json",
        "{\n  \"mcpServers\": {\n    \"a\": { \"command\": \"a\" } // no comma yet\n    , \"b\": { \"command\": \"b\" } /* the end */\n  }\n}\n",
    ),
    ("mcp.json", "{ \"mcpServers\": {\n  \"a\": { \"command\": \"a,b}\" },\n  \"b\": { \"command\": \"\\\"{\" } } }"),
    (
        ".vscode/mcp.json",
        "{\n  \"inputs\": [],\n  \"servers\": {\n    \"a\": { \"type\": \"stdio\", \"command\": \"a\" },\n    \"b\": { \"type\": \"http\", \"url\": \"https://b.example/mcp\" }\n  }\n}\n",
    ),
    (
        "settings.json",
        "{\n  \"editor.fontSize\": 12,\n  \"mcp\": { \"servers\": { \"a\": { \"command\": \"a\" }, \"b\": { \"command\": \"b\" } } },\n  \"z\": 1\n}\n",
    ),
    ("bare.json", "{\n  \"a\": { \"command\": \"a\" },\n  \"b\": { \"command\": \"b\", \"args\": [] }\n}\n"),
    (
        "opencode.jsonc",
        "{\n  \"$schema\": \"https://opencode.ai/config.json\",\n  \"mcp\": {\n    \"a\": { \"type\": \"local\", \"command\": [\"a\"], \"enabled\": true },\n    \"b\": { \"type\": \"remote\", \"url\": \"https://b.example/mcp\" },\n  },\n}\n",
    ),
    (
        "zed.json",
        "{\n  \"theme\": \"One\",\n  \"context_servers\": {\n    \"a\": { \"command\": \"a\", \"args\": [] },\n    \"b\": { \"command\": { \"path\": \"b\", \"args\": [] } }\n  }\n}\n",
    ),
    (
        "settings/.roo/mcp.json",
        "{\n  \"mcpServers\": {\n    \"a\": { \"command\": \"a\", \"alwaysAllow\": [], \"disabled\": false },\n    \"b\": { \"command\": \"b\" }\n  }\n}",
    ),
    (
        ".gemini/settings.json",
        "{\n  \"mcp\": { \"excluded\": [\"z\"] },\n  \"mcpServers\": {\n    \"a\": { \"command\": \"a\" },\n    \"b\": { \"httpUrl\": \"https://b.example/mcp\" }\n  }\n}\n",
    ),
    (
        "claude.json",
        "{\n  \"mcpServers\": { \"a\": { \"type\": \"stdio\", \"command\": \"a\" }, \"b\": { \"command\": \"b\" } },\n  \"projects\": { \"/p\": { \"history\": [{}], \"mcpServers\": {} } }\n}\n",
    ),
    (
        "list.json",
        "{\n  \"mcpServers\": [\n    { \"name\": \"a\", \"command\": \"a\" },\n    { \"name\": \"b\", \"command\": \"b\" }\n  ]\n}\n",
    ),
    (
        "mcp-host.toml",
        "# the head\n\n[mcpServers.a]\ncommand = \"a\" # mine\nargs = [\n  \"-y\", # yes\n  \"x\",\n]\n\n# the second\n[mcpServers.b]\nurl = \"https://b.example/mcp\"\n\n[host]\nstartupWait = \"1s\"\n",
    ),
    (
        "config.toml",
        "model = \"x\"\n\n[mcp_servers.a]\ncommand = \"a\"\n\n[mcp_servers.a.env]\nK = \"v\"\n\n[profiles.p]\nmodel = \"y\"\n\n[mcp_servers.b]\ncommand = 'b'\nenv = { K = \"v\" }",
    ),
    (
        "config.toml",
        "[mcp_servers]\na = { command = \"a\", args = [\"[\", \"#\"] }\nb = { command = \"b\" } # of two\n\n[tui]\nx = 1\n",
    ),
    (
        "config.toml",
        "[mcp_servers]\na.command = \"a\"\na.args = []\nb.command = \"b\"\n[mcp_servers.\"c d\"]\ncommand = \"\"\"\nc\"\"\"\n",
    ),
    ("config.toml", "mcp_servers = { a = { command = \"a\" }, b = { command = \"b\" } }\nx = 1\n"),
    (
        "list.toml",
        "[[mcpServers]]\nname = \"a\"\ncommand = \"a\"\n\n[[mcpServers]]\nname = \"b\"\ncommand = \"b\"\n[mcpServers.env]\nK = \"v\"\n",
    ),
    (
        "goose.yaml",
        "# the head\nGOOSE_MODEL: x\nextensions:\n  # the first\n  a:\n    enabled: true\n    type: stdio\n    cmd: a # mine\n    args:\n    - -y\n    - \"x: y\"\n    envs: {}\n  b:\n    type: stdio\n    cmd: b\n\n# the tail\nz: 1\n",
    ),
    (
        "config.yaml",
        "name: Mine\nmcpServers:\n  - name: a\n    command: a\n    args: [\"-y\", 'it''s']\n  - name: b\n    type: streamable-http\n    url: https://b.example/mcp\nrules:\n- one\n",
    ),
    (
        "config.yaml",
        "mcpServers:\n- name: a\n  command: a\n- name: b\n  command: >-\n    b\n\n    c\n- name: c\n  command: |\n    c\n\nmodels: []\n",
    ),
    ("mcp.yaml", "mcpServers: {a: {command: a}, b: {command: b, args: [x]}} # in one line\nhost: {}\n"),
    (
        "mcp.yaml",
        "base: &base\n  K: v\nmcpServers:\n    a:\n        command: \"a\n          b\"\n        env: *base\n    b:\n        command: b\n        description: two\n          lines\n",
    ),
    ("mcp.yaml", "mcpServers:\n  b:\n    command: y\n  a:\n    command: x\n    k:\n    - |2+\n\n"),
    ("mcp.yaml", "mcpServers:\n  a:\n    command: x\n    k: |+\n      text\n\n\n  b:\n    command: y\n"),
    ("mcp.yml", "---\n\"mcpServers\":\n  \"a\": { command: a }\n\n  'b':\n    command: b\n"),
    (
        "mcp.yaml",
        "{\n  \"mcpServers\": {\n    \"a\": { \"command\": \"a\" },\n    \"b\": { \"command\": \"b\" }\n  }\n}\n",
    ),
];

/// Returns each file as it is, with Windows line ends, with a byte order mark, and without a last line end.
fn files() -> Vec<(&'static str, String)> {
    let variants = |&(name, text): &(&'static str, &str)| {
        let crlf = text.replace('\n', "\r\n");
        [text.to_owned(), crlf.clone(), format!("\u{feff}{crlf}"), text.trim_end().to_owned()].map(|text| (name, text))
    };
    FILES.iter().flat_map(variants).collect()
}

fn request() -> LoadRequest {
    LoadRequest::default()
}

fn path(name: &str) -> std::path::PathBuf {
    FilePath::new("/home/ada").join(name)
}

fn change(text: &str, name: &str, change: &Change) -> Result<String, Refused> {
    edit(text, &path(name), &request(), change).map(|edited| edited.text)
}

fn must(text: &str, name: &str, wanted: &Change) -> String {
    change(text, name, wanted).unwrap_or_else(|refused| panic!("{wanted:?}: {refused:?}\n{text}"))
}

fn add(name: &str) -> Change {
    let server =
        NewServer { env: vec![("K".to_owned(), "a: \"b\" # c".to_owned())], ..NewServer::process("new", ["-y"]) };
    Change::Add { name: name.to_owned(), server }
}

fn remove(name: &str) -> Change {
    Change::Remove { name: name.to_owned() }
}

fn rename(name: &str, to: &str) -> Change {
    Change::Rename { name: name.to_owned(), to: to.to_owned() }
}

fn switch(name: &str, on: bool) -> Change {
    Change::Switch { name: name.to_owned(), on }
}

/// Returns a text without the bytes that may be added or removed with an item: blanks and commas.
fn bones(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace() && *c != ',' && *c != '\u{feff}').collect()
}

/// Returns the text of an entry in its file.
fn source(text: &str, name: &str, server: &str) -> Option<String> {
    let (path, request) = (path(name), request());
    let file = File::open(text, &path, &request).unwrap();
    let shape = file.shape().unwrap();
    let way = path_to(file.root.as_ref().unwrap(), file.entry(&shape, server).unwrap().node).unwrap();
    proof::source(file.text, file.syntax, &way)
}

#[test]
fn an_added_server_goes_without_a_trace() {
    for (name, text) in files() {
        let more = must(&text, name, &add("new"));
        assert!(more.len() > text.len());
        let back = must(&more, name, &remove("new"));
        // A file may lack the end of its last line, and the new lines need one.
        assert_eq!(back.trim_end_matches(['\r', '\n']), text.trim_end_matches(['\r', '\n']), "{name}:\n{more}");
        let ends = text.matches("\r\n").count();
        assert!(ends == 0 || more.matches('\n').count() == more.matches("\r\n").count(), "{more:?}");
        assert_eq!(text.starts_with('\u{feff}'), more.starts_with('\u{feff}'));
    }
}

#[test]
fn a_removed_server_takes_nothing_along() {
    for (name, text) in files() {
        for server in ["a", "b"] {
            let less = must(&text, name, &remove(server));
            if let Some(source) = source(&text, name, server) {
                assert_eq!(bones(&less), bones(&text.replacen(&source, "", 1)), "{name}:\n{text}\n{less}");
            }
            assert!(less.len() < text.len());
            let names = names(&less, &path(name), &request());
            assert!(!names.contains(&server.to_owned()) && !names.is_empty(), "{names:?}");
        }
    }
}

#[test]
fn the_last_server_leaves_a_file_that_can_be_read() {
    // Without a server, these files do not show which client they belong to.
    let others = ["bare.json", "opencode.jsonc", "goose.yaml", "list.toml"];
    for (name, text) in files().into_iter().filter(|(name, _)| !others.contains(name)) {
        let mut less = text.clone();
        for server in names(&text, &path(name), &request()) {
            less = must(&less, name, &remove(&server));
        }
        assert_eq!(names(&less, &path(name), &request()), Vec::<String>::new(), "{less}");
        let more = must(&less, name, &add("new"));
        assert_eq!(names(&more, &path(name), &request()), ["new"], "{name}:\n{less}\n{more}");
    }
}

#[test]
fn a_file_that_is_known_by_its_servers_keeps_the_last_one() {
    for name in ["bare.json", "opencode.jsonc", "goose.yaml", "list.toml"] {
        let (_, text) = FILES.iter().find(|(known, _)| *known == name).unwrap();
        let one = must(text, name, &remove("a"));
        let why = change(&one, name, &remove("b")).unwrap_err().to_string();
        assert_eq!(why, "`b` is the last server of this file, which is not read without one");
    }
}

#[test]
fn another_name_touches_the_name_alone() {
    for (name, text) in files() {
        let other = must(&text, name, &rename("a", "other name"));
        let unquoted = |text: &str| text.replace(['"', '\''], "");
        assert_eq!(unquoted(&must(&other, name, &rename("other name", "a"))), unquoted(&text));
        let quoted = ["\"other name\"", "other name"].into_iter().find(|quoted| other.contains(quoted)).unwrap();
        let back = other.replace(quoted, "a");
        let plain = |text: &str| text.replace("\"a\"", "a").replace("'a'", "a");
        assert_eq!(plain(&back), plain(&text), "{name}");
    }
}

#[test]
fn a_switch_touches_one_member() {
    for (name, text) in files() {
        for server in ["a", "b"] {
            let off = must(&text, name, &switch(server, false));
            assert!(matches!(change(&off, name, &switch(server, false)), Err(Refused::Nothing(_))), "{off}");
            let on = must(&off, name, &switch(server, true));
            assert!(matches!(change(&on, name, &switch(server, true)), Err(Refused::Nothing(_))), "{on}");
            // The edit wrote `disabled`, which is removed, or another key, which stays.
            let (was, is) = (bones(&text), bones(&on));
            let rest = [
                "\"enabled\":true",
                "a.enabled=true",
                "b.enabled=true",
                "enabled=true",
                "enabled:true",
                "\"disabled\":false",
            ];
            let without = |key: &&str| {
                is.match_indices(key).any(|(at, _)| format!("{}{}", &is[..at], &is[at + key.len()..]) == was)
            };
            // An existing switch that had no effect is removed.
            let without_first = rest.iter().any(|key| was.replacen(key, "", 1) == is);
            let is_same = was == is || without_first || rest.iter().any(without);
            assert!(is_same, "{name}:\n{text}\n{on}");
        }
    }
}

#[test]
fn an_edit_is_taken_back_in_a_file_that_has_changed_since() {
    for (name, text) in files() {
        for (made, what) in [
            (add("new"), What::Add),
            (remove("a"), What::Remove),
            (rename("a", "c3"), What::Rename("c3".to_owned())),
            (switch("a", false), What::Disable),
        ] {
            let done = Done { name: made.name().to_owned(), what };
            let after = must(&text, name, &made);
            let since = must(&after, name, &add("since"));
            let texts = Around { before: &text, after: &after };
            let back = revert(&since, texts, &path(name), &request(), &done);
            let back = back.unwrap_or_else(|refused| panic!("{name}: {done:?}: {refused:?}\n{since}")).text;
            let wanted = must(&text, name, &add("since"));
            let order = |text: &str| {
                let mut names = names(text, &path(name), &request());
                names.sort();
                names
            };
            assert_eq!(order(&back), order(&wanted), "{name}: {done:?}\n{back}");
            // A comment after an entry may now be on its own line, and the entry may be in another position.
            let letters = |text: &str| {
                let mut letters: Vec<char> = bones(text).chars().collect();
                letters.sort_unstable();
                letters
            };
            assert!(letters(&back) == letters(&wanted), "{name}: {done:?}\n{since}\n{back}");
        }
    }
}

#[test]
fn what_somebody_changed_since_is_not_taken_back() {
    let (name, text) = FILES[0];
    let after = must(text, name, &add("new"));
    let since = after.replace("\"-y\"", "\"-z\"");
    let texts = Around { before: text, after: &after };
    let done = Done { name: "new".to_owned(), what: What::Add };
    // `-y` of the server `a` was changed, too, but not by this edit.
    let refused = revert(&since, texts, &path(name), &request(), &done).unwrap_err();
    assert_eq!(refused, Refused::Elsewhere("the entry of `new` has changed since".to_owned()));
    assert_eq!(done.reversed(), Done { name: "new".to_owned(), what: What::Remove });
}

#[test]
fn a_file_begins_with_its_first_server() {
    for (name, text) in [
        ("config.json", ""),
        ("config.json", "{}"),
        ("config.json", "{ \"mcpServers\": {} }"),
        ("config.json", "{\n  \"mcpServers\": {\n    // none yet\n  }\n}\n"),
        ("config.json", "{\n  \"host\": { \"startupWait\": \"1s\" }\n}\n"),
        ("config.toml", ""),
        ("config.toml", "# mine\n[host]\nstartupWait = \"1s\""),
        ("config.yaml", ""),
        ("config.yaml", "# mine\nhost:\n  startupWait: 1s"),
        ("config.yaml", "mcpServers:\nhost: {}\n"),
    ] {
        let made = must(text, name, &add("new"));
        assert_eq!(names(&made, &path(name), &request()), ["new"], "{made}");
        assert!(text.lines().filter(|line| line.contains("mine")).all(|line| made.contains(line)), "{made}");
    }
    assert_eq!(
        must("", "config.json", &add("new")),
        "{\n  \"mcpServers\": {\n    \"new\": {\n      \"command\": \"new\",\n      \"args\": [\"-y\"],\n      \"env\": {\n        \"K\": \"a: \\\"b\\\" # c\"\n      }\n    }\n  }\n}\n"
    );
}

#[test]
fn an_entry_is_written_in_the_words_of_its_client() {
    let url = Change::Add {
        name: "new".to_owned(),
        server: NewServer {
            headers: vec![("X-Team".to_owned(), "core".to_owned())],
            ..NewServer::at("https://new.example/mcp")
        },
    };
    for (name, written) in [
        ("mcp.json", r#""new":{"url":"https://new.example/mcp""headers":{"X-Team":"core"}}"#),
        (".vscode/mcp.json", r#""new":{"type":"http""url":"https://new.example/mcp""headers":{"X-Team":"core"}}"#),
        ("opencode.jsonc", r#""new":{"type":"remote""url":"https://new.example/mcp""headers":{"X-Team":"core"}}"#),
        ("settings/.roo/mcp.json", r#""new":{"type":"streamable-http""url":"https://new.example/mcp"#),
        ("config.toml", r#"[mcp_servers.new]url="https://new.example/mcp"http_headers={X-Team="core"}"#),
        (
            "goose.yaml",
            "new:enabled:truename:newtype:streamable_httpuri:\"https://new.example/mcp\"headers:X-Team:core",
        ),
        ("list.json", r#"{"name":"new""url":"https://new.example/mcp""requestOptions":{"headers":{"X-Team":"core"}}}"#),
    ] {
        let (_, text) = FILES.iter().find(|(known, _)| *known == name).unwrap();
        let made = must(text, name, &url);
        assert!(bones(&made).contains(written), "{name}:\n{made}");
        let config = super::super::parse_str(&made, Syntax::of(name.as_ref()), path(name), &Default::default());
        let config = config.unwrap_or_else(|error| panic!("{error}\n{made}"));
        let server = config.servers.iter().find(|server| server.name == "new").unwrap();
        let (Transport::Http(remote) | Transport::Auto(remote)) = &server.transport else { panic!("{server:?}") };
        let headers: Vec<_> = remote.headers.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
        assert_eq!((remote.url.as_str(), headers), ("https://new.example/mcp", vec![("X-Team", "core")]));
    }
}

#[test]
fn what_would_change_something_else_is_not_written() {
    // Other entries take their settings from this one.
    let anchor = "mcpServers:\n  a: &a\n    command: a\n  b: *a\n";
    for wanted in [switch("a", false), remove("a"), switch("b", false)] {
        let Err(Refused::Unproven { snippet, .. }) = change(anchor, "mcp.yaml", &wanted) else { panic!("{wanted:?}") };
        assert!(!snippet.is_empty());
    }
    // Without this entry, the file looks like that of another client, and `timeout` is in milliseconds.
    let roo =
        r#"{ "mcpServers": { "a": { "command": "a", "alwaysAllow": [] }, "b": { "command": "b", "timeout": 60 } } }"#;
    assert!(matches!(change(roo, "mcp.json", &remove("a")), Err(Refused::Unproven { .. })));
    assert!(change(roo, "mcp.json", &remove("b")).is_ok());
}

#[test]
fn a_reference_to_the_keyring_stands_only_where_it_is_one() {
    let server =
        NewServer { env: vec![("K".to_owned(), "${keyring:a/K}".to_owned())], ..NewServer::process("x", [""; 0]) };
    let wanted = Change::Add { name: "new".to_owned(), server };
    for (name, takes) in
        [("mcp.json", true), ("list.json", true), ("zed.json", false), ("goose.yaml", false), ("opencode.jsonc", false)]
    {
        let (_, text) = FILES.iter().find(|(known, _)| *known == name).unwrap();
        assert_eq!(change(text, name, &wanted).is_ok(), takes, "{name}");
    }
}

#[test]
fn what_cannot_be_done_is_said() {
    let (name, text) = FILES[0];
    let refused = |wanted: &Change| change(text, name, wanted).unwrap_err().to_string();
    assert_eq!(refused(&remove("c")), "no server is called `c`");
    assert_eq!(refused(&add("a")), "a server is called `a` already");
    assert_eq!(refused(&add("A")), "a server is called `a` already", "their tools would have the same names");
    assert_eq!(refused(&rename("a", "b")), "a server is called `b` already");
    assert_eq!(refused(&rename("a", " ")), "a server cannot be called ` `");
    assert_eq!(refused(&switch("a", true)), "`a` is enabled already");
    let one = r#"{ "command": "one" }"#;
    assert!(matches!(change(one, "one.json", &remove("one")), Err(Refused::Elsewhere(_))));
    assert!(matches!(change("{", "mcp.json", &add("a")), Err(Refused::Mistakes(_))));
    let gemini = r#"{ "mcp": { "excluded": ["a"] }, "mcpServers": { "a": { "command": "a" } } }"#;
    let why = change(gemini, ".gemini/settings.json", &switch("a", true)).unwrap_err().to_string();
    assert_eq!(why, "`a` is named in mcp.excluded of the config");
}

#[test]
fn a_large_file_is_edited_like_a_small_one() {
    let entry = |number: usize| format!("    \"server{number}\": {{ \"command\": \"{}\" }}", "x".repeat(1000));
    let entries: Vec<String> = (0..2000).map(entry).collect();
    let text = format!("{{\n  \"mcpServers\": {{\n{}\n  }}\n}}\n", entries.join(",\n"));
    assert!(text.len() > 2_000_000);
    let more = must(&text, "mcp.json", &add("new"));
    assert!(must(&more, "mcp.json", &remove("new")) == text);
}

#[test]
fn the_project_of_claude_code_that_is_named_gets_the_server() {
    let (name, text) = FILES[14];
    let named = LoadRequest { project_directory: Some("/p".into()), ..request() };
    let made = edit(text, &path(name), &named, &add("new")).unwrap().text;
    assert!(made.contains(r#""history": [{}], "mcpServers": {"#) && made.contains("\"new\""), "{made}");
    let off = LoadRequest { project_directory: Some("/q".into()), ..request() };
    assert!(matches!(edit(text, &path(name), &off, &add("new")), Err(Refused::Elsewhere(_))));
}

/// A value of a config, as deep as people write them.
fn value() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Bool(true)),
        any::<i32>().prop_map(Into::into),
        "[ -~äß\u{1F600}\\n\\t#:,\\[\\]{}\"']{0,12}".prop_map(serde_json::Value::String),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::Array),
            prop::collection::btree_map("[a-z #:.]{1,6}", inner, 0..4)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

/// A config with servers of any content, in any syntax.
fn any_file() -> impl Strategy<Value = (&'static str, String)> {
    let entry = prop::collection::btree_map("[k-z]{1,5}", value(), 0..4);
    let servers = prop::collection::btree_map("[a-j]{1,6}", entry, 1..5);
    (servers, 0..4_usize).prop_map(|(servers, syntax)| {
        let object = |entry: std::collections::BTreeMap<String, serde_json::Value>| {
            let mut entry: serde_json::Map<_, _> = entry.into_iter().collect();
            entry.insert("command".to_owned(), "x".into());
            serde_json::Value::Object(entry)
        };
        let servers: serde_json::Map<_, _> = servers.into_iter().map(|(name, entry)| (name, object(entry))).collect();
        let root = serde_json::json!({ "mcpServers": servers });
        match syntax {
            0 => ("mcp.json", serde_json::to_string_pretty(&root).unwrap()),
            1 => ("mcp.json", root.to_string()),
            2 => ("mcp.toml", toml_of(&root)),
            _ => ("mcp.yaml", serde_yaml_ng::to_string(&root).unwrap()),
        }
    })
}

fn toml_of(root: &serde_json::Value) -> String {
    let text = root.to_string();
    let node = syntax::parse(&text, Syntax::Json, 0, &mut Report::default()).unwrap();
    let style = splice::Style::of("");
    let servers = node.get("mcpServers").unwrap().members().unwrap();
    let section = |member: &syntax::Member| {
        render::toml_section(&["mcpServers".to_owned(), member.key.clone()], &member.node, false, &style)
    };
    servers.iter().map(section).collect::<Vec<_>>().join("\n")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_edit_of_any_file_is_proven_or_refused((name, text) in any_file(), pick in any::<prop::sample::Index>()) {
        let known = names(&text, &path(name), &request());
        let server = &known[pick.index(known.len())];
        let more = must(&text, name, &add("new"));
        let back = must(&more, name, &remove("new"));
        prop_assert_eq!(back.trim_end(), text.trim_end());
        let other = must(&text, name, &rename(server, "other"));
        prop_assert_eq!(bones(&must(&other, name, &rename("other", server))).replace('"', ""), bones(&text).replace('"', ""));
        let less = must(&more, name, &remove(server));
        let done = Done { name: server.clone(), what: What::Remove };
        let texts = Around { before: &more, after: &less };
        let since = must(&less, name, &remove("new"));
        if known.len() > 1 {
            let back = revert(&since, texts, &path(name), &request(), &done).unwrap().text;
            let (mut now, mut was) = (names(&back, &path(name), &request()), known.clone());
            now.sort();
            was.sort();
            prop_assert_eq!(now, was);
        }
        let off = must(&text, name, &switch(server, false));
        prop_assert_eq!(bones(&must(&off, name, &switch(server, true))), bones(&text));
    }

    #[test]
    fn no_text_makes_an_edit_panic(text in "[a-z:=\"'{}\\[\\],.#&*!|> \n\t-]{0,60}", kind in 0..3_usize) {
        let name = ["mcp.json", "mcp.toml", "mcp.yaml"][kind];
        for wanted in [add("new"), remove("a"), rename("a", "b"), switch("a", false)] {
            if let Ok(after) = change(&text, name, &wanted) {
                let again = change(&after, name, &switch("zz", true));
                prop_assert!(matches!(again, Err(Refused::Unknown { .. })), "{after}");
            }
        }
    }
}
