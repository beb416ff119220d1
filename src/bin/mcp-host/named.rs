//! Finds a tool or prompt by a name that the user typed: the exposed name, or server and tool separated by `.`, `/`,
//! `:` or a blank.
//!
//! **Invariant:** an exact name always wins. No exposed name contains one of those separators, so nothing is ambiguous.

use mcp_host::Entry;
use mcp_host::registry::Kind;

use crate::servers::of_server;
use crate::session::Session;

/// Returns the entry that the typed name means; `None` if it means none or several.
pub(crate) fn entry<'a>(session: &Session<'_>, kind: Kind, entries: &[&'a Entry], typed: &str) -> Option<&'a Entry> {
    if let Some(exact) = entries.iter().copied().find(|entry| entry.name() == typed) {
        return Some(exact);
    }
    let servers = session.status();
    let mut meant = entries.iter().copied().filter(|entry| {
        let (alias, own) = session.owner(kind, entry);
        let name = servers.iter().find(|server| server.alias == alias).map_or("", |server| &server.name);
        // A tool that the config renamed has its new name after the prefix.
        let renamed =
            |raw: &str| entry.name().strip_prefix(alias).is_some_and(|rest| rest.trim_start_matches('_') == raw);
        [alias, name].iter().filter_map(|server| of_server(typed, server)).any(|raw| raw == own || renamed(raw))
    });
    // Two server names may begin alike. Then it is unclear which entry is meant.
    meant.next().filter(|_| meant.next().is_none())
}
