//! The meaning: who gets a request, under which name, and how the answer comes back.
//!
//! In: requests of [`Client`]s, from doors and from the embedding program. Out: answers, by type ([`Answered`]) up to the
//! door that writes them; and into [`Mailbox`]es whatever comes before or beside them. **Invariant:** what a server asks
//! reaches exactly the client whose call caused it, or nobody. Start reading at [`Router::request`], then `call.rs`.

mod answer;
mod ask_guard;
mod ask_roots;
mod audited;
mod call;
mod changed;
mod client;
mod driver;
mod extensions;
mod find;
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
mod running;
mod standing;
mod state;
mod subscribe;
mod tasks;
mod toward;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use client::{Client, Place, is_part};
#[cfg(any(feature = "server", test))]
pub use gauges::Gauges;
#[cfg(any(feature = "server", test))]
pub(crate) use gauges::{Held, Holds, Usage};
pub(crate) use mailbox::Mailbox;
pub(crate) use named::Named;
pub(crate) use presence::Via;
pub use roster::{ClientChange, ClientEvent, ClientEvents, ClientNews, ClientStatus};

use crate::adapt;
use crate::answered::{Answered, NoResult};
use crate::audit::Audit;
use crate::config;
pub(crate) use crate::manager::Principal;
use crate::manager::{Manager, News, ServerStatus, Who};
use crate::protocol::{
    ErrorObject, Method, Notification, Outcome, Profile, ProtocolVersion, Raw, Request, RequestId, Response, Theirs,
    code,
};
use crate::queues::{Account, Queues};
use crate::seal::Seal;
use crate::upstream::Owner;
use answer::Failure;
use client::Refused;

/// Routes what clients say to the servers and back; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Router(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    manager: Manager,
    /// Oldest first.
    clients: Mutex<BTreeMap<Owner, Arc<Client>>>,
    next_client: AtomicU64,
    /// Clients without a session.
    modern: modern::Pool,
    /// What such clients listen to.
    listens: subscribe::Listens,
    /// Calls that wait for answers of such clients.
    parked: Arc<parked::Table>,
    /// What waits for all clients.
    queues: Queues,
    seal: Option<Seal>,
    /// Requests being served, of all clients.
    load: Arc<AtomicUsize>,
    /// Tasks that clients know of.
    known_tasks: tasks::Registry,
    /// What else tells what it holds.
    doors: gauges::Doors,
    /// Who is shown to people as a client, and who hears of it.
    roster: roster::Roster,
    server_info: Raw,
    /// The clients that the embedding program is.
    own: Mutex<BTreeSet<Owner>>,
    /// What is written of each call, if that is wanted.
    audit: OnceLock<Audit>,
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
/// Instructions of all servers together.
const INSTRUCTIONS: usize = 32 * 1024;

impl Router {
    /// Makes the router and its tasks.
    pub(crate) fn start(manager: Manager, news: News, server_info: Raw) -> Self {
        let queues = Queues::new(manager.settings().limits.client_queues);
        let router = Self(Arc::new(Inner {
            manager,
            queues,
            clients: Mutex::default(),
            next_client: AtomicU64::new(1),
            modern: modern::Pool::default(),
            listens: subscribe::Listens::default(),
            parked: Arc::default(),
            seal: Seal::new().inspect_err(|error| tracing::error!("nothing can be sealed: {error}")).ok(),
            load: Arc::default(),
            known_tasks: tasks::Registry::default(),
            doors: gauges::Doors::default(),
            roster: roster::Roster::new(),
            server_info,
            own: Mutex::default(),
            audit: OnceLock::new(),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
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
        let owner = Owner(self.0.next_client.fetch_add(1, Ordering::Relaxed));
        let is_one = !revision.is_modern();
        let who = Who { owner, principal, profile, era: revision.era(), roots: None, is_one };
        let mailbox = Mailbox::new(self.limits().client_queue, account);
        let client = Arc::new(Client::new(who, revision, extensions, mailbox, named));
        self.clients().insert(owner, client.clone());
        client
    }

    /// The embedding program is that client.
    pub(crate) fn belongs_to(&self, client: &Client) {
        self.own().insert(client.owner());
    }

    /// Whether the embedding program is that client.
    #[cfg(feature = "server")]
    fn is_own(&self, client: &Client) -> bool {
        self.own().contains(&client.owner())
    }

    fn own(&self) -> MutexGuard<'_, BTreeSet<Owner>> {
        self.0.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session ended: its calls are cancelled, its leases given back.
    pub(crate) fn close(&self, client: &Arc<Client>) {
        if self.clients().remove(&client.owner()).is_some() {
            self.farewell(client);
        }
        for subscription in client.close() {
            subscription.upstream.unwant_uri(&subscription.raw);
        }
        self.own().remove(&client.owner());
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
        self.serving(client, request, leg, Self::written)
    }

    /// The same for the embedding program, with the answer by its type.
    pub(crate) fn answered(
        &self,
        client: &Arc<Client>,
        request: Request,
        leg: &Arc<Mailbox>,
    ) -> impl Future<Output = Option<Answered>> + Send + use<> {
        self.serving(client, request, leg, |_, _, _, answered| answered)
    }

    /// Serves one request, and gives what `end` makes of the answer.
    fn serving<T>(
        &self,
        client: &Arc<Client>,
        request: Request,
        leg: &Arc<Mailbox>,
        end: fn(&Self, &Client, &Method, Answered) -> T,
    ) -> impl Future<Output = Option<T>> + Send + use<T> {
        self.note(client, &request.method);
        let (router, client, leg) = (self.clone(), client.clone(), leg.clone());
        let limits = self.limits();
        let (limit, in_all) = (limits.pending_per_client, limits.pending);
        // Before the first poll: a `cancelled` that comes right behind the request has to find it.
        let begun = match self.load(in_all) {
            Some(_) if self.has_its_half(&client, in_all) => Err(Refused::Share),
            Some(load) => client.begin(&request.id, &leg, limit).map(|guard| (guard, load)),
            None => Err(Refused::Load),
        };
        let method = request.method.clone();
        async move {
            let record = match router.audited(&client, &request, &leg) {
                Ok(record) => record,
                Err(refused) => return Some(end(&router, &client, &method, Err(refused.into()))),
            };
            let answered = router.answer_to(&client, request, &method, begun, &leg).await;
            if let Some(record) = record {
                record.finish(answered.as_ref());
            }
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
                None => Some(router.written(&client, &method, Err(Failure::let_go().of_host()))),
            }
        }
    }

    async fn answer_to(
        &self,
        client: &Arc<Client>,
        request: Request,
        method: &Method,
        begun: Result<(client::Guard, Load), Refused>,
        leg: &Arc<Mailbox>,
    ) -> Option<Answered> {
        let limits = self.limits();
        let (guard, _load) = match begun {
            Ok(begun) => begun,
            Err(Refused::Closed) => return None,
            Err(Refused::IdInUse) => {
                let text = format!(
                    "request id {} is in use by a request without an answer yet",
                    Theirs(&request.id.to_string())
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
            answered = self.serve(client, request, leg) => Some(answered.map(|result| self.whole(client, method, result))),
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
        if self.0.load.load(Ordering::Relaxed) <= half {
            return false;
        }
        let clients = self.clients();
        let (own, others): (Vec<_>, Vec<_>) =
            clients.values().partition(|other| other.principal() == client.principal());
        !others.is_empty() && own.iter().map(|client| client.requests()).sum::<usize>() >= half
    }

    /// Counts a request in, if there may be one more.
    fn load(&self, limit: usize) -> Option<Load> {
        let more = |now: usize| (now < limit).then_some(now + 1);
        self.0.load.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Load(self.0.load.clone()))
    }

    /// The result with all that each says since 2026-07-28, also where we made it ourselves.
    fn whole(&self, client: &Client, method: &Method, result: Raw) -> Raw {
        let revision = client.revision();
        if !revision.is_modern() {
            return result;
        }
        adapt::result(result, method, revision, revision, &self.0.server_info)
    }

    /// The answer to a request of that method as the client gets it.
    fn written(&self, client: &Client, method: &Method, answered: Answered) -> Outcome {
        match answered {
            Ok(result) => Ok(result),
            Err(NoResult::Error(error)) => Err(error),
            Err(NoResult::Failed(failed)) => failed.outcome(method).map(|result| self.whole(client, method, result)),
        }
    }

    async fn serve(&self, client: &Arc<Client>, request: Request, leg: &Arc<Mailbox>) -> Answered {
        let params = request.params;
        match &request.method {
            Method::ToolsCall => self.call_tool(client, params, leg).await,
            Method::Ping => Ok(Raw::empty_object()),
            Method::ToolsList | Method::PromptsList | Method::ResourcesList | Method::ResourceTemplatesList => {
                Ok(self.list(client, &request.method, params.as_ref()).await?)
            }
            Method::PromptsGet => self.get_prompt(client, params, leg).await,
            Method::ResourcesRead => self.read_resource(client, params, leg).await,
            Method::Complete => self.complete(client, params, leg).await,
            Method::ResourcesSubscribe => self.subscribe(client, params, leg).await,
            Method::ResourcesUnsubscribe => Ok(self.unsubscribe(client, params.as_ref())?),
            method @ (Method::TasksGet
            | Method::TasksResult
            | Method::TasksList
            | Method::TasksCancel
            | Method::TasksUpdate) => self.task(client, method, params, leg).await,
            Method::SetLevel => Ok(self.set_level(client, params.as_ref())?),
            Method::Initialize => {
                let text = "this session is initialized already; open a new one";
                Err(ErrorObject::new(code::INVALID_REQUEST, text).into())
            }
            other => self.extension_request(client, other, params, leg).await,
        }
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
            Method::RootsListChanged => self.roots_changed(client),
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

    /// A mailbox for one request of that client.
    #[must_use]
    pub(crate) fn leg(&self, client: &Client) -> Arc<Mailbox> {
        Arc::new(Mailbox::new(self.limits().client_queue, client.account().clone()).of_request())
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

    /// The limits of the config.
    #[must_use]
    pub(crate) fn limits(&self) -> Arc<config::Limits> {
        self.0.manager.limits()
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
        let busy = || self.clients().values().any(|client| !client.is_quiet());
        while busy() && tokio::time::Instant::now() < end {
            tokio::time::sleep(TICK).await;
        }
        // Whoever gave the last answer writes it down.
        tokio::time::sleep(TICK).await;
    }

    /// Ends the router's own tasks and every client.
    pub(crate) async fn shutdown(&self) {
        let clients: Vec<Arc<Client>> = self.clients().values().cloned().collect();
        for client in clients {
            self.close(&client);
        }
        self.0.stop.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    /// What seals handles that clients keep.
    ///
    /// # Errors
    /// When the system had no randomness for a key.
    fn seal(&self) -> Result<&Seal, ErrorObject> {
        self.0.seal.as_ref().ok_or_else(|| ErrorObject::internal("the system had no randomness for a key"))
    }

    fn initialize_result(&self, revision: ProtocolVersion, principal: &Principal) -> Raw {
        let tasks = if revision == ProtocolVersion::V2025_11_25 && self.has_tasks() {
            r#","tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}"#
        } else {
            ""
        };
        let extensions = self.offered_extensions(revision);
        let extensions = match extensions.as_bytes() {
            // A list of none is none.
            b"{}" => String::new(),
            _ => format!(r#","extensions":{extensions}"#),
        };
        let completions = if revision >= ProtocolVersion::V2025_03_26 { r#","completions":{}"# } else { "" };
        let mut result = format!(
            r#"{{"protocolVersion":"{revision}","capabilities":{{"tools":{{"listChanged":true}},"prompts":{{"listChanged":true}},"resources":{{"subscribe":true,"listChanged":true}},"logging":{{}}{completions}{tasks}{extensions}}},"serverInfo":{}"#,
            self.0.server_info
        );
        if let Some(instructions) = self.instructions(principal) {
            result += r#","instructions":"#;
            result += Raw::from_value(&instructions).as_str();
        }
        if let Some(id) = self.manager().host_id() {
            result += &format!(r#","_meta":{{"{}":"{}"}}"#, crate::protocol::meta::HOST_ID, id.as_str());
        }
        result.push('}');
        Raw::trusted(result.into())
    }

    /// The instructions of the servers that are connected, each under its alias, as far as they are for that principal.
    fn instructions(&self, principal: &Principal) -> Option<String> {
        let mut text = String::new();
        let stale = self.limits().stale_max;
        for server in self.0.manager.servers().iter() {
            let peers = server
                .upstreams_for(principal)
                .into_iter()
                .filter_map(|upstream| upstream.connection()?.peer().cloned());
            let now = peers.filter_map(|peer| peer.instructions).last();
            let Some(own) = now.map(Into::into).or_else(|| server.last_instructions(stale)) else { continue };
            let own: Arc<str> = own;
            if text.is_empty() {
                text += "Several MCP servers behind one endpoint. A tool or prompt `NAME` of server `ALIAS` is called `ALIAS__NAME` here.";
            }
            if text.len() + own.len() > INSTRUCTIONS {
                continue;
            }
            text += &format!("\n\n# {}\n\n{}", server.config.alias, own.trim());
        }
        (!text.is_empty()).then_some(text)
    }

    /// Every client that is there now, oldest first.
    #[cfg(test)]
    pub(crate) fn present(&self) -> Vec<Arc<Client>> {
        let mut all: Vec<Arc<Client>> = self.clients().values().cloned().collect();
        all.sort_by_key(|client| client.owner().0);
        all
    }

    fn clients(&self) -> MutexGuard<'_, BTreeMap<Owner, Arc<Client>>> {
        self.0.clients.lock().unwrap_or_else(PoisonError::into_inner)
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
