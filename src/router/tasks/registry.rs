//! The table of the tasks that clients know: whose they are, and where they run.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::hold::Hold;
use crate::manager::Principal;
use crate::name::ServerName;
use crate::protocol::{Outcome, RequestId};
use crate::router::rising::Rising;
use crate::upstream::{Connection, Owner};

/// One task.
#[derive(Debug)]
pub(in crate::router) struct Task {
    /// The id by which the client knows it.
    pub(super) handle: Arc<str>,
    /// The principal that it belongs to, combined with the view.
    pub(super) principal: Principal,
    /// The client that began it.
    pub(super) owner: Owner,
    pub(super) server: ServerName,
    /// The server's own id for it.
    pub(super) id: Box<str>,
    pub(super) place: TaskPlace,
}

/// Where a task runs, or its outcome is kept.
#[derive(Debug)]
pub(super) enum TaskPlace {
    /// At a server with sessions. The task is lost with the connection.
    Session {
        lease: u64,
        connection: Weak<Connection>,
        hold: Arc<Hold>,
        /// Progress under the progress token of the request that began the task. The token is valid as long as the task
        /// runs.
        progress: Mutex<Rising>,
    },
    /// At a server without sessions. `asked` are the keys of the questions that were put to the client before; the
    /// request that puts questions to the client holds the lock.
    Open { asked: tokio::sync::Mutex<HashSet<String>> },
    /// In mcp-host itself: the call was over at once with this outcome. `at` is when, as the time since 1970.
    Here { outcome: Outcome, at: Duration },
}

/// All tasks, oldest first. Adding a task removes those whose server session is over. If there are still too many, the
/// oldest tasks of the principal with the most are removed.
#[derive(Debug, Default)]
pub(in crate::router) struct Registry(Mutex<Records>);

#[derive(Debug, Default)]
struct Records {
    by_handle: HashMap<Arc<str>, Arc<Task>>,
    order: VecDeque<Arc<str>>,
}

/// The most tasks in the table. Tasks at servers without sessions are found by their ids even if they are not in it.
const KEPT: usize = 4096;
/// The most bytes that all of them may hold, mainly results.
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
        let mut dropped = Vec::new();
        while records.order.len() > KEPT || (weight > HEAVY && records.order.len() > 1) {
            let is_heavy = weight > HEAVY;
            let Some(oldest) = records.take_of_fullest(&task, |task| if is_heavy { task.weight() } else { 1 }) else {
                break;
            };
            weight -= oldest.weight().min(weight);
            dropped.push(oldest);
        }
        drop(records);
        // Dropping them answers their open questions.
        drop((over, dropped));
        task
    }

    pub(super) fn find(&self, handle: &str) -> Option<Arc<Task>> {
        self.lock().by_handle.get(handle).cloned()
    }

    /// Returns the tasks of a principal, oldest first.
    pub(super) fn of(&self, principal: &Principal) -> Vec<Arc<Task>> {
        let records = self.lock();
        let all = records.order.iter().filter_map(|handle| records.by_handle.get(handle));
        all.filter(|task| task.principal == *principal).cloned().collect()
    }

    /// Takes back a question that a server withdraws by a message outside of calls.
    pub(in crate::router) fn withdraw(&self, connection: &Arc<Connection>, id: &RequestId) {
        for task in self.lock().by_handle.values().filter(|task| task.is_on(connection)) {
            if let TaskPlace::Session { hold, .. } = &task.place {
                hold.withdraw(connection, id);
            }
        }
    }

    /// Returns the tasks on that connection whose id at the server is `id`. There are several if the server gave the id
    /// to several people.
    pub(super) fn on(&self, connection: &Arc<Connection>, id: &str) -> Vec<Arc<Task>> {
        let records = self.lock();
        let is_there = |task: &&Arc<Task>| *task.id == *id && task.is_on(connection);
        records.by_handle.values().filter(is_there).cloned().collect()
    }
}

impl Registry {
    /// Returns the number of tasks.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the status asks"))]
    pub(in crate::router) fn len(&self) -> usize {
        self.lock().order.len()
    }

    fn lock(&self) -> MutexGuard<'_, Records> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Records {
    /// Removes and returns the oldest task of the principal that has most; `counts` says how much each task counts.
    /// Never removes `newest`.
    fn take_of_fullest(&mut self, newest: &Arc<Task>, counts: impl Fn(&Task) -> usize) -> Option<Arc<Task>> {
        let mut of_each: HashMap<&Principal, usize> = HashMap::new();
        for task in self.by_handle.values() {
            *of_each.entry(&task.principal).or_default() += counts(task);
        }
        let (fullest, _) = of_each.into_iter().max_by_key(|(_, count)| *count)?;
        let is_of = |handle: &Arc<str>, principal: Option<&Principal>| {
            *handle != newest.handle
                && self.by_handle.get(handle).is_some_and(|task| principal.is_none_or(|of| task.principal == *of))
        };
        // The newest task, which stays, may be the only one of that principal.
        let at = self.order.iter().position(|handle| is_of(handle, Some(fullest)));
        let at = at.or_else(|| self.order.iter().position(|handle| is_of(handle, None)))?;
        self.order.remove(at).and_then(|handle| self.by_handle.remove(&handle))
    }

    /// Removes and returns the tasks that were lost with their server session, since no request can reach them any
    /// more.
    fn take_over(&mut self) -> Vec<Arc<Task>> {
        let over: Vec<Arc<Task>> = self.by_handle.extract_if(|_, task| task.is_lost()).map(|(_, task)| task).collect();
        if !over.is_empty() {
            self.order.retain(|handle| self.by_handle.contains_key(handle));
        }
        over
    }
}

impl Task {
    /// Returns how many bytes are kept for it.
    fn weight(&self) -> usize {
        let more = match &self.place {
            TaskPlace::Session { hold, progress, .. } => {
                hold.weight() + progress.lock().unwrap_or_else(PoisonError::into_inner).weight()
            }
            TaskPlace::Open { .. } => 0,
            TaskPlace::Here { outcome, .. } => outcome.as_ref().map_or(0, |result| result.as_bytes().len()),
        };
        self.handle.len() + self.id.len() + more
    }

    /// Reports whether the server session that it ran in is over.
    fn is_lost(&self) -> bool {
        match &self.place {
            TaskPlace::Session { connection, .. } => {
                connection.upgrade().is_none_or(|connection| connection.lost().is_some())
            }
            TaskPlace::Open { .. } | TaskPlace::Here { .. } => false,
        }
    }

    /// Reports whether it runs on this connection.
    pub(super) fn is_on(&self, connection: &Arc<Connection>) -> bool {
        match &self.place {
            TaskPlace::Session { connection: own, .. } => std::ptr::eq(own.as_ptr(), Arc::as_ptr(connection)),
            TaskPlace::Open { .. } | TaskPlace::Here { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(of: &Principal, number: usize, size: usize) -> Task {
        let outcome = Ok(crate::protocol::Raw::trusted(format!("\"{}\"", "x".repeat(size)).into()));
        Task {
            handle: format!("{}{number}", of.as_str()).into(),
            principal: of.clone(),
            owner: Owner::HOST,
            server: ServerName::from_config("s").unwrap(),
            id: "t".into(),
            place: TaskPlace::Here { outcome, at: Duration::ZERO },
        }
    }

    #[test]
    fn h101_of_too_many_tasks_those_of_whoever_has_most_are_forgotten() {
        let (few, many) = (Principal::named("few"), Principal::named("many"));
        for (size, count) in [(0, KEPT + 100), (1 << 20, 100)] {
            let registry = Registry::default();
            let first = registry.put(task(&few, 0, size));
            for number in 0..count {
                registry.put(task(&many, number, size));
            }
            let last = registry.put(task(&few, 1, size));
            for task in [&first, &last] {
                assert!(registry.find(&task.handle).is_some(), "{size} bytes each: {}", task.handle);
            }
            assert!(registry.find("many0").is_none(), "{size} bytes each");
            assert_eq!(registry.of(&few).len(), 2);
        }
    }

    #[test]
    fn the_newest_task_is_kept_though_it_is_the_heaviest() {
        let registry = Registry::default();
        let (one, other) = (Principal::named("one"), Principal::named("other"));
        registry.put(task(&other, 0, HEAVY / 2));
        let heavy = registry.put(task(&one, 0, HEAVY));
        assert!(registry.find(&heavy.handle).is_some());
        assert_eq!(registry.len(), 1);
    }
}
