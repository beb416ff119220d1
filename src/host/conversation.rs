//! One client of the router, as the embedding program is it: the host itself has one, and each [`Session`](super::Session).
//!
//! In: what servers say and ask outside of calls. Out: changes of lists, updates of resources, answers. **Invariant:** it is
//! no client of a door: it is on no list of clients, and nobody is asked to sign in by a question to it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use futures_util::future::{AbortHandle, Abortable, BoxFuture};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use super::handler::{self, Answers};
use super::lock;
use crate::manager::Principal;
use crate::protocol::{Message, Method, Notification, Outcome, Profile, ProtocolVersion, Raw, RequestId, Response};
use crate::queues::Account;
use crate::router::{Abilities, Client, Named, Router};

/// Lists that have changed since they were looked at.
///
/// ```
/// # fn hear(host: &mcp_host::Host, lists: mcp_host::ListsChange) {
/// if lists.tools {
///     println!("{} tools now", host.catalog().tools().len());
/// }
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListsChange {
    /// The tools have changed.
    pub tools: bool,
    /// The prompts have changed.
    pub prompts: bool,
    /// The resources or resource templates have changed.
    pub resources: bool,
}

/// One client of the router.
pub(super) struct Conversation {
    pub(super) router: Router,
    pub(super) client: Arc<Client>,
    pub(super) handler: Option<Arc<dyn Answers>>,
    /// URIs of resources that were updated.
    pub(super) updates: broadcast::Sender<Arc<str>>,
    pub(super) lists: broadcast::Sender<ListsChange>,
    /// Nothing more comes.
    pub(super) over: CancellationToken,
    /// How many watch each URI.
    watched: Mutex<BTreeMap<Box<str>, usize>>,
}

/// Updates and changes that a slow reader may be behind.
const BEHIND: usize = 64;

impl Conversation {
    /// Begins one. `name` is what it calls itself.
    pub(super) fn begin(router: &Router, handler: Option<Arc<dyn Answers>>, name: &str) -> Arc<Self> {
        let profile = handler.as_ref().map_or(Profile::EMPTY, |handler| handler.profile());
        let abilities = Abilities { revision: ProtocolVersion::LATEST_HANDSHAKE, profile, extensions: None };
        // What this program does not take of its own calls is its own business.
        let client = router.clients().admit(Principal::local(), abilities, Named::new(name, None), Account::free());
        client.embeds();
        let conversation = Arc::new(Self {
            router: router.clone(),
            client: client.clone(),
            handler: handler.clone(),
            updates: broadcast::Sender::new(BEHIND),
            lists: broadcast::Sender::new(BEHIND),
            over: CancellationToken::new(),
            watched: Mutex::default(),
        });
        let reader = Reader {
            client,
            questions: Questions::new(handler),
            updates: conversation.updates.clone(),
            lists: conversation.lists.clone(),
        };
        let over = conversation.over.clone();
        router.background().spawn(async move {
            let _over = over.drop_guard();
            reader.run().await;
        });
        conversation
    }

    /// Notes one more who watches a resource.
    pub(super) fn watch(&self, uri: &str) {
        *lock(&self.watched).entry(uri.into()).or_default() += 1;
    }

    /// Notes one less; the last one ends the subscription.
    pub(super) fn unwatch(&self, uri: &str) {
        let mut watched = lock(&self.watched);
        match watched.get_mut(uri) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                watched.remove(uri);
                self.client.unwatch(uri);
            }
        }
    }

    /// From now on changes of lists are told.
    pub(super) fn follow_lists(&self) {
        self.client.follow_lists(self.router.manager());
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        self.router.clients().close(&self.client);
    }
}

/// Reads what belongs to no call.
struct Reader {
    client: Arc<Client>,
    questions: Questions,
    updates: broadcast::Sender<Arc<str>>,
    lists: broadcast::Sender<ListsChange>,
}

impl Reader {
    async fn run(mut self) {
        let client = self.client.clone();
        let _reading = client.mailbox().read();
        loop {
            tokio::select! {
                biased;
                message = client.mailbox().next() => match message {
                    Some(message) => self.hear(message),
                    None => return,
                },
                Some(response) = self.questions.next() => client.answer(response),
            }
        }
    }

    fn hear(&mut self, message: Message) {
        match message {
            Message::Request(request) => self.questions.ask(request.id, None, request.method, request.params),
            Message::Notification(notice) => self.note(&notice),
            Message::Response(_) => {}
        }
    }

    fn note(&mut self, notice: &Notification) {
        let mut change = ListsChange::default();
        match notice.method {
            Method::ToolsListChanged => change.tools = true,
            Method::PromptsListChanged => change.prompts = true,
            Method::ResourcesListChanged => change.resources = true,
            Method::ResourceUpdated => {
                if let Some(uri) = notice.params.as_ref().and_then(|params| params.text("uri")) {
                    // Nobody listening is fine.
                    let _ = self.updates.send(uri.into());
                }
                return;
            }
            Method::Cancelled => return self.questions.withdraw(notice),
            _ => return,
        }
        let _ = self.lists.send(change);
    }
}

/// Questions of servers that the handler works on. Dropped, it works on them no more.
pub(super) struct Questions {
    handler: Option<Arc<dyn Answers>>,
    running: FuturesUnordered<Abortable<BoxFuture<'static, (RequestId, Outcome)>>>,
    aborts: HashMap<RequestId, AbortHandle>,
}

impl Questions {
    pub(super) fn new(handler: Option<Arc<dyn Answers>>) -> Self {
        Self { handler, running: FuturesUnordered::new(), aborts: HashMap::new() }
    }

    /// Lets the handler answer a question; `server` asks it, by its name in the config.
    pub(super) fn ask(&mut self, id: RequestId, server: Option<String>, method: Method, params: Option<Raw>) {
        let (abort, registration) = AbortHandle::new_pair();
        let (handler, key) = (self.handler.clone(), id.clone());
        let work: BoxFuture<'static, _> =
            Box::pin(async move { (id, handler::answer(handler.as_deref(), server, &method, params).await) });
        self.running.push(Abortable::new(work, registration));
        self.aborts.insert(key, abort);
    }

    /// The server wants no answer any more.
    pub(super) fn withdraw(&mut self, notice: &Notification) {
        let id = notice.params.as_ref().and_then(|params| params.member("requestId")?.read::<RequestId>().ok());
        if let Some(abort) = id.and_then(|id| self.aborts.remove(&id)) {
            abort.abort();
        }
    }

    /// The next answer; `None` while there is no question.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing.
    pub(super) async fn next(&mut self) -> Option<Response> {
        loop {
            if let Ok((id, outcome)) = self.running.next().await? {
                self.aborts.remove(&id);
                return Some(Response { id: Some(id), outcome });
            }
        }
    }
}
