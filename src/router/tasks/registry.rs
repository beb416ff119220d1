//! Tasks that clients know of: whose each is, and where it runs.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::hold::Hold;
use crate::manager::Principal;
use crate::name::ServerName;
use crate::protocol::{Outcome, RequestId};
use crate::router::running::Rising;
use crate::upstream::{Connection, Owner};

/// One task.
#[derive(Debug)]
pub(in crate::router) struct Task {
    /// Its id as the client knows it.
    pub(super) handle: Arc<str>,
    pub(super) principal: Principal,
    /// The client that began it.
    pub(super) owner: Owner,
    pub(super) server: ServerName,
    /// Its id as the server knows it.
    pub(super) id: Box<str>,
    pub(super) place: Place,
}

/// Where a task is.
#[derive(Debug)]
pub(super) enum Place {
    /// At a server with a session: it is lost with the connection.
    Session {
        lease: u64,
        connection: Weak<Connection>,
        hold: Arc<Hold>,
        /// Under the token of the request that began it, which is good for as long as it runs.
        progress: Mutex<Rising>,
    },
    /// At a server without one. Who puts its questions to a client holds the lock; kept are those that were answered.
    Open { asked: tokio::sync::Mutex<HashSet<String>> },
    /// Here: the call was over at once, at that time since 1970.
    Here { outcome: Outcome, at: Duration },
}

/// All of them, oldest first. Those whose session is over go with the next one that comes, and the oldest when there are too
/// many.
#[derive(Debug, Default)]
pub(in crate::router) struct Registry(Mutex<Records>);

#[derive(Debug, Default)]
struct Records {
    by_handle: HashMap<Arc<str>, Arc<Task>>,
    order: VecDeque<Arc<str>>,
}

/// Tasks that are known at once. One of a server without a session is found without this table.
const KEPT: usize = 4096;
/// Bytes that are kept of them, results above all.
const HEAVY: usize = 64 << 20;

impl Registry {
    pub(super) fn put(&self, task: Task) -> Arc<Task> {
        let task = Arc::new(task);
        let mut records = self.lock();
        let over = records.take_over();
        if records.by_handle.insert(task.handle.clone(), task.clone()).is_none() {
            records.order.push_back(task.handle.clone());
        }
        let mut weight: usize = records.by_handle.values().map(|task| task.weight()).sum();
        while records.order.len() > KEPT || (weight > HEAVY && records.order.len() > 1) {
            let oldest = records.order.pop_front().and_then(|oldest| records.by_handle.remove(&oldest));
            weight -= oldest.map_or(0, |oldest| oldest.weight()).min(weight);
        }
        drop(records);
        // What they still ask is answered now.
        drop(over);
        task
    }

    pub(super) fn find(&self, handle: &str) -> Option<Arc<Task>> {
        self.lock().by_handle.get(handle).cloned()
    }

    /// The tasks of somebody, oldest first.
    pub(super) fn of(&self, principal: &Principal) -> Vec<Arc<Task>> {
        let records = self.lock();
        let all = records.order.iter().filter_map(|handle| records.by_handle.get(handle));
        all.filter(|task| task.principal == *principal).cloned().collect()
    }

    /// A server withdraws a question that it did not put during a request.
    pub(in crate::router) fn withdraw(&self, connection: &Arc<Connection>, id: &RequestId) {
        for task in self.lock().by_handle.values().filter(|task| task.is_on(connection)) {
            if let Place::Session { hold, .. } = &task.place {
                hold.withdraw(connection, id);
            }
        }
    }

    /// The tasks that the server calls so on that connection: more than one where several people were given it.
    pub(super) fn on(&self, connection: &Arc<Connection>, id: &str) -> Vec<Arc<Task>> {
        let records = self.lock();
        let is_there = |task: &&Arc<Task>| *task.id == *id && task.is_on(connection);
        records.by_handle.values().filter(is_there).cloned().collect()
    }
}

impl Registry {
    /// How many there are.
    #[cfg(test)]
    pub(in crate::router) fn len(&self) -> usize {
        self.lock().order.len()
    }

    fn lock(&self) -> MutexGuard<'_, Records> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Records {
    /// Takes out the tasks that were lost with their session: nobody finds them any more.
    fn take_over(&mut self) -> Vec<Arc<Task>> {
        let over: Vec<Arc<Task>> = self.by_handle.extract_if(|_, task| task.is_lost()).map(|(_, task)| task).collect();
        if !over.is_empty() {
            self.order.retain(|handle| self.by_handle.contains_key(handle));
        }
        over
    }
}

impl Task {
    /// How many bytes are kept for it.
    fn weight(&self) -> usize {
        let more = match &self.place {
            Place::Session { hold, progress, .. } => {
                hold.weight() + progress.lock().unwrap_or_else(PoisonError::into_inner).weight()
            }
            Place::Open { .. } => 0,
            Place::Here { outcome, .. } => outcome.as_ref().map_or(0, |result| result.as_bytes().len()),
        };
        self.handle.len() + self.id.len() + more
    }

    /// Whether the session that it ran in is over.
    fn is_lost(&self) -> bool {
        match &self.place {
            Place::Session { connection, .. } => {
                connection.upgrade().is_none_or(|connection| connection.lost().is_some())
            }
            Place::Open { .. } | Place::Here { .. } => false,
        }
    }

    /// Whether it is one of the session that this connection is.
    pub(super) fn is_on(&self, connection: &Arc<Connection>) -> bool {
        match &self.place {
            Place::Session { connection: own, .. } => std::ptr::eq(own.as_ptr(), Arc::as_ptr(connection)),
            Place::Open { .. } | Place::Here { .. } => false,
        }
    }
}
