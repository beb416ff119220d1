//! Writes an entry that was read from a client's file as an entry of our own config; pure.
//!
//! Settings that equal our defaults are left out. Keys that only our entries have are copied unchanged.

use std::time::Duration;

use super::remote;
use crate::config::syntax::{Node, Writer, list};
use crate::config::{Auth, OAuth, Remote, Secret, Server, Start, Stdio, Transport, transport};

/// The paths in an entry, made absolute so that they mean the same from any folder.
#[derive(Debug, Default)]
pub(super) struct Places {
    pub(super) cwd: Option<String>,
    pub(super) env_file: Option<String>,
}

/// Keys that are written from the parsed entry, or that mean something else in other files.
const HANDLED: [&str; 11] = [
    "callTimeout",
    "description",
    "disabled",
    "excludeTools",
    "includeTools",
    "maxCallTime",
    "restart",
    "start",
    "startTimeout",
    "tags",
    "tools",
];

/// Returns the entry. `node` is the client's entry with its references converted.
pub(super) fn node(server: &Server, node: &Node, places: &Places) -> Node {
    let mut entry = Writer::default();
    let mut excluded = server.exclude_tools.clone();
    match &server.transport {
        Transport::Stdio(stdio) => match remote::of(stdio) {
            Some(bridged) => {
                excluded.extend(bridged.excluded.iter().cloned());
                bridged.write(&mut entry);
            }
            None => process(stdio, places, &mut entry),
        },
        Transport::Http(remote) => at_url(remote, Some("http"), node, &mut entry),
        Transport::Sse(remote) => at_url(remote, Some("sse"), node, &mut entry),
        Transport::Auto(remote) => at_url(remote, None, node, &mut entry),
    }
    settings(server, &excluded, node, &mut entry);
    let keys = Server::keys();
    let own = node.members().unwrap_or_default().iter();
    for member in own.filter(|member| keys.contains(&member.key) && !HANDLED.contains(&member.key.as_str())) {
        entry.put(&member.key, member.node.clone());
    }
    entry.done()
}

fn process(stdio: &Stdio, places: &Places, entry: &mut Writer) {
    entry.text("command", &stdio.command);
    entry.list("args", &stdio.args);
    entry.pairs("env", stdio.env.iter().map(|(name, value)| (name.as_str(), value.expose())));
    entry.list("inheritEnv", &stdio.forward_env);
    entry.some("envFile", places.env_file.as_deref());
    entry.some("cwd", places.cwd.as_deref());
}

fn at_url(remote: &Remote, kind: Option<&str>, node: &Node, entry: &mut Writer) {
    entry.some("type", kind);
    // The URL as written, with its references.
    entry.text("url", transport::endpoint(node).unwrap_or_else(|| remote.url.as_str()));
    entry.pairs("headers", remote.headers.iter().map(|(name, value)| (name.as_str(), value.expose())));
    if let Some(helper) = &remote.headers_helper {
        let words: Vec<String> = std::iter::once(&helper.program).chain(&helper.args).cloned().collect();
        entry.list("headersHelper", &words);
        entry.list("inheritEnv", &helper.inherit_env);
    }
    if remote.insecure_http {
        entry.flag("insecureHttp", true);
    }
    if let Some(tls) = node.get("tls") {
        entry.put("tls", tls.clone());
    }
    let is_own = |auth: &Node| auth.get("type").is_some();
    let has_header = remote.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("Authorization"));
    match (&remote.auth, node.get("auth").filter(|auth| is_own(auth))) {
        // A header that comes from `auth` is among the headers already.
        (Auth::OAuth(_), Some(own)) => entry.put("auth", own.clone()),
        (Auth::OAuth(oauth), None) if **oauth != OAuth::default() => entry.put("auth", sign_in(oauth)),
        (Auth::Headers, None) if !has_header && remote.headers_helper.is_none() => entry.flag("oauth", false),
        _ => {}
    }
}

fn sign_in(oauth: &OAuth) -> Node {
    let mut auth = Writer::default();
    auth.text("type", "oauth");
    auth.some("clientId", oauth.client_id.as_deref());
    auth.some("clientSecret", oauth.client_secret.as_ref().map(Secret::expose));
    auth.list("scopes", &oauth.scopes);
    auth.done()
}

fn settings(server: &Server, excluded: &[String], node: &Node, entry: &mut Writer) {
    // A server with defaults for all settings.
    let Ok(plain) = Server::new(&server.name, server.transport.clone()) else { return };
    if server.include_tools != plain.include_tools {
        entry.put("includeTools", list(&server.include_tools));
    }
    entry.list("excludeTools", excluded);
    if server.start_timeout != plain.start_timeout {
        entry.text("startTimeout", &time(server.start_timeout));
    }
    if server.call_timeout != plain.call_timeout {
        entry.text("callTimeout", &time(server.call_timeout));
    }
    if server.max_call_time != plain.max_call_time.max(server.call_timeout) {
        entry.text("maxCallTime", &time(server.max_call_time));
    }
    if server.start == Start::Lazy {
        entry.text("start", "lazy");
    }
    match node.get("restart") {
        Some(own) => entry.put("restart", own.clone()),
        None if server.restart.max_retries != plain.restart.max_retries => {
            let mut restart = Writer::default();
            restart.number("maxRetries", server.restart.max_retries);
            entry.put("restart", restart.done());
        }
        None => {}
    }
    if let Some(rules) = node.get("tools").filter(|tools| tools.members().is_some()) {
        entry.put("tools", rules.clone());
    }
    if !server.tags.is_empty() {
        entry.put("tags", list(&server.tags));
    }
    entry.some("description", server.description.as_deref());
    if server.disabled.is_some() {
        entry.flag("disabled", true);
    }
}

/// Formats a duration with its unit.
fn time(time: Duration) -> String {
    match time.as_millis() {
        millis if millis % 1000 == 0 => format!("{}s", millis / 1000),
        millis => format!("{millis}ms"),
    }
}
