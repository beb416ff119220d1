//! Who may share a lease with whom (`bridging.md` 2); pure.

use std::sync::Arc;

use crate::config::{Roots, Sharing};
use crate::protocol::Profile;
use crate::upstream::Owner;

/// The identity of a client, proven by its credential; without authentication everybody is the local user.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Principal(Arc<str>);

impl Principal {
    /// The one user of this machine.
    #[must_use]
    pub(crate) fn local() -> Self {
        Self("local".into())
    }

    /// The client of that name, proven by its token.
    #[cfg(feature = "server")]
    #[must_use]
    pub(crate) fn bearer(name: &str) -> Self {
        Self(format!("bearer:{name}").into())
    }

    /// Who a token of that issuer is for. Each part is set apart from the next, whatever stands in it.
    #[cfg(feature = "server")]
    #[must_use]
    pub(crate) fn oauth(issuer: &str, subject: Option<&str>, client: Option<&str>) -> Self {
        Self(format!("oauth:{}", serde_json::json!([issuer, subject, client])).into())
    }

    /// Whether it is whoever is there, for want of anybody who says more.
    #[must_use]
    pub(crate) fn is_local(&self) -> bool {
        &*self.0 == "local"
    }

    /// Somebody else.
    #[cfg(test)]
    pub(crate) fn named(name: &str) -> Self {
        Self(name.into())
    }

    /// Stands for it in what is sealed.
    #[must_use]
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A client as leases see it.
#[derive(Clone, Debug)]
pub(crate) struct Who {
    pub(crate) owner: Owner,
    pub(crate) principal: Principal,
    pub(crate) profile: Profile,
}

/// A lease as the choice sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate<'a> {
    pub(super) profile: Profile,
    pub(super) principal: &'a Principal,
    pub(super) bound_to: Option<Owner>,
}

/// The capabilities that are declared to a server for a client.
pub(super) fn profile(client: Profile, sharing: Sharing, roots: &Roots) -> Profile {
    if sharing == Sharing::Host {
        return Profile::EMPTY;
    }
    match roots {
        Roots::Client => client,
        Roots::None => client.without(Profile::ROOTS).without(Profile::ROOTS_CHANGED),
        Roots::Fixed(_) => client.with(Profile::ROOTS).without(Profile::ROOTS_CHANGED),
    }
}

/// How well a lease serves a client: not at all, or the better the higher.
pub(super) fn fit(lease: Candidate<'_>, sharing: Sharing, profile: Profile, who: &Who) -> Option<u8> {
    if lease.profile != profile {
        return None;
    }
    if sharing == Sharing::Host {
        return Some(0);
    }
    if *lease.principal != who.principal {
        return None;
    }
    match lease.bound_to {
        Some(owner) if owner == who.owner => Some(1),
        Some(_) => None,
        None => Some(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_asked_stays_with_its_client() {
        let principal = Principal::local();
        let who = Who { owner: Owner(1), principal: principal.clone(), profile: Profile::ROOTS };
        let lease = |bound_to| Candidate { profile: Profile::ROOTS, principal: &principal, bound_to };
        assert_eq!(fit(lease(None), Sharing::Auto, Profile::ROOTS, &who), Some(0));
        assert_eq!(fit(lease(Some(Owner(1))), Sharing::Auto, Profile::ROOTS, &who), Some(1));
        assert_eq!(fit(lease(Some(Owner(2))), Sharing::Auto, Profile::ROOTS, &who), None);
        assert_eq!(fit(lease(None), Sharing::Auto, Profile::EMPTY, &who), None, "another profile, another lease");
    }

    #[test]
    fn a_lease_shared_by_the_host_declares_nothing() {
        let all = Profile::ROOTS.with(Profile::SAMPLING);
        assert_eq!(profile(all, Sharing::Host, &Roots::Client), Profile::EMPTY);
        assert_eq!(profile(all, Sharing::Auto, &Roots::None), Profile::SAMPLING);
        assert_eq!(profile(Profile::EMPTY, Sharing::Auto, &Roots::Fixed(Vec::new())), Profile::ROOTS);
    }
}
