//! The settings of a server that decide which of its tools are visible, and under which names.

use std::collections::HashMap;

use crate::config::Prefix;
use crate::glob::is_match;

/// How the tools of one server are named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerNaming {
    /// When tool names carry the server's alias as their prefix.
    pub prefix: Prefix,
    /// Globs (`*`, `?`) over raw tool names: a tool that matches none is hidden.
    pub include: Vec<String>,
    /// Globs over raw tool names: a tool that matches one is hidden, even if included.
    pub exclude: Vec<String>,
    /// New names for tools, by raw name; they are still prefixed.
    pub rename: HashMap<String, String>,
}

impl Default for ServerNaming {
    fn default() -> Self {
        Self { prefix: Prefix::default(), include: vec!["*".to_owned()], exclude: Vec::new(), rename: HashMap::new() }
    }
}

impl ServerNaming {
    /// Reports whether a tool is visible and may be called.
    #[must_use]
    pub fn admits(&self, tool: &str) -> bool {
        let matches = |globs: &[String]| globs.iter().any(|glob| is_match(glob, tool));
        matches(&self.include) && !matches(&self.exclude)
    }

    /// Returns the part of a tool's name after the prefix.
    #[must_use]
    pub fn renamed<'a>(&'a self, tool: &'a str) -> &'a str {
        self.rename.get(tool).map_or(tool, String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
