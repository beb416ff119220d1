//! The messages between an instance and its client, and the tool, prompt and resource lists that all instances share
//! and may change.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::{mpsc, oneshot};

use super::{Offers, lock};
use crate::protocol::{
    ErrorObject, Message, Method, Notification, Outcome, Profile, Raw, Request, RequestId, Response,
};
use crate::registry::Kind;
use crate::transport::MemoryMessage;

/// The current lists, and the exchanges whose clients are told of changes.
pub(super) struct Shelf {
    offers: Mutex<Offers>,
    talks: Mutex<Vec<Weak<Talk>>>,
}

impl Shelf {
    pub(super) fn new(offers: Offers) -> Arc<Self> {
        Arc::new(Self { offers: Mutex::new(offers), talks: Mutex::default() })
    }

    /// Reads the lists.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Offers) -> T) -> T {
        look(&lock(&self.offers))
    }

    /// Changes a list, and returns whether `change` says that it changed; if so, tells every client.
    pub(super) async fn change(&self, kind: Kind, change: impl FnOnce(&mut Offers) -> bool) -> bool {
        let changed = change(&mut lock(&self.offers));
        if changed {
            let method = match kind {
                Kind::Tools => Method::ToolsListChanged,
                Kind::Prompts => Method::PromptsListChanged,
                Kind::Resources | Kind::ResourceTemplates => Method::ResourcesListChanged,
            };
            let talks: Vec<_> = lock(&self.talks).iter().filter_map(Weak::upgrade).collect();
            for talk in talks {
                let notification = Notification { method: method.clone(), params: None };
                talk.say(None, Message::Notification(notification)).await;
            }
        }
        changed
    }
}

/// The exchange of messages between one instance and its client.
pub(super) struct Talk {
    pub(super) shelf: Arc<Shelf>,
    out: mpsc::Sender<MemoryMessage>,
    /// The capabilities of the client.
    profile: Mutex<Profile>,
    asked: Mutex<HashMap<u64, oneshot::Sender<Outcome>>>,
    watched: Mutex<HashSet<String>>,
    next: AtomicU64,
}

impl Talk {
    /// Creates an exchange whose client is told of list changes.
    pub(super) fn new(shelf: &Arc<Shelf>, out: mpsc::Sender<MemoryMessage>) -> Arc<Self> {
        let talk = Arc::new(Self {
            shelf: shelf.clone(),
            out,
            profile: Mutex::new(Profile::EMPTY),
            asked: Mutex::default(),
            watched: Mutex::default(),
            next: AtomicU64::new(1),
        });
        let mut talks = lock(&shelf.talks);
        talks.retain(|talk| talk.strong_count() > 0);
        talks.push(Arc::downgrade(&talk));
        drop(talks);
        talk
    }

    /// Records the capabilities of the client.
    pub(super) fn learn(&self, profile: Profile) {
        *lock(&self.profile) = profile;
    }

    /// Records whether the client watches a resource.
    pub(super) fn watch(&self, uri: String, watches: bool) {
        let mut watched = lock(&self.watched);
        if watches {
            watched.insert(uri)
        } else {
            watched.remove(&uri)
        };
    }

    /// Passes the client's response to the handler whose request it answers.
    pub(super) fn answered(&self, response: Response) {
        let Some(RequestId::Number(id)) = response.id else { return };
        let waiting = u64::try_from(id).ok().and_then(|id| lock(&self.asked).remove(&id));
        if let Some(waiting) = waiting {
            // The handler may be gone.
            let _ = waiting.send(response.outcome);
        }
    }

    /// Sends a message; `during` is the client's request to which the message belongs.
    pub(super) async fn say(&self, during: Option<u64>, message: Message) {
        // A closed connection ends the instance anyway.
        let _ = self.out.send((during, message)).await;
    }

    /// Sends the client a request, and waits for its answer; `during` is the client's request to which this one
    /// belongs.
    pub(super) async fn ask(&self, during: Option<u64>, method: Method, params: Option<Raw>) -> Outcome {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        lock(&self.asked).insert(id, sender);
        let request = Request { id: RequestId::Number(i64::try_from(id).unwrap_or(i64::MAX)), method, params };
        self.say(during, Message::Request(request)).await;
        receiver.await.unwrap_or_else(|_| Err(ErrorObject::internal("the client is gone")))
    }

    /// Returns the capabilities of the client.
    pub(super) fn profile(&self) -> Profile {
        *lock(&self.profile)
    }

    /// Reports whether the client watches that resource.
    pub(super) fn is_watched(&self, uri: &str) -> bool {
        lock(&self.watched).contains(uri)
    }
}
