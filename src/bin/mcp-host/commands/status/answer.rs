//! The answer of a daemon, as far as it is shown. Written to be read by an older or newer program.

use serde::Deserialize;

use crate::report::{Exit, Failure};

/// What a daemon says.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Answer {
    pub(super) config: Config,
    pub(super) servers: Vec<Row>,
    pub(super) clients: Vec<Client>,
    pub(super) limits: Vec<Limit>,
}

/// How much of a limit is taken.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Limit {
    pub(super) limit: String,
    pub(super) used: u64,
    pub(super) cap: u64,
    pub(super) unit: Option<String>,
}

/// Where it does not go by what the files say now.
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
    pub(super) revision: Option<String>,
    pub(super) transport: String,
    pub(super) server_info: Option<ServerInfo>,
    pub(super) leases: u64,
    /// What it asks clients, and why it has so many connections.
    pub(super) sharing: Vec<String>,
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
    pub(super) degraded: bool,
    pub(super) ready_after_ms: Option<u64>,
    pub(super) pids: Vec<u32>,
    pub(super) dropped: u64,
    /// The last lines of its standard error.
    pub(super) stderr: Vec<String>,
}

/// What a server says of itself.
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

impl Answer {
    pub(super) fn read(line: &str) -> Result<Self, Failure> {
        serde_json::from_str(line).map_err(|error| {
            let failure =
                Failure::new(Exit::Failed, format!("the mcp-host that runs answered something else: {error}"));
            failure.help("it may be an older one: stop it, and start this one")
        })
    }
}

impl Row {
    /// How long ago its last error was.
    pub(super) fn error_age(&self) -> Option<u64> {
        self.last_error_ms
    }

    /// Whether its last error stands. An older daemon does not say; then one that is not connected has not got over it.
    pub(super) fn error_stands(&self) -> bool {
        self.last_error_current.unwrap_or(self.state != "connected")
    }
}
