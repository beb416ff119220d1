//! `host.registry`: the registry in which `search` and `install` look servers up.

use std::fmt;

use url::Url;

use super::super::fields::Field;
use super::super::report::Report;
use super::super::secret::Secret;
use crate::loopback::is_loopback;

/// The registry in which servers are looked up: the official one, or another one with the same API (version 0.1).
///
/// ```
/// use mcp_host::config::{HostSettings, Registry};
///
/// let registry = Registry::at("https://mcp.example.com/registry".parse()?).header("X-Team", "core");
/// let settings = HostSettings::default().registry(registry);
/// # Ok::<_, url::ParseError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Registry {
    /// Its URL, to which `/v0.1/servers` is added.
    pub url: Url,
    /// The headers of requests to it.
    pub headers: Vec<(String, Secret)>,
}

/// The official registry.
const OFFICIAL: &str = "https://registry.modelcontextprotocol.io";

impl Default for Registry {
    fn default() -> Self {
        Self::at(Url::parse(OFFICIAL).expect("the address of the official registry is a URL"))
    }
}

impl Registry {
    /// Returns the registry at this URL.
    #[must_use]
    pub fn at(url: Url) -> Self {
        Self { url, headers: Vec::new() }
    }

    /// Adds this header to each request.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), Secret::new(value)));
        self
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The path of the URL may contain a key.
        let origin = self.url.origin().ascii_serialization();
        f.debug_struct("Registry").field("url", &format_args!("{origin}/…")).field("headers", &self.headers).finish()
    }
}

/// Reads `host.registry`.
pub(super) fn read(field: &Field<'_>, report: &mut Report) -> Option<Registry> {
    let mut fields = field.fields(report)?;
    let mut registry = Registry::default();
    if let Some(field) = fields.take(&["url"], report)
        && let Some(text) = field.text(report)
    {
        match Url::parse(text) {
            Ok(url) => {
                if let Some((message, help)) = wrong(&url) {
                    report.problem(field.at, &field.path, message).help(help);
                }
                registry.url = url;
            }
            Err(error) => {
                let problem = report.problem(field.at, &field.path, format!("not a URL: {error}"));
                problem.help("write the full URL, like \"https://example.com\"");
            }
        }
    }
    if let Some(field) = fields.take(&["headers"], report) {
        for (name, field) in field.entries(report) {
            let Some(value) = field.scalar(report) else { continue };
            let is_name = http::HeaderName::from_bytes(name.as_bytes()).is_ok();
            if !is_name || http::HeaderValue::from_str(&value).is_err() {
                report
                    .problem(field.at, &field.path, "this cannot be sent as a header")
                    .help("correct it, or remove it");
            }
            registry.headers.push((name.to_owned(), Secret::new(value)));
        }
    }
    fields.finish(&["headers", "url"], report);
    Some(registry)
}

/// Returns what is wrong with a URL, and advice.
fn wrong(url: &Url) -> Option<(&'static str, &'static str)> {
    if !url.username().is_empty() || url.password().is_some() {
        return Some(("user and password do not belong in the URL", "use \"headers\""));
    }
    match url.scheme() {
        "https" => None,
        "http" if is_loopback(url) => None,
        "http" => Some(("plain http beyond this machine can be changed on the way", "use https")),
        _ => Some(("a registry is reached by https", "use https")),
    }
}
