//! The answers of the page's API, before they become HTTP responses: JSON, lines of JSON, and refusals in words.

use bytes::Bytes;
use futures_util::stream::BoxStream;
use http::StatusCode;
use serde::Serialize;

use crate::downstream::admin::Refused;

/// An answer.
pub(crate) enum Answer {
    /// One JSON object.
    Json(Vec<u8>),
    /// Lines of JSON, as they come.
    Lines(BoxStream<'static, Bytes>),
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct No {
    pub(crate) status: StatusCode,
    /// The kind of refusal, in a word that programs read.
    pub(crate) error: &'static str,
    /// The reason, in our words.
    pub(crate) message: String,
    /// What to do.
    pub(crate) help: Option<String>,
}

/// A refusal as JSON.
#[derive(Serialize)]
struct Shown<'a> {
    error: &'static str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<&'a str>,
}

impl Answer {
    /// Answers with a value.
    pub(super) fn of(value: &impl Serialize) -> Self {
        // Answers always serialize.
        Self::Json(serde_json::to_vec(value).unwrap_or_default())
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Answer")
    }
}

impl No {
    /// Refuses a request.
    pub(crate) fn new(status: StatusCode, error: &'static str, message: impl Into<String>) -> Self {
        Self { status, error, message: message.into(), help: None }
    }

    /// Adds what to do.
    pub(crate) fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    /// Refuses a request that is not understood.
    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "malformed", message)
    }

    /// Refuses a request whose target does not exist.
    pub(super) fn unknown(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "unknown", message)
    }

    /// Refuses a request that was carried out and failed.
    pub(super) fn failed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "failed", message)
    }

    /// Refuses a request because there are too many.
    pub(super) fn busy(message: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "busy", message)
    }

    /// Refuses a request because the host stops.
    pub(crate) fn stopping() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", "mcp-host is stopping")
    }

    /// Returns the refusal as the daemon's socket writes it.
    pub(crate) fn refused(self) -> Refused {
        let is_usage = matches!(self.status, StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND);
        let error = self.help.map_or(self.message.clone(), |help| format!("{}: {help}", self.message));
        if is_usage { Refused::unknown(error) } else { Refused::because(error) }
    }

    /// Returns the refusal as JSON.
    pub(crate) fn json(&self) -> Vec<u8> {
        let shown = Shown { error: self.error, message: &self.message, help: self.help.as_deref() };
        serde_json::to_vec(&shown).unwrap_or_default()
    }
}
