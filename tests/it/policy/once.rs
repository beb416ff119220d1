//! Generated walks through the public endpoint: clients of both eras call, answer, and send old answers again, and a model
//! says which calls reach the server: none before a yes, none twice, none by a form where a person must decide, none by
//! a yes to another rule or another session.

use mcp_host::Decided;
use serde_json::{Value, json};

use super::{Shop, call, config, denied, open};
use crate::views::clients::{Client, Transport};

/// The two tools, each with a rule of its own.
const TOOLS: [&str; 2] = ["db__write", "db__read"];
/// The most steps of a walk: each of them may leave a question, and a principal has a cap.
const STEPS: usize = 40;
const WALKS: u64 = 24;

/// Clients with a session, and without one: transport, revision, and what follows the path of the endpoint.
const CLIENTS: [(Transport, &str, &str); 6] = [
    (Transport::Pipe, "2025-06-18", ""),
    (Transport::Pipe, "2025-11-25", ""),
    (Transport::Sse, "2025-11-25", ""),
    (Transport::Sse, "2025-11-25", "/other"),
    (Transport::Http, "2026-07-28", ""),
    (Transport::Http, "2026-07-28", "/other"),
];

fn rules(proof: &str) -> mcp_host::config::Config {
    let rule = |name: &str, tool: &str| json!({ "name": name, "verdict": "ask", "tools": [tool], "proof": proof, "remember": "15m" });
    let mut config = config(&json!({ "rules": [rule("one", TOOLS[0]), rule("two", TOOLS[1])] }));
    config.host.views.insert("other".to_owned(), mcp_host::config::View::default());
    config
}

/// Numbers that are the same for the same seed.
struct Dice(u64);

impl Dice {
    fn of(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

/// What a client can answer.
const ANSWERS: usize = 6;

fn answer(number: usize) -> Value {
    let content = |answer: &str| json!({ "action": "accept", "content": { "answer": answer } });
    match number {
        0 => content("once"),
        1 => content("for 15 min"),
        2 => content("no"),
        3 => json!({ "action": "accept", "content": { "answer": true } }),
        4 => json!({ "action": "decline", "content": { "answer": "once" } }),
        _ => json!({ "action": "cancel" }),
    }
}

/// A question that a client without a session has got: its state, and what became of it.
struct Pending {
    state: Value,
    tool: usize,
    argument: usize,
    /// Whether it was answered with a yes, or with a no.
    decided: Option<bool>,
}

/// One client, what the model says of its grants, and its questions.
struct Walker {
    client: Client,
    granted: [bool; 2],
    pending: Vec<Pending>,
}

async fn walkers(shop: &Shop) -> Vec<Walker> {
    let mut all = Vec::new();
    for (transport, revision, at) in CLIENTS {
        let able = json!({ "elicitation": {} });
        let client = Client::able(&shop.host, shop.to, transport, revision, (at, able)).await;
        all.push(Walker { client, granted: [false; 2], pending: Vec::new() });
    }
    all
}

fn params(tool: usize, argument: usize) -> Value {
    call(TOOLS[tool], json!({ "database": argument })).1
}

/// Compares what came of a request with what the model says. Returns the new question, if there is one.
fn compare(answered: &Value, sent: bool, asks: bool, case: &str) -> Option<Value> {
    if sent {
        assert!(
            answered["result"]["content"][0]["text"].is_string() && answered["result"]["isError"] != true,
            "{case}"
        );
    } else if asks {
        assert_eq!(answered["result"]["resultType"], "input_required", "{case}: {answered}");
    } else {
        assert_eq!(answered["result"]["_meta"]["mcp-host/error"]["kind"], "denied", "{case}: {answered}");
    }
    (asks && !sent).then(|| answered["result"]["requestState"].clone())
}

/// One step of a client with a session: it calls, and answers if it is asked.
async fn call_and_answer(walker: &mut Walker, dice: &mut Dice, case: &str) -> bool {
    let (tool, number) = (dice.of(2), dice.of(ANSWERS));
    let before = walker.client.asked.len();
    walker.client.answer = answer(number);
    let answered = walker.client.ask("tools/call", params(tool, dice.of(2))).await;
    let is_asked = !walker.granted[tool];
    assert_eq!(walker.client.asked.len() - before, usize::from(is_asked), "{case}");
    let sent = walker.granted[tool] || number <= 1;
    walker.granted[tool] |= number == 1;
    compare(&answered, sent, false, case);
    sent
}

/// One step of a client without a session: it calls, or sends an old request again with some answer.
async fn call_or_retry(walker: &mut Walker, dice: &mut Dice, case: &str) -> bool {
    if walker.pending.is_empty() || dice.of(3) == 0 {
        let (tool, argument) = (dice.of(2), dice.of(2));
        let answered = walker.client.ask("tools/call", params(tool, argument)).await;
        let sent = walker.granted[tool];
        if let Some(state) = compare(&answered, sent, true, case) {
            walker.pending.push(Pending { state, tool, argument, decided: None });
        }
        return sent;
    }
    let (at, number) = (dice.of(walker.pending.len()), dice.of(ANSWERS));
    let Pending { state, tool, argument, decided } = &mut walker.pending[at];
    let (tool, argument) = (*tool, *argument);
    let mut again = params(tool, argument);
    again["requestState"] = state.clone();
    again["inputResponses"] = json!({ "mcp-host-ask": answer(number) });
    // After a no, the question has no time any more for which a yes may count.
    let is_yes = number == 0 || number == 1 && *decided != Some(false);
    let counts = is_yes && decided.is_none();
    let granted = &mut walker.granted[tool];
    *granted |= counts && number == 1;
    let sent = is_yes && (counts || *granted);
    decided.get_or_insert(is_yes);
    let answered = walker.client.ask("tools/call", again).await;
    if let Some(state) = compare(&answered, sent, is_yes, &format!("{case}, answer {number}")) {
        walker.pending.push(Pending { state, tool, argument, decided: None });
    }
    sent
}

#[tokio::test]
async fn in_any_walk_a_yes_sends_one_request_of_its_own_rule_and_session() {
    let (mut all, mut most) = (0, 0);
    for seed in 0..WALKS {
        let shop = open(rules("client"), None).await;
        let (mut walkers, mut dice) = (walkers(&shop).await, Dice(seed));
        for step in 0..STEPS {
            let who = dice.of(walkers.len());
            let case = format!("seed {seed}, step {step}, client {who}");
            let (before, walker) = (shop.calls(), &mut walkers[who]);
            let sent = match walker.client.is_modern() {
                true => call_or_retry(walker, &mut dice, &case).await,
                false => call_and_answer(walker, &mut dice, &case).await,
            };
            assert_eq!(shop.calls() - before, usize::from(sent), "{case}");
            most += 1;
        }
        all += shop.calls();
        shop.host.shutdown().await;
    }
    assert!(all > most / 10 && all < most, "{all} of {most} are sent");
}

/// What a person decides in a walk.
const VERDICTS: [Decided; 3] = [Decided::Once, Decided::Remember, Decided::No];

#[tokio::test]
async fn in_any_walk_where_a_person_decides_no_form_of_a_client_sends_anything() {
    for seed in 0..WALKS {
        let shop = open(rules("person"), None).await;
        let (mut walkers, mut dice) = (walkers(&shop).await, Dice(seed));
        for walker in &mut walkers {
            walker.client.answer = answer(0);
        }
        for step in 0..STEPS {
            let (who, tool, verdict) = (dice.of(walkers.len()), dice.of(2), VERDICTS[dice.of(3)]);
            let case = format!("seed {seed}, step {step}, client {who}, {verdict:?}");
            let (before, walker) = (shop.calls(), &mut walkers[who]);
            let is_granted = walker.granted[tool];
            let mut params = params(tool, dice.of(2));
            if walker.client.is_modern() {
                // A form that nobody has asked for.
                params["inputResponses"] = json!({ "mcp-host-ask": answer(0) });
            }
            let (answered, ()) = tokio::join!(walker.client.ask("tools/call", params), async {
                if !is_granted {
                    let ask = loop {
                        if let Some(ask) = shop.host.asks().first() {
                            break ask.id;
                        }
                        tokio::task::yield_now().await;
                    };
                    assert_eq!(shop.calls(), before, "{case}: nothing is sent before a yes");
                    assert!(shop.host.decide(ask, verdict), "{case}");
                }
            });
            let sent = is_granted || verdict != Decided::No;
            if sent {
                assert!(answered["result"]["content"][0]["text"].is_string(), "{case}: {answered}");
            } else {
                denied(&answered, if tool == 0 { "one" } else { "two" });
            }
            walker.granted[tool] |= verdict == Decided::Remember;
            assert_eq!((shop.calls() - before, walker.client.asked.len()), (usize::from(sent), 0), "{case}");
            assert!(shop.host.asks().is_empty(), "{case}");
        }
        shop.host.shutdown().await;
    }
}
