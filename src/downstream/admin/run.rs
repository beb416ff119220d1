//! One run of a daemon: when it began, where it listens, and its id.

use std::net::SocketAddr;
use std::time::{Instant, SystemTime};

use serde::Serialize;

use crate::hex;
use crate::record::unix_ms;
use crate::router::Router;

/// One run of a daemon.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// The address that the daemon serves; `None` if it has no port.
    pub(super) listen: Option<SocketAddr>,
    pub(super) since: Instant,
    /// Identifies this run of the daemon: a client that reconnects can tell whether it meets the same run.
    pub(super) boot: String,
}

/// A daemon's description of itself at the start of a feed.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Hello {
    version: &'static str,
    pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    listen: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    started_at: u64,
    boot: String,
}

impl Run {
    /// Begins a run.
    pub(crate) fn new(listen: Option<SocketAddr>) -> Self {
        let mut bytes = [0u8; 8];
        // Without random bytes, the process id still tells daemons apart.
        if getrandom::fill(&mut bytes).is_err() {
            bytes = u64::from(std::process::id()).to_be_bytes();
        }
        Self { listen, since: Instant::now(), boot: hex::encode(&bytes) }
    }

    /// Returns the daemon's description of itself.
    pub(crate) fn hello(&self, router: &Router) -> Hello {
        let scheme = if router.manager().settings().tls.is_some() { "https" } else { "http" };
        Hello {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            listen: self.listen,
            url: self.listen.map(|listen| format!("{scheme}://{listen}/mcp")),
            started_at: SystemTime::now().checked_sub(self.since.elapsed()).map_or(0, unix_ms),
            boot: self.boot.clone(),
        }
    }
}
