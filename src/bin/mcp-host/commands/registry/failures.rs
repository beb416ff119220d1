//! Why a server of a registry is not shown or installed, and what to do about it.

use mcp_host::install::Error;

use crate::report::{Exit, Failure};

pub(super) fn failed(error: &Error) -> Failure {
    let text = error.to_string();
    match error {
        Error::Unreachable { .. } => Failure::new(Exit::Unreachable, text)
            .help("look at the network and the proxy, or name a registry within reach: host.registry.url"),
        Error::Unknown { .. } => Failure::new(Exit::Usage, text).help("mcp-host search WORDS finds servers"),
        Error::Value { .. } => Failure::new(Exit::Usage, text).help("mcp-host show NAME shows what it wants to know"),
        Error::Entry { .. } => Failure::new(Exit::Failed, text).help(
            "nothing was written; tell its publisher, or give the command yourself: mcp-host add NAME -- COMMAND",
        ),
        Error::Tool { tool: "pip" | "uv", .. } => Failure::new(Exit::Failed, text)
            .help("nothing was written; a package without a wheel is built from source with --scripts"),
        Error::Tool { .. } => {
            Failure::new(Exit::Failed, text).help("nothing was written; look at the network, and try again")
        }
        Error::Lock { .. } | Error::Store { .. } => Failure::new(Exit::Failed, text)
            .help("nothing was written; mcp-host add NAME -- COMMAND adds it without a locked tree"),
        Error::Bundle { .. } => Failure::new(Exit::Failed, text).help("nothing was unpacked or written"),
        Error::Unsupported(_) => Failure::new(Exit::Failed, text)
            .help("nothing was written; mcp-host add NAME (URL | -- COMMAND) adds it by hand"),
        _ => Failure::new(Exit::Failed, text).help("nothing was written; try again later, or name another registry"),
    }
}
