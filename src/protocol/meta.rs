//! The `_meta` keys that the protocol and the host use.

/// The prefix of the protocol's keys.
pub(crate) const PREFIX: &str = "io.modelcontextprotocol/";
/// The revision of a request (2026-07-28).
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// The capabilities of the client during a request (2026-07-28).
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The client that sends a request (2026-07-28); shown, never trusted.
pub(crate) const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// The lowest level of log lines that a request wants (2026-07-28).
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// The server that answers (2026-07-28); shown, never trusted.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// The id of the `subscriptions/listen` that a message belongs to (2026-07-28).
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
/// The task that a message belongs to (2025-11-25).
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// The prefix of the host's own keys. Servers cannot use them (`ours.rs`).
pub(crate) const OURS: &str = "mcp-host/";
/// The details of a failure in the host: in the `_meta` of a tool result, or in the `data` of an error.
pub(crate) const HOST_ERROR: &str = "mcp-host/error";
/// The name of the server behind the host, for people to read.
pub(crate) const HOST_SERVER_INFO: &str = "mcp-host/serverInfo";
/// The id of the host that answers `initialize` or `server/discover`.
pub(crate) const HOST_ID: &str = "mcp-host/id";
/// The ids of the hosts that a definition came through, nearest first. Each host adds the host that it got the
/// definition from.
pub(crate) const HOST_PATH: &str = "mcp-host/path";
/// Marks a heartbeat: progress of the host itself. Tells how long the server has been silent.
pub(crate) const HEARTBEAT: &str = "mcp-host/heartbeat";
/// In a result: how old the answer is, which the host gave before. In a request, `"bypass"`: the answer must be new.
pub(crate) const CACHE: &str = "mcp-host/cache";
/// In a result: the tool that `call_tool` called.
pub(crate) const TOOL: &str = "mcp-host/tool";
/// In a result that was cut: the id by which the rest is read, and how much it is.
pub(crate) const CUT: &str = "mcp-host/cut";
/// In a result: which tool answered in place of the called one, and why.
pub(crate) const FALLBACK: &str = "mcp-host/fallback";
/// The key that a server wants its question to have in `inputRequests`: the only key of ours that servers may send in one.
pub(crate) const INPUT_KEY: &str = "mcp-host/inputKey";
/// In the params of a question: the host itself asks, in its own words.
pub(crate) const HOST_ASKS: &str = "mcp-host/asks";
/// A word with which a client separates itself from other clients of the same person.
pub(crate) const AFFINITY: &str = "mcp-host/affinity";
