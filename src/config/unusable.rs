//! Why a server cannot be started with its current entry: the mistakes that only affect one server.

use std::fmt;

use super::report::Problem;
use crate::protocol::Theirs;

/// Why a server cannot be started with its current entry. Other servers are unaffected.
///
/// Displays on one line, each problem with its help. Two values are equal if they display equally; the places of their
/// problems do not count.
///
/// ```
/// # fn show(config: &mcp_host::Config) {
/// for server in &config.servers {
///     if let Some(unusable) = &server.unusable {
///         println!("{}: {unusable}", server.name);
///     }
/// }
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Unusable {
    /// Mistakes in the entry itself.
    wrong: Vec<Problem>,
    /// Values that are missing: a variable that is not set, a file that cannot be read.
    missing: Vec<Problem>,
}

impl Unusable {
    /// Combines both kinds of problems; returns `None` if there is no problem.
    pub(super) fn new(wrong: Vec<Problem>, missing: Vec<Problem>) -> Option<Self> {
        (!wrong.is_empty() || !missing.is_empty()).then_some(Self { wrong, missing })
    }

    /// Returns every problem, with its place and its help.
    pub fn problems(&self) -> impl Iterator<Item = &Problem> {
        self.wrong.iter().chain(&self.missing)
    }

    /// Returns the mistakes in the entry itself, which do not depend on the environment.
    pub(super) fn wrong(&self) -> &[Problem] {
        &self.wrong
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Problem { field, message, help, .. }) in self.problems().enumerate() {
            f.write_str(if index > 0 { "; " } else { "" })?;
            if let Some(field) = field {
                write!(f, "{}: ", Theirs(field))?;
            }
            f.write_str(message)?;
            if let Some(help) = help {
                write!(f, "; {help}")?;
            }
        }
        Ok(())
    }
}

impl PartialEq for Unusable {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for Unusable {}
