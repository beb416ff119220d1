//! Whether selectors match a tool, and whether they could match any tool of a server; pure.

use crate::config::{Hint, Hints, Selector};
use crate::glob::{is_match, may_match_after};
use crate::name::ServerName;

/// The facts about a tool that selectors look at.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) exposed: &'a str,
    pub(crate) server: &'a str,
    pub(crate) tags: &'a [String],
    pub(crate) hints: &'a Hints,
}

/// What is known of a server's tools before it lists any.
#[derive(Debug)]
pub(crate) struct Range<'a> {
    pub(crate) server: &'a ServerName,
    /// The prefix of its exposed names; `None` if they may start with anything.
    pub(crate) prefix: Option<&'a str>,
    /// Every tag that one of its tools may have.
    pub(crate) tags: &'a [&'a str],
}

/// Reports whether one of the selectors matches the tool.
pub(crate) fn matches(selectors: &[Selector], facts: &Facts<'_>) -> bool {
    selectors.iter().any(|selector| match selector {
        Selector::Name(glob) => is_match(glob, facts.exposed),
        Selector::Server(alias) => facts.server == alias,
        Selector::Tag(tag) => facts.tags.contains(tag),
        Selector::Hint(hint) => has(facts.hints, *hint),
    })
}

/// Reports whether a tool with these hints matches a hint selector. A hint that is not given matches nothing, except
/// that a tool that is not said to be read-only counts as one that writes.
pub(crate) fn has(hints: &Hints, hint: Hint) -> bool {
    match hint {
        Hint::ReadOnly => hints.read_only_hint == Some(true),
        Hint::NotReadOnly => hints.read_only_hint != Some(true),
        Hint::Destructive => hints.destructive_hint == Some(true),
        Hint::Idempotent => hints.idempotent_hint == Some(true),
        Hint::ClosedWorld => hints.open_world_hint == Some(false),
    }
}

/// Reports whether one of the selectors names the server itself.
pub(crate) fn names_server(selectors: &[Selector], server: &str) -> bool {
    selectors.iter().any(|selector| matches!(selector, Selector::Server(alias) if alias == server))
}

/// Reports whether one of the selectors could match a tool of the server.
pub(crate) fn may_match(selectors: &[Selector], range: &Range<'_>) -> bool {
    selectors.iter().any(|selector| match selector {
        Selector::Name(glob) => may_name(glob, range.prefix),
        Selector::Server(alias) => range.server.as_str() == alias,
        Selector::Tag(tag) => range.tags.contains(&tag.as_str()),
        Selector::Hint(_) => true,
    })
}

/// Reports whether the glob could match a name that begins with `prefix`.
pub(crate) fn may_name(glob: &str, prefix: Option<&str>) -> bool {
    prefix.is_none_or(|prefix| may_match_after(glob, prefix))
}

/// Reports whether one of the selectors matches every tool of the server, whatever it lists.
pub(crate) fn match_all(selectors: &[Selector], server: &ServerName) -> bool {
    selectors.iter().any(|selector| match selector {
        Selector::Name(glob) => glob == "*",
        Selector::Server(alias) => server.as_str() == alias,
        Selector::Tag(_) | Selector::Hint(_) => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selectors(words: &[&str]) -> Vec<Selector> {
        words.iter().map(|word| Selector::parse(word).unwrap()).collect()
    }

    #[test]
    fn each_selector_selects_what_it_says() {
        let hints = Hints { read_only_hint: Some(true), ..Hints::default() };
        let tags = ["code".to_owned()];
        let facts = Facts { exposed: "github__search", server: "github", tags: &tags, hints: &hints };
        for (word, expected) in [
            ("github__*", true),
            ("search", false),
            ("server:github", true),
            ("server:git*", false),
            ("tag:code", true),
            ("tag:*", false),
            ("hint:read-only", true),
            ("hint:not-read-only", false),
        ] {
            assert_eq!(matches(&selectors(&[word]), &facts), expected, "{word}");
        }
        assert!(!matches(&[], &facts) && matches(&selectors(&["x", "tag:code"]), &facts));
    }

    #[test]
    fn a_server_is_out_of_range_if_nothing_could_select_its_tools() {
        let server = ServerName::from_config("github").unwrap();
        let range = Range { server: &server, prefix: Some("github__"), tags: &["code"] };
        for (word, expected) in [
            ("github__*", true),
            ("*search", true),
            ("git*", true),
            ("github_", false),
            ("github__x", true),
            ("files__*", false),
            ("server:files", false),
            ("tag:code", true),
            ("tag:other", false),
            ("hint:read-only", true),
        ] {
            assert_eq!(may_match(&selectors(&[word]), &range), expected, "{word}");
        }
        assert!(may_match(&selectors(&["files__*"]), &Range { prefix: None, ..range }));
    }
}
