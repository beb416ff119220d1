//! Serves a client of 2026-07-28 that asks about a task at a server of 2025-11-25. mcp-host keeps a `tasks/result`
//! request open at the server, over which the task's questions and its outcome come.

use std::sync::Arc;

use tokio::time::Instant;

use super::hold::Hold;
use super::registry::{Task, TaskPlace};
use super::{About, At, Tasks, exposed, unknown};
use crate::adapt;
use crate::adapt::task::{self, Status};
use crate::answered::{Answered, NoResult};
use crate::protocol::{ErrorObject, Method, Outcome, Raw, code};
use crate::router::answer::Failure;
use crate::router::client::Client;
use crate::transport::Error;
use crate::upstream::{Item, Terms};

impl Tasks {
    pub(super) async fn held_task(&self, about: About<'_>, method: &Method, params: &Raw) -> Answered {
        let About { client, task, at, leg } = about;
        let sent = task::renamed(&Raw::empty_object(), &task.id);
        match method {
            Method::TasksUpdate => {
                let missing = || ErrorObject::invalid_params("tasks/update: `inputResponses` is missing");
                let responses = params.member("inputResponses").ok_or_else(missing)?;
                let TaskPlace::Session { hold, .. } = &task.place else { return Err(unknown().into()) };
                hold.answer(&responses)?;
                Ok(Raw::empty_object())
            }
            Method::TasksCancel => match at.ask(client, method, &sent, leg).await {
                Ok(_) => Ok(Raw::empty_object()),
                // A server of 2025-11-25 answers with this error if it is to cancel a finished task. Later revisions
                // acknowledge the request.
                Err(NoResult::Error(error)) if error.code == code::INVALID_PARAMS => {
                    let told = at.ask(client, &Method::TasksGet, &sent, leg).await?;
                    if Status::of(&told).is_terminal() { Ok(Raw::empty_object()) } else { Err(error.into()) }
                }
                Err(none) => Err(none),
            },
            _ => {
                let told = at.ask(client, &Method::TasksGet, &sent, leg).await?;
                self.in_detail(client, task, at, &told).await
            }
        }
    }

    /// Returns a task as a client of 2026-07-28 expects it: with its open questions, or its outcome.
    async fn in_detail(&self, client: &Arc<Client>, task: &Task, at: &At, told: &Raw) -> Answered {
        let flat = task::modern(told, &task.handle);
        match Status::of(told) {
            Status::Cancelled => Ok(flat),
            Status::Completed | Status::Failed => {
                let outcome = match self.held_outcome(client, task, at).await {
                    Ok(result) => Ok(exposed(&result, &at.server)),
                    Err(NoResult::Error(error)) => {
                        let name = &at.server.config.name;
                        adapt::error(error, &Method::ToolsCall, at.version, client.revision(), name)
                    }
                    Err(NoResult::Failed(failed)) => Err(failed.error()),
                };
                Ok(task::ended(&flat, &outcome))
            }
            status @ (Status::Working | Status::InputRequired) => {
                let questions = match (&task.place, status) {
                    (_, Status::InputRequired) => self.held_questions(client, task, at).await,
                    // The task may have asked before its status says so.
                    (TaskPlace::Session { hold, .. }, _) => hold.questions(),
                    _ => None,
                };
                Ok(match questions {
                    Some(questions) => task::with_status(&flat, Status::InputRequired)
                        .with_member("inputRequests", questions.as_bytes()),
                    // The task asks nothing that this client could answer.
                    None => task::with_status(&flat, Status::Working),
                })
            }
        }
    }

    /// Returns the open questions of a task at a server with sessions, after giving the server time to ask.
    pub(super) async fn held_questions(&self, client: &Arc<Client>, task: &Task, at: &At) -> Option<Raw> {
        let TaskPlace::Session { hold, .. } = &task.place else { return None };
        if hold.questions().is_none() {
            self.hold_result(client, task, at);
            hold.asked().await;
        }
        hold.questions()
    }

    /// Waits for the outcome of a finished task at a server with sessions.
    pub(super) async fn held_outcome(&self, client: &Arc<Client>, task: &Task, at: &At) -> Answered {
        let TaskPlace::Session { hold, .. } = &task.place else { return Err(unknown().into()) };
        self.hold_result(client, task, at);
        let known = hold.until(|inner| inner.outcome.is_some() || !inner.is_open);
        if tokio::time::timeout(at.server.config.call_timeout, known).await.is_err() {
            let failure = Failure::malformed("it says that a task is over, and does not tell its result");
            return Err(failure.of(&at.server));
        }
        let outcome = hold.lock().outcome.clone();
        Ok(outcome.ok_or_else(|| Failure::lost(&Error::Broken).of(&at.server))??)
    }

    /// Opens a `tasks/result` request for the task, unless one is open or was answered.
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
        // The messages of this request are for the client's next request, so they count for a separate account.
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
            // Tasks of 2026-07-28 have neither progress nor log messages.
            Item::Progress(_) | Item::Log(_) | Item::HangUp(_) => {}
        }
    }
}
