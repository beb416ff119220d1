//! Circles: a proxy that is a server in our config and also a client of our endpoint lists back what we gave it, one
//! prefix longer each time. Such definitions are left out, so that the list does not grow.
//!
//! A name is followed through the names that we show. If that leads back to a definition of the same server, with the
//! same description and arguments, it came through us. Hosts that identify themselves need no such guess
//! (`through.rs`).

use std::sync::Arc;

use super::Kind;
use super::offer::Definition;
use super::part::Part;
use super::servers::Servers;
use crate::protocol::Raw;

/// The most prefixes that are followed. Longer names do not fit anyway.
const PREFIXES: usize = 8;

/// Reports whether the definition is another definition of the same server that came back through us.
pub(super) fn closes(kind: Kind, servers: &Servers, from: &Part, definition: &Definition) -> bool {
    let mut name: &str = &definition.name;
    for _ in 0..PREFIXES {
        let Some(part) = leads_to(kind, servers, name) else { return false };
        let Some(inner) = part.prefixed(kind, name) else { return false };
        if part.server() == from.server() {
            return is_same(kind, &definition.json, &inner.json);
        }
        name = &inner.name;
    }
    false
}

fn leads_to<'a>(kind: Kind, servers: &'a Servers, name: &str) -> Option<&'a Arc<Part>> {
    if kind.has_names() { servers.by_alias(servers.bearer(name)?.as_str()) } else { servers.by_alias(head(name)?) }
}

/// Returns the text at the start of a URI where an alias would be.
pub(super) fn head(uri: &str) -> Option<&str> {
    Some(uri.split_once('+')?.0)
}

fn is_same(kind: Kind, one: &Raw, other: &Raw) -> bool {
    let rest = match kind {
        Kind::Tools => "inputSchema",
        Kind::Prompts => "arguments",
        Kind::Resources | Kind::ResourceTemplates => "mimeType",
    };
    one.members(["description", rest]) == other.members(["description", rest])
}
