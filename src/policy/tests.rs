//! Which verdict counts, and what is settled before a call.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::judge::explain;
use super::*;
use crate::config::{self, Hints, Syntax, Vars, parse_str};
use crate::protocol::Raw;

const SILENT: Hints =
    Hints { read_only_hint: None, destructive_hint: None, idempotent_hint: None, open_world_hint: None };
const READS: Hints = Hints { read_only_hint: Some(true), ..SILENT };

/// The policy with these members; its views are `all` and `review`, its clients `ci` and `laptop`.
fn policy(members: &str) -> Arc<config::Policy> {
    let hash = "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae";
    let text = format!(
        r#"{{ "mcpServers": {{}}, "host": {{ "views": {{ "review": {{}} }},
        "auth": {{ "type": "bearer", "clients": {{ "ci": "{hash}", "laptop": "{hash}" }} }}, "policy": {{ {members} }} }} }}"#
    )
    .replace(&format!("\"laptop\": \"{hash}\""), "\"laptop\": \"sha256:fcde2b2edba56bf408601fb721fe9b5c338d10ee429ea04fae5511b68fbf8fb9\"");
    let config = parse_str(&text, Syntax::Json, "f.json", &Vars::default()).unwrap_or_else(|error| panic!("{error}"));
    Arc::new(config.host.policy)
}

fn rules(list: &str) -> Arc<config::Policy> {
    policy(&format!(r#""rules": [{list}]"#))
}

fn caller(client: Option<&'static str>, view: &'static str) -> Caller<'static> {
    let principal = match client {
        Some("ci") => "bearer:ci",
        Some(_) => "bearer:laptop",
        None => "local",
    };
    Caller { principal, client, subject: None, claims: None, scopes: &[], view }
}

fn ci() -> Caller<'static> {
    caller(Some("ci"), "all")
}

fn tool<'a>(exposed: &'a str, hints: &'a Hints) -> Subject<'a> {
    let (server, raw) = exposed.split_once("__").unwrap_or(("bare", exposed));
    Subject { kind: Kind::Tool, exposed, raw, server, tags: &[], hints }
}

/// Judges one request. What `settle` decides must never differ from what `judge` decides.
fn judged(
    policy: &Arc<config::Policy>,
    caller: Caller<'_>,
    action: Action,
    subject: Subject<'_>,
    arguments: &str,
) -> Result<Verdict, Vec<String>> {
    let Some(rules) = Rules::of(policy, &caller) else { return Ok(Verdict::allow()) };
    let settled = rules.settle(action, &subject);
    let arguments = Raw::trusted(arguments.to_owned().into());
    let request = Facts { subject, action, caller, client: ("Editor", None), arguments: Some(&arguments) };
    let verdict = rules.judge(&settled, &request);
    if settled.is_settled() {
        let verdict = verdict.clone().unwrap();
        assert_eq!((verdict.decision, verdict.reported.len()), (Decision::Allow, 0));
    }
    if settled.hidden {
        assert_eq!(verdict.clone().unwrap().decision, Decision::Deny);
    }
    verdict.map_err(|errors| errors.into_iter().map(|error| format!("{}: {}", error.field, error.error)).collect())
}

/// The decision about a call of a tool by the client `ci`, and the rule.
fn call(policy: &Arc<config::Policy>, name: &str, arguments: &str) -> (Decision, Option<String>) {
    let verdict = judged(policy, ci(), Action::Call, tool(name, &SILENT), arguments).unwrap();
    (verdict.decision, verdict.rule.map(|rule| rule.to_string()))
}

fn by(rule: &str) -> Option<String> {
    Some(rule.to_owned())
}

#[test]
fn the_strictest_rule_counts_whatever_the_order() {
    let all = [
        r#"{ "name": "a", "verdict": "allow", "tools": ["db__*"] }"#,
        r#"{ "name": "k", "verdict": "ask", "tools": ["db__*"] }"#,
        r#"{ "name": "d", "verdict": "deny", "tools": ["db__drop"] }"#,
    ];
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let list = order.map(|at| all[at]).join(", ");
        for default in ["allow", "ask", "deny"] {
            let policy = policy(&format!(r#""default": "{default}", "rules": [{list}]"#));
            assert_eq!(call(&policy, "db__drop", "{}"), (Decision::Deny, by("d")));
            assert_eq!(call(&policy, "db__read", "{}"), (Decision::Ask, by("k")));
            let verdict = judged(&policy, ci(), Action::Call, tool("x__y", &SILENT), "{}").unwrap();
            let expected = match default {
                "allow" => Decision::Allow,
                "ask" => Decision::Ask,
                _ => Decision::Deny,
            };
            assert_eq!((verdict.decision, verdict.rule), (expected, None));
            assert_eq!(verdict.enforced, default != "allow");
        }
    }
    let policy = policy(&format!(r#""default": "deny", "rules": [{}]"#, all[0]));
    assert_eq!(call(&policy, "db__drop", "{}"), (Decision::Allow, by("a")));
    assert_eq!(call(&policy, "x", "{}"), (Decision::Deny, None));
}

#[test]
fn of_several_rules_that_ask_the_strictest_proof_counts_and_a_yes_is_for_all_of_them() {
    let policy = rules(
        r#"{ "name": "a", "verdict": "ask", "remember": "1h" },
           { "name": "b", "verdict": "ask", "tools": ["db__*"], "remember": "15m", "proof": "person" },
           { "name": "c", "verdict": "ask", "tools": ["db__drop"] }"#,
    );
    let verdict = |name| {
        let verdict = judged(&policy, ci(), Action::Call, tool(name, &SILENT), "{}").unwrap();
        (verdict.rule.unwrap().to_string(), verdict.proof, verdict.remember)
    };
    assert_eq!(verdict("x"), ("a".to_owned(), Proof::Client, Some(Duration::from_secs(3600))));
    assert_eq!(verdict("db__read"), ("a, b".to_owned(), Proof::Person, Some(Duration::from_secs(900))));
    assert_eq!(verdict("db__drop"), ("a, b, c".to_owned(), Proof::Person, None));
}

#[test]
fn all_that_a_rule_names_must_match() {
    let policy = rules(
        r#"{ "name": "r", "verdict": "deny", "tools": ["server:db", "tag:danger"], "clients": ["ci"], "views": ["review"],
             "actions": ["call"], "when": "args.x == 1" }"#,
    );
    let deny = |caller, action, subject, arguments| {
        judged(&policy, caller, action, subject, arguments).unwrap().decision == Decision::Deny
    };
    let there = caller(Some("ci"), "review");
    let tags = ["danger".to_owned()];
    let call = Action::Call;
    assert!(deny(there, call, tool("db__a", &SILENT), r#"{"x":1}"#));
    assert!(!deny(there, call, tool("db__a", &SILENT), r#"{"x":2}"#));
    assert!(!deny(there, call, tool("other__a", &SILENT), r#"{"x":1}"#));
    assert!(deny(there, call, Subject { tags: &tags, ..tool("other__a", &SILENT) }, r#"{"x":1}"#));
    assert!(!deny(caller(Some("ci"), "all"), call, tool("db__a", &SILENT), r#"{"x":1}"#));
    assert!(!deny(caller(Some("laptop"), "review"), call, tool("db__a", &SILENT), r#"{"x":1}"#));
    assert!(!deny(caller(None, "review"), call, tool("db__a", &SILENT), r#"{"x":1}"#));
}

#[test]
fn kinds_and_actions_that_a_rule_does_not_name_are_as_the_paper_says() {
    let prompt = Subject { kind: Kind::Prompt, ..tool("db__p", &SILENT) };
    let resource = Subject {
        kind: Kind::Resource,
        exposed: "file+db:///a",
        raw: "file:///a",
        server: "db",
        tags: &[],
        hints: &SILENT,
    };
    let nothing = Subject { kind: Kind::Nothing, exposed: "", raw: "", server: "db", tags: &[], hints: &SILENT };
    let requests = [
        ("call", Action::Call, tool("db__t", &SILENT)),
        ("get", Action::Get, prompt),
        ("complete", Action::Complete, prompt),
        ("read", Action::Read, resource),
        ("subscribe", Action::Subscribe, resource),
        ("sample", Action::Sample, nothing),
        ("elicit", Action::Elicit, nothing),
        ("roots", Action::Roots, nothing),
    ];
    for (members, denied) in [
        ("", "call get complete read subscribe"),
        (r#", "tools": ["*"]"#, "call"),
        (r#", "prompts": ["db__*"]"#, "get complete"),
        (r#", "resources": ["file:*"]"#, "read subscribe"),
        (r#", "resources": ["file+db:*"]"#, "read subscribe"),
        (r#", "tools": ["server:db"], "prompts": ["x"], "resources": ["*"]"#, "call read subscribe"),
        (r#", "actions": ["get", "sample"]"#, "get sample"),
        (r#", "actions": ["elicit", "roots", "sample"], "tools": ["server:db"]"#, "sample elicit roots"),
        (r#", "actions": ["elicit", "sample"], "tools": ["server:web"]"#, ""),
        (r#", "actions": ["elicit", "sample"], "unless": { "tools": ["server:db"] }"#, ""),
        (r#", "actions": ["elicit", "call"], "unless": { "actions": ["call"] }"#, "elicit"),
    ] {
        let policy = rules(&format!(r#"{{ "name": "r", "verdict": "deny"{members} }}"#));
        let denies = |(_, action, subject): &(&str, Action, Subject<'_>)| {
            judged(&policy, ci(), *action, *subject, "{}").unwrap().decision == Decision::Deny
        };
        let found: Vec<&str> = requests.iter().filter(|request| denies(request)).map(|(word, ..)| *word).collect();
        assert_eq!(found.join(" "), denied, "{members}");
    }
}

#[test]
fn who_is_meant() {
    let claims: Map<String, Value> = json!({ "groups": ["dev"], "team": "blue" }).as_object().unwrap().clone();
    let scopes = ["mcp.read".to_owned()];
    let someone = Caller {
        principal: "oauth:x",
        client: None,
        subject: Some(("https://a.example", "u1")),
        claims: Some(&claims),
        scopes: &scopes,
        view: "all",
    };
    for (word, means) in [
        ("claim:groups=dev", true),
        ("claim:groups=ops", false),
        ("claim:team=blue", true),
        ("claim:none=blue", false),
        ("scope:mcp.read", true),
        ("scope:mcp", false),
        ("https://a.example#u1", true),
        ("https://a.example#u2", false),
        ("local", false),
        ("ci", false),
    ] {
        let policy = rules(&format!(r#"{{ "name": "r", "verdict": "deny", "principals": ["{word}"] }}"#));
        assert_eq!(Rules::of(&policy, &someone).is_some(), means, "{word}");
    }
    let policy = rules(r#"{ "name": "r", "verdict": "deny", "principals": ["local", "ci"] }"#);
    assert!(Rules::of(&policy, &caller(None, "all")).is_some() && Rules::of(&policy, &ci()).is_some());
    assert!(Rules::of(&policy, &caller(Some("laptop"), "all")).is_none());
}

#[test]
fn callers_for_whom_the_same_rules_can_match_are_equal() {
    let policy = rules(
        r#"{ "name": "all", "verdict": "deny", "tools": ["x"] }, { "name": "ci", "verdict": "deny", "clients": ["ci"], "tools": ["y"] },
           { "name": "not", "verdict": "ask", "unless": { "clients": ["ci"] } },
           { "name": "reads", "verdict": "ask", "unless": { "views": ["review"], "tools": ["hint:read-only"] } }"#,
    );
    let of = |client, view| Rules::of(&policy, &caller(client, view)).unwrap();
    assert_eq!(of(Some("laptop"), "all"), of(None, "all"));
    assert_ne!(of(Some("ci"), "all"), of(None, "all"));
    assert_ne!(of(None, "review"), of(None, "all"), "`unless` means one of them");
    assert!(of(Some("ci"), "all").live.len() == 3);
    let none =
        rules(r#"{ "name": "a", "verdict": "allow" }, { "name": "b", "verdict": "deny", "clients": ["laptop"] }"#);
    assert!(Rules::of(&none, &ci()).is_none() && Rules::of(&rules(""), &ci()).is_none());
}

#[test]
fn a_condition_about_the_caller_alone_rules_out_a_rule_before_any_request() {
    let live = |when: &str| {
        let policy = rules(&format!(r#"{{ "name": "r", "verdict": "deny", "when": "{when}" }}"#));
        Rules::of(&policy, &caller(Some("laptop"), "review")).is_some()
    };
    for never in ["view == 'all'", "principal == 'somebody'", "[1, 2].all(x, x > 1 && view == 'review')", "false"] {
        assert!(!live(never), "{never}");
    }
    // Conditions that are true, that fail, and that may depend on the request.
    for maybe in
        ["view == 'review'", "claims.team == 'db'", "view == 'all' && args.x == 1", "tool == 'x' || view == ''"]
    {
        assert!(live(maybe), "{maybe}");
    }
}

#[test]
fn a_condition_that_fails_matches_what_denies_and_asks_and_nothing_else() {
    let of = |verdict: &str, rest: &str| {
        policy(&format!(r#""default": "deny", "rules": [{{ "name": "r", "verdict": "{verdict}"{rest} }}]"#))
    };
    let when = r#", "when": "args.x == 1""#;
    assert_eq!(call(&of("ask", when), "t", "{}"), (Decision::Ask, by("r")));
    assert_eq!(call(&of("allow", when), "t", "{}"), (Decision::Deny, None));
    assert_eq!(call(&of("allow", when), "t", r#"{"x":1}"#), (Decision::Allow, by("r")));
    // The same for `unless`: one that fails excepts nothing from a deny or an ask, and everything from an allow.
    let unless = r#", "unless": { "when": "args.x == 1" }"#;
    assert_eq!(call(&of("ask", unless), "t", "{}"), (Decision::Ask, by("r")));
    assert_eq!(call(&of("ask", unless), "t", r#"{"x":1}"#), (Decision::Deny, None));
    assert_eq!(call(&of("allow", unless), "t", "{}"), (Decision::Deny, None));
    assert_eq!(call(&of("allow", unless), "t", r#"{"x":2}"#), (Decision::Allow, by("r")));
    // Arguments that are too large, or no object.
    let large = format!(r#"{{"x":"{}"}}"#, "a".repeat(256 * 1024));
    for arguments in [large.as_str(), "[]", "1"] {
        assert_eq!(call(&of("ask", r#", "when": "has(args.none)""#), "t", arguments), (Decision::Ask, by("r")));
    }
}

#[test]
fn what_is_always_denied_is_hidden_and_what_is_settled_is_not_judged() {
    let policy = rules(
        r#"{ "name": "hidden", "verdict": "deny", "tools": ["db__*"] },
           { "name": "shown", "verdict": "deny", "tools": ["web__*"], "hide": false },
           { "name": "when", "verdict": "deny", "tools": ["git__*"], "when": "args.x == 1" },
           { "name": "ask", "verdict": "ask", "tools": ["mail__*"] },
           { "name": "tried", "verdict": "deny", "tools": ["try__*"], "report": true },
           { "name": "but", "verdict": "deny", "tools": ["but__*"], "unless": { "when": "name == 'a'" } },
           { "name": "reads", "verdict": "deny", "tools": ["file__*"], "unless": { "tools": ["hint:read-only"] } }"#,
    );
    let rules = Rules::of(&policy, &ci()).unwrap();
    let settled = |name: &str, hints: &Hints| rules.settle(Action::Call, &tool(name, hints));
    for (name, hints, hidden, is_settled, rest) in [
        ("db__a", &SILENT, true, false, 0),
        ("web__a", &SILENT, false, false, 0),
        ("git__a", &SILENT, false, false, 1),
        ("mail__a", &SILENT, false, false, 0),
        ("try__a", &SILENT, false, false, 0),
        ("but__a", &SILENT, false, false, 1),
        ("file__a", &SILENT, true, false, 0),
        ("file__a", &READS, false, true, 0),
        ("other__a", &SILENT, false, true, 0),
    ] {
        let settled = settled(name, hints);
        assert_eq!((settled.hidden, settled.is_settled(), settled.rest.len()), (hidden, is_settled, rest), "{name}");
    }
    assert!(rules.may_refuse_unlisted());
    let by_default =
        policy_of("deny", r#"{ "name": "a", "verdict": "allow", "tools": ["db__*"], "when": "args.x == 1" }"#);
    let rules = Rules::of(&by_default, &ci()).unwrap();
    assert!(rules.settle(Action::Call, &tool("web__a", &SILENT)).hidden);
    assert!(!rules.settle(Action::Call, &tool("db__a", &SILENT)).hidden, "it may be allowed");
    assert!(rules.may_refuse_unlisted());
}

fn policy_of(default: &str, list: &str) -> Arc<config::Policy> {
    policy(&format!(r#""default": "{default}", "rules": [{list}]"#))
}

#[test]
fn what_is_only_reported_refuses_nothing() {
    let list = r#"{ "name": "a", "verdict": "deny", "tools": ["db__*"] }, { "name": "b", "verdict": "ask", "when": "args.x == 1" }"#;
    let reported = |policy: &Arc<config::Policy>, name: &str, arguments: &str| {
        let verdict = judged(policy, ci(), Action::Call, tool(name, &SILENT), arguments).unwrap();
        assert_eq!((verdict.decision, verdict.rule, verdict.enforced), (Decision::Allow, None, false));
        verdict.reported.iter().map(|(decision, rule)| format!("{decision:?} {rule}")).collect::<Vec<_>>()
    };
    let policy = policy(&format!(r#""mode": "report", "default": "deny", "rules": [{list}]"#));
    assert_eq!(reported(&policy, "db__a", r#"{"x":1}"#), ["Deny a", "Ask b"]);
    assert_eq!(reported(&policy, "web__a", r#"{"x":2}"#), ["Deny default"]);
    // The arguments are ambiguous, and still nothing is refused.
    assert_eq!(reported(&policy, "web__a", r#"{"x":2,"x":3}"#), ["Ask b"]);
    let rules = Rules::of(&policy, &ci()).unwrap();
    assert!(!rules.may_refuse_unlisted() && !rules.settle(Action::Call, &tool("db__a", &SILENT)).hidden);
    let one = policy_of(
        "allow",
        r#"{ "name": "a", "verdict": "deny", "tools": ["db__*"], "report": true }, { "name": "b", "verdict": "ask", "tools": ["db__b"] }"#,
    );
    assert_eq!(reported(&one, "db__a", "{}"), ["Deny a"]);
    let verdict = judged(&one, ci(), Action::Call, tool("db__b", &SILENT), "{}").unwrap();
    assert_eq!((verdict.decision, verdict.reported.len()), (Decision::Ask, 1));
}

#[test]
fn h37_arguments_that_readers_may_take_differently_are_refused_where_a_rule_reads_them() {
    let policy = rules(
        r#"{ "name": "prod", "verdict": "deny", "tools": ["db__*"], "when": "has(args.database) && args.database == 'prod'" },
           { "name": "deep", "verdict": "deny", "tools": ["k8s__*"], "when": "has(args.options) && args.options.env == 'prod'" },
           { "name": "whole", "verdict": "deny", "tools": ["web__*"], "when": "args.exists(k, k == 'x')" }"#,
    );
    let judge = |name: &str, arguments: &str| judged(&policy, ci(), Action::Call, tool(name, &SILENT), arguments);
    for (name, arguments, field) in [
        ("db__a", r#"{"database":"dev","database":"prod"}"#, "/database"),
        ("db__a", r#"{"database":"dev","d\u0061tabase":"prod"}"#, "/database"),
        ("db__a", r#"{"other":1,"other":2}"#, "/other"),
        ("db__a", r#"{"Database":"prod"}"#, "/Database"),
        ("db__a", "{\"databa\u{17f}e\":\"prod\"}", "/databa\u{17f}e"),
        ("db__a", r#"{"database":{"a":1,"a":2}}"#, "/database/a"),
        ("k8s__a", r#"{"options":{"env":"dev","Env":"prod"}}"#, "/options/Env"),
        ("k8s__a", r#"{"options":{"env":"dev","env":"prod"}}"#, "/options/env"),
        ("web__a", r#"{"y":[{"z":1,"z":2}]}"#, "/y/0/z"),
    ] {
        let errors = judge(name, arguments).expect_err(arguments);
        assert!(errors[0].starts_with(&format!("{field}: ")) && !errors[0].contains("prod"), "{errors:?}");
    }
    for (name, arguments) in [
        ("db__a", r#"{"database":"dev","other":{"a":1,"a":2}}"#),
        ("other__a", r#"{"database":"dev","database":"prod"}"#),
        ("db__a", "{}"),
    ] {
        assert_eq!(judge(name, arguments).unwrap().decision, Decision::Allow, "{arguments}");
    }
}

#[test]
fn a_program_adds_one_more_rule() {
    struct Own(Verdict);
    impl Policy for Own {
        fn judge(&self, call: &CallFacts<'_>) -> Verdict {
            assert_eq!((call.tool(), call.name(), call.server(), call.action()), ("db__a", "a", "db", Action::Call));
            assert_eq!((call.principal(), call.view(), call.client_name()), ("bearer:ci", "all", "Editor"));
            assert_eq!(call.arguments().map(Raw::as_str), Some("{}"));
            self.0.clone()
        }
    }
    let arguments = Raw::empty_object();
    let subject = tool("db__a", &SILENT);
    let request =
        Facts { subject, action: Action::Call, caller: ci(), client: ("Editor", None), arguments: Some(&arguments) };
    let asks = rules(r#"{ "name": "ours", "verdict": "ask", "remember": "1m" }"#);
    let none = Arc::new(config::Policy::default());
    let judge = |verdict, with: bool| {
        let program: Arc<dyn Policy> = Arc::new(Own(verdict));
        let force = InForce::of(if with { &asks } else { &none }, Some(&program), &ci()).unwrap();
        let verdict = force.about(Action::Call, &subject).unwrap().judge(&request).unwrap();
        (verdict.decision, verdict.rule.map(|rule| rule.to_string()))
    };
    assert_eq!(judge(Verdict::allow(), false), (Decision::Allow, None));
    assert_eq!(judge(Verdict::allow(), true), (Decision::Ask, by("ours")));
    assert_eq!(judge(Verdict::ask("own"), true), (Decision::Ask, by("ours, own")));
    assert_eq!(judge(Verdict::deny("own"), true), (Decision::Deny, by("own")));
    assert_eq!(judge(Verdict::ask("own"), false), (Decision::Ask, by("own")));
}

/// Rules over two servers, a hint, and one argument.
fn some_rules() -> impl Strategy<Value = String> {
    let verdict = prop::sample::select(vec!["allow", "ask", "deny"]);
    let members = prop::sample::subsequence(
        vec![
            r#""tools": ["db__*"]"#,
            r#""views": ["review"]"#,
            r#""clients": ["ci"]"#,
            r#""when": "args.x == 1""#,
            r#""report": true"#,
            r#""unless": { "tools": ["hint:read-only"] }"#,
        ],
        0..4,
    );
    let other = prop::sample::subsequence(
        vec![r#""prompts": ["*"]"#, r#""actions": ["call", "get"]"#, r#""resources": ["*"]"#],
        0..2,
    );
    prop::collection::vec((verdict, members, other), 0..6).prop_map(|rules| {
        let rule = |(at, (verdict, members, other)): (usize, (&str, Vec<&str>, Vec<&str>))| {
            let head = vec![format!(r#""name": "r{at}", "verdict": "{verdict}""#)];
            let rest = members.into_iter().chain(other).map(str::to_owned);
            format!("{{ {} }}", head.into_iter().chain(rest).collect::<Vec<_>>().join(", "))
        };
        rules.into_iter().enumerate().map(rule).collect::<Vec<_>>().join(", ")
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Settling rules first, and for one caller, changes no verdict: it is the strictest of the rules that match one by
    /// one.
    #[test]
    fn settling_changes_no_verdict(
        list in some_rules(),
        default in prop::sample::select(vec!["allow", "ask", "deny"]),
        (client, view) in (prop::sample::select(vec![Some("ci"), None]), prop::sample::select(vec!["all", "review"])),
        (name, reads) in (prop::sample::select(vec!["db__a", "web__a"]), any::<bool>()),
        (arguments, is_prompt) in (prop::sample::select(vec!["{}", r#"{"x":1}"#, r#"{"x":2}"#, "[]"]), any::<bool>()),
    ) {
        let policy = policy_of(default, &list);
        let caller = caller(client, view);
        let subject = tool(name, if reads { &READS } else { &SILENT });
        let (action, kind) = if is_prompt { (Action::Get, Kind::Prompt) } else { (Action::Call, Kind::Tool) };
        let subject = Subject { kind, ..subject };
        let verdict = judged(&policy, caller, action, subject, arguments).unwrap();
        let raw = Raw::trusted(arguments.to_owned().into());
        let request = Facts { subject, action, caller, client: ("Editor", None), arguments: Some(&raw) };
        let explained = explain(&policy, &request);
        let matching = || policy.rules.iter().zip(&explained).filter(|(_, why)| why.is_ok()).map(|(rule, _)| rule);
        let strictest = matching().filter(|rule| !rule.report).map(|rule| rule.verdict).max().unwrap_or(policy.default);
        prop_assert_eq!(verdict.decision, strictest, "{}", list);
        let reported = matching().filter(|rule| rule.report).count();
        prop_assert_eq!(verdict.reported.len(), reported);
    }
}
