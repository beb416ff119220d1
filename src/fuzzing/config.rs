//! Config files in every syntax and of every client, locks, and cases for rules.

use std::sync::OnceLock;

use serde_json::{Map, Value, json};

use crate::config::{Config, Locked, Syntax, Vars, parse_str, read_lock};
use crate::policy::Trial;

const NAMES: [&str; 8] = [
    "mcp.json",
    ".vscode/mcp.json",
    "claude_desktop_config.json",
    "cline_mcp_settings.json",
    ".gemini/settings.json",
    ".codex/config.toml",
    "goose/config.yaml",
    "opencode.json",
];
/// The value of every environment variable. It may appear in a loaded config and nowhere else.
const PLANTED: &str = "planted-in-a-variable";

/// Checks that a config text loads or is refused with reasons, and that no variable's value is shown either way.
pub fn config(data: &[u8]) {
    let Some((first, text)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    // The fuzzer must not read files of this machine.
    if text.contains("file:") || text.contains("envFile") || text.contains('\\') {
        return;
    }
    let syntax = [Syntax::Json, Syntax::Toml, Syntax::Yaml][usize::from(first % 3)];
    let name = NAMES[usize::from(first / 3) % NAMES.len()];
    let vars = Vars::from_iter(["A", "TOKEN", "HOME", "MCP_HOST_INPUT_A"].map(|name| (name, PLANTED)));
    let parsed = parse_str(text, syntax, name, &vars);
    let again = parse_str(text, syntax, name, &vars);
    match (parsed, again) {
        (Ok(config), Ok(again)) => {
            assert_eq!((&config.servers, &config.host), (&again.servers, &again.host));
            let aliases: std::collections::BTreeSet<_> = config.servers.iter().map(|server| &server.alias).collect();
            assert_eq!(aliases.len(), config.servers.len(), "two of one alias");
            let scrubber = config.scrubber();
            let notes: String = config.notes.iter().map(|note| format!("{note} {:?}\n", note.help)).collect();
            assert!(!notes.contains(PLANTED), "{notes}");
            assert!(!scrubber.scrub(&format!("{:?}", config.host)).contains('\n'));
        }
        (Err(error), Err(again)) => {
            assert_eq!(error, again);
            assert!(!error.problems().is_empty() && error.problems().iter().all(|problem| !problem.message.is_empty()));
            let said = format!("{error} {error:?}");
            assert!(!said.contains(PLANTED), "{said}");
        }
        (one, other) => panic!("read in two ways: {one:?} {other:?}"),
    }
}

/// Checks that the text of a lock is refused with reasons, or read, and that the result survives writing and reading.
pub fn lock(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let lock = match read_lock(text) {
        Err(problems) => {
            assert!(!problems.is_empty() && problems.iter().all(|problem| !problem.message.is_empty()));
            return;
        }
        Ok(lock) => lock,
    };
    let server = |locked: &Locked| {
        let Locked { entry, instructions, tools, prompts, templates } = locked;
        let pins = [tools, prompts, templates].into_iter().flat_map(|list| list.values());
        for pin in pins.chain(instructions).chain([entry]) {
            assert!(pin.len() == 71 && pin.starts_with("sha256:"), "{pin}");
        }
        let mut told = json!({ "entry": entry, "tools": tools, "prompts": prompts, "templates": templates });
        if let Some(instructions) = instructions {
            told["instructions"] = json!(instructions);
        }
        told
    };
    let servers: Map<String, Value> =
        lock.servers.iter().map(|(alias, locked)| (alias.clone(), server(locked))).collect();
    let again = json!({ "version": 1, "servers": servers }).to_string();
    assert_eq!(read_lock(&again).map(|again| again.servers), Ok(lock.servers));
}

/// The rules by which cases are judged: with every verdict, and by names, hints, tags, views, clients, and arguments.
const RULES: &str = r#"{ "mcpServers": { "db": { "command": "x", "tags": ["data"] }, "web": { "command": "x" } },
    "host": { "views": { "review": { "readOnly": "declared" } },
      "auth": { "type": "bearer", "clients": { "ci": "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae" } },
      "policy": { "default": "ask", "rules": [
        { "name": "no-prod", "verdict": "deny", "tools": ["server:db"],
          "when": "has(args.database) && args.database.startsWith('prod')" },
        { "name": "few", "verdict": "deny", "when": "has(args.list) && args.list.all(x, x == x) && size(args.list) > 3" },
        { "name": "dev", "verdict": "allow", "principals": ["claim:groups=dev", "scope:mcp"], "prompts": ["*"] },
        { "name": "reads", "verdict": "allow", "tools": ["hint:read-only"], "when": "client.name != tool" },
        { "name": "writes", "verdict": "ask", "tools": ["hint:not-read-only"], "unless": { "clients": ["ci"] } },
        { "name": "only-review", "verdict": "deny", "tools": ["tag:data"], "resources": ["file:*"], "views": ["review"] }
      ] } } }"#;

/// Checks that a file of cases is refused with reasons, or read, and that each case has one verdict.
pub fn cases(data: &[u8]) {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    let config = CONFIG.get_or_init(|| {
        parse_str(RULES, Syntax::Json, "mcp.json", &Vars::default()).unwrap_or_else(|error| panic!("{error}"))
    });
    let Some((first, text)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let syntax = [Syntax::Json, Syntax::Toml, Syntax::Yaml][usize::from(first % 3)];
    match config.cases(text, syntax, "cases") {
        Err(error) => {
            assert!(!error.problems().is_empty() && error.problems().iter().all(|problem| !problem.message.is_empty()));
        }
        Ok(cases) => {
            for case in &cases {
                let judged = || Trial::of(config, case);
                assert_eq!(judged(), judged(), "{case:?}");
            }
        }
    }
}
