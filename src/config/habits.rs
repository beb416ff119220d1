//! Config keys that only one client uses, and features that only other clients have.
//!
//! A key is read if it has a meaning here. A key that asks for a feature that mcp-host lacks causes a note to the
//! user.

use super::fields::{Field, Fields};
use super::report::Report;
use super::{Server, Start};

/// Config keys for features that mcp-host lacks, each with the note about it.
const LACKING: [(&str, &str); 9] = [
    ("sandbox", NO_SANDBOX),
    ("sandboxEnabled", NO_SANDBOX),
    ("watchPaths", "files are not watched here, so a change does not restart the server"),
    ("proxy", "a server cannot have a proxy of its own here, ignored"),
    ("customUserVars", ONE_USER),
    ("obo", ONE_USER),
    ("oauth_headers", "login requests carry no custom headers here, ignored"),
    ("oidc", "tokens of that client's own service are not available here, ignored"),
    ("oauthGrantType", "use \"auth\" with `grant`, `clientId` and `clientSecret` for a login without a user"),
];

const NO_SANDBOX: &str = "a server with a URL has no process here to keep in a sandbox, ignored";
const ONE_USER: &str = "per-user values of that program are not known here, ignored";

/// Reads the settings that some clients put into an object of their own under the entry.
pub(super) fn read(server: &mut Server, fields: &mut Fields<'_>, report: &mut Report) {
    let Some(field) = fields.take(&["anythingllm"], report) else { return };
    let Some(mut own) = field.fields(report) else { return };
    if own.take(&["autoStart"], report).and_then(|field| field.flag(report)) == Some(false) {
        server.start = Start::Lazy;
    }
    if let Some(field) = own.take(&["suppressedTools"], report) {
        server.exclude_tools.extend(field.texts(report));
    }
    own.finish(&["autoStart", "suppressedTools"], report);
}

/// Notes each key that asks for a feature that mcp-host lacks.
pub(super) fn lacking(fields: &mut Fields<'_>, report: &mut Report) {
    for (name, what) in LACKING {
        let Some(field) = fields.take(&[name], report) else { continue };
        // A value that is the other client's default asks for nothing.
        let asks = match name {
            "oidc" | "sandboxEnabled" => field.flag(report) == Some(true),
            "oauthGrantType" => field.text(report) != Some("authorization_code"),
            _ => true,
        };
        if asks {
            report.note(field.at, &field.path, what);
        }
    }
}

/// Returns the header, as name and value, that LibreChat makes from an `apiKey` object; `None` if the object gives no
/// key that can be used here.
pub(super) fn api_key<'a>(field: &Field<'a>, report: &mut Report) -> Option<(&'a str, String)> {
    let mut fields = field.fields(report)?;
    let mut text = |name| fields.take(&[name], report).and_then(|field| field.text(report));
    let (source, kind) = (text("source"), text("authorization_type"));
    let (header, key) = (text("custom_header"), text("key"));
    fields.finish(&["source", "authorization_type", "custom_header", "key"], report);
    if source == Some("user") {
        report.note(field.at, &field.path, ONE_USER);
        return None;
    }
    let key = key?;
    Some(match kind {
        Some("basic") => ("Authorization", format!("Basic {key}")),
        Some("custom") => (header.unwrap_or("X-API-Key"), key.to_owned()),
        _ => ("Authorization", format!("Bearer {key}")),
    })
}

/// Notes what is left in Continue's `requestOptions` after its headers were taken.
pub(super) fn request_options(mut fields: Fields<'_>, report: &mut Report) {
    for field in fields.rest() {
        report.note(field.at, &field.path, "of these options only `headers` is used here");
    }
}

/// Reports whether another program would replace this value at run time, such as `{{USER_ID}}`.
pub(super) fn is_placeholder(value: &str) -> bool {
    value.find("{{").is_some_and(|start| value[start..].contains("}}"))
}

/// Notes a value with a placeholder that only another program can replace.
pub(super) fn placeholder(field: &Field<'_>, value: &str, report: &mut Report) {
    if is_placeholder(value) {
        report.note(field.at, &field.path, "a placeholder of another program, sent as it is written");
    }
}
