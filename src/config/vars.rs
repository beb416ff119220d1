//! The environment variables as a value, so that no other code asks the process for them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// A snapshot of environment variables. `Debug` shows none of them.
///
/// ```
/// use mcp_host::config::Vars;
///
/// let vars = Vars::from_iter([("HOME", "/home/ada")]);
/// assert_eq!(vars.get("HOME"), Some("/home/ada"));
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Vars(BTreeMap<String, String>);

impl Vars {
    /// Takes the variables of this process; a variable that is not Unicode counts as not set.
    pub fn from_process() -> Self {
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect()
    }

    /// Returns the value of a variable.
    pub fn get(&self, name: &str) -> Option<&str> {
        // On Windows, names are case-insensitive: `Path` is `PATH`.
        if cfg!(windows) {
            return self.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str());
        }
        self.0.get(name).map(String::as_str)
    }

    /// Returns the path in a variable if it is absolute. With a relative path, whoever filled the working directory
    /// could choose its target.
    pub(super) fn path(&self, name: &str) -> Option<PathBuf> {
        self.get(name).map(PathBuf::from).filter(|path| path.is_absolute())
    }

    /// Returns the folder of the user's settings, such as `~/.config`.
    pub(super) fn config_home(&self) -> Option<PathBuf> {
        let platform = || {
            if cfg!(windows) { self.path("APPDATA") } else { self.path("HOME").map(|home| home.join(".config")) }
        };
        self.path("XDG_CONFIG_HOME").or_else(platform)
    }

    /// Returns the variables whose name starts with `prefix`: the rest of the name, and the value.
    pub(super) fn with_prefix<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.iter().filter_map(move |(name, value)| Some((name.strip_prefix(prefix)?, value.as_str())))
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Vars {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(vars: I) -> Self {
        Self(vars.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

impl fmt::Debug for Vars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Vars({} variables)", self.0.len())
    }
}

/// Parses an `envFile`: comments, and lines with `NAME=value`, which may have quotes and `export`. Nothing is expanded.
pub(super) fn dotenv(text: &str) -> Vec<(String, String)> {
    text.lines().filter_map(dotenv_line).collect()
}

fn dotenv_line(line: &str) -> Option<(String, String)> {
    let line = line.trim();
    if line.starts_with('#') {
        return None;
    }
    let (name, value) = line.strip_prefix("export ").unwrap_or(line).split_once('=')?;
    let (name, value) = (name.trim(), value.trim());
    if name.is_empty() {
        return None;
    }
    let value = if let Some((value, _)) = value.strip_prefix('\'').and_then(|rest| rest.split_once('\'')) {
        value.to_owned()
    } else if let Some(rest) = value.strip_prefix('"') {
        quoted(rest)
    } else {
        value.split_once(" #").map_or(value, |(value, _)| value.trim_end()).to_owned()
    };
    Some((name.to_owned(), value))
}

/// Reads a double-quoted value up to its closing quote, with the usual escapes.
fn quoted(rest: &str) -> String {
    let mut value = String::new();
    let mut chars = rest.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => break,
            '\\' => match chars.next() {
                Some('n') => value.push('\n'),
                Some('t') => value.push('\t'),
                Some('r') => value.push('\r'),
                Some(other) => value.push(other),
                None => value.push('\\'),
            },
            other => value.push(other),
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dotenv_by_the_table() {
        let text = "# a comment\nA=1\nexport B = two words # not this\nC='# $kept'\nD=\"a\\nb\\\"c\" x\n=no\nE=\nF\n";
        let expected = [("A", "1"), ("B", "two words"), ("C", "# $kept"), ("D", "a\nb\"c"), ("E", "")];
        assert_eq!(dotenv(text), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn debug_hides_values() {
        let vars = Vars::from_iter([("TOKEN", "planted")]);
        assert!(!format!("{vars:?}").contains("planted"));
    }
}
