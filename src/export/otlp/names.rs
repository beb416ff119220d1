//! The names of attributes, spans, and metrics: those of the semantic conventions for MCP, and ours.

pub(super) const METHOD: &str = "mcp.method.name";
pub(super) const REVISION: &str = "mcp.protocol.version";
pub(super) const SESSION: &str = "mcp.session.id";
pub(super) const URI: &str = "mcp.resource.uri";
pub(super) const ID: &str = "jsonrpc.request.id";
pub(super) const OPERATION: &str = "gen_ai.operation.name";
pub(super) const EXECUTE_TOOL: &str = "execute_tool";
pub(super) const TOOL: &str = "gen_ai.tool.name";
pub(super) const PROMPT: &str = "gen_ai.prompt.name";
pub(super) const ARGUMENTS: &str = "gen_ai.tool.call.arguments";
pub(super) const RESULT: &str = "gen_ai.tool.call.result";
pub(super) const NETWORK: &str = "network.transport";
pub(super) const ERROR: &str = "error.type";
pub(super) const STATUS: &str = "rpc.response.status_code";
pub(super) const ADDRESS: &str = "server.address";
pub(super) const PORT: &str = "server.port";
pub(super) const SERVER: &str = "mcp_host.server";
pub(super) const ATTEMPT: &str = "mcp_host.attempt";
/// How long a call waited for its turn, in milliseconds.
pub(super) const WAITED: &str = "mcp_host.waited_ms";

pub(super) const START: &str = "mcp_host.server.start";
pub(super) const LOGIN: &str = "mcp_host.login";

pub(super) const SERVER_DURATION: &str = "mcp.server.operation.duration";
pub(super) const CLIENT_DURATION: &str = "mcp.client.operation.duration";
pub(super) const SERVER_SESSION: &str = "mcp.server.session.duration";
pub(super) const CLIENT_SESSION: &str = "mcp.client.session.duration";

pub(super) const SERVICE: &str = "service.name";
pub(super) const VERSION: &str = "service.version";
