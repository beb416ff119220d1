//! A tool or prompt by the name that was typed: its own, or its server's and its own with `.`, `/`, `:` or a blank between them.
//!
//! **Invariant:** an exact name always wins. No name that clients see holds one of those signs, so nothing is ambiguous.

use mcp_host::Entry;
use mcp_host::registry::Kind;

use crate::session::Session;

const SIGNS: [char; 4] = ['.', '/', ':', ' '];

/// The tool that is meant if `typed` begins with that server: `read` in `files.read`.
pub(crate) fn of_server<'a>(typed: &'a str, server: &str) -> Option<&'a str> {
    let rest = typed.strip_prefix(server).filter(|_| !server.is_empty())?;
    rest.strip_prefix(SIGNS).filter(|tool| !tool.is_empty())
}

/// The entry of that name.
pub(crate) fn entry<'a>(session: &Session<'_>, kind: Kind, entries: &[&'a Entry], typed: &str) -> Option<&'a Entry> {
    if let Some(exact) = entries.iter().copied().find(|entry| entry.name() == typed) {
        return Some(exact);
    }
    let servers = session.status();
    let mut meant = entries.iter().copied().filter(|entry| {
        let (alias, own) = session.owner(kind, entry);
        let name = servers.iter().find(|server| server.alias == alias).map_or("", |server| &server.name);
        // A tool that the config renamed has a name of its own behind the prefix.
        let renamed =
            |raw: &str| entry.name().strip_prefix(alias).is_some_and(|rest| rest.trim_start_matches('_') == raw);
        [alias, name].iter().filter_map(|server| of_server(typed, server)).any(|raw| raw == own || renamed(raw))
    });
    // Two names in a config may begin alike: then it is not clear which is meant.
    meant.next().filter(|_| meant.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_and_its_tool_are_told_apart() {
        let cases = [
            ("files.read", Some("read")),
            ("files/read", Some("read")),
            ("files read", Some("read")),
            ("files:read", Some("read")),
            ("files.read.all", Some("read.all")),
            ("files__read", None),
            ("files.", None),
            ("filesystem.read", None),
            ("other.read", None),
        ];
        for (typed, tool) in cases {
            assert_eq!(of_server(typed, "files"), tool, "{typed}");
        }
        assert_eq!(of_server("My Files.read", "My Files"), Some("read"));
        assert_eq!(of_server(".read", ""), None);
    }
}
