//! The typed answer to a client's request: a result, a JSON-RPC error, or a failure that mcp-host itself reports.
//!
//! In: failures, where they happen. Out: one value for all readers. The audit log makes a line from it, `Host` an
//! error, and a door (HTTP, stdio) the message to its client. **Invariant:** no message from a server becomes a
//! [`Failed`], so no server can speak for mcp-host. The one exception is the user's own daemon ([`Failed::told`]).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::protocol::{ErrorObject, Method, Names, Outcome, Raw, meta};

/// The answer to a client's request.
pub(crate) type Answered = Result<Raw, NoResult>;

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NoResult {
    /// A JSON-RPC error: the server's own, or one about the request itself.
    Error(ErrorObject),
    /// mcp-host could not get an answer.
    Failed(Failed),
}

/// Why mcp-host has no answer from a server, in mcp-host's own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) kind: Kind,
    /// The configured name of the server; `None` if mcp-host itself refuses the request.
    pub(crate) server: Option<Box<str>>,
    /// The text for the client: a sentence without secrets.
    pub(crate) text: Box<str>,
    /// The cause, if it is known, without secrets.
    pub(crate) cause: Option<Box<str>>,
    /// Whether the request may have reached the server, even in part.
    pub(crate) sent: bool,
    /// Whether a retry is safe and may succeed.
    pub(crate) retryable: bool,
    /// After what time the client may call again, if its call is over a rate limit.
    pub(crate) retry_after: Option<Duration>,
    /// The mistake in each argument.
    pub(crate) errors: Box<[FieldError]>,
    /// The rule that refused the request.
    pub(crate) rule: Option<Box<str>>,
}

/// The mistake in one argument, without its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FieldError {
    /// A JSON Pointer to the argument.
    pub(crate) field: String,
    pub(crate) error: String,
}

/// The kind of a failure (`docs/bridging.md` 14).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Timeout,
    OutcomeUnknown,
    Unavailable,
    Overloaded,
    TooLarge,
    Malformed,
    AuthRequired,
    ShuttingDown,
    InvalidArguments,
    NeedsApproval,
    RateLimited,
    Denied,
}

impl Kind {
    pub(crate) const ALL: [Self; 12] = [
        Self::Timeout,
        Self::OutcomeUnknown,
        Self::Unavailable,
        Self::Overloaded,
        Self::TooLarge,
        Self::Malformed,
        Self::AuthRequired,
        Self::ShuttingDown,
        Self::InvalidArguments,
        Self::NeedsApproval,
        Self::RateLimited,
        Self::Denied,
    ];

    /// Returns the word for it in JSON.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::Unavailable => "unavailable",
            Self::Overloaded => "overloaded",
            Self::TooLarge => "too_large",
            Self::Malformed => "malformed",
            Self::AuthRequired => "auth_required",
            Self::ShuttingDown => "shutting_down",
            Self::InvalidArguments => "invalid_arguments",
            Self::NeedsApproval => "needs_approval",
            Self::RateLimited => "rate_limited",
            Self::Denied => "denied",
        }
    }
}

/// How a call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Ok,
    /// The result has `isError`: the tool says that it failed.
    ToolError,
    /// The result is `input_required`: it asks the client for input.
    InputRequired,
    /// The call continues as a task.
    Task,
    /// The answer is a JSON-RPC error.
    Error,
    /// mcp-host itself failed the call.
    HostError,
    /// The client cancelled the call.
    Cancelled,
}

impl End {
    pub(crate) const ALL: [Self; 7] =
        [Self::Ok, Self::ToolError, Self::InputRequired, Self::Task, Self::Error, Self::HostError, Self::Cancelled];

    /// Returns the word for it in reports.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ToolError => "tool_error",
            Self::InputRequired => "input_required",
            Self::Task => "task",
            Self::Error => "error",
            Self::HostError => "host_error",
            Self::Cancelled => "cancelled",
        }
    }

    /// Reads from a result how the call ended.
    pub(crate) fn of_result(result: &Raw) -> Self {
        if result.has_names(Names::OUTCOME) == Some(false) {
            return Self::Ok;
        }
        let [is_error, kind, task] = result.texts(["isError", "resultType", "task"]);
        // Nearly all results of modern servers are complete.
        let kind = kind.filter(|kind| *kind != br#""complete""#);
        let kind = kind.and_then(|kind| serde_json::from_slice::<String>(kind).ok());
        match kind.as_deref() {
            _ if is_error == Some(b"true") => Self::ToolError,
            Some("input_required") => Self::InputRequired,
            Some("task") => Self::Task,
            _ if task.is_some() => Self::Task,
            _ => Self::Ok,
        }
    }
}

/// Passes the result or JSON-RPC error of an answer to `reword`, and returns what that returns. A failure of mcp-host
/// itself is returned unchanged.
pub(crate) fn reworded(answered: Answered, reword: impl FnOnce(Outcome) -> Answered) -> Answered {
    match answered {
        Ok(result) => reword(Ok(result)),
        Err(NoResult::Error(error)) => reword(Err(error)),
        failed @ Err(NoResult::Failed(_)) => failed,
    }
}

impl From<ErrorObject> for NoResult {
    fn from(error: ErrorObject) -> Self {
        Self::Error(error)
    }
}

impl From<Failed> for NoResult {
    fn from(failed: Failed) -> Self {
        Self::Failed(failed)
    }
}

/// This is for callers that can report a failure only as a JSON-RPC error.
impl From<NoResult> for ErrorObject {
    fn from(none: NoResult) -> Self {
        match none {
            NoResult::Error(error) => error,
            NoResult::Failed(failed) => failed.error(),
        }
    }
}

impl NoResult {
    /// Applies `change` if this is a JSON-RPC error.
    pub(crate) fn map_error(self, change: impl FnOnce(ErrorObject) -> ErrorObject) -> Self {
        match self {
            Self::Error(error) => Self::Error(change(error)),
            failed @ Self::Failed(_) => failed,
        }
    }
}

impl Failed {
    /// Returns the answer to a request of that method. A tool call gets a result with `isError`, so that the model sees
    /// the text; every other request gets a JSON-RPC error.
    pub(crate) fn outcome(&self, method: &Method) -> Outcome {
        if *method != Method::ToolsCall {
            return Err(self.error());
        }
        Ok(Raw::from_value(&serde_json::json!({
            "content": [{ "type": "text", "text": self.text }],
            "isError": true,
            "_meta": { meta::HOST_ERROR: self.details() },
        })))
    }

    /// Returns the failure as a JSON-RPC error, whatever the request was.
    pub(crate) fn error(&self) -> ErrorObject {
        let details = self.details();
        // Only mcp-host can write this JSON key; a server can write the other ones, too.
        let data = Raw::from_value(&details).with_member(meta::HOST_ERROR, Raw::from_value(&details).as_bytes());
        ErrorObject::internal(&*self.text).with_data(data)
    }

    /// Reads a failure back from an answer that the user's own daemon (another `mcp-host`) sent. Returns `None` if the
    /// answer is no failure.
    pub(crate) fn told(outcome: &Outcome) -> Option<Self> {
        let (details, text) = match outcome {
            Ok(result) => {
                let [is_error, content, own] = result.members(["isError", "content", "_meta"]);
                is_error.filter(|flag| flag.as_bytes() == b"true")?;
                let content: Vec<Raw> = content?.read().ok()?;
                (own?.member(meta::HOST_ERROR)?, content.first()?.text("text")?)
            }
            Err(error) => (error.data.as_ref()?.member(meta::HOST_ERROR)?, error.message.clone()),
        };
        let flag = |name: &str| details.member(name).is_some_and(|flag| flag.as_bytes() == b"true");
        Some(Self {
            // A newer daemon may send a kind that this version does not know.
            kind: details.member("kind")?.read().unwrap_or(Kind::OutcomeUnknown),
            server: details.text("server").map(Into::into),
            text: text.into(),
            cause: None,
            sent: flag("sent"),
            retryable: flag("retryable"),
            retry_after: details
                .member("retryAfterMs")
                .and_then(|millis| millis.read().ok())
                .map(Duration::from_millis),
            errors: details.member("errors").and_then(|errors| errors.read().ok()).unwrap_or_default(),
            rule: details.text("rule").map(Into::into),
        })
    }

    fn details(&self) -> Details<'_> {
        let Self { kind, server, sent, retryable, retry_after, errors, rule, .. } = self;
        let retry_after_ms = retry_after.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
        let (server, rule) = (server.as_deref(), rule.as_deref());
        Details { server, kind: *kind, sent: *sent, retryable: *retryable, retry_after_ms, errors, rule }
    }
}

/// The details that are sent with each failure, as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Details<'a> {
    server: Option<&'a str>,
    kind: Kind,
    sent: bool,
    retryable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "<[FieldError]>::is_empty")]
    errors: &'a [FieldError],
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Message;

    const KINDS: [Kind; 12] = [
        Kind::Timeout,
        Kind::OutcomeUnknown,
        Kind::Unavailable,
        Kind::Overloaded,
        Kind::TooLarge,
        Kind::Malformed,
        Kind::AuthRequired,
        Kind::ShuttingDown,
        Kind::InvalidArguments,
        Kind::NeedsApproval,
        Kind::RateLimited,
        Kind::Denied,
    ];

    #[test]
    fn an_outcome_is_read_as_it_arrives() {
        let long = "x".repeat(2000);
        for (result, end) in [
            (r#"{"content":[]}"#, End::Ok),
            (r#"{"content":[],"isError":false}"#, End::Ok),
            (r#"{"content":[{"isError":true}]}"#, End::Ok),
            (r#"{"content":[],"isError":true}"#, End::ToolError),
            (r#"{"content":[],"isErr\u006fr":true}"#, End::ToolError),
            (r#"{"resultType":"complete"}"#, End::Ok),
            (r#"{"resultType":"input_required"}"#, End::InputRequired),
            (r#"{"resultType":"t\u0061sk"}"#, End::Task),
            (r#"{"task":{"taskId":"1"}}"#, End::Task),
        ] {
            for more in ["", &long] {
                let result = result.replacen('{', &format!(r#"{{"more":"{more}","#), 1);
                let text = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
                let Ok(Message::Response(response)) = Message::parse(&text.clone().into()) else { panic!("{text}") };
                assert_eq!(End::of_result(&response.outcome.unwrap()), end, "{text}");
            }
        }
    }

    #[test]
    fn what_a_failure_is_written_as_tells_the_failure() {
        for (kind, server) in KINDS.into_iter().zip([None, Some("a b")].into_iter().cycle()) {
            let text = format!("it is {}", kind.word());
            let (sent, retryable) = (server.is_some(), server.is_none());
            let errors = [FieldError { field: "/a/0".to_owned(), error: "is missing".to_owned() }];
            let failed = Failed {
                kind,
                server: server.map(Into::into),
                text: text.into(),
                cause: None,
                sent,
                retryable,
                retry_after: sent.then_some(Duration::from_millis(1500)),
                errors: if retryable { Box::default() } else { errors.into() },
                rule: retryable.then(|| "no-prod".into()),
            };
            for method in [Method::ToolsCall, Method::PromptsGet] {
                let outcome = failed.outcome(&method);
                assert_eq!(outcome.is_ok(), method == Method::ToolsCall);
                assert_eq!(Failed::told(&outcome), Some(failed.clone()));
                let written = outcome.map_or_else(|error| error.data.unwrap().to_string(), |result| result.to_string());
                assert!(written.contains(&format!(r#""kind":"{}""#, kind.word())), "{written}");
            }
        }
    }
}
