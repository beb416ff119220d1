//! How the server asks its client: by requests, by results, or according to the client's era.

use mcp_host::InProcess;

use crate::words::{failure, tool};

/// The ways in which a server asks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ways {
    /// By requests to clients with a session, by results to others. The crate's endpoints translate between the two.
    Both,
    /// By requests only.
    Requests,
    /// By results only.
    Results,
}

/// A tool that cannot ask here, and says so.
pub(crate) fn without(server: InProcess, name: &str, why: &str) -> InProcess {
    let result = failure(&format!("{name} cannot ask its client here: it {why}"));
    server.tool(tool(name, "Asks its client in another era of the protocol.", &[]), move |_| {
        let result = result.clone();
        Box::pin(async { Ok(result) })
    })
}
