//! `host.results`: how much of a tool's result a client gets at once, and how long the rest can be read.

use std::time::Duration;

use super::super::keys::keys;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

keys! {
    /// How much of a tool's result a client gets at once. The rest can be read by pages for a while.
    ///
    /// ```
    /// use mcp_host::config::{HostSettings, Results};
    ///
    /// let mut results = Results::default();
    /// results.limit = 100 << 10;
    /// let settings = HostSettings::default().results(results);
    /// ```
    #[non_exhaustive]
    pub struct Results {
        /// How many bytes the text and the structured content of a result may have together; 0 means any number. A tool
        /// whose `_meta` says more in `anthropic/maxResultSizeChars` may have that many.
        limit: size -> usize = 0,
        /// How many bytes of base64 an image, audio, or other data may have; 0 means any number. A larger one becomes a
        /// link to a resource.
        image: size -> usize = 0,
        /// How many bytes of text, and how many of structured content, a client gets of a result that is over the limit.
        preview: positive_size -> usize = 2 * KIB,
        /// How long the rest can be read.
        keep: positive_time -> Duration = Duration::from_secs(600),
        /// How many bytes are kept for one principal. Beyond that, its oldest go first. All principals together have eight
        /// times as many.
        store: positive_size -> usize = 64 * MIB,
    }
}

impl Results {
    /// Reports whether any result can be cut.
    pub(crate) fn is_on(&self) -> bool {
        self.limit > 0 || self.image > 0
    }
}

impl super::HostSettings {
    /// Sets how much of a tool's result a client gets at once.
    #[must_use]
    pub fn results(mut self, results: Results) -> Self {
        self.results = results;
        self
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
    fn mistakes_in_results_are_named() {
        let error = read(r#"{ "limit": 100, "preview": "0B", "keep": "0s" }"#).unwrap_err();
        insta::assert_snapshot!(error, @"
        f.json:2: host.results.limit: 100 has no unit
        f.json:2: host.results.preview: must be more than zero
        f.json:2: host.results.keep: must be more than zero
        ");
    }
}
