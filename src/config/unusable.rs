//! Why a server cannot be started as its entry stands: what is kept of the mistakes that stop at their server.

use std::fmt;

use super::report::Problem;
use crate::protocol::Theirs;

/// Why a server cannot be started as its entry stands. The others are not concerned.
///
/// Displays on one line, each problem with its help. Two are equal if they say the same, wherever it stands.
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
    /// Mistakes in the words of the entry.
    wrong: Vec<Problem>,
    /// Values that are not there: a variable that is not set, a file that cannot be read.
    missing: Vec<Problem>,
}

impl Unusable {
    /// Puts both together; nothing if there is neither.
    pub(super) fn new(wrong: Vec<Problem>, missing: Vec<Problem>) -> Option<Self> {
        (!wrong.is_empty() || !missing.is_empty()).then_some(Self { wrong, missing })
    }

    /// Every problem, with its place and its help.
    pub fn problems(&self) -> impl Iterator<Item = &Problem> {
        self.wrong.iter().chain(&self.missing)
    }

    /// The mistakes that are in the file itself, whatever the surroundings are.
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
