//! The embedding program as a client of the router. The host itself is one such client, and each
//! [`Session`](super::Session) is another.
//!
//! Messages and questions from servers that belong to no call come in; list changes, resource updates, and answers go
//! out. **Invariant:** the program is not a client of a door: no list of clients has it, and no login is requested
//! through it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use futures_util::future::{AbortHandle, Abortable, BoxFuture};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use super::handler::{self, Answers, Asker};
use super::lock;
use crate::manager::Principal;
use crate::protocol::{Message, Method, Notification, Outcome, Profile, ProtocolVersion, Raw, RequestId, Response};
use crate::queues::Account;
use crate::router::{Abilities, Chosen, Client, Identity, Named, Router, Viewed};

/// Which of the tool, prompt and resource lists have changed since the program last read them.
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
    /// Sends the URIs of updated resources to their watchers.
    pub(super) updates: broadcast::Sender<Arc<str>>,
    pub(super) lists: broadcast::Sender<ListsChange>,
    /// Canceled when no more messages will come.
    pub(super) over: CancellationToken,
    /// The number of watchers of each URI.
    watched: Mutex<BTreeMap<Box<str>, usize>>,
}

/// How many resource updates or list changes a slow reader may fall behind.
const BEHIND: usize = 64;

impl Conversation {
    /// Begins a conversation in a view; servers see it as `name`.
    pub(super) fn begin(router: &Router, handler: Option<Arc<dyn Answers>>, name: &str, view: Chosen) -> Arc<Self> {
        let profile = handler.as_ref().map_or(Profile::EMPTY, |handler| handler.profile());
        let abilities = Abilities { revision: ProtocolVersion::LATEST_HANDSHAKE, profile, extensions: None };
        // If this program does not read the messages for it, the memory that they take counts against no limit.
        let identity = Identity { view: Viewed { name: view, is_private: false }, ..Principal::local().into() };
        let client = router.clients().admit(identity, abilities, Named::new(name, None), Account::free());
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

    /// Counts one more watcher of a resource.
    pub(super) fn watch(&self, uri: &str) {
        *lock(&self.watched).entry(uri.into()).or_default() += 1;
    }

    /// Counts one watcher less; when the last one leaves, the subscription ends.
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

    /// Reports changes to the tool, prompt and resource lists from now on.
    pub(super) fn follow_lists(&self) {
        self.client.follow_lists(self.router.manager());
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        self.router.clients().close(&self.client);
    }
}

/// Reads the messages that belong to no call.
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
            Message::Request(request) => {
                self.questions.ask(request.id, Asker::Server(None), request.method, request.params);
            }
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
                    // There may be no listener.
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

/// Questions from servers that the handler is answering. Dropping this drops the unfinished answers.
pub(super) struct Questions {
    handler: Option<Arc<dyn Answers>>,
    running: FuturesUnordered<Abortable<BoxFuture<'static, (RequestId, Outcome)>>>,
    aborts: HashMap<RequestId, AbortHandle>,
}

impl Questions {
    pub(super) fn new(handler: Option<Arc<dyn Answers>>) -> Self {
        Self { handler, running: FuturesUnordered::new(), aborts: HashMap::new() }
    }

    /// Passes a question to the handler.
    pub(super) fn ask(&mut self, id: RequestId, asker: Asker, method: Method, params: Option<Raw>) {
        let (abort, registration) = AbortHandle::new_pair();
        let (handler, key) = (self.handler.clone(), id.clone());
        let work: BoxFuture<'static, _> =
            Box::pin(async move { (id, handler::answer(handler.as_deref(), asker, &method, params).await) });
        self.running.push(Abortable::new(work, registration));
        self.aborts.insert(key, abort);
    }

    /// Stops answering a question that its server has canceled.
    pub(super) fn withdraw(&mut self, notice: &Notification) {
        let id = notice.params.as_ref().and_then(|params| params.member("requestId")?.read::<RequestId>().ok());
        if let Some(abort) = id.and_then(|id| self.aborts.remove(&id)) {
            abort.abort();
        }
    }

    /// Waits for the next answer; returns `None` if no question waits for one.
    ///
    /// # Cancel safety
    /// Dropping the wait loses nothing.
    pub(super) async fn next(&mut self) -> Option<Response> {
        loop {
            if let Ok((id, outcome)) = self.running.next().await? {
                self.aborts.remove(&id);
                return Some(Response { id: Some(id), outcome });
            }
        }
    }
}
