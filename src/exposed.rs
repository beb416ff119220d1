//! Makes the names and URIs under which clients see what servers offer (*exposed* names).
//!
//! An exposed name depends only on the server's alias and on the server's own (*raw*) name, so nothing is ever renamed
//! because something else was added or removed. A name is resolved by a table (the catalog), never by splitting it; a
//! prefixed URI needs no table.

use std::borrow::Cow;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::hex;
use crate::name::ServerName;

/// How exposed names are made (`host.naming`).
///
/// ```
/// use mcp_host::config::HostSettings;
/// use mcp_host::exposed::Naming;
///
/// let naming = Naming { separator: "-".to_owned(), ..Naming::default() };
/// let settings = HostSettings::default().naming(naming);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Naming {
    /// The separator between the server's alias and the tool's or prompt's name.
    pub separator: String,
    /// The longest exposed name of a tool or prompt, in bytes; 40 to 128.
    pub max_length: usize,
    /// How the resource URIs from different servers are kept apart.
    pub resources: UriMode,
}

impl Default for Naming {
    fn default() -> Self {
        // 46 bytes are what the strictest clients leave for a name after their own prefix.
        Self { separator: "__".to_owned(), max_length: 46, resources: UriMode::Prefix }
    }
}

/// How resource URIs are exposed.
///
/// ```
/// use mcp_host::exposed::{Naming, UriMode};
///
/// assert_eq!(Naming::default().resources, UriMode::Prefix);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UriMode {
    /// With the server's alias in front of the scheme: `<alias>+<uri>`.
    #[default]
    Prefix,
    /// Unchanged.
    Passthrough,
}

/// The length of the suffix that an altered name gets: `_` and 8 hexadecimal digits.
const SUFFIX: usize = 9;

/// The first parts of URI schemes that contain a `+` (`git` in `git+ssh:`). A URI that begins with one is looked up
/// among the listed URIs before that part is taken for an alias.
pub(crate) const SCHEME_HEADS: [&str; 20] = [
    "bzr",
    "coap",
    "coaps",
    "docker",
    "file",
    "git",
    "hg",
    "http",
    "https",
    "jar",
    "mongodb",
    "mssql",
    "mysql",
    "oracle",
    "postgresql",
    "redis",
    "sqlite",
    "svn",
    "unix",
    "web",
];

/// Returns the exposed name of a tool or prompt: `<alias><separator><raw>`, altered if it is too long or has characters
/// that are not allowed.
#[must_use]
pub(crate) fn exposed_name(alias: &ServerName, raw: &str, naming: &Naming) -> String {
    let mut head = format!("{alias}{}", naming.separator);
    // Only an overlong separator leaves no room for the name; the limit holds even then.
    head.truncate(floor_boundary(&head, naming.max_length.saturating_sub(SUFFIX)));
    fitted(head, alias, raw, naming.max_length)
}

/// Reports whether every exposed name with this alias differs from every one with another alias: no alias can hold the
/// separator, and both fit into the name.
#[must_use]
pub(crate) fn is_set_apart(alias: &ServerName, naming: &Naming) -> bool {
    let separator = &naming.separator;
    let is_odd = separator.bytes().any(|byte| !byte.is_ascii_alphanumeric() && byte != b'-');
    is_odd && alias.as_str().len() + separator.len() <= naming.max_length.saturating_sub(SUFFIX)
}

/// Returns the exposed name without a prefix: the raw name, altered if it is too long or has characters that are not
/// allowed.
#[must_use]
pub(crate) fn bare_name(alias: &ServerName, raw: &str, naming: &Naming) -> String {
    fitted(String::new(), alias, raw, naming.max_length)
}

/// Joins `head` and `raw` within `max` bytes. If the raw name has to be altered, and only then, the result ends with a
/// hash of alias and raw name.
fn fitted(head: String, alias: &ServerName, raw: &str, max: usize) -> String {
    let room = max.saturating_sub(head.len());
    let mut name = head;
    if !raw.is_empty() && raw.len() <= room && raw.bytes().all(is_allowed) {
        name.push_str(raw);
        return name;
    }
    let kept = raw.chars().take(room.saturating_sub(SUFFIX));
    name.extend(kept.map(|char| if char.is_ascii() && is_allowed(char as u8) { char } else { '_' }));
    let hash = Sha256::new().chain_update(alias.as_str()).chain_update([0]).chain_update(raw).finalize();
    name.push('_');
    name.push_str(&hex::encode(&hash[..4]));
    name
}

fn is_allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

fn floor_boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// Returns the exposed form of a URI or URI template: `<alias>+<uri>`, or `ui://<alias>--…` for a user interface, whose
/// scheme must stay. URIs that clients fetch themselves (`http`, `https`) or that contain their content (`data`) stay
/// as they are.
#[must_use]
pub(crate) fn exposed_uri<'a>(alias: &ServerName, raw: &'a str, mode: UriMode) -> Cow<'a, str> {
    if mode == UriMode::Passthrough {
        return Cow::Borrowed(raw);
    }
    let scheme = scheme(raw).unwrap_or_default();
    if ["http", "https", "data"].iter().any(|plain| scheme.eq_ignore_ascii_case(plain)) {
        Cow::Borrowed(raw)
    } else if let Some((head, rest)) = interface(raw) {
        Cow::Owned(format!("{head}{alias}--{rest}"))
    } else {
        Cow::Owned(format!("{alias}+{raw}"))
    }
}

/// Returns the exposed URI for a table that also keeps the server's own URI `raw`. If both are equal, they share one
/// copy of the text.
pub(crate) fn one_copy(uri: &str, raw: &Arc<str>) -> Arc<str> {
    if *uri == **raw { raw.clone() } else { uri.into() }
}

/// Splits an exposed URI into what may be an alias, and the raw URI. The caller decides whether the first part is an
/// alias. Returns `None` if it cannot be one.
#[must_use]
pub(crate) fn raw_uri(exposed: &str) -> Option<(&str, Cow<'_, str>)> {
    if let Some((head, rest)) = interface(exposed) {
        let (alias, rest) = rest.split_once("--")?;
        return Some((alias, Cow::Owned(format!("{head}{rest}"))));
    }
    let (alias, raw) = exposed.split_once('+')?;
    let is_alias = alias.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    (is_alias && !alias.is_empty()).then_some((alias, Cow::Borrowed(raw)))
}

/// Reports whether a name or URI carries that alias. If such a name exists, it belongs to that server, or to a server
/// whose names get no prefix.
#[must_use]
pub(crate) fn carries(alias: &ServerName, shown: &str, naming: &Naming) -> bool {
    let rest = shown.strip_prefix(alias.as_str());
    let is_name = rest.and_then(|rest| rest.strip_prefix(&*naming.separator)).is_some_and(|raw| !raw.is_empty());
    is_name || raw_uri(shown).is_some_and(|(of, _)| of == alias.as_str())
}

/// Splits a `ui:` URI at the position where the alias goes. Returns `None` for other schemes.
fn interface(uri: &str) -> Option<(&str, &str)> {
    let scheme = scheme(uri).filter(|scheme| scheme.eq_ignore_ascii_case("ui"))?;
    let after = &uri[scheme.len() + 1..];
    let at = uri.len() - after.strip_prefix("//").unwrap_or(after).len();
    Some(uri.split_at(at))
}

fn scheme(uri: &str) -> Option<&str> {
    let (scheme, _) = uri.split_once(':')?;
    let mut bytes = scheme.bytes();
    let starts = bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic());
    (starts && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))).then_some(scheme)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn alias(text: &str) -> ServerName {
        ServerName::from_config(text).unwrap()
    }

    #[test]
    fn names_that_fit_are_not_altered() {
        let naming = Naming::default();
        assert_eq!(exposed_name(&alias("gh"), "create_issue", &naming), "gh__create_issue");
        assert_eq!(exposed_name(&alias("gh"), &"x".repeat(42), &naming), format!("gh__{}", "x".repeat(42)));
        assert_eq!(bare_name(&alias("gh"), "a-b", &naming), "a-b");
    }

    #[test]
    fn h87_odd_names_are_altered_and_marked() {
        let naming = Naming::default();
        for raw in ["a.b", "a b", "", "écho", "есho", &"x".repeat(43), &"x".repeat(5000), "a\0b"] {
            let name = exposed_name(&alias("gh"), raw, &naming);
            assert!(name.starts_with("gh__") && name.len() <= 46, "{name}");
            let mark = &name[name.len() - SUFFIX..];
            assert!(mark.starts_with('_') && mark[1..].bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
        }
        // SHA-256 of `gh NUL a.b`, so that the scheme cannot change unnoticed.
        assert_eq!(exposed_name(&alias("gh"), "a.b", &naming), "gh__a_b_506b5e9b");
    }

    #[test]
    fn uris_by_scheme() {
        let cases = [
            ("file:///a", "gh+file:///a"),
            ("git+ssh://h/r", "gh+git+ssh://h/r"),
            ("file:///{+path}", "gh+file:///{+path}"),
            ("{scheme}://x", "gh+{scheme}://x"),
            ("ui://x/y", "ui://gh--x/y"),
            ("ui://-x", "ui://gh---x"),
            ("https://e.com/a+b", "https://e.com/a+b"),
            ("HTTP://e.com", "HTTP://e.com"),
            ("data:text/plain,x", "data:text/plain,x"),
        ];
        for (raw, exposed) in cases {
            assert_eq!(exposed_uri(&alias("gh"), raw, UriMode::Prefix), exposed);
            assert_eq!(exposed_uri(&alias("gh"), raw, UriMode::Passthrough), raw);
            if raw != exposed {
                assert_eq!(raw_uri(exposed), Some(("gh", Cow::Borrowed(raw))));
            }
        }
        assert_eq!(raw_uri("https://e.com/a+b"), None);
    }

    fn aliases() -> impl Strategy<Value = String> {
        "[a-z]([a-z0-9]|-[a-z0-9]){0,11}"
    }

    proptest! {
        #[test]
        fn names_keep_their_bounds(alias in aliases(), raw in "\\PC{0,80}", max in 40usize..=128, separator in "[-_]{1,4}") {
            let naming = Naming { separator, max_length: max, resources: UriMode::Prefix };
            let alias = ServerName::from_config(&alias).unwrap();
            for name in [exposed_name(&alias, &raw, &naming), bare_name(&alias, &raw, &naming)] {
                prop_assert!(!name.is_empty() && name.len() <= max && name.bytes().all(is_allowed), "{}", name);
            }
            prop_assert_eq!(exposed_name(&alias, &raw, &naming), exposed_name(&alias, &raw, &naming));
        }

        #[test]
        fn no_two_names_become_one(pairs in proptest::collection::hash_set((aliases(), "[a._ é-]{1,50}"), 1..60)) {
            let naming = Naming::default();
            let mut seen = HashMap::new();
            for (alias, raw) in pairs {
                let name = exposed_name(&ServerName::from_config(&alias).unwrap(), &raw, &naming);
                let other = seen.insert(name.clone(), (alias.clone(), raw.clone()));
                prop_assert!(other.is_none(), "{} is {:?} and {:?}", name, other, (alias, raw));
            }
        }

        #[test]
        fn uris_round_trip(alias in aliases(), raw in "([a-z][a-z+.-]{0,8}|ui|UI|file|git\\+ssh):(//)?\\PC{0,30}") {
            let name = ServerName::from_config(&alias).unwrap();
            let exposed = exposed_uri(&name, &raw, UriMode::Prefix);
            if exposed != raw {
                prop_assert_eq!(raw_uri(&exposed), Some((&*alias, Cow::Borrowed(&*raw))));
            }
        }
    }
}
