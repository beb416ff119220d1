//! `host.results`, and `results` of a view: how much of a tool's result a client gets at once, and how long the rest
//! can be read.

use std::time::Duration;

use super::HostSettings;
use crate::config::fields::Field;
use crate::config::keys::keys;
use crate::config::report::Report;
use crate::config::tools::ToolResults;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

keys! {
    /// How much of a tool's result a client gets at once. The rest can be read in pages for a while.
    ///
    /// ```
    /// use mcp_host::config::{HostSettings, Results};
    ///
    /// let mut results = Results::default();
    /// results.limit = 100 << 10;
    /// let settings = HostSettings::default().results(results);
    /// ```
    #[non_exhaustive]
    pub strict struct Results {
        /// The most bytes that the text and the structured content of a result may have together; 0 means no limit. A
        /// tool can raise its limit by `anthropic/maxResultSizeChars` in its `_meta`.
        limit: size -> usize = 0,
        /// The most bytes of base64 that an image, audio, or other data may have; 0 means no limit. Larger data becomes
        /// a link to a resource.
        image: size -> usize = 0,
        /// How many bytes of text, and of structured content, a client gets of a result that exceeds the limit.
        preview: positive_size -> usize = 2 * KIB,
        /// How long the rest can be read.
        keep: positive_time -> Duration = Duration::from_secs(600),
        /// How many bytes are stored for one principal. If that is exceeded, the oldest are removed. `limits.results`
        /// applies to all principals together.
        store: positive_size -> usize = 64 * MIB,
    }
}

/// How much of the results of one tool a client gets at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResultLimits {
    pub(crate) results: Results,
    /// Whether the config sets `limit` for this tool. If so, the tool itself cannot raise it.
    pub(crate) is_of_tool: bool,
}

impl Results {
    /// Returns the limits of a tool with these settings.
    pub(crate) fn of_tool(&self, tool: ToolResults) -> ResultLimits {
        let results = Self {
            limit: tool.limit.unwrap_or(self.limit),
            image: tool.image.unwrap_or(self.image),
            preview: tool.preview.unwrap_or(self.preview),
            keep: tool.keep.unwrap_or(self.keep),
            store: self.store,
        };
        ResultLimits { results, is_of_tool: tool.limit.is_some() }
    }

    /// Reports whether any result can be shortened.
    pub(crate) fn is_on(&self) -> bool {
        self.limit > 0 || self.image > 0
    }
}

/// Reads `results` of a view. Settings that it does not give are those of `host.results`.
pub(super) fn of_view(host: &Results, field: &Field<'_>, report: &mut Report) -> Results {
    let mut own = host.clone();
    own.read(field, report);
    own
}

impl HostSettings {
    /// Sets how much of a tool's result a client gets at once.
    #[must_use]
    pub fn results(mut self, results: Results) -> Self {
        self.results = results;
        self
    }

    /// Returns how much of a result the clients of this view get at once.
    pub(crate) fn results_of(&self, view: &str) -> &Results {
        self.views.get(view).and_then(|view| view.results.as_ref()).unwrap_or(&self.results)
    }

    /// Reports whether any result can be shortened.
    pub(crate) fn cuts_results(&self) -> bool {
        let of_views = self.views.values().filter_map(|view| view.results.as_ref());
        of_views.chain([&self.results]).any(Results::is_on)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Config, Error, Syntax, Vars, parse_str};
    use super::*;

    fn read(results: &str) -> Result<Config, Error> {
        let text = format!("{{ \"mcpServers\": {{}},\n\"host\": {{ \"results\": {results} }} }}");
        parse_str(&text, Syntax::Json, "f.json", &Vars::default())
    }

    #[test]
    fn results_are_read() {
        let config = read(r#"{ "limit": "100KiB", "image": "0B", "preview": "1KiB", "keep": "1m", "store": "8MiB" }"#);
        let results = config.unwrap_or_else(|error| panic!("{error}")).host.results;
        assert_eq!((results.limit, results.image, results.preview), (100 * KIB, 0, KIB));
        assert_eq!((results.keep, results.store), (Duration::from_secs(60), 8 * MIB));
        assert!(results.is_on() && !Results::default().is_on());
    }

    #[test]
    fn a_view_begins_with_what_the_host_says() {
        let text = r#"{ "mcpServers": {}, "host": { "results": { "limit": "9KiB", "keep": "1m" },
                        "views": { "a": { "results": { "limit": "0B" } }, "b": {} } } }"#;
        let host = parse_str(text, Syntax::Json, "f.json", &Vars::default()).unwrap().host;
        let limits = ["a", "b", "all"].map(|view| (host.results_of(view).limit, host.results_of(view).keep.as_secs()));
        assert_eq!(limits, [(0, 60), (9 * KIB, 60), (9 * KIB, 60)]);
        assert!(host.cuts_results() && !HostSettings::default().cuts_results());
    }

    #[test]
    fn mistakes_in_results_are_named() {
        let error = read(r#"{ "limit": 100, "preview": "0B", "keep": "0s" }"#).unwrap_err();
        insta::assert_snapshot!(error, @"
        f.json:2: host.results.limit: 100 has no unit
        f.json:2: host.results.preview: must be more than zero
        f.json:2: host.results.keep: must be more than zero
        ");
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_one() {
        let error = read(r#"{ "limti": "100KiB", "pages": 3 }"#).unwrap_err();
        insta::assert_snapshot!(error, @"
        f.json:2: host.results.limti: unknown key
        f.json:2: host.results.pages: unknown key
        ");
        let helps: Vec<_> = error.problems().iter().filter_map(|problem| problem.help.as_deref()).collect();
        assert_eq!(helps, ["did you mean `limit`?", "the keys here are limit, image, preview, keep, store"]);
    }
}
