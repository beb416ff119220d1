//! `pool`: calls spread over several leases. On a paused clock, with servers in this process that take one call at a
//! time, as many of those behind a pipe do.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio::time::{Instant, advance, sleep};

use super::support::*;
use crate::config::{Config, Prefix, Server, Sharing, Stdio, Transport};
use crate::in_process::InProcess;
use crate::manager::{Manager, Principal};
use crate::protocol::{Method, Profile, ProtocolVersion, Raw};
use crate::router::{Client, Router};
use crate::transport::Wire;
use crate::upstream::Starter;

/// What the connections to the server have seen.
#[derive(Default)]
struct Seen {
    starts: AtomicUsize,
    /// Which connection, counted from 0, has served each call.
    calls: Mutex<Vec<usize>>,
}

/// What happens to each connection after the first one.
#[derive(Clone, Copy, PartialEq)]
enum More {
    Works,
    /// The server says nothing there.
    Hangs,
    /// The server ends there at once.
    Dies,
}

struct Pools {
    router: Router,
    seen: Arc<Seen>,
}

/// A server that takes one call at a time, on each of its connections. `work` takes a second, `meet` ends once five calls
/// have begun, and `ask` asks the client.
fn serial(seen: &Arc<Seen>, number: usize, meeting: &Arc<Barrier>) -> InProcess {
    let (turn, mut server) = (Arc::new(tokio::sync::Mutex::new(())), InProcess::new("serial", "1"));
    for name in ["work", "meet", "ask"] {
        let definition = Raw::from_value(&json!({ "name": name, "inputSchema": { "type": "object" } }));
        let (seen, turn, meeting) = (seen.clone(), turn.clone(), meeting.clone());
        server = server.tool(definition, move |invocation| {
            let (seen, turn, meeting) = (seen.clone(), turn.clone(), meeting.clone());
            async move {
                let _turn = turn.lock().await;
                seen.calls.lock().unwrap().push(number);
                match name {
                    "work" => sleep(Duration::from_secs(1)).await,
                    "meet" => {
                        meeting.wait().await;
                    }
                    _ => {
                        let schema = json!({ "type": "object", "properties": {} });
                        let params = json!({ "message": "?", "requestedSchema": schema });
                        let answer = invocation.request(Method::Elicit, Some(Raw::from_value(&params))).await;
                        drop(answer);
                    }
                }
                let text = number.to_string();
                Ok(Raw::from_value(&json!({ "content": [{ "type": "text", "text": text }] })))
            }
            .boxed()
        });
    }
    server
}

impl Pools {
    async fn of(more: More, change: impl FnOnce(&mut Config)) -> Self {
        let (seen, meeting) = (Arc::<Seen>::default(), Arc::new(Barrier::new(5)));
        let mut entry = Server::new("script", Transport::Stdio(Stdio::default())).unwrap().pool(5);
        entry.prefix = Prefix::Never;
        let mut config = Config::default();
        config.servers.push(entry);
        change(&mut config);
        let started = seen.clone();
        let kept = Mutex::new(Vec::<Wire>::new());
        let start: Starter = Arc::new(move |wire, tasks| {
            let number = started.starts.fetch_add(1, Ordering::SeqCst);
            match more {
                More::Hangs if number > 0 => kept.lock().unwrap().push(wire),
                More::Dies if number > 0 => drop(wire),
                _ => crate::in_process::Running::new(serial(&started, number, &meeting)).start(wire, tasks),
            }
        });
        let info = Raw::from_value(&json!({ "name": "test", "version": "0" }));
        let memory = HashMap::from([("script".to_owned(), start)]);
        let (manager, news) = Manager::start(config, &memory, info.clone(), None, Default::default());
        let pools = Self { router: Router::start(manager, news, info), seen };
        // The first lease is up from here on.
        pools.answer(&pools.client(), "work").await;
        pools.seen.calls.lock().unwrap().clear();
        pools
    }

    async fn working() -> Self {
        Self::of(More::Works, |_| {}).await
    }

    fn client(&self) -> Arc<Client> {
        self.router.admit(Principal::local(), ProtocolVersion::V2025_11_25, Profile::EMPTY, None)
    }

    fn begin(&self, client: &Arc<Client>, tool: &str) -> Running {
        run(&self.router, client, &call(tool))
    }

    async fn answer(&self, client: &Arc<Client>, tool: &str) -> Value {
        self.begin(client, tool).answer().await
    }

    /// Makes that many calls at once, and returns the connections that served them, in order.
    async fn at_once(&self, count: usize, tool: &str) -> Vec<usize> {
        let client = self.client();
        let calls: Vec<_> = (0..count).map(|_| self.begin(&client, tool)).collect();
        let mut served = Vec::new();
        for call in calls {
            served.push(text(&call.answer().await).parse().unwrap());
        }
        served.sort_unstable();
        served
    }

    fn leases(&self) -> usize {
        self.router.meter().gauges().leases
    }

    async fn until(&self, condition: impl Fn() -> bool) {
        while !condition() {
            tokio::task::yield_now().await;
        }
    }

    fn server(&self) -> Arc<crate::manager::Server> {
        self.router.manager().servers()[0].clone()
    }
}

#[tokio::test(start_paused = true)]
async fn five_calls_are_in_flight_at_a_server_that_takes_one_at_a_time() {
    let pools = Pools::working().await;
    assert_eq!(pools.at_once(5, "meet").await, [0, 1, 2, 3, 4]);
    assert_eq!(pools.leases(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_pool_of_five_is_at_least_four_and_a_half_times_as_fast() {
    let mut times = Vec::new();
    for pool in [1, 5] {
        let pools = Pools::of(More::Works, |config| {
            config.servers[0].pool = pool;
            config.servers[0].call_timeout = Duration::from_secs(600);
        })
        .await;
        let begun = Instant::now();
        pools.at_once(100, "work").await;
        times.push(begun.elapsed());
        assert_eq!(pools.leases(), pool);
    }
    assert!(times[0] >= Duration::from_secs(100) && times[0] >= times[1].mul_f64(4.5), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn limit_pool_one_less_as_many_and_one_more() {
    let pools = Pools::of(More::Works, |config| config.servers[0].pool = 3).await;
    assert_eq!(pools.at_once(2, "work").await, [0, 1]);
    assert_eq!(pools.at_once(3, "work").await, [0, 1, 2]);
    assert_eq!(pools.at_once(4, "work").await, [0, 0, 1, 2]);
    assert_eq!(pools.at_once(9, "work").await, [0, 0, 0, 1, 1, 1, 2, 2, 2], "the fewest calls first");
    assert_eq!(pools.leases(), 3);
}

#[tokio::test(start_paused = true)]
async fn no_lease_opens_while_one_is_idle() {
    let pools = Pools::working().await;
    for _ in 0..5 {
        assert_eq!(pools.at_once(1, "work").await, [0]);
    }
    assert_eq!((pools.leases(), pools.seen.starts.load(Ordering::SeqCst)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_extra_lease_that_idles_for_a_minute_ends_and_the_first_one_stays() {
    let pools = Pools::working().await;
    assert_eq!(pools.at_once(3, "work").await, [0, 1, 2]);
    sleep(Duration::from_secs(30)).await;
    // The second one is used once more.
    assert_eq!(pools.at_once(2, "work").await, [0, 1]);
    sleep(Duration::from_millis(28_900)).await;
    assert_eq!(pools.leases(), 3);
    sleep(Duration::from_millis(200)).await;
    assert_eq!(pools.leases(), 2, "a minute after its call");
    sleep(Duration::from_secs(31)).await;
    assert_eq!(pools.leases(), 1);
    sleep(Duration::from_secs(600)).await;
    assert_eq!((pools.leases(), pools.at_once(1, "work").await), (1, vec![0]));
}

#[tokio::test(start_paused = true)]
async fn a_long_call_keeps_its_extra_lease() {
    let pools = Pools::of(More::Works, |config| config.servers[0].call_timeout = Duration::from_secs(600)).await;
    let client = pools.client();
    let meeting: Vec<_> = (0..4).map(|_| pools.begin(&client, "meet")).collect();
    pools.until(|| pools.seen.calls.lock().unwrap().len() == 4).await;
    sleep(Duration::from_secs(200)).await;
    assert_eq!(pools.leases(), 4);
    let last = pools.begin(&client, "meet");
    for call in meeting.into_iter().chain([last]) {
        assert_eq!(call.answer().await["isError"], Value::Null);
    }
    sleep(Duration::from_secs(61)).await;
    assert_eq!(pools.leases(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_at_a_lease_that_does_not_start_goes_to_one_that_is_free() {
    let pools = Pools::of(More::Hangs, |config| config.servers[0].pool = 2).await;
    let begun = Instant::now();
    assert_eq!(pools.at_once(2, "work").await, [0, 0]);
    assert_eq!(begun.elapsed(), Duration::from_secs(2), "as if there were no pool");
    assert_eq!(pools.at_once(4, "work").await, [0, 0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_fails_to_start_fails_no_call() {
    let pools = Pools::of(More::Dies, |config| config.servers[0].restart.max_retries = 0).await;
    let begun = Instant::now();
    assert_eq!(pools.at_once(3, "work").await, [0, 0, 0]);
    assert_eq!(begun.elapsed(), Duration::from_secs(3));
    assert!(pools.seen.starts.load(Ordering::SeqCst) <= 5, "they are not tried at each call");
    assert_eq!(pools.at_once(6, "work").await, [0; 6]);
    assert!(pools.seen.starts.load(Ordering::SeqCst) <= 5);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_has_a_pool_of_one() {
    let pools = Pools::working().await;
    assert_eq!(pools.at_once(2, "work").await, [0, 1]);
    assert!(pools.server().spreads());
    // The client can answer, so that the question comes to it.
    let asked = pools.router.admit(Principal::local(), ProtocolVersion::V2025_11_25, Profile::ELICITATION_FORM, None);
    let asking = pools.begin(&asked, "ask");
    pools.until(|| !pools.server().asks().is_empty()).await;
    assert!(!pools.server().spreads());
    asking.drop().await;
    let before = pools.seen.calls.lock().unwrap().len();
    let served = pools.at_once(4, "work").await;
    assert!(served.windows(2).all(|two| two[0] == two[1]), "{served:?}");
    assert_eq!(pools.seen.calls.lock().unwrap().len(), before + 4);
    sleep(Duration::from_secs(121)).await;
    assert!(pools.leases() <= 2, "the extra ones are gone");
}

#[tokio::test(start_paused = true)]
async fn limit_max_concurrent_counts_over_all_leases_of_a_pool() {
    let pools = Pools::of(More::Works, |config| config.servers[0].max_concurrent = 2).await;
    let begun = Instant::now();
    let served = pools.at_once(6, "work").await;
    assert_eq!((served, begun.elapsed()), (vec![0, 0, 0, 1, 1, 1], Duration::from_secs(3)));
    assert_eq!(pools.leases(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_pool_takes_no_lease_from_anyone_and_keeps_to_the_limits() {
    for change in
        [(|config: &mut Config| config.host.limits.leases_per_server = 2) as fn(&mut Config), |config: &mut Config| {
            config.host.limits.leases = 2
        }]
    {
        let pools = Pools::of(More::Works, change).await;
        assert_eq!(pools.at_once(4, "work").await, [0, 0, 1, 1]);
        assert_eq!(pools.leases(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn the_leases_of_each_principal_are_a_pool_of_their_own() {
    let pools = Pools::working().await;
    let client =
        |name: &str| pools.router.admit(Principal::named(name), ProtocolVersion::V2025_11_25, Profile::EMPTY, None);
    let (ann, bob) = (client("ann"), client("bob"));
    for client in [&ann, &bob] {
        let two = [pools.begin(client, "work"), pools.begin(client, "work")];
        for call in two {
            assert_eq!(call.answer().await["isError"], Value::Null);
        }
    }
    // The host's own lease, and two of each.
    assert_eq!(pools.leases(), 5);
    let mut calls = pools.seen.calls.lock().unwrap().clone();
    calls.sort_unstable();
    assert_eq!(calls, [1, 2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn clients_without_sessions_and_with_shared_leases_spread_too() {
    for sharing in [Sharing::Auto, Sharing::Profile, Sharing::Host] {
        let pools = Pools::of(More::Works, |config| config.servers[0].sharing = sharing).await;
        let modern = pools.router.modern(Principal::local(), &Raw::trusted(FORM.into())).unwrap();
        let calls: Vec<_> = (0..5).map(|_| pools.begin(&modern, "meet")).collect();
        for call in calls {
            assert_eq!(call.answer().await["isError"], Value::Null, "{sharing:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_cancelled_leaves_its_place() {
    let pools = Pools::of(More::Works, |config| config.servers[0].pool = 2).await;
    let client = pools.client();
    let calls = [pools.begin(&client, "meet"), pools.begin(&client, "meet")];
    pools.until(|| pools.seen.calls.lock().unwrap().len() == 2).await;
    for call in calls {
        call.drop().await;
    }
    assert_eq!(pools.at_once(2, "work").await, [0, 1]);
    advance(Duration::from_secs(61)).await;
    sleep(Duration::from_millis(1)).await;
    assert_eq!(pools.leases(), 1);
}

#[tokio::test(start_paused = true)]
async fn lists_come_from_the_first_lease_and_a_reload_changes_the_pool() {
    let pools = Pools::working().await;
    assert_eq!(pools.at_once(3, "work").await, [0, 1, 2]);
    let status = pools.router.manager().status().remove(0);
    let (words, most) = (status.sharing, status.pool);
    assert_eq!((most, status.leases), (Some(5), 3));
    assert!(
        words.iter().any(|line| line == "pool: up to 5 connections for the same clients, while all are busy"),
        "{words:?}"
    );
    assert_eq!(words.iter().filter(|line| line.contains("one more, while all are busy")).count(), 2, "{words:?}");
    let mut config = Config::default();
    config.servers.push(Server { pool: 1, ..pools.server().config.clone() });
    let mut memory = HashMap::new();
    let seen = pools.seen.clone();
    let start: Starter = Arc::new(move |wire, tasks| {
        let number = seen.starts.fetch_add(1, Ordering::SeqCst);
        crate::in_process::Running::new(serial(&seen, number, &Arc::new(Barrier::new(5)))).start(wire, tasks);
    });
    memory.insert("script".to_owned(), start);
    assert_eq!(pools.router.manager().reload(config, &memory).changed, ["script"]);
    assert_eq!(pools.at_once(3, "work").await, [3, 3, 3]);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(pools.leases(), 1);
}
