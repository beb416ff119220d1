//! The client that a request is made for, and what the request tells the server about it.

use crate::protocol::{Profile, Raw};
use crate::queues::Account;

/// The originator of a request: a client, or the host itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Owner(pub(crate) u64);

impl Owner {
    /// The host itself.
    pub(crate) const HOST: Self = Self(0);
}

/// What a request says about its client. A modern server is told with each request; a legacy server was told in the
/// handshake of its lease.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) owner: Owner,
    /// The kinds of questions that the server may ask during the request.
    pub(crate) profile: Profile,
    /// The client's `capabilities.extensions`, as far as we forward them.
    pub(crate) extensions: Option<Raw>,
    /// The lowest level of log lines that are wanted.
    pub(crate) level: Option<&'static str>,
    /// Whether the client has no session: two of its requests may belong to different conversations and are never
    /// merged.
    pub(crate) sessionless: bool,
    /// Whether the progress token outlives the request if it is answered with a task.
    pub(crate) lasts: bool,
    /// The account that the request's items are charged to while they wait in its inbox.
    pub(crate) account: Option<Account>,
    /// Whether the config sets the roots, so that the client is not asked for them.
    pub(crate) has_fixed_roots: bool,
    /// The lease's turn counter ([`super::Upstream::turn`]) when the lease was found to suit this client. If the
    /// counter has changed since, the request is not sent. `None` skips this check.
    pub(crate) turn: Option<u64>,
}

impl Terms {
    /// Terms of the host itself: the server can ask nothing.
    pub(crate) fn host() -> Self {
        Self {
            owner: Owner::HOST,
            profile: Profile::EMPTY,
            extensions: None,
            level: None,
            sessionless: false,
            lasts: false,
            account: None,
            has_fixed_roots: false,
            turn: None,
        }
    }

    /// The kinds of questions that may reach the client itself.
    pub(super) fn asks_client(&self) -> Profile {
        if self.has_fixed_roots { self.profile.without(Profile::ROOTS) } else { self.profile }
    }
}
