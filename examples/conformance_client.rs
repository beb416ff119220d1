//! The driver that the official conformance suite starts to test a client, on the crate's own public parts: a host with one
//! server. `tests/conformance/run` hands it to the suite.
//!
//! `conformance_client URL`; `MCP_CONFORMANCE_SCENARIO` says what to do there, `MCP_CONFORMANCE_PROTOCOL_VERSION` which era to
//! speak, `MCP_CONFORMANCE_CONTEXT` what a scenario needs beside. Ends with 0 if all that was to be done could be done.

use std::env;
use std::error::Error as StdError;
use std::time::Duration;

use futures_util::future::{BoxFuture, try_join_all};
use mcp_host::config::{Config, Era, Prefix, Remote, Server, Transport};
use mcp_host::protocol::{ErrorObject, Method, Outcome, Profile, ProtocolVersion, Raw};
use mcp_host::{Catalog, ClientHandler, Entry, Host, StateName};
use serde::Deserialize;
use serde_json::{Map, Value, json};

type Result<T, E = Box<dyn StdError>> = std::result::Result<T, E>;

/// What one call may take; the suite gives a scenario 30 s.
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let url = env::args().nth(1).ok_or("usage: conformance_client URL")?;
    let scenario = env::var("MCP_CONFORMANCE_SCENARIO").unwrap_or_else(|_| "initialize".to_owned());
    let version = env::var("MCP_CONFORMANCE_PROTOCOL_VERSION").unwrap_or_else(|_| "2025-11-25".to_owned());
    let version = ProtocolVersion::parse(&version).ok_or("MCP_CONFORMANCE_PROTOCOL_VERSION is no revision")?;
    let host = Host::builder().config(config(&url, version)?).client_handler(Agreeable).start().await?;
    let done = run(&host, &scenario).await;
    host.shutdown().await;
    done
}

/// One server, under its own names.
fn config(url: &str, version: ProtocolVersion) -> Result<Config> {
    let remote = Remote::new(url.parse()?);
    let mut server = Server::new("suite", Transport::Http(remote))?;
    server.prefix = Prefix::Never;
    server.era = if version.is_modern() { Era::Modern } else { Era::Legacy };
    Ok(Config { servers: vec![server], ..Config::default() })
}

async fn run(host: &Host, scenario: &str) -> Result<()> {
    host.settled().await;
    let catalog = host.catalog_ready().await;
    let status = host.status();
    if let Some(server) = status.iter().find(|server| server.state != StateName::Connected) {
        return Err(format!("the server is {}: {}", server.state, server.last_error.as_deref().unwrap_or("?")).into());
    }
    match scenario {
        "json-schema-2020-12-preservation" => echo_schema(host, &catalog).await,
        "http-custom-headers" => make_calls(host, &context()?).await,
        // To list is all; this tool is not there to be called.
        "json-schema-ref-no-deref" => Ok(()),
        // Every list was read, and everything in the lists is asked for.
        _ => try_everything(host, &catalog).await,
    }
}

/// Calls every tool at once, gets every prompt, reads every resource.
async fn try_everything(host: &Host, catalog: &Catalog) -> Result<()> {
    let calls = catalog.tools().iter().map(|tool| host.call_tool(tool.name(), arguments(tool)));
    let prompts = catalog.prompts().iter().map(|prompt| host.get_prompt(prompt.name(), Raw::empty_object()));
    let reads = catalog.resources().iter().map(|resource| host.read_resource(resource.name()));
    try_join_all(calls.chain(prompts).chain(reads).map(|call| call.timeout(PATIENCE).into_future())).await?;
    Ok(())
}

/// A value for each argument that a tool requires.
fn arguments(tool: &Entry) -> Raw {
    let schema: Value = tool.definition().member("inputSchema").and_then(|raw| raw.read().ok()).unwrap_or_default();
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let value = |name: &str| match schema["properties"][name]["type"].as_str() {
        Some("number" | "integer") => json!(7),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => json!("text"),
    };
    let given = required.iter().filter_map(Value::as_str).map(|name| (name.to_owned(), value(name)));
    Raw::from_value(&given.collect::<Map<_, _>>())
}

/// Sends a schema back as it was received.
async fn echo_schema(host: &Host, catalog: &Catalog) -> Result<()> {
    let mut tools = catalog.tools().iter();
    let focal = tools.find(|tool| tool.name() == "json_schema_2020_12_tool").ok_or("the tool is not listed")?;
    let schema = focal.definition().member("inputSchema").ok_or("the tool has no schema")?;
    let arguments = Raw::empty_object().with_member("schema", schema.as_bytes());
    host.call_tool("json_schema_echo", arguments).timeout(PATIENCE).await?;
    Ok(())
}

/// What the suite wants called.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Context {
    tool_calls: Vec<ToolCall>,
}

#[derive(Deserialize)]
struct ToolCall {
    name: String,
    arguments: Value,
}

fn context() -> Result<Context> {
    let text = env::var("MCP_CONFORMANCE_CONTEXT").map_err(|_| "MCP_CONFORMANCE_CONTEXT is not set")?;
    Ok(serde_json::from_str(&text)?)
}

async fn make_calls(host: &Host, context: &Context) -> Result<()> {
    for ToolCall { name, arguments } in &context.tool_calls {
        host.call_tool(name, Raw::from_value(arguments)).timeout(PATIENCE).await?;
    }
    Ok(())
}

/// Agrees to whatever it is asked.
#[derive(Debug)]
struct Agreeable;

impl ClientHandler for Agreeable {
    fn profile(&self) -> Profile {
        Profile::ELICITATION_FORM
    }

    fn request(&self, _: &str, method: Method, params: Option<Raw>) -> BoxFuture<'static, Outcome> {
        Box::pin(async move {
            if method != Method::Elicit {
                return Err(ErrorObject::method_not_found(method.as_str()));
            }
            let fields = params.and_then(|params| params.member("requestedSchema")?.member("properties")?.read().ok());
            let fields: Map<String, Value> = fields.unwrap_or_default();
            Ok(Raw::from_value(&json!({ "action": "accept", "content": consent(fields) })))
        })
    }
}

/// Yes to what is asked for without a default; what has one is left to it.
fn consent(fields: Map<String, Value>) -> Value {
    let open = fields.into_iter().filter(|(_, field)| field["default"].is_null() && field["type"] == "boolean");
    open.map(|(name, _)| (name, json!(true))).collect()
}
