//! One world: a manager and a router with scripted servers behind them and clients in front, from start to shutdown, on
//! paused time; and what must hold at its end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::chance::Chance;
use super::client::Person;
use super::crowd::{self, Crowd};
use super::greedy;
use super::guarded;
use super::pinned;
use super::server::{Life, Shape};
use super::tale::Tale;
use super::told::Feed;
use crate::config::{self, CatalogMode, Config, OnLimit, Per, Rate, Sharing, Stdio, Transport};
use crate::manager::Manager;
use crate::protocol::{Message, Method, ProtocolVersion, Raw};
use crate::router::{Mailbox, Router};
use crate::upstream::{Nature, Starter, StateName};

/// The state shared by everyone in a world.
pub(super) struct World {
    seed: u64,
    pub(super) tale: Tale,
    pub(super) servers: Vec<Shape>,
    /// A further, shared server, in worlds without greed.
    pub(super) crowd: Crowd,
    /// How much harm may still happen.
    harm: AtomicI64,
    peace: AtomicBool,
    /// The manager of its host, if that keeps pins.
    pub(super) manager: Mutex<Option<Manager>>,
    /// The legs of requests that were answered, each with its mark: nothing may come on them any more.
    answered: Mutex<Vec<(String, Arc<Mailbox>)>>,
}

/// The outcome of a world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// The hash of all that happened, and when; and the number of events.
    pub(super) hash: (u64, usize),
    /// All of it, line by line.
    pub(super) lines: Vec<String>,
    pub(super) faults: Vec<String>,
    /// How many heartbeats clients got.
    pub(super) beats: u64,
    /// What happened how often: see [`Tale::met`].
    pub(super) met: [u64; 7],
    /// How long it lasted, on its own clock.
    pub(super) lasted: Duration,
}

/// The longest that a world may last.
const DOOMSDAY: Duration = Duration::from_secs(3600);
/// By then, calls that wait for answers are over, and servers are back.
const SETTLED: Duration = Duration::from_secs(120);
/// By then, servers that were given up are retried.
const GIVEN_UP: Duration = Duration::from_secs(310);
/// How long the host may take to end (`docs/hazards.md` H95).
const SHUTDOWN: Duration = Duration::from_secs(17);

/// Runs the world of this seed.
pub(super) fn run(seed: u64) -> Verdict {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let world = World::new(seed);
        let begun = Instant::now();
        if timeout(DOOMSDAY, world.clone().turn()).await.is_err() {
            world.tale.fault(format!("it is not over after {DOOMSDAY:?}"));
        }
        let left = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        if left > 0 {
            world.tale.fault(format!("{left} tasks are left"));
        }
        let (faults, hash) = (world.tale.judge(), world.tale.hash());
        let met = world.tale.met();
        Verdict {
            faults,
            hash,
            met,
            beats: world.tale.beats_so_far(),
            lasted: begun.elapsed(),
            lines: world.tale.lines(),
        }
    })
}

impl World {
    fn new(seed: u64) -> Arc<Self> {
        let chance = Chance::of(seed, 0);
        let servers = (0..1 + chance.below(3)).map(|number| Shape {
            name: format!("s{number}"),
            revision: *chance.pick(&[
                ProtocolVersion::V2025_06_18,
                ProtocolVersion::V2025_11_25,
                ProtocolVersion::LATEST_MODERN,
            ]),
            tells: chance.one_in(2),
            mute: false,
            turns: None,
            for_all: false,
            idles: false,
        });
        let mut servers: Vec<Shape> = servers.collect();
        let chance = Chance::of(seed, 1);
        for shape in &mut servers {
            let other = match shape.revision.is_modern() {
                true => ProtocolVersion::V2025_11_25,
                false => ProtocolVersion::LATEST_MODERN,
            };
            shape.turns = chance.one_in(3).then_some(other);
            shape.mute = chance.one_in(3);
        }
        let harm = i64::try_from(chance.below(8)).unwrap();
        let (tale, crowd) = (Tale::new(), Crowd::new(&Chance::of(seed, 2)));
        let (harm, peace) = (AtomicI64::new(harm), AtomicBool::new(false));
        Arc::new(Self {
            seed,
            tale,
            servers,
            crowd,
            harm,
            peace,
            manager: Mutex::default(),
            answered: Mutex::default(),
        })
    }

    /// Reports whether it has greedy clients.
    pub(super) fn has_greed(&self) -> bool {
        self.chance_of("greedy", 0).one_in(3)
    }

    /// Reports whether its host keeps pins.
    pub(super) fn has_pins(&self) -> bool {
        !self.has_greed() && self.chance_of("pins", 0).one_in(2)
    }

    /// Reports whether its clients are listed the tools that find and call the others.
    pub(super) fn searches(&self) -> bool {
        self.chance_of("search", 0).one_in(2)
    }

    /// Returns the randomness for this name and number.
    pub(super) fn chance_of(&self, name: &str, number: u64) -> Chance {
        let word = name.bytes().fold(number, |word, byte| word.wrapping_mul(257).wrapping_add(u64::from(byte)));
        Chance::of(self.seed, word)
    }

    /// Records that a request was answered, and that its client has read everything before the answer.
    pub(super) fn answered(&self, mark: &str, leg: Arc<Mailbox>) {
        self.answered.lock().unwrap().push((mark.to_owned(), leg));
    }

    /// Reports whether a server may do harm now, and counts it.
    pub(super) fn may_harm(&self) -> bool {
        !self.peace.load(Ordering::Relaxed) && self.harm.fetch_sub(1, Ordering::Relaxed) > 0
    }

    /// Waits at random; in peace everyone is quick.
    pub(super) async fn wait(&self, chance: &Chance) {
        if self.peace.load(Ordering::Relaxed) { tokio::task::yield_now().await } else { chance.wait().await }
    }

    async fn turn(self: Arc<Self>) {
        let router = self.start();
        let feed = Feed::open(&router);
        let chance = self.chance_of("persons", 0);
        let mut person = JoinSet::new();
        person.spawn(guarded::decide(self.clone(), router.clone()));
        if self.has_pins() {
            person.spawn(pinned::approve(self.clone(), router.clone()));
        }
        let mut persons: Vec<_> = (0..2 + chance.below(5)).map(|number| Person::new(&self, &router, number)).collect();
        if self.has_greed() {
            persons.extend(greedy::persons(&self, &router));
        }
        let members = if self.has_greed() { Vec::new() } else { crowd::persons(&self, &router, &self.crowd) };
        persons.extend(members.iter().cloned());
        let mut lives: JoinSet<_> = persons.iter().map(|person| person.clone().live()).collect();
        while let Some(life) = lives.join_next().await {
            life.unwrap();
        }
        self.tale.tell("peace");
        self.peace.store(true, Ordering::Relaxed);
        tokio::time::sleep(GIVEN_UP).await;
        let names: Vec<String> = self.servers.iter().map(|shape| shape.name.clone()).collect();
        let last = Person::new(&self, &router, 99);
        last.clone().call_each(&names).await;
        if !self.has_greed() {
            crowd::settle(&self, &router, &self.crowd, &members).await;
        }
        tokio::time::sleep(SETTLED).await;
        person.abort_all();
        guarded::check(&self, &router);
        self.check(&router, &persons);
        self.crowd.check(&self);
        for person in persons.iter().chain([&last]) {
            person.go();
        }
        let over = async {
            router.shutdown().await;
            router.manager().shutdown().await;
        };
        if timeout(SHUTDOWN, over).await.is_err() {
            self.tale.fault(format!("the host is alive {SHUTDOWN:?} after its shutdown began"));
        }
        feed.check(&self.tale);
        self.manager.lock().unwrap().take();
        drop(router);
        // Gives ending requests a moment.
        tokio::time::sleep(Duration::from_secs(10)).await;
    }

    fn start(self: &Arc<Self>) -> Router {
        let chance = self.chance_of("config", 0);
        let mut config = Config::default();
        let mut starters = HashMap::new();
        for shape in &self.servers {
            let pools = self.chance_of(&shape.name, 0);
            let pool = if pools.one_in(4) { 2 + usize::try_from(pools.below(3)).unwrap() } else { 1 };
            let sharing = *chance.pick(&[Sharing::Auto, Sharing::Auto, Sharing::Session, Sharing::Host]);
            let idle = self.chance_of(&shape.name, 1030);
            let idles = idle.one_in(3) && !self.has_greed();
            let shape = Shape { for_all: sharing == Sharing::Host, idles, ..shape.clone() };
            let entry = self.add(&mut config, &mut starters, shape.clone(), sharing);
            let few = chance.one_in(4);
            // Abandoned calls keep their slots: a client that abandons two takes both.
            entry.max_concurrent = if few && !self.has_greed() { 2 } else { 0 };
            entry.queue_timeout = Duration::from_secs(10);
            entry.pool = pool;
            if idles {
                // Calls come while it is being stopped, and start it again.
                entry.idle_stop = Duration::from_millis(200 + idle.below(2000));
            }
            entry.era = match chance.below(3) {
                0 if shape.revision.is_modern() => config::Era::Modern,
                0 => config::Era::Legacy,
                _ => config::Era::Auto,
            };
            if shape.turns.is_some() {
                entry.era = config::Era::Auto;
            }
            entry.restart.max_retries = if chance.one_in(4) { 1 } else { 1000 };
            if !self.has_greed() {
                guarded::settings(entry, &self.chance_of(&shape.name, 1020));
            }
        }
        if !self.has_greed() {
            let chance = self.chance_of("crowd", 0);
            self.add(&mut config, &mut starters, Crowd::shape(&chance), Sharing::Auto);
            config.servers.last_mut().unwrap().restart.max_retries = 1000;
        }
        let chance = self.chance_of("limits", 0);
        config.host.heartbeat = Duration::from_millis(1000 + chance.below(3000));
        if !self.has_greed() && chance.one_in(3) {
            // A client that makes several calls at once waits for its rate.
            let rate = Rate { burst: 1, on_limit: OnLimit::Wait, ..Rate::new(4, Per::Second) };
            config.host.rates.principal = Some(rate);
        }
        guarded::rules(&mut config);
        if self.has_pins() {
            pinned::settings(&mut config);
        }
        if self.searches() {
            config.host.catalog.mode = CatalogMode::Search;
        }
        let limits = &mut config.host.limits;
        limits.answer = Duration::from_secs(20);
        limits.session_idle = Duration::from_secs(60);
        limits.healthy = Duration::from_secs(10);
        if self.has_greed() {
            greedy::tighten(limits, self.servers.len());
        }
        let info = Raw::from_value(&json!({ "name": "world", "version": "0" }));
        let numbers = self.chance_of("nature", 0);
        let (begun, chance) = (Instant::now(), Arc::new(move || numbers.unit()));
        let nature = Nature { chance, outside: Arc::new(move || begun.elapsed()), lineage: Arc::default() };
        let (manager, news) = Manager::start_in(nature, config, &starters, info.clone(), None, Default::default());
        if self.has_pins() {
            manager.keep_simulated_pins();
            *self.manager.lock().unwrap() = Some(manager.clone());
        }
        Router::start(manager, news, info)
    }

    /// Adds a server to a config.
    fn add<'a>(
        self: &Arc<Self>,
        config: &'a mut Config,
        starters: &mut HashMap<String, Starter>,
        shape: Shape,
        sharing: Sharing,
    ) -> &'a mut config::Server {
        let mut entry = config::Server::new(&shape.name, Transport::Stdio(Stdio::default())).unwrap();
        entry.sharing = sharing;
        entry.start_timeout = Duration::from_secs(5);
        entry.call_timeout = Duration::from_secs(5);
        entry.max_call_time = Duration::from_secs(40);
        let (world, lives) = (self.clone(), AtomicU64::new(0));
        let start: Starter = Arc::new(move |wire, _| {
            tokio::spawn(Life::begin(&world, &shape, lives.fetch_add(1, Ordering::Relaxed), wire));
        });
        starters.insert(entry.name.clone(), start);
        config.servers.push(entry);
        config.servers.last_mut().unwrap()
    }

    /// Checks that nothing is left once nothing is in flight.
    fn check(&self, router: &Router, persons: &[Arc<Person>]) {
        let count = router.0.calls.parked.table.len();
        if count > 0 {
            self.tale.fault(format!("{count} calls are parked"));
        }
        for person in persons.iter().filter_map(|person| person.session()) {
            let (idle, asked) = (person.is_idle(), person.questions());
            if !idle || asked > 0 {
                self.tale.fault(format!("a session is idle: {idle}, and has {asked} questions"));
            }
        }
        for (mark, leg) in self.answered.lock().unwrap().iter() {
            while let Some(message) = leg.try_next() {
                if matches!(&message, Message::Notification(notice) if notice.method == Method::Progress) {
                    self.tale.fault(format!("{mark}: progress after its answer: {message:?}"));
                }
            }
        }
        for client in router.present() {
            if !client.is_idle() || client.questions() > 0 {
                self.tale.fault(format!("{:?} has {} questions or is not idle", client.owner(), client.questions()));
            }
        }
        for server in router.manager().servers().iter() {
            if server.slots.as_ref().is_some_and(|slots| slots.count() != (0, 0)) {
                self.tale.fault(format!("{}: a slot is not given back", server.label));
            }
            if server.berths() > 0 {
                self.tale.fault(format!("{}: {} places in its pool are not given back", server.label, server.berths()));
            }
            for upstream in server.upstreams() {
                let state = upstream.status().state;
                let given_up = state == StateName::Failed && server.config.restart.max_retries == 1;
                if !given_up && !matches!(state, StateName::Connected | StateName::Idle) {
                    self.tale.fault(format!("{} sticks in {state}", server.label));
                }
                if upstream.lane().available_permits() != 1 {
                    self.tale.fault(format!("{}: a lane is not given back", server.label));
                }
                let left = upstream.connection().map(|connection| connection.leftovers()).unwrap_or_default();
                if left != [0; 3] {
                    self.tale.fault(format!("{}: requests, questions, listens are left: {left:?}", server.label));
                }
            }
        }
    }
}
