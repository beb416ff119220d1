//! Files of each client as it writes them, times the edits of `link`, `unlink` and `import`.

use super::*;
use crate::config::clients::{self, Client};
use crate::config::import::{Candidate, candidates};

/// Files of clients: the client, the end of the path, and a text.
pub(super) const TEXTS: &[(&str, &str, &str)] = &[
    (
        "claude-code",
        ".claude.json",
        "{\n  \"numStartups\": 7,\n  \"mcpServers\": {\n    \"a\": {\n      \"type\": \"stdio\",\n      \"command\": \"a\",\n      \"args\": [],\n      \"env\": {}\n    }\n  },\n  \"projects\": {\n    \"/p\": {\n      \"mcpServers\": {},\n      \"history\": []\n    }\n  }\n}",
    ),
    (
        "claude-code",
        ".claude.json",
        "{\n  \"numStartups\": 7,\n  \"oauthAccount\": { \"url\": \"https://a.example\" }\n}\n",
    ),
    (
        "claude-desktop",
        ".config/Claude/claude_desktop_config.json",
        "{\n  \"mcpServers\": {\n    \"a\": {\n      \"command\": \"npx\",\n      \"args\": [\n        \"-y\",\n        \"a\"\n      ]\n    }\n  },\n  \"globalShortcut\": \"\"\n}",
    ),
    (
        "codex",
        ".codex/config.toml",
        "model = \"x\" # mine\n\n[mcp_servers.a]\ncommand = \"a\"\nargs = [\"-y\"]\n\n[mcp_servers.a.env]\nK = \"v\"\n\n[tui]\nx = 1\n",
    ),
    ("codex", ".codex/config.toml", "# mine\nmodel = \"x\"\n\n[otel]\nurl = \"http://a.example\"\n"),
    (
        "gemini",
        ".gemini/settings.json",
        "{\n  // mine\n  \"security\": { \"auth\": { \"selectedType\": \"x\" } },\n  \"mcpServers\": {\n    \"a\": { \"httpUrl\": \"https://a.example/mcp\", \"timeout\": 5000 }\n  }\n}\n",
    ),
    (
        "cursor",
        ".cursor/mcp.json",
        "{\n\t\"mcpServers\": {\n\t\t\"a\": {\n\t\t\t\"command\": \"a\" // mine\n\t\t}\n\t}\n}\n",
    ),
    (
        "vscode",
        ".config/Code/User/mcp.json",
        "{\n\t\"servers\": {\n\t\t\"a\": {\n\t\t\t\"type\": \"stdio\",\n\t\t\t\"command\": \"a\",\n\t\t},\n\t},\n\t\"inputs\": []\n}",
    ),
    (
        "windsurf",
        ".codeium/windsurf/mcp_config.json",
        "{ \"mcpServers\": { \"a\": { \"serverUrl\": \"https://a.example/mcp\" } } }",
    ),
    (
        "zed",
        ".config/zed/settings.json",
        "// Zed settings\n{\n  \"theme\": \"One\",\n  \"context_servers\": {\n    \"a\": {\n      \"source\": \"custom\",\n      \"command\": \"a\",\n      \"args\": [],\n    },\n  },\n}\n",
    ),
    (
        "zed",
        ".config/zed/settings.json",
        "// Zed settings\n{\n  \"theme\": \"One\",\n  \"terminal\": { \"command\": \"zsh\" },\n}\n",
    ),
    (
        "goose",
        ".config/goose/config.yaml",
        "GOOSE_MODEL: x # mine\nextensions:\n  developer:\n    bundled: true\n    enabled: true\n    name: developer\n    timeout: 300\n    type: builtin\n  a:\n    enabled: true\n    type: stdio\n    name: a\n    cmd: a\n    args:\n    - -y\n    envs: {}\n    timeout: 300\nGOOSE_MODE: auto\n",
    ),
    ("goose", ".config/goose/config.yaml", "GOOSE_PROVIDER: x\nGOOSE_MODEL: y\n"),
    (
        "opencode",
        ".config/opencode/opencode.json",
        "{\n  \"$schema\": \"https://opencode.ai/config.json\",\n  \"mcp\": {\n    \"a\": {\n      \"type\": \"local\",\n      \"command\": [\"a\", \"-y\"],\n      \"enabled\": true\n    }\n  }\n}\n",
    ),
    (
        "opencode",
        ".config/opencode/opencode.json",
        "{\n  \"$schema\": \"https://opencode.ai/config.json\",\n  \"theme\": \"x\"\n}\n",
    ),
    (
        "copilot",
        ".copilot/mcp-config.json",
        "{\n  \"mcpServers\": {\n    \"a\": {\n      \"type\": \"local\",\n      \"command\": \"a\",\n      \"args\": [],\n      \"tools\": [\n        \"*\"\n      ]\n    }\n  }\n}\n",
    ),
    (
        "kiro",
        ".kiro/settings/mcp.json",
        "{ \"mcpServers\": { \"a\": { \"command\": \"a\", \"disabled\": false, \"autoApprove\": [] } } }\n",
    ),
    ("lmstudio", ".lmstudio/mcp.json", "{\n  \"mcpServers\": {}\n}\n"),
    ("junie", ".junie/mcp/mcp.json", "{}\n"),
    (
        "cline",
        ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        "{\n  \"mcpServers\": {\n    \"a\": {\n      \"autoApprove\": [],\n      \"disabled\": false,\n      \"timeout\": 60,\n      \"type\": \"stdio\",\n      \"command\": \"a\"\n    }\n  }\n}",
    ),
    (
        "roo",
        ".config/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
        "{\"mcpServers\":{\"a\":{\"command\":\"a\",\"alwaysAllow\":[]}}}",
    ),
    (
        "continue",
        ".continue/config.yaml",
        "name: Mine\nversion: 1.0.0\nmcpServers:\n  - name: a # mine\n    command: a\n    args:\n      - -y\nmodels: []\n",
    ),
    ("continue", ".continue/config.yaml", "name: Mine\nversion: 1.0.0\nmodels:\n  - name: x\n    provider: ollama\n"),
    ("warp", ".warp/.mcp.json", "{ \"a\": { \"command\": \"a\", \"working_directory\": \"/srv\" } }\n"),
    (
        "amp",
        ".config/amp/settings.json",
        "{\n  \"amp.url\": \"x\",\n  \"amp.mcpServers\": { \"a\": { \"command\": \"a\" } }\n}\n",
    ),
    (
        "crush",
        ".config/crush/crush.json",
        "{\n  \"$schema\": \"https://charm.land/crush.json\",\n  \"mcp\": { \"a\": { \"type\": \"stdio\", \"command\": \"a\" } }\n}\n",
    ),
];

/// Returns each file as it is, with Windows line ends, with a byte order mark, indented by tabs, and without a last
/// line end.
fn texts() -> Vec<(&'static Client, &'static str, String)> {
    let variants = |&(id, file, text): &(&str, &'static str, &str)| {
        let client = Client::named(id).unwrap();
        let crlf = text.replace('\n', "\r\n");
        let tabs = if file.ends_with("yaml") { text.to_owned() } else { text.replace("  ", "\t") };
        let all = [text.to_owned(), crlf.clone(), format!("\u{feff}{crlf}"), tabs, text.trim_end().to_owned()];
        all.map(|text| (client, file, text))
    };
    TEXTS.iter().flat_map(variants).collect()
}

fn links(client: &Client) -> Vec<Change> {
    let process = NewServer::process("/opt/mcp-host", ["stdio", "--config", "/home/ada/my host.json"]);
    let mut servers = vec![process];
    if client.takes_urls() {
        let headers = vec![("Authorization".to_owned(), "Bearer t".to_owned())];
        servers.push(NewServer { headers, ..NewServer::at("http://127.0.0.1:8808/mcp") });
    }
    servers.into_iter().map(|server| Change::Add { name: "mcp-host".to_owned(), server }).collect()
}

fn found(text: &str, file: &str) -> Vec<Candidate> {
    candidates(text, &path(file), None).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn order(found: &[Candidate]) -> Vec<&str> {
    found.iter().map(|candidate| candidate.name.as_str()).collect()
}

#[test]
fn each_client_is_linked_and_unlinked_without_a_trace() {
    for (client, file, text) in texts() {
        let before = found(&text, file);
        for link in links(client) {
            let after = must(&text, file, &link);
            let Change::Add { server, .. } = &link else { continue };
            let now = found(&after, file);
            let ours = now.iter().find(|candidate| candidate.name == "mcp-host").unwrap_or_else(|| panic!("{after}"));
            let read = ours.entry.as_ref().unwrap().server("mcp-host", &request()).unwrap();
            match &read.transport {
                Transport::Stdio(stdio) => {
                    let words: Vec<&String> = std::iter::once(&stdio.command).chain(&stdio.args).collect();
                    assert_eq!(words, server.command.iter().collect::<Vec<_>>(), "{after}");
                }
                Transport::Http(remote) | Transport::Auto(remote) => {
                    assert_eq!(Some(remote.url.as_str()), server.url.as_deref(), "{after}");
                    assert_eq!(remote.headers[0].1.expose(), "Bearer t", "{after}");
                }
                other => panic!("{other:?}\n{after}"),
            }
            let others: Vec<&Candidate> = now.iter().filter(|candidate| candidate.name != "mcp-host").collect();
            let as_before = |(was, is): (&Candidate, &&Candidate)| was.entry == is.entry && was.name == is.name;
            assert!(before.len() == others.len() && before.iter().zip(&others).all(as_before), "{after}");
            assert_eq!(
                after.matches('\n').count() == after.matches("\r\n").count(),
                text.contains("\r\n") || !after.contains('\n'),
                "{after:?}"
            );
            let back = must(&after, file, &remove("mcp-host"));
            match before.is_empty() {
                false => assert_eq!(back.trim_end(), text.trim_end(), "{file}"),
                // The empty container stays.
                true => assert_eq!(order(&found(&back, file)), [""; 0], "{back}"),
            }
            let done = link.done("mcp-host");
            let since = must(&after, file, &add("since"));
            let around = Around { before: &text, after: &after };
            let reverted = revert_all(&since, around, &path(file), &request(), &[done]).unwrap();
            assert!(!reverted.contains("mcp-host") && reverted.contains("since"), "{reverted}");
        }
    }
}

#[test]
fn the_last_server_of_a_client_can_go() {
    for (client, file, text) in texts() {
        let (before, link) = (found(&text, file), links(client).remove(0));
        let gone = before.iter().map(|candidate| Change::Remove { name: candidate.name.clone() });
        let changes: Vec<Change> = std::iter::once(link).chain(gone).collect();
        let edited = edit_all(&text, &path(file), &request(), &changes);
        let (after, done) = edited.unwrap_or_else(|refused| panic!("{refused:?}\n{text}"));
        assert_eq!(order(&found(&after, file)), ["mcp-host"], "{after}");
        // Someone adds a server, and then everything is undone.
        let since = must(&after, file, &add("since"));
        let around = Around { before: &text, after: &after };
        let back = revert_all(&since, around, &path(file), &request(), &done)
            .unwrap_or_else(|refused| panic!("{refused:?}\n{since}"));
        let (mut names, mut wanted) = (order(&found(&back, file)).join(" "), order(&before).join(" "));
        names = names.replace("since", "").trim().to_owned();
        wanted = wanted.trim().to_owned();
        assert_eq!(names, wanted, "{back}");
    }
}

#[test]
fn each_client_has_the_entry_in_its_own_words() {
    let url = Change::Add { name: "mcp-host".to_owned(), server: NewServer::at("http://h/mcp") };
    for (id, wanted) in [
        ("claude-code", r#"{"mcpServers":{"mcp-host":{"type":"http""url":"http://h/mcp"}}}"#),
        ("codex", r#"[mcp_servers.mcp-host]url="http://h/mcp""#),
        ("gemini", r#"{"mcpServers":{"mcp-host":{"httpUrl":"http://h/mcp"}}}"#),
        ("cursor", r#"{"mcpServers":{"mcp-host":{"url":"http://h/mcp"}}}"#),
        ("vscode", r#"{"servers":{"mcp-host":{"type":"http""url":"http://h/mcp"}}}"#),
        ("windsurf", r#"{"mcpServers":{"mcp-host":{"serverUrl":"http://h/mcp"}}}"#),
        ("zed", r#"{"context_servers":{"mcp-host":{"url":"http://h/mcp"}}}"#),
        ("goose", r#"extensions:mcp-host:enabled:truename:mcp-hosttype:streamable_httpuri:"http://h/mcp"timeout:300"#),
        ("opencode", r#"{"mcp":{"mcp-host":{"type":"remote""url":"http://h/mcp"}}}"#),
        ("copilot", r#"{"mcpServers":{"mcp-host":{"type":"http""url":"http://h/mcp""tools":["*"]}}}"#),
        ("kiro", r#"{"mcpServers":{"mcp-host":{"url":"http://h/mcp"}}}"#),
        ("lmstudio", r#"{"mcpServers":{"mcp-host":{"url":"http://h/mcp"}}}"#),
        ("warp", r#"{"mcpServers":{"mcp-host":{"url":"http://h/mcp"}}}"#),
        ("cline", r#"{"mcpServers":{"mcp-host":{"type":"streamableHttp""url":"http://h/mcp"}}}"#),
        ("roo", r#"{"mcpServers":{"mcp-host":{"type":"streamable-http""url":"http://h/mcp"}}}"#),
        ("continue", r#"mcpServers:-name:mcp-hosttype:streamable-httpurl:"http://h/mcp""#),
        ("amp", r#"{"amp.mcpServers":{"mcp-host":{"url":"http://h/mcp"}}}"#),
        ("crush", r#"{"mcp":{"mcp-host":{"type":"http""url":"http://h/mcp"}}}"#),
    ] {
        let client = Client::named(id).unwrap();
        let vars = crate::config::Vars::from_iter([("HOME", "/home/ada")]);
        let file = client.files(&clients::Folders::of(&vars)).remove(0);
        let edited = edit("", &file, &request(), &url).unwrap();
        assert_eq!(bones(&edited.text), wanted, "{id}");
        // A path from which the client cannot be recognized.
        let named = LoadRequest { client: Some(client), ..request() };
        let elsewhere = FilePath::new("/srv").join(file.file_name().unwrap());
        assert_eq!(edit("", &elsewhere, &named, &url).unwrap().text, edited.text, "{id}");
    }
    assert!(["claude-desktop", "junie"].iter().all(|id| !Client::named(id).unwrap().takes_urls()));
}

#[test]
fn servers_of_each_client_are_put_into_our_config() {
    let own = [
        ("config.json", ""),
        (
            "config.json",
            "{\n  // mine\n  \"mcpServers\": {\n    \"own\": { \"command\": \"own\" }, // first\n  },\n  \"host\": {}\n}\n",
        ),
        ("config.toml", "# mine\n[mcpServers.own]\ncommand = \"own\"\n\n[host]\nstartupWait = \"1s\"\n"),
        ("config.yaml", "# mine\nmcpServers:\n  own:\n    command: own\n"),
    ];
    for (_, file, text) in texts() {
        let put = |candidate: &Candidate| Change::Put {
            name: format!("their {}", candidate.name),
            entry: candidate.entry.clone().unwrap(),
        };
        let mut changes: Vec<Change> = found(&text, file).iter().map(put).collect();
        changes.push(Change::Setting { key: vec!["join".to_owned()], value: "start".to_owned() });
        for (own, before) in own.iter().filter(|_| changes.len() > 1) {
            for before in [(*before).to_owned(), before.replace('\n', "\r\n"), format!("\u{feff}{before}")] {
                let edited = edit_all(&before, &path(own), &request(), &changes);
                let (after, done) = edited.unwrap_or_else(|refused| panic!("{refused:?}\n{before}"));
                let config =
                    super::super::super::parse_str(&after, Syntax::of(own.as_ref()), path(own), &Default::default());
                let config = config.unwrap_or_else(|error| panic!("{error}\n{after}"));
                assert_eq!(config.host.join, Some(crate::config::Join::Start), "{after}");
                assert!(config.servers.iter().any(|server| server.name.starts_with("their ")), "{after}");
                if !before.trim_matches(['\u{feff}']).is_empty() {
                    let around = Around { before: &before, after: &after };
                    let since = must(&after, own, &add("since"));
                    let back = revert_all(&since, around, &path(own), &request(), &done).unwrap();
                    assert!(!back.contains("their") && !back.contains("join"), "{back}");
                }
            }
        }
    }
}

#[test]
fn a_setting_is_given_and_given_back() {
    let set = |value: &str| Change::Setting { key: vec!["join".to_owned()], value: value.to_owned() };
    for (name, text) in files() {
        // A file of another client has no `host`.
        let Ok(after) = change(&text, name, &set("start")) else { continue };
        let around = Around { before: &text, after: &after };
        let done = [set("start").done("join")];
        assert!(matches!(change(&after, name, &set("start")), Err(Refused::Nothing(_))), "{after}");
        let never = must(&after, name, &set("never"));
        let refused = revert_all(&never, around, &path(name), &request(), &done).unwrap_err();
        assert_eq!(refused, Refused::Elsewhere("`host.join` has changed since".to_owned()));
        let since = must(&after, name, &add("since"));
        let back = revert_all(&since, around, &path(name), &request(), &done).unwrap();
        assert!(!back.contains("join"), "{back}");
    }
}
