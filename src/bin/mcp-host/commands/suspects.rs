//! Finds servers whose process holds state that clients should not share, judging by their tools.

use mcp_host::Catalog;
use mcp_host::config::{Server, Sharing, Transport};

use crate::text;

/// The prefix of browser tools. All clients of one process see the same pages.
const BROWSER: &str = "browser_";
/// The option that gives each browser process its own profile.
const ISOLATED: &str = "--isolated";

/// Returns a line for each server whose clients may each want their own process.
pub(super) fn lines(servers: &[Server], catalog: &Catalog) -> Vec<String> {
    servers.iter().filter_map(|server| line(server, catalog)).collect()
}

fn line(server: &Server, catalog: &Catalog) -> Option<String> {
    if server.sharing != Sharing::Auto {
        return None;
    }
    let tools = catalog.tools().iter().filter(|tool| *tool.server() == server.alias);
    let names: Vec<&str> = tools.map(|tool| tool.raw_name()).filter(|name| name.starts_with(BROWSER)).collect();
    let first = names.first()?;
    let more = if names.len() > 1 { format!(" and {} more", names.len() - 1) } else { String::new() };
    let isolated = match &server.transport {
        Transport::Stdio(stdio) if !stdio.args.iter().any(|arg| arg == ISOLATED) => {
            format!(", with `{ISOLATED}` in its `args` if it is to keep their profiles apart")
        }
        _ => String::new(),
    };
    Some(format!(
        "help: clients share the browser of `{}` (`{}`{more}); `\"sharing\": \"session\"` gives each its own{isolated}",
        server.name,
        text::line(first)
    ))
}
