//! The driver that the official conformance suite starts to test a client, built on the crate's public API: a host with
//! one server. `tests/conformance/run` hands it to the suite.
//!
//! `conformance_client URL`; `MCP_CONFORMANCE_SCENARIO` says what to do there, `MCP_CONFORMANCE_PROTOCOL_VERSION` which
//! revision to speak, `MCP_CONFORMANCE_CONTEXT` what else a scenario needs. Exits with 0 if everything succeeded.

use std::env;
use std::error::Error as StdError;
use std::time::Duration;

use futures_util::future::{BoxFuture, try_join_all};
use mcp_host::auth::Interaction;
use mcp_host::config::{
    Auth, Config, Enterprise, Era, Grant, OAuth, Prefix, Remote, Secret, SecretSource, Server, Transport,
};
use mcp_host::protocol::{Profile, ProtocolVersion, Raw};
use mcp_host::{Catalog, ClientHandler, ElicitAnswer, Elicitation, Entry, Host, StateName};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use url::Url;

type Result<T, E = Box<dyn StdError>> = std::result::Result<T, E>;

/// How long one call may take; the suite gives a scenario 30 s.
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let url = env::args().nth(1).ok_or("usage: conformance_client URL")?;
    let scenario = env::var("MCP_CONFORMANCE_SCENARIO").unwrap_or_else(|_| "initialize".to_owned());
    let version = env::var("MCP_CONFORMANCE_PROTOCOL_VERSION").unwrap_or_else(|_| "2025-11-25".to_owned());
    let version = ProtocolVersion::parse(&version).ok_or("MCP_CONFORMANCE_PROTOCOL_VERSION is not a revision")?;
    let builder = Host::builder().config(config(&url, &scenario, version)?);
    let host = builder.client_handler(Agreeable).interaction(Follower::new()?).start().await?;
    let done = run(&host, &scenario).await;
    host.shutdown().await;
    done
}

/// One server, under its own names.
fn config(url: &str, scenario: &str, version: ProtocolVersion) -> Result<Config> {
    let mut remote = Remote::new(url.parse()?);
    remote.auth = Auth::OAuth(Box::new(oauth(scenario)?));
    let mut server = Server::new("suite", Transport::Http(remote))?;
    server.prefix = Prefix::Never;
    server.era = if version.is_modern() { Era::Modern } else { Era::Legacy };
    Ok(Config { servers: vec![server], ..Config::default() })
}

/// Returns what a scenario provides for a login in advance.
fn oauth(scenario: &str) -> Result<OAuth> {
    let mut oauth = OAuth::default();
    // The suite knows this document, and that no one can fetch it.
    oauth.client_metadata_url = match scenario {
        "auth/basic-cimd" => Some("https://conformance-test.local/client-metadata.json".parse()?),
        _ => None,
    };
    let Ok(text) = env::var("MCP_CONFORMANCE_CONTEXT") else { return Ok(oauth) };
    let Ok(given) = serde_json::from_str::<Login>(&text) else { return Ok(oauth) };
    let secret = |text: String| SecretSource::Given(Secret::new(text));
    oauth.client_id = given.client_id;
    oauth.client_secret = given.client_secret.map(Secret::new);
    oauth.private_key = given.private_key_pem.map(secret);
    oauth.issuer = given.issuer;
    oauth.grant = match (given.idp_id_token, given.idp_token_endpoint, given.valid_jwt) {
        (Some(token), Some(endpoint), _) => {
            let client = given.idp_client_id.unwrap_or_default();
            Grant::Enterprise(Box::new(Enterprise::new(endpoint.parse()?, client, secret(token))))
        }
        (_, _, Some(token)) => Grant::Workload(secret(token)),
        _ if scenario.starts_with("auth/client-credentials-") => Grant::ClientCredentials,
        _ => Grant::Code,
    };
    Ok(oauth)
}

/// What the suite provides for a login.
#[derive(Deserialize)]
struct Login {
    client_id: Option<String>,
    client_secret: Option<String>,
    private_key_pem: Option<String>,
    issuer: Option<String>,
    idp_client_id: Option<String>,
    idp_id_token: Option<String>,
    idp_token_endpoint: Option<String>,
    valid_jwt: Option<String>,
}

/// A user who agrees to every login: it requests the page, which redirects the browser at once.
struct Follower(reqwest::Client);

impl Follower {
    fn new() -> Result<Self> {
        // Fails only if a provider is installed already, which is just as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Ok(Self(reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?))
    }
}

impl Interaction for Follower {
    fn redirect_uri(&self) -> Url {
        // Nothing listens there: the redirect is read, not followed.
        "http://127.0.0.1:8799/callback".parse().expect("a URL")
    }

    fn authorize(&self, _: &str, page: Url) -> BoxFuture<'static, Result<String, String>> {
        let request = self.0.get(page);
        Box::pin(async move {
            let answer = request.send().await.map_err(|error| error.to_string())?;
            let location = answer.headers().get("location").and_then(|value| value.to_str().ok());
            location.map(str::to_owned).ok_or_else(|| format!("the page answered {}", answer.status()))
        })
    }
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
        // Listing is all; this tool must not be called.
        "json-schema-ref-no-deref" => Ok(()),
        // Every list was read, and every listed item is requested.
        _ => try_everything(host, &catalog).await,
    }
}

/// Calls every tool concurrently, gets every prompt, reads every resource.
async fn try_everything(host: &Host, catalog: &Catalog) -> Result<()> {
    let calls = catalog.tools().iter().map(|tool| host.call_tool(tool.name(), arguments(tool)));
    let prompts = catalog.prompts().iter().map(|prompt| host.get_prompt(prompt.name(), Raw::empty_object()));
    let reads = catalog.resources().iter().map(|resource| host.read_resource(resource.name()));
    try_join_all(calls.chain(prompts).chain(reads).map(|call| call.timeout(PATIENCE).into_future())).await?;
    Ok(())
}

/// Returns a value for each argument that a tool requires.
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

/// Agrees to every question.
#[derive(Debug)]
struct Agreeable;

impl ClientHandler for Agreeable {
    fn profile(&self) -> Profile {
        Profile::ELICITATION_FORM
    }

    async fn elicit(&self, question: Elicitation) -> ElicitAnswer {
        let fields = question.schema().and_then(|schema| schema.member("properties")?.read().ok());
        ElicitAnswer::accept(consent(fields.unwrap_or_default()))
    }
}

/// Fills in every field without a default; fields with one keep it.
fn consent(fields: Map<String, Value>) -> Value {
    let open = fields.into_iter().filter(|(_, field)| field["default"].is_null() && field["type"] == "boolean");
    open.map(|(name, _)| (name, json!(true))).collect()
}
