//! The part of a server's settings that decides which of its tools are seen, and under which names.

use std::collections::HashMap;

pub use crate::config::Prefix;

/// How the tools of one server are named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerNaming {
    /// When names carry the alias.
    pub prefix: Prefix,
    /// Globs (`*`, `?`) over raw tool names: what matches none is not seen.
    pub include: Vec<String>,
    /// Globs over raw tool names: what matches one is not seen, included or not.
    pub exclude: Vec<String>,
    /// Other names for tools, by raw name; prefixed all the same.
    pub rename: HashMap<String, String>,
}

impl Default for ServerNaming {
    fn default() -> Self {
        Self { prefix: Prefix::default(), include: vec!["*".to_owned()], exclude: Vec::new(), rename: HashMap::new() }
    }
}

impl ServerNaming {
    /// Whether a tool may be seen and called.
    #[must_use]
    pub fn admits(&self, tool: &str) -> bool {
        let matches = |globs: &[String]| globs.iter().any(|glob| is_match(glob, tool));
        matches(&self.include) && !matches(&self.exclude)
    }

    /// What stands behind the prefix in the name of a tool.
    #[must_use]
    pub fn renamed<'a>(&'a self, tool: &'a str) -> &'a str {
        self.rename.get(tool).map_or(tool, String::as_str)
    }
}

/// Whether the glob covers the whole text. Only the last star is ever moved, so the work is at most both lengths multiplied.
fn is_match(glob: &str, text: &str) -> bool {
    if glob == "*" {
        return true;
    }
    let (mut glob, mut text) = (glob.chars(), text.chars());
    let mut star = None;
    loop {
        let before = text.clone();
        match (glob.next(), text.next()) {
            (None, None) => return true,
            (Some('*'), _) => {
                text = before;
                star = Some((glob.clone(), text.clone()));
                continue;
            }
            (Some('?'), Some(_)) => continue,
            (Some(wanted), Some(found)) if wanted == found => continue,
            _ => {}
        }
        let Some((after_star, from)) = &mut star else { return false };
        if from.next().is_none() {
            return false;
        }
        (glob, text) = (after_star.clone(), from.clone());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn globs() {
        let table = [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a*", "a", true),
            ("a*", "ba", false),
            ("*a*b", "xaybzb", true),
            ("*a*b", "xayb.", false),
            ("a?c", "aéc", true),
            ("a?c", "ac", false),
            ("?", "", false),
            ("**x", "x", true),
            ("get_*", "get_me", true),
            ("[a]", "a", false),
        ];
        for (glob, text, expected) in table {
            assert_eq!(is_match(glob, text), expected, "{glob} {text}");
        }
        assert!(!is_match(&"*a".repeat(50), &"a".repeat(49)));
        assert!(is_match(&"*a".repeat(50), &"a".repeat(5000)));
    }

    #[test]
    fn exclude_wins() {
        let naming = ServerNaming {
            include: vec!["get_*".to_owned(), "put".to_owned()],
            exclude: vec!["*_secret".to_owned()],
            ..ServerNaming::default()
        };
        let seen: Vec<&str> =
            ["get_a", "get_secret", "put", "putt"].into_iter().filter(|name| naming.admits(name)).collect();
        assert_eq!(seen, ["get_a", "put"]);
    }

    proptest! {
        #[test]
        fn globs_agree_with_the_definition(glob in "[ab*?]{0,8}", text in "[ab]{0,8}") {
            fn naive(glob: &[u8], text: &[u8]) -> bool {
                match (glob, text) {
                    ([], []) => true,
                    ([b'*', rest @ ..], _) => (0..=text.len()).any(|skip| naive(rest, &text[skip..])),
                    ([wanted, glob @ ..], [found, text @ ..]) => (*wanted == b'?' || wanted == found) && naive(glob, text),
                    _ => false,
                }
            }
            prop_assert_eq!(is_match(&glob, &text), naive(glob.as_bytes(), text.as_bytes()));
        }
    }
}
