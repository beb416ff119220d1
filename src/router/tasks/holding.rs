//! Holds `tasks/result` open at a server with sessions, for the questions and the outcome of a task.

use std::sync::Arc;

use tokio::time::Instant;

use super::hold::Hold;
use super::registry::{Task, TaskPlace};
use super::{At, Tasks};
use crate::adapt::task;
use crate::answered::Answered;
use crate::protocol::{Method, Outcome, Raw};
use crate::router::answer::Failure;
use crate::router::client::Client;
use crate::transport::Error;
use crate::upstream::{Item, Terms};

impl Tasks {
    /// Returns the open questions of a task at a server with sessions, after giving it the time to ask.
    pub(super) async fn held_questions(&self, client: &Arc<Client>, task: &Task, at: &At) -> Option<Raw> {
        let TaskPlace::Session { hold, .. } = &task.place else { return None };
        if hold.questions().is_none() {
            self.hold_result(client, task, at);
            hold.asked().await;
        }
        hold.questions()
    }

    /// Returns the outcome of a task at a server with sessions that is over.
    pub(super) async fn held_outcome(&self, client: &Arc<Client>, task: &Task, at: &At) -> Answered {
        let TaskPlace::Session { hold, .. } = &task.place else { return Err(super::unknown().into()) };
        self.hold_result(client, task, at);
        let known = hold.until(|inner| inner.outcome.is_some() || !inner.is_open);
        if tokio::time::timeout(at.server.config.call_timeout, known).await.is_err() {
            let failure = Failure::malformed("it says that a task is over, and does not tell its result");
            return Err(failure.of(&at.server));
        }
        let outcome = hold.lock().outcome.clone();
        Ok(outcome.ok_or_else(|| Failure::lost(&Error::Broken).of(&at.server))??)
    }

    /// Holds a `tasks/result` open, unless one is open or was answered.
    fn hold_result(&self, client: &Arc<Client>, task: &Task, at: &At) {
        let TaskPlace::Session { hold, .. } = &task.place else { return };
        {
            let mut inner = hold.lock();
            if inner.is_open || inner.outcome.is_some() {
                return;
            }
            inner.is_open = true;
        }
        let (hold, client, at, id) = (hold.clone(), client.clone(), at.clone(), task.id.clone());
        let stop = self.background.stop().clone();
        // What it brings is for the client's next request, so it counts for an account of its own.
        let account = Some(self.queues.account());
        let terms = Terms { account, ..at.terms(&client, client.mailbox()) };
        self.background.spawn_whole(async move {
            let open = keep_open(&hold, &client, &at, &id, terms);
            let end = Instant::now() + at.server.config.max_call_time;
            let outcome = tokio::select! {
                outcome = open => outcome,
                () = tokio::time::sleep_until(end) => None,
                () = stop.cancelled() => None,
            };
            hold.close(outcome);
        });
    }
}

async fn keep_open(hold: &Hold, client: &Client, at: &At, id: &str, terms: Terms) -> Option<Outcome> {
    let request = at.connection.next_id();
    let params = task::renamed(&Raw::empty_object(), id);
    let mut exchange = at.connection.open(request, &Method::TasksResult, Some(&params), &terms);
    loop {
        match exchange.next().await {
            Item::Ask(ask) => hold.ask(at, client, ask),
            Item::Withdrawn(id) => hold.withdraw(&at.connection, &id),
            Item::Done(outcome) => return Some(outcome),
            Item::Lost(_) => return None,
            // Tasks of 2026-07-28 have neither progress nor log lines.
            Item::Progress(_) | Item::Log(_) | Item::HangUp(_) => {}
        }
    }
}
