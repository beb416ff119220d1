//! How often something may be called: `host.rates`, and `rate` of a tool.

use std::time::Duration;

use super::fields::{Field, refuse_rest};
use super::keys::{Words, words};
use super::report::Report;
use super::syntax::Value;

/// How many calls are allowed in a period.
///
/// ```
/// use mcp_host::config::{OnLimit, Per, Rate};
///
/// let rate = Rate::new(10, Per::Minute);
/// assert_eq!((rate.burst, rate.on_limit), (10, OnLimit::Refuse));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rate {
    /// How many calls are allowed in the period.
    pub limit: u32,
    /// The period.
    pub per: Per,
    /// How many calls may come at once after a pause.
    pub burst: u32,
    /// What happens to a call that exceeds the rate.
    pub on_limit: OnLimit,
}

words! {
    /// The period of a rate.
    pub enum Per {
        /// A second.
        Second = "second",
        /// A minute.
        #[default]
        Minute = "minute",
        /// An hour.
        Hour = "hour",
        /// A day of 24 hours. These counts survive a restart of the host.
        Day = "day",
    }
}

words! {
    /// What happens to a call that exceeds the rate.
    pub enum OnLimit {
        /// It is refused.
        #[default]
        Refuse = "refuse",
        /// It waits, at most as long as the server's `queueTimeout`.
        Wait = "wait",
    }
}

/// The rates of the host.
///
/// ```
/// use mcp_host::config::{HostSettings, Per, Rate, Rates};
///
/// let rates = Rates { principal: Some(Rate::new(60, Per::Minute)), ..Rates::default() };
/// let settings = HostSettings::default().rates(rates);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rates {
    /// How often each client may call tools, over all tools.
    pub principal: Option<Rate>,
    /// How often the tools of each server may be called, over all clients.
    pub server: Option<Rate>,
    /// How often tools may be called in each view, over all clients of the view.
    pub view: Option<Rate>,
}

impl Rate {
    /// Returns a rate whose burst is its limit: all calls of the period may come at once.
    #[must_use]
    pub fn new(limit: u32, per: Per) -> Self {
        Self { limit, per, burst: limit, on_limit: OnLimit::default() }
    }

    /// Returns the average interval between two allowed calls.
    pub(crate) fn step(&self) -> Duration {
        self.per.time() / self.limit.max(1)
    }
}

impl Per {
    /// Returns the period as a duration.
    pub(crate) fn time(self) -> Duration {
        Duration::from_secs(match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 60 * 60,
            Self::Day => 24 * 60 * 60,
        })
    }
}

/// Reads `host.rates`.
pub(super) fn rates(field: &Field<'_>, report: &mut Report) -> Rates {
    let mut rates = Rates::default();
    let Some(mut fields) = field.fields(report) else { return rates };
    rates.principal = fields.take(&["principal"], report).and_then(|field| field.rate(report));
    rates.server = fields.take(&["server"], report).and_then(|field| field.rate(report));
    rates.view = fields.take(&["view"], report).and_then(|field| field.rate(report));
    refuse_rest(fields, &["principal", "server", "view"], report);
    rates
}

const HELP: &str = "write it like \"10/minute\"; the times are second, minute, hour, day";

impl Field<'_> {
    /// Reads a rate: `"10/minute"`, or an object.
    pub(super) fn rate(&self, report: &mut Report) -> Option<Rate> {
        if let Value::Object(_) = &self.node.value {
            return self.whole_rate(report);
        }
        let text = self.text(report)?;
        let parsed = text.split_once('/').and_then(|(limit, per)| {
            let limit = limit.trim().parse().ok().filter(|limit| *limit > 0)?;
            let (_, per) = Per::WORDS.iter().find(|(word, _)| *word == per.trim())?;
            Some(Rate::new(limit, *per))
        });
        if parsed.is_none() {
            report.problem(self.at, &self.path, format!("{} is not a rate", self.quote(text))).help(HELP);
        }
        parsed
    }

    /// Reads the rate of a tool.
    pub(super) fn some_rate(&self, report: &mut Report) -> Option<Option<Rate>> {
        self.rate(report).map(Some)
    }

    fn whole_rate(&self, report: &mut Report) -> Option<Rate> {
        let mut fields = self.fields(report)?;
        let limit = fields.take(&["limit"], report);
        let per = fields.take(&["per"], report);
        let burst = fields.take(&["burst"], report).and_then(|field| field.some_calls(report));
        let on_limit = fields.take(&["onLimit"], report).and_then(|field| field.word(report));
        refuse_rest(fields, &["limit", "per", "burst", "onLimit"], report);
        let (Some(limit), Some(per)) = (limit, per) else {
            report.problem(self.at, &self.path, "a rate needs `limit` and `per`").help(HELP);
            return None;
        };
        let (limit, per) = (limit.some_calls(report)?, per.word(report)?);
        let on_limit = on_limit.unwrap_or_default();
        Some(Rate { limit, per, burst: burst.unwrap_or(limit), on_limit })
    }

    fn some_calls(&self, report: &mut Report) -> Option<u32> {
        let count = self.positive_count(report)?;
        let calls = u32::try_from(count).ok();
        if calls.is_none() {
            report.problem(self.at, &self.path, format!("{count} is more than {}", u32::MAX));
        }
        calls
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Syntax, ToolRules, Vars, parse_str};
    use super::*;

    fn read(host: &str, tools: &str) -> Result<(Rates, ToolRules), super::super::Error> {
        let text = format!(
            r#"{{ "mcpServers": {{ "a": {{ "command": "x", "tools": {tools} }} }}, "host": {{ "rates": {host} }} }}"#
        );
        let config = parse_str(&text, Syntax::Json, "f.json", &Vars::default())?;
        assert_eq!(config.notes, []);
        Ok((config.host.rates, config.servers[0].tools.clone()))
    }

    #[test]
    fn a_rate_is_a_text_or_an_object() {
        let host = r#"{ "principal": "60 / minute", "server": { "limit": 5, "per": "second", "burst": 9, "onLimit": "wait" }, "view": "1000/day" }"#;
        let tools = r#"{ "*": { "rate": "100/day", "title": "t" }, "create_*": { "rate": "10/hour" }, "create_it": { "title": "it" } }"#;
        let (rates, tools) = read(host, tools).unwrap();
        assert_eq!(rates.principal, Some(Rate::new(60, Per::Minute)));
        let whole = Rate { limit: 5, per: Per::Second, burst: 9, on_limit: OnLimit::Wait };
        assert_eq!((rates.server, rates.view), (Some(whole), Some(Rate::new(1000, Per::Day))));
        for (name, rate) in [("list", Rate::new(100, Per::Day)), ("create_it", Rate::new(10, Per::Hour))] {
            assert_eq!(tools.said(name, |tool| tool.rate), Some(rate), "{name}");
        }
        assert_eq!(
            (whole.step(), Rate::new(100, Per::Day).step()),
            (Duration::from_millis(200), Duration::from_secs(864))
        );
    }

    #[test]
    fn mistakes_are_told_with_what_to_write() {
        let host = r#"{ "principal": "10", "server": { "limit": 0, "per": "week" }, "tool": "1/day", "view": "many" }"#;
        let tools = r#"{ "a": { "rate": 3 }, "b": { "rate": { "limit": 1 } }, "c": { "rate": "0/day" }, "d": { "rate": { "limit": 1, "per": "day", "bust": 2 } } }"#;
        insta::assert_snapshot!(read(host, tools).unwrap_err(), @r#"
        f.json:1: server "a": tools.a.rate: expected a string, found a number
        f.json:1: server "a": tools.b.rate: a rate needs `limit` and `per`
        f.json:1: server "a": tools.c.rate: "0/day" is not a rate
        f.json:1: server "a": tools.d.rate.bust: unknown key
        f.json:1: host.rates.principal: "10" is not a rate
        f.json:1: host.rates.server.limit: must be more than zero
        f.json:1: host.rates.view: "many" is not a rate
        f.json:1: host.rates.tool: unknown key
        "#);
    }
}
