//! The members of `_meta` that the protocol itself uses.

/// The beginning of every such name.
pub const PREFIX: &str = "io.modelcontextprotocol/";
/// The revision of a request (2026-07-28).
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// What may be asked of the client during a request (2026-07-28).
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// Who sends a request (2026-07-28); shown, never believed.
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// From which level on a request wants log lines (2026-07-28).
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// Who answers (2026-07-28); shown, never believed.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// The id of the `subscriptions/listen` that a message belongs to (2026-07-28).
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
/// The task that a message belongs to (2025-11-25).
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// The id of the host that answers `initialize` or `server/discover`: ours, not the protocol's.
pub(crate) const HOST_ID: &str = "mcp-host/id";
/// The ids of the hosts that a definition came through, nearest first: ours, not the protocol's.
pub(crate) const HOST_PATH: &str = "mcp-host/path";
