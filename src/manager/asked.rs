//! The kinds of questions (requests from a server to a client) that a server is known to ask; pure.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::protocol::{Method, Profile};

/// A set of kinds of questions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked(u8);

/// Each kind, its word, and every capability that lets a client answer some of these questions.
const KINDS: [(Asked, &str, Profile); 3] = [
    (Asked::ROOTS, "roots", Profile::ROOTS.with(Profile::ROOTS_CHANGED)),
    (Asked::SAMPLING, "sampling", Profile::SAMPLING.with(Profile::SAMPLING_TOOLS).with(Profile::SAMPLING_CONTEXT)),
    (Asked::ELICITATION, "elicitation", Profile::ELICITATION_FORM.with(Profile::ELICITATION_URL)),
];

impl Asked {
    /// The empty set.
    pub(crate) const NOTHING: Self = Self(0);
    /// `roots/list`
    pub(crate) const ROOTS: Self = Self(1);
    /// `sampling/createMessage`
    pub(crate) const SAMPLING: Self = Self(1 << 1);
    /// `elicitation/create`, or the error that requires visiting a URL first
    pub(crate) const ELICITATION: Self = Self(1 << 2);

    /// Returns the kind of question that this method asks; the empty set if it is not a question.
    pub(crate) fn of(method: &Method) -> Self {
        match method {
            Method::RootsList => Self::ROOTS,
            Method::CreateMessage => Self::SAMPLING,
            Method::Elicit => Self::ELICITATION,
            _ => Self::NOTHING,
        }
    }

    /// Returns the kinds of questions of which a client with this profile can answer at least some.
    pub(crate) fn answerable(profile: Profile) -> Self {
        let can = |(_, _, all): &&(Self, &str, Profile)| profile.without(*all) != profile;
        KINDS.iter().filter(can).fold(Self::NOTHING, |set, (kind, ..)| set.with(*kind))
    }

    /// Returns every capability that answers questions of these kinds.
    pub(crate) fn capabilities(self) -> Profile {
        let in_it = KINDS.iter().filter(|(kind, ..)| self.has(*kind));
        in_it.fold(Profile::EMPTY, |profile, (_, _, all)| profile.with(*all))
    }

    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the intersection.
    pub(crate) const fn both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    pub(crate) const fn from_bits(bits: u8) -> Self {
        Self(bits & 7)
    }

    /// Returns the words for the kinds in the set.
    pub(crate) fn words(self) -> Vec<&'static str> {
        KINDS.iter().filter(|(kind, ..)| self.has(*kind)).map(|(_, word, _)| *word).collect()
    }
}

impl Serialize for Asked {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.words().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Asked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let words = Vec::<String>::deserialize(deserializer)?;
        let of = |word: &String| KINDS.iter().find(|(_, known, _)| known == word).map(|(kind, ..)| *kind);
        // Kinds unknown to this version are ignored.
        Ok(words.iter().filter_map(of).fold(Self::NOTHING, Self::with))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_can_answer_is_told_by_kind() {
        let all = Asked::ROOTS.with(Asked::SAMPLING).with(Asked::ELICITATION);
        assert_eq!(Asked::answerable(Profile::EMPTY.with(Profile::APPS)), Asked::NOTHING);
        assert_eq!(Asked::answerable(Profile::ELICITATION_URL), Asked::ELICITATION);
        assert_eq!(Asked::answerable(Profile::ROOTS.with(Profile::SAMPLING_TOOLS)), Asked::ROOTS.with(Asked::SAMPLING));
        assert_eq!(Asked::answerable(all.capabilities()), all);
        let text = serde_json::to_string(&all.without(Asked::SAMPLING)).unwrap();
        assert_eq!(text, r#"["roots","elicitation"]"#);
        assert_eq!(serde_json::from_str::<Asked>(r#"["roots","a new one"]"#).unwrap(), Asked::ROOTS);
    }
}
