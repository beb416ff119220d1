//! VS Code's sandbox settings for a server: `sandboxEnabled`, and `sandbox` with `filesystem` and `network`.
//!
//! They become the level `default` with the same exceptions. That level is stricter: VS Code lets a server read
//! everything that is not denied. **Invariant:** a setting that cannot be applied as written causes a note.

use std::path::PathBuf;

use super::{Sandbox, SandboxHost, SandboxNetwork};
use crate::config::fields::Field;
use crate::config::report::Report;
use crate::config::syntax::Origin;

/// The pattern for every host.
const ALL: &str = "*";
const IDLE: &str = "this form of it counts only beside \"sandboxEnabled\": true; write \"sandbox\": \"default\" for the one of this host";
const PART: &str = "this host cannot keep a part of what is allowed, so it stays allowed; allow less instead";

/// Reads VS Code's sandbox; `None` if it is not enabled. `whole` makes a path absolute.
pub(in crate::config) fn read(
    enabled: Option<&Field<'_>>,
    settings: Option<&Field<'_>>,
    whole: impl Fn(&str) -> PathBuf,
    report: &mut Report,
) -> Option<Sandbox> {
    if let (None, Some(field)) = (enabled, settings) {
        report.note(field.at, &field.path, IDLE);
    }
    enabled.and_then(|field| field.flag(report)).filter(|is_enabled| *is_enabled)?;
    let mut sandbox = Sandbox::on();
    // Without a list the server reaches no hosts, as in VS Code.
    sandbox.network = SandboxNetwork::None;
    let Some(mut fields) = settings.and_then(|field| field.fields(report)) else { return Some(sandbox) };
    if let Some(mut files) = fields.take(&["filesystem"], report).and_then(|field| field.fields(report)) {
        for (key, paths) in [("allowWrite", &mut sandbox.write), ("allowRead", &mut sandbox.read)] {
            let field = files.take(&[key], report);
            paths.extend(
                field.map(|field| texts(&field, report)).unwrap_or_default().iter().map(|(_, path)| whole(path)),
            );
        }
        for key in ["denyRead", "denyWrite"] {
            let Some(field) = files.take(&[key], report) else { continue };
            for (item, path) in texts(&field, report) {
                let denied = whole(path);
                let allowed = sandbox.write.iter().chain(&sandbox.read).any(|allowed| denied.starts_with(allowed));
                if allowed {
                    report.note(item.at, &item.path, PART);
                }
            }
        }
        files.finish(&["allowRead", "allowWrite", "denyRead", "denyWrite"], report);
    }
    if let Some(mut network) = fields.take(&["network"], report).and_then(|field| field.fields(report)) {
        let allowed = network.take(&["allowedDomains"], report);
        sandbox.network = allowed.map_or(SandboxNetwork::None, |field| hosts(&field, report));
        if let Some(field) = network.take(&["deniedDomains"], report) {
            for (item, name) in texts(&field, report) {
                let name = name.strip_prefix("*.").unwrap_or(name);
                let allowed = match &sandbox.network {
                    SandboxNetwork::Hosts(hosts) => hosts.iter().any(|host| host.admits(name, 443)),
                    SandboxNetwork::Open => true,
                    SandboxNetwork::None => false,
                };
                if allowed {
                    report.note(item.at, &item.path, PART);
                }
            }
        }
        network.finish(&["allowedDomains", "deniedDomains"], report);
    }
    fields.finish(&["filesystem", "network"], report);
    Some(sandbox)
}

/// Reads a list of texts that have values.
fn texts<'a>(field: &Field<'a>, report: &mut Report) -> Vec<(Field<'a>, &'a str)> {
    let mut found = Vec::new();
    for item in field.items(report) {
        if let Some(text) = item.text(report).filter(|_| item.node.origin != Origin::Missing) {
            found.push((item, text));
        }
    }
    found
}

fn hosts(field: &Field<'_>, report: &mut Report) -> SandboxNetwork {
    let (mut hosts, mut is_all) = (Vec::new(), false);
    for (item, text) in texts(field, report) {
        is_all |= text == ALL;
        match text.parse::<SandboxHost>() {
            Ok(host) => hosts.push(host),
            Err(_) if text == ALL => {}
            Err(wrong) => {
                report.note(item.at, &item.path, format!("{} {wrong}, so it is not allowed", item.quote(text)));
            }
        }
    }
    match (is_all, hosts.is_empty()) {
        (true, _) => SandboxNetwork::Open,
        (false, true) => SandboxNetwork::None,
        (false, false) => SandboxNetwork::Hosts(hosts),
    }
}
