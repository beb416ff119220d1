//! Rates, rules that ask, and cached or joined answers in a world: no call is sent before a yes, none twice by a second
//! retry, none over its rate, and no answer reaches another principal, server, or question.
//!
//! Tools: `guarded` needs the client's yes, `witnessed` that of a person at the host, `slow` has a rate in some worlds, and
//! answers of `look` are kept and shared.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::chance::Chance;
use super::client::Person;
use super::world::World;
use crate::config::{self, Config, Decision, Per, Proof, Rate, Rule, Selector, ToolSettings};
use crate::protocol::Method;
use crate::router::{Decided, Router};

/// How many questions `look` knows. Few, so that clients ask the same.
const LOOKS: u64 = 2;
/// How often the person at the host looks.
const LOOK: Duration = Duration::from_millis(300);
/// What the host's own questions begin with.
const OWN: &str = "mcp-host asks:";

/// Adds the rules that ask.
pub(super) fn rules(config: &mut Config) {
    for (name, tools, proof) in [("client", "*guarded", Proof::Client), ("person", "*witnessed", Proof::Person)] {
        let mut rule = Rule::new(name, Decision::Ask);
        rule.proof = Some(proof);
        rule.matches.tools = Some(vec![Selector::parse(tools).unwrap()]);
        config.host.policy.rules.push(rule);
    }
}

/// Sets how long answers of a server are kept, and its rate, if it has one.
pub(super) fn settings(entry: &mut config::Server, chance: &Chance) {
    let kept = Duration::from_millis(1 + chance.below(3000));
    let look = ToolSettings { cache: Some(kept), ..ToolSettings::default() };
    entry.tools = std::mem::take(&mut entry.tools).with("look", look);
    if chance.one_in(3) {
        let slow = ToolSettings { rate: Some(Rate::new(1, Per::Minute)), ..ToolSettings::default() };
        entry.tools = std::mem::take(&mut entry.tools).with("slow", slow);
    }
}

/// Records that a reply is about to be given, if it is a yes to the host.
pub(super) fn note(world: &World, mark: &str, reply: &Value) {
    if reply["content"]["answer"] == "once" {
        world.tale.allows(mark);
    }
}

/// Returns the call that a question of the host is about; `None` of another question.
pub(super) fn asked_about(message: &str) -> Option<String> {
    message.strip_prefix(OWN).and_then(mark_in)
}

/// Finds the mark among arguments that people are shown.
fn mark_in(text: &str) -> Option<String> {
    let (_, rest) = text.split_once(r#""mark":""#)?;
    rest.split('"').next().map(str::to_owned)
}

/// Decides, as the person at the host, on most of the calls that wait for that.
pub(super) async fn decide(world: Arc<World>, router: Router) {
    loop {
        sleep(LOOK).await;
        for ask in router.clients().asks().list().into_iter().filter(|ask| ask.person_only) {
            let Some(mark) = mark_in(&ask.arguments) else {
                world.tale.fault(format!("a person is asked about {ask:?}"));
                continue;
            };
            let decided = match world.chance_of(&mark, 1010).below(5) {
                // Nobody answers.
                0 => continue,
                1 => Decided::No,
                _ => Decided::Once,
            };
            world.tale.tell(&format!("a person says {decided:?} to {mark}"));
            if decided == Decided::Once {
                world.tale.allows(&mark);
            }
            router.clients().asks().decide(ask.id, decided);
        }
    }
}

/// Checks that nothing waits for a person any more.
pub(super) fn check(world: &World, router: &Router) {
    for ask in router.clients().asks().list() {
        world.tale.fault(format!("a question is left: {ask:?}"));
    }
}

impl Person {
    /// Makes calls that a rule asks about, that have a rate, or of which the answer may be another's. What it does depends
    /// on nothing that others do at the same moment.
    pub(super) async fn guarded(self: Arc<Self>, deed: u64, server: String) {
        let chance = self.world.chance_of("guarded", self.number * 100 + deed);
        let changes = self.world.has_pins() && chance.one_in(3);
        let (tool, count) = match chance.below(5) {
            _ if changes => (super::pinned::FICKLE, 1 + chance.below(4)),
            0 => ("guarded", 1),
            1 => ("witnessed", 1),
            2 => ("slow", 3),
            _ => ("look", 1 + chance.below(4)),
        };
        for round in 0..count {
            let key = (tool == "look").then(|| format!("look{}", chance.below(LOOKS)));
            let mark = format!("{}.{deed}-{round}", self.number);
            self.call_as(mark, Method::ToolsCall, tool, (&server, key.as_deref()), true).await;
        }
    }

    /// Returns the answer to a question of the host.
    pub(super) fn permits(&self, mark: &str) -> Value {
        let is_yes = !self.world.chance_of(mark, 1011).one_in(4);
        json!({ "action": "accept", "content": { "answer": if is_yes { "once" } else { "no" } } })
    }
}
