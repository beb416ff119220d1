//! Decides whether two entries are the same server, by what they start or connect to, not by name.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use mcp_host::config::import::Entry;
use mcp_host::config::{Remote, Secret, Server, Stdio, Transport};
use mcp_host::redact::looks_secret;
use url::Url;

/// An entry in our format, and as parsed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Endpoint<'a> {
    pub(super) entry: Option<&'a Entry>,
    pub(super) server: &'a Server,
}

/// Reports whether two entries are the same server with the same account: the same program, arguments and names of
/// variables, or the same URL.
pub(super) fn same(one: Endpoint<'_>, other: Endpoint<'_>) -> bool {
    if one.entry.is_some() && one.entry == other.entry {
        return true;
    }
    match (&one.server.transport, &other.server.transport) {
        (Transport::Stdio(one), Transport::Stdio(other)) => is_same_program(one, other),
        (one, other) => match (remote(one), remote(other)) {
            (Some(one), Some(other)) => {
                address(&one.url).is_some()
                    && address(&one.url) == address(&other.url)
                    && is_same_account(&one.headers, &other.headers)
            }
            _ => false,
        },
    }
}

fn remote(transport: &Transport) -> Option<&Remote> {
    match transport {
        Transport::Http(remote) | Transport::Sse(remote) | Transport::Auto(remote) => Some(remote),
        _ => None,
    }
}

/// Returns the parts of a URL that identify the endpoint; `None` if the URL contains a variable without a value.
fn address(url: &Url) -> Option<(String, String, Option<String>)> {
    let is_known = url.host_str().is_some_and(|host| !host.ends_with(".invalid"));
    is_known.then(|| {
        let path = url.path().trim_end_matches('/').to_owned();
        (url.origin().ascii_serialization(), path, url.query().map(str::to_owned))
    })
}

fn is_same_program(one: &Stdio, other: &Stdio) -> bool {
    let names = |stdio: &Stdio| -> BTreeSet<String> {
        stdio.env.iter().map(|(name, _)| name.clone()).chain(stdio.forward_env.iter().cloned()).collect()
    };
    program(one) == program(other)
        && one.args == other.args
        && one.cwd == other.cwd
        && names(one) == names(other)
        && is_same_account(&one.env, &other.env)
}

/// Returns the path of a program, because one client may have the path and another the name.
fn program(stdio: &Stdio) -> PathBuf {
    let named = Path::new(&stdio.command);
    if named.components().count() > 1 {
        return named.to_owned();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(named)).find(|file| file.is_file());
    found.unwrap_or_else(|| named.to_owned())
}

/// Reports whether every credential that both entries name has the same value.
fn is_same_account(one: &[(String, Secret)], other: &[(String, Secret)]) -> bool {
    let differs = |(name, value): &(String, Secret)| {
        let twin = other.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        twin.is_some_and(|(_, twin)| value.expose() != twin.expose() && is_credential(name, value))
    };
    !one.iter().any(differs)
}

fn is_credential(name: &str, value: &Secret) -> bool {
    let name = name.to_ascii_uppercase();
    let telling = ["TOKEN", "SECRET", "PASSWORD", "KEY", "AUTH", "CREDENTIAL"];
    looks_secret(value.expose()) || telling.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same_servers(one: impl Into<Transport>, other: impl Into<Transport>) -> bool {
        let (one, other) = (Server::new("a", one).unwrap(), Server::new("b", other).unwrap());
        same(Endpoint { entry: None, server: &one }, Endpoint { entry: None, server: &other })
    }

    #[test]
    fn the_endpoint_counts_and_not_the_name() {
        let npx = || Stdio::new("npx").args(["-y", "x"]);
        assert!(same_servers(npx(), npx()) && !same_servers(npx(), npx().args(["--all"])));
        assert!(!same_servers(npx(), npx().env("DB", "x")), "other variables");
        assert!(same_servers(npx().env("LEVEL", "a"), npx().env("LEVEL", "b")), "a setting");
        assert!(!same_servers(npx().env("API_TOKEN", "a"), npx().env("API_TOKEN", "b")), "another account");
        assert!(!same_servers(npx().cwd("/a"), npx().cwd("/b")));
        let url = |url: &str| Transport::Auto(Remote::new(url.parse().unwrap()));
        assert!(same_servers(url("https://a.example/mcp"), url("https://A.example:443/mcp/")));
        assert!(!same_servers(url("https://a.example/mcp"), url("https://a.example/mcp?team=2")));
        assert!(!same_servers(url("https://unresolved.invalid/"), url("https://unresolved.invalid/")));
        assert!(!same_servers(url("https://a.example/mcp"), npx()));
    }
}
