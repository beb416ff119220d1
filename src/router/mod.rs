//! The meaning: which server gets a request, under which name, and how the answer comes back.
//!
//! In: requests of [`Client`]s, from doors and from the embedding program. Out: answers, by type ([`Answered`]) up to the
//! door that writes them, and in [`Mailbox`]es what comes before or beside them.
//!
//! Client and server of different eras differ above all in how a server asks its client: a legacy server sends a
//! request while it works, a modern one ends its work with a result that asks and is called again with the answers. So
//! `call.rs` takes one of four ways:
//!
//! | client | server | way |
//! |---|---|---|
//! | legacy | legacy | the question goes on under another id (`put.rs`) |
//! | legacy | modern | each result becomes requests, and the answers go into the next call (`driver.rs`) |
//! | modern | legacy | the call is parked: its own task holds the exchange, the client is sent away with the questions, and `requestState` leads its next request back (`park.rs`, `missed.rs`) |
//! | modern | modern | the result passes, its state sealed for the client; nothing is kept here (`relay.rs`) |
//!
//! **Invariant:** a question of a server reaches exactly the client whose call caused it, or no client. Start reading
//! at [`Router::request`], then `call.rs`.

mod answer;
mod ask_guard;
mod ask_roots;
mod call;
mod changed;
mod client;
mod clients;
mod clocks;
mod driver;
mod extensions;
mod find;
mod finish;
mod forward;
#[cfg_attr(not(feature = "server"), allow(dead_code, unreachable_pub, reason = "only the status asks"))]
mod gauges;
#[cfg(feature = "server")]
mod invite;
mod level;
mod list;
mod mailbox;
mod missed;
mod modern;
mod named;
mod news;
mod observed;
mod park;
mod parked;
mod parking;
mod plan;
mod presence;
mod put;
mod question;
mod reach;
mod relay;
mod resource;
mod rewatch;
mod rising;
mod roots;
mod roster;
mod route;
mod running;
mod standing;
mod state;
mod subscribe;
mod tasks;
mod toward;
mod verdict;
mod wanted;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use client::{Client, Place, is_part};
#[cfg(feature = "server")]
pub use gauges::Gauges;
#[cfg(feature = "server")]
pub(crate) use gauges::{Held, Holds, Usage};
pub(crate) use mailbox::Mailbox;
pub(crate) use named::Named;
pub(crate) use presence::Via;
pub use roster::{ClientChange, ClientEvent, ClientEvents, ClientNews, ClientStatus};

use crate::answered::Answered;
use crate::config;
pub(crate) use crate::manager::Principal;
use crate::manager::{Manager, News, ServerStatus, Who};
use crate::observe::Observer;
use crate::protocol::{
    ErrorObject, Method, Notification, Outcome, Profile, ProtocolVersion, Raw, Request, RequestId, Response, Theirs,
    code,
};
use crate::queues::{Account, Queues};
use answer::Failure;
use client::Refused;
use roster::Roster;
use route::Routed;
use wanted::Wanted;

/// Routes what clients say to the servers and back; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Router(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    manager: Manager,
    clients: clients::Clients,
    /// Clients without a session.
    modern: modern::Pool,
    /// What such clients listen to.
    listens: subscribe::Listens,
    /// Calls that wait for answers of such clients.
    parked: Arc<parked::Table>,
    /// What waits for all clients.
    queues: Queues,
    sealer: state::Sealer,
    /// Requests being served, of all clients.
    load: Arc<AtomicUsize>,
    /// Tasks that clients know of.
    known_tasks: tasks::Registry,
    /// What else tells what it holds.
    doors: gauges::Doors,
    /// Who is shown to people as a client, and who hears of it.
    roster: Roster,
    finish: finish::Finish,
    /// Tools of the host itself.
    own_tools: OnceLock<Box<[Arc<dyn route::OwnTool>]>>,
    /// Where it is told what becomes of each request.
    observer: Observer,
    tasks: TaskTracker,
    /// The host ends: new requests are refused,
    closing: CancellationToken,
    /// and then those that still run are answered as they are.
    ending: CancellationToken,
    stop: CancellationToken,
}

/// How long requests that are cut off may take to be answered.
const ANSWERED: Duration = Duration::from_millis(500);
const TICK: Duration = Duration::from_millis(5);

impl Router {
    /// Makes the router and its tasks.
    pub(crate) fn start(manager: Manager, news: News, server_info: Raw) -> Self {
        let closing = CancellationToken::new();
        let queues = Queues::new(manager.settings().limits.client_queues);
        let router = Self(Arc::new(Inner {
            manager,
            queues,
            clients: clients::Clients::default(),
            modern: modern::Pool::default(),
            listens: subscribe::Listens::default(),
            parked: Arc::default(),
            sealer: state::Sealer::new(),
            load: Arc::default(),
            known_tasks: tasks::Registry::default(),
            doors: gauges::Doors::default(),
            roster: Roster::new(closing.clone()),
            finish: finish::Finish::new(server_info),
            own_tools: OnceLock::new(),
            observer: Observer::default(),
            tasks: TaskTracker::new(),
            closing,
            ending: CancellationToken::new(),
            stop: CancellationToken::new(),
        }));
        let parked: Weak<parked::Table> = Arc::downgrade(&router.0.parked);
        router.0.manager.park_at(parked);
        router.0.tasks.spawn(news::relay(router.clone(), news));
        router.0.tasks.spawn(news::tell_changes(router.clone()));
        router.0.tasks.spawn(modern::reap(router.clone()));
        router
    }

    /// Serves `initialize`: makes the client and the result. What waits for it counts for `account`. It never waits for a
    /// server.
    ///
    /// # Errors
    /// `-32602` when the params have no `protocolVersion`.
    pub(crate) fn open(
        &self,
        principal: Principal,
        params: Option<&Raw>,
        account: Account,
    ) -> Result<(Arc<Client>, Raw), ErrorObject> {
        let missing = || ErrorObject::invalid_params("initialize: `protocolVersion` is missing");
        let params = params.ok_or_else(missing)?;
        let wanted = params.text("protocolVersion").ok_or_else(missing)?;
        let revision = ProtocolVersion::parse_handshake(&wanted).unwrap_or(ProtocolVersion::LATEST_HANDSHAKE);
        let capabilities = params.member("capabilities");
        let profile = capabilities.as_ref().map_or(Profile::EMPTY, |raw| Profile::from_capabilities(raw.as_value()));
        let extensions = capabilities.as_ref().and_then(|own| self.carried_extensions(own, revision));
        let named = params.member("clientInfo").map(|info| {
            let [name, version] = info.members(["name", "version"]);
            let text = |member: Option<Raw>| member.and_then(|member| member.string().map(String::from));
            Named::new(&text(name).unwrap_or_default(), text(version).as_deref())
        });
        let client = self.admit_as(principal, (revision, profile, extensions), named.unwrap_or_default(), account);
        let result = self.initialize_result(revision, client.principal());
        Ok((client, result))
    }

    /// Makes a client without a handshake.
    pub(crate) fn admit(
        &self,
        principal: Principal,
        revision: ProtocolVersion,
        profile: Profile,
        extensions: Option<Raw>,
    ) -> Arc<Client> {
        self.admit_as(principal, (revision, profile, extensions), Named::default(), self.account())
    }

    /// The same for one whose queues count for that account.
    pub(crate) fn admit_as(
        &self,
        principal: Principal,
        (revision, profile, extensions): (ProtocolVersion, Profile, Option<Raw>),
        named: Named,
        account: Account,
    ) -> Arc<Client> {
        let owner = self.0.clients.next();
        let is_one = !revision.is_modern();
        let who = Who { owner, principal, profile, era: revision.era(), roots: None, is_one };
        let mailbox = Mailbox::new(self.limits(), account);
        let client = Arc::new(Client::new(who, revision, extensions, mailbox, named));
        self.0.clients.lock().insert(owner, client.clone());
        client
    }

    /// The session ended: its calls are cancelled, its leases given back.
    pub(crate) fn close(&self, client: &Arc<Client>) {
        if self.0.clients.lock().remove(&client.owner()).is_some() {
            self.0.roster.farewell(client);
        }
        for subscription in client.close() {
            subscription.upstream.unwant_uri(&subscription.raw);
        }
        self.0.manager.release(client.owner());
    }

    /// Serves one request (never `initialize`) of a client at a door, and gives the answer as it is to be written. What
    /// belongs to it before its answer goes into `leg`. `None`: the client cancelled it, and no answer is due.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call at the server.
    pub(crate) fn request(
        &self,
        client: &Arc<Client>,
        request: Request,
        leg: &Arc<Mailbox>,
    ) -> impl Future<Output = Option<Outcome>> + Send + use<> {
        self.serving(client, request.into(), leg, Self::finished)
    }

    /// The same for the embedding program, with the answer by its type.
    pub(crate) fn answered(
        &self,
        client: &Arc<Client>,
        request: Request,
        leg: &Arc<Mailbox>,
    ) -> impl Future<Output = Option<Answered>> + Send + use<> {
        self.serving(client, request.into(), leg, |_, _, _, answered| answered)
    }

    /// Serves one request, and gives what `end` makes of the answer.
    fn serving<T>(
        &self,
        client: &Arc<Client>,
        routed: Routed,
        leg: &Arc<Mailbox>,
        end: fn(&Self, &Client, &Method, Answered) -> T,
    ) -> impl Future<Output = Option<T>> + Send + use<T> {
        let request = &routed.request;
        self.0.roster.note(client, &request.method);
        let (router, client, leg) = (self.clone(), client.clone(), leg.clone());
        let limits = leg.limits();
        let (limit, in_all) = (limits.pending_per_client, limits.pending);
        // Before the first poll: a `cancelled` that comes right behind the request has to find it.
        let begun = match self.load(in_all) {
            Some(_) if self.has_its_half(&client, in_all) => Err(Refused::Share),
            Some(load) => client.begin(&request.id, &leg, limit).map(|guard| (guard, load)),
            None => Err(Refused::Load),
        };
        let method = request.method.clone();
        async move {
            let observed = match router.observed(&client, &routed.request, &leg) {
                Ok(observed) => observed,
                Err(refused) => return Some(end(&router, &client, &method, Err(refused.into()))),
            };
            let answered = router.answer_to(&client, routed, &method, begun, &leg).await;
            observed.finish(answered.as_ref());
            answered.map(|answered| end(&router, &client, &method, answered))
        }
    }

    /// The answer to a request of a client that is served until `ending`: then it is cancelled, and answered all the same.
    pub(crate) fn until<F: Future<Output = Option<Outcome>> + Send>(
        &self,
        client: &Arc<Client>,
        method: Method,
        answer: F,
        ending: CancellationToken,
    ) -> impl Future<Output = Option<Outcome>> + Send + use<F> {
        let (router, client) = (self.clone(), client.clone());
        async move {
            match ending.run_until_cancelled(answer).await {
                Some(outcome) => outcome,
                None => Some(router.finished(&client, &method, Err(Failure::let_go().of_host()))),
            }
        }
    }

    async fn answer_to(
        &self,
        client: &Arc<Client>,
        routed: Routed,
        method: &Method,
        begun: Result<(client::Guard, Load), Refused>,
        leg: &Arc<Mailbox>,
    ) -> Option<Answered> {
        let limits = leg.limits();
        let (guard, _load) = match begun {
            Ok(begun) => begun,
            Err(Refused::Closed) => return None,
            Err(Refused::IdInUse) => {
                let text = format!(
                    "request id {} is in use by a request without an answer yet",
                    Theirs(&routed.request.id.to_string())
                );
                return Some(Err(ErrorObject::new(code::INVALID_REQUEST, text).into()));
            }
            Err(Refused::Limit) => return Some(Err(Failure::client_limit(limits.pending_per_client).of_host())),
            Err(Refused::Share) => return Some(Err(Failure::half_of_pending(limits.pending.div_ceil(2)).of_host())),
            Err(Refused::Load) => return Some(Err(Failure::pending(limits.pending).of_host())),
        };
        // Whoever runs may still ask whether we live.
        if self.0.closing.is_cancelled() && *method != Method::Ping {
            return Some(Err(Failure::shutting_down().of_host()));
        }
        tokio::select! {
            biased;
            answered = self.serve(client, routed, leg) => Some(answered.map(|result| self.0.finish.whole(client, method, result))),
            () = guard.cancelled() => None,
            () = self.0.ending.cancelled() => Some(Err(Failure::cut_off().of_host())),
        }
    }

    /// Whether no more requests are served now.
    #[must_use]
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the HTTP door asks"))]
    pub(crate) fn is_full(&self) -> bool {
        self.0.load.load(Ordering::Relaxed) >= self.limits().pending
    }

    /// Whether whoever this client belongs to has half of all requests already, one that was just counted in not among them,
    /// and there is somebody else.
    fn has_its_half(&self, client: &Client, limit: usize) -> bool {
        let half = limit.div_ceil(2);
        self.0.load.load(Ordering::Relaxed) > half && self.0.clients.has_its_half(client, half)
    }

    /// Counts a request in, if there may be one more.
    fn load(&self, limit: usize) -> Option<Load> {
        let more = |now: usize| (now < limit).then_some(now + 1);
        self.0.load.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Load(self.0.load.clone()))
    }

    /// The answer to a request of that method as the client gets it.
    fn finished(&self, client: &Client, method: &Method, answered: Answered) -> Outcome {
        self.0.finish.written(client, method, answered)
    }

    async fn serve(&self, client: &Arc<Client>, routed: Routed, leg: &Arc<Mailbox>) -> Answered {
        let Routed { request: Request { method, params, .. }, route } = routed;
        let wanted = match &method {
            Method::ToolsCall => Wanted::tool(params)?,
            Method::PromptsGet => Wanted::prompt(params)?,
            Method::ResourcesRead | Method::ResourcesSubscribe => Wanted::resource(method, params, leg.limits())?,
            Method::Complete => Wanted::completion(params, leg.limits())?,
            Method::ToolsList
            | Method::PromptsList
            | Method::ResourcesList
            | Method::ResourceTemplatesList
            | Method::SetLevel => Wanted::unnamed(method, params),
            Method::Ping => return Ok(Raw::empty_object()),
            Method::ResourcesUnsubscribe => return Ok(resource::unsubscribe(client, params.as_ref())?),
            Method::TasksGet | Method::TasksResult | Method::TasksList | Method::TasksCancel | Method::TasksUpdate => {
                return self.task(client, &method, params, leg).await;
            }
            Method::Initialize => {
                let text = "this session is initialized already; open a new one";
                return Err(ErrorObject::new(code::INVALID_REQUEST, text).into());
            }
            other => return self.extension_request(client, other, params, leg).await,
        };
        self.dispatch(client, wanted, route, leg).await
    }

    /// Takes a notification of the client.
    pub(crate) fn notify(&self, client: &Arc<Client>, notification: Notification) {
        match notification.method {
            Method::Cancelled => {
                let id = notification.params.and_then(|params| params.member("requestId")?.read::<RequestId>().ok());
                if let Some(id) = id {
                    client.cancel(&id);
                }
            }
            Method::RootsListChanged => {
                if let Some(asks) = client.roots_changed(self.manager()) {
                    self.spawn(asks);
                }
            }
            // The handshake of each lease is our own; servers' questions ask for no progress through us.
            _ => {}
        }
    }

    /// Takes the client's answer to a request that went out through a mailbox.
    pub(crate) fn answer(&self, client: &Arc<Client>, response: Response) {
        if let Some(id) = response.id {
            client.answer(&id, response.outcome);
        }
    }

    /// A mailbox for one request of that client, which the limits of now hold for.
    #[must_use]
    pub(crate) fn leg(&self, client: &Client) -> Arc<Mailbox> {
        Arc::new(Mailbox::new(self.limits(), client.account().clone()).of_request())
    }

    /// What waits for all clients.
    #[must_use]
    pub(crate) fn queues(&self) -> &Queues {
        &self.0.queues
    }

    /// An account for what waits for one more client.
    #[must_use]
    pub(crate) fn account(&self) -> Account {
        self.0.queues.account()
    }

    /// The limits of the config now. A request reads them from its leg instead, so that it sees one config to its end.
    #[must_use]
    pub(crate) fn limits(&self) -> Arc<config::Limits> {
        self.0.manager.limits()
    }

    /// Who is shown to people as a client.
    pub(crate) fn people(&self) -> &Roster {
        &self.0.roster
    }

    /// The clients that people are shown, the oldest first.
    #[must_use]
    pub(crate) fn roster(&self) -> Vec<ClientStatus> {
        self.0.roster.list(&self.0.clients.all())
    }

    /// All servers, in config order.
    #[must_use]
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the HTTP door asks"))]
    pub(crate) fn status(&self) -> Vec<ServerStatus> {
        self.0.manager.status()
    }

    pub(crate) fn manager(&self) -> &Manager {
        &self.0.manager
    }

    /// Runs a task that ends with the router.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.0.stop.clone();
        self.0.tasks.spawn(async move {
            stop.run_until_cancelled(task).await;
        });
    }

    /// Refuses new requests from now on (`docs/hazards.md` H95).
    pub(crate) fn close_doors(&self) {
        self.0.closing.cancel();
    }

    /// Cancels the requests that still run and has each answered; done when they are, or soon.
    pub(crate) async fn end_requests(&self) {
        self.0.ending.cancel();
        let end = tokio::time::Instant::now() + ANSWERED;
        let busy = || self.0.clients.lock().values().any(|client| !client.is_quiet());
        while busy() && tokio::time::Instant::now() < end {
            tokio::time::sleep(TICK).await;
        }
        // Whoever gave the last answer writes it down.
        tokio::time::sleep(TICK).await;
    }

    /// Ends the router's own tasks and every client.
    pub(crate) async fn shutdown(&self) {
        for client in self.0.clients.all() {
            self.close(&client);
        }
        self.0.stop.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    fn initialize_result(&self, revision: ProtocolVersion, principal: &Principal) -> Raw {
        let tasks = if revision == ProtocolVersion::V2025_11_25 && self.has_tasks() {
            r#","tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}"#
        } else {
            ""
        };
        let extensions = self.offered_extensions(revision, principal);
        let extensions = match extensions.as_bytes() {
            // A list of none is none.
            b"{}" => String::new(),
            _ => format!(r#","extensions":{extensions}"#),
        };
        let completions = if revision >= ProtocolVersion::V2025_03_26 { r#","completions":{}"# } else { "" };
        let mut result = format!(
            r#"{{"protocolVersion":"{revision}","capabilities":{{"tools":{{"listChanged":true}},"prompts":{{"listChanged":true}},"resources":{{"subscribe":true,"listChanged":true}},"logging":{{}}{completions}{tasks}{extensions}}},"serverInfo":{}"#,
            self.0.finish.info()
        );
        if let Some(instructions) = self.manager().instructions(principal) {
            result += r#","instructions":"#;
            result += Raw::from_value(&instructions).as_str();
        }
        if let Some(id) = self.manager().host_id() {
            result += &format!(r#","_meta":{{"{}":"{}"}}"#, crate::protocol::meta::HOST_ID, id.as_str());
        }
        result.push('}');
        Raw::trusted(result.into())
    }

    /// Every client that is there now, oldest first.
    #[cfg(test)]
    pub(crate) fn present(&self) -> Vec<Arc<Client>> {
        self.0.clients.all()
    }
}

/// One request is being served while this lives.
struct Load(Arc<AtomicUsize>);

impl Drop for Load {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
