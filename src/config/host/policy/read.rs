//! Reads `host.policy`.
//!
//! In: the object, whose `rules` are those of all files together. Out: [`Policy`]. **Invariant:** a misspelled key or
//! word anywhere is an error: a rule that matches less than the user means would leave something open that they believe
//! closed.

use std::collections::BTreeMap;

use super::super::{Audience, HostAuth, HostSettings};
use super::{Decision, Matcher, Policy, Rule};
use crate::config::fields::{Field, Fields, refuse_rest};
use crate::config::report::Report;
use crate::config::selector::{self, Selector};
use crate::config::syntax::{Origin, Value};
use crate::expression::Expression;

/// The keys of the policy.
const KEYS: [&str; 4] = ["default", "mode", "proof", "rules"];
/// The keys of what a rule matches.
const MATCHES: [&str; 8] = ["actions", "clients", "principals", "prompts", "resources", "tools", "views", "when"];
/// The keys of a rule.
const RULE: [&str; 15] = [
    "name",
    "verdict",
    "hide",
    "report",
    "remember",
    "proof",
    "unless",
    "actions",
    "clients",
    "principals",
    "prompts",
    "resources",
    "tools",
    "views",
    "when",
];
/// The word for callers who do not prove who they are.
const LOCAL: &str = "local";

/// Reads the policy. Limits, clients and views must have been read before.
pub(in crate::config::host) fn fill(settings: &mut HostSettings, fields: &mut Fields<'_>, report: &mut Report) {
    let Some(field) = fields.take(&["policy"], report) else { return };
    let Some(mut fields) = field.fields(report) else { return };
    let mut policy = Policy::default();
    if let Some(mode) = fields.take(&["mode"], report).and_then(|field| field.word(report)) {
        policy.mode = mode;
    }
    if let Some(default) = fields.take(&["default"], report).and_then(|field| field.word(report)) {
        policy.default = default;
    }
    if let Some(proof) = fields.take(&["proof"], report).and_then(|field| field.word(report)) {
        policy.proof = proof;
    }
    if let Some(field) = fields.take(&["rules"], report) {
        policy.rules = rules(&field, settings, report);
    }
    refuse_rest(fields, &KEYS, report);
    settings.policy = policy;
}

fn rules(field: &Field<'_>, settings: &HostSettings, report: &mut Report) -> Vec<Rule> {
    let items = field.items(report);
    let most = settings.limits.rules;
    if items.len() > most {
        let message = format!("{} rules; {most} at most (host.limits.rules)", items.len());
        report.problem(field.at, &field.path, message);
        return Vec::new();
    }
    let mut rules: Vec<Rule> = Vec::with_capacity(items.len());
    let mut named: BTreeMap<String, String> = BTreeMap::new();
    for item in &items {
        let Some(rule) = rule(item, settings, report) else { continue };
        if let Some(first) = named.get(&rule.name) {
            let message = format!("another rule is called {:?}, too: {first}", rule.name);
            report
                .problem(item.at, &item.path, message)
                .help("give each rule a name of its own, in all files together");
        }
        named.entry(rule.name.clone()).or_insert_with(|| item.path.clone());
        rules.push(rule);
    }
    rules
}

/// Reports whether a rule may have this name.
fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=64).contains(&name.len())
        && name.bytes().next().is_some_and(plain)
        && name.bytes().all(|byte| plain(byte) || byte == b'-')
}

fn rule(item: &Field<'_>, settings: &HostSettings, report: &mut Report) -> Option<Rule> {
    let mut fields = item.fields(report)?;
    let name = fields.take(&["name"], report);
    if name.is_none() {
        let problem = report.problem(item.at, &item.path, "a rule needs a name");
        problem.help("add `name`, by which the audit and the answers refer to the rule: \"name\": \"no-prod\"");
    }
    let name = name.and_then(|field| {
        let name = field.text(report)?;
        if !is_name(name) {
            let problem = report.problem(field.at, &field.path, "a rule cannot be called that");
            problem.help("use up to 64 lower-case letters, digits and -, with a letter or digit first");
        }
        Some(name.to_owned())
    });
    let verdict = fields.take(&["verdict"], report);
    if verdict.is_none() {
        report.problem(item.at, &item.path, "a rule needs a verdict").help("add `verdict`: allow, ask, or deny");
    }
    let verdict = verdict.and_then(|field| field.word::<Decision>(report));
    let hide = fields.take(&["hide"], report);
    let only_report = fields.take(&["report"], report).and_then(|field| field.flag(report));
    let remember = fields.take(&["remember"], report);
    let proof = fields.take(&["proof"], report);
    let matches = matcher(&mut fields, settings, report);
    let unless = fields.take(&["unless"], report).and_then(|field| {
        let mut fields = field.fields(report)?;
        let matcher = matcher(&mut fields, settings, report);
        refuse_rest(fields, &MATCHES, report);
        if matcher == Matcher::default() {
            let problem = report.problem(field.at, &field.path, "everything is excepted");
            problem.help("name what the rule does not match, or remove `unless`");
        }
        Some(matcher)
    });
    for (field, wanted) in [(&remember, Decision::Ask), (&proof, Decision::Ask), (&hide, Decision::Deny)] {
        if let Some(field) = field
            && verdict.is_some_and(|verdict| verdict != wanted)
        {
            let word = if wanted == Decision::Ask { "asks" } else { "denies" };
            let problem = report.problem(field.at, &field.path, format!("only a rule that {word} has this key"));
            problem.help("remove it, or change `verdict`");
        }
    }
    if !names_servers_alone(&matches) {
        let problem = report.problem(item.at, &item.path, "a rule about what servers ask names servers only");
        problem.help("write \"tools\": [\"server:ALIAS\"], or no tools; what clients ask for needs a rule of its own");
    }
    refuse_rest(fields, &RULE, report);
    Some(Rule {
        name: name?,
        verdict: verdict?,
        hide: hide.and_then(|field| field.flag(report)).unwrap_or(true),
        report: only_report.unwrap_or_default(),
        remember: remember.and_then(|field| field.positive_time(report)),
        proof: proof.and_then(|field| field.word(report)),
        matches,
        unless,
    })
}

/// Reports whether a rule about requests of servers selects by server only. Nothing else applies to such requests.
fn names_servers_alone(matches: &Matcher) -> bool {
    let Matcher { tools, prompts, resources, actions, .. } = matches;
    let is_theirs = actions.iter().flatten().any(|action| action.is_servers());
    let only_servers = tools.iter().flatten().all(|tool| matches!(tool, Selector::Server(_)));
    !is_theirs || only_servers && prompts.is_none() && resources.is_none()
}

/// Reads what a rule, or its `unless`, matches.
fn matcher(fields: &mut Fields<'_>, settings: &HostSettings, report: &mut Report) -> Matcher {
    let mut take = |key: &str| fields.take(&[key], report);
    let (tools, prompts, resources) = (take("tools"), take("prompts"), take("resources"));
    let (actions, principals, clients) = (take("actions"), take("principals"), take("clients"));
    let (views, when) = (take("views"), take("when"));
    for field in [&tools, &prompts, &resources, &actions, &principals, &clients, &views].into_iter().flatten() {
        if matches!(&field.node.value, Value::List(items) if items.is_empty()) {
            let problem = report.problem(field.at, &field.path, "an empty list matches nothing");
            problem.help("name what the rule matches, or remove the key: without it everything matches");
        }
    }
    Matcher {
        tools: tools.map(|field| selector::read(&field, report)),
        prompts: prompts.map(|field| field.texts(report)),
        resources: resources.map(|field| field.texts(report)),
        actions: actions.map(|field| field.items(report).iter().filter_map(|item| item.word(report)).collect()),
        principals: principals.map(|field| audience(&field, settings, report)),
        clients: clients.map(|field| known_clients(&field, settings, report)),
        views: views.map(|field| known_views(&field, settings, report)),
        when: when.and_then(|field| expression(&field, report)),
    }
}

fn known_clients(field: &Field<'_>, settings: &HostSettings, report: &mut Report) -> Vec<String> {
    let names = field.texts(report);
    let HostAuth::Bearer(clients) = &settings.auth else {
        untold(field, settings, report);
        return names;
    };
    for item in field.items(report) {
        if let Some(name) = item.node.text()
            && !clients.iter().any(|client| client.name == name)
        {
            let message = format!("there is no client {}", item.quote(name));
            let known: Vec<&str> = clients.iter().map(|client| client.name.as_str()).collect();
            let help = format!("the clients of `host.auth.clients` are {}", known.join(", "));
            report.problem(item.at, &item.path, message).help(help);
        }
    }
    names
}

/// Adds a note if a rule names clients that nothing distinguishes.
fn untold(field: &Field<'_>, settings: &HostSettings, report: &mut Report) {
    let (message, help) = match settings.auth {
        HostAuth::None => (
            "nothing tells clients apart, so this matches none of them",
            "give clients tokens (`mcp-host token NAME`), or set `views`",
        ),
        _ => (
            "clients have no names of `host.auth.clients` here, so this matches none of them",
            "write `principals`: ISSUER#SUBJECT, claim:NAME=VALUE, or scope:SCOPE",
        ),
    };
    report.note(field.at, &field.path, message).help(help);
}

fn known_views(field: &Field<'_>, settings: &HostSettings, report: &mut Report) -> Vec<String> {
    for item in field.items(report) {
        if let Some(name) = item.node.text()
            && !settings.has_view(name)
        {
            let message = format!("there is no view {}", item.quote(name));
            report.problem(item.at, &item.path, message).help(super::super::views::known(&settings.views));
        }
    }
    field.texts(report)
}

fn audience(field: &Field<'_>, settings: &HostSettings, report: &mut Report) -> Vec<Audience> {
    let mut audience = Vec::new();
    for item in field.items(report) {
        let Some(text) = item.text(report) else { continue };
        match if text == LOCAL { Some(Audience::Local) } else { Audience::parse(text) } {
            Some(one) => audience.push(one),
            None => {
                let problem = report.problem(item.at, &item.path, format!("{} means nobody", item.quote(text)));
                problem.help("write local, the name of a client, ISSUER#SUBJECT, claim:NAME=VALUE, or scope:SCOPE");
            }
        }
    }
    if settings.auth == HostAuth::None && audience.iter().any(|one| *one != Audience::Local) {
        let note = report.note(field.at, &field.path, "nothing tells clients apart: all of them are `local`");
        note.help("give clients tokens (`mcp-host token NAME`), or use `views`");
    }
    if let HostAuth::Bearer(clients) = &settings.auth {
        for one in &audience {
            if let Audience::Client(name) = one
                && !clients.iter().any(|client| client.name == *name)
            {
                let problem = report.problem(field.at, &field.path, format!("there is no client {name:?}"));
                problem.help("add it to `host.auth.clients` (`mcp-host token NAME`)");
            }
        }
    }
    audience
}

fn expression(field: &Field<'_>, report: &mut Report) -> Option<Expression> {
    const HELP: &str = "write CEL, as in \"has(args.path) && args.path.startsWith('/etc/')\"";
    let text = field.text(report)?;
    if field.node.origin != Origin::Literal {
        let problem = report.problem(field.at, &field.path, "no variable can stand in an expression");
        problem.help("write the value itself");
        return None;
    }
    match Expression::parse(text) {
        Ok(expression) => Some(expression),
        Err(error) => {
            report.problem(field.at, &field.path, error).help(HELP);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Action, PolicyMode, Proof};
    use super::*;
    use crate::config::{Config, Error, LoadRequest, Syntax, Vars, load, parse_str};

    const TOKEN: &str = "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae";

    fn read(host: &str) -> Result<Config, Error> {
        let text = format!("{{ \"mcpServers\": {{}},\n\"host\": {host} }}");
        parse_str(&text, Syntax::Json, "f.json", &Vars::from_iter([("X", "the-canary")]))
    }

    #[test]
    fn limit_rules() {
        let rules = |count: usize| {
            let rule = |number| format!(r#"{{ "name": "r{number}", "verdict": "deny" }}"#);
            let rules: Vec<String> = (0..count).map(rule).collect();
            let policy = format!(r#"{{ "rules": [{}] }}"#, rules.join(", "));
            read(&format!(r#"{{ "limits": {{ "rules": 3 }}, "policy": {policy} }}"#))
        };
        assert_eq!(rules(3).unwrap().host.policy.rules.len(), 3);
        let error = rules(4).unwrap_err().to_string();
        assert_eq!(error, "f.json:2: host.policy.rules: 4 rules; 3 at most (host.limits.rules)");
        assert_eq!(HostSettings::default().limits.rules, 1000);
    }

    #[test]
    fn nothing_said_means_that_everything_is_allowed() {
        let policy = read("{}").unwrap().host.policy;
        assert_eq!(policy, Policy::default());
        assert_eq!((policy.mode, policy.default, policy.proof), (PolicyMode::Enforce, Decision::Allow, Proof::Client));
        assert!(Decision::Deny > Decision::Ask && Decision::Ask > Decision::Allow);
    }

    #[test]
    fn a_rule_is_read_as_it_is_written() {
        let config = read(&format!(
            r#"{{ "auth": {{ "type": "bearer", "clients": {{ "ci": {{ "hash": "{TOKEN}" }} }} }}, "views": {{ "review": {{}} }},
            "policy": {{ "mode": "report", "default": "ask", "proof": "person", "rules": [
              {{ "name": "no-prod", "verdict": "deny", "hide": false, "report": true, "tools": ["server:db", "tag:x"],
                 "prompts": ["p*"], "resources": ["file:*"], "actions": ["call", "subscribe"], "views": ["review", "all"],
                 "principals": ["local", "ci", "scope:x"] }},
              {{ "name": "writes", "verdict": "ask", "tools": ["hint:not-read-only"], "unless": {{ "clients": ["ci"] }},
                 "remember": "15m", "proof": "client" }} ] }} }}"#
        ))
        .unwrap();
        assert_eq!(config.notes, []);
        let policy = config.host.policy;
        assert_eq!((policy.mode, policy.default, policy.proof), (PolicyMode::Report, Decision::Ask, Proof::Person));
        let [prod, writes] = &*policy.rules else { panic!("{policy:?}") };
        assert_eq!(
            (prod.name.as_str(), prod.verdict, prod.hide, prod.report),
            ("no-prod", Decision::Deny, false, true)
        );
        let audience = vec![Audience::Local, Audience::Client("ci".to_owned()), Audience::Scope("x".to_owned())];
        assert_eq!(prod.matches.principals, Some(audience));
        assert_eq!(prod.matches.actions, Some(vec![Action::Call, Action::Subscribe]));
        assert_eq!(prod.matches.tools.as_ref().map(Vec::len), Some(2));
        assert_eq!((writes.remember, writes.proof), (Some(Duration::from_secs(900)), Some(Proof::Client)));
        let unless = writes.unless.as_ref().and_then(|unless| unless.clients.clone());
        assert_eq!(unless, Some(vec!["ci".to_owned()]));
    }

    #[test]
    fn mistakes_are_told_with_what_to_write() {
        let error = read(&format!(
            r#"{{ "auth": {{ "type": "bearer", "clients": {{ "ci": {{ "hash": "{TOKEN}" }} }} }}, "policy": {{ "modes": "report", "default": "block", "rules": [
            {{ "name": "No", "verdict": "denied", "tool": [] }},
            {{ "verdict": "deny", "tools": ["hint:bad"], "actions": ["run"] }},
            {{ "name": "a", "unless": {{}} }},
            {{ "name": "a", "verdict": "allow", "remember": "1m", "proof": "person", "hide": true, "unless": {{ "servers": [] }} }},
            {{ "name": "b", "verdict": "deny", "clients": ["laptop"], "views": ["review"], "principals": ["a b", "laptop"] }},
            {{ "name": "b", "verdict": "deny", "tools": [] }} ] }} }}"#
        ))
        .unwrap_err();
        insta::assert_snapshot!(error, @r#"
        f.json:2: host.policy.default: "block" is not one of allow, ask, deny
        f.json:2: host.policy.modes: unknown key
        f.json:3: host.policy.rules[0].name: a rule cannot be called that
        f.json:3: host.policy.rules[0].verdict: "denied" is not one of allow, ask, deny
        f.json:3: host.policy.rules[0].tool: unknown key
        f.json:4: host.policy.rules[1]: a rule needs a name
        f.json:4: host.policy.rules[1].tools[0]: "hint:bad" is no selector
        f.json:4: host.policy.rules[1].actions[0]: "run" is not one of call, get, read, subscribe, complete, sample, elicit, roots
        f.json:5: host.policy.rules[2]: a rule needs a verdict
        f.json:5: host.policy.rules[2].unless: everything is excepted
        f.json:6: host.policy.rules[3].unless.servers: unknown key
        f.json:6: host.policy.rules[3].unless: everything is excepted
        f.json:6: host.policy.rules[3].remember: only a rule that asks has this key
        f.json:6: host.policy.rules[3].proof: only a rule that asks has this key
        f.json:6: host.policy.rules[3].hide: only a rule that denies has this key
        f.json:7: host.policy.rules[4].principals[0]: "a b" means nobody
        f.json:7: host.policy.rules[4].principals: there is no client "laptop"
        f.json:7: host.policy.rules[4].clients[0]: there is no client "laptop"
        f.json:7: host.policy.rules[4].views[0]: there is no view "review"
        f.json:8: host.policy.rules[5].tools: an empty list matches nothing
        f.json:8: host.policy.rules[5]: another rule is called "b", too: host.policy.rules[4]
        "#);
    }

    #[cfg(feature = "policy")]
    #[test]
    fn a_condition_that_is_none_is_told_with_what_is_wrong() {
        let error = read(
            r#"{ "policy": { "rules": [
            { "name": "a", "verdict": "deny", "when": "args.x = 1" },
            { "name": "b", "verdict": "deny", "when": "argz.x == 1" },
            { "name": "c", "verdict": "deny", "when": "matches(args.x, 'a')" },
            { "name": "d", "verdict": "deny", "when": "args.x == '${X}'" },
            { "name": "e", "verdict": "deny", "when": 5 } ] } }"#,
        )
        .unwrap_err();
        insta::assert_snapshot!(error, @"
        f.json:3: host.policy.rules[0].when: column 8: unexpected '=' expecting the end
        f.json:4: host.policy.rules[1].when: unknown name `argz`; the names are principal, claims, client, view, server, tool, name, tags, hints, args
        f.json:5: host.policy.rules[2].when: there are no regular expressions, and no function `matches`; the functions are size, startsWith, endsWith, contains, lowerAscii, upperAscii, string, int, double, and has, all, exists, exists_one, map, filter
        f.json:6: host.policy.rules[3].when: no variable can stand in an expression
        f.json:7: host.policy.rules[4].when: expected a string, found a number
        ");
        assert!(!format!("{error:?}").contains("canary"));
    }

    #[test]
    fn rules_for_clients_that_nothing_tells_apart_are_noted() {
        let config = read(
            r#"{ "policy": { "rules": [
            { "name": "a", "verdict": "deny", "clients": ["laptop"] },
            { "name": "b", "verdict": "deny", "principals": ["local"] },
            { "name": "c", "verdict": "deny", "principals": ["claim:groups=dev"] } ] } }"#,
        );
        let notes: Vec<String> = config.unwrap().notes.iter().map(ToString::to_string).collect();
        insta::assert_snapshot!(notes.join("\n"), @"
            f.json:3: host.policy.rules[0].clients: nothing tells clients apart, so this matches none of them
            f.json:5: host.policy.rules[2].principals: nothing tells clients apart: all of them are `local`
            ");
    }

    #[test]
    fn rules_of_several_files_add_up() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, policy: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, format!(r#"{{ "mcpServers": {{}}, "host": {{ "policy": {policy} }} }}"#)).unwrap();
            path
        };
        let first = file("a.json", r#"{ "default": "ask", "rules": [{ "name": "one", "verdict": "deny" }] }"#);
        let second = file("b.json", r#"{ "default": "deny", "rules": [{ "name": "two", "verdict": "ask" }] }"#);
        let third = file("c.json", r#"{ "rules": [{ "name": "one", "verdict": "allow" }] }"#);
        let load = |files: &[&std::path::PathBuf]| {
            load(&LoadRequest { files: files.iter().map(|path| (*path).clone()).collect(), ..LoadRequest::default() })
        };
        let policy = load(&[&first, &second]).unwrap().host.policy;
        let names: Vec<&str> = policy.rules.iter().map(|rule| rule.name.as_str()).collect();
        assert_eq!((policy.default, names), (Decision::Deny, vec!["one", "two"]));
        let error = load(&[&first, &third]).unwrap_err().to_string();
        assert!(error.contains("c.json:1: host.policy.rules[1]: another rule is called \"one\", too"), "{error}");
    }
}
