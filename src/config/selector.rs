//! Selectors: the words with which views and other settings name tools.
//!
//! **Invariant:** a word that is not a selector is an error of the config. Read as a glob, it would select nothing, and
//! an `exclude` would leave something open that the user believes closed.

use super::fields::Field;
use super::report::Report;

/// A word that selects tools.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Selector {
    /// A glob over exposed names.
    Name(String),
    /// All tools of the server with this alias: `server:ALIAS`.
    Server(String),
    /// All tools with this tag: `tag:WORD`.
    Tag(String),
    /// All tools with this hint: `hint:WORD`.
    Hint(Hint),
}

/// A hint about a tool, from the config or from its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Hint {
    /// The tool is said to change nothing.
    ReadOnly,
    /// The tool is not said to change nothing, or nothing is said.
    NotReadOnly,
    /// The tool is said to possibly destroy what it changes.
    Destructive,
    /// A second identical call is said to change nothing more.
    Idempotent,
    /// The tool is said to affect nothing outside of its server.
    ClosedWorld,
}

const HINTS: [(&str, Hint); 5] = [
    ("read-only", Hint::ReadOnly),
    ("not-read-only", Hint::NotReadOnly),
    ("destructive", Hint::Destructive),
    ("idempotent", Hint::Idempotent),
    ("closed-world", Hint::ClosedWorld),
];

const HELP: &str = "write a glob over tool names (\"github__*\"), \"server:ALIAS\", \"tag:WORD\", or \"hint:WORD\" with one of read-only, \
     not-read-only, destructive, idempotent, closed-world";

impl Selector {
    /// Parses a selector; `None` if the text is not one.
    ///
    /// ```
    /// use mcp_host::config::Selector;
    ///
    /// assert_eq!(Selector::parse("tag:code"), Some(Selector::Tag("code".to_owned())));
    /// assert_eq!(Selector::parse("hint:harmless"), None);
    /// ```
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once(':') {
            None if text.is_empty() => None,
            None => Some(Self::Name(text.to_owned())),
            Some((_, "")) => None,
            Some(("server", alias)) => Some(Self::Server(alias.to_owned())),
            Some(("tag", tag)) => Some(Self::Tag(tag.to_owned())),
            Some(("hint", word)) => HINTS.iter().find(|(known, _)| *known == word).map(|(_, hint)| Self::Hint(*hint)),
            Some(_) => None,
        }
    }
}

/// Reads a list of selectors.
pub(super) fn read(field: &Field<'_>, report: &mut Report) -> Vec<Selector> {
    let mut selectors = Vec::new();
    for item in field.items(report) {
        let Some(text) = item.text(report) else { continue };
        match Selector::parse(text) {
            Some(selector) => selectors.push(selector),
            None => {
                let message = format!("{} is no selector", item.quote(text));
                report.problem(item.at, &item.path, message).help(HELP);
            }
        }
    }
    selectors
}
