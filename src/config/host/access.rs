//! Who may call the endpoint, and how: `host.auth`, `host.tls`, `host.insecureHttp`, and which of these `host.listen`
//! requires if it is not a loopback address.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use sha2::{Digest as _, Sha256};

use super::HostSettings;
use super::oauth::{self, HostOAuth};
use crate::config::fields::Field;
use crate::config::report::Report;
use crate::config::tools::refuse_rest;
use crate::hex;

/// How clients of the endpoint authenticate.
///
/// ```
/// use mcp_host::config::{BearerClient, HostAuth, HostSettings};
///
/// let editor = BearerClient::of_token("editor", "a-long-random-token").expect("a good name");
/// let settings = HostSettings::default().auth(HostAuth::Bearer(vec![editor]));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostAuth {
    /// They do not authenticate: whoever reaches the endpoint counts as the local user. Allowed on loopback only.
    #[default]
    None,
    /// Each client has a bearer token of its own.
    Bearer(Vec<BearerClient>),
    /// Each client presents an access token that is signed by an authorization server.
    OAuth(Box<HostOAuth>),
}

/// A client with a bearer token of its own, of which only the hash is stored. Displays the hash as it is written in the
/// config: `sha256:` and its hexadecimal digits.
///
/// ```
/// use mcp_host::config::BearerClient;
///
/// let editor = BearerClient::of_token("editor", "a-long-random-token").expect("a good name");
/// assert!(editor.to_string().starts_with("sha256:"));
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BearerClient {
    /// The client's name.
    pub name: String,
    /// The SHA-256 of the token.
    pub hash: [u8; 32],
    /// The views that it may use, its own one first; empty means any.
    pub views: Vec<String>,
}

impl BearerClient {
    /// Returns the client with this name and token; `None` if the name is not allowed.
    #[must_use]
    pub fn of_token(name: &str, token: &str) -> Option<Self> {
        let views = Vec::new();
        is_name(name).then(|| Self { name: name.to_owned(), hash: Sha256::digest(token).into(), views })
    }

    /// Lets it use these views and no others. The first one is its own: the one that it gets if it chooses none.
    #[must_use]
    pub fn views(self, views: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { views: views.into_iter().map(Into::into).collect(), ..self }
    }
}

impl fmt::Display for BearerClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCHEME)?;
        f.write_str(&hex::encode(&self.hash))
    }
}

impl fmt::Debug for BearerClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BearerClient").field(&self.name).finish()
    }
}

/// The PEM files with which the endpoint serves TLS.
///
/// ```
/// use mcp_host::config::{HostSettings, HostTls};
///
/// let tls = HostTls { cert: "/etc/mcp/cert.pem".into(), key: "/etc/mcp/key.pem".into() };
/// let settings = HostSettings::default().tls(tls);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostTls {
    /// The certificate and its intermediates.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl HostSettings {
    /// Returns what is missing, and advice, if these settings do not allow other machines to reach the address
    /// `listen`; `None` if nothing is missing.
    pub(crate) fn lacks_for(&self, listen: SocketAddr) -> Option<(String, &'static str)> {
        if listen.ip().is_loopback() {
            return None;
        }
        let no_auth = self.auth == HostAuth::None;
        let no_tls = self.tls.is_none() && !self.insecure_http;
        let (lacks, help) = match (no_auth, no_tls) {
            (false, false) => return None,
            (true, true) => (
                "there is neither `host.auth` to identify callers nor `host.tls` to encrypt the traffic",
                "give clients tokens (`mcp-host token NAME`) and set `host.tls`, or listen on 127.0.0.1 or [::1]",
            ),
            (true, false) => (
                "there is no `host.auth` to identify callers",
                "give clients tokens (`mcp-host token NAME`), or listen on 127.0.0.1 or [::1]",
            ),
            (false, true) => (
                "there is no `host.tls` to encrypt tokens and traffic",
                "set `host.tls` to a certificate and its key; behind a proxy with TLS, set \"insecureHttp\": true",
            ),
        };
        Some((format!("{listen} can be reached from other machines, and {lacks}"), help))
    }
}

const SCHEME: &str = "sha256:";
const MINT: &str = "run `mcp-host token NAME`, and put the line that it prints here";

/// Reads `host.tls`. Returns `None` for two empty paths, which mean no TLS, and for mistakes, which it reports.
pub(super) fn tls(field: &Field<'_>, report: &mut Report) -> Option<HostTls> {
    let mut fields = field.fields(report)?;
    let folder = report.file(field.at.file).parent().map(PathBuf::from).unwrap_or_default();
    let [cert, key] = ["cert", "key"].map(|name| {
        let text = fields.take(&[name], report).map(|field| field.text(report));
        // A value that is not a text is already reported.
        text.map_or(Some(""), |text| text)
    });
    fields.finish(&["cert", "key"], report);
    match (cert?, key?) {
        ("", "") => None,
        ("", _) | (_, "") => {
            let problem = report.problem(field.at, &field.path, "both `cert` and `key` are required");
            problem.help("name two PEM files: the certificate, and its private key");
            None
        }
        (cert, key) => Some(HostTls { cert: folder.join(cert), key: folder.join(key) }),
    }
}

/// Reads `host.auth`.
pub(super) fn auth(field: &Field<'_>, report: &mut Report) -> Option<HostAuth> {
    let mut fields = field.fields(report)?;
    let Some(kind) = fields.take(&["type"], report) else {
        report.problem(field.at, &field.path, "`type` is missing").help("write \"none\", \"bearer\" or \"oauth\"");
        return None;
    };
    match kind.text(report)? {
        "none" => {
            fields.finish(&["type"], report);
            Some(HostAuth::None)
        }
        "bearer" => {
            let clients = fields.take(&["clients"], report);
            fields.finish(&["type", "clients"], report);
            let Some(clients) = clients else {
                report.problem(field.at, &field.path, "`clients` is missing: no client has a token").help(MINT);
                return None;
            };
            self::clients(&clients, report).map(HostAuth::Bearer)
        }
        "oauth" => oauth::read(field, fields, report).map(|oauth| HostAuth::OAuth(Box::new(oauth))),
        other => {
            let text = format!("{} is not one of none, bearer, oauth", kind.quote(other));
            report.problem(kind.at, &kind.path, text);
            None
        }
    }
}

fn clients(field: &Field<'_>, report: &mut Report) -> Option<Vec<BearerClient>> {
    let mut clients: Vec<BearerClient> = Vec::new();
    let entries = field.entries(report);
    if entries.is_empty() {
        report.problem(field.at, &field.path, "no client has a token").help(MINT);
        return None;
    }
    for (name, entry) in entries {
        if !is_name(name) {
            let problem = report.problem(entry.at, &entry.path, "a client cannot be called that");
            problem.help("use up to 64 letters, digits, `.`, `-` and `_`");
        }
        let Some((entry, views)) = token(entry, report) else { continue };
        let Some(text) = entry.text(report) else { continue };
        // A wrong text is not shown in the message: it may be the token itself.
        let Some(hash) = hash(text) else {
            let problem = report.problem(entry.at, &entry.path, "expected \"sha256:\" and 64 hex digits");
            problem.help(MINT);
            continue;
        };
        if let Some(same) = clients.iter().find(|client| client.hash == hash) {
            let text = format!("this is also the token of {:?}, so it would not identify the caller", same.name);
            report.problem(entry.at, &entry.path, text).help(MINT);
        }
        clients.push(BearerClient { name: name.to_owned(), hash, views });
    }
    Some(clients)
}

/// Returns the field with the hash of a token, and the views of its client. The entry is the hash itself, or an object
/// with both.
fn token<'a>(entry: Field<'a>, report: &mut Report) -> Option<(Field<'a>, Vec<String>)> {
    if entry.node.members().is_none() {
        return Some((entry, Vec::new()));
    }
    let mut fields = entry.fields(report)?;
    let hash = fields.take(&["hash"], report);
    let views = fields.take(&["views"], report).map(|field| (field.texts(report), field));
    refuse_rest(fields, &["hash", "views"], report);
    if let Some((views, field)) = &views
        && views.is_empty()
    {
        let problem = report.problem(field.at, &field.path, "the client may use no view");
        problem.help("name at least one, or remove the key: then it may use any");
    }
    let Some(hash) = hash else {
        report.problem(entry.at, &entry.path, "`hash` is missing").help(MINT);
        return None;
    };
    Some((hash, views.map(|(views, _)| views).unwrap_or_default()))
}

pub(super) fn is_name(name: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=64).contains(&name.len()) && name.bytes().all(fine)
}

/// Reads the hash of a token; `None` if the text is none.
pub(super) fn hash(text: &str) -> Option<[u8; 32]> {
    text.strip_prefix(SCHEME).and_then(digits)
}

fn digits(text: &str) -> Option<[u8; 32]> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != 32 || !rest.is_empty() {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut hash = [0; 32];
    for (byte, [high, low]) in hash.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_reads_as_it_displays() {
        let client = BearerClient::of_token("laptop", "token").unwrap();
        let text = client.to_string();
        assert_eq!(text, "sha256:3c469e9d6c5875d37a43f353d4f88e61fcf812c66eee3457465a40b0da4153e0");
        assert_eq!(text.strip_prefix(SCHEME).and_then(digits), Some(client.hash));
        assert_eq!(text.to_uppercase().strip_prefix("SHA256:").and_then(digits), Some(client.hash));
        for bad in ["", "3c", &"g".repeat(64), &"a".repeat(63), &"a".repeat(65), &"é".repeat(32)] {
            assert_eq!(digits(bad), None, "{bad}");
        }
        assert_eq!(format!("{client:?}"), r#"BearerClient("laptop")"#);
        assert!([0, 65].map(|length| BearerClient::of_token(&"a".repeat(length), "token")).iter().all(Option::is_none));
    }
}
