//! Whose listing it is: what decides, beside the server itself, what a lease lists.

use serde_json::value::RawValue;

use crate::manager::Principal;
use crate::protocol::{Profile, Raw};

const REST: &str = "rest";

/// Leases of one server with equal keys list the same. No client is shown what was listed under another key than its own or
/// [`ListKey::Rest`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::manager) enum ListKey {
    /// The lease of the host itself, and whatever lists the same to everybody: a server without sessions, one session for all.
    Rest,
    /// The leases of one person's clients to whose server the same is declared.
    Own {
        /// The person.
        principal: Principal,
        /// What is declared.
        declared: Profile,
    },
}

impl ListKey {
    pub(in crate::manager) fn own(principal: &Principal, declared: Profile) -> Self {
        Self::Own { principal: principal.clone(), declared }
    }

    /// The key as text. It stays the same from one start to the next.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Rest => REST.to_owned(),
            Self::Own { principal, declared } => {
                let mut capabilities = declared.to_capabilities();
                if let Some(extensions) = declared.extensions() {
                    capabilities.pop();
                    let comma = if capabilities.len() > 1 { "," } else { "" };
                    capabilities += &format!(r#"{comma}"extensions":{extensions}}}"#);
                }
                format!("{} {capabilities}", Raw::from_value(principal.as_str()))
            }
        }
    }

    /// Reads such a text.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text == REST {
            return Some(Self::Rest);
        }
        let mut parts = serde_json::Deserializer::from_str(text).into_iter::<Box<RawValue>>();
        let (principal, capabilities) = (parts.next()?.ok()?, parts.next()?.ok()?);
        let principal: String = serde_json::from_str(principal.get()).ok()?;
        let key = Self::Own {
            principal: Principal::recalled(&principal),
            declared: Profile::from_capabilities(&capabilities),
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
            ListKey::own(&one, Profile::EMPTY),
            ListKey::own(&one, Profile::ROOTS),
            ListKey::own(&one, Profile::ROOTS.with(Profile::ROOTS_CHANGED)),
            ListKey::own(&one, apps),
            ListKey::own(&other, apps),
        ];
        let texts: std::collections::BTreeSet<String> = keys.iter().map(ListKey::text).collect();
        assert_eq!(texts.len(), keys.len());
        for key in keys {
            assert_eq!(ListKey::parse(&key.text()), Some(key));
        }
        for text in ["", "own", "\"local\"", "\"local\" 7", "\"local\" {\"roots\":7}", "\"local\" {} x"] {
            assert_eq!(ListKey::parse(text), None, "{text}");
        }
    }
}
