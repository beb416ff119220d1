//! Test cases for `mcp-host policy test`: requests, and what the rules of a config should decide about them.
//!
//! In: the text of a file, which is a list of cases or an object with that list under `cases`. Out: [`Case`]s. An
//! unknown key is an error: a case that does not say what its writer means tests nothing.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json};

use super::fields::{Field, refuse_rest};
use super::host::{Action, Audience, Decision, HostAuth};
use super::report::Report;
use super::syntax::Value;
use super::tools::{Hints, json};
use super::{ALL_VIEW, Config, Error, Syntax, syntax};
use crate::protocol::Raw;

/// The keys of a case.
const KEYS: [&str; 17] = [
    "action",
    "arguments",
    "claims",
    "client",
    "expect",
    "hints",
    "name",
    "principal",
    "prompt",
    "resource",
    "rule",
    "scopes",
    "server",
    "tags",
    "title",
    "tool",
    "view",
];
/// The deepest nesting of a value.
const DEEPEST: usize = 64;

/// A request, and what the rules of a config should decide about it.
///
/// ```
/// use mcp_host::config::{Audience, Case, Decision};
///
/// let mut case = Case::tool("db__drop");
/// case.principal = Audience::Client("ci".to_owned());
/// case.expect = Some(Decision::Deny);
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Case {
    /// The file and the line of the case; an empty path and 0 for a case that was built in code.
    pub place: (PathBuf, usize),
    /// What the case is about, for people.
    pub title: Option<String>,
    /// What the request does.
    pub action: Action,
    /// The tool, prompt, or resource that it is for.
    pub target: Target,
    /// The alias of the server; `None` means that the name of the tool or prompt starts with it.
    pub server: Option<String>,
    /// The server's own name of the target; `None` means the part of its name after the alias.
    pub raw_name: Option<String>,
    /// The caller: a client, a subject, or the local user.
    pub principal: Audience,
    /// The claims of its token.
    pub claims: Option<Map<String, Json>>,
    /// The scopes of its token.
    pub scopes: Vec<String>,
    /// The name and the version that the client states for itself.
    pub client: (String, Option<String>),
    /// The view; `None` means the default one.
    pub view: Option<String>,
    /// The hints of the tool, as the server states them.
    pub hints: Hints,
    /// The tags of the tool in addition to those in the config.
    pub tags: Vec<String>,
    /// The arguments, a JSON object.
    pub arguments: Option<Raw>,
    /// The expected decision; `None` expects nothing.
    pub expect: Option<Decision>,
    /// The rule that should have decided.
    pub rule: Option<String>,
}

/// What a request is for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// The tool with this exposed name.
    Tool(String),
    /// The prompt with this exposed name.
    Prompt(String),
    /// The resource with this URI.
    Resource(String),
    /// No tool, prompt, or resource: a server asks the client something on its own.
    Nothing,
}

impl Case {
    /// Returns a case in which the local user calls a tool.
    #[must_use]
    pub fn tool(name: &str) -> Self {
        Self {
            place: (PathBuf::new(), 0),
            title: None,
            action: Action::Call,
            target: Target::Tool(name.to_owned()),
            server: None,
            raw_name: None,
            principal: Audience::Local,
            claims: None,
            scopes: Vec::new(),
            client: (String::new(), None),
            view: None,
            hints: Hints::default(),
            tags: Vec::new(),
            arguments: None,
            expect: None,
            rule: None,
        }
    }
}

impl Config {
    /// Reads a file of cases for the rules of this config.
    ///
    /// # Errors
    /// Fails if the text has mistakes, and returns all of them.
    pub fn cases(&self, text: &str, syntax: Syntax, file: impl AsRef<Path>) -> Result<Vec<Case>, Error> {
        let mut report = Report::default();
        let cases = self.read_cases(text, syntax, file.as_ref(), &mut report);
        let (problems, notes) = report.finish();
        // A note is about an ignored key or value, and nothing of a case may be ignored.
        let problems: Vec<_> = problems.into_iter().chain(notes).collect();
        if problems.is_empty() { Ok(cases) } else { Err(Error::Invalid { problems }) }
    }

    fn read_cases(&self, text: &str, syntax: Syntax, file: &Path, report: &mut Report) -> Vec<Case> {
        let number = report.add_file(file);
        let before = report.problems();
        let Some(root) = syntax::parse(text, syntax, number, report) else {
            report.advise(before, "begin with: [ { \"tool\": \"db__query\", \"expect\": \"deny\" } ]");
            return Vec::new();
        };
        let root = Field { path: String::new(), at: root.at, node: &root };
        let items = if matches!(root.node.value, Value::List(_)) {
            Field { path: "cases".to_owned(), ..root }.items(report)
        } else {
            let Some(mut fields) = root.fields(report) else { return Vec::new() };
            let list = fields.take(&["cases"], report);
            refuse_rest(fields, &["cases"], report);
            let Some(list) = list else {
                report
                    .problem(root.at, "cases", "is missing")
                    .help("write a list of cases, or an object with the list `cases`");
                return Vec::new();
            };
            list.items(report)
        };
        items.iter().filter_map(|item| self.case(item, file, report)).collect()
    }

    fn case(&self, item: &Field<'_>, file: &Path, report: &mut Report) -> Option<Case> {
        let mut fields = item.fields(report)?;
        let mut case = Case::tool("");
        case.place = (file.to_owned(), item.at.line);
        let mut text = |key: &str, report: &mut Report| {
            let field = fields.take(&[key], report)?;
            Some((field.text(report)?.to_owned(), field))
        };
        case.title = text("title", report).map(|(title, _)| title);
        let targets = [text("tool", report), text("prompt", report), text("resource", report)];
        (case.server, case.raw_name) =
            (text("server", report).map(|(server, _)| server), text("name", report).map(|(name, _)| name));
        let (view, rule, principal) = (text("view", report), text("rule", report), text("principal", report));
        if targets.iter().flatten().count() > 1 {
            let problem = report.problem(item.at, &item.path, "a case is about one thing");
            problem.help("keep one of `tool`, `prompt`, and `resource`");
        }
        case.target = match targets {
            [Some((tool, _)), ..] => Target::Tool(tool),
            [_, Some((prompt, _)), _] => Target::Prompt(prompt),
            [.., Some((uri, _))] => Target::Resource(uri),
            [None, None, None] => Target::Nothing,
        };
        case.action = match &case.target {
            Target::Prompt(_) => Action::Get,
            Target::Resource(_) => Action::Read,
            Target::Tool(_) | Target::Nothing => Action::Call,
        };
        if let Some(action) = fields.take(&["action"], report).and_then(|field| field.word(report)) {
            case.action = action;
        }
        self.check_target(&case, item, report);
        if let Some((name, field)) = view {
            if !self.host.has_view(&name) {
                report.problem(field.at, &field.path, format!("there is no view {}", field.quote(&name)));
            }
            case.view = Some(name);
        }
        if let Some((name, field)) = rule {
            if !self.host.policy.rules.iter().any(|rule| rule.name == name) {
                let problem = report.problem(field.at, &field.path, format!("there is no rule {}", field.quote(&name)));
                problem.help("`rule` names the rule of `host.policy.rules` that should decide");
            }
            case.rule = Some(name);
        }
        if let Some((name, field)) = principal {
            case.principal = self.principal(&name, &field, report)?;
        }
        match fields.take(&["expect"], report) {
            Some(field) => case.expect = field.word(report),
            None => {
                report.problem(item.at, &item.path, "a case needs `expect`").help("add `expect`: allow, ask, or deny");
            }
        }
        case.client = fields.take(&["client"], report).map(|field| client(&field, report)).unwrap_or_default();
        if let Some(field) = fields.take(&["hints"], report) {
            case.hints = field.hints(report).unwrap_or_default();
        }
        case.tags = fields.take(&["tags"], report).map(|field| field.texts(report)).unwrap_or_default();
        case.scopes = fields.take(&["scopes"], report).map(|field| field.texts(report)).unwrap_or_default();
        case.claims = fields.take(&["claims"], report).and_then(|field| object(&field, report));
        case.arguments = fields
            .take(&["arguments"], report)
            .and_then(|field| object(&field, report))
            .map(|object| Raw::from_value(&object));
        refuse_rest(fields, &KEYS, report);
        Some(case)
    }

    fn check_target(&self, case: &Case, item: &Field<'_>, report: &mut Report) {
        let known = case.server.is_some() || self.server_of(case).is_some();
        match &case.target {
            Target::Nothing if !case.action.is_servers() => {
                let problem = report.problem(item.at, &item.path, "a case needs something that is asked for");
                problem.help("add `tool`, `prompt`, or `resource`; for what a server asks, `server` and `action`");
            }
            _ if !known => {
                let problem = report.problem(item.at, &item.path, "it is not known which server has this");
                problem.help("add `server`, the alias of the server");
            }
            _ => {}
        }
    }

    /// Returns the alias of the server whose prefix the name in a case has, and the rest of the name.
    pub(crate) fn server_of<'a>(&'a self, case: &'a Case) -> Option<(&'a str, &'a str)> {
        let (Target::Tool(name) | Target::Prompt(name)) = &case.target else { return None };
        let split = |alias: &'a str| {
            let rest = name.strip_prefix(alias)?.strip_prefix(self.host.naming.separator.as_str())?;
            Some((alias, rest))
        };
        let found = self.servers.iter().filter_map(|server| split(server.alias.as_str()));
        found.max_by_key(|(alias, _)| alias.len())
    }

    /// Returns the view of a case.
    pub(crate) fn view_of<'a>(&'a self, case: &'a Case) -> &'a str {
        let name = case.view.as_deref().unwrap_or(&self.host.default_view);
        if name.is_empty() { ALL_VIEW } else { name }
    }

    fn principal(&self, name: &str, field: &Field<'_>, report: &mut Report) -> Option<Audience> {
        let principal = if name == "local" { Some(Audience::Local) } else { Audience::parse(name) };
        match principal {
            Some(Audience::Client(name)) => {
                if let HostAuth::Bearer(clients) = &self.host.auth
                    && !clients.iter().any(|client| client.name == name)
                {
                    let message = format!("there is no client {}", field.quote(&name));
                    report.problem(field.at, &field.path, message).help("`host.auth.clients` has the clients");
                }
                Some(Audience::Client(name))
            }
            Some(one @ (Audience::Local | Audience::Subject(..))) => Some(one),
            Some(Audience::Claim(..) | Audience::Scope(_)) | None => {
                let problem = report.problem(field.at, &field.path, format!("{} is nobody", field.quote(name)));
                problem
                    .help("write local, the name of a client, or ISSUER#SUBJECT; there are `claims` and `scopes`, too");
                None
            }
        }
    }
}

fn client(field: &Field<'_>, report: &mut Report) -> (String, Option<String>) {
    if let Some(name) = field.node.text() {
        return (name.to_owned(), None);
    }
    let Some(mut fields) = field.fields(report) else { return Default::default() };
    let name = fields.take(&["name"], report).and_then(|field| field.text(report)).unwrap_or_default().to_owned();
    let version = fields.take(&["version"], report).and_then(|field| field.text(report)).map(str::to_owned);
    refuse_rest(fields, &["name", "version"], report);
    (name, version)
}

fn object(field: &Field<'_>, report: &mut Report) -> Option<Map<String, Json>> {
    // Opening the object reports duplicate keys.
    field.fields(report)?;
    match json(field.node, DEEPEST, &mut Vec::new()) {
        Some(Json::Object(members)) => Some(members),
        _ => {
            report.problem(field.at, &field.path, format!("not a JSON object of at most {DEEPEST} levels"));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Vars, parse_str};
    use super::*;

    fn config() -> Config {
        let text = r#"{ "mcpServers": { "db": { "command": "x" }, "db__two": { "command": "x" } },
            "host": { "policy": { "rules": [{ "name": "no-prod", "verdict": "deny" }] } } }"#;
        parse_str(text, Syntax::Json, "f.json", &Vars::default()).unwrap()
    }

    #[test]
    fn cases_are_read_in_all_three_languages() {
        let json =
            r#"[{ "tool": "db__query", "arguments": { "database": "prod" }, "expect": "deny", "rule": "no-prod" }]"#;
        let yaml = "- tool: db__query\n  arguments: { database: prod }\n  expect: deny\n  rule: no-prod\n";
        let toml =
            "[[cases]]\ntool = 'db__query'\narguments = { database = 'prod' }\nexpect = 'deny'\nrule = 'no-prod'\n";
        for (text, syntax) in [(json, Syntax::Json), (yaml, Syntax::Yaml), (toml, Syntax::Toml)] {
            let cases = config().cases(text, syntax, "cases").unwrap_or_else(|error| panic!("{error}"));
            let [case] = &*cases else { panic!("{cases:?}") };
            assert_eq!((case.expect, case.rule.as_deref()), (Some(Decision::Deny), Some("no-prod")));
            assert_eq!(case.arguments.as_ref().map(Raw::as_str), Some(r#"{"database":"prod"}"#));
            assert_eq!(config().server_of(case), Some(("db", "query")));
        }
    }

    #[test]
    fn mistakes_are_told_with_what_to_write() {
        let text = r#"[
            { "tool": "db__query", "expects": "deny" },
            { "tool": "query", "expect": "deny" },
            { "tool": "db__a", "prompt": "db__b", "expect": "block", "rule": "no-prods" },
            { "expect": "allow", "view": "none" },
            { "tool": "db__a", "expect": "allow", "principal": "claim:a=b" },
            { "tool": "db__a", "expect": "allow", "arguments": { "a": 1, "a": 2 }, "client": { "nam": "x" } },
            5 ]"#;
        let error = config().cases(text, Syntax::Json, "cases.json").unwrap_err();
        insta::assert_snapshot!(error, @r#"
        cases.json:2: cases[0]: a case needs `expect`
        cases.json:2: cases[0].expects: unknown key
        cases.json:3: cases[1]: it is not known which server has this
        cases.json:4: cases[2]: a case is about one thing
        cases.json:4: cases[2].rule: there is no rule "no-prods"
        cases.json:4: cases[2].expect: "block" is not one of allow, ask, deny
        cases.json:5: cases[3]: a case needs something that is asked for
        cases.json:5: cases[3].view: there is no view "none"
        cases.json:6: cases[4].principal: "claim:a=b" is nobody
        cases.json:7: cases[5].client.nam: unknown key
        cases.json:7: cases[5].arguments.a: given twice, first on line 7
        cases.json:8: cases[6]: expected an object, found a number
        "#);
        let error = config().cases("{ \"case\": [] }", Syntax::Json, "cases.json").unwrap_err();
        insta::assert_snapshot!(error, @"
        cases.json:1: case: unknown key
        cases.json:1: cases: is missing
        ");
    }
}
