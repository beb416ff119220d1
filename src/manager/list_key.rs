//! Whose listing it is: what decides, beside the server itself, what a lease lists.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::{Principal, Told};
use crate::protocol::{Profile, Raw};

const REST: &str = "rest";
const IN_SESSIONS: &str = "session ";

/// Leases of one server with equal keys list the same. No client is shown what was listed under another key than its own or
/// [`ListKey::Rest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ListKey {
    /// The rest lease of the host itself, and whatever lists the same to everybody: a server without sessions, one session for all.
    Rest,
    /// The leases of one person's clients to whose server the same is declared, and who told the same roots.
    Own {
        /// The person.
        principal: Principal,
        /// What is declared.
        declared: Profile,
        /// The roots that they told, where these decide who shares.
        roots: Option<Arc<Told>>,
        /// Whether they are those with a session beside others without: the server speaks both eras.
        era: Leases,
    },
}

/// Of a server that speaks both eras, some leases have a session and some do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leases {
    /// All leases that there are.
    All,
    /// Those that have one.
    InSessions,
}

impl ListKey {
    pub(super) fn own(principal: &Principal, declared: Profile, roots: Option<Arc<Told>>) -> Self {
        Self::Own { principal: principal.clone(), declared, roots, era: Leases::All }
    }

    /// The same of leases with a session, at a server that speaks both eras.
    pub(super) fn in_sessions(self) -> Self {
        match self {
            Self::Rest => Self::Rest,
            Self::Own { principal, declared, roots, .. } => {
                Self::Own { principal, declared, roots, era: Leases::InSessions }
            }
        }
    }

    /// Whether it is one of these.
    pub(super) fn is_in_sessions(&self) -> bool {
        matches!(self, Self::Own { era: Leases::InSessions, .. })
    }

    /// Whether what is listed under it outlives this process. Lists of roots do not.
    pub(super) fn is_kept(&self) -> bool {
        !matches!(self, Self::Own { roots: Some(_), .. })
    }

    /// A key that is kept, as text. It stays the same from one start to the next.
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

    /// Reads such a text.
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
