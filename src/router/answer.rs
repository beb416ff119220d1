//! The failures that mcp-host itself reports (`docs/bridging.md` 14). Only this file gives a failure its kind and the
//! text that clients see.

use std::time::Duration;

use crate::answered::{Failed, FieldError, Kind, NoResult};
use crate::manager::{NoLease, Server};
use crate::protocol::Theirs;
use crate::transport;
use crate::upstream::{StateName, Unavailable};

/// Why there is no answer from the server. The text may hold the server's secrets until [`Failure::of`] names the
/// server and scrubs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    kind: Kind,
    text: String,
    cause: Option<String>,
    sent: bool,
    retryable: bool,
    retry_after: Option<Duration>,
    errors: Box<[FieldError]>,
    rule: Option<Box<str>>,
}

/// The most mistakes in arguments that an answer names.
pub(super) const MOST: usize = 20;

/// Describes the first mistake and says how many more there are.
pub(super) fn said(errors: &[FieldError]) -> String {
    let Some((FieldError { field, error }, more)) = errors.split_first() else { return String::new() };
    let place = if field.is_empty() { String::new() } else { format!("{field}: ") };
    let more = if more.is_empty() { String::new() } else { format!(" (and {} more)", more.len()) };
    format!("{place}{error}{more}")
}

impl Failure {
    /// The server has no usable connection now.
    pub(super) fn unavailable(why: &Unavailable) -> Self {
        let cause = why.cause.as_deref().map(|cause| format!(": {cause}")).unwrap_or_default();
        let kind = if why.state == StateName::Unauthorized { Kind::AuthRequired } else { Kind::Unavailable };
        let text = format!("is {}{cause}", why.state);
        Self { retryable: kind == Kind::Unavailable, cause: why.cause.clone(), ..Self::new(kind, text) }
    }

    /// The call needs a sign-in, and nobody signed in.
    #[cfg(feature = "server")]
    pub(super) fn not_signed_in(text: String) -> Self {
        Self::new(Kind::AuthRequired, text)
    }

    /// Returns the text if the request was not sent because there is no access token for the server, else `None`.
    #[cfg(feature = "server")]
    pub(super) fn wants_sign_in(&self) -> Option<&str> {
        (self.kind == Kind::AuthRequired && !self.sent).then_some(&*self.text)
    }

    /// The client gets no lease (connection) of the server; `none` says why.
    pub(super) fn lease(none: NoLease) -> Self {
        let in_use = |limit, name| Self::overloaded(format!("has no connection left: {limit} are in use ({name})"));
        let share = |limit: usize, name| {
            let text = format!("has no connection left: {} are in use by this user, and others want some", limit / 2);
            Self::overloaded(format!("{text} (half of {name})"))
        };
        let unavailable = |text: String, retryable| Self { retryable, ..Self::new(Kind::Unavailable, text) };
        match none {
            NoLease::Stopping => Self::shutting_down(),
            NoLease::Closed => unavailable("was changed in the config a moment ago; call again".to_owned(), true),
            NoLease::Fixed(why) => {
                Self { cause: Some(why.clone()), ..unavailable(format!("is not available: {why}"), false) }
            }
            NoLease::Limit(limit) => in_use(limit, "host.limits.leasesPerServer"),
            NoLease::InAll(limit) => in_use(limit, "host.limits.leases"),
            NoLease::Share(limit) => share(limit, "host.limits.leasesPerServer"),
            NoLease::ShareInAll(limit) => share(limit, "host.limits.leases"),
            NoLease::Soon(_, why) => Self::lease(*why),
        }
    }

    /// mcp-host is shutting down and takes no more calls.
    pub(super) fn shutting_down() -> Self {
        let text = "was not sent: the host is shutting down".to_owned();
        Self { retryable: true, ..Self::new(Kind::ShuttingDown, text) }
    }

    /// mcp-host shut down while the request was in flight.
    pub(super) fn cut_off() -> Self {
        let text = "the request was not waited for any longer: the host is shutting down; whether the work was done is unknown";
        Self { sent: true, ..Self::new(Kind::ShuttingDown, text.to_owned()) }
    }

    /// mcp-host stopped serving the client while the request was in flight.
    pub(super) fn let_go() -> Self {
        let text = "the request was not waited for any longer: the host serves this client no more; whether the work was done is unknown";
        Self { sent: true, ..Self::new(Kind::ShuttingDown, text.to_owned()) }
    }

    /// The mcp-host process that got the request ended, or dropped the client's session, before there was an answer.
    #[cfg(feature = "server")]
    pub(super) fn of_before() -> Self {
        let text = "the host was restarted before it answered; the outcome is unknown: the work may have been done";
        Self { sent: true, ..Self::new(Kind::OutcomeUnknown, text.to_owned()) }
    }

    /// The server left the config after its name was looked up.
    pub(super) fn removed() -> Self {
        let text = "the server was removed a moment ago".to_owned();
        Self::new(Kind::Unavailable, text)
    }

    /// The server listed this tool or prompt before, and no longer has it.
    pub(super) fn gone(what: &str, name: &str) -> Self {
        let text = format!("has no {what} {} any more; list again", Theirs(name));
        Self::new(Kind::Unavailable, text)
    }

    /// While the client was asked something about the request, the server or tool that the request names was removed.
    pub(super) fn taken_away(what: &str, name: &str) -> Self {
        let text = format!("the {what} {} is not there any more; list again", Theirs(name));
        Self::new(Kind::Unavailable, text)
    }

    /// The arguments fit the tool as it was listed, and no longer fit it as it is now.
    pub(super) fn takes_others(name: &str, why: &str) -> Self {
        let text = format!("has changed the arguments of the tool {}: {why}; list again", Theirs(name));
        Self::new(Kind::InvalidArguments, text)
    }

    /// The server's definition differs from the approved one, and the user wants it withheld.
    pub(super) fn needs_approval(what: &str, name: &str, server: &str) -> Self {
        let text = format!(
            "has a {what} {} that is new or has changed since it was approved; a person can run `mcp-host approve {server}`",
            Theirs(name)
        );
        Self::new(Kind::NeedsApproval, text)
    }

    /// A rule denies the request. `rule` is `None` if no rule matched and the config's default denies it.
    pub(super) fn denied(rule: Option<&str>) -> Self {
        let what = match rule {
            Some(rule) => format!("the rule {rule:?} denies it"),
            None => "no rule allows it (host.policy.default)".to_owned(),
        };
        Self { rule: rule.map(Into::into), ..Self::new(Kind::Denied, format!("did not get the request: {what}")) }
    }

    /// A rule wants a person to allow the request, and none did.
    pub(super) fn not_permitted(rule: &str, why: &str) -> Self {
        let text = format!("did not get the request: the rule {rule:?} wants a person to allow it, and {why}");
        Self { rule: Some(rule.into()), ..Self::new(Kind::Denied, text) }
    }

    /// The call is over a rate limit. The client may call again after this time.
    pub(super) fn rate_limited(text: String, after: Duration) -> Self {
        Self { retryable: true, retry_after: Some(after), ..Self::new(Kind::RateLimited, text) }
    }

    /// The arguments do not fit the tool's schema.
    pub(super) fn invalid_arguments(name: &str, errors: Vec<FieldError>, said: &str) -> Self {
        let text = format!("did not get the call: the arguments of {} are wrong: {said}", Theirs(name));
        Self { errors: errors.into(), ..Self::new(Kind::InvalidArguments, text) }
    }

    /// Reports whether the request may have reached the server.
    pub(super) fn is_sent(&self) -> bool {
        self.sent
    }

    /// The client may not send these arguments: the config renames, hides, or presets arguments of the tool.
    pub(super) fn not_taken(name: &str, why: &str) -> Self {
        let text = format!("does not take these arguments of the tool {}: {why}", Theirs(name));
        Self::new(Kind::InvalidArguments, text)
    }

    /// One client has `limit` requests in flight and gets no more.
    pub(super) fn client_limit(limit: usize) -> Self {
        Self::overloaded(format!("more than {limit} requests at once (host.limits.pendingPerClient)"))
    }

    /// All clients together have `limit` requests in flight and get no more.
    pub(super) fn pending(limit: usize) -> Self {
        Self::overloaded(format!("more than {limit} requests of all clients at once (host.limits.pending)"))
    }

    /// One principal (user) already has half of the requests that all clients together may have in flight.
    pub(super) fn half_of_pending(half: usize) -> Self {
        Self::overloaded(format!(
            "{half} requests of yours at once, others need theirs, too (half of host.limits.pending)"
        ))
    }

    /// One client has `limit` change streams (`subscriptions/listen`) and gets no more.
    pub(super) fn listens(limit: usize) -> Self {
        Self::overloaded(format!("more than {limit} streams of changes at once (host.limits.pendingPerClient)"))
    }

    /// As many calls as allowed are parked (they wait for clients without a session to answer questions).
    pub(super) fn parked(limit: usize) -> Self {
        Self::overloaded(format!("{limit} calls are held for clients without a session (host.limits.parked)"))
    }

    /// No new client without a session is admitted: the limit is reached, and all of them are busy.
    pub(super) fn sessions(limit: usize, name: &str) -> Self {
        Self::overloaded(format!("{limit} kinds of clients are busy (host.limits.{name})"))
    }

    /// Makes a failure of a request that was not sent and that no retry helps.
    fn new(kind: Kind, text: String) -> Self {
        Self {
            kind,
            text,
            cause: None,
            sent: false,
            retryable: false,
            retry_after: None,
            errors: Box::default(),
            rule: None,
        }
    }

    fn overloaded(text: String) -> Self {
        Self { retryable: true, ..Self::new(Kind::Overloaded, text) }
    }

    /// All `maxConcurrent` slots of the server stayed taken for `queueTimeout`.
    pub(super) fn queue(wait: Duration) -> Self {
        Self::overloaded(format!("had no free slot within {wait:?} (queueTimeout)"))
    }

    /// The server did not answer within `limit`, the config setting `name`.
    pub(super) fn timeout(limit: Duration, name: &str) -> Self {
        let text = format!("gave no answer within {limit:?} ({name}); whether the work was done is unknown");
        Self { sent: true, ..Self::new(Kind::Timeout, text) }
    }

    /// The server asked something, and a client without a session did not come back with answers in time.
    pub(super) fn nobody_answered(limit: Duration) -> Self {
        let text = format!("asked something, and nobody answered within {limit:?} (host.limits.answer)");
        Self { sent: true, ..Self::new(Kind::Timeout, text) }
    }

    /// The server's answer is not valid MCP.
    pub(super) fn malformed(what: &str) -> Self {
        Self { sent: true, ..Self::new(Kind::Malformed, format!("gave no answer of MCP: {what}")) }
    }

    /// The transport lost the request or its answer.
    pub(super) fn lost(error: &transport::Error) -> Self {
        use transport::Error as E;
        let cause = Some(error.to_string());
        if error.not_sent() {
            let kind = match error {
                E::Overloaded(_) | E::Busy(_) | E::Share(_) | E::Paused { .. } => Kind::Overloaded,
                E::Unauthorized { .. } | E::SignIn { .. } => Kind::AuthRequired,
                _ => Kind::Unavailable,
            };
            let retryable = kind != Kind::AuthRequired;
            return Self { retryable, cause, ..Self::new(kind, format!("did not take the request: {error}")) };
        }
        let kind = match error {
            // The server says itself that it is overloaded. It likely did no work for the request, but that is not
            // certain.
            E::Status { status: 429 | 503, .. } => {
                let text = format!("did not serve the request: {error}");
                return Self { sent: true, retryable: true, cause, ..Self::new(Kind::Overloaded, text) };
            }
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
        Self { sent: true, cause, ..Self::new(kind, text) }
    }

    /// Changes the failure for a request that was sent before on another connection: the server may have done the work
    /// then.
    pub(super) fn after_a_loss(self) -> Self {
        let kind = if self.sent { self.kind } else { Kind::OutcomeUnknown };
        Self { kind, sent: true, ..self }
    }

    /// Turns the failure into the answer to a request for that server, and removes the server's secrets from the text.
    pub(super) fn of(&self, server: &Server) -> NoResult {
        let name = &server.config.name;
        // The last lines of a server's stderr, or its HTTP errors, may repeat secrets that the server was given.
        let safe = |text: &str| server.scrubber.scrub(text).into_owned();
        let cause = self.cause.as_deref().map(|cause| safe(cause).into());
        self.told(Some(name), format!("server {name:?} {}", safe(&self.text)), cause)
    }

    /// Returns its kind.
    #[cfg(feature = "otel")]
    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// Turns the failure into an answer that names no server.
    pub(super) fn of_host(&self) -> NoResult {
        self.told(None, self.text.clone(), None)
    }

    fn told(&self, server: Option<&str>, text: String, cause: Option<Box<str>>) -> NoResult {
        let Self { kind, sent, retryable, .. } = *self;
        let (server, retry_after, errors) = (server.map(Into::into), self.retry_after, self.errors.clone());
        let rule = self.rule.clone();
        Failed { kind, server, text: text.into(), cause, sent, retryable, retry_after, errors, rule }.into()
    }
}
