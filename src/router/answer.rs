//! Failures of our own (`docs/bridging.md` 14): the only place where they get their kind and their public text.

use crate::answered::{Failed, Kind, NoResult};
use crate::manager::{NoLease, Server};
use crate::protocol::Theirs;
use crate::transport;
use crate::upstream::{StateName, Unavailable};

/// Why there is no answer of the server's own. What it says may hold secrets, until it is known whose failure it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    kind: Kind,
    text: String,
    cause: Option<String>,
    sent: bool,
    retryable: bool,
}

impl Failure {
    /// The server has no connection to give.
    pub(super) fn unavailable(why: &Unavailable) -> Self {
        let cause = why.cause.as_deref().map(|cause| format!(": {cause}")).unwrap_or_default();
        let kind = if why.state == StateName::Unauthorized { Kind::AuthRequired } else { Kind::Unavailable };
        let text = format!("is {}{cause}", why.state);
        Self { retryable: kind == Kind::Unavailable, cause: why.cause.clone(), ..Self::new(kind, text) }
    }

    /// The same of a call that has waited for somebody to sign in.
    #[cfg(feature = "server")]
    pub(super) fn not_signed_in(text: String) -> Self {
        Self::new(Kind::AuthRequired, text)
    }

    /// What it says, where nothing was done for want of a token.
    #[cfg(feature = "server")]
    pub(super) fn wants_sign_in(&self) -> Option<&str> {
        (self.kind == Kind::AuthRequired && !self.sent).then_some(&*self.text)
    }

    /// It is never started, or may not be started once more.
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
                Self { cause: Some(why.clone()), ..unavailable(format!("is not to be had: {why}"), false) }
            }
            NoLease::Limit(limit) => in_use(limit, "host.limits.leasesPerServer"),
            NoLease::InAll(limit) => in_use(limit, "host.limits.leases"),
            NoLease::Share(limit) => share(limit, "host.limits.leasesPerServer"),
            NoLease::ShareInAll(limit) => share(limit, "host.limits.leases"),
            NoLease::Soon(_, why) => Self::lease(*why),
        }
    }

    /// The host ends and takes no more calls.
    pub(super) fn shutting_down() -> Self {
        let text = "was not sent: the host is shutting down".to_owned();
        Self { retryable: true, ..Self::new(Kind::ShuttingDown, text) }
    }

    /// The host ended while it ran.
    pub(super) fn cut_off() -> Self {
        let text = "the request was not waited for any longer: the host is shutting down; whether the work was done is unknown";
        Self { sent: true, ..Self::new(Kind::ShuttingDown, text.to_owned()) }
    }

    /// Its client is not served any more.
    pub(super) fn let_go() -> Self {
        let text = "the request was not waited for any longer: the host serves this client no more; whether the work was done is unknown";
        Self { sent: true, ..Self::new(Kind::ShuttingDown, text.to_owned()) }
    }

    /// It was in the config when its name was looked up.
    pub(super) fn removed() -> Self {
        let text = "the server was removed a moment ago".to_owned();
        Self::new(Kind::Unavailable, text)
    }

    /// It was listed, and its server has it no more.
    pub(super) fn gone(what: &str, name: &str) -> Self {
        let text = format!("has no {what} {} any more; list again", Theirs(name));
        Self::new(Kind::Unavailable, text)
    }

    /// The tool takes other arguments than those that it was listed with.
    pub(super) fn takes_others(name: &str, why: &str) -> Self {
        let text = format!("has changed the arguments of the tool {}: {why}; list again", Theirs(name));
        Self::new(Kind::InvalidArguments, text)
    }

    /// One client has too many requests.
    pub(super) fn client_limit(limit: usize) -> Self {
        Self::overloaded(format!("more than {limit} requests at once (host.limits.pendingPerClient)"))
    }

    /// All clients together have too many requests.
    pub(super) fn pending(limit: usize) -> Self {
        Self::overloaded(format!("more than {limit} requests of all clients at once (host.limits.pending)"))
    }

    /// One principal has half of what all may have.
    pub(super) fn half_of_pending(half: usize) -> Self {
        Self::overloaded(format!(
            "{half} requests of yours at once, others need theirs, too (half of host.limits.pending)"
        ))
    }

    /// One client has too many streams of changes.
    pub(super) fn listens(limit: usize) -> Self {
        Self::overloaded(format!("more than {limit} streams of changes at once (host.limits.pendingPerClient)"))
    }

    /// Too many calls are held for clients without a session.
    pub(super) fn parked(limit: usize) -> Self {
        Self::overloaded(format!("{limit} calls are held for clients without a session (host.limits.parked)"))
    }

    /// Too many clients without a session are busy.
    pub(super) fn sessions(limit: usize, name: &str) -> Self {
        Self::overloaded(format!("{limit} kinds of clients are busy (host.limits.{name})"))
    }

    /// Nothing was sent, and to try again is no use.
    fn new(kind: Kind, text: String) -> Self {
        Self { kind, text, cause: None, sent: false, retryable: false }
    }

    fn overloaded(text: String) -> Self {
        Self { retryable: true, ..Self::new(Kind::Overloaded, text) }
    }

    /// Its `maxConcurrent` calls are running, and `queueTimeout` is over.
    pub(super) fn queue(wait: std::time::Duration) -> Self {
        Self::overloaded(format!("had no free slot within {wait:?} (queueTimeout)"))
    }

    /// No answer in time.
    pub(super) fn timeout(limit: std::time::Duration, name: &str) -> Self {
        let text = format!("gave no answer within {limit:?} ({name}); whether the work was done is unknown");
        Self { sent: true, ..Self::new(Kind::Timeout, text) }
    }

    /// A client without a session did not come back with answers.
    pub(super) fn nobody_answered(limit: std::time::Duration) -> Self {
        let text = format!("asked something, and nobody answered within {limit:?} (host.limits.answer)");
        Self { sent: true, ..Self::new(Kind::Timeout, text) }
    }

    /// What the server answered is no answer of MCP.
    pub(super) fn malformed(what: &str) -> Self {
        Self { sent: true, ..Self::new(Kind::Malformed, format!("gave no answer of MCP: {what}")) }
    }

    /// The request or its answer was lost on the way.
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
            // It says so itself. That it did nothing for the request is likely, and not certain.
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

    /// The same of a request that had left us before.
    pub(super) fn after_a_loss(self) -> Self {
        let kind = if self.sent { self.kind } else { Kind::OutcomeUnknown };
        Self { kind, sent: true, ..self }
    }

    /// It is one of that server.
    pub(super) fn of(&self, server: &Server) -> NoResult {
        let name = &server.config.name;
        // What a server says of its end, or to an HTTP client, may hold what it was given.
        let safe = |text: &str| server.scrubber.scrub(text).into_owned();
        let cause = self.cause.as_deref().map(|cause| safe(cause).into());
        self.told(Some(name), format!("server {name:?} {}", safe(&self.text)), cause)
    }

    /// It is no server's: the host itself refuses.
    pub(super) fn of_host(&self) -> NoResult {
        self.told(None, self.text.clone(), None)
    }

    fn told(&self, server: Option<&str>, text: String, cause: Option<Box<str>>) -> NoResult {
        let Self { kind, sent, retryable, .. } = *self;
        Failed { kind, server: server.map(Into::into), text: text.into(), cause, sent, retryable }.into()
    }
}
