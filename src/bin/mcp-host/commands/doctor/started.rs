//! Checks D05 to D11: starts each server once, and examines what it lists.

use std::collections::BTreeMap;

use mcp_host::admin::{SignIn, SignInReply};
use mcp_host::{ServerStatus, StateName};

use super::finding::{Finding, LOGIN, NAMES, REVISION, SCHEMAS, START, TLS, TOKENS};
use crate::args::Common;
use crate::commands::clients::Linked;
use crate::output::Output;
use crate::report::Failure;
use crate::servers::Plan;
use crate::session::{Session, failure};
use crate::text::{self, quoted};

/// A start that takes longer than this makes clients wait.
const SLOW: u64 = 10_000;
/// The longest name for Claude Code and others: they add their own prefix, and allow 64 characters in total.
const LONGEST: usize = 64;
const PREFIX: &str = "mcp__mcp-host__";
/// The revision that clients are dropping.
const OLD: &str = "2024-11-05";

pub(super) async fn look(
    plan: Plan,
    linked: &[Linked],
    common: &Common,
    output: &Output,
) -> Result<Vec<Finding>, Failure> {
    let again = common.again(false);
    let slow: BTreeMap<String, u64> = plan
        .config
        .servers
        .iter()
        .map(|server| (server.name.clone(), SLOW.min(server.start_timeout.as_millis().try_into().unwrap_or(SLOW))))
        .collect();
    let session = Box::pin(Session::look_alone(plan, again.clone(), output)).await?;
    let mut found: Vec<Finding> = Vec::new();
    for status in session.status() {
        let slow = slow.get(&status.name).copied().unwrap_or(SLOW);
        match status.state {
            StateName::Unauthorized => found.push(login(&session, &status, &again).await),
            _ => found.extend(of_server(&status, slow, &again)),
        }
    }
    found.extend(names(&session, linked, &again));
    if let Ok(SignInReply::Holdings(held)) = session.host.sign_in(SignIn::Holdings {}).await {
        for server in held.servers {
            let is_told = found.iter().any(|finding| finding.server.as_ref() == Some(&server.name));
            if server.holding.is_some_and(|held| held.expires_in == 0 && !held.renewable) && !is_told {
                let what = format!("the token for `{}` has expired and cannot be renewed", server.name);
                let help = format!("mcp-host login {}{again}", quoted(&server.name));
                found.push(Finding::warn(TOKENS, what, help).of(&server.name));
            }
        }
    }
    session.close().await;
    Ok(found)
}

/// Checks whether a login to the server would work, by all steps that change nothing.
async fn login(session: &Session<'_>, status: &ServerStatus, again: &str) -> Finding {
    let name = &status.name;
    let help = format!("mcp-host login {}{again}", quoted(name));
    let finding = match session.host.sign_in(SignIn::Rehearse { server: name.clone() }).await {
        Ok(SignInReply::Rehearsed(login)) => {
            let what = format!("`{name}` wants a login: {} would sign you in", login.issuer);
            Finding::warn(LOGIN, what, help)
        }
        Ok(_) => {
            let what = failure(status, again).map_or_else(String::new, |failure| failure.first());
            Finding::warn(LOGIN, what, help)
        }
        Err(refused) => Finding::fail(LOGIN, format!("a login would fail: {refused}"), format!("{help} -v")),
    };
    finding.of(name)
}

/// Judges the start of a server.
fn of_server(status: &ServerStatus, slow: u64, again: &str) -> Vec<Finding> {
    let name = &status.name;
    let closer = format!("mcp-host check {} --connect{again}", quoted(name));
    if let Some(failure) = failure(status, again) {
        let cause = status.last_error.as_deref().unwrap_or_default().to_ascii_lowercase();
        let is_tls =
            ["certificate", "tls", "ssl", "corrupt message", "handshake"].iter().any(|word| cause.contains(word));
        let (check, help) = match is_tls {
            true => (TLS, format!("mcp-host get {} shows its URL and its `tls`", quoted(name))),
            false => (START, closer),
        };
        return std::iter::once(Finding::fail(check, failure.first(), help).of(name)).chain(refused(status)).collect();
    }
    let mut found: Vec<Finding> = refused(status).into_iter().collect();
    if let Some(took) = status.ready_after_ms.filter(|took| *took > slow) {
        let what = format!("`{name}` took {} s to start", took / 1000);
        found.push(Finding::warn(START, what, closer).of(name));
    }
    if status.noise > 0 {
        let lines = text::count(status.noise, "line");
        let what =
            format!("`{name}` printed {lines} on standard output that are no messages: its log belongs on stderr");
        found.push(Finding::warn(START, what, format!("mcp-host logs {}{again}", quoted(name))).of(name));
    }
    if let Some(revision) = status.revision.as_deref().filter(|revision| *revision <= OLD) {
        let what = format!("`{name}` speaks revision {revision}, the oldest one: update it");
        found.push(Finding::warn(REVISION, what, format!("mcp-host status {}{again}", quoted(name))).of(name));
    }
    for problem in &status.problems {
        let what = format!("`{name}`: {problem}");
        found.push(Finding::warn(SCHEMAS, what, format!("mcp-host tools {}{again}", quoted(name))).of(name));
    }
    found
}

/// Returns a finding about the hosts that a server's sandbox refused.
fn refused(status: &ServerStatus) -> Option<Finding> {
    let hosts: Vec<&str> = status.refused_hosts.keys().map(String::as_str).collect();
    let what = format!("the sandbox of `{}` refused {}", status.name, hosts.join(", "));
    let help = "list what it is to reach in its entry: \"sandbox\": { \"network\": [\"…\"] }";
    (!hosts.is_empty()).then(|| Finding::warn(START, what, help).of(&status.name))
}

/// Compares the names and the number of all tools with what clients accept.
fn names(session: &Session<'_>, linked: &[Linked], again: &str) -> Vec<Finding> {
    let catalog = session.host.catalog();
    let mut found = Vec::new();
    let long = catalog.tools().iter().filter(|tool| PREFIX.len() + tool.name().chars().count() > LONGEST).count();
    if long > 0 {
        let most = LONGEST - PREFIX.len();
        let what = format!("{long} tools have names of more than {most} characters, which some clients refuse");
        found.push(Finding::warn(NAMES, what, format!("set host.naming.maxLength to {most}")));
    }
    let count = catalog.tools().len();
    for client in linked {
        if let Some(most) = client.most_tools.filter(|most| *most < count) {
            let what = format!("{} takes {most} tools, and there are {count}", client.name);
            found.push(Finding::warn(
                NAMES,
                what,
                format!("mcp-host tools{again} lists them; host.views shows it fewer"),
            ));
        }
    }
    found
}
