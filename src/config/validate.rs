//! `validate` of the host, of a server, and of a tool: what is checked against the schemas of tools, before a call is
//! sent and after it is answered.

use super::fields::Field;
use super::keys::words;
use super::report::Report;

words! {
    /// What is checked against the schemas of tools.
    ///
    /// ```
    /// use mcp_host::config::{HostSettings, Validate};
    ///
    /// let settings = HostSettings::default().validate(Validate::Arguments);
    /// ```
    pub enum Validate {
        /// Only the definitions, when they are listed.
        #[default]
        Definitions = "definitions",
        /// Also the arguments of each call, before it is sent. A build without the cargo feature `validate` checks none.
        Arguments = "arguments",
        /// Also the results of tools with an output schema.
        Full = "full",
    }
}

/// Whether this build checks calls.
const CHECKS_CALLS: bool = cfg!(any(feature = "validate", test));

impl Field<'_> {
    /// Reads `validate`. A build that cannot check calls refuses a config that asks for it.
    pub(super) fn validation(&self, report: &mut Report) -> Option<Validate> {
        let validate: Validate = self.word(report)?;
        if validate != Validate::Definitions && !CHECKS_CALLS {
            let problem = report.problem(self.at, &self.path, "this build checks no calls against their schemas");
            problem.help("build mcp-host with the cargo feature `validate`, or write \"definitions\"");
            return None;
        }
        Some(validate)
    }

    /// Reads `validate` of a server or tool.
    pub(super) fn some_validation(&self, report: &mut Report) -> Option<Option<Validate>> {
        self.validation(report).map(Some)
    }
}
