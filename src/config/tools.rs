//! Settings of single tools: the object `tools` of a server's entry, whose keys are globs over the server's own names,
//! and the one of a view, whose keys are globs over exposed names.
//!
//! In: the object. Out: [`ToolRules`], which gives the settings for one name. Each setting comes from the strongest
//! glob that has it: an exact name is stronger than a glob, and a longer glob than a shorter one. A new setting is one
//! line in the table of [`ToolSettings`]: its type defines how a stronger rule is combined with a weaker one
//! ([`Layer`]).
//!
//! **Invariant:** no message, log line, or `Debug` output shows the value that an argument is preset to.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::fallback::Fallback;
use super::fields::Field;
pub(super) use super::fields::refuse_rest;
use super::keys::keys;
use super::rate::Rate;
use super::report::Report;
use super::secret::Secret;
use super::syntax::{Node, Origin, Value};
use super::validate::Validate;
use crate::glob;

/// A setting, or a group of settings. Where a stronger rule sets nothing, a weaker one fills it in.
pub(crate) trait Layer {
    /// Takes from `weaker` what this does not set.
    fn lay_over(&mut self, weaker: &Self);
}

impl<T: Clone> Layer for Option<T> {
    fn lay_over(&mut self, weaker: &Self) {
        if self.is_none() {
            self.clone_from(weaker);
        }
    }
}

impl<T: Layer + Clone> Layer for BTreeMap<String, T> {
    fn lay_over(&mut self, weaker: &Self) {
        for (name, below) in weaker {
            match self.get_mut(name) {
                Some(own) => own.lay_over(below),
                None => {
                    self.insert(name.clone(), below.clone());
                }
            }
        }
    }
}

/// Declares a table of settings, like `keys!`. The default of each setting is that of its type, and two tables can be
/// combined as a stronger and a weaker one.
macro_rules! layered {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $($(#[doc = $doc:literal])+ $field:ident: $read:ident -> $kind:ty,)+
        }
    ) => {
        keys! {
            $(#[$meta])*
            #[derive(Default)]
            pub struct $name() {}
            keys { $($(#[doc = $doc])+ $field: $read -> $kind = Default::default(),)+ }
        }

        impl Layer for $name {
            fn lay_over(&mut self, weaker: &Self) {
                $(self.$field.lay_over(&weaker.$field);)+
            }
        }

        impl $name {
            /// Reads the object in this field. Unlike elsewhere, an unknown key is an error: a misspelled key would
            /// leave something open that the user believes closed.
            fn strictly(field: &Field<'_>, report: &mut Report) -> Self {
                let mut settings = Self::with_defaults();
                if let Some(mut fields) = field.fields(report) {
                    settings.fill(&mut fields, report);
                    let keys = Self::keys();
                    refuse_rest(fields, &keys.iter().map(String::as_str).collect::<Vec<_>>(), report);
                }
                settings
            }
        }
    };
}

layered! {
    /// The settings of one tool; a setting that is `None` or empty is not set.
    #[non_exhaustive]
    pub struct ToolSettings {
        /// The title to show in place of the server's.
        title: note -> Option<String>,
        /// The description to show in place of the server's.
        description: note -> Option<String>,
        /// Hints about what the tool does, in place of the server's.
        annotations: hints -> Hints,
        /// Tags with which selectors name the tool (`tag:WORD`). They are never sent to clients.
        tags: some_tags -> Option<Vec<String>>,
        /// How often one client may call the tool.
        rate: some_rate -> Option<Rate>,
        /// The most bytes of arguments that a call may have.
        max_arguments: some_size -> Option<usize>,
        /// What is checked against the tool's schemas.
        validate: some_validation -> Option<Validate>,
        /// How long a call may go without progress, in place of the server's setting.
        call_timeout: some_wait -> Option<Duration>,
        /// How long a call may take overall, in place of the server's setting.
        max_call_time: some_wait -> Option<Duration>,
        /// How many of its calls may run at once, in addition to the server's limit; 0 means unlimited.
        max_concurrent: some_count -> Option<usize>,
        /// For how long an answer is cached for identical calls; 0 means that it is not.
        cache: some_time -> Option<Duration>,
        /// How much of its results a client gets at once, in place of the setting of the view or the host.
        results: tool_results -> ToolResults,
        /// The tool that gets a call if this one failed to serve it.
        fallback: some_fallback -> Option<Fallback>,
        /// Arguments to hide, preset, rename, or describe, by the server's own names.
        arguments: arguments -> BTreeMap<String, Argument>,
    }
}

impl ToolSettings {
    /// Reports whether answers are cached.
    pub(crate) fn has_cache(&self) -> bool {
        self.cache.is_some_and(|time| !time.is_zero())
    }

    /// Reports whether calls are checked against the schemas.
    #[cfg(any(feature = "validate", test))]
    pub(crate) fn checks_calls(&self) -> bool {
        self.validate.is_some_and(|validate| validate != Validate::Definitions)
    }

    /// Reports whether calls have limits of their own: of size, time, or number.
    pub(crate) fn limits_calls(&self) -> bool {
        let Self { max_arguments, call_timeout, max_call_time, max_concurrent, .. } = self;
        max_arguments.or(*max_concurrent).is_some() || call_timeout.or(*max_call_time).is_some()
    }
}

layered! {
    /// Hints about what a tool does, like its annotations; `None` means that nothing is said.
    #[derive(Copy)]
    #[non_exhaustive]
    pub struct Hints {
        /// Whether the tool changes nothing.
        read_only_hint: known_flag -> Option<bool>,
        /// Whether the tool may destroy what it changes.
        destructive_hint: known_flag -> Option<bool>,
        /// Whether a second identical call changes nothing more.
        idempotent_hint: known_flag -> Option<bool>,
        /// Whether the tool affects anything outside of its server.
        open_world_hint: known_flag -> Option<bool>,
    }
}

layered! {
    /// How much of a tool's result a client gets at once, as in [`Results`](super::Results); `None` means not set. How
    /// much is stored is a setting for a principal, so it is missing here.
    #[derive(Copy)]
    #[non_exhaustive]
    pub struct ToolResults {
        /// The most bytes that the text and the structured content may have together; 0 means no limit. The tool's own
        /// `anthropic/maxResultSizeChars` does not raise it.
        limit: some_bytes -> Option<usize>,
        /// The most bytes of base64 that an image, audio, or other data may have; 0 means no limit.
        image: some_bytes -> Option<usize>,
        /// How many bytes of text, and of structured content, a client gets of a result that exceeds the limit.
        preview: some_size -> Option<usize>,
        /// How long the rest can be read.
        keep: some_wait -> Option<Duration>,
    }
}

impl ToolResults {
    /// Reports whether it sets a limit for texts and structured content.
    pub(crate) fn has_limit(&self) -> bool {
        self.limit.is_some_and(|limit| limit > 0)
    }

    /// Reports whether any result is shortened because of it.
    pub(crate) fn is_on(&self) -> bool {
        self.has_limit() || self.image.is_some_and(|image| image > 0)
    }
}

layered! {
    /// Settings of one argument of a tool.
    #[non_exhaustive]
    pub struct Argument {
        /// The name that clients know; `None` means the server's own name.
        name: argument_name -> Option<String>,
        /// The description to show in place of the server's.
        description: note -> Option<String>,
        /// The value that the server gets if the client sends none.
        default: preset -> Option<Preset>,
        /// The value that the server gets, whatever the client sends.
        value: preset -> Option<Preset>,
        /// Whether clients neither see the argument nor may send it.
        hide: known_flag -> Option<bool>,
    }
}

/// A JSON value to which an argument is preset. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Preset {
    json: Box<str>,
    /// The texts in it that came from variables.
    pub(super) secrets: Vec<Secret>,
}

impl Preset {
    /// Returns the preset of this JSON value.
    #[must_use]
    pub fn new(value: &serde_json::Value) -> Self {
        Self { json: value.to_string().into(), secrets: Vec::new() }
    }

    /// Returns the value as JSON. It may hold a secret.
    pub(crate) fn json(&self) -> &str {
        &self.json
    }
}

impl fmt::Debug for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Preset(…)")
    }
}

/// Settings of tools by globs over their names, the strongest first.
///
/// ```
/// use mcp_host::config::{ToolRules, ToolSettings};
///
/// let mut settings = ToolSettings::default();
/// settings.title = Some("Look it up".to_owned());
/// let rules = ToolRules::default().with("search*", settings);
/// assert!(!rules.is_empty());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolRules(Vec<(String, ToolSettings)>);

impl ToolRules {
    /// Adds settings for the tools whose names match a glob.
    #[must_use]
    pub fn with(mut self, glob: impl Into<String>, settings: ToolSettings) -> Self {
        self.0.push((glob.into(), settings));
        self.0.sort_by(|(one, _), (other, _)| strength(other).cmp(&strength(one)));
        self
    }

    /// Reports whether there are no settings at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the settings of the tool with this name; `None` if no glob matches it.
    pub(crate) fn of(&self, name: &str) -> Option<ToolSettings> {
        let mut matching = self.0.iter().filter(|(glob, _)| glob::is_match(glob, name));
        let mut settings = matching.next()?.1.clone();
        matching.for_each(|(_, weaker)| settings.lay_over(weaker));
        Some(settings)
    }

    /// Returns a setting of the tool with this name, from the strongest rule that has it; `None` if no rule does.
    pub(crate) fn said<'a, T: 'a>(&'a self, name: &str, setting: fn(&'a ToolSettings) -> Option<T>) -> Option<T> {
        let mut said = self.0.iter().filter_map(|(glob, settings)| Some((glob, setting(settings)?)));
        said.find(|(glob, _)| glob::is_match(glob, name)).map(|(_, value)| value)
    }

    /// Returns the settings for results of the tool with this name.
    pub(crate) fn results_of(&self, name: &str) -> ToolResults {
        let mut results = ToolResults::default();
        let matching = self.0.iter().filter(|(glob, _)| glob::is_match(glob, name));
        matching.for_each(|(_, weaker)| results.lay_over(&weaker.results));
        results
    }

    /// Reports whether the settings say of any tool that it is read-only.
    pub(crate) fn trust_reads(&self) -> bool {
        self.any(|tool| tool.annotations.read_only_hint == Some(true))
    }

    /// Returns for how long answers of the tool with this name are cached, and whether that setting is from a rule with
    /// its exact name; `None` if no rule sets it.
    pub(crate) fn cache_of(&self, name: &str) -> Option<(Duration, bool)> {
        let said = self.0.iter().filter_map(|(glob, settings)| Some((glob, settings.cache?)));
        let mut said = said.filter(|(glob, _)| glob::is_match(glob, name));
        said.next().map(|(glob, time)| (time, is_exact(glob)))
    }

    /// Reports whether `is_such` is true for the settings of any rule.
    pub(crate) fn any(&self, is_such: impl Fn(&ToolSettings) -> bool) -> bool {
        self.0.iter().any(|(_, settings)| is_such(settings))
    }

    /// Returns every tag that the settings give to any tool.
    pub(crate) fn tags(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(|(_, settings)| settings.tags.iter().flatten()).map(String::as_str)
    }

    /// Returns the values of variables to which arguments are preset.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &Secret> {
        let arguments = self.0.iter().flat_map(|(_, settings)| settings.arguments.values());
        let presets = arguments.flat_map(|argument| argument.default.iter().chain(&argument.value));
        presets.flat_map(|preset| &preset.secrets)
    }

    /// Reads the object in this field.
    pub(super) fn read(field: &Field<'_>, report: &mut Report) -> Self {
        let mut rules = Self::default();
        for (glob, field) in field.entries(report) {
            let settings = ToolSettings::strictly(&field, report);
            rules = rules.with(glob, settings);
        }
        rules
    }
}

/// Orders globs: exact names are the strongest, then longer globs. Ties are broken by the text, so that the order in a
/// file does not matter.
fn strength(glob: &str) -> (bool, usize, &str) {
    (is_exact(glob), glob.chars().count(), glob)
}

/// Reports whether a glob is an exact name.
fn is_exact(glob: &str) -> bool {
    !glob.contains(['*', '?'])
}

/// Reports whether a variable in the field at `path` is part of a preset value.
pub(super) fn is_preset(path: &str) -> bool {
    (path.starts_with("tools.") || path.starts_with("host.views.")) && path.contains(".arguments.")
}

/// The deepest nesting of a preset value.
const DEEPEST: usize = 8;

/// Readers for the tables above.
impl Field<'_> {
    fn known_flag(&self, report: &mut Report) -> Option<Option<bool>> {
        self.flag(report).map(Some)
    }

    fn some_time(&self, report: &mut Report) -> Option<Option<Duration>> {
        self.time(report).map(Some)
    }

    fn some_wait(&self, report: &mut Report) -> Option<Option<Duration>> {
        self.positive_time(report).map(Some)
    }

    fn some_size(&self, report: &mut Report) -> Option<Option<usize>> {
        self.positive_size(report).map(Some)
    }

    fn some_bytes(&self, report: &mut Report) -> Option<Option<usize>> {
        self.size(report).map(Some)
    }

    fn tool_results(&self, report: &mut Report) -> Option<ToolResults> {
        Some(ToolResults::strictly(self, report))
    }

    fn some_count(&self, report: &mut Report) -> Option<Option<usize>> {
        self.count(report).map(Some)
    }

    pub(super) fn hints(&self, report: &mut Report) -> Option<Hints> {
        Some(Hints::strictly(self, report))
    }

    fn some_tags(&self, report: &mut Report) -> Option<Option<Vec<String>>> {
        Some(Some(self.texts(report)))
    }

    fn arguments(&self, report: &mut Report) -> Option<BTreeMap<String, Argument>> {
        let mut arguments: BTreeMap<String, Argument> = BTreeMap::new();
        for (name, field) in self.entries(report) {
            let argument = Argument::strictly(&field, report);
            if argument.hide == Some(true) && argument.name.is_some() {
                let problem = report.problem(field.at, &field.path, "a hidden argument has no name");
                problem.help("remove `name`, or `hide`");
            }
            if argument.value.is_some() && argument.default.is_some() {
                let problem = report.problem(field.at, &field.path, "`value` and `default` are both given");
                problem.help("keep `value` to send it always, `default` to send it where the client sends nothing");
            }
            let taken = |other: &Argument| other.name.is_some() && other.name == argument.name;
            if arguments.values().any(taken) {
                report.problem(field.at, &field.path, "another argument has this name, too").help("rename one of them");
            }
            arguments.insert(name.to_owned(), argument);
        }
        Some(arguments)
    }

    fn argument_name(&self, report: &mut Report) -> Option<Option<String>> {
        let name = self.text(report)?;
        if name.is_empty() {
            report.problem(self.at, &self.path, "an argument needs a name").help("write the name that clients see");
            return None;
        }
        Some(Some(name.to_owned()))
    }

    fn preset(&self, report: &mut Report) -> Option<Option<Preset>> {
        let mut secrets = Vec::new();
        let Some(value) = json(self.node, DEEPEST, &mut secrets) else {
            let text = format!("not a JSON value of at most {DEEPEST} levels");
            report.problem(self.at, &self.path, text).help("write a text, a number, a boolean, a list, or an object");
            return None;
        };
        let json = value.to_string().into();
        Some(Some(Preset { json, secrets }))
    }
}

/// Returns a value of the config as JSON; `None` if it nests too deep, or is a number that JSON does not have. Adds
/// texts with variables to `secrets`.
pub(super) fn json(node: &Node, levels: usize, secrets: &mut Vec<Secret>) -> Option<serde_json::Value> {
    let inner = levels.checked_sub(1);
    Some(match &node.value {
        Value::Null => serde_json::Value::Null,
        Value::Flag(flag) => (*flag).into(),
        Value::Number(number) => serde_json::Value::Number(number.parse().ok()?),
        Value::Text(text) => {
            if node.origin != Origin::Literal {
                secrets.push(Secret::new(text.as_str()));
            }
            text.as_str().into()
        }
        Value::List(items) => items.iter().map(|item| json(item, inner?, secrets)).collect::<Option<Vec<_>>>()?.into(),
        Value::Object(members) => {
            let member =
                |member: &super::syntax::Member| Some((member.key.clone(), json(&member.node, inner?, secrets)?));
            members.iter().map(member).collect::<Option<serde_json::Map<_, _>>>()?.into()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Syntax, Vars, parse_str};
    use super::*;

    fn rules(tools: &str) -> ToolRules {
        let text = format!(r#"{{ "mcpServers": {{ "a": {{ "command": "x", "tools": {tools} }} }} }}"#);
        let vars = Vars::from_iter([("ORG", "the-canary")]);
        let config = parse_str(&text, Syntax::Json, "f.json", &vars).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(config.notes, []);
        config.servers[0].tools.clone()
    }

    #[test]
    fn exact_beats_glob_and_longer_beats_shorter_member_by_member() {
        let rules = rules(
            r#"{ "*": { "title": "all", "description": "all", "tags": ["x"], "annotations": { "readOnlyHint": false, "openWorldHint": false } },
                 "get_*": { "title": "get", "annotations": { "readOnlyHint": true } },
                 "get_me": { "arguments": { "a": { "hide": true } } },
                 "get_m?": { "description": "two", "arguments": { "a": { "value": 1 } } } }"#,
        );
        let settings = rules.of("get_me").unwrap();
        assert_eq!(settings.title.as_deref(), Some("get"));
        assert_eq!(settings.description.as_deref(), Some("two"));
        assert_eq!(settings.tags, Some(vec!["x".to_owned()]));
        assert_eq!(settings.annotations.read_only_hint, Some(true));
        assert_eq!(settings.annotations.open_world_hint, Some(false));
        assert_eq!(settings.annotations.idempotent_hint, None);
        let argument = &settings.arguments["a"];
        assert_eq!((argument.hide, argument.value.as_ref().map(Preset::json)), (Some(true), Some("1")));
        assert_eq!(rules.of("put").unwrap().title.as_deref(), Some("all"));
    }

    #[test]
    fn a_cache_says_whether_it_is_for_this_tool_alone() {
        let rules = rules(
            r#"{ "*": { "cache": "1h" }, "get_*": { "cache": "1m" }, "get_me": { "cache": "5s" }, "get_it": { "title": "it" },
                 "get_now": { "cache": "0s" } }"#,
        );
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        for (name, said) in [
            ("put", (minutes(60), false)),
            ("get_you", (minutes(1), false)),
            ("get_it", (minutes(1), false)),
            ("get_me", (Duration::from_secs(5), true)),
            ("get_now", (Duration::ZERO, true)),
        ] {
            assert_eq!(rules.cache_of(name), Some(said), "{name}");
        }
        assert!(
            rules.any(ToolSettings::has_cache)
                && !self::rules(r#"{ "*": { "cache": "0s" } }"#).any(ToolSettings::has_cache)
        );
    }

    #[test]
    fn what_is_said_of_results_is_laid_over_member_by_member() {
        let rules = rules(
            r#"{ "*": { "results": { "limit": "9KiB", "image": "1KiB", "keep": "1m" } },
                 "get_*": { "results": { "limit": "0B" } }, "get_me": { "results": { "preview": "1KiB" } } }"#,
        );
        let said = |name: &str| {
            let ToolResults { limit, image, preview, keep } = rules.results_of(name);
            (limit, image, preview, keep.map(|keep| keep.as_secs()))
        };
        assert_eq!(said("get_me"), (Some(0), Some(1024), Some(1024), Some(60)));
        assert_eq!(said("put"), (Some(9 * 1024), Some(1024), None, Some(60)));
        assert!(rules.results_of("put").has_limit() && !rules.results_of("get_me").has_limit());
        assert!(rules.results_of("get_me").is_on() && !ToolResults::default().is_on());
    }

    #[test]
    fn h97_a_preset_from_a_variable_is_a_secret_whatever_its_name() {
        let text = r#"{ "mcpServers": { "a": { "command": "x", "tools": { "t": { "arguments": {
            "org": { "value": { "in": ["at ${ORG} now"] } }, "team": { "default": "${ORG}" }, "n": { "value": "plain-text" } } } } } } }"#;
        let vars = Vars::from_iter([("ORG", "the-canary")]);
        let config = parse_str(text, Syntax::Json, "f.json", &vars).unwrap();
        assert!(!format!("{config:?}").contains("canary"));
        let scrubber = config.scrubber();
        assert_eq!(scrubber.without_known("it is the-canary!"), "it is ***!");
        assert_eq!(scrubber.without_known("plain-text"), "plain-text");
    }

    #[test]
    fn a_list_stays_an_include_list() {
        let text = r#"{ "mcpServers": { "a": { "command": "x", "tools": ["one"] } } }"#;
        let config = parse_str(text, Syntax::Json, "f.json", &Vars::default()).unwrap();
        assert_eq!(config.servers[0].include_tools, ["one"]);
        assert!(config.servers[0].tools.is_empty());
    }

    #[test]
    fn every_key_is_shown() {
        let shown = std::fs::read_to_string("config/mcp-host.toml").unwrap();
        let keys = [ToolSettings::table(), Hints::table(), ToolResults::table(), Argument::table()].concat();
        for (key, _) in keys {
            assert!(shown.contains(&key), "{key} is not shown");
        }
    }

    #[test]
    fn mistakes_are_told_with_what_to_write() {
        let text = r#"{ "mcpServers": { "a": { "command": "x", "tools": {
            "one": { "titel": "x" },
            "two": { "arguments": { "a": { "hidden": true }, "b": { "hide": true, "name": "c" } } },
            "three": { "arguments": { "a": { "value": 1, "default": 2 } } },
            "four": { "annotations": { "readOnly": true } },
            "five": { "results": { "limit": 100, "preview": "0B", "store": "1MiB" } } } } } }"#;
        let error = parse_str(text, Syntax::Json, "f.json", &Vars::default()).unwrap_err();
        insta::assert_snapshot!(error, @r#"
        f.json:2: server "a": tools.one.titel: unknown key
        f.json:3: server "a": tools.two.arguments.a.hidden: unknown key
        f.json:3: server "a": tools.two.arguments.b: a hidden argument has no name
        f.json:4: server "a": tools.three.arguments.a: `value` and `default` are both given
        f.json:5: server "a": tools.four.annotations.readOnly: unknown key
        f.json:6: server "a": tools.five.results.limit: 100 has no unit
        f.json:6: server "a": tools.five.results.preview: must be more than zero
        f.json:6: server "a": tools.five.results.store: unknown key
        "#);
    }
}
