//! The error of the public interface: opaque, with a kind to act on.

use std::fmt;

use crate::config;
use crate::protocol::{ErrorObject, Raw};

/// Why something did not work.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    server: Option<Box<str>>,
    text: Box<str>,
    /// What mends it, where that is known.
    help: Option<Box<str>>,
    /// The server's own error object.
    answer: Option<ErrorObject>,
}

/// What kind of error, by what can be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The config is wrong or not there.
    Config,
    /// There is no such server, tool, prompt or resource.
    Unknown,
    /// The server wants credentials.
    Unauthorized,
    /// The server is not there or did not start.
    Unreachable,
    /// The server answered with an error.
    Answer,
    /// Not allowed by policy.
    Denied,
    /// No answer in time.
    Timeout,
    /// The caller cancelled it.
    Cancelled,
    /// The host itself failed, or cannot say what became of the request.
    Internal,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self { kind, server: None, text: text.into().into(), help: None, answer: None }
    }

    pub(crate) fn of(mut self, server: Option<String>) -> Self {
        self.server = server.filter(|server| !server.is_empty()).map(Into::into);
        self
    }

    pub(crate) fn with_help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into().into()), ..self }
    }

    /// Reads an error of the router: our own carry their kind.
    pub(crate) fn from_answer(error: ErrorObject) -> Self {
        let details = error.data.as_ref().filter(|data| data.text("kind").is_some() && data.text("server").is_some());
        let base = match details {
            Some(details) => Self::new(kind_of(details), error.message.clone()).of(details.text("server")),
            None => Self::new(ErrorKind::Answer, error.message.clone()),
        };
        Self { answer: Some(error), ..base }
    }

    /// Reads a tool result that stands for an error of our own.
    pub(crate) fn from_result(result: &Raw) -> Option<Self> {
        let details = result.member("_meta")?.member("mcp-host/error")?;
        let content: Vec<Raw> = result.member("content")?.read().ok()?;
        let text = content.first()?.text("text")?;
        Some(Self::new(kind_of(&details), text).of(details.text("server")))
    }

    /// What kind of error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The server that it is about, by its name in the config.
    #[must_use]
    pub fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// What mends it, where that is known: a sentence for people.
    #[must_use]
    pub fn help(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// The server's own error object, where it answered with one.
    #[must_use]
    pub fn answer(&self) -> Option<&ErrorObject> {
        self.answer.as_ref()
    }
}

fn kind_of(details: &Raw) -> ErrorKind {
    match details.text("kind").as_deref() {
        Some("timeout") => ErrorKind::Timeout,
        Some("unavailable" | "overloaded" | "shutting_down") => ErrorKind::Unreachable,
        Some("auth_required") => ErrorKind::Unauthorized,
        Some("needs_approval") => ErrorKind::Denied,
        Some("cancelled") => ErrorKind::Cancelled,
        _ => ErrorKind::Internal,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

impl From<config::Error> for Error {
    fn from(error: config::Error) -> Self {
        Self::new(ErrorKind::Config, error.to_string())
    }
}
