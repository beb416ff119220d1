//! `host.metrics`: which metrics may be scraped, and by whom.

use std::fmt;

use sha2::{Digest as _, Sha256};

use super::super::fields::Field;
use super::super::report::Report;
use super::HostAuth;
use super::access;

/// What the endpoint serves at `/metrics`.
///
/// ```
/// use mcp_host::config::{HostSettings, Metrics};
///
/// let metrics = Metrics::default().tools(["github__*"]).token("a-long-random-token");
/// let settings = HostSettings::default().metrics(metrics);
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Whether metrics are served. If not, the endpoint answers 404, as it does for any unknown path.
    pub enabled: bool,
    /// Globs over the names of tools, as servers or as clients know them: tools that match have their own series.
    pub tools: Vec<String>,
    /// The SHA-256 of a token that gives access to `/metrics` and nothing else.
    pub hash: Option<[u8; 32]>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self { enabled: true, tools: Vec::new(), hash: None }
    }
}

impl Metrics {
    /// Serves no metrics.
    #[must_use]
    pub fn off() -> Self {
        Self { enabled: false, ..Self::default() }
    }

    /// Counts each tool that matches one of these globs separately.
    #[must_use]
    pub fn tools(self, globs: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { tools: globs.into_iter().map(Into::into).collect(), ..self }
    }

    /// Also serves metrics to clients with this token.
    #[must_use]
    pub fn token(self, token: &str) -> Self {
        Self { hash: Some(Sha256::digest(token).into()), ..self }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("enabled", &self.enabled).field("tools", &self.tools).finish_non_exhaustive()
    }
}

const MINT: &str = "run `mcp-host token --metrics`, and put the line that it prints here";

/// Reads `host.metrics`. `auth` says how other clients authenticate.
pub(super) fn read(field: &Field<'_>, auth: &HostAuth, report: &mut Report) -> Option<Metrics> {
    let mut fields = field.fields(report)?;
    let mut metrics = Metrics::default();
    if let Some(enabled) = fields.take(&["enabled"], report).and_then(|field| field.flag(report)) {
        metrics.enabled = enabled;
    }
    if let Some(tools) = fields.take(&["tools"], report) {
        metrics.tools = tools.texts(report);
    }
    if let Some(token) = fields.take(&["token"], report)
        && let Some(text) = token.text(report)
    {
        metrics.hash = access::hash(text);
        // A wrong text is not shown in the message: it may be the token itself.
        if metrics.hash.is_none() {
            report.problem(token.at, &token.path, "expected \"sha256:\" and 64 hex digits").help(MINT);
        }
        if let HostAuth::Bearer(clients) = auth
            && let Some(same) = clients.iter().find(|client| Some(client.hash) == metrics.hash)
        {
            let text = format!("this is also the token of {:?}, which opens more than /metrics", same.name);
            report.problem(token.at, &token.path, text).help(MINT);
        }
    }
    fields.finish(&["enabled", "tools", "token"], report);
    Some(metrics)
}
