//! `mcp-host token`: creates a bearer token for a client of the endpoint, or for its metrics. The token is shown once.
//! The user puts its hash into the config; this command changes no file.

use std::ffi::OsStr;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use mcp_host::config::{BearerClient, Config, HostAuth};
use serde::Serialize;

use crate::args::{Common, Token};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers::Plan;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Minted<'a> {
    /// The client's name; `None` of a token for metrics.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    token: &'a str,
    hash: &'a str,
    /// The line for the config; `into` says where it belongs.
    line: &'a str,
    into: &'a str,
}

/// Creates a token for a client with this name. Returns the token and its hash.
pub(super) fn mint(name: &str) -> Result<(String, BearerClient), Failure> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| {
        Failure::new(Exit::Failed, format!("the system has no randomness: {error}")).help("run it again")
    })?;
    let token = format!("mcph_{}", BASE64_URL_SAFE_NO_PAD.encode(bytes));
    let client = BearerClient::of_token(name, &token).ok_or_else(|| {
        let failure = Failure::new(Exit::Usage, "a client cannot be called that");
        failure.help("use up to 64 letters, digits, `.`, `-` and `_`")
    })?;
    Ok((token, client))
}

pub(crate) fn run(args: &Token, common: &Common, output: &Output) -> Result<Exit, Failure> {
    // A token for metrics has no name. Only its hash is used, which does not depend on the name.
    let named = args.name.as_deref().unwrap_or("metrics");
    let (token, client) = mint(named)?;
    // A config that is missing, or incomplete without this token, does not prevent making a token.
    let config = Plan::load(common, false, None).map(|plan| plan.config).unwrap_or_default();
    let file = config.files.last().or(common.config.last());
    let syntax = file.and_then(|file| file.extension()).and_then(OsStr::to_str).unwrap_or_default();
    let hash = client.to_string();
    let (into, line) = match args.metrics {
        true => line_for_metrics(syntax, &hash),
        false => line(&config, syntax, &client.name, &hash),
    };
    if output.json {
        output.value(&Minted { name: args.name.as_deref(), token: &token, hash: &hash, line: &line, into })?;
        return Ok(Exit::Ok);
    }
    output.line(&token)?;
    let who = if args.metrics { "whoever scrapes /metrics" } else { "the client" };
    output.talk(&format!("this is shown once; {who} sends it as `Authorization: Bearer TOKEN`"));
    output.talk(&format!("put this line into `{into}` of the config:"));
    output.whole(&line);
    Ok(Exit::Ok)
}

/// The key of the hash in `host.metrics`.
const KEY: &str = "token";

/// Returns the place for the token for metrics in the config, and the line for it.
fn line_for_metrics(syntax: &str, hash: &str) -> (&'static str, String) {
    let line = match syntax {
        "toml" => format!("{KEY} = {hash:?}"),
        "yaml" | "yml" => format!("{KEY}: {hash:?}"),
        _ => format!("{KEY:?}: {hash:?},"),
    };
    ("host.metrics", line)
}

/// Returns the place for the client in the config, and the line for it.
fn line(config: &Config, syntax: &str, name: &str, hash: &str) -> (&'static str, String) {
    let has_clients = matches!(config.host.auth, HostAuth::Bearer(_));
    let toml_name = if name.contains('.') { format!("{name:?}") } else { name.to_owned() };
    match (has_clients, syntax) {
        (true, "toml") => ("host.auth.clients", format!("{toml_name} = {hash:?}")),
        (true, "yaml" | "yml") => ("host.auth.clients", format!("{name:?}: {hash:?}")),
        (true, _) => ("host.auth.clients", format!("{name:?}: {hash:?},")),
        (false, "toml") => ("host", format!("auth = {{ type = \"bearer\", clients = {{ {toml_name} = {hash:?} }} }}")),
        (false, "yaml" | "yml") => ("host", format!("auth: {{ type: bearer, clients: {{ {name:?}: {hash:?} }} }}")),
        (false, _) => ("host", format!("\"auth\": {{ \"type\": \"bearer\", \"clients\": {{ {name:?}: {hash:?} }} }},")),
    }
}
