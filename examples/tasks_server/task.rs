//! Tasks: what runs, what it asks, how it ended.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mcp_host::protocol::ErrorObject;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How a tool ended: its result, or a JSON-RPC error.
pub(crate) type Ended = Result<Value, ErrorObject>;

/// All tasks until they expire.
#[derive(Default)]
pub(crate) struct Store {
    tasks: Mutex<HashMap<String, Arc<Task>>>,
    running: TaskTracker,
}

/// One task.
pub(crate) struct Task {
    pub(crate) id: String,
    created: String,
    until: Instant,
    state: Mutex<State>,
    news: Notify,
    changes: watch::Sender<u64>,
    pub(crate) cancel: CancellationToken,
}

struct State {
    status: &'static str,
    updated: String,
    /// Its open questions, by key; a key is never reused.
    questions: BTreeMap<String, Value>,
    answers: HashMap<String, Value>,
    asked: u32,
    ended: Option<Ended>,
}

pub(crate) const TTL: Duration = Duration::from_secs(300);
pub(crate) const POLL: Duration = Duration::from_millis(100);

impl Store {
    /// Runs a tool as a task, which exists before this returns.
    pub(crate) fn start<F>(&self, work: impl FnOnce(Arc<Task>) -> F) -> Arc<Task>
    where
        F: Future<Output = Ended> + Send + 'static,
    {
        let task = Arc::new(Task::new());
        let mut tasks = lock(&self.tasks);
        tasks.retain(|_, task| task.until > Instant::now());
        tasks.insert(task.id.clone(), task.clone());
        drop(tasks);
        let work = work(task.clone());
        let runs = task.clone();
        self.running.spawn(async move {
            match runs.cancel.run_until_cancelled(work).await {
                Some(ended) => runs.end(Some(ended)),
                None => runs.end(None),
            }
        });
        task
    }

    pub(crate) fn find(&self, id: &str) -> Result<Arc<Task>, ErrorObject> {
        let found = lock(&self.tasks).get(id).filter(|task| task.until > Instant::now()).cloned();
        found.ok_or_else(|| ErrorObject::invalid_params("unknown task"))
    }

    pub(crate) fn all(&self) -> Vec<Arc<Task>> {
        lock(&self.tasks).values().cloned().collect()
    }
}

impl Task {
    fn new() -> Self {
        let now = now();
        let state = State {
            status: "working",
            updated: now.clone(),
            questions: BTreeMap::new(),
            answers: HashMap::new(),
            asked: 0,
            ended: None,
        };
        Self {
            id: unguessable(),
            created: now,
            until: Instant::now() + TTL,
            state: Mutex::new(state),
            news: Notify::new(),
            changes: watch::Sender::new(0),
            cancel: CancellationToken::new(),
        }
    }

    /// Asks the client, and waits for its answer.
    pub(crate) async fn ask(&self, question: Value) -> Value {
        let key = {
            let mut state = lock(&self.state);
            state.asked += 1;
            let key = format!("input-{}", state.asked);
            state.questions.insert(key.clone(), question);
            state.change("input_required");
            key
        };
        self.tell();
        loop {
            let news = self.news.notified();
            if let Some(answer) = lock(&self.state).answers.remove(&key) {
                return answer;
            }
            news.await;
        }
    }

    /// Takes the client's answer to a question; ignored if it was not asked.
    pub(crate) fn answer(&self, key: &str, answer: Value) {
        let mut state = lock(&self.state);
        if state.questions.remove(key).is_none() {
            return;
        }
        state.answers.insert(key.to_owned(), answer);
        if state.questions.is_empty() && state.ended.is_none() {
            state.change("working");
        }
        drop(state);
        self.tell();
    }

    fn end(&self, ended: Option<Ended>) {
        let mut state = lock(&self.state);
        state.questions.clear();
        state.change(match &ended {
            None => "cancelled",
            Some(Ok(_)) => "completed",
            Some(Err(_)) => "failed",
        });
        state.ended = ended;
        drop(state);
        self.tell();
    }

    /// Returns its open questions.
    pub(crate) fn questions(&self) -> BTreeMap<String, Value> {
        lock(&self.state).questions.clone()
    }

    /// Returns how it ended: `Some(None)` if it was cancelled.
    pub(crate) fn ended(&self) -> Option<Option<Ended>> {
        let state = lock(&self.state);
        is_terminal(state.status).then(|| state.ended.clone())
    }

    /// Renders it in the form of 2026-07-28.
    pub(crate) fn modern(&self) -> Value {
        let state = lock(&self.state);
        json!({
            "taskId": self.id, "status": state.status, "createdAt": self.created, "lastUpdatedAt": state.updated,
            "ttlMs": millis(TTL), "pollIntervalMs": millis(POLL),
        })
    }

    /// Like `modern`, with the members of its status.
    pub(crate) fn detailed(&self) -> Value {
        let mut told = self.modern();
        let state = lock(&self.state);
        if !state.questions.is_empty() {
            told["inputRequests"] = json!(state.questions);
        }
        match &state.ended {
            Some(Ok(result)) => told["result"] = result.clone(),
            Some(Err(error)) => told["error"] = json!(error),
            None => {}
        }
        told
    }

    /// Renders it in the form of 2025-11-25, where a failed tool is a failed task.
    pub(crate) fn legacy(&self) -> Value {
        let state = lock(&self.state);
        let failed = matches!(&state.ended, Some(Ok(result)) if result["isError"] == true);
        json!({
            "taskId": self.id, "status": if failed { "failed" } else { state.status }, "createdAt": self.created,
            "lastUpdatedAt": state.updated, "ttl": millis(TTL), "pollInterval": millis(POLL),
        })
    }

    /// Subscribes to changes from now on.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn tell(&self) {
        self.news.notify_waiters();
        self.changes.send_modify(|count| *count += 1);
    }
}

impl State {
    fn change(&mut self, status: &'static str) {
        self.status = status;
        self.updated = now();
    }
}

fn is_terminal(status: &str) -> bool {
    matches!(status, "completed" | "failed" | "cancelled")
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn unguessable() -> String {
    use std::hash::{BuildHasher as _, RandomState};
    // Two of 64 bits each, from the randomness that hash tables are keyed with.
    format!("task-{:016x}{:016x}", RandomState::new().hash_one(0), RandomState::new().hash_one(1))
}

/// Returns the time in ISO 8601.
fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // Days since 0000-03-01, in eras of 400 years (H. Hinnant, "chrono-compatible low-level date algorithms").
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
