//! Config files in every syntax and of every client.

use crate::config::{Syntax, Vars, parse_str};

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
