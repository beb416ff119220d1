//! Keys of listings: a key holds what decides, apart from the server itself, what a lease lists.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::{Principal, Told};
use crate::protocol::{Profile, Raw};

const REST: &str = "rest";
const IN_SESSIONS: &str = "session ";

/// Leases of one server with equal keys list the same. A client sees only the listings under its own key and under
/// [`ListKey::Rest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ListKey {
    /// The host's own rest lease, and every lease that lists the same to everyone: at a server without sessions, or
    /// with one session for all clients.
    Rest,
    /// The leases of one principal's clients with the same declared capabilities and the same roots.
    Own {
        /// The principal.
        principal: Principal,
        /// The declared capabilities.
        declared: Profile,
        /// Their roots, if roots decide who shares.
        roots: Option<Arc<Told>>,
        /// Which leases of a server that speaks both eras.
        era: Leases,
    },
}

/// Which leases of a server: one that speaks both eras has leases with and without a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leases {
    /// All leases.
    All,
    /// The leases with a session.
    InSessions,
}

impl ListKey {
    pub(super) fn own(principal: &Principal, declared: Profile, roots: Option<Arc<Told>>) -> Self {
        Self::Own { principal: principal.clone(), declared, roots, era: Leases::All }
    }

    /// Turns the key into one of leases with a session, if the server speaks both eras.
    pub(super) fn in_sessions(self) -> Self {
        match self {
            Self::Rest => Self::Rest,
            Self::Own { principal, declared, roots, .. } => {
                Self::Own { principal, declared, roots, era: Leases::InSessions }
            }
        }
    }

    /// Reports whether this is the key of leases with a session.
    pub(super) fn is_in_sessions(&self) -> bool {
        matches!(self, Self::Own { era: Leases::InSessions, .. })
    }

    /// Reports whether listings under this key outlive this process. Listings that depend on roots do not.
    pub(super) fn is_kept(&self) -> bool {
        !matches!(self, Self::Own { roots: Some(_), .. })
    }

    /// Returns a kept key as text, stable from one start to the next.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Rest => REST.to_owned(),
            Self::Own { principal, declared, era, .. } => {
                let era = if *era == Leases::InSessions { IN_SESSIONS } else { "" };
                let mut capabilities = declared.to_capabilities();
                if let Some(extensions) = declared.extensions() {
                    capabilities.pop();
                    let comma = if capabilities.len() > 1 { "," } else { "" };
                    capabilities += &format!(r#"{comma}"extensions":{extensions}}}"#);
                }
                format!("{era}{} {capabilities}", Raw::from_value(principal.as_str()))
            }
        }
    }

    /// Parses the text of a key.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text == REST {
            return Some(Self::Rest);
        }
        let (rest, era) = match text.strip_prefix(IN_SESSIONS) {
            Some(rest) => (rest, Leases::InSessions),
            None => (text, Leases::All),
        };
        let mut parts = serde_json::Deserializer::from_str(rest).into_iter::<Box<RawValue>>();
        let (principal, capabilities) = (parts.next()?.ok()?, parts.next()?.ok()?);
        let principal: String = serde_json::from_str(principal.get()).ok()?;
        let key = Self::Own {
            principal: Principal::recalled(&principal),
            declared: Profile::from_capabilities(&capabilities),
            roots: None,
            era,
        };
        (key.text() == text).then_some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_differ_have_texts_that_differ() {
        let (one, other) = (Principal::local(), Principal::named("other"));
        let apps = Profile::ROOTS.with(Profile::APPS);
        let keys = [
            ListKey::Rest,
            ListKey::own(&one, Profile::EMPTY, None),
            ListKey::own(&one, Profile::ROOTS, None),
            ListKey::own(&one, Profile::ROOTS.with(Profile::ROOTS_CHANGED), None),
            ListKey::own(&one, apps, None),
            ListKey::own(&one, apps, None).in_sessions(),
            ListKey::own(&other, apps, None),
        ];
        let texts: std::collections::BTreeSet<String> = keys.iter().map(ListKey::text).collect();
        assert_eq!(texts.len(), keys.len());
        for key in keys {
            assert_eq!(ListKey::parse(&key.text()), Some(key));
        }
        let told = ListKey::own(&one, Profile::ROOTS, Some(Told::nothing()));
        assert!(!told.is_kept() && told != ListKey::own(&one, Profile::ROOTS, None));
        for text in [
            "",
            "own",
            "\"local\"",
            "\"local\" 7",
            "\"local\" {\"roots\":7}",
            "\"local\" {} x",
            "session ",
            "session rest",
        ] {
            assert_eq!(ListKey::parse(text), None, "{text}");
        }
    }
}
