//! The router: decides which server gets a request, under which name, and how the answer comes back.
//!
//! In: [`Client`]s' requests, which come from a door (HTTP, stdio) or from the program that embeds the host. Out:
//! answers, typed ([`Answered`]) until the door writes them. Messages before an answer, or outside of any call, go into
//! [`Mailbox`]es.
//!
//! A *lease* is one connection to one server. The *leg* of a call is the mailbox for its messages before the answer. A
//! *question* is what a server asks its client: elicitation, sampling, or roots. *Legacy* protocol revisions have
//! sessions, the *modern* one (2026-07-28) has none; these two eras differ above all in how a server asks. A legacy
//! server sends the client a request while it works. A modern one ends its work with a result that asks, and is called
//! again with the answers. So `call.rs` takes one of four ways:
//!
//! | client | server | way |
//! |---|---|---|
//! | legacy | legacy | the question is forwarded under another id (`put.rs`) |
//! | legacy | modern | each result becomes requests to the client, and the answers go into the next request to the server (`driver.rs`) |
//! | modern | legacy | the call is parked: its own task holds the exchange, the client is sent away with the questions, and `requestState` leads its next request back (`park.rs`, `missed.rs`) |
//! | modern | modern | the result passes, its state sealed for the client; nothing is kept here (`relay.rs`) |
//!
//! [`Router`] only dispatches. The work is done by its parts: [`Routes`] finds the server, [`Connector`] gets a
//! connection to it, [`Forwarder`] sends the request there, and so on. Each part holds only what it needs.
//!
//! **Invariant:** a question of a server reaches exactly the client whose call caused it, or no client. Start reading
//! at [`Router::request`], then `call.rs`.

mod answer;
mod ask_roots;
mod asking;
mod asks;
mod background;
mod beating;
mod cache;
mod call;
mod changed;
mod client;
mod clients;
mod clocks;
mod driver;
mod extensions;
mod fallback;
mod find;
mod finish;
mod forward;
#[cfg_attr(not(feature = "server"), allow(dead_code, unreachable_pub, reason = "only the status asks"))]
mod gauges;
mod greeting;
#[cfg(feature = "server")]
mod handshake;
mod heard;
mod heart;
#[cfg(feature = "server")]
pub(crate) mod home;
#[cfg(feature = "server")]
mod invite;
mod joined;
mod judge;
mod level;
mod limit;
mod list;
mod mailbox;
mod merged;
mod missed;
mod modern;
mod news;
mod observed;
mod oversized;
mod own;
mod park;
mod parked;
mod permission;
mod plan;
mod presence;
mod put;
mod question;
mod questions;
mod reach;
mod relay;
mod resource;
mod rewatch;
mod rising;
mod roots;
mod roster;
mod route;
mod running;
#[cfg(all(unix, feature = "script"))]
mod scripts;
mod search;
mod shared;
mod spread;
mod standing;
mod start;
mod state;
mod subscribe;
mod tasks;
mod through;
mod toward;
#[cfg(feature = "otel")]
mod trail;
#[cfg(any(feature = "validate", test))]
mod valid;
mod verdict;
mod view;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use asks::{Decided, OpenAsk};
pub(crate) use client::{Abilities, Client, ClientStay, is_part};
#[cfg(feature = "server")]
pub use gauges::{ClusterNotes, Gauges, PeerNotes, SessionNotes};
pub(crate) use mailbox::Mailbox;
#[cfg(test)]
pub(crate) use presence::Sender;
pub(crate) use presence::{Named, Via};
pub use roster::{ClientChange, ClientEvent, ClientEvents, ClientNews, ClientStatus};
#[cfg(feature = "server")]
pub(crate) use {crate::manager::Claims, gauges::DoorLoad, gauges::Holds, gauges::Usage, handshake::Handshake};

use crate::answered::{Answered, NoResult};
use crate::config;
use crate::counts::Awaited;
use crate::manager::Manager;
pub(crate) use crate::manager::{Chosen, Identity, Principal, Viewed};
use crate::observe::Observer;
use crate::protocol::{
    ErrorObject, Method, Notification, Outcome, Profile, ProtocolVersion, Raw, Request, RequestId, Theirs, code,
};
use crate::queues::{Account, Queues};
use answer::Failure;
use background::Background;
use call::Forwarder;
use client::{Guard, RequestRefused};
use clients::{Clients, InFlight};
use fallback::Fallbacks;
use find::Routes;
use finish::Finish;
use forward::Forward;
use gauges::Meter;
use list::Listings;
use modern::Pool;
use route::{One, Route, Routed, Wanted};
use subscribe::Listens;
use tasks::Tasks;

/// Routes clients' requests to servers, and the answers back. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Router(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    manager: Manager,
    clients: Arc<Clients>,
    /// The clients without a session.
    pool: Arc<Pool>,
    routes: Arc<Routes>,
    calls: Arc<Forwarder>,
    fallbacks: Fallbacks,
    tasks: Arc<Tasks>,
    listings: Listings,
    /// The results that clients did not get at once.
    oversized: Arc<oversized::Store>,
    #[cfg(all(unix, feature = "script"))]
    scripts: scripts::Scripts,
    /// The change streams (`subscriptions/listen`) of clients without a session.
    listens: Arc<Listens>,
    /// Limits the bytes that wait for all clients together.
    queues: Queues,
    finish: Arc<Finish>,
    /// Is told of each request's beginning and outcome.
    observer: Arc<Observer>,
    meter: Meter,
    background: Background,
    /// Cancelled when shutdown begins: new requests are refused from then on.
    closing: CancellationToken,
    /// Cancelled later: requests still in flight are cut off and answered.
    ending: CancellationToken,
}

/// How a request is served.
enum Way<'a> {
    /// A server gets it.
    Forward(Box<Forward>),
    /// The host has answered it.
    Answered(Raw),
    /// It has to wait first, or is of a rare kind. The future is boxed so that the future of a call stays small.
    Other(BoxFuture<'a, Answered>),
}

/// How long shutdown waits for the answers to the requests that it cut off.
const ANSWERED: Duration = Duration::from_millis(500);
const TICK: Duration = Duration::from_millis(5);

impl Router {
    /// Serves `initialize`: returns a new client and the result. Messages queued for the client count for `account`.
    /// This never waits for a server.
    ///
    /// # Errors
    /// `-32602` when the params have no `protocolVersion`.
    pub(crate) fn open(
        &self,
        identity: impl Into<Identity>,
        params: Option<&Raw>,
        account: Account,
    ) -> Result<(Arc<Client>, Raw), ErrorObject> {
        let missing = || ErrorObject::invalid_params("initialize: `protocolVersion` is missing");
        let params = params.ok_or_else(missing)?;
        let wanted = params.text("protocolVersion").ok_or_else(missing)?;
        let revision = ProtocolVersion::parse_handshake(&wanted).unwrap_or(ProtocolVersion::LATEST_HANDSHAKE);
        let capabilities = params.member("capabilities");
        let profile = capabilities.as_ref().map_or(Profile::EMPTY, |raw| Profile::from_capabilities(raw.as_value()));
        let extensions = capabilities.as_ref().and_then(|own| extensions::carried(&self.0.manager, own, revision));
        let named = params.member("clientInfo").map(|info| {
            let [name, version] = info.members(["name", "version"]);
            let text = |member: Option<Raw>| member.and_then(|member| member.string().map(String::from));
            Named::new(&text(name).unwrap_or_default(), text(version).as_deref())
        });
        let abilities = Abilities { revision, profile, extensions };
        let client = self.0.clients.admit(identity, abilities, named.unwrap_or_default(), account);
        let result = greeting::initialized(&self.0.manager, &self.0.finish, &client);
        Ok((client, result))
    }

    /// Serves one request (never `initialize`) that a door received from a client. Returns the answer for the door to
    /// write, or `None` if no answer is due because the client cancelled the request or is gone. Messages before the
    /// answer go into `leg`.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call at the server.
    pub(crate) fn request(
        &self,
        client: &Arc<Client>,
        request: Request,
        leg: &Arc<Mailbox>,
    ) -> impl Future<Output = Option<Outcome>> + Send + use<> {
        self.serving(client, request.into(), leg, Finish::written)
    }

    /// Serves one request of the embedding program. Does the same as [`Router::request`], but returns the typed answer.
    pub(crate) fn answered(
        &self,
        client: &Arc<Client>,
        request: Request,
        leg: &Arc<Mailbox>,
    ) -> impl Future<Output = Option<Answered>> + Send + use<> {
        self.serving(client, request.into(), leg, |_, _, _, answered| answered)
    }

    /// Serves one request. Returns what `end` makes from the answer, or `None` if no answer is due.
    fn serving<T>(
        &self,
        client: &Arc<Client>,
        routed: Routed,
        leg: &Arc<Mailbox>,
        end: fn(&Finish, &Client, &Method, Answered) -> T,
    ) -> impl Future<Output = Option<T>> + Send + use<T> {
        let routed = merged::unwrap(&self.0.manager, client, routed);
        let (request, now) = (&routed.request, Instant::now());
        self.0.clients.roster().note(client, &request.method, now);
        let limits = leg.limits();
        // This happens before the first poll, so that `notifications/cancelled` right after the request finds it.
        let begun = self.0.clients.enter(client, limits.pending);
        let begun = begun.and_then(|load| Ok((client.begin(&request.id, leg, limits.pending_per_client)?, load)));
        let (router, client, leg) = (self.clone(), client.clone(), leg.clone());
        let method = request.method.clone();
        async move {
            let finish = &router.0.finish;
            let after = oversized::After::of(&router.0.manager, &client, &routed);
            let via = after.via();
            let (observer, asked) = ((&*router.0.observer, &router.0.manager), (&routed.request, now));
            let observed = match observed::begin_by(observer, &client, asked, &leg, via) {
                Ok(observed) => observed,
                Err(refused) => return Some(end(finish, &client, &method, Err(refused.into()))),
            };
            let answered = router.answer_to(&client, routed, &method, begun, &leg).await;
            let answered = after.done(&router, &client, answered, &leg).await;
            observed.finish(answered.as_ref());
            answered.map(|answered| end(finish, &client, &method, answered))
        }
    }

    /// Waits for an answer. If `ending` is cancelled first, drops the request and returns a host failure as its answer.
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
                None => Some(router.0.finish.written(&client, &method, Err(Failure::let_go().of_host()))),
            }
        }
    }

    async fn answer_to(
        &self,
        client: &Arc<Client>,
        routed: Routed,
        method: &Method,
        begun: Result<(Guard, InFlight), RequestRefused>,
        leg: &Arc<Mailbox>,
    ) -> Option<Answered> {
        let limits = leg.limits();
        let (guard, _load) = match begun {
            Ok(begun) => begun,
            Err(RequestRefused::Closed) => return None,
            Err(RequestRefused::IdInUse) => {
                let text = format!(
                    "request id {} is in use by a request without an answer yet",
                    Theirs(&routed.request.id.to_string())
                );
                return Some(Err(ErrorObject::new(code::INVALID_REQUEST, text).into()));
            }
            Err(RequestRefused::Limit) => return Some(Err(Failure::client_limit(limits.pending_per_client).of_host())),
            Err(RequestRefused::Share) => {
                return Some(Err(Failure::half_of_pending(limits.pending.div_ceil(2)).of_host()));
            }
            Err(RequestRefused::Load) => return Some(Err(Failure::pending(limits.pending).of_host())),
        };
        // A client with requests in flight may still `ping` the host.
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

    async fn serve(&self, client: &Arc<Client>, routed: Routed, leg: &Arc<Mailbox>) -> Answered {
        match self.way(client, routed, leg)? {
            Way::Forward(forward) => match self.0.fallbacks.of(client, &forward) {
                Some(fallback) => Box::pin(self.0.fallbacks.call(client, (forward, fallback), leg)).await,
                None => {
                    // Nearly every call ends here: a function in between would cost it time.
                    let mut toward = self.0.calls.toward(client, &forward, leg);
                    self.0.calls.forward_on(client, forward, leg, &mut toward).await
                }
            },
            Way::Answered(result) => Ok(result),
            Way::Other(answer) => answer.await,
        }
    }

    /// Decides how a request is served, without waiting.
    fn way<'a>(&'a self, client: &'a Arc<Client>, routed: Routed, leg: &'a Arc<Mailbox>) -> Result<Way<'a>, NoResult> {
        let Routed { request: Request { method, params, .. }, route, through } = routed;
        if let Some(refused) = through.as_ref().and_then(|through| through.refused()) {
            return Ok(Way::Answered(refused));
        }
        let Inner { manager, routes, tasks, .. } = &*self.0;
        let mut wanted = match &method {
            Method::ToolsCall => Wanted::tool(params)?,
            Method::PromptsGet => Wanted::prompt(params)?,
            Method::ResourcesRead | Method::ResourcesSubscribe => Wanted::resource(method, params, leg.limits())?,
            Method::Complete => Wanted::completion(params, leg.limits())?,
            Method::ToolsList | Method::PromptsList | Method::ResourcesList | Method::ResourceTemplatesList => {
                let listing = self.0.listings.list(client, method, params, leg.limits());
                return Ok(Way::Other(Box::pin(async { Ok(listing.await?) })));
            }
            Method::SetLevel => return Ok(Way::Answered(self.0.clients.set_level(client, params.as_ref())?)),
            Method::Ping => return Ok(Way::Answered(Raw::empty_object())),
            Method::ResourcesUnsubscribe => return Ok(Way::Answered(resource::unsubscribe(client, params.as_ref())?)),
            Method::TasksGet | Method::TasksResult | Method::TasksList | Method::TasksCancel | Method::TasksUpdate => {
                return Ok(Way::Other(Box::pin(async move { tasks.serve(client, &method, params, leg).await })));
            }
            Method::Initialize => {
                let text = "this session is initialized already; open a new one";
                return Err(ErrorObject::new(code::INVALID_REQUEST, text).into());
            }
            other => {
                let forward = extensions::route(manager, client, other, params, leg.limits())?;
                return Ok(Way::Forward(Box::new(forward)));
            }
        };
        wanted.through = through;
        let route = route.or_else(|| routes.find_now(client, wanted.what, &wanted.name).ok());
        if let (Some(through), Some(Route::One(one))) = (&wanted.through, &route)
            && let Some(refused) = search::changes(through, manager, client, one)
        {
            return Ok(Way::Answered(refused));
        }
        match route {
            Some(Route::One(one)) if wanted.method == Method::ToolsCall && tasks.knows(client, &one) => {
                let task = wanted.task.take();
                let mut forward = Box::new(Forward::new(one, wanted, leg.limits().clone()));
                tasks.plan(client, &mut forward, task.as_ref());
                Ok(Way::Forward(forward))
            }
            Some(Route::One(one)) if wanted.method == Method::PromptsGet => {
                Ok(Way::Forward(Box::new(Forward::new(one, wanted, leg.limits().clone()))))
            }
            route => Ok(Way::Other(Box::pin(self.dispatch(client, wanted, route, leg)))),
        }
    }

    /// Finds the route of a request, unless it was found already, and serves the request there.
    async fn dispatch(
        &self,
        client: &Arc<Client>,
        wanted: Wanted,
        route: Option<Route>,
        leg: &Arc<Mailbox>,
    ) -> Answered {
        let route = match route {
            Some(route) => route,
            None => {
                // The lists of servers that still start.
                let _away = leg.tally().away(Awaited::Server);
                match (self.0.routes.find(client, wanted.what, &wanted.name).await, &wanted.through) {
                    (Ok(Route::One(one)), Some(through)) => {
                        if let Some(refused) = search::changes(through, &self.0.manager, client, &one) {
                            return Ok(refused);
                        }
                        Route::One(one)
                    }
                    // It was there when the client was asked something about the request.
                    (Err(lost), _) if lost.is_unknown() && self.0.calls.goes_on(client, &wanted) => {
                        return Err(Failure::taken_away(wanted.what.word(), &wanted.name).of_host());
                    }
                    (Err(lost), Some(through)) if lost.is_unknown() => {
                        return Ok(search::unknown(through, &self.0.manager, client).await);
                    }
                    (found, _) => found.map_err(|lost| lost.of(&wanted))?,
                }
            }
        };
        match route {
            Route::Own(_) if wanted.method == Method::ResourcesSubscribe => Err(oversized::never_changes()),
            Route::Own(tool) => tool.call(self, client, wanted.params, leg).await,
            Route::One(one) => self.to_one(client, one, wanted, leg).await,
        }
    }

    /// Serves a request that goes to one server.
    async fn to_one(&self, client: &Arc<Client>, mut one: One, mut wanted: Wanted, leg: &Arc<Mailbox>) -> Answered {
        let Inner { calls, tasks, .. } = &*self.0;
        let (name, task) = (std::mem::take(&mut wanted.name), wanted.task.take());
        let limits = leg.limits().clone();
        match wanted.method {
            Method::ToolsCall => {
                tasks.get_to_know(client, &mut one, &name).await;
                let mut forward = Box::new(Forward::new(one, wanted, limits));
                tasks.plan(client, &mut forward, task.as_ref());
                match self.0.fallbacks.of(client, &forward) {
                    Some(fallback) => self.0.fallbacks.call(client, (forward, fallback), leg).await,
                    None => calls.forward(client, forward, leg).await,
                }
            }
            Method::ResourcesRead => calls.read_resource(client, Forward::new(one, wanted, limits), &name, leg).await,
            Method::ResourcesSubscribe => {
                leg.concerns(&one.server, &one.target, None);
                let resource = (&*one.server, &*one.target, name.as_str());
                judge::judge_subscription(&self.0.manager, client, resource, Some(leg))?;
                calls.connector.subscribe(client, &one, &name, leg).await
            }
            Method::Complete => calls.complete(client, Forward::new(one, wanted, limits), leg).await,
            _ => calls.forward(client, Box::new(Forward::new(one, wanted, limits)), leg).await,
        }
    }

    /// Serves a request without a session, as [`Router::request`] serves others. A `subscriptions/listen` request ends
    /// when its door closes (`closing`).
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call at the server.
    pub(crate) fn stateless(
        &self,
        client: &Arc<Client>,
        routed: impl Into<Routed>,
        leg: &Arc<Mailbox>,
        closing: &CancellationToken,
    ) -> BoxFuture<'static, Option<Outcome>> {
        let Routed { request, route, through } = routed.into();
        let Inner { manager, pool, listens, finish, observer, .. } = &*self.0;
        let beside = || (observer.clone(), finish.clone());
        match request.method {
            Method::Discover => {
                let answer = std::future::ready(Ok(greeting::discovered(manager, finish, client)));
                let (observer, finish) = beside();
                Box::pin(observed::beside(observer, finish, client.clone(), request, leg.clone(), answer))
            }
            Method::Listen => {
                let (id, params) = (request.id.clone(), request.params.clone());
                let answer = listens.clone().listen(client.clone(), id, params, leg.clone(), closing.clone());
                let (observer, finish) = beside();
                Box::pin(observed::beside(observer, finish, client.clone(), request, leg.clone(), answer))
            }
            _ => {
                let routed = Routed { request: Request { id: pool.next_id(), ..request }, route, through };
                Box::pin(self.serving(client, routed, leg, Finish::written))
            }
        }
    }

    /// Finds the route of a tool call without waiting. The HTTP door needs it before the call is served.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the HTTP door has headers"))]
    pub(crate) fn look_up(&self, client: &Arc<Client>, request: Request) -> Routed {
        self.0.routes.look_up(client, request)
    }

    /// Takes a notification from the client.
    pub(crate) fn notify(&self, client: &Arc<Client>, notification: Notification) {
        match notification.method {
            Method::Cancelled => {
                let id = notification.params.and_then(|params| params.member("requestId")?.read::<RequestId>().ok());
                if let Some(id) = id {
                    client.cancel(&id);
                }
            }
            Method::RootsListChanged => {
                if let Some(asks) = client.roots_changed(&self.0.manager) {
                    self.0.background.spawn(asks);
                }
            }
            // `initialized` needs no action: the host itself does the handshake on each lease. Progress from a client
            // is ignored: the host passes no progress token from a server on to a client.
            _ => {}
        }
    }

    pub(crate) fn manager(&self) -> &Manager {
        &self.0.manager
    }

    /// Returns the current limits. A request in flight reads them from its leg instead, so that one config holds for
    /// the whole request.
    #[must_use]
    pub(crate) fn limits(&self) -> Arc<config::Limits> {
        self.0.manager.limits()
    }

    pub(crate) fn clients(&self) -> &Clients {
        &self.0.clients
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.0.pool
    }

    #[must_use]
    pub(crate) fn queues(&self) -> &Queues {
        &self.0.queues
    }

    pub(crate) fn observer(&self) -> &Observer {
        &self.0.observer
    }

    /// Returns the meter for how full the host's tables are.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only doors and the status ask"))]
    pub(crate) fn meter(&self) -> &Meter {
        &self.0.meter
    }

    /// Returns the spawner for tasks that end with the router.
    pub(crate) fn background(&self) -> &Background {
        &self.0.background
    }

    /// Refuses new requests from now on (`docs/hazards.md` H95).
    pub(crate) fn close_doors(&self) {
        self.0.closing.cancel();
    }

    /// Cuts off the requests in flight: each is answered with a failure. Waits for these answers, but at most 500 ms.
    pub(crate) async fn end_requests(&self) {
        self.0.ending.cancel();
        let end = Instant::now() + ANSWERED;
        let busy = || self.0.clients.are_busy();
        while busy() && Instant::now() < end {
            tokio::time::sleep(TICK).await;
        }
        // The door that got the last answer has a moment to write it.
        tokio::time::sleep(TICK).await;
    }

    /// Ends the router's own tasks and every client.
    pub(crate) async fn shutdown(&self) {
        for client in self.0.clients.all() {
            self.0.clients.close(&client);
        }
        self.0.background.end().await;
    }
}

#[cfg(test)]
mod tests;
