//! How a request of a client ends, by type: with a result, with an error of JSON-RPC, or with a failure of ours.
//!
//! In: failures, where they happen. Out: the same value to whoever looks at it: the audit its line, the embedding program its
//! error, a door the message that its client gets. **Invariant:** no message of a server becomes a [`Failed`], so none can
//! speak for the host; the one exception is the user's own daemon ([`Failed::told`]).

use serde::{Deserialize, Serialize};

use crate::protocol::{ErrorObject, Method, Outcome, Raw, meta};

/// The answer to a request of a client.
pub(crate) type Answered = Result<Raw, NoResult>;

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NoResult {
    /// An error of JSON-RPC: what the server says, or what is wrong with the request itself.
    Error(ErrorObject),
    /// There is no answer.
    Failed(Failed),
}

/// Why there is no answer of a server's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) kind: Kind,
    /// Its name in the config; none where it is the host itself that refuses.
    pub(crate) server: Option<Box<str>>,
    /// A sentence. No secret is in it.
    pub(crate) text: Box<str>,
    /// What it comes from, where that is known. No secret is in it.
    pub(crate) cause: Option<Box<str>>,
    /// Whether any of the request may have reached the server.
    pub(crate) sent: bool,
    /// Whether the same request may succeed later, and does no harm then.
    pub(crate) retryable: bool,
}

/// What kind of failure (`docs/bridging.md` 14).
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
}

impl Kind {
    /// The word for it.
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
        }
    }
}

/// The answer with all but a failure of ours put in other words.
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

/// For what has no other way to tell of a failure than an error.
impl From<NoResult> for ErrorObject {
    fn from(none: NoResult) -> Self {
        match none {
            NoResult::Error(error) => error,
            NoResult::Failed(failed) => failed.error(),
        }
    }
}

impl NoResult {
    /// The same with its error in other words, if it is one.
    pub(crate) fn map_error(self, change: impl FnOnce(ErrorObject) -> ErrorObject) -> Self {
        match self {
            Self::Error(error) => Self::Error(change(error)),
            failed @ Self::Failed(_) => failed,
        }
    }
}

impl Failed {
    /// The answer to a request of that method: `isError` for a tool, so that the model sees it; an error for everything else.
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

    /// The same as an error, whatever was asked.
    pub(crate) fn error(&self) -> ErrorObject {
        let details = self.details();
        // Under our own name it is surely ours; any server may say the rest.
        let data = Raw::from_value(&details).with_member(meta::HOST_ERROR, Raw::from_value(&details).as_bytes());
        ErrorObject::internal(&*self.text).with_data(data)
    }

    /// What the user's own daemon says of a failure of its own, in its answer.
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
            // Of a kind that is not known here nothing is known.
            kind: details.member("kind")?.read().unwrap_or(Kind::OutcomeUnknown),
            server: details.text("server").map(Into::into),
            text: text.into(),
            cause: None,
            sent: flag("sent"),
            retryable: flag("retryable"),
        })
    }

    fn details(&self) -> Details<'_> {
        let Self { kind, server, sent, retryable, .. } = self;
        Details { server: server.as_deref(), kind: *kind, sent: *sent, retryable: *retryable }
    }
}

/// What every failure of ours says of itself.
#[derive(Serialize)]
struct Details<'a> {
    server: Option<&'a str>,
    kind: Kind,
    sent: bool,
    retryable: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [Kind; 9] = [
        Kind::Timeout,
        Kind::OutcomeUnknown,
        Kind::Unavailable,
        Kind::Overloaded,
        Kind::TooLarge,
        Kind::Malformed,
        Kind::AuthRequired,
        Kind::ShuttingDown,
        Kind::InvalidArguments,
    ];

    #[test]
    fn what_a_failure_is_written_as_tells_the_failure() {
        for (kind, server) in KINDS.into_iter().zip([None, Some("a b")].into_iter().cycle()) {
            let text = format!("it is {}", kind.word());
            let (sent, retryable) = (server.is_some(), server.is_none());
            let failed =
                Failed { kind, server: server.map(Into::into), text: text.into(), cause: None, sent, retryable };
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
