//! The error type of the public interface. It is opaque; callers act on its kind.

use std::fmt;
use std::sync::Arc;

use crate::answered::{Failed, Kind};
use crate::config;
use crate::protocol::{ErrorObject, Theirs};

/// An error of the host.
///
/// ```
/// # fn act(error: &mcp_host::Error) {
/// use mcp_host::ErrorKind;
///
/// match error.kind() {
///     ErrorKind::Unauthorized => println!("sign in to {}", error.server().unwrap_or("the server")),
///     _ if error.is_retryable() => println!("once more"),
///     _ => println!("{error}"),
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    server: Option<Box<str>>,
    text: Box<str>,
    /// Advice for people, if there is any.
    help: Option<Box<str>>,
    /// Existing names that are similar to the unknown one.
    nearest: Vec<String>,
    /// Whether a retry is safe and may succeed.
    retryable: bool,
    /// The error object that the server answered with.
    answer: Option<Box<ErrorObject>>,
    source: Option<Source>,
}

type Source = Arc<dyn std::error::Error + Send + Sync>;

/// The cause of a failure of which only the text is known.
#[derive(Debug)]
struct Cause(Box<str>);

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Cause {}

/// The kind of an error, by what the caller can do about it.
///
/// ```
/// # fn exit_code(error: &mcp_host::Error) -> u8 {
/// match error.kind() {
///     mcp_host::ErrorKind::Config | mcp_host::ErrorKind::Unknown => 2,
///     mcp_host::ErrorKind::Timeout => 7,
///     _ => 1,
/// }
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The config is invalid or missing.
    Config,
    /// There is no such server, tool, prompt, or resource.
    Unknown,
    /// The server requires credentials.
    Unauthorized,
    /// The server cannot be reached or did not start.
    Unreachable,
    /// The server answered with an error.
    Answer,
    /// A rule forbids the request, or its tool waits for approval.
    Denied,
    /// The request timed out.
    Timeout,
    /// The request was cancelled.
    Cancelled,
    /// The host failed, or does not know whether the server executed the request.
    Internal,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        let text = text.into().into();
        Self { kind, server: None, text, help: None, nearest: Vec::new(), retryable: false, answer: None, source: None }
    }

    pub(crate) fn of(mut self, server: Option<String>) -> Self {
        self.server = server.filter(|server| !server.is_empty()).map(Into::into);
        self
    }

    pub(crate) fn with_help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into().into()), ..self }
    }

    /// Adds existing names that are similar to the unknown one, and advice that suggests them.
    pub(crate) fn with_nearest(self, nearest: Vec<String>) -> Self {
        let quoted: Vec<String> = nearest.iter().map(|name| format!("`{}`", Theirs(name))).collect();
        let help = match quoted.split_last() {
            None => None,
            Some((last, [])) => Some(format!("did you mean {last}?").into()),
            Some((last, rest)) => Some(format!("did you mean {} or {last}?", rest.join(", ")).into()),
        };
        Self { nearest, help: help.or(self.help), ..self }
    }

    /// Wraps an error, and takes over its text.
    pub(crate) fn from_source(kind: ErrorKind, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::new(kind, source.to_string()).with_source(source)
    }

    pub(crate) fn with_source(self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self { source: Some(Arc::new(source)), ..self }
    }

    /// Wraps the error that the server answered with.
    pub(crate) fn from_answer(error: ErrorObject) -> Self {
        Self { answer: Some(error.clone().into()), ..Self::new(ErrorKind::Answer, error.message) }
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the configured name of the server that the error is about; `None` if it is about no server.
    #[must_use]
    pub fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// Returns advice for people, if there is any.
    #[must_use]
    pub fn help(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// Returns up to three existing names that are similar to the unknown one, the most similar first.
    ///
    /// ```
    /// # fn show(error: &mcp_host::Error) {
    /// if let Some(name) = error.nearest().first() {
    ///     println!("calling {name} instead");
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn nearest(&self) -> &[String] {
        &self.nearest
    }

    /// Reports whether a retry is safe and may succeed: the request never reached the server, or the server refused it for
    /// now.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.retryable
    }

    /// Returns the server's error object, if the server answered with one.
    #[must_use]
    pub fn answer(&self) -> Option<&ErrorObject> {
        self.answer.as_deref()
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        let kind = match failed.kind {
            Kind::Timeout => ErrorKind::Timeout,
            Kind::Unavailable | Kind::Overloaded | Kind::ShuttingDown | Kind::RateLimited => ErrorKind::Unreachable,
            Kind::AuthRequired => ErrorKind::Unauthorized,
            Kind::OutcomeUnknown | Kind::TooLarge | Kind::Malformed | Kind::InvalidArguments => ErrorKind::Internal,
            Kind::NeedsApproval | Kind::Denied => ErrorKind::Denied,
        };
        let retryable = failed.retryable;
        let error = Self { retryable, ..Self::new(kind, failed.text).of(failed.server.map(Into::into)) };
        match failed.cause {
            Some(cause) => error.with_source(Cause(cause)),
            None => error,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn std::error::Error + 'static))
    }
}

impl From<config::Error> for Error {
    fn from(error: config::Error) -> Self {
        Self::from_source(ErrorKind::Config, error)
    }
}
