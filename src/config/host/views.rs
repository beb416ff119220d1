//! `host.view` and `host.views`: which tools, prompts and resources a client is shown, by the view that it uses.
//!
//! **Invariant:** an unknown key of a view is a mistake. A misspelled `exclude` would leave open what the user believes
//! closed.

use std::collections::BTreeMap;

use super::catalog::{self, CatalogSettings};
use super::results::{self, Results};
use super::{HostAuth, HostSettings};
use crate::config::fields::{Field, Fields};
use crate::config::keys::words;
use crate::config::report::Report;
use crate::config::secret::Secret;
use crate::config::selector::{self, Selector};
use crate::config::syntax::Node;
use crate::config::tools::{ToolRules, refuse_rest};
use crate::protocol::Theirs;

/// The view that always exists.
pub(crate) const ALL: &str = "all";

/// The keys of a view.
const KEYS: [&str; 10] =
    ["catalog", "exclude", "for", "include", "instructions", "prompts", "readOnly", "resources", "results", "tools"];

words! {
    /// Whether a view shows only tools that are read-only.
    pub enum ReadOnly {
        /// Other tools are shown, too.
        #[default]
        No = "no",
        /// Tools are shown that the config or their server says are read-only.
        Declared = "declared",
        /// Tools are shown that the config says are read-only, and those that say so themselves at a server with
        /// `trustAnnotations`.
        Trusted = "trusted",
    }
}

/// What clients that use a view see and may call.
///
/// ```
/// use mcp_host::config::{Config, HostSettings, Selector, View};
///
/// let mut view = View::default();
/// view.include = Some(vec![Selector::Tag("code".to_owned())]);
/// let config = Config::default().host(HostSettings::default().view("review", view));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct View {
    /// The tools to show; `None` means all.
    pub include: Option<Vec<Selector>>,
    /// Tools to leave out even if `include` has them.
    pub exclude: Vec<Selector>,
    /// Whether it shows only tools that are read-only.
    pub read_only: ReadOnly,
    /// Globs over the exposed names of prompts; `None` means the prompts of every server of which `include` can show a
    /// tool.
    pub prompts: Option<Vec<String>>,
    /// Globs over the URIs of resources, exposed or the server's own; `None` means the same servers as for `prompts`.
    pub resources: Option<Vec<String>>,
    /// The instructions for clients, in place of the host's own.
    pub instructions: Option<String>,
    /// Who may use it; `None` means everybody.
    pub audience: Option<Vec<Audience>>,
    /// How its tools are listed; `None` means that `host.catalog` applies.
    pub catalog: Option<CatalogSettings>,
    /// How much of a result its clients get at once; `None` means that `host.results` applies.
    pub results: Option<Results>,
    /// Settings of tools, by globs over exposed names.
    pub tools: ToolRules,
}

/// Who may use a view, or to whom a rule applies.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Audience {
    /// The client of `host.auth.clients` with this name.
    Client(String),
    /// The user with this issuer and subject: `ISSUER#SUBJECT`.
    Subject(String, String),
    /// Everyone whose token has this claim: `claim:NAME=VALUE`. If the claim is a list, one item must equal the value.
    Claim(String, String),
    /// Everyone whose token has this scope: `scope:SCOPE`.
    Scope(String),
    /// Everyone who does not prove who they are: in rules, `local`.
    Local,
}

impl Audience {
    /// Parses an audience; `None` if the text is not one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(claim) = text.strip_prefix("claim:") {
            let (name, value) = claim.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty())?;
            return Some(Self::Claim(name.to_owned(), value.to_owned()));
        }
        if let Some(scope) = text.strip_prefix("scope:") {
            return (!scope.is_empty()).then(|| Self::Scope(scope.to_owned()));
        }
        if let Some((issuer, subject)) = text.rsplit_once('#') {
            let fine = !issuer.is_empty() && !subject.is_empty();
            return fine.then(|| Self::Subject(issuer.to_owned(), subject.to_owned()));
        }
        super::access::is_name(text).then(|| Self::Client(text.to_owned()))
    }
}

impl View {
    /// Reports whether the view leaves what is shown and called unchanged.
    pub(crate) fn is_empty(&self) -> bool {
        let Self {
            include,
            exclude,
            read_only,
            prompts,
            resources,
            instructions: _,
            audience: _,
            catalog: _,
            results: _,
            tools,
        } = self;
        let selects = include.is_some() || !exclude.is_empty() || *read_only != ReadOnly::No;
        !selects && prompts.is_none() && resources.is_none() && tools.is_empty()
    }

    /// Reports whether it selects tools by their hints.
    pub(crate) fn reads_hints(&self) -> bool {
        let mut selectors = self.include.iter().flatten().chain(&self.exclude);
        self.read_only != ReadOnly::No || selectors.any(|selector| matches!(selector, Selector::Hint(_)))
    }
}

/// Reports whether a view may have this name.
fn is_name(name: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=32).contains(&name.len()) && name.starts_with(|c: char| c.is_ascii_lowercase()) && name.bytes().all(fine)
}

/// Reads both keys. Limits and clients must have been read before.
pub(super) fn fill(settings: &mut HostSettings, fields: &mut Fields<'_>, report: &mut Report) {
    if let Some(field) = fields.take(&["views"], report) {
        settings.views = views(&field, settings, report);
    }
    if let Some(field) = fields.take(&["view"], report)
        && let Some(name) = field.text(report)
    {
        settings.default_view = name.to_owned();
        if !settings.has_view(name) {
            let message = format!("there is no view {}", field.quote(name));
            report.problem(field.at, &field.path, message).help(known(&settings.views));
        }
    }
}

/// Returns advice that lists the views.
pub(super) fn known(views: &BTreeMap<String, View>) -> String {
    let named = views.keys().map(String::as_str).filter(|name| *name != ALL);
    let names: Vec<&str> = std::iter::once(ALL).chain(named).collect();
    format!("the views are {}; others are defined in `host.views`", names.join(", "))
}

/// Refuses audiences that name clients that do not exist.
pub(super) fn check_clients(settings: &HostSettings, host: &Node, report: &mut Report) {
    let HostAuth::Bearer(clients) = &settings.auth else { return };
    let written = host.get("auth").and_then(|auth| auth.get("clients"));
    for client in clients {
        for name in client.views.iter().filter(|name| !settings.has_view(name)) {
            let at = written.and_then(|all| all.get(&client.name)?.get("views")).map_or(host.at, |views| views.at);
            let path = format!("host.auth.clients.{}.views", client.name);
            let problem = report.problem(at, &path, format!("there is no view {:?}", Theirs(name)));
            problem.help(known(&settings.views));
        }
    }
}

fn views(field: &Field<'_>, host: &HostSettings, report: &mut Report) -> BTreeMap<String, View> {
    let (entries, most) = (field.entries(report), host.limits.views);
    if entries.len() > most {
        let message = format!("{} views; {most} at most (host.limits.views)", entries.len());
        report.problem(field.at, &field.path, message);
    }
    let mut views = BTreeMap::new();
    for (name, field) in entries {
        if !is_name(name) {
            let problem = report.problem(field.at, &field.path, "a view cannot be called that");
            problem.help("use up to 32 lower-case letters, digits and -, with a letter first");
        }
        if let Some(view) = view(&field, host, report) {
            views.insert(name.to_owned(), view);
        }
    }
    views
}

fn view(field: &Field<'_>, host: &HostSettings, report: &mut Report) -> Option<View> {
    let mut fields = field.fields(report)?;
    let mut view = View::default();
    if let Some(field) = fields.take(&["include"], report) {
        view.include = Some(selector::read(&field, report));
    }
    if let Some(field) = fields.take(&["exclude"], report) {
        view.exclude = selector::read(&field, report);
    }
    if let Some(word) = fields.take(&["readOnly"], report).and_then(|field| field.word(report)) {
        view.read_only = word;
    }
    view.prompts = fields.take(&["prompts"], report).map(|field| field.texts(report));
    view.resources = fields.take(&["resources"], report).map(|field| field.texts(report));
    view.instructions = fields.take(&["instructions"], report).and_then(|field| field.text(report)).map(str::to_owned);
    view.audience = fields.take(&["for"], report).map(|field| audience(&field, report));
    view.catalog = fields.take(&["catalog"], report).map(|field| catalog::of_view(&host.catalog, &field, report));
    view.results = fields.take(&["results"], report).map(|field| results::of_view(&host.results, &field, report));
    if let Some(field) = fields.take(&["tools"], report) {
        view.tools = ToolRules::read(&field, report);
    }
    refuse_rest(fields, &KEYS, report);
    Some(view)
}

fn audience(field: &Field<'_>, report: &mut Report) -> Vec<Audience> {
    let mut audience = Vec::new();
    for item in field.items(report) {
        let Some(text) = item.text(report) else { continue };
        match Audience::parse(text) {
            Some(one) => audience.push(one),
            None => {
                let problem = report.problem(item.at, &item.path, format!("{} means nobody", item.quote(text)));
                problem.help("write the name of a client, ISSUER#SUBJECT, claim:NAME=VALUE, or scope:SCOPE");
            }
        }
    }
    audience
}

impl HostSettings {
    /// Reports whether there is a view with this name.
    pub(crate) fn has_view(&self, name: &str) -> bool {
        name == ALL || self.views.contains_key(name)
    }

    /// Returns the settings of tools in the view with this name.
    pub(crate) fn tools_in(&self, view: &str) -> Option<&ToolRules> {
        self.views.get(view).map(|view| &view.tools).filter(|tools| !tools.is_empty())
    }

    /// Adds a view.
    #[must_use]
    pub fn view(mut self, name: &str, view: View) -> Self {
        self.views.insert(name.to_owned(), view);
        self
    }

    /// Returns the values of variables to which views preset arguments, and the headers for the registry.
    pub(in crate::config) fn preset_secrets(&self) -> impl Iterator<Item = &Secret> {
        let headers = self.registry.headers.iter().map(|(_, value)| value);
        self.views.values().flat_map(|view| view.tools.secrets()).chain(&self.hidden).chain(headers)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Config, Error, Syntax, Vars, parse_str};
    use super::*;

    fn read(host: &str) -> Result<Config, Error> {
        let text = format!("{{ \"mcpServers\": {{}},\n\"host\": {host} }}");
        parse_str(&text, Syntax::Json, "f.json", &Vars::from_iter([("ORG", "the-canary")]))
    }

    #[test]
    fn limit_views() {
        let views = |count: usize| {
            let views: Vec<String> = (0..count).map(|number| format!("\"v{number}\": {{}}")).collect();
            read(&format!("{{ \"limits\": {{ \"views\": 3 }}, \"views\": {{ {} }} }}", views.join(", ")))
        };
        assert_eq!(views(3).unwrap().host.views.len(), 3);
        let error = views(4).unwrap_err().to_string();
        assert_eq!(error, "f.json:2: host.views: 4 views; 3 at most (host.limits.views)");
    }

    #[test]
    fn mistakes_are_told_with_what_to_write() {
        let error = read(
            r#"{ "view": "none", "views": { "Big": {}, "a": {
                "include": ["tag:code", "hint:harmless", "sever:x"], "exlude": ["x"], "readOnly": "yes", "result": {},
                "for": ["a b", "claim:x"] } },
                "auth": { "type": "bearer", "clients": { "one": {
                    "hash": "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae", "views": ["b"] } } } }"#,
        );
        let error = error.unwrap_err();
        insta::assert_snapshot!(error, @r#"
        f.json:2: host.views.Big: a view cannot be called that
        f.json:2: host.view: there is no view "none"
        f.json:3: host.views.a.include[1]: "hint:harmless" is no selector
        f.json:3: host.views.a.include[2]: "sever:x" is no selector
        f.json:3: host.views.a.readOnly: "yes" is not one of no, declared, trusted
        f.json:3: host.views.a.exlude: unknown key
        f.json:3: host.views.a.result: unknown key
        f.json:4: host.views.a.for[0]: "a b" means nobody
        f.json:4: host.views.a.for[1]: "claim:x" means nobody
        f.json:6: host.auth.clients.one.views: there is no view "b"
        "#);
        let helps: Vec<_> = error.problems().iter().filter_map(|problem| problem.help.as_deref()).collect();
        assert!(helps.contains(&"the views are all, Big, a; others are defined in `host.views`"), "{helps:?}");
        assert!(
            helps.iter().any(|help| help.contains("\"server:ALIAS\"")) && helps.contains(&"did you mean `exclude`?")
        );
    }

    #[test]
    fn h97_a_preset_of_a_view_is_a_secret_whatever_its_name() {
        let config =
            read(r#"{ "views": { "a": { "tools": { "t": { "arguments": { "o": { "value": "in ${ORG}" } } } } } } }"#);
        let config = config.unwrap();
        assert!(!format!("{config:?}").contains("canary"));
        assert_eq!(config.scrubber().without_known("it is the-canary"), "it is ***");
    }

    #[test]
    fn an_audience_is_read_as_it_is_written() {
        assert_eq!(Audience::parse("laptop"), Some(Audience::Client("laptop".to_owned())));
        let subject = Audience::Subject("https://a.example".to_owned(), "u1".to_owned());
        assert_eq!(Audience::parse("https://a.example#u1"), Some(subject));
        let claim = Audience::Claim("groups".to_owned(), "dev=1".to_owned());
        assert_eq!(Audience::parse("claim:groups=dev=1"), Some(claim));
        assert_eq!(Audience::parse("scope:mcp.read"), Some(Audience::Scope("mcp.read".to_owned())));
        for nobody in ["", "a b", "#", "claim:x", "claim:=x", "scope:", "https://a.example#"] {
            assert_eq!(Audience::parse(nobody), None, "{nobody}");
        }
    }
}
