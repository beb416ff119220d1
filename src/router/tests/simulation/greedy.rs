//! Random greedy clients: they flood, abandon calls at questions, keep streams open that they never read, and open
//! sessions that they never close; and beside them a modest one that must not starve.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::client::{Kind, Person};
use super::tale::End;
use super::world::World;
use crate::config::Limits;
use crate::manager::Principal;
use crate::protocol::{Method, Raw, Request, RequestId};
use crate::router::Router;

/// The numbers of greedy clients, apart from those of others.
const GREEDY: u64 = 50;
const MODEST: u64 = 60;
/// How long a client may be refused before it counts as starved. No call lasts longer.
const STARVES: Duration = Duration::from_secs(60);
/// How often it retries.
const AGAIN: Duration = Duration::from_millis(500);
/// How long a stream stays open.
const STREAM: Duration = Duration::from_secs(30);

/// Sets limits that a few clients reach.
pub(super) fn tighten(limits: &mut Limits, servers: usize) {
    limits.leases_per_server = 4;
    limits.leases = 3 * servers + 1;
    // Longer than it takes to starve.
    limits.answer = STARVES + STARVES / 2;
    limits.pending_per_client = 16;
    limits.pending_per_server = 8;
}

/// Returns a greedy principal's clients, and the modest one.
pub(super) fn persons(world: &Arc<World>, router: &Router) -> Vec<Arc<Person>> {
    let chance = world.chance_of("greedy", 1);
    let greedy = (0..1 + chance.below(4)).map(|number| (GREEDY + number, "greedy", Kind::Greedy));
    greedy
        .chain([(MODEST, "modest", Kind::Modest)])
        .map(|(number, name, kind)| Person::of(world, router, number, Principal::named(name), kind))
        .collect()
}

impl Person {
    /// Takes all it can get, and answers nothing.
    pub(super) async fn grab(self: Arc<Self>) {
        let mut deeds = JoinSet::new();
        for _ in 0..6 + self.chance.below(12) {
            if self.chance.one_in(4) {
                self.chance.wait().await;
            }
            let person = self.clone();
            let server = self.chance.pick(&self.world.servers).name.clone();
            let tool = *self.chance.pick(&["ask", "ask", "ask", "never", "slow", "do"]);
            match self.chance.below(8) {
                0 => deeds.spawn(async move { person.listen().await }),
                _ => deeds.spawn(async move { drop(person.call(Method::ToolsCall, tool, &server, false).await) }),
            };
        }
        while let Some(done) = deeds.join_next().await {
            done.unwrap();
        }
    }

    /// Opens a change stream that it never reads.
    async fn listen(&self) {
        if self.session().is_some() {
            return;
        }
        let id = RequestId::Text("stream".into());
        let params = json!({ "notifications": { "toolsListChanged": true, "resourceSubscriptions": ["a:b", "c:d"] } });
        let request = Request { id, method: Method::Listen, params: Some(Raw::from_value(&params)) };
        let (client, leg) = (self.client(), self.router.modern_leg(None));
        let answer = self.router.stateless(&client, request, &leg, &Default::default());
        let _ = tokio::time::timeout(STREAM, answer).await;
    }

    /// Wants little, now and then, and retries while everything is taken.
    pub(super) async fn ask_little(self: Arc<Self>) {
        for _ in 0..2 + self.chance.below(4) {
            self.chance.wait().await;
            let server = self.chance.pick(&self.world.servers).name.clone();
            let begun = Instant::now();
            loop {
                let asked = Instant::now();
                let mark = self.call(Method::ToolsCall, "do", &server, false).await;
                if asked.elapsed() > STARVES {
                    self.world.tale.fault(format!("{mark} of a modest client took {:?}", asked.elapsed()));
                }
                match self.world.tale.end_of(&mark) {
                    Some(End::Failed(kind, _)) if kind == "overloaded" => {}
                    _ => break,
                }
                if begun.elapsed() > STARVES {
                    self.world.tale.fault(format!("a modest client starves at {server}: {mark}"));
                    break;
                }
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}
