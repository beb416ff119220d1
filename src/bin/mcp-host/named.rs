//! A tool or prompt by the name that was typed: its own, or its server's and its own with `.`, `/`, `:` or a blank between them.
//!
//! **Invariant:** an exact name always wins. No name that clients see holds one of those signs, so nothing is ambiguous.

use mcp_host::Entry;
use mcp_host::registry::Kind;

use crate::servers::of_server;
use crate::session::Session;

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
