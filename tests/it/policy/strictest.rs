//! Pairs of rules about one call: the strictest verdict of those that count decides what reaches the server.

use serde_json::{Value, json};

use super::{Shop, call, config, denied, open};
use crate::views::clients::{Client, Transport};

const VERDICTS: [&str; 3] = ["allow", "ask", "deny"];

/// What is decided: by how strict it is.
fn strictest(one: &str, two: &str) -> &'static str {
    let rank = |word: &str| VERDICTS.iter().position(|verdict| *verdict == word).unwrap();
    VERDICTS[rank(one).max(rank(two))]
}

/// What a rule looks at.
#[derive(Clone, Copy, PartialEq)]
enum Looks {
    /// The list alone.
    Not,
    AtArguments,
}

const LOOKS: [Looks; 2] = [Looks::Not, Looks::AtArguments];

/// Returns a rule about `db__write`.
fn rule(name: &str, verdict: &str, looks: Looks, is_report: bool) -> Value {
    let mut rule = json!({ "name": name, "verdict": verdict, "tools": ["db__write"], "report": is_report });
    if verdict == "deny" {
        rule["hide"] = json!(false);
    }
    if looks == Looks::AtArguments {
        rule["when"] = json!("has(args.database) && args.database == 'a'");
    }
    rule
}

/// Calls as a client that says no or yes to what it is asked. Returns what was decided.
async fn decided(shop: &Shop, revision: &'static str, is_yes: bool) -> &'static str {
    let before = shop.calls();
    let can = json!({ "elicitation": {} });
    let mut client = Client::able(&shop.host, shop.to, Transport::Pipe, revision, ("", can)).await;
    client.answer = json!({ "action": "accept", "content": { "answer": if is_yes { "once" } else { "no" } } });
    let (method, params) = call("db__write", json!({ "database": "a" }));
    let answer = client.ask(method, params).await;
    let was_asked = !client.asked.is_empty() || answer["result"]["resultType"] == "input_required";
    let sent = shop.calls() - before;
    if was_asked {
        let is_sent = is_yes && !client.is_modern();
        assert_eq!(sent, usize::from(is_sent), "{answer}");
        return "ask";
    }
    if answer["result"]["isError"] == true {
        assert_eq!((sent, &answer["result"]["_meta"]["mcp-host/error"]["kind"]), (0, &json!("denied")), "{answer}");
        return "deny";
    }
    assert_eq!(sent, 1, "{answer}");
    "allow"
}

#[tokio::test]
async fn of_each_pair_of_verdicts_the_stricter_one_counts_whatever_the_order() {
    for one in VERDICTS {
        for two in VERDICTS {
            for looks in LOOKS.iter().flat_map(|one| LOOKS.map(|two| (*one, two))) {
                let rules = [rule("one", one, looks.0, false), rule("two", two, looks.1, false)];
                let shop = open(config(&json!({ "rules": rules })), None).await;
                for (revision, is_yes) in [("2025-11-25", true), ("2025-11-25", false), ("2026-07-28", true)] {
                    let found = decided(&shop, revision, is_yes).await;
                    assert_eq!(found, strictest(one, two), "{rules:?} {revision}");
                }
                shop.host.shutdown().await;
            }
        }
    }
}

#[tokio::test]
async fn of_each_pair_a_rule_that_only_reports_does_not_count() {
    for one in VERDICTS {
        for two in VERDICTS {
            for (is_first, counts) in [(true, two), (false, one)] {
                let rules = [rule("one", one, Looks::AtArguments, is_first), rule("two", two, Looks::Not, !is_first)];
                let shop = open(config(&json!({ "rules": rules })), None).await;
                assert_eq!(decided(&shop, "2025-11-25", true).await, counts, "{rules:?}");
                shop.host.shutdown().await;
            }
        }
    }
}

#[tokio::test]
async fn each_default_counts_where_no_rule_matches_and_only_there() {
    for default in VERDICTS {
        for verdict in VERDICTS {
            let policy = json!({ "default": default, "rules": [rule("one", verdict, Looks::AtArguments, false)] });
            let shop = open(config(&policy), None).await;
            assert_eq!(decided(&shop, "2025-11-25", true).await, verdict, "{policy}");
            let mut client = Client::enter(&shop.host, shop.to, Transport::Pipe, "2025-11-25", "").await;
            let before = shop.calls();
            let (method, params) = call("db__write", json!({ "database": "b" }));
            let answer = client.ask(method, params).await;
            match default {
                "allow" => assert_eq!(answer["result"]["content"][0]["text"], "write", "{policy}: {answer}"),
                "ask" => denied(&answer, "default"),
                _ => assert_eq!(answer["result"]["_meta"]["mcp-host/error"]["kind"], "denied", "{policy}: {answer}"),
            }
            assert_eq!(shop.calls() - before, usize::from(default == "allow"), "{policy}");
            shop.host.shutdown().await;
        }
    }
}
