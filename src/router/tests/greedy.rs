//! One principal that takes all it can get, beside another (`docs/hazards.md` H101). On a paused clock.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::support::*;
use crate::config::{Config, Limits, Sharing};
use crate::manager::Principal;
use crate::protocol::{Profile, ProtocolVersion};
use crate::router::Client;

/// The longest that any client waits for a greedy one.
const SOON: Duration = Duration::from_secs(1);
/// By then, unused leases are gone.
const GONE: Duration = Duration::from_secs(90);

fn behind_a_pipe(change: impl FnOnce(&mut Limits)) -> Stage {
    stage_behind(true, |config| change(&mut config.host.limits))
}

fn of(stage: &Stage, name: &str) -> Arc<Client> {
    stage.modern_of(Principal::named(name), FORM)
}

/// Opens a session of this principal.
fn session(stage: &Stage, name: &str) -> Arc<Client> {
    stage.router.admit(Principal::named(name), ProtocolVersion::V2025_11_25, Profile::EMPTY, None)
}

/// Makes its server ask: from now on, clients that may be asked have their own leases.
async fn is_known_to_ask(stage: &Stage, client: &Arc<Client>) {
    let asked = left(stage, client, 1).await;
    comes_back(stage, client, &asked[0]).await;
    tokio::time::sleep(GONE).await;
}

/// Makes calls that their client abandons at a question.
async fn left(stage: &Stage, client: &Arc<Client>, count: usize) -> Vec<Value> {
    let mut asked = Vec::new();
    for _ in 0..count {
        asked.push(stage.answer(client, &call("ask")).await);
    }
    asked
}

/// The client comes back with an answer.
async fn comes_back(stage: &Stage, client: &Arc<Client>, asked: &Value) -> Value {
    let answers = json!({ "i1": { "action": "accept", "content": { "name": "x" } } });
    stage.answer(client, &retry(&call("ask"), asked, &answers)).await
}

fn leases(stage: &Stage) -> usize {
    stage.router.meter().gauges().leases
}

async fn is_served_soon(stage: &Stage, client: &Arc<Client>) {
    let begun = Instant::now();
    let answer = stage.answer(client, &call("echo")).await;
    assert_eq!(answer["isError"], Value::Null, "{answer}");
    assert!(begun.elapsed() < SOON, "after {:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn h101_70_open_questions_of_one_leave_room_for_another() {
    for change in [(|_| {}) as fn(&mut Limits), |limits| {
        (limits.leases, limits.leases_per_server, limits.parked_per_principal) = (64, 512, 512)
    }] {
        let stage = behind_a_pipe(change);
        let (greedy, other) = (of(&stage, "greedy"), of(&stage, "other"));
        is_known_to_ask(&stage, &greedy).await;
        let asked = left(&stage, &greedy, 70).await;
        tokio::time::sleep(GONE).await;
        assert_eq!(leases(&stage), 64, "alone it may have all");
        let full = stage.router.meter().gauges().parked;
        assert_eq!(full, 64);

        is_served_soon(&stage, &other).await;
        tokio::time::sleep(SOON).await;
        let half = stage.router.meter().gauges().parked;
        assert!((30..=34).contains(&half), "{half} of {full} wait");
        let asked: Vec<&Value> = asked.iter().filter(|asked| asked["resultType"] == "input_required").collect();
        let early = comes_back(&stage, &greedy, asked[0]).await;
        assert_eq!(early["error"], -32602, "the oldest are over: {early}");
        let late = comes_back(&stage, &greedy, asked[asked.len() - 1]).await;
        assert_eq!(late["isError"], Value::Null, "{late}");
        tokio::time::sleep(GONE).await;
        assert!(leases(&stage) <= 32 + 1, "{} leases", leases(&stage));

        // Abandoned calls are over, and later also what is kept to tell their client.
        tokio::time::sleep(stage.router.limits().answer * 2 + GONE).await;
        assert_eq!((stage.router.meter().gauges().parked, leases(&stage)), (0, 1), "the other's");
    }
}

#[tokio::test(start_paused = true)]
async fn h101_nobody_gets_more_than_half_beside_another() {
    let stage = behind_a_pipe(|limits| limits.leases_per_server = 8);
    let (greedy, other) = (of(&stage, "greedy"), of(&stage, "other"));
    is_served_soon(&stage, &other).await;
    let asked = left(&stage, &greedy, 12).await;
    assert_eq!(leases(&stage), 4 + 1 + 1, "the host's own lists");
    let refused = asked.last().unwrap();
    assert!(text(refused).contains("half of host.limits.leasesPerServer"), "{refused}");
    // A third principal comes, too.
    is_served_soon(&stage, &of(&stage, "third")).await;
    assert_eq!(leases(&stage), 4 + 2 + 1);
    for name in ["fourth", "fifth", "sixth", "seventh"] {
        is_served_soon(&stage, &of(&stage, name)).await;
    }
    assert_eq!(leases(&stage), 8);
    assert_eq!(comes_back(&stage, &greedy, &asked[3]).await["isError"], Value::Null, "the latest is there yet");
}

#[tokio::test(start_paused = true)]
async fn h101_of_three_that_share_all_the_largest_makes_room() {
    let stage = behind_a_pipe(|limits| limits.leases_per_server = 6);
    for name in ["one", "two", "three"] {
        left(&stage, &of(&stage, name), 3).await;
    }
    assert_eq!(leases(&stage), 6);
    is_served_soon(&stage, &of(&stage, "fourth")).await;
    assert_eq!(leases(&stage), 6);
}

#[tokio::test(start_paused = true)]
async fn h101_calls_that_run_are_not_ended() {
    let stage = behind_a_pipe(|limits| limits.leases_per_server = 4);
    let (greedy, other) = (of(&stage, "greedy"), of(&stage, "other"));
    is_known_to_ask(&stage, &greedy).await;
    let begun = stage.script.begun.load(Ordering::SeqCst);
    let running: Vec<Running> = (0..4).map(|_| stage.call(&greedy, &call("held"))).collect();
    while stage.script.begun.load(Ordering::SeqCst) < begun + 4 {
        tokio::time::sleep(SOON).await;
    }
    assert_eq!(leases(&stage), 4);
    let refused = stage.answer(&other, &call("echo")).await;
    assert!(text(&refused).contains("4 are in use"), "{refused}");
    assert!(running.iter().all(|call| !call.is_over()), "they go on");
    stage.script.release.notify_one();
    stage.script.release.notify_one();
    tokio::time::sleep(SOON).await;
    // Its own lease stays its own; any other free lease is for the principal that found none.
    let again = stage.call(&greedy, &call("held"));
    let more = stage.answer(&greedy, &call("held")).await;
    assert!(text(&more).contains("others want some"), "{more}");
    is_served_soon(&stage, &other).await;
    assert!(!again.is_over());
    stage.script.release.notify_waiters();
    for call in running.into_iter().chain([again]) {
        assert_eq!(text(&call.answer().await), "held");
    }
    tokio::time::sleep(GONE).await;
    assert_eq!(leases(&stage), 2);
}

#[tokio::test(start_paused = true)]
async fn h101_many_sessions_of_one_take_their_own_leases() {
    for change in [(|config| config.host.limits.leases_per_server = 8) as fn(&mut Config), |config: &mut Config| {
        config.host.limits.leases = 8
    }] {
        let stage = stage_of(|config| {
            config.servers[0].sharing = Sharing::Session;
            change(config);
        })
        .await;
        let server = stage.router.manager().servers()[0].id;
        let greedy = async |count: usize| {
            for _ in 0..count {
                stage.answer(&session(&stage, "greedy"), &call("echo")).await;
            }
        };
        greedy(12).await;
        assert_eq!(leases(&stage), 8, "alone it may have all");
        let other = session(&stage, "other");
        is_served_soon(&stage, &other).await;
        let mine = held(&other, server).unwrap();
        tokio::time::sleep(SOON).await;
        greedy(30).await;
        assert!(held(&other, server).is_some_and(|lease| Arc::ptr_eq(&lease, &mine)), "what it holds stays its own");
        is_served_soon(&stage, &other).await;
    }
}

#[tokio::test(start_paused = true)]
async fn h101_more_sessions_than_leases_do_not_start_a_server_for_each_call() {
    let stage = stage_of(|config| {
        config.servers[0].sharing = Sharing::Session;
        config.host.limits.leases_per_server = 4;
    })
    .await;
    let begun = Instant::now();
    let before = stage.script.starts.load(Ordering::Relaxed);
    let clients = [(); 8].map(|()| session(&stage, "greedy"));
    for _ in 0..5 {
        for client in &clients {
            let answer = stage.answer(client, &call("echo")).await;
            assert_eq!(answer["isError"], Value::Null, "{answer}");
        }
    }
    let started = stage.script.starts.load(Ordering::Relaxed) - before;
    let may_start = 4 * (begun.elapsed().as_secs() as usize + 2);
    assert!(started > clients.len() && started <= may_start, "{started} starts in {:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn h101_leases_of_single_calls_close_after_a_minute() {
    let stage = behind_a_pipe(|_| {});
    let client = of(&stage, "one");
    let asked = left(&stage, &client, 6).await;
    assert_eq!(leases(&stage), 5 + 1, "the host's own lists");
    for asked in &asked {
        assert_eq!(comes_back(&stage, &client, asked).await["isError"], Value::Null);
    }
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert_eq!(leases(&stage), 5 + 1, "the next question finds them warm");
    let asked = left(&stage, &client, 2).await;
    tokio::time::sleep(GONE).await;
    assert_eq!(leases(&stage), 2 + 1, "one is in use");
    for asked in &asked {
        assert_eq!(comes_back(&stage, &client, asked).await["isError"], Value::Null);
    }
    tokio::time::sleep(GONE).await;
    assert_eq!(leases(&stage), 1 + 1);
}

#[tokio::test(start_paused = true)]
async fn h101_calls_at_a_question_leave_half_of_the_slots_to_another() {
    let stage = stage_behind(true, |config| config.servers[0].max_concurrent = 2);
    let (greedy, other) = (of(&stage, "greedy"), of(&stage, "other"));
    let asked = left(&stage, &greedy, 2).await;
    assert_eq!(stage.router.meter().gauges().slots, 2, "alone it may have all");
    is_served_soon(&stage, &other).await;
    let early = comes_back(&stage, &greedy, &asked[0]).await;
    assert_eq!(early["error"], -32602, "the oldest is over: {early}");
    assert_eq!(comes_back(&stage, &greedy, &asked[1]).await["isError"], Value::Null, "the other one goes on");
}

#[tokio::test(start_paused = true)]
async fn h101_of_leases_that_several_leave_one_stays() {
    let stage = behind_a_pipe(|_| {});
    let clients = ["one", "other", "third"].map(|name| session(&stage, name));
    for client in &clients {
        is_served_soon(&stage, client).await;
    }
    assert_eq!(leases(&stage), 3 + 1, "the host's own lists");
    clients.iter().for_each(|client| stage.router.clients().close(client));
    tokio::time::sleep(GONE).await;
    assert_eq!(leases(&stage), 1);
}

/// Returns the client's current lease.
fn held(client: &Client, server: usize) -> Option<Arc<crate::upstream::Upstream>> {
    client.leases().into_iter().find(|(id, _)| *id == server).map(|(_, upstream)| upstream)
}
