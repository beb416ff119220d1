//! Questions that a task at a server with sessions puts to a client without a session (`docs/bridging.md` 11).
//!
//! The server asks by requests of its own on the stream of `tasks/result`, and waits for the responses. The client
//! finds the questions in the result of `tasks/get`, and answers by `tasks/update`. Meanwhile mcp-host keeps one
//! `tasks/result` request open at the server. **Invariant:** an answer reaches the server once, and no two questions of
//! a task have the same key.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::At;
use crate::protocol::{ErrorObject, Outcome, ProtocolVersion, Raw, RequestId, Theirs, object};
use crate::queues::{Account, Spare};
use crate::router::client::Client;
use crate::router::question;
use crate::upstream::{Ask, Connection};

/// The questions of one task, and its outcome once there is one.
#[derive(Debug)]
pub(super) struct Hold {
    inner: Mutex<Inner>,
    news: Notify,
}

#[derive(Debug)]
pub(super) struct Inner {
    /// Whether a `tasks/result` request is open.
    pub(super) is_open: bool,
    questions: BTreeMap<u64, Ask>,
    /// Counts the bytes of the questions. The client may never come for them, so they are kept only while there is
    /// plenty of room.
    room: Spare,
    keys: u64,
    pub(super) outcome: Option<Outcome>,
}

/// How long mcp-host waits for further questions after the first one, since servers ask several things concurrently.
const GATHER: Duration = Duration::from_millis(25);
/// How long mcp-host waits for the first question of a task whose status says that it needs input.
const ASKING: Duration = Duration::from_secs(1);

/// The error for a question that there is no room for.
const NO_ROOM: &str = "too much waits for clients (host.limits.clientQueues): ask again later";

impl Hold {
    /// Makes an empty hold. The questions that it keeps count in the queues of `account`.
    pub(super) fn of(account: &Account) -> Self {
        let room = account.spare();
        let inner = Inner { is_open: false, questions: BTreeMap::new(), room, keys: 0, outcome: None };
        Self { inner: Mutex::new(inner), news: Notify::new() }
    }

    /// Takes a question from the task: answers it at once if possible, otherwise keeps it for the client.
    pub(super) fn ask(&self, at: &At, client: &Client, ask: Ask) {
        let Some(ask) = question::judge(&at.server, at.server.declared(&client.who), ask) else { return };
        let Some(ask) = question::reword(&at.server, ask, ProtocolVersion::LATEST_MODERN) else { return };
        if let Err(error) = question::permit(client.profile(), &ask.method, ask.params.as_ref()) {
            return ask.answer(Err(error));
        }
        let mut inner = self.lock();
        if !inner.room.try_add(ask.weight()) {
            drop(inner);
            return ask.answer(Err(ErrorObject::internal(NO_ROOM)));
        }
        inner.keys += 1;
        let key = inner.keys;
        inner.questions.insert(key, ask);
        drop(inner);
        self.news.notify_waiters();
    }

    /// Returns how many bytes the kept result has.
    pub(super) fn weight(&self) -> usize {
        let inner = self.lock();
        inner.outcome.as_ref().and_then(|outcome| outcome.as_ref().ok()).map_or(0, |result| result.as_bytes().len())
    }

    pub(super) fn withdraw(&self, connection: &Arc<Connection>, id: &RequestId) {
        let mut inner = self.lock();
        let key = inner.questions.iter().find(|(_, ask)| ask.is(connection, id)).map(|(key, _)| *key);
        let ask = key.and_then(|key| inner.take(key));
        drop(inner);
        if let Some(ask) = ask {
            ask.forget();
        }
    }

    /// Returns the open questions in the form of 2026-07-28, or `None` if there are none.
    pub(super) fn questions(&self) -> Option<Raw> {
        let inner = self.lock();
        let entries = inner.questions.iter().map(|(key, ask)| {
            let params = ask.params.clone().unwrap_or_else(Raw::empty_object);
            format!(r#""i{key}":{{"method":"{}","params":{params}}}"#, ask.method)
        });
        let entries: Vec<String> = entries.collect();
        (!entries.is_empty()).then(|| Raw::trusted(format!("{{{}}}", entries.join(",")).into()))
    }

    /// Takes the client's answers. Answers to unknown or answered questions are ignored.
    ///
    /// # Errors
    /// `-32602` for answers that are not objects.
    pub(super) fn answer(&self, responses: &Raw) -> Result<(), ErrorObject> {
        let wrong = |what: &str| ErrorObject::invalid_params(format!("`inputResponses` {what}"));
        let given = object(responses.as_value()).ok_or_else(|| wrong("is no object"))?;
        if let Some((key, _)) = given.iter().find(|(_, value)| !value.get().starts_with('{')) {
            return Err(wrong(&format!("{:?} is no object", Theirs(key))));
        }
        for (key, value) in given {
            let number = key.strip_prefix('i').and_then(|number| number.parse::<u64>().ok());
            let ask = number.and_then(|number| self.lock().take(number));
            if let Some(ask) = ask {
                ask.answer(Ok(Raw::part(responses.bytes(), value)));
            }
        }
        Ok(())
    }

    /// Waits until the server has asked, but not longer than [`ASKING`].
    pub(super) async fn asked(&self) {
        let _ =
            tokio::time::timeout(ASKING, self.until(|inner| !inner.questions.is_empty() || inner.outcome.is_some()))
                .await;
        tokio::time::sleep(GATHER).await;
    }

    /// Waits until the condition holds.
    pub(super) async fn until(&self, is: impl Fn(&Inner) -> bool) {
        loop {
            let news = self.news.notified();
            if is(&self.lock()) {
                return;
            }
            news.await;
        }
    }

    /// Records that the `tasks/result` request is over. `outcome` is `None` if it got no answer.
    pub(super) fn close(&self, outcome: Option<Outcome>) {
        let mut inner = self.lock();
        inner.is_open = false;
        if inner.outcome.is_none() {
            inner.outcome = outcome;
        }
        // The server no longer waits for responses to the open questions.
        let keys: Vec<u64> = inner.questions.keys().copied().collect();
        let questions: Vec<Ask> = keys.into_iter().filter_map(|key| inner.take(key)).collect();
        drop(inner);
        drop(questions);
        self.news.notify_waiters();
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Removes and returns a question.
    fn take(&mut self, key: u64) -> Option<Ask> {
        let ask = self.questions.remove(&key)?;
        self.room.take(ask.weight());
        Some(ask)
    }
}
