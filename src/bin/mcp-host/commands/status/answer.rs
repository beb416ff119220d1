//! The parts of a daemon's status that are shown. The daemon may be older or newer than this program.

use std::collections::BTreeMap;

use mcp_host::Ledger;
use mcp_host::protocol::ProtocolVersion;
use serde::Deserialize;

use crate::report::{Exit, Failure};

/// A daemon's status.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DaemonStatus {
    pub(super) config: Config,
    pub(super) servers: Vec<Row>,
    pub(super) clients: Vec<Client>,
    pub(super) limits: Vec<Limit>,
    pub(super) limited: Vec<AtRate>,
    pub(super) cache: Option<Cache>,
    pub(super) sessions: Option<Sessions>,
    pub(super) cluster: Option<Cluster>,
    pub(super) tokens: Vec<Ledger>,
}

/// What people should know of the sessions of clients.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Sessions {
    pub(super) why: Option<String>,
    pub(super) bound: u64,
}

/// What the daemon sees of its cluster.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Cluster {
    pub(super) mode: String,
    pub(super) replica: String,
    pub(super) peers: Vec<Peer>,
}

/// Another replica of a cluster.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Peer {
    pub(super) address: String,
    pub(super) replica: Option<String>,
    pub(super) why: Option<String>,
    pub(super) differs: bool,
    pub(super) leaves: bool,
}

/// How much is kept of the answers that calls may be given again.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Cache {
    pub(super) entries: u64,
    pub(super) bytes: u64,
    pub(super) size: u64,
}

/// What is at the limit of its rate.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct AtRate {
    pub(super) principal: Option<String>,
    pub(super) server: Option<String>,
    pub(super) tool: Option<String>,
    pub(super) view: Option<String>,
    pub(super) retry_after_ms: u64,
}

/// How much of a limit is in use.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Limit {
    pub(super) limit: String,
    pub(super) used: u64,
    pub(super) cap: u64,
    pub(super) unit: Option<String>,
}

/// Where the daemon's config differs from the files.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Config {
    pub(super) problems: Vec<String>,
    pub(super) pending: Vec<String>,
}

/// One server.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) alias: String,
    pub(super) state: String,
    pub(super) since_ms: u64,
    revision: Option<String>,
    revisions: Vec<String>,
    both_eras: bool,
    pub(super) transport: String,
    pub(super) server_info: Option<ServerInfo>,
    pub(super) leases: u64,
    /// What the server asks its clients, and why it has several connections.
    pub(super) sharing: Vec<String>,
    /// Schemas that calls cannot be checked against, and why.
    pub(super) unchecked: Vec<String>,
    pub(super) calls: u64,
    pub(super) calls_running: u64,
    pub(super) restarts: u64,
    pub(super) last_error: Option<String>,
    last_error_ms: Option<u64>,
    last_error_current: Option<bool>,
    pub(super) waiting_for: Option<String>,
    pub(super) tools: u64,
    pub(super) prompts: u64,
    pub(super) resources: u64,
    pub(super) resource_templates: u64,
    pub(super) problems: Vec<String>,
    /// Definitions that differ from what was approved.
    pub(super) changed: Vec<String>,
    /// How many of these are withheld.
    pub(super) withheld: u64,
    pub(super) degraded: bool,
    pub(super) ready_after_ms: Option<u64>,
    pub(super) pids: Vec<u32>,
    pub(super) dropped: u64,
    /// What keeps its process.
    pub(super) sandbox: Option<String>,
    /// Hosts that its sandbox refused, and how often.
    pub(super) refused_hosts: BTreeMap<String, u64>,
    /// The last lines of its standard error.
    pub(super) stderr: Vec<String>,
}

/// A server's description of itself.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ServerInfo {
    pub(super) name: Option<String>,
    pub(super) title: Option<String>,
    pub(super) version: Option<String>,
}

/// One client.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Client {
    pub(super) name: String,
    pub(super) version: Option<String>,
    pub(super) revision: String,
    pub(super) transport: String,
    pub(super) user: Option<String>,
    pub(super) since_ms: u64,
    pub(super) idle_ms: u64,
    pub(super) calls: u64,
}

impl DaemonStatus {
    pub(super) fn read(line: &str) -> Result<Self, Failure> {
        serde_json::from_str(line).map_err(|error| {
            let failure =
                Failure::new(Exit::Failed, format!("the running mcp-host sent an unexpected answer: {error}"));
            failure.help("it may be an older one: stop it, and start this one")
        })
    }
}

impl Row {
    /// Returns the protocol revisions in use; if the server speaks both eras, also which clients each is for.
    pub(super) fn revisions(&self) -> Vec<String> {
        let all = self.agreed();
        if !self.both_eras {
            return all;
        }
        let is_modern = |version: &str| ProtocolVersion::parse(version).is_some_and(ProtocolVersion::is_modern);
        let named = |modern: bool, whom: &str| {
            let version = all.iter().find(|version| is_modern(version) == modern);
            format!("{} {whom}", version.map_or("no connection now", String::as_str))
        };
        vec![named(true, "for clients without a session"), named(false, "for clients with a session")]
    }

    /// Returns all agreed revisions. Older daemons name only one.
    fn agreed(&self) -> Vec<String> {
        if self.revisions.is_empty() { self.revision.iter().cloned().collect() } else { self.revisions.clone() }
    }

    /// Returns the revisions in short form.
    pub(super) fn revisions_in_short(&self) -> String {
        match self.agreed().as_slice() {
            [] => "-".to_owned(),
            [one] if self.both_eras => format!("{one}, both eras"),
            all => all.join(", "),
        }
    }

    /// Returns the age of the last error in milliseconds, if the daemon says it.
    pub(super) fn error_age(&self) -> Option<u64> {
        self.last_error_ms
    }

    /// Reports whether the last error still applies. Older daemons do not say; their errors apply unless the server is
    /// connected.
    pub(super) fn error_stands(&self) -> bool {
        self.last_error_current.unwrap_or(self.state != "connected")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_of_both_eras_is_told_with_both() {
        let row = |text: &str| serde_json::from_str::<Row>(text).unwrap();
        let both = row(r#"{"revision": "2026-07-28", "revisions": ["2026-07-28", "2025-11-25"], "bothEras": true}"#);
        let (stateless, sessions) = ("for clients without a session", "for clients with a session");
        assert_eq!(both.revisions(), [format!("2026-07-28 {stateless}"), format!("2025-11-25 {sessions}")]);
        assert_eq!(both.revisions_in_short(), "2026-07-28, 2025-11-25");
        let one = row(r#"{"revision": "2026-07-28", "revisions": ["2026-07-28"], "bothEras": true}"#);
        assert_eq!(one.revisions(), [format!("2026-07-28 {stateless}"), format!("no connection now {sessions}")]);
        assert_eq!(one.revisions_in_short(), "2026-07-28, both eras");
        let older = row(r#"{"revision": "2025-11-25"}"#);
        assert_eq!(
            (older.revisions(), older.revisions_in_short().as_str()),
            (vec!["2025-11-25".to_owned()], "2025-11-25")
        );
        assert_eq!(row("{}").revisions_in_short(), "-");
    }
}
