//! A shared server that begins to ask: during a call or just after it, while others' calls arrive at that very moment.
//! No question or answer may reach another client, each question has one answer, and in the end each client that can
//! answer has a lease of its own, those with roots share with no other list, and all others share the rest lease.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::chance::Chance;
use super::client::{Character, Kind, Person};
use super::guarded;
use super::server::{Life, Shape};
use super::tale::End;
use super::world::World;
use crate::manager::{Asked, Principal};
use crate::protocol::{Method, Profile, ProtocolVersion};
use crate::router::Router;

/// The number of its first client, apart from those of others.
const FIRST: u64 = 70;
/// Its name.
pub(super) const NAME: &str = "shared";
/// How long clients wait for the first question before they call anyway.
const PATIENCE: Duration = Duration::from_secs(20);
/// How many rounds, one client after the other, until everything it asks is known and each client is where it belongs.
const ROUNDS: usize = 20;

/// The shared server of a world, and its clients.
#[derive(Debug)]
pub(super) struct Crowd {
    habit: Habit,
    /// Its calls so far, in all its lives.
    calls: AtomicU64,
    /// Clients to notify of its first question.
    waiting: Mutex<Vec<Arc<Notify>>>,
    /// Its clients with a session.
    sessions: Mutex<BTreeSet<u64>>,
    lives: Mutex<Vec<Weak<Life>>>,
    /// The life that served each call.
    served: Mutex<BTreeMap<String, u64>>,
}

/// How it asks.
#[derive(Clone, Debug)]
struct Habit {
    kinds: Vec<Method>,
    /// The number of the call at which it first asks.
    from: u64,
    /// Whether it also asks what was not declared.
    is_careless: bool,
    /// Whether its lives end only from outside.
    is_steady: bool,
}

/// When a server asks relative to a call, and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Never,
    In(Method),
    After(Method),
}

/// Who shares a lease at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Group {
    Own(String),
    Roots(String, String),
    Rest(String),
}

impl Crowd {
    pub(super) fn new(chance: &Chance) -> Self {
        let all = [Method::Elicit, Method::CreateMessage, Method::RootsList];
        let mut kinds = vec![chance.pick(&all).clone()];
        if chance.one_in(4) {
            kinds.push(chance.pick(&all).clone());
        }
        let habit = Habit {
            kinds,
            from: if chance.one_in(2) { chance.below(3) } else { chance.below(16) },
            is_careless: chance.one_in(4),
            is_steady: chance.one_in(2),
        };
        let (calls, waiting, sessions, lives, served) = Default::default();
        Self { habit, calls, waiting, sessions, lives, served }
    }

    /// Returns the server's shape; its revision has sessions.
    pub(super) fn shape(chance: &Chance) -> Shape {
        let revisions = [ProtocolVersion::V2025_06_18, ProtocolVersion::V2025_11_25];
        Shape {
            name: NAME.to_owned(),
            revision: *chance.pick(&revisions),
            tells: chance.one_in(4),
            // Mostly a pipe.
            mute: !chance.one_in(3),
            turns: None,
            for_all: false,
            idles: false,
        }
    }

    pub(super) fn is_steady(&self) -> bool {
        self.habit.is_steady
    }

    pub(super) fn has_session(&self, number: u64) -> bool {
        self.sessions.lock().unwrap().contains(&number)
    }

    pub(super) fn begins(&self, life: &Arc<Life>) {
        self.lives.lock().unwrap().push(Arc::downgrade(life));
    }

    /// Returns what it asks during or after a call, and whether that is the first time.
    pub(super) fn turn(&self, tool: &str, declared: Profile, chance: &Chance) -> (Turn, bool) {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let kind = chance.pick(&self.habit.kinds).clone();
        let can = self.habit.is_careless || Asked::answerable(declared).has(Asked::of(&kind));
        let is_first = number == self.habit.from;
        let asks = is_first || (number > self.habit.from && (tool == "ask" || chance.one_in(3)));
        let turn = match asks && can {
            true if chance.one_in(3) => Turn::After(kind),
            true => Turn::In(kind),
            false => Turn::Never,
        };
        (turn, is_first)
    }

    /// Announces that it is about to ask for the first time, so that others call at that moment.
    pub(super) async fn spark(&self, chance: &Chance) {
        self.waiting.lock().unwrap().iter().for_each(|waiting| waiting.notify_one());
        for _ in 0..chance.below(6) {
            tokio::task::yield_now().await;
        }
    }

    pub(super) fn serves(&self, mark: &str, life: u64) {
        self.served.lock().unwrap().insert(mark.to_owned(), life);
    }

    /// Checks that questions of lives that go on have one answer each.
    pub(super) fn check(&self, world: &World) {
        for life in self.lives.lock().unwrap().iter().filter_map(Weak::upgrade) {
            for open in life.unanswered() {
                world.tale.fault(format!("question {open} of {} has no answer", life.shape.name));
            }
        }
    }
}

/// Returns the roots of a client that has some.
pub(super) fn roots_of(world: &World, number: u64) -> String {
    format!("file:///{}", world.chance_of("roots", number).below(2))
}

/// Returns the params of a question about a call.
pub(super) fn question(kind: &Method, mark: &str) -> Value {
    match kind {
        Method::Elicit => {
            let schema = json!({ "type": "object", "properties": { "word": { "type": "string" } } });
            json!({ "message": mark, "requestedSchema": schema })
        }
        Method::CreateMessage => {
            let content = json!({ "type": "text", "text": mark });
            json!({ "messages": [{ "role": "user", "content": content }], "maxTokens": 9 })
        }
        _ => json!({}),
    }
}

/// Returns the call that a question is about, if it says so.
pub(super) fn mark_of(kind: &Method, params: &Value) -> Option<String> {
    let text = match kind {
        Method::Elicit => &params["message"],
        Method::CreateMessage => &params["messages"][0]["content"]["text"],
        _ => return None,
    };
    let text = text.as_str().unwrap_or_default();
    Some(guarded::asked_about(text).unwrap_or_else(|| text.to_owned()))
}

/// Returns the clients of the shared server.
pub(super) fn persons(world: &Arc<World>, router: &Router, crowd: &Crowd) -> Vec<Arc<Person>> {
    let count = 3 + world.chance_of("crowd", 1).below(4);
    let persons: Vec<_> = (FIRST..FIRST + count).map(|number| person(world, router, number)).collect();
    crowd.waiting.lock().unwrap().extend(persons.iter().map(|person| person.spark.clone()));
    let sessions = persons.iter().filter(|person| person.session().is_some());
    crowd.sessions.lock().unwrap().extend(sessions.map(|person| person.number));
    persons
}

fn person(world: &Arc<World>, router: &Router, number: u64) -> Arc<Person> {
    let chance = world.chance_of("client", number);
    let principal = if chance.one_in(6) { Principal::named("other") } else { Principal::local() };
    let (roots, form, sampling) = (Profile::ROOTS, Profile::ELICITATION_FORM, Profile::SAMPLING);
    let can = *chance.pick(&[
        Profile::EMPTY,
        roots,
        form,
        sampling,
        roots.with(form),
        roots.with(sampling).with(form),
        roots.with(Profile::ROOTS_CHANGED),
    ]);
    Person::able(world, router, number, Character { principal, kind: Kind::Member, chance }, can)
}

impl Person {
    /// Calls the shared server, now and then and when it first asks.
    pub(super) async fn crowd(self: Arc<Self>) {
        let mut deeds = JoinSet::new();
        let person = self.clone();
        deeds.spawn(async move {
            let _ = tokio::time::timeout(PATIENCE, person.spark.notified()).await;
            for _ in 0..person.chance.below(6) {
                tokio::task::yield_now().await;
            }
            drop(person.call(Method::ToolsCall, "do", NAME, true).await);
        });
        for _ in 0..1 + self.chance.below(6) {
            self.chance.wait().await;
            let person = self.clone();
            match self.chance.below(6) {
                0 => deeds.spawn(async move { person.read().await }),
                _ => {
                    let tool = *self.chance.pick(&["do", "do", "slow", "ask"]);
                    deeds.spawn(async move { drop(person.call(Method::ToolsCall, tool, NAME, true).await) })
                }
            };
            if self.chance.one_in(40) {
                self.go();
            }
        }
        while let Some(done) = deeds.join_next().await {
            done.unwrap();
        }
    }

    /// Gets a prompt, which may be requested twice. After one refusal, its server asks no more.
    async fn read(&self) {
        let mark = self.call(Method::PromptsGet, "read", NAME, true).await;
        let Habit { kinds, is_careless, is_steady, .. } = &self.world.crowd.habit;
        let is_sure = *is_steady && !is_careless && kinds.iter().all(|kind| *kind == kinds[0]);
        let kind = Asked::of(&kinds[0]);
        let cannot = !Asked::answerable(self.can).has(kind) && kind != Asked::ROOTS;
        if is_sure && cannot && self.world.tale.end_of(&mark) == Some(End::Other) {
            self.world.tale.fault(format!("{mark} got no prompt for what its client cannot be asked"));
        }
    }

    /// Returns whom it shares with, if the server asks these questions.
    fn group(&self, asks: Asked) -> Group {
        let principal = self.principal().as_str().to_owned();
        let answers = asks.both(Asked::answerable(self.can));
        let number = self.number;
        if !answers.without(Asked::ROOTS).is_empty() {
            // Sessionless clients of one person with the same capabilities are one client.
            return Group::Own(match self.session() {
                Some(_) => number.to_string(),
                None => format!("{principal} {:?}", self.can),
            });
        }
        match answers.has(Asked::ROOTS) {
            true => Group::Roots(principal, roots_of(&self.world, number)),
            false => Group::Rest(principal),
        }
    }
}

/// Checks, when all is quiet, who is on which lease.
pub(super) async fn settle(world: &Arc<World>, router: &Router, crowd: &Crowd, persons: &[Arc<Person>]) {
    let there: Vec<_> = persons.iter().filter(|person| !person.is_gone()).collect();
    let Some(server) = router.manager().servers().iter().find(|server| server.config.name == *NAME).cloned() else {
        return world.tale.fault("there is no shared server".to_owned());
    };
    let mut places = Vec::new();
    for round in 0..ROUNDS {
        places.clear();
        let known = server.asks();
        for person in &there {
            let mark = person.call(Method::ToolsCall, "ask", NAME, false).await;
            let end = world.tale.end_of(&mark);
            if !matches!(end, Some(End::Answered | End::Withdrawn)) {
                world.tale.fault(format!("{mark} ended in round {round} with {end:?}"));
            }
            places.push(crowd.served.lock().unwrap().get(&mark).copied());
        }
        if server.asks() == known && round > 0 {
            break;
        }
    }
    let asks = server.asks();
    let groups: Vec<_> = there.iter().map(|person| person.group(asks)).collect();
    for (one, group) in groups.iter().enumerate() {
        for (other, others) in groups.iter().enumerate().skip(one + 1) {
            // An abandoned call may not have reached it.
            let (Some(place), Some(of_other)) = (places[one], places[other]) else { continue };
            let is_wrong = match group {
                // Clients with the same roots share, except one that was the lease's only caller before it told them.
                Group::Own(_) | Group::Roots(..) => group != others && place == of_other,
                // A restarted process declares like a new one: for a while there may be two.
                Group::Rest(_) if !crowd.is_steady() => group != others && place == of_other,
                Group::Rest(_) => (group == others) != (place == of_other),
            };
            if is_wrong {
                let (one, other) = (there[one].number, there[other].number);
                world.tale.fault(format!(
                    "client {one}, {group:?}, is in life {place}, and client {other}, {others:?}, in {of_other}: {asks:?}"
                ));
            }
        }
    }
}
