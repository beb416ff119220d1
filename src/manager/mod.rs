//! All servers: the leases that serve clients, and the catalogs that clients see. A lease is one connection to a server
//! (a process or a session) with the clients that may use it.
//!
//! In: the config, and clients that need a server. Out: leases, catalogs, statuses, events.
//!
//! Clients of one person share leases as far as their servers cannot tell them apart (`lease.rs`; `docs/bridging.md` 15
//! has the rules). A list request starts a private lease only after it is answered; otherwise only a call starts one. A
//! call to an unlisted name with the alias of a server that never listed waits for that server (`router/find.rs`).
//!
//! **Invariant:** a failed or slow server does not affect other servers, and no list request waits for it longer than
//! `startupWait`. Start reading at `lease.rs` (who may share), then `leases.rs` (the table).

mod answers;
mod asked;
mod budget;
mod claims;
mod eras;
mod fresh;
#[cfg(feature = "server")]
mod gauges;
mod held;
mod kept;
mod known;
mod last;
mod lease;
mod leases;
pub(crate) mod ledger;
mod list_key;
mod listed;
mod lists;
mod looks;
#[cfg(feature = "server")]
mod needs;
mod pinned;
mod pins;
mod pool;
mod rates;
mod recall;
mod reload;
mod results;
mod review;
mod room;
mod sharing;
mod sight;
mod slots;
mod spread;
mod starts;
mod status;
mod supervisor;
mod told;
mod twins;
mod unlearn;
mod unused;
mod view;
mod wants;
mod words;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

#[cfg(feature = "server")]
pub use answers::CacheStatus;
pub(crate) use answers::{Answers, Kept, Key as AnswerKey, Writes, Writing};
pub(crate) use asked::Asked;
pub(crate) use claims::Claims;
#[cfg(feature = "server")]
pub(crate) use gauges::ServerGauges;
pub(crate) use lease::{Chosen, Identity, Lists, Principal, Viewed, Who};
pub(crate) use leases::{NoLease, Stay};
pub use ledger::{Ledger, ServerTokens};
#[cfg(feature = "server")]
pub use needs::{Need, Needed};
pub use pins::DefinitionNews;
pub(crate) use pool::Pool;
pub(crate) use rates::{Held, Over, RateKey, RateTable, Ticket};
pub(crate) use reload::Calling;
pub use reload::{ConfigStatus, Reload};
pub(crate) use room::{Parking, Waiting, share};
#[cfg(test)]
pub(crate) use sight::{Scope, Sight};
pub(crate) use slots::{Slot, Slots, ToolSlots};
pub(crate) use spread::Berth;
pub use status::ServerStatus;
pub(crate) use told::Told;
pub(crate) use view::View;

use {known::Known, last::LastOffers};

use crate::auth::{Authorizer, Keychain};
use crate::config::{self, Config};
use crate::counts::ServerCounts;
use crate::exposed::{Naming, UriMode};
use crate::lineage::HostId;
use crate::lock::lock;
use crate::observe::Whose;
use crate::protocol::Raw;
use crate::redact::{Learned, Scrubber};
#[cfg(any(feature = "validate", test))]
use crate::registry::SchemaOf;
use crate::registry::{Offer, Owners, Parts, ServerNaming};
use crate::transport::{Endpoint, Listeners};
pub(crate) use crate::upstream::StateName;
use crate::upstream::{self, Connection, Inferred, Nature, Relayed, Starter, Target, Vigil, World};

/// One change of a server's state.
///
/// ```
/// # fn tell(change: &mcp_host::StateChange) {
/// println!("{}: {} -> {}", change.server, change.from, change.to);
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StateChange {
    /// The server's name in the config.
    pub server: String,
    /// The state before.
    pub from: StateName,
    /// The state now.
    pub to: StateName,
    /// Why, if there is a reason.
    pub cause: Option<String>,
    /// When it changed.
    pub at: SystemTime,
}

/// One server of the config.
#[derive(Debug)]
pub(crate) struct Server {
    /// Unique in this process: never reused for another server.
    pub(crate) id: usize,
    pub(crate) config: config::Server,
    /// How its URIs are shown.
    pub(crate) uris: UriMode,
    /// Its name in errors and logs.
    pub(crate) label: Arc<str>,
    /// Removes the server's secrets from logs and messages about it.
    pub(crate) scrubber: Arc<Scrubber>,
    /// The server's label and scrubber, for listeners of calls.
    pub(crate) whose: Arc<Whose>,
    naming: Arc<ServerNaming>,
    target: Option<Target>,
    /// Whether its config has credentials for it.
    brings_credentials: bool,
    /// The state and the reason, if the server is never started: it is disabled, or failed because of its config.
    fixed: Option<(StateName, String)>,
    leases: Mutex<leases::Table>,
    /// Calls in flight.
    calling: AtomicUsize,
    /// The server's part of catalogs.
    parts: Parts,
    /// Its last lists: a hint for clients that have no lease yet.
    last_offers: LastOffers,
    /// The questions (requests to clients) that it is known to ask, and its key in the record of these.
    traits: sharing::Traits,
    /// Whether its lists from earlier runs are kept, and read.
    kept: kept::KeptState,
    /// Which of its definitions may be shown.
    pinned: pinned::Pinned,
    /// Whether the server is this host itself, so that it gets no more requests.
    is_this_host: AtomicBool,
    /// Whether it speaks both eras (with sessions and without).
    eras: Arc<eras::Eras>,
    known: Arc<Known>,
    /// The state last reported to users, and since when.
    shown: Mutex<Option<(StateName, Instant)>>,
    since: Instant,
    calls: AtomicU64,
    /// Its counters.
    counts: OnceLock<Arc<ServerCounts>>,
    /// `maxConcurrent`: calls above it wait, first come first served.
    pub(crate) slots: Option<Slots>,
    /// The same for single tools.
    pub(crate) tool_slots: ToolSlots,
    /// `pool`: several leases of one key, if it may have them.
    pub(crate) pool: Option<Pool>,
    /// The rules about what it may ask clients, if there are any.
    questions: sight::Questions,
    /// The schemas of its tools that calls cannot be checked against: the tool, which of its schemas, and why.
    unchecked: Mutex<BTreeMap<(String, &'static str), String>>,
}

impl Server {
    fn new(
        config: config::Server,
        memory: Option<Starter>,
        host: &config::HostSettings,
        known: &Arc<Known>,
        keys: &Keychain,
        presets: &Learned,
    ) -> Self {
        let resources = host.naming.resources;
        let mut scrubber = config.scrubber();
        scrubber.follow(presets);
        let naming = Arc::new(ServerNaming {
            prefix: config.prefix,
            include: config.include_tools.clone(),
            exclude: config.exclude_tools.clone(),
            rename: config.rename.clone().into_iter().collect(),
        });
        let traits = sharing::Traits::of(known, &config.transport, memory.is_some());
        let (target, fixed) = match (&config.disabled, &config.unusable, memory) {
            (Some(reason), ..) => (None, Some((StateName::Disabled, reason.clone()))),
            (None, Some(reason), _) => (None, Some((StateName::Failed, reason.to_string()))),
            (None, None, Some(start)) => (Some(Target::Memory(start)), None),
            (None, None, None) => (Some(target(&config, keys)), None),
        };
        static IDS: AtomicUsize = AtomicUsize::new(0);
        let eras = eras::Eras::of(&config, known, matches!(target, Some(Target::Memory(_))));
        let (label, scrubber) = (Arc::<str>::from(config.alias.as_str()), Arc::new(scrubber));
        let slots = (config.max_concurrent > 0).then(|| Slots::new(config.max_concurrent));
        Self {
            id: IDS.fetch_add(1, Ordering::Relaxed),
            slots,
            tool_slots: ToolSlots::default(),
            pool: Pool::of(&config),
            uris: config.prefix.uris(resources),
            whose: Arc::new(Whose { server: label.clone(), scrubber: scrubber.clone() }),
            label,
            scrubber,
            brings_credentials: config.brings_credentials(),
            pinned: pinned::Pinned::new(host, &config),
            config,
            naming,
            target,
            fixed,
            leases: Mutex::default(),
            parts: Parts::default(),
            last_offers: LastOffers::default(),
            traits,
            kept: kept::KeptState::default(),
            is_this_host: AtomicBool::new(false),
            eras: eras.into(),
            known: known.clone(),
            shown: Mutex::default(),
            since: Instant::now(),
            calls: AtomicU64::new(0),
            counts: OnceLock::new(),
            calling: AtomicUsize::new(0),
            questions: sight::Questions::default(),
            unchecked: Mutex::default(),
        }
    }

    /// Returns the memory of the server's era across runs. A server in this process has no such memory.
    fn era_memory(&self) -> upstream::Memory {
        if matches!(self.target, Some(Target::Memory(_))) {
            return upstream::Memory::none();
        }
        let key: Arc<str> = known::era_key(&self.config.transport).into();
        let (known, recalled) = ((self.known.clone(), key.clone()), (self.known.clone(), key));
        upstream::Memory {
            recall: Arc::new(move || recalled.0.era(&recalled.1, SystemTime::now())),
            note: Arc::new(move |era| known.0.note_era(&known.1, era, SystemTime::now())),
            ..upstream::Memory::none()
        }
    }

    /// Takes over the lists from the previous server of this name until the new one has listed. Only if both are the
    /// same server with the same secrets: another account must not see them.
    fn inherit(&self, before: &Self) {
        if self.target.is_some() && self.lists_as(before) {
            self.last_offers.inherit(&before.last_offers);
        }
    }

    /// Returns the authorizer that gets access tokens for the server, if the server may require them.
    pub(crate) fn tokens(&self) -> Option<&Arc<Authorizer>> {
        self.target.as_ref().and_then(Target::tokens)
    }

    /// Notes that calls cannot be checked against a schema of a tool.
    #[cfg(any(feature = "validate", test))]
    pub(crate) fn cannot_check(&self, tool: &str, which: SchemaOf, why: String) {
        let mut unchecked = lock(&self.unchecked);
        if unchecked.len() < UNCHECKED {
            unchecked.insert((tool.to_owned(), which.member()), why);
        }
    }

    /// Notes that calls are checked against a schema of a tool.
    #[cfg(any(feature = "validate", test))]
    pub(crate) fn can_check(&self, tool: &str, which: SchemaOf) {
        let mut unchecked = lock(&self.unchecked);
        if !unchecked.is_empty() {
            unchecked.remove(&(tool.to_owned(), which.member()));
        }
    }

    /// Returns the server's counters.
    pub(crate) fn counts(&self) -> &Arc<ServerCounts> {
        self.counts.get_or_init(Arc::default)
    }
}

fn target(config: &config::Server, keys: &Keychain) -> Target {
    let endpoint = |remote: &config::Remote| {
        let tokens = match &remote.auth {
            config::Auth::OAuth(oauth) => Some(Authorizer::new(&config.name, remote, oauth, keys)),
            config::Auth::Headers => None,
        };
        Endpoint::new(&config.name, remote.clone(), tokens)
    };
    match &config.transport {
        config::Transport::Stdio(stdio) => Target::Stdio(stdio.clone()),
        config::Transport::Http(remote) => Target::Http(endpoint(remote)),
        config::Transport::Sse(remote) => Target::Sse(endpoint(remote)),
        config::Transport::Auto(remote) => Target::Auto(endpoint(remote), Inferred::default()),
    }
}

/// All servers; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Manager(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// In config order.
    servers: ArcSwap<Vec<Arc<Server>>>,
    /// Servers of earlier configs that have calls to finish.
    retired: Mutex<Vec<Arc<Server>>>,
    settings: ArcSwap<config::HostSettings>,
    limits: ArcSwap<config::Limits>,
    config: watch::Sender<ConfigStatus>,
    naming: Arc<Naming>,
    client_info: Raw,
    world: World,
    events: broadcast::Sender<StateChange>,
    #[cfg(feature = "otel")]
    logins: broadcast::Sender<crate::auth::LoginEnd>,
    /// The listeners for what servers write to users: log messages and standard error.
    spoken: Listeners,
    tasks: TaskTracker,
    next_lease: AtomicU64,
    /// Counts the leases of all servers.
    leases: Arc<held::LeaseCounts>,
    /// Finds the calls that wait for their clients to come back with answers.
    parking: OnceLock<Weak<dyn Parking>>,
    owners: Mutex<Owners>,
    /// The offer of a server that has not listed yet.
    nothing: Arc<Offer>,
    known: Arc<Known>,
    /// The records of what was approved.
    pins: OnceLock<Arc<pins::Keeper>>,
    /// The counts of calls against their rates.
    rates: Arc<RateTable>,
    /// The cached answers of servers.
    answers: Arc<Answers>,
    wants: wants::Wants,
    /// The lists on disk for the next start, if lists are kept.
    kept: OnceLock<Arc<kept::Kept>>,
    /// Queues the starts of leases, so that they do not delay the first list.
    starts: Arc<starts::Starts>,
    /// Credentials shared by servers that require access tokens.
    keys: Keychain,
    catalogs: Mutex<view::Catalogs>,
    /// Principals that may not see or call everything.
    limited: sight::Limited,
    views: ArcSwap<sight::Views>,
    /// The policy of the embedding program.
    program: OnceLock<sight::Program>,
    /// Values that views preset for arguments and that must not be shown.
    presets: Learned,
    looks: Mutex<looks::Looks>,
    /// The listen address of the endpoint that serves the page.
    #[cfg(feature = "server")]
    page: OnceLock<std::net::SocketAddr>,
    /// Set if no person makes decisions at this mcp-host.
    unattended: OnceLock<()>,
    scripts: crate::transport::ScriptProgram,
    stop: tokio_util::sync::CancellationToken,
}

/// The most schemas that are noted as unusable.
#[cfg(any(feature = "validate", test))]
const UNCHECKED: usize = 100;

/// Messages from servers to the router.
pub(crate) type News = mpsc::Receiver<(u64, Arc<Connection>, Relayed)>;

/// How many state changes a slow reader may lag behind.
const EVENTS: usize = 256;
const RELAYED: usize = 4096;
const CHANGES: usize = 4096;

impl Manager {
    /// Creates the manager and starts its eager servers, with real randomness and the real clock.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn start(
        config: Config,
        memory: &HashMap<String, Starter>,
        client_info: Raw,
        state: Option<&Path>,
        keys: Keychain,
    ) -> (Self, News) {
        Self::start_in(Nature::real(), config, memory, client_info, state, keys)
    }

    /// Creates the manager and starts its eager servers.
    pub(crate) fn start_in(
        nature: Nature,
        config: Config,
        memory: &HashMap<String, Starter>,
        client_info: Raw,
        state: Option<&Path>,
        keys: Keychain,
    ) -> (Self, News) {
        let (relay, news) = mpsc::channel(RELAYED);
        let (changes, changed) = mpsc::channel(CHANGES);
        let mut world = World::new(keys.dialer(), relay, changes, nature);
        world.state = state.map(Arc::from);
        let known = Arc::new(Known::load(state));
        let presets = Learned::default();
        let servers = servers(config.servers, memory, &config.host, &known, &keys, &presets);
        let spoken = Listeners::default();
        reload::count(spoken.record().counts(), &servers, &config.host);
        let each: Vec<_> = servers.iter().collect();
        let views = sight::Views::new((&config.host, None), &each, &config.host.naming, &sight::Views::default());
        let manager = Self(Arc::new(Inner {
            servers: ArcSwap::from_pointee(servers),
            retired: Mutex::default(),
            naming: config.host.naming.clone().into(),
            limits: ArcSwap::from_pointee(config.host.limits.clone()),
            settings: ArcSwap::from_pointee(config.host),
            config: watch::Sender::new(ConfigStatus { files: config.files, ..ConfigStatus::default() }),
            client_info,
            world,
            events: broadcast::Sender::new(EVENTS),
            #[cfg(feature = "otel")]
            logins: broadcast::Sender::new(EVENTS),
            spoken,
            tasks: TaskTracker::new(),
            next_lease: AtomicU64::new(1),
            leases: Arc::default(),
            parking: OnceLock::new(),
            owners: Mutex::default(),
            nothing: Arc::default(),
            known,
            pins: OnceLock::new(),
            rates: Arc::new(RateTable::load(state)),
            answers: Arc::default(),
            wants: wants::Wants::default(),
            kept: OnceLock::new(),
            starts: Arc::default(),
            keys,
            catalogs: Mutex::default(),
            limited: sight::Limited::default(),
            views: ArcSwap::from_pointee(views),
            program: OnceLock::new(),
            presets,
            looks: Mutex::default(),
            #[cfg(feature = "server")]
            page: OnceLock::new(),
            unattended: OnceLock::new(),
            scripts: crate::transport::ScriptProgram::default(),
            stop: tokio_util::sync::CancellationToken::new(),
        }));
        manager.note_rules();
        manager.follow_limits();
        manager.follow_logins();
        manager.0.tasks.spawn(supervisor::run(manager.clone(), changed));
        manager.0.tasks.spawn(manager.0.world.vigil.clone().keep(manager.0.stop.clone()));
        manager.0.tasks.spawn(manager.0.starts.clone().run(manager.0.stop.clone()));
        for server in manager.servers().iter() {
            manager.start_eager(server);
            manager.close_unused(server);
        }
        (manager, news)
    }

    /// Returns the server with this id, unless it was removed.
    pub(crate) fn server(&self, id: usize) -> Option<Arc<Server>> {
        self.0.servers.load().iter().find(|server| server.id == id).cloned()
    }

    /// Returns all servers, in config order.
    pub(crate) fn servers(&self) -> Arc<Vec<Arc<Server>>> {
        self.0.servers.load_full()
    }

    pub(crate) fn settings(&self) -> Arc<config::HostSettings> {
        self.0.settings.load_full()
    }

    /// Reports whether these settings are still the current ones.
    #[cfg(feature = "server")]
    pub(crate) fn has_settings(&self, settings: &Arc<config::HostSettings>) -> bool {
        Arc::ptr_eq(&self.0.settings.load(), settings)
    }

    /// Replaces the host's settings, but no server.
    #[cfg(test)]
    pub(crate) fn configure(&self, change: impl FnOnce(&mut config::HostSettings)) {
        let mut settings = config::HostSettings::clone(&self.settings());
        change(&mut settings);
        self.set(settings);
        self.see(self.servers().iter());
        self.0.config.send_modify(|status| status.reloads += 1);
        self.touch();
    }

    pub(crate) fn limits(&self) -> Arc<config::Limits> {
        self.0.limits.load_full()
    }

    fn set(&self, settings: config::HostSettings) {
        self.0.limits.store(Arc::new(settings.limits.clone()));
        self.0.settings.store(Arc::new(settings));
        self.follow_limits();
    }

    /// Returns the host id in our responses, by which a host that connects to itself notices it.
    pub(crate) fn host_id(&self) -> Option<&HostId> {
        self.0.world.nature.lineage.id()
    }

    /// Returns the detector of sleeps of the machine.
    pub(crate) fn vigil(&self) -> &Vigil {
        &self.0.world.vigil
    }

    /// Subscribes to a counter that grows with every change of a server's state or lists.
    pub(crate) fn generation(&self) -> watch::Receiver<u64> {
        self.0.world.generation.subscribe()
    }

    /// Counts the running tasks, connections included.
    #[cfg(test)]
    pub(crate) fn running_tasks(&self) -> usize {
        self.0.tasks.len()
    }

    /// Stops every server, and returns once no process is left.
    pub(crate) async fn shutdown(&self) {
        self.stop();
        self.0.keys.shutdown().await;
        self.0.tasks.close();
        self.0.tasks.wait().await;
        self.0.known.written().await;
        self.0.rates.written().await;
    }

    /// Kills the remaining processes of servers that are being stopped.
    pub(crate) fn kill(&self) {
        self.0.world.kill.cancel();
    }

    /// Stops every server, without waiting.
    pub(crate) fn stop(&self) {
        self.0.stop.cancel();
        self.0.keys.stop();
        for server in self.servers().iter().chain(lock(&self.0.retired).iter()) {
            server.close();
        }
    }

    fn is_stopping(&self) -> bool {
        self.0.stop.is_cancelled()
    }

    fn touch(&self) {
        self.0.world.generation.send_modify(|generation| *generation += 1);
    }

    /// Returns how long a call that wants progress may be silent before its client gets a heartbeat; 0 means forever.
    pub(crate) fn heartbeat(&self) -> Duration {
        self.0.settings.load().heartbeat
    }

    /// Returns how long the first list may wait for starting servers.
    pub(crate) fn startup_wait(&self) -> Duration {
        self.settings().startup_wait
    }
}

fn servers(
    configs: Vec<config::Server>,
    memory: &HashMap<String, Starter>,
    host: &config::HostSettings,
    known: &Arc<Known>,
    keys: &Keychain,
    presets: &Learned,
) -> Vec<Arc<Server>> {
    presets.learn(&host.preset_scrubber());
    let server = |mut config: config::Server| {
        let start = memory.get(&config.name).cloned();
        config.inherit(&host.inherit_env);
        config.confine(host.sandbox.as_ref());
        Arc::new(Server::new(config, start, host, known, keys, presets))
    };
    configs.into_iter().map(server).collect()
}
