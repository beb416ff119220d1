//! Who may share a lease with whom (`docs/bridging.md` 15.1); pure.
//!
//! A client that can answer what the server is known to ask gets a lease of its own. All others share the *rest* lease,
//! which declares every capability that its server does not use. It declares too much rather than too little: a server
//! skips a confirmation it cannot ask for, while a needless capability costs one refused question.

use std::sync::{Arc, LazyLock};

use super::asked::Asked;
use super::claims::Claims;
use super::told::Told;
use crate::config::{ALL_VIEW, HostSettings, Roots, Sharing};
use crate::protocol::{Era, Profile};
use crate::upstream::Owner;

/// The identity of a client, proven by its credential; without authentication every client is the local user.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Principal(Arc<str>);

impl Principal {
    /// The one user of this machine.
    #[must_use]
    pub(crate) fn local() -> Self {
        Self("local".into())
    }

    /// The user who runs the daemon and connects to its socket, if HTTP clients prove who they are.
    #[cfg(feature = "server")]
    #[must_use]
    pub(crate) fn user() -> Self {
        Self("user".into())
    }

    /// The person at the page, in a session that the user who runs the daemon began.
    #[cfg(feature = "server")]
    #[must_use]
    pub(crate) fn console() -> Self {
        Self("console".into())
    }

    /// The client of this name, proven by its access token.
    #[cfg(feature = "server")]
    #[must_use]
    pub(crate) fn bearer(name: &str) -> Self {
        Self(format!("bearer:{name}").into())
    }

    /// Returns the name of the client whose bearer token proved it.
    #[must_use]
    pub(crate) fn client_name(&self) -> Option<&str> {
        self.0.strip_prefix("bearer:")
    }

    /// The subject of an access token from this issuer. The parts are encoded so that none can pass for another.
    #[cfg(feature = "server")]
    #[must_use]
    pub(crate) fn oauth(issuer: &str, subject: Option<&str>, client: Option<&str>) -> Self {
        Self(format!("oauth:{}", serde_json::json!([issuer, subject, client])).into())
    }

    /// Reports whether it is the subject of an access token from this issuer.
    #[cfg(feature = "cluster")]
    #[must_use]
    pub(crate) fn is_of_issuer(&self, issuer: &str) -> bool {
        let parts = self.0.strip_prefix("oauth:").map(serde_json::from_str::<(String, Option<String>, Option<String>)>);
        parts.is_some_and(|parts| parts.is_ok_and(|(of, ..)| of == issuer))
    }

    /// Reports whether this is the local user, the default without authentication.
    #[must_use]
    pub(crate) fn is_local(&self) -> bool {
        &*self.0 == "local"
    }

    /// The principal recorded at an earlier start.
    pub(crate) fn recalled(text: &str) -> Self {
        Self(text.into())
    }

    /// Another principal.
    #[cfg(test)]
    pub(crate) fn named(name: &str) -> Self {
        Self(name.into())
    }

    /// Returns the principal as handles are bound to it that are valid in one view alone.
    #[must_use]
    pub(crate) fn within(&self, view: &Chosen) -> Self {
        match view {
            Chosen::Named(name) => Self(format!("{}\0{name}", self.0).into()),
            Chosen::All | Chosen::Default => self.clone(),
        }
    }

    /// Returns the text that stands for the principal in sealed values.
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
    /// The era of its protocol revision, which decides whether it has a session.
    pub(crate) era: Era,
    /// Its roots; `None` until it was asked for them.
    pub(crate) roots: Option<Arc<Told>>,
    /// Whether the client is one conversation, so that all its requests have the same roots.
    pub(crate) is_one: bool,
    /// The view that it uses.
    pub(crate) view: Viewed,
    /// What its access token claims, as far as rules read it.
    pub(crate) claims: Claims,
    /// How its tools are listed.
    pub(crate) lists: Lists,
}

/// How a client's tools are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Lists {
    /// All of them.
    #[default]
    Full,
    /// Those that find and call the others.
    Search,
    /// As its view says at the time: the client has no session.
    ByView,
}

/// Which view a client uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Chosen {
    /// The view `all`.
    #[default]
    All,
    /// The view with this name.
    Named(Arc<str>),
    /// The one that the config names at the time (`host.view`).
    Default,
}

impl Chosen {
    /// Returns the view with this name.
    pub(crate) fn named(name: &str) -> Self {
        if name == ALL_VIEW { Self::All } else { Self::Named(name.into()) }
    }

    /// Returns the name of the view; `None` if the client has chosen none.
    pub(crate) fn chosen(&self) -> Option<Arc<str>> {
        static ALL: LazyLock<Arc<str>> = LazyLock::new(|| ALL_VIEW.into());
        match self {
            Self::All => Some(ALL.clone()),
            Self::Named(name) => Some(name.clone()),
            Self::Default => None,
        }
    }

    /// Returns the name of the view under these settings.
    pub(crate) fn name<'a>(&'a self, settings: &'a HostSettings) -> &'a str {
        match self {
            Self::All => ALL_VIEW,
            Self::Named(name) => name,
            Self::Default => &settings.default_view,
        }
    }
}

/// The view of a client, and how it was chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Viewed {
    pub(crate) name: Chosen,
    /// Whether another client that asks at the same address may get another view, so that a shared cache must not keep
    /// what this one is shown.
    pub(crate) is_private: bool,
}

/// Who a client is, and the view that it uses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub(crate) principal: Principal,
    pub(crate) view: Viewed,
    /// What its access token claims, as far as rules read it.
    pub(crate) claims: Claims,
}

impl From<Principal> for Identity {
    fn from(principal: Principal) -> Self {
        Self { principal, view: Viewed::default(), claims: Claims::default() }
    }
}

impl Identity {
    /// Returns a principal with the view that the config names.
    pub(crate) fn by_default(principal: Principal) -> Self {
        Self { view: Viewed { name: Chosen::Default, is_private: false }, ..principal.into() }
    }
}

/// What decides who shares the leases of one server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules<'a> {
    pub(super) sharing: Sharing,
    pub(super) roots: &'a Roots,
    /// What the server is known to ask.
    pub(super) asks: Asked,
    /// Whether the server lists something for MCP Apps.
    pub(super) shows_ui: bool,
    /// What the server may not ask this client (`host.policy`).
    pub(super) refused: Profile,
}

/// Which of a principal's clients a lease is for. Clients with equal keys share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// Whether the lease is for one client alone.
    pub(super) own: bool,
    /// The roots that all its clients have; `None` if roots do not decide who shares the lease.
    pub(super) roots: Option<Arc<Told>>,
    /// The capabilities of its clients, if exactly these are declared; `None` if the host chooses what to declare.
    pub(super) exact: Option<Profile>,
    /// Whether MCP Apps are declared, if `exact` is `None`.
    pub(super) apps: bool,
}

/// A lease as a candidate for a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate<'a> {
    pub(super) key: &'a Key,
    /// The capabilities declared to its server.
    pub(super) declared: Profile,
    pub(super) principal: &'a Principal,
    pub(super) bound_to: Option<Owner>,
    /// The client that has called on its connection, if only one has.
    pub(super) caller: Option<Owner>,
}

/// The capabilities declared when no client can be asked.
const ALL: Profile = Profile::ROOTS
    .with(Profile::ROOTS_CHANGED)
    .with(Profile::SAMPLING)
    .with(Profile::ELICITATION_FORM)
    .with(Profile::ELICITATION_URL);

impl Key {
    /// The key of the lease that the host opens for itself, shared by all clients that cannot answer the server's
    /// questions.
    pub(super) const REST: Self = Self { own: false, roots: None, exact: None, apps: true };

    /// Reports whether this is a key of rest leases: of those for clients that cannot be asked.
    pub(super) fn is_rest(&self) -> bool {
        *self == Self::REST || *self == Self { apps: false, ..Self::REST }
    }

    /// Returns the roots to tell a server under this key. `None` if they are unknown, and for a client's own lease with
    /// several conversations, because each has its own roots.
    pub(super) fn roots_of<'a>(&self, who: &'a Who) -> Option<&'a Arc<Told>> {
        who.roots.as_ref().filter(|_| !self.own || who.is_one)
    }

    /// Returns the capabilities declared under this key.
    pub(super) fn declares(&self, rules: &Rules<'_>) -> Profile {
        if let Some(exact) = self.exact {
            return rules.declared(exact);
        }
        let roots = if self.roots.is_some() { Asked::ROOTS } else { Asked::NOTHING };
        let all = ALL.without(rules.asks.without(roots).capabilities());
        rules.declared(if self.apps { all.with(Profile::APPS) } else { all })
    }
}

impl Rules<'_> {
    /// Returns the capabilities declared for a client with this profile.
    pub(super) fn declared(&self, client: Profile) -> Profile {
        if self.sharing == Sharing::Host {
            return Profile::EMPTY;
        }
        let client = client.without(self.refused);
        match self.roots {
            Roots::Client => client,
            Roots::None => client.without(Profile::ROOTS).without(Profile::ROOTS_CHANGED),
            Roots::Fixed(_) => client.with(Profile::ROOTS).without(Profile::ROOTS_CHANGED),
        }
    }

    /// Returns which of the server's known questions a client with these capabilities can answer.
    pub(super) fn answers(&self, client: Profile) -> Asked {
        let asks = match self.roots {
            Roots::Client => self.asks,
            // The config answers requests for roots.
            Roots::None | Roots::Fixed(_) => self.asks.without(Asked::ROOTS),
        };
        asks.both(Asked::answerable(self.declared(client)))
    }

    /// Returns the key by which the client shares leases.
    pub(super) fn key(&self, who: &Who) -> Key {
        let answers = self.answers(who.profile);
        let exact = match self.sharing {
            Sharing::Host => Some(Profile::EMPTY),
            Sharing::Profile | Sharing::Session => Some(who.profile.without(self.refused)),
            Sharing::Auto => None,
        };
        let apps = !self.shows_ui || who.profile.has(Profile::APPS);
        let roots = answers.has(Asked::ROOTS).then(|| who.roots.clone().unwrap_or_else(Told::nothing));
        if self.sharing == Sharing::Session || !answers.without(Asked::ROOTS).is_empty() {
            return Key { own: true, roots: None, exact: Some(who.profile.without(self.refused)), apps };
        }
        Key { own: false, roots, exact, apps }
    }

    /// Reports whether a lease declares capabilities that the server uses and this client lacks.
    fn exceeds(&self, declared: Profile, client: Profile) -> bool {
        let asked = self.asks.both(Asked::answerable(declared));
        let widgets = self.shows_ui && declared.has(Profile::APPS) && !client.has(Profile::APPS);
        widgets || !asked.without(self.answers(client)).is_empty()
    }

    /// Reports whether clients that cannot answer the server's questions should move to a connection that declares
    /// less. An empty list of roots harms no one, so a request for roots alone is no reason.
    pub(super) fn is_stale(&self, key: &Key, declared: Profile) -> bool {
        let asked = self.asks.without(Asked::ROOTS).both(Asked::answerable(declared));
        !key.own && key.exact.is_none() && !asked.is_empty()
    }

    /// Reports whether the lease has served other conversations that count as the same client, with other roots or
    /// before it was known that roots matter.
    fn is_of_others(&self, lease: &Key, key: &Key, who: &Who) -> bool {
        !who.is_one && !lease.own && key.roots.is_some() && lease.roots != key.roots
    }

    /// Reports whether the lease's server works for another client, or was told roots that are not this client's.
    pub(super) fn is_told_of_others(&self, lease: Candidate<'_>, key: &Key, who: &Who) -> bool {
        if self.sharing == Sharing::Host {
            return false;
        }
        let is_alone = who.is_one && lease.caller == Some(who.owner);
        let other_roots = lease.key.roots.is_some() && lease.key.roots != key.roots && !is_alone;
        match lease.bound_to {
            Some(owner) => owner != who.owner,
            None => other_roots && !lease.key.own,
        }
    }

    /// Ranks how well a lease serves a client with this key; higher is better, `None` if not at all.
    pub(super) fn fit(&self, lease: Candidate<'_>, key: &Key, who: &Who) -> Option<u8> {
        if self.sharing == Sharing::Host {
            return Some(0);
        }
        if *lease.principal != who.principal || self.is_of_others(lease.key, key, who) {
            return None;
        }
        match lease.bound_to {
            Some(owner) if owner != who.owner => None,
            // A server that was told exactly this client's capabilities never asks what the client cannot answer.
            Some(_) => {
                let is_exact = lease.key.own && lease.declared == self.declared(who.profile);
                (is_exact || !self.exceeds(lease.declared, who.profile)).then_some(3)
            }
            None if lease.key == key => (!self.is_stale(key, lease.declared)).then_some(1),
            // The only client that ever called stays, for what its server holds in memory. A lease with exact
            // capabilities does not move, nor does any lease to a shared key with them.
            None => {
                let stays = lease.caller == Some(who.owner)
                    && (key.exact.is_none() || key.own)
                    && lease.key.exact.is_none()
                    && self.sharing == Sharing::Auto
                    // A server that was told roots is not a rest lease for others.
                    && (lease.key.roots.is_none() || key.own || key.roots.is_some())
                    && !self.exceeds(lease.declared, who.profile)
                    && Asked::answerable(lease.declared).has(self.answers(who.profile));
                stays.then_some(2)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(asks: Asked) -> Rules<'static> {
        Rules { sharing: Sharing::Auto, roots: &Roots::Client, asks, shows_ui: false, refused: Profile::EMPTY }
    }

    fn who(profile: Profile) -> Who {
        Who {
            owner: Owner(1),
            principal: Principal::local(),
            profile,
            era: Era::Legacy,
            roots: None,
            is_one: true,
            view: Viewed::default(),
            claims: Claims::default(),
            lists: Default::default(),
        }
    }

    fn told(uri: &str) -> Option<Arc<Told>> {
        Some(Told::of(&[uri.to_owned()]))
    }

    /// The table of `docs/bridging.md` 15.1, row by row.
    #[test]
    fn who_shares_with_whom() {
        let (roots, sampling) = (Profile::ROOTS, Profile::ROOTS.with(Profile::SAMPLING));
        for profile in [Profile::EMPTY, roots, sampling] {
            assert_eq!(rules(Asked::NOTHING).key(&who(profile)), Key::REST);
        }
        let asks_roots = rules(Asked::ROOTS);
        assert_eq!(asks_roots.key(&who(Profile::SAMPLING)), Key::REST);
        let by_roots = Key { roots: told("file:///a"), ..Key::REST };
        let client = Who { roots: told("file:///a"), ..who(sampling) };
        assert_eq!(asks_roots.key(&client), by_roots);
        assert_ne!(asks_roots.key(&Who { roots: told("file:///b"), ..client.clone() }), by_roots);
        let asks_more = rules(Asked::ROOTS.with(Asked::SAMPLING));
        assert_eq!(asks_more.key(&who(Profile::ELICITATION_FORM)), Key::REST);
        assert_eq!(asks_more.key(&Who { profile: roots, ..client.clone() }), by_roots);
        assert_eq!(asks_more.key(&client), Key { own: true, exact: Some(sampling), ..Key::REST });
        // Declared: everything but what is asked; plus roots; exactly the client's.
        let all = ALL.with(Profile::APPS);
        assert_eq!(Key::REST.declares(&rules(Asked::NOTHING)), all);
        assert_eq!(Key::REST.declares(&asks_more), all.without(Profile::SAMPLING).without(Asked::ROOTS.capabilities()));
        assert_eq!(by_roots.declares(&asks_more), all.without(Profile::SAMPLING));
        assert_eq!(asks_more.key(&client).declares(&asks_more), sampling);
    }

    #[test]
    fn other_ways_to_share() {
        let by = |sharing| Rules { sharing, ..rules(Asked::NOTHING) };
        let client = who(Profile::SAMPLING);
        let exact = |key: Key| (key.own, key.exact);
        assert_eq!(exact(by(Sharing::Profile).key(&client)), (false, Some(Profile::SAMPLING)));
        assert_eq!(exact(by(Sharing::Session).key(&client)), (true, Some(Profile::SAMPLING)));
        assert_eq!(exact(by(Sharing::Host).key(&client)), (false, Some(Profile::EMPTY)));
        assert_eq!(by(Sharing::Host).key(&client).declares(&by(Sharing::Host)), Profile::EMPTY);
        let fixed = Rules { roots: &Roots::Fixed(Vec::new()), ..rules(Asked::ROOTS) };
        assert_eq!(fixed.key(&who(Profile::ROOTS)), Key::REST, "the config answers for all");
        assert!(Key::REST.declares(&fixed).has(Profile::ROOTS) || fixed.declared(Profile::EMPTY) == Profile::ROOTS);
    }

    #[test]
    fn a_lease_goes_on_with_whom_it_can() {
        let principal = Principal::local();
        let declared = ALL.with(Profile::APPS);
        let lease = |key, bound_to, caller| Candidate { key, declared, principal: &principal, bound_to, caller };
        let asks = rules(Asked::SAMPLING);
        let (able, unable) = (who(Profile::SAMPLING), who(Profile::ROOTS));
        let fit = |rules: &Rules<'_>, candidate, who: &Who| rules.fit(candidate, &rules.key(who), who);
        let rest = Key::REST;
        assert_eq!(fit(&rules(Asked::NOTHING), lease(&rest, None, None), &able), Some(1));
        assert_eq!(fit(&asks, lease(&rest, None, Some(Owner(1))), &able), Some(2), "it alone has called");
        assert_eq!(fit(&asks, lease(&rest, None, None), &able), None);
        assert_eq!(fit(&asks, lease(&rest, Some(Owner(1)), None), &able), Some(3));
        assert_eq!(fit(&asks, lease(&rest, Some(Owner(2)), None), &able), None);
        assert_eq!(fit(&asks, lease(&rest, None, Some(Owner(1))), &unable), None, "it would be asked in vain");
        // Its own lease does not fit either: the server was told more before it was known to ask for sampling.
        let own = Key { own: true, exact: Some(unable.profile), ..Key::REST };
        assert_eq!(fit(&asks, lease(&own, Some(Owner(1)), None), &unable), None);
        let exactly = Candidate { declared: unable.profile, ..lease(&own, Some(Owner(1)), None) };
        assert_eq!(fit(&asks, exactly, &unable), Some(3));
        assert_eq!(fit(&rules(Asked::ROOTS), lease(&rest, None, None), &who(Profile::EMPTY)), Some(1));
        let other = Who { principal: Principal::named("other"), ..able };
        assert_eq!(fit(&rules(Asked::NOTHING), lease(&rest, None, None), &other), None);
    }
}
