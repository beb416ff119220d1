//! Errors of our own, as answers (`hazards.md` rule 6): the only place where they become codes and public text.

use serde::Serialize;

use crate::manager::{NoLease, Server};
use crate::protocol::{ErrorObject, Method, Outcome, Raw};
use crate::transport;
use crate::upstream::{StateName, Unavailable};

/// Why there is no answer of the server's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    kind: Kind,
    text: String,
    sent: bool,
    retryable: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Timeout,
    OutcomeUnknown,
    Unavailable,
    Overloaded,
    TooLarge,
    Malformed,
    AuthRequired,
    ShuttingDown,
}

impl Failure {
    /// The server has no connection to give.
    pub(super) fn unavailable(why: &Unavailable) -> Self {
        let cause = why.cause.as_deref().map(|cause| format!(": {cause}")).unwrap_or_default();
        let kind = if why.state == StateName::Unauthorized { Kind::AuthRequired } else { Kind::Unavailable };
        Self { kind, text: format!("is {}{cause}", why.state), sent: false, retryable: kind == Kind::Unavailable }
    }

    /// It is never started, or may not be started once more.
    pub(super) fn lease(none: NoLease) -> Self {
        let retryable = none == NoLease::Closed;
        let text = match none {
            NoLease::Stopping => return Self::shutting_down(),
            NoLease::Closed => "was changed in the config a moment ago; call again".to_owned(),
            NoLease::Fixed(why) => format!("is not to be had: {why}"),
            NoLease::Limit(limit) => format!("has {limit} connections in use already (host.limits.leasesPerServer)"),
        };
        Self { kind: Kind::Unavailable, text, sent: false, retryable }
    }

    /// The host ends and takes no more calls.
    pub(super) fn shutting_down() -> Self {
        let text = "takes no more calls: the host is shutting down".to_owned();
        Self { kind: Kind::ShuttingDown, text, sent: false, retryable: true }
    }

    /// Its `maxConcurrent` calls are running, and `queueTimeout` is over.
    pub(super) fn queue(wait: std::time::Duration) -> Self {
        Self {
            kind: Kind::Overloaded,
            text: format!("had no free slot within {wait:?} (queueTimeout)"),
            sent: false,
            retryable: true,
        }
    }

    /// No answer in time.
    pub(super) fn timeout(limit: std::time::Duration, name: &str) -> Self {
        let text = format!("gave no answer within {limit:?} ({name}); whether the work was done is unknown");
        Self { kind: Kind::Timeout, text, sent: true, retryable: false }
    }

    /// A client without a session did not come back with answers.
    pub(super) fn nobody_answered(limit: std::time::Duration) -> Self {
        let text = format!("asked something, and nobody answered within {limit:?} (host.limits.answer)");
        Self { kind: Kind::Timeout, text, sent: true, retryable: false }
    }

    /// What the server answered is no answer of MCP.
    pub(super) fn malformed(what: &str) -> Self {
        Self { kind: Kind::Malformed, text: format!("gave no answer of MCP: {what}"), sent: true, retryable: false }
    }

    /// The request or its answer was lost on the way.
    pub(super) fn lost(error: &transport::Error) -> Self {
        use transport::Error as E;
        if error.not_sent() {
            let kind = match error {
                E::Overloaded(_) => Kind::Overloaded,
                E::Unauthorized { .. } => Kind::AuthRequired,
                _ => Kind::Unavailable,
            };
            return Self { kind, text: format!("did not take the request: {error}"), sent: false, retryable: true };
        }
        let kind = match error {
            E::TooLarge(_) => Kind::TooLarge,
            E::Malformed(_) | E::Status { .. } => Kind::Malformed,
            _ => Kind::OutcomeUnknown,
        };
        let text = match kind {
            Kind::OutcomeUnknown => {
                format!("was lost before it answered ({error}); the outcome is unknown: the work may have been done")
            }
            _ => format!("gave no answer of MCP: {error}"),
        };
        Self { kind, text, sent: true, retryable: false }
    }

    /// The same of a request that had left us before.
    pub(super) fn after_a_loss(self) -> Self {
        Self { sent: true, ..self }
    }

    /// The answer to the client: `isError` for a tool, so that the model sees it; an error for everything else.
    pub(super) fn answer(&self, server: &Server, method: &Method) -> Outcome {
        #[derive(Serialize)]
        struct Details<'a> {
            server: &'a str,
            kind: Kind,
            sent: bool,
            retryable: bool,
        }
        let details =
            Details { server: &server.config.name, kind: self.kind, sent: self.sent, retryable: self.retryable };
        // What a server says of its end, or to an HTTP client, may hold what it was given.
        let text = server.scrubber.scrub(&self.text);
        let text = format!("server {:?} {text}", server.config.name);
        if *method != Method::ToolsCall {
            return Err(ErrorObject::internal(text).with_data(Raw::from_value(&details)));
        }
        Ok(Raw::from_value(&serde_json::json!({
            "content": [{ "type": "text", "text": text }],
            "isError": true,
            "_meta": { "mcp-host/error": details },
        })))
    }
}
