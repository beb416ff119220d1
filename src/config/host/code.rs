//! `code` of a catalog: the limits of the scripts that the tool `run_script` runs.

use std::time::Duration;

use crate::config::fields::Field;
use crate::config::keys::{keys, words};
use crate::config::report::Report;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

words! {
    /// Which tools scripts may call.
    pub enum ScriptTools {
        /// Tools that the config says are read-only, and those that say so themselves if their server's annotations are
        /// trusted.
        #[default]
        Read = "read",
        /// All tools that the client may call.
        All = "all",
    }
}

keys! {
    /// What scripts may do.
    ///
    /// ```
    /// use mcp_host::config::{CatalogMode, CatalogSettings, HostSettings, ScriptTools};
    ///
    /// let mut catalog = CatalogSettings::default();
    /// catalog.mode = CatalogMode::Search;
    /// catalog.code.tools = ScriptTools::All;
    /// let host = HostSettings::default().catalog(catalog);
    /// ```
    #[non_exhaustive]
    pub strict struct Code {
        /// Which tools they may call.
        tools: word -> ScriptTools = ScriptTools::Read,
        /// How long one script may run, including all its calls.
        time: positive_time -> Duration = Duration::from_secs(60),
        /// How much processor time one script may use.
        cpu: positive_time -> Duration = Duration::from_secs(5),
        /// How many bytes the objects of a script may have.
        memory: positive_size -> usize = 64 * MIB,
        /// How many calls one script may make.
        calls: positive_count -> usize = 100,
        /// How many calls of one script run at once; the others wait.
        parallel: positive_count -> usize = 8,
        /// How many bytes the log of a script may have, and how many its result.
        output: positive_size -> usize = 64 * KIB,
        /// How many scripts run at once; four times as many may wait.
        scripts: positive_count -> usize = 4,
    }
}

/// The least memory with which the engine starts.
const LEAST: usize = 2 * MIB;
/// The most memory. Messages to and from a script travel in frames with a 32-bit length.
const MOST: usize = 1 << 30;

impl Code {
    /// Refuses settings with which no script could run.
    pub(super) fn check(&mut self, field: &Field<'_>, report: &mut Report) {
        let path = |key: &str| format!("{}.{key}", field.path);
        if !(LEAST..=MOST).contains(&self.memory) {
            let text = "is not between 2MiB and 1GiB";
            report.problem(field.at, &path("memory"), text).help("a script needs 2 MiB to begin with; write \"64MiB\"");
            self.memory = Self::default().memory;
        }
        if self.cpu > self.time {
            let note = report.note(field.at, &path("cpu"), "is more than `time`, so a script never has that much");
            note.help("raise `time`, or lower `cpu`");
        }
    }
}

/// Reports whether this build can run scripts. If it cannot, refuses the config that asks for it.
pub(super) fn is_built(field: &Field<'_>, report: &mut Report) -> bool {
    let is_built = cfg!(all(unix, feature = "script"));
    if !is_built {
        let problem = report.problem(field.at, &field.path, "this build runs no scripts");
        problem.help("build mcp-host with the cargo feature `script` (on Unix), or write \"search\"");
    }
    is_built
}

#[cfg(test)]
mod tests {
    use super::super::super::{Config, Error, Syntax, Vars, parse_str};
    use super::*;

    fn read(catalog: &str) -> Result<Config, Error> {
        let text = format!("{{ \"mcpServers\": {{}},\n\"host\": {{ \"catalog\": {catalog} }} }}");
        parse_str(&text, Syntax::Json, "f.json", &Vars::default())
    }

    #[test]
    fn what_scripts_may_do_is_read() {
        let read = read(
            r#"{ "code": { "tools": "all", "time": "2m", "cpu": "1s", "memory": "8MiB", "calls": 7, "parallel": 2,
                 "output": "1KiB", "scripts": 1 } }"#,
        );
        let code = read.unwrap_or_else(|error| panic!("{error}")).host.catalog.code;
        assert_eq!(
            (code.tools, code.time, code.cpu),
            (ScriptTools::All, Duration::from_secs(120), Duration::from_secs(1))
        );
        assert_eq!((code.memory, code.calls, code.parallel, code.output, code.scripts), (8 * MIB, 7, 2, KIB, 1));
    }

    #[test]
    fn mistakes_are_told_with_what_to_write() {
        let error = read(r#"{ "code": { "tools": "some", "calls": 0, "memory": "1MiB" } }"#);
        insta::assert_snapshot!(error.unwrap_err(), @r#"
        f.json:2: host.catalog.code.tools: "some" is not one of read, all
        f.json:2: host.catalog.code.calls: must be more than zero
        f.json:2: host.catalog.code.memory: is not between 2MiB and 1GiB
        "#);
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_one() {
        let error = read(r#"{ "code": { "tool": "all", "network": true } }"#).unwrap_err();
        insta::assert_snapshot!(error, @"
        f.json:2: host.catalog.code.network: unknown key
        f.json:2: host.catalog.code.tool: unknown key
        ");
        let helps: Vec<_> = error.problems().iter().filter_map(|problem| problem.help.clone()).collect();
        let keys = "the keys here are tools, time, cpu, memory, calls, parallel, output, scripts";
        assert_eq!(helps, [keys, "did you mean `tools`?"]);
        let view = r#"{ "mcpServers": {}, "host": { "views": { "v": { "catalog": { "code": { "paralel": 2 } } } } } }"#;
        let error = parse_str(view, Syntax::Json, "f.json", &Vars::default()).unwrap_err();
        insta::assert_snapshot!(error, @"f.json:1: host.views.v.catalog.code.paralel: unknown key");
        assert_eq!(error.problems()[0].help.as_deref(), Some("did you mean `parallel`?"));
    }
}
