//! Finds tool schemas that are not valid JSON Schemas, for people who look for the cause of odd calls.

use std::fmt;

use super::Host;
use crate::keep;
use crate::protocol::Theirs;

/// A tool schema that cannot be used to validate anything. The tool is still offered and called.
///
/// ```
/// # async fn show(host: &mcp_host::Host) {
/// for schema in host.invalid_schemas().await {
///     println!("{schema}");
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InvalidSchema {
    /// The name of the server in the config.
    pub server: String,
    /// The server's own name for the tool.
    pub tool: String,
    /// `inputSchema` or `outputSchema`.
    pub member: &'static str,
    /// What is wrong, as a predicate such as "is not a valid JSON Schema".
    pub reason: String,
}

impl fmt::Display for InvalidSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (server, tool) = (Theirs(&self.server), Theirs(&self.tool));
        write!(f, "server `{server}`, tool `{tool}`: its `{}` {}", self.member, self.reason)
    }
}

impl Host {
    /// Returns the invalid schemas of all listed tools, in config order. Compiles every schema, on the blocking pool.
    /// Never fetches a schema that another one refers to.
    ///
    /// # Cancel safety
    /// Dropping the wait changes nothing.
    pub async fn invalid_schemas(&self) -> Vec<InvalidSchema> {
        let mut offers = Vec::new();
        for server in self.0.manager.servers().iter() {
            let mut seen = Vec::new();
            for listed in server.upstreams().iter().filter_map(|upstream| upstream.listed()) {
                // The connections (leases) of one server mostly list the same tools.
                if !seen.contains(&listed.offer.hash()) {
                    seen.push(listed.offer.hash());
                    offers.push((server.config.name.clone(), listed.offer.clone()));
                }
            }
        }
        let check = move || {
            let mut found: Vec<InvalidSchema> = Vec::new();
            for (server, offer) in offers {
                for fault in offer.unvalidated() {
                    let (server, tool) = (server.clone(), fault.tool.to_string());
                    let schema = InvalidSchema { server, tool, member: fault.member, reason: fault.why.to_string() };
                    if !found.contains(&schema) {
                        found.push(schema);
                    }
                }
            }
            found
        };
        keep::done(check).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::InProcess;

    #[tokio::test]
    async fn schemas_that_are_not_valid_are_named_by_server_tool_and_member() {
        let tool = |name: &str, schema: serde_json::Value| json!({ "name": name, "inputSchema": schema }).into();
        let nothing = |_| -> futures_util::future::BoxFuture<'static, crate::Outcome> {
            Box::pin(async { Ok(json!({ "content": [] }).into()) })
        };
        let server = InProcess::new("plans", "1")
            .tool(tool("good", json!({ "type": "object" })), nothing)
            .tool(tool("bad", json!({ "type": "object", "minProperties": "two" })), nothing);
        let host = Host::builder().in_process("My Server", server).start().await.unwrap();
        host.catalog_ready().await;
        let found: Vec<_> = host.invalid_schemas().await.iter().map(ToString::to_string).collect();
        let expected =
            r#"server `My Server`, tool `bad`: its `inputSchema` is not a valid JSON Schema at "/minProperties""#;
        assert_eq!(found, [expected]);
        host.shutdown().await;
    }
}
