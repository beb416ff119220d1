//! Kinds of transport in words for people.

use mcp_host::config::Transport;

/// Returns the kind of transport in one word.
pub(crate) fn kind(transport: &Transport) -> &'static str {
    match transport {
        Transport::Stdio(_) => "stdio",
        Transport::Sse(_) => "sse",
        _ => "http",
    }
}
