//! `fallback` of a tool: another tool that gets a call if this one failed to serve it.
//!
//! In: a name, or an object. Out: [`Fallback`]. An invalid regular expression is an error of the config.

use std::fmt;
use std::sync::Arc;

use super::fields::{Field, refuse_rest};
use super::keys::words;
use super::report::Report;
use super::syntax::Value;

words! {
    /// A failure after which a call is sent to another tool.
    pub enum FallbackOn {
        /// The server has no usable connection.
        #[default]
        Unavailable = "unavailable",
        /// The server, or a limit of the host, takes no more calls at the moment.
        Overloaded = "overloaded",
        /// The call is over a rate of the config.
        RateLimited = "rate_limited",
        /// The server did not answer in time. Only for tools that may run twice, because the outcome of the call is
        /// unknown.
        Timeout = "timeout",
    }
}

/// The tool that gets a call if another one failed to serve it, and after which failures.
///
/// ```
/// use mcp_host::config::{Fallback, FallbackOn, ToolSettings};
///
/// # fn main() -> Result<(), mcp_host::config::BadPattern> {
/// let mut settings = ToolSettings::default();
/// settings.fallback = Some(Fallback::to("backup__search").on([FallbackOn::Overloaded]).matching("(?i)quota")?);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fallback {
    /// The name by which clients know the other tool.
    pub tool: String,
    /// The failures after which it gets the call.
    pub on: Vec<FallbackOn>,
    /// If this matches the text of an error that the tool itself returned, the other tool gets the call.
    pub(crate) pattern: Option<Pattern>,
}

/// A regular expression, as it was written and compiled.
#[derive(Clone)]
pub(crate) struct Pattern(Arc<regex_lite::Regex>);

/// Why a text is no regular expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a regular expression: {0}")]
pub struct BadPattern(String);

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for Pattern {}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}/", self.0.as_str())
    }
}

impl Pattern {
    /// Reports whether the expression matches somewhere in a text.
    pub(crate) fn is_in(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

/// The failures that apply if the config names none.
const USUAL: [FallbackOn; 3] = [FallbackOn::Unavailable, FallbackOn::Overloaded, FallbackOn::RateLimited];

impl Fallback {
    /// Returns the fallback to the tool that clients know by this name, after the default failures: `unavailable`,
    /// `overloaded`, and `rate_limited`.
    #[must_use]
    pub fn to(tool: impl Into<String>) -> Self {
        Self { tool: tool.into(), on: USUAL.to_vec(), pattern: None }
    }

    /// Sets the failures after which the other tool gets the call.
    #[must_use]
    pub fn on(self, on: impl IntoIterator<Item = FallbackOn>) -> Self {
        Self { on: on.into_iter().collect(), ..self }
    }

    /// Sets a regular expression. If it matches the text of an error that the tool returned, the other tool gets the
    /// call, too.
    ///
    /// # Errors
    /// Fails if the text is not a regular expression.
    pub fn matching(self, pattern: &str) -> Result<Self, BadPattern> {
        let compiled = regex_lite::Regex::new(pattern).map_err(|error| BadPattern(error.to_string()))?;
        Ok(Self { pattern: Some(Pattern(Arc::new(compiled))), ..self })
    }
}

const HELP: &str = "write the name that clients see, \"backup__search\", or { \"tool\": \"backup__search\", \"on\": [\"unavailable\"] }";

impl Field<'_> {
    /// Reads `fallback` of a tool.
    pub(super) fn some_fallback(&self, report: &mut Report) -> Option<Option<Fallback>> {
        self.fallback(report).map(Some)
    }

    fn fallback(&self, report: &mut Report) -> Option<Fallback> {
        let Value::Object(_) = &self.node.value else { return self.named(report).map(Fallback::to) };
        let mut fields = self.fields(report)?;
        let tool = fields.take(&["tool"], report);
        let on = fields.take(&["on"], report);
        let pattern = fields.take(&["match"], report);
        refuse_rest(fields, &["tool", "on", "match"], report);
        let Some(tool) = tool else {
            report.problem(self.at, &self.path, "a fallback needs `tool`").help(HELP);
            return None;
        };
        let mut fallback = Fallback::to(tool.named(report)?);
        if let Some(on) = on {
            fallback.on = on.items(report).iter().filter_map(|kind| kind.word(report)).collect();
        }
        let Some(pattern) = pattern else { return Some(fallback) };
        match fallback.matching(pattern.text(report)?) {
            Ok(fallback) => Some(fallback),
            Err(bad) => {
                let problem = report.problem(pattern.at, &pattern.path, bad.to_string());
                problem.help("write one such as \"(?i)quota|too many\", without look-around and back-references");
                None
            }
        }
    }

    /// Reads the name of a tool.
    fn named(&self, report: &mut Report) -> Option<&str> {
        let name = self.text(report)?;
        if name.is_empty() || name.contains(['*', '?']) {
            report.problem(self.at, &self.path, format!("{} names no tool", self.quote(name))).help(HELP);
            return None;
        }
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Syntax, ToolRules, Vars, parse_str};
    use super::*;

    fn read(tools: &str) -> Result<ToolRules, super::super::Error> {
        let text = format!(r#"{{ "mcpServers": {{ "a": {{ "command": "x", "tools": {tools} }} }} }}"#);
        let config = parse_str(&text, Syntax::Json, "f.json", &Vars::default())?;
        assert_eq!(config.notes, []);
        Ok(config.servers[0].tools.clone())
    }

    #[test]
    fn a_fallback_is_a_name_or_an_object() {
        let rules = read(
            r#"{ "*": { "fallback": "b__any" },
                 "get": { "fallback": { "tool": "b__get", "on": ["timeout"], "match": "(?i)quota" } } }"#,
        );
        let rules = rules.unwrap();
        assert_eq!(rules.said("put", |tool| tool.fallback.as_ref()), Some(&Fallback::to("b__any")));
        let get = Fallback::to("b__get").on([FallbackOn::Timeout]).matching("(?i)quota").unwrap();
        assert_eq!(rules.said("get", |tool| tool.fallback.as_ref()), Some(&get));
        assert!(get.pattern.is_some_and(|pattern| pattern.is_in("over its Quota") && !pattern.is_in("not found")));
        assert!(rules.any(|tool| tool.fallback.is_some()));
    }

    #[test]
    fn mistakes_are_told_with_what_to_write() {
        let error = read(
            r#"{ "a": { "fallback": 1 }, "b": { "fallback": "b__*" }, "c": { "fallback": { "on": ["unavailable"] } },
                 "d": { "fallback": { "tool": "x", "on": ["unavailable", "always"], "then": "y" } },
                 "e": { "fallback": { "tool": "x", "match": "(" } } }"#,
        );
        let error = error.unwrap_err();
        insta::assert_snapshot!(error, @r#"
        f.json:1: server "a": tools.a.fallback: expected a string, found a number
        f.json:1: server "a": tools.b.fallback: "b__*" names no tool
        f.json:1: server "a": tools.c.fallback: a fallback needs `tool`
        f.json:2: server "a": tools.d.fallback.then: unknown key
        f.json:2: server "a": tools.d.fallback.on[1]: "always" is not one of unavailable, overloaded, rate_limited, timeout
        f.json:3: server "a": tools.e.fallback.match: not a regular expression: found open group without closing ')'
        "#);
        let helped = error
            .problems()
            .iter()
            .filter(|problem| problem.help.as_deref().is_some_and(|help| help.contains("backup__search")));
        assert_eq!(helped.count(), 2);
    }
}
