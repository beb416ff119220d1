//! Requests for a link to the page, and for the end of all sessions that such links began.

use serde::{Deserialize, Serialize};

use super::{AskError, Refused, platform, replies};

/// A request for a link to the page.
///
/// ```no_run
/// # async fn example() -> Result<(), mcp_host::admin::AskError> {
/// use mcp_host::admin::{self, OpenRequest};
///
/// if let Ok(opened) = admin::open(None, &OpenRequest::default().read_only()).await? {
///     println!("{}", opened.url);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[non_exhaustive]
pub struct OpenRequest {
    /// Whether the session that the link begins is read-only.
    pub read_only: bool,
    /// Whether the link is shown to a person, who opens it later. Such a link is valid for ten minutes, others for 30
    /// seconds.
    pub shown: bool,
}

impl OpenRequest {
    /// Makes the session that the link begins read-only.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self { read_only: true, ..self }
    }

    /// Makes a link for a person, who opens it later.
    #[must_use]
    pub fn shown(self) -> Self {
        Self { shown: true, ..self }
    }
}

/// A link to the page. It begins one session.
///
/// ```
/// let reply = r#"{"url":"http://127.0.0.1:8808/#k=c0de","port":8808,"expiresIn":30}"#;
/// let reply: mcp_host::admin::PageLink = serde_json::from_str(reply)?;
/// assert_eq!(reply.expires_in, 30);
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PageLink {
    /// The link. Whoever has it can begin the session.
    pub url: String,
    /// The port that the daemon serves.
    pub port: u16,
    /// For how many seconds the link is valid.
    pub expires_in: u64,
}

impl std::fmt::Debug for PageLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PageLink").field("expires_in", &self.expires_in).finish_non_exhaustive()
    }
}

impl PageLink {
    pub(crate) fn new(url: String, port: u16, expires_in: u64) -> Self {
        Self { url, port, expires_in }
    }
}

/// The sessions of the page that ended.
///
/// ```
/// let reply: mcp_host::admin::Revoked = serde_json::from_str(r#"{"ended":2}"#)?;
/// assert_eq!(reply.ended, 2);
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Revoked {
    /// How many sessions ended.
    pub ended: usize,
}

/// The request as a line.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) enum PageRequest {
    /// Makes a link.
    Open(OpenRequest),
    /// Ends all sessions, and invalidates links that were not used yet.
    Revoke {},
}

/// The reply to such a request.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum PageReply {
    Link(PageLink),
    Revoked(Revoked),
}

/// Asks a daemon for a link to its page. Without a port, asks the only daemon.
///
/// # Errors
/// When no daemon runs, several run and no port is given, or the daemon does not answer.
pub async fn open(port: Option<u16>, request: &OpenRequest) -> Result<Result<PageLink, Refused>, AskError> {
    ask(port, &PageRequest::Open(*request)).await
}

/// Ends all sessions of a daemon's page. Without a port, asks the only daemon.
///
/// # Errors
/// When no daemon runs, several run and no port is given, or the daemon does not answer.
pub async fn revoke(port: Option<u16>) -> Result<Result<Revoked, Refused>, AskError> {
    ask(port, &PageRequest::Revoke {}).await
}

async fn ask<T: for<'a> Deserialize<'a>>(
    port: Option<u16>,
    request: &PageRequest,
) -> Result<Result<T, Refused>, AskError> {
    let answer = platform::ask(&platform::directories(), port, &replies::line(request)).await?;
    replies::read(&answer).map_err(AskError::Strange)
}
