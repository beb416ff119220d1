//! The members of `_meta` that the protocol itself uses.

/// The beginning of every such name.
pub(crate) const PREFIX: &str = "io.modelcontextprotocol/";
/// The revision of a request (2026-07-28).
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// What may be asked of the client during a request (2026-07-28).
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// Who sends a request (2026-07-28); shown, never believed.
pub(crate) const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// From which level on a request wants log lines (2026-07-28).
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// Who answers (2026-07-28); shown, never believed.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// The id of the `subscriptions/listen` that a message belongs to (2026-07-28).
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
/// The task that a message belongs to (2025-11-25).
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// The beginning of the keys that are the host's own. Servers cannot use them (`ours.rs`).
pub(crate) const OURS: &str = "mcp-host/";
/// The details of a failure of the host: in `_meta` of a tool's result, in `data` of an error.
pub(crate) const HOST_ERROR: &str = "mcp-host/error";
/// The name of the server behind the host, for people to read.
pub(crate) const HOST_SERVER_INFO: &str = "mcp-host/serverInfo";
/// The id of the host that answers `initialize` or `server/discover`.
pub(crate) const HOST_ID: &str = "mcp-host/id";
/// The ids of the hosts that a definition came through, nearest first. Each host writes its own neighbor.
pub(crate) const HOST_PATH: &str = "mcp-host/path";
/// The key under which a server wants its question to be asked: the one key of ours that servers may send.
pub(crate) const INPUT_KEY: &str = "mcp-host/inputKey";
/// A word by which a client sets itself apart from other clients of the same person.
pub(crate) const AFFINITY: &str = "mcp-host/affinity";
