//! `subscriptions/listen` (2026-07-28): a change stream for clients without a session, called a *listen* here. Only on
//! such a stream are these clients told of changes that belong to no request.
//!
//! mcp-host first acknowledges a listen with the part of its filter that it honors. Then it sends exactly those
//! changes, each with the request id of the listen, and a result when the door closes. A list has changed when the
//! catalog that the client sees differs from the one that it was told of last; a resource has changed when its server
//! says so. Each resource is watched by a request of its own, as one of a client with a session is, so that it has its line
//! in the audit (`docs/hazards.md` H99).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{FutureExt as _, join_all};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Mailbox;
use super::answer::Failure;
use super::background::Background;
use super::client::{Client, is_part};
use super::find::Routes;
use super::finish::Finish;
use super::judge::{judge_subscription, may_watch};
use super::observed;
use super::reach::Connector;
use super::resource::{no_subscriptions, too_many, watch};
use super::route::{One, Route, What, measured};
use super::tasks::{Task, Tasks};
use crate::adapt::task;
use crate::answered::{Answered, NoResult};
use crate::exposed;
use crate::manager::Manager;
use crate::observe::Observer;
use crate::protocol::{ErrorObject, Message, Method, Notification, Raw, Request, RequestId, Theirs, code, meta};
use crate::registry::{Catalog, Kind};
use crate::upstream::Upstream;

/// How long the acknowledgement waits for servers to accept the subscriptions to their resources.
const ACCEPT: Duration = Duration::from_secs(2);

/// Serves `subscriptions/listen` requests.
#[derive(Debug)]
pub(super) struct Listens {
    pub(super) manager: Manager,
    pub(super) connector: Arc<Connector>,
    pub(super) routes: Arc<Routes>,
    pub(super) tasks: Arc<Tasks>,
    pub(super) finish: Arc<Finish>,
    pub(super) observer: Arc<Observer>,
    pub(super) background: Background,
    pub(super) open: OpenListens,
}

/// The listens that are open, by number.
#[derive(Debug, Default)]
pub(super) struct OpenListens {
    listens: Mutex<BTreeMap<u64, Arc<Listening>>>,
    next: AtomicU64,
}

/// One open `subscriptions/listen` request.
#[derive(Debug)]
struct Listening {
    client: Arc<Client>,
    id: RequestId,
    leg: Arc<Mailbox>,
    lists: WantedLists,
    watches: Vec<Watch>,
    tasks: Vec<Arc<Task>>,
    /// The catalog that the client was told of last.
    told: Mutex<Arc<Catalog>>,
    /// Cancelled when mcp-host can no longer honor what it acknowledged.
    over: CancellationToken,
}

/// The lists that a listen is about.
#[derive(Clone, Copy, Debug, Default)]
struct WantedLists {
    tools: bool,
    prompts: bool,
    resources: bool,
}

/// The changes that a client asks for.
#[derive(Debug)]
struct Filter {
    lists: WantedLists,
    uris: Vec<String>,
    tasks: Vec<String>,
}

/// A resource that is watched while this lives.
#[derive(Debug)]
struct Watch {
    uri: Arc<str>,
    raw: Arc<str>,
    upstream: Arc<Upstream>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.upstream.unwant_uri(&self.raw);
    }
}

/// An entry of the table of open listens, removed on drop.
struct Entry<'a> {
    listens: &'a OpenListens,
    number: u64,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.listens.lock().remove(&self.number);
    }
}

impl Listens {
    /// Serves a listen until `closing` is cancelled, or until it cannot continue. Changes go into `leg`. `id` is the
    /// client's own request id.
    ///
    /// # Cancel safety
    /// Dropping the future ends the listen.
    pub(super) async fn listen(
        self: Arc<Self>,
        client: Arc<Client>,
        id: RequestId,
        params: Option<Raw>,
        leg: Arc<Mailbox>,
        closing: CancellationToken,
    ) -> Answered {
        let limit = leg.limits().pending_per_client;
        let Some(mut place) = client.listen(limit) else {
            return Err(Failure::listens(limit).of_host());
        };
        let filter = Filter::read(params.as_ref(), client.declares(task::EXTENSION))?;
        for uri in &filter.uris {
            measured("subscriptions/listen: a URI", uri, leg.limits())?;
        }
        let limit = leg.limits().subscriptions;
        if !place.watch(filter.uris.len(), limit) {
            return Err(too_many(&Method::Listen, limit).into());
        }
        let tasks = self.tasks.watched(&client, &filter.tasks);
        let watches = join_all(filter.uris.iter().map(|uri| self.watch(&client, uri, &leg)));
        let watches: Vec<Watch> = watches.await.into_iter().flatten().collect();
        if filter.lists.any() && !client.is_settled() {
            // A server without any lease reports no changes, so missing leases are opened now. A server that comes up
            // later counts as a change.
            let _ = self.manager.prepare(&client.who_now()).now_or_never();
            client.is_gone(&self.manager);
        }
        let told = Mutex::new(client.view(&self.manager).shown);
        let listening = Arc::new(Listening {
            client,
            id,
            leg,
            lists: filter.lists,
            watches,
            tasks,
            told,
            over: CancellationToken::new(),
        });
        listening.put(Method::Acknowledged, Some(listening.honored()));
        let over = listening.over.clone();
        let entry = self.open.add(listening.clone());
        // These are the changes from while the listen was being opened.
        self.tell_listen(&listening);
        let news = async {
            let put = |told| listening.put(Method::TaskNews, Some(told));
            self.tasks.watch(&listening.client, &listening.tasks, &listening.leg, put).await;
            std::future::pending().await
        };
        tokio::select! {
            biased;
            () = news => {}
            () = closing.cancelled() => {}
            () = self.background.stop().cancelled() => {}
            () = over.cancelled() => {}
        }
        drop(entry);
        // Only the result is sent, without `notifications/cancelled`. Before the result, the SDKs for Python and
        // TypeScript take that notification for a lost stream; after the result there is nothing left to cancel.
        Ok(tagged(&self.finish.completed(&Raw::empty_object(), None), &listening.id))
    }

    /// Subscribes to a resource. Returns `None` if that cannot be recorded, or the client may not watch it, or its server
    /// does not support that, refuses, or cannot be reached in time.
    async fn watch(&self, client: &Arc<Client>, uri: &str, leg: &Mailbox) -> Option<Watch> {
        let params = Raw::from_value(&serde_json::json!({ "uri": uri }));
        let request = Request { id: RequestId::Number(0), method: Method::ResourcesSubscribe, params: Some(params) };
        let (own, observer) = (leg.of_part(), (&*self.observer, &self.manager));
        let observed = observed::begin_by(observer, client, (&request, Instant::now()), &own, Some("listen"));
        let observed = observed.ok()?.beside();
        let watched = tokio::time::timeout(ACCEPT, self.watch_one(client, uri, &own)).await;
        let watched = watched.unwrap_or_else(|_| Err(Failure::timeout(ACCEPT, "subscriptions/listen").of_host()));
        observed.finish(Some(&watched.as_ref().map(|_| Raw::empty_object()).map_err(NoResult::clone)));
        watched.ok()
    }

    /// Does the same as [`Self::watch`], but returns the reason if it fails.
    async fn watch_one(&self, client: &Arc<Client>, uri: &str, leg: &Mailbox) -> Result<Watch, NoResult> {
        let Ok(Route::One(one)) = self.routes.find(client, What::Resource, uri).await else {
            return Err(ErrorObject::invalid_params(format!("unknown resource: {}", Theirs(uri))).into());
        };
        let One { server, target: raw, .. } = one;
        leg.concerns(&server, &raw, None);
        judge_subscription(&self.manager, client, (&server, &raw, uri), Some(leg))?;
        let connected = self.connector.connect(client, &server, None).await;
        let (upstream, connection) = connected.map_err(|failure| failure.of(&server))?;
        if connection.peer().is_none_or(|peer| !peer.offers.subscribe) {
            return Err(no_subscriptions(&server).into());
        }
        watch(&server, &upstream, &raw).await?;
        Ok(Watch { uri: exposed::one_copy(uri, &raw), raw, upstream })
    }

    /// Tells every listen which of its lists have changed. Returns whether any have.
    pub(super) fn tell_changes(&self) -> bool {
        self.open.all().iter().fold(false, |any, listening| self.tell_listen(listening) | any)
    }

    fn tell_listen(&self, listening: &Listening) -> bool {
        // A stopped lease means that the server was removed from the config, or has another lease now. The view or the
        // rules may have changed, too.
        let may = |watch: &Watch| {
            let server = self.manager.server_of(watch.upstream.id);
            server.is_none_or(|server| may_watch(&self.manager, &listening.client, (&server, &watch.raw, &watch.uri)))
        };
        if listening.watches.iter().any(|watch| watch.upstream.is_stopped() || !may(watch)) {
            listening.over.cancel();
            return false;
        }
        let mut any = false;
        let catalog = listening.client.view(&self.manager).shown;
        let told = std::mem::replace(&mut *lock(&listening.told), catalog.clone());
        for (method, wanted) in changes(|_| &told, &catalog).into_iter().zip(listening.lists.in_order()) {
            if let (Some(method), true) = (method, wanted) {
                listening.put(method, None);
                any = true;
            }
        }
        any
    }

    /// Tells the listens that watch a resource of the changed resource. `raw` is the server's own URI; `params` are the
    /// notification's params as clients see them.
    pub(super) fn tell(&self, upstream: &Upstream, raw: &str, params: &Raw) {
        for listening in self.open.all() {
            let mut watches = listening.watches.iter();
            if watches.any(|watch| watch.upstream.id == upstream.id && is_part(raw, &watch.raw)) {
                listening.put(Method::ResourceUpdated, Some(params.clone()));
            }
        }
    }
}

/// Returns the notifications for the lists (tools, prompts, resources) that differ between `after` and the catalog that
/// `before` returns for their kind.
pub(super) fn changes<'a>(before: impl Fn(Kind) -> &'a Arc<Catalog>, after: &Arc<Catalog>) -> [Option<Method>; 3] {
    let differs = |kind| {
        let before = before(kind);
        !Arc::ptr_eq(before, after) && before.hash(kind) != after.hash(kind)
    };
    [
        differs(Kind::Tools).then_some(Method::ToolsListChanged),
        differs(Kind::Prompts).then_some(Method::PromptsListChanged),
        (differs(Kind::Resources) || differs(Kind::ResourceTemplates)).then_some(Method::ResourcesListChanged),
    ]
}

impl OpenListens {
    fn add(&self, listening: Arc<Listening>) -> Entry<'_> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(number, listening);
        Entry { listens: self, number }
    }

    fn all(&self) -> Vec<Arc<Listening>> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Listening>>> {
        lock(&self.listens)
    }
}

impl Listening {
    /// Sends a notification with the request id of the listen. If the client does not read and the leg overflows, the
    /// listen ends, and the client has to listen again.
    fn put(&self, method: Method, params: Option<Raw>) {
        let params = Some(tagged(&params.unwrap_or_else(Raw::empty_object), &self.id));
        self.leg.put(Message::Notification(Notification { method, params }));
        if self.leg.overflowed() {
            self.over.cancel();
        }
    }

    /// Returns the acknowledgement: the part of the filter that mcp-host honors.
    fn honored(&self) -> Raw {
        let mut honored = serde_json::Map::new();
        let names = ["toolsListChanged", "promptsListChanged", "resourcesListChanged"];
        for (name, wanted) in names.into_iter().zip(self.lists.in_order()) {
            if wanted {
                honored.insert(name.to_owned(), true.into());
            }
        }
        if !self.watches.is_empty() {
            let uris: Vec<&str> = self.watches.iter().map(|watch| &*watch.uri).collect();
            honored.insert("resourceSubscriptions".to_owned(), uris.into());
        }
        if !self.tasks.is_empty() {
            let ids: Vec<&str> = self.tasks.iter().map(|task| task.handle()).collect();
            honored.insert("taskIds".to_owned(), ids.into());
        }
        Raw::from_value(&serde_json::json!({ "notifications": honored }))
    }
}

impl WantedLists {
    fn in_order(self) -> [bool; 3] {
        [self.tools, self.prompts, self.resources]
    }

    fn any(self) -> bool {
        self.in_order().contains(&true)
    }
}

impl Filter {
    /// Reads a filter. Unknown members are ignored, so they are not acknowledged.
    ///
    /// # Errors
    /// When there is no filter, its members have wrong types, or it names tasks and the client did not declare them.
    fn read(params: Option<&Raw>, has_tasks: bool) -> Result<Self, ErrorObject> {
        let wrong = |what: &str| ErrorObject::invalid_params(format!("subscriptions/listen: {what}"));
        let filter = params.and_then(|params| params.member("notifications"));
        let filter = filter.filter(Raw::is_object).ok_or_else(|| wrong("`notifications` is missing, or no object"))?;
        let [tools, prompts, resources, uris, tasks] = filter.members([
            "toolsListChanged",
            "promptsListChanged",
            "resourcesListChanged",
            "resourceSubscriptions",
            "taskIds",
        ]);
        if tasks.is_some() && !has_tasks {
            let text =
                "`taskIds` needs the extension io.modelcontextprotocol/tasks, which this request does not declare";
            let data = r#"{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#;
            let data = Raw::trusted(bytes::Bytes::from_static(data.as_bytes()));
            return Err(ErrorObject::new(code::MISSING_CAPABILITY, text).with_data(data));
        }
        let flag = |value: Option<Raw>| match value {
            None => Ok(false),
            Some(value) => value.read::<bool>().map_err(|_| wrong("a flag is neither true nor false")),
        };
        let lists = WantedLists { tools: flag(tools)?, prompts: flag(prompts)?, resources: flag(resources)? };
        let mut uris: Vec<String> = match uris {
            None => Vec::new(),
            Some(uris) => uris.read().map_err(|_| wrong("`resourceSubscriptions` is no list of URIs"))?,
        };
        uris.sort_unstable();
        uris.dedup();
        let tasks = match tasks {
            None => Vec::new(),
            Some(tasks) => tasks.read().map_err(|_| wrong("`taskIds` is no list of ids"))?,
        };
        Ok(Self { lists, uris, tasks })
    }
}

/// Adds the request id of the listen to the `_meta` of an object.
fn tagged(object: &Raw, id: &RequestId) -> Raw {
    let meta = object.member("_meta").filter(Raw::is_object).unwrap_or_else(Raw::empty_object);
    object.with_member("_meta", meta.with_member(meta::SUBSCRIPTION_ID, &id.text(&mut itoa::Buffer::new())).as_bytes())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
