//! The client capabilities that matter to servers: the profile that decides which leases (connections to servers) a
//! client may share.

use serde_json::value::RawValue;

use super::value;

/// The set of those client capabilities that change what a server does: to a server, two clients with equal profiles
/// look the same.
///
/// ```
/// use mcp_host::Profile;
///
/// let profile = Profile::ROOTS.with(Profile::SAMPLING);
/// assert!(profile.has(Profile::ROOTS) && !profile.has(Profile::ELICITATION_FORM));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Profile(u8);

impl Profile {
    /// No capability: a server can ask nothing.
    pub const EMPTY: Self = Self(0);
    /// `roots`
    pub const ROOTS: Self = Self(1);
    /// `sampling`
    pub const SAMPLING: Self = Self(1 << 1);
    /// `sampling.tools`
    pub const SAMPLING_TOOLS: Self = Self(1 << 2);
    /// `sampling.context`
    pub const SAMPLING_CONTEXT: Self = Self(1 << 3);
    /// `elicitation.form`, also written as an empty `elicitation`
    pub const ELICITATION_FORM: Self = Self(1 << 4);
    /// `elicitation.url`
    pub const ELICITATION_URL: Self = Self(1 << 5);
    /// `roots.listChanged`
    pub const ROOTS_CHANGED: Self = Self(1 << 6);
    /// `extensions["io.modelcontextprotocol/ui"]` (MCP Apps), with the only content type that it has so far
    pub const APPS: Self = Self(1 << 7);

    /// Returns the union of both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns this set without `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether this set contains all of `other`.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether a server could ask such a client nothing.
    #[must_use]
    pub(crate) const fn asks_nothing(self) -> bool {
        self.without(Self::APPS).is_empty()
    }

    /// Returns the set as one byte. It is kept in ids of sessions, so each capability keeps its bit.
    #[must_use]
    #[cfg(feature = "server")]
    pub(crate) const fn to_bits(self) -> u8 {
        self.0
    }

    /// Returns the set that [`Profile::to_bits`] made a byte of.
    #[must_use]
    #[cfg(feature = "server")]
    pub(crate) const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// Returns the `extensions` to declare to a server with a session, as an object; `None` if there are none.
    #[must_use]
    pub(crate) fn extensions(self) -> Option<&'static str> {
        self.has(Self::APPS).then_some(r#"{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}"#)
    }

    /// Reads the `capabilities` of an `initialize` request. A capability of unknown shape counts as absent.
    #[must_use]
    pub(crate) fn from_capabilities(capabilities: &RawValue) -> Self {
        let mut profile = Self::EMPTY;
        let mut add = |present: bool, flag: Self| {
            if present {
                profile = profile.with(flag);
            }
        };
        let part = |name: &str| value::member(capabilities, name).filter(|value| value.get().starts_with('{'));
        let has =
            |value: &RawValue, name: &str| value::member(value, name).is_some_and(|value| value.get().starts_with('{'));
        if let Some(roots) = part("roots") {
            add(true, Self::ROOTS);
            add(value::member(roots, "listChanged").is_some_and(|value| value.get() == "true"), Self::ROOTS_CHANGED);
        }
        if let Some(sampling) = part("sampling") {
            add(true, Self::SAMPLING);
            add(has(sampling, "tools"), Self::SAMPLING_TOOLS);
            add(has(sampling, "context"), Self::SAMPLING_CONTEXT);
        }
        if let Some(elicitation) = part("elicitation") {
            let url = has(elicitation, "url");
            add(url, Self::ELICITATION_URL);
            // 2025-06-18 knows only forms and declares them with an empty object.
            add(!url || has(elicitation, "form"), Self::ELICITATION_FORM);
        }
        let apps = part("extensions").and_then(|extensions| value::member(extensions, "io.modelcontextprotocol/ui"));
        if let Some(apps) = apps.filter(|apps| apps.get().starts_with('{')) {
            let types = value::member(apps, "mimeTypes").and_then(value::array);
            let is_app = |kind: &RawValue| value::string(kind).as_deref() == Some("text/html;profile=mcp-app");
            // A client that names no types accepts the only one there is.
            add(types.is_none_or(|types| types.into_iter().any(is_app)), Self::APPS);
        }
        profile
    }

    /// Writes the `capabilities` that we declare to a server on behalf of a client with this profile.
    #[must_use]
    pub(crate) fn to_capabilities(self) -> String {
        let mut parts = Vec::new();
        if self.has(Self::ROOTS) {
            let changed = if self.has(Self::ROOTS_CHANGED) { r#""listChanged":true"# } else { "" };
            parts.push(format!(r#""roots":{{{changed}}}"#));
        }
        if self.has(Self::SAMPLING) {
            parts.push(self.group("sampling", &[("tools", Self::SAMPLING_TOOLS), ("context", Self::SAMPLING_CONTEXT)]));
        }
        if self.has(Self::ELICITATION_FORM) || self.has(Self::ELICITATION_URL) {
            parts.push(self.group("elicitation", &[("form", Self::ELICITATION_FORM), ("url", Self::ELICITATION_URL)]));
        }
        format!("{{{}}}", parts.join(","))
    }

    fn group(self, name: &str, members: &[(&str, Self)]) -> String {
        let inner: Vec<String> = members
            .iter()
            .filter(|(_, flag)| self.has(*flag))
            .map(|(member, _)| format!(r#""{member}":{{}}"#))
            .collect();
        format!(r#""{name}":{{{}}}"#, inner.join(","))
    }
}
