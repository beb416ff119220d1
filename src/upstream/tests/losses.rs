//! Lost connections: when and how often they are retried, and how long calls wait. On a paused clock.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::support::*;
use crate::config::{self, Era::Legacy};
use crate::lock::lock;
use crate::protocol::{Message, Method, Raw, Response};
use crate::upstream::{Nature, Settings, Starter, StateName, Target, Upstream};

/// How a server behaves after its nth start.
type Habit = Arc<dyn Fn(usize) -> Life + Send + Sync>;

#[derive(Clone)]
enum Life {
    /// Shakes hands and lives until the value changes.
    Until(watch::Receiver<bool>),
    /// Shakes hands, then ends.
    Hello,
    /// Stays silent forever.
    Mute,
}

/// Creates a server with a habit; returns its start times as well.
fn server(habit: Habit) -> (Target, Arc<Mutex<Vec<Instant>>>) {
    let starts = Arc::<Mutex<Vec<Instant>>>::default();
    let (begun, count) = (starts.clone(), AtomicUsize::new(0));
    let start: Starter = Arc::new(move |mut wire, tasks: &TaskTracker| {
        lock(&begun).push(Instant::now());
        let life = habit(count.fetch_add(1, Ordering::SeqCst));
        tasks.spawn(async move {
            while let Some(message) = wire.input.recv().await {
                match (message, &life) {
                    (_, Life::Mute) => {}
                    (Message::Request(request), _) => {
                        let outcome = Ok(Raw::from_value(&initialized()));
                        let response = Response { id: Some(request.id), outcome };
                        let _ = wire.out.send((None, Message::Response(response))).await;
                    }
                    _ => break,
                }
            }
            if let Life::Until(mut end) = life {
                let gone = async { while wire.input.recv().await.is_some() {} };
                tokio::select! {
                    _ = end.wait_for(|end| *end) => {}
                    () = gone => {}
                }
            }
        });
    });
    (Target::Memory(start), starts)
}

/// The default settings of the config.
fn by_default(target: Target) -> Settings {
    let restart =
        config::Restart { max_retries: 10, min_delay: Duration::from_millis(500), max_delay: Duration::from_secs(30) };
    Settings { restart, start_timeout: Duration::from_secs(30), ..settings(target, Legacy) }
}

fn certain(chance: f64) -> Nature {
    Nature { chance: Arc::new(move || chance), ..Nature::real() }
}

/// The maximum number of times within any second.
fn most_in_a_second(times: &[Instant]) -> usize {
    let within =
        |from: &Instant| times.iter().filter(|at| *at >= from && **at < *from + Duration::from_secs(1)).count();
    times.iter().map(within).max().unwrap_or_default()
}

/// A server that repeatedly shakes hands and ends, and a client that calls it all the time.
#[tokio::test(start_paused = true)]
async fn h8_a_crash_loop_is_started_at_most_twenty_times_in_ten_minutes() {
    let (target, starts) = server(Arc::new(|_| Life::Hello));
    // The shortest delays that chance allows.
    let Surroundings { world, news: _news, changes: _changes } = world(certain(0.0));
    let tasks = TaskTracker::new();
    let upstream = Upstream::spawn(1, by_default(target), world, true, &tasks);
    let end = Instant::now() + Duration::from_secs(600);
    while Instant::now() < end {
        let _ = tokio::time::timeout(Duration::from_secs(30), upstream.ready()).await;
        upstream.start();
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let count = lock(&starts).len();
    assert!((12..=20).contains(&count), "{count}: eleven, and one more for a call in five minutes");
    assert_eq!(upstream.status().state, StateName::Failed);
    upstream.stop();
    tasks.close();
    tasks.wait().await;
}

/// A user's command gives a server that was given up all of its attempts again.
#[tokio::test(start_paused = true)]
async fn h8_a_command_begins_anew() {
    let (target, starts) = server(Arc::new(|_| Life::Hello));
    let lease = Lease::start(target, Legacy);
    lease.state(StateName::Failed).await;
    assert_eq!(lock(&starts).len(), 4);
    lease.upstream.start();
    assert!(lease.upstream.ready().await.is_err(), "a call may not, so soon");
    assert_eq!(lock(&starts).len(), 4);
    lease.upstream.retry();
    lease.state(StateName::Reconnecting).await;
    lease.state(StateName::Failed).await;
    assert_eq!(lock(&starts).len(), 8);
    lease.end().await;
}

#[tokio::test(start_paused = true)]
async fn h58_two_hundred_servers_that_die_together_come_back_eight_a_second() {
    const SERVERS: usize = 200;
    let (kill, dead) = watch::channel(false);
    let Surroundings { world, news: _news, mut changes } = world(certain(0.01));
    let tasks = TaskTracker::new();
    let mut all = Vec::new();
    for id in 0..SERVERS {
        let dead = dead.clone();
        let (alive, lives) = watch::channel(false);
        let (target, starts) =
            server(Arc::new(move |count| Life::Until(if count == 0 { dead.clone() } else { lives.clone() })));
        let id = u64::try_from(id).unwrap();
        all.push((Upstream::spawn(id, by_default(target), world.clone(), true, &tasks), starts, alive));
    }
    let drain = tokio::spawn(async move { while changes.recv().await.is_some() {} });
    for (upstream, ..) in &all {
        upstream.ready().await.unwrap();
    }
    let died = Instant::now();
    kill.send(true).unwrap();
    for (upstream, starts, _) in &all {
        let mut status = upstream.watch();
        status.wait_for(|status| status.restarts > 0 && status.state == StateName::Connected).await.unwrap();
        assert_eq!(lock(starts).len(), 2);
    }
    let again: Vec<Instant> = all.iter().flat_map(|(_, starts, _)| lock(starts)[1..].to_vec()).collect();
    assert_eq!(most_in_a_second(&again), 8);
    // And no slower than that.
    assert!(died.elapsed() < Duration::from_secs(30), "{:?}", died.elapsed());
    for (upstream, ..) in &all {
        upstream.stop();
    }
    tasks.close();
    tasks.wait().await;
    drop(world);
    drain.abort();
}

/// Servers that hang on a restart do not keep others from coming back.
#[tokio::test(start_paused = true)]
async fn h58_servers_that_hang_hold_up_no_others() {
    let (kill, dead) = watch::channel(false);
    let Surroundings { world, news: _news, changes: _changes } = world(certain(0.01));
    let tasks = TaskTracker::new();
    let mut all = HashMap::new();
    for id in 0..17_u64 {
        let dead = dead.clone();
        let (alive, lives) = watch::channel(false);
        let habit: Habit = Arc::new(move |count| match (count, id) {
            (0, _) => Life::Until(dead.clone()),
            (_, 16) => Life::Until(lives.clone()),
            _ => Life::Mute,
        });
        // The server that does not hang is tried last.
        let mut settings = by_default(server(habit).0);
        if id == 16 {
            settings.restart.min_delay = Duration::from_secs(50);
            settings.restart.max_delay = Duration::from_secs(50);
        }
        all.insert(id, (Upstream::spawn(id, settings, world.clone(), true, &tasks), alive));
    }
    for (upstream, _) in all.values() {
        upstream.ready().await.unwrap();
    }
    let died = Instant::now();
    kill.send(true).unwrap();
    let mut status = all[&16].0.watch();
    status.wait_for(|status| status.restarts > 0 && status.state == StateName::Connected).await.unwrap();
    assert!(died.elapsed() < Duration::from_secs(12), "{:?}", died.elapsed());
    for (upstream, _) in all.values() {
        upstream.stop();
    }
    tasks.close();
    tasks.wait().await;
}

/// Slow attempts still count while they may succeed: at most eight are in flight at once.
#[tokio::test(start_paused = true)]
async fn h58_no_more_than_eight_attempts_are_under_way() {
    let (kill, dead) = watch::channel(false);
    let Surroundings { world, news: _news, changes: _changes } = world(certain(0.0));
    let tasks = TaskTracker::new();
    let mut all = Vec::new();
    for id in 0..20 {
        let dead = dead.clone();
        let (target, starts) =
            server(Arc::new(move |count| if count == 0 { Life::Until(dead.clone()) } else { Life::Mute }));
        all.push((Upstream::spawn(id, by_default(target), world.clone(), true, &tasks), starts));
    }
    for (upstream, _) in &all {
        upstream.ready().await.unwrap();
    }
    kill.send(true).unwrap();
    let again = || all.iter().map(|(_, starts)| lock(starts).len() - 1).sum::<usize>();
    for (passed, wanted) in [(4, 8), (4, 16), (4, 20)] {
        tokio::time::sleep(Duration::from_secs(passed)).await;
        assert_eq!(again(), wanted);
    }
    for (upstream, _) in &all {
        upstream.stop();
    }
    tasks.close();
    tasks.wait().await;
}

/// A call to a lost server waits five seconds in any state, and does not speed up the attempts.
#[tokio::test(start_paused = true)]
async fn h58_a_call_waits_five_seconds_for_a_lost_server_and_adds_no_attempt() {
    let (kill, dead) = watch::channel(false);
    let (target, starts) =
        server(Arc::new(move |count| if count == 0 { Life::Until(dead.clone()) } else { Life::Mute }));
    let lease = Lease::start(target, Legacy);
    lease.connected().await;
    kill.send(true).unwrap();
    lease.state(StateName::Initializing).await;
    let begun = Instant::now();
    let calls = (0..50).map(|_| lease.upstream.ready());
    let all = futures_util::future::join_all(calls).await;
    assert!(all.iter().all(|ready| ready.as_ref().is_err_and(|why| why.state == StateName::Initializing)));
    assert_eq!(begun.elapsed().as_secs(), 5);
    assert_eq!(lock(&starts).len(), 2);
    lease.end().await;
}

/// The timer of a finished attempt ends no later one.
#[tokio::test(start_paused = true)]
async fn h58_a_late_timer_touches_no_newer_attempt() {
    let (kill, dead) = watch::channel(false);
    let (target, starts) =
        server(Arc::new(move |count| if count == 1 { Life::Until(dead.clone()) } else { Life::Mute }));
    let mut settings = by_default(target);
    settings.restart.min_delay = Duration::from_millis(1);
    let Surroundings { world, news: _news, changes: _changes } = world(certain(1.0));
    let tasks = TaskTracker::new();
    let upstream = Upstream::spawn(1, settings, world, true, &tasks);
    // The first attempt hangs until it times out; the second succeeds, and is lost a moment before such a timer would
    // be due again.
    let mut status = upstream.watch();
    status.wait_for(|status| status.state == StateName::Connected).await.unwrap();
    tokio::time::sleep(Duration::from_millis(29_990)).await;
    assert_eq!(upstream.status().state, StateName::Connected);
    kill.send(true).unwrap();
    status.wait_for(|status| status.state == StateName::Initializing).await.unwrap();
    let third = lock(&starts)[2];
    tokio::time::sleep(Duration::from_secs(29)).await;
    assert_eq!(lock(&starts).len(), 3, "it has all of its own time");
    status.wait_for(|status| status.state == StateName::Reconnecting).await.unwrap();
    assert_eq!(third.elapsed().as_secs(), 30);
    upstream.stop();
    tasks.close();
    tasks.wait().await;
}

/// An error of one request over HTTP fails no other request, least of all one that the server is working on.
#[tokio::test]
async fn h57_a_request_under_way_is_not_refused_with_another() {
    let held = Arc::<Mutex<Vec<tokio::sync::mpsc::Sender<String>>>>::default();
    let keep = held.clone();
    let server = Server::start(move |seen| match seen.what().as_str() {
        "POST tools/call" if seen.body["params"]["name"] == "slow" => {
            let (sender, reply) = stream([]);
            lock(&keep).push(sender);
            reply
        }
        "POST tools/call" => Reply::Text(404, "no such session"),
        _ => legacy(seen),
    })
    .await;
    let lease = Lease::start(server.target(), Legacy);
    let connection = lease.connected().await;
    let open = |name: &str| {
        let params = Raw::from_value(&serde_json::json!({"name": name}));
        connection.open(connection.next_id(), &Method::ToolsCall, Some(&params), &crate::upstream::Terms::host())
    };
    let slow = open("slow");
    let id = slow.id;
    let slow = tokio::spawn(slow.outcome());
    server.until("POST tools/call", 1).await;
    assert_eq!(open("quick").outcome().await, Err(crate::transport::Error::SessionEnded));
    let answer = serde_json::json!({"jsonrpc": "2.0", "id": id, "result": {"done": true}});
    let sender = lock(&held)[0].clone();
    sender.send(answer.to_string()).await.unwrap();
    assert_eq!(slow.await.unwrap().unwrap().unwrap().as_str(), r#"{"done":true}"#);
    lease.end().await;
}

/// A connected peer, in a world whose outer clock the test sets.
async fn awake(outside: Arc<AtomicU64>) -> (Lease, Peer) {
    let nature =
        Nature { outside: Arc::new(move || Duration::from_secs(outside.load(Ordering::SeqCst))), ..Nature::real() };
    let (target, mut peers) = Peer::target();
    let lease = Lease::in_world(target, Legacy, nature);
    let mut peer = peers.recv().await.unwrap();
    let (id, _) = peer.hears("initialize").await;
    peer.result(&id, &initialized()).await;
    peer.hears("notifications/initialized").await;
    lease.connected().await;
    (lease, peer)
}

#[tokio::test(start_paused = true)]
async fn h59_after_a_sleep_a_server_is_asked_before_it_is_taken_for_lost() {
    let outside = Arc::new(AtomicU64::new(100_000));
    let (lease, mut peer) = awake(outside.clone()).await;
    // Eight hours that the clock of the deadlines did not count.
    outside.fetch_add(8 * 3600, Ordering::SeqCst);
    let (id, _) = peer.hears("ping").await;
    peer.result(&id, &serde_json::json!({})).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(lease.upstream.status().state, StateName::Connected);
    assert_eq!(lease.upstream.status().restarts, 0);
    // Once more, without an answer.
    outside.fetch_add(8 * 3600, Ordering::SeqCst);
    peer.hears("ping").await;
    let begun = Instant::now();
    assert!(lease.lost().await.contains("after the machine slept"));
    assert_eq!(begun.elapsed().as_secs(), 10);
    drop(peer);
    lease.end().await;
}

#[tokio::test(start_paused = true)]
async fn h59_a_clock_that_is_set_back_or_a_little_forward_says_nothing() {
    let outside = Arc::new(AtomicU64::new(100_000));
    let (lease, mut peer) = awake(outside.clone()).await;
    outside.fetch_sub(8 * 3600, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(60)).await;
    outside.fetch_add(20, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(60)).await;
    lease.connected().await.notify(Method::RootsListChanged, None);
    // Nothing was sent before it.
    peer.hears("notifications/roots/list_changed").await;
    assert_eq!(lease.upstream.status().restarts, 0);
    lease.end().await;
}

/// An attempt interrupted by a sleep gets the rest of its time.
#[tokio::test(start_paused = true)]
async fn h59_a_start_that_slept_with_us_goes_on() {
    let (target, mut peers) = Peer::target();
    let lease = Lease::in_world(target, Legacy, Nature::real());
    let mut peer = peers.recv().await.unwrap();
    let (id, _) = peer.hears("initialize").await;
    tokio::time::advance(Duration::from_secs(8 * 3600)).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    peer.result(&id, &initialized()).await;
    lease.connected().await;
    assert_eq!(lease.upstream.status().restarts, 0);
    lease.end().await;
}

/// The pages of a list arrive until the time limit, and then the start has failed.
#[tokio::test(start_paused = true)]
async fn limit_list_time() {
    let limit = Duration::from_secs(5);
    for (late, wanted) in [(false, StateName::Connected), (true, StateName::Reconnecting)] {
        let (target, mut peers) = Peer::target();
        let mut settings = settings(target, Legacy);
        settings.limits = Arc::new(config::Limits { list_time: limit, ..config::Limits::default() });
        let Surroundings { world, news: _news, changes: _changes } = world(certain(1.0));
        let tasks = TaskTracker::new();
        let upstream = Upstream::spawn(1, settings, world, true, &tasks);
        let mut peer = peers.recv().await.unwrap();
        let (id, _) = peer.hears("initialize").await;
        let mut hello = initialized();
        hello["capabilities"] = serde_json::json!({"tools": {}});
        peer.result(&id, &hello).await;
        peer.hears("notifications/initialized").await;
        let (id, _) = peer.hears("tools/list").await;
        let little = Duration::from_millis(1);
        tokio::time::sleep(if late { limit + little } else { limit - little }).await;
        if !late {
            peer.result(&id, &serde_json::json!({"tools": []})).await;
        }
        let mut status = upstream.watch();
        let status = status.wait_for(|status| status.state == wanted).await.unwrap().clone();
        assert_eq!(status.cause.is_some_and(|cause| cause.contains("host.limits.listTime")), late);
        upstream.stop();
        tasks.close();
        tasks.wait().await;
    }
}

#[tokio::test(start_paused = true)]
async fn h9_a_server_that_takes_nothing_any_more_is_given_to_nobody_until_it_is_back() {
    let (target, mut peers) = Peer::target();
    let lease = Lease::start(target, Legacy);
    let mut peer = peers.recv().await.unwrap();
    let (id, _) = peer.hears("initialize").await;
    peer.result(&id, &initialized()).await;
    peer.hears("notifications/initialized").await;
    lease.connected().await;
    // The sending half stays open, so that the end goes unnoticed.
    let Peer { heard, say } = peer;
    drop(heard);
    let params = serde_json::json!({ "name": "x" });
    assert_eq!(lease.ask(&Method::ToolsCall, &params).await, Err("Unwritten".to_owned()));
    let ready = tokio::time::timeout(Duration::from_millis(200), lease.upstream.ready());
    assert!(ready.await.is_err(), "whoever asks again would be told the same, again and again");
    drop(say);
    let mut peer = peers.recv().await.unwrap();
    let (id, _) = peer.hears("initialize").await;
    peer.result(&id, &initialized()).await;
    lease.connected().await;
    lease.end().await;
}
