//! The part of a server's settings that decides which of its tools are seen, and under which names.

use std::collections::HashMap;

use crate::config::Prefix;
use crate::glob::is_match;

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
