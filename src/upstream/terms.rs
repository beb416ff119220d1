//! Whom a request to a server is made for, and what it says of them.

use crate::protocol::{Profile, Raw};
use crate::queues::Account;

/// Whom a request is made for: a client, or the host itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Owner(pub(crate) u64);

impl Owner {
    /// The host itself.
    pub(crate) const HOST: Self = Self(0);
}

/// What a request says of whoever it is made for. A server of the modern era is told with each request; one of the
/// legacy era was told in the handshake of its lease.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) owner: Owner,
    /// What may be asked during the request.
    pub(crate) profile: Profile,
    /// The client's `capabilities.extensions`, as far as we carry them.
    pub(crate) extensions: Option<Raw>,
    /// From which level on log lines are wanted.
    pub(crate) level: Option<&'static str>,
    /// The client has no session: two requests of it may be those of two conversations, and are never mistaken for one.
    pub(crate) sessionless: bool,
    /// Its progress token is good for as long as the task that it is answered with.
    pub(crate) lasts: bool,
    /// What comes back counts for that account as long as nobody takes it.
    pub(crate) account: Option<Account>,
    /// The config tells its roots: a question for them is not put to the client.
    pub(crate) has_fixed_roots: bool,
    /// The turn of the lease at which it was for this client ([`super::Upstream::turn`]); it is not sent at another.
    pub(crate) turn: Option<u64>,
}

impl Terms {
    /// The host asks for itself: nobody can be asked anything.
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

    /// What may be put to the client itself.
    pub(super) fn asks_client(&self) -> Profile {
        if self.has_fixed_roots { self.profile.without(Profile::ROOTS) } else { self.profile }
    }
}
