//! Tries the rules of a config on a described request: for `mcp-host policy`, and for tests of rules.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::caller::Caller;
use super::facts::{Facts, Kind, Subject};
use super::judge;
use super::rules::Rules;
use super::verdict::Verdict;
use crate::config::{Audience, Case, Config, Layer as _, PolicyMode, Target};

/// What the rules of a config say of one request.
///
/// ```
/// use mcp_host::config::{Case, Syntax, Vars, parse_str};
/// use mcp_host::policy::{Decision, Trial};
///
/// let text = r#"{ "mcpServers": { "db": { "command": "db-server" } }, "host": { "policy": { "rules": [
///     { "name": "no-drop", "verdict": "deny", "tools": ["db__drop*"] } ] } } }"#;
/// let config = parse_str(text, Syntax::Json, "mcp.json", &Vars::default())?;
/// let trial = Trial::of(&config, &Case::tool("db__drop_table"));
/// assert_eq!(trial.verdict.map(|verdict| verdict.decision), Ok(Decision::Deny));
/// # Ok::<_, mcp_host::config::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trial {
    /// The verdict; an error says why the arguments are refused.
    pub verdict: Result<Verdict, String>,
    /// Whether the subject of the request is left out of clients' lists.
    pub hidden: bool,
    /// Each rule, in the order of the config; an error says why the rule does not match.
    pub rules: Vec<(String, Result<(), String>)>,
}

impl Trial {
    /// Tries the rules. They count as enforced even if `host.policy.mode` is `report`.
    #[must_use]
    pub fn of(config: &Config, case: &Case) -> Self {
        let mut policy = config.host.policy.clone();
        policy.mode = PolicyMode::Enforce;
        let policy = Arc::new(policy);
        let tool = Described::of(config, case);
        let who = Who::of(case);
        let claims = who.claims(case);
        let request = Facts {
            subject: tool.subject(case),
            action: case.action,
            caller: who.caller(case, claims.as_ref(), config.view_of(case)),
            client: (&case.client.0, case.client.1.as_deref()),
            arguments: case.arguments.as_ref(),
        };
        let settled = Rules::of(&policy, &request.caller).map(|rules| {
            let settled = rules.settle(request.action, &request.subject);
            (rules, settled)
        });
        let hidden = settled.as_ref().is_some_and(|(_, settled)| settled.hidden);
        let verdict = settled.map_or(Ok(Verdict::allow()), |(rules, settled)| rules.judge(&settled, &request));
        let verdict = verdict.map_err(|errors| {
            let first = errors.first().map(|error| format!("{}: {}", error.field, error.error));
            format!("the arguments are refused: {}", first.unwrap_or_default())
        });
        let names = policy.rules.iter().map(|rule| rule.name.clone());
        Self { verdict, hidden, rules: names.zip(judge::explain(&policy, &request)).collect() }
    }
}

/// The caller, as the audit describes it.
struct Who<'a> {
    principal: String,
    client: Option<&'a str>,
    subject: Option<(&'a str, &'a str)>,
}

impl<'a> Who<'a> {
    fn of(case: &'a Case) -> Self {
        match &case.principal {
            Audience::Client(name) => Self { principal: format!("bearer:{name}"), client: Some(name), subject: None },
            Audience::Subject(issuer, subject) => {
                let principal = format!("oauth:{}", serde_json::json!([issuer, subject, null]));
                Self { principal, client: None, subject: Some((issuer, subject)) }
            }
            _ => Self { principal: "local".to_owned(), client: None, subject: None },
        }
    }

    /// Returns the claims of the token, including its issuer and its subject.
    fn claims(&self, case: &Case) -> Option<Map<String, Value>> {
        let mut claims = case.claims.clone();
        if let Some((issuer, subject)) = self.subject {
            let claims = claims.get_or_insert_default();
            claims.entry("iss").or_insert_with(|| issuer.into());
            claims.entry("sub").or_insert_with(|| subject.into());
        }
        claims
    }

    fn caller<'c>(&'c self, case: &'c Case, claims: Option<&'c Map<String, Value>>, view: &'c str) -> Caller<'c> {
        let Self { principal, client, subject } = self;
        Caller { principal, client: *client, subject: *subject, claims, scopes: &case.scopes, view }
    }
}

/// The subject of the request, with what the config says of it.
struct Described<'a> {
    server: &'a str,
    raw: &'a str,
    tags: Vec<String>,
    hints: crate::config::Hints,
}

impl<'a> Described<'a> {
    fn of(config: &'a Config, case: &'a Case) -> Self {
        let exposed = exposed(case);
        let (alias, rest) = config.server_of(case).unwrap_or(("", exposed));
        let server = case.server.as_deref().unwrap_or(alias);
        let raw = case.raw_name.as_deref().unwrap_or(if server == alias { rest } else { exposed });
        let (mut tags, mut hints) = (case.tags.clone(), case.hints);
        if let Some(server) = config.servers.iter().find(|known| known.is_called(server)) {
            let mut settings =
                config.host.views.get(config.view_of(case)).and_then(|view| view.tools.of(exposed)).unwrap_or_default();
            if let Some(weaker) = server.tools.of(raw) {
                settings.lay_over(&weaker);
            }
            tags.extend(settings.tags.into_iter().flatten().chain(server.tags.iter().cloned()));
            settings.annotations.lay_over(&hints);
            hints = settings.annotations;
        }
        Self { server, raw, tags, hints }
    }

    fn subject<'s>(&'s self, case: &'s Case) -> Subject<'s> {
        let kind = match case.target {
            Target::Tool(_) => Kind::Tool,
            Target::Prompt(_) => Kind::Prompt,
            Target::Resource(_) => Kind::Resource,
            _ => Kind::Nothing,
        };
        let Self { server, raw, tags, hints } = self;
        Subject { kind, exposed: exposed(case), raw, server, tags, hints }
    }
}

fn exposed(case: &Case) -> &str {
    match &case.target {
        Target::Tool(name) | Target::Prompt(name) | Target::Resource(name) => name,
        _ => "",
    }
}
