//! Definitions that servers have changed since they were approved (`docs/hazards.md` H85).

use std::path::Path;

use mcp_host::config::{Approval, Config, Server};
use mcp_host::pins::{self, DefinitionChange, Pins, Waiting, What};
use serde::Serialize;

use super::failed;
use crate::report::Failure;
use crate::text;

/// One definition, as `--json` prints it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Item<'a> {
    #[serde(skip)]
    server: &'a Server,
    #[serde(flatten)]
    shown: Waiting,
    approved: bool,
}

impl Item<'_> {
    /// Returns what it is, in words.
    pub(super) fn name(&self) -> String {
        subject(&self.shown)
    }
}

/// Returns the definitions of these servers that wait for approval and whose names match `glob`. Also returns a note for
/// each server with a lock: there the lock decides, not the user.
pub(super) async fn of<'a>(
    config: &'a Config,
    servers: impl Iterator<Item = &'a Server>,
    state: &Path,
    glob: Option<&str>,
) -> Result<(Vec<Item<'a>>, Vec<String>), Failure> {
    // A tool may imitate a tool of a server that the user did not ask about, so all servers are compared.
    let is_strict = config.host.approval_strict && config.host.approval != Approval::Off;
    let waiting = Pins::of(state).strict(is_strict).waiting(&config.servers).await.map_err(failed)?;
    let (locked, servers): (Vec<&Server>, Vec<&Server>) = servers.partition(|server| server.locked.is_some());
    let note = |server: &&Server| {
        let count = waiting.iter().filter(|shown| shown.server == server.name).count();
        let (name, what) = (text::line(&server.name), text::count(count, "definition"));
        (count > 0).then(|| {
            format!("note: not as locked: {what} of `{name}`; `mcp-host check --locked` shows how they differ")
        })
    };
    let notes = locked.iter().filter_map(note).collect();
    let item = |shown: Waiting| {
        let server = servers.iter().find(|server| server.name == shown.server)?;
        let is_meant = glob.is_none_or(|glob| pins::matches(glob, &shown));
        is_meant.then_some(Item { server, shown, approved: false })
    };
    Ok((waiting.into_iter().filter_map(item).collect(), notes))
}

/// Approves exactly what was shown.
pub(super) async fn accept(items: &mut [Item<'_>], state: &Path) -> Result<(), Failure> {
    let pins = Pins::of(state);
    for item in items.iter_mut() {
        item.approved = pins.approve(item.server, std::slice::from_ref(&item.shown)).await.map_err(failed)? > 0;
        if !item.approved {
            return Err(failed(format!("{} has changed once more since it was shown", subject(&item.shown))));
        }
    }
    Ok(())
}

/// Revokes approvals; returns how many definitions wait again.
pub(super) async fn revoke<'a>(
    servers: impl Iterator<Item = &'a Server>,
    state: &Path,
    glob: Option<&str>,
) -> Result<usize, Failure> {
    let pins = Pins::of(state);
    let mut count = 0;
    for server in servers {
        count += pins.revoke(server, glob).await.map_err(failed)?;
    }
    Ok(count)
}

/// Formats a definition: how it differs from what was approved.
pub(super) fn lines(item: &Item<'_>) -> Vec<String> {
    let shown = &item.shown;
    let is_new = shown.changes.iter().any(|change| change.before.is_none() && change.path.is_empty());
    let how = if is_new { "is not approved" } else { "has changed since it was approved" };
    let mut lines = vec![format!("{} {how}:", subject(shown))];
    lines.extend(shown.renamed.as_ref().map(|former| format!("  renamed: it looks like {former:?}, which is gone")));
    if shown.unstable {
        lines.push(
            "  unstable: the server listed three forms of it or more within an hour; each needs its own yes".to_owned(),
        );
    }
    if shown.passes {
        lines.push("  clients see it: the config reaches the server in another way than before".to_owned());
    }
    for change in &shown.changes {
        lines.extend(differing(change));
    }
    for finding in &shown.findings {
        let grade = if finding.hard { "suspicious" } else { "worth a look" };
        lines.push(format!("  ! {grade}: {} at {}: {}", finding.what, finding.path, finding.shown));
    }
    lines.push(String::new());
    lines.iter().map(|line| text::line(line).into_owned()).collect()
}

/// Formats one difference.
pub(in crate::commands) fn differing(change: &DefinitionChange) -> Vec<String> {
    let place = if change.path.is_empty() { String::new() } else { format!(" {}", change.path) };
    let mut lines = vec![format!("  {}{place}", change.class)];
    lines.extend(change.before.iter().map(|text| format!("  - {text}")));
    lines.extend(change.after.iter().map(|text| format!("  + {text}")));
    lines
}

fn subject(shown: &Waiting) -> String {
    match shown.what {
        What::Instructions => format!("the instructions of server `{}`", shown.server),
        what => format!("{what} `{}` of server `{}`", shown.name, shown.server),
    }
}
