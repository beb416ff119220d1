//! Serves a client of 2025-11-25 that asks about a task at a server of 2026-07-28: the server is polled (*driven*) for
//! it.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::time::Instant;

use super::registry::TaskPlace;
use super::{About, At, Tasks, exposed, unknown};
use crate::adapt::task::{self, Status};
use crate::answered::{Answered, NoResult};
use crate::protocol::{ErrorObject, Method, Outcome, Raw, object};
use crate::router::Mailbox;
use crate::router::answer::Failure;
use crate::router::client::Client;
use crate::router::driver::{Driver, Next, Stage};

/// How long a server may take to cancel a task before the client is told that the task still runs.
const CANCELLING: std::time::Duration = std::time::Duration::from_secs(2);

impl Tasks {
    pub(super) async fn driven_task(&self, about: About<'_>, method: &Method) -> Answered {
        let About { client, task, at, leg } = about;
        let sent = task::renamed(&Raw::empty_object(), &task.id);
        match method {
            Method::TasksResult => self.drive_result(about, &sent).await,
            Method::TasksCancel => {
                let told = at.ask(client, &Method::TasksGet, &sent, leg).await?;
                if Status::of(&told).is_terminal() {
                    return Err(ErrorObject::invalid_params("the task is over already").into());
                }
                at.ask(client, method, &sent, leg).await?;
                let end = Instant::now() + CANCELLING;
                loop {
                    let told = at.ask(client, &Method::TasksGet, &sent, leg).await?;
                    if Status::of(&told).is_terminal() || Instant::now() >= end {
                        return Ok(task::legacy(&told, &task.handle));
                    }
                    tokio::time::sleep(task::poll_interval(&told)).await;
                }
            }
            _ => {
                let told = at.ask(client, method, &sent, leg).await?;
                Ok(task::legacy(&told, &task.handle))
            }
        }
    }

    /// Polls the task until it is over, and meanwhile puts its questions to the client. Returns the task's result.
    async fn drive_result(&self, about: About<'_>, sent: &Raw) -> Answered {
        let About { client, task, at, leg } = about;
        let TaskPlace::Open { asked } = &task.place else { return Err(unknown().into()) };
        let end = Instant::now() + at.server.config.max_call_time;
        let mut driver = Driver::default();
        loop {
            let told = exposed(&at.ask(client, &Method::TasksGet, sent, leg).await?, &at.server);
            let status = Status::of(&told);
            if status.is_terminal() {
                let outcome = task::outcome(&told);
                let result = self.finish.across(client, &at.server, at.version, &Method::ToolsCall, outcome)?;
                return Ok(task::related(&result, &task.handle));
            }
            if Instant::now() >= end {
                return Err(Failure::timeout(at.server.config.max_call_time, "maxCallTime").of(&at.server));
            }
            // If several requests wait for the result, only one of them puts the questions to the client.
            let mut asked = asked.try_lock().ok();
            let open = asked.as_ref().and_then(|asked| open_questions(&told, asked, &task.handle));
            let (Some(asked), Some(open)) = (&mut asked, open) else {
                drop(asked);
                tokio::time::sleep(task::poll_interval(&told)).await;
                continue;
            };
            asked.extend(keys(&open));
            match put_questions(client, at, &mut driver, &open, leg).await? {
                Ok(answers) => {
                    let update = sent.with_member("inputResponses", answers.as_bytes());
                    at.ask(client, &Method::TasksUpdate, &update, leg).await?;
                }
                // A refusal cannot be sent to the server, so the task is cancelled.
                Err(error) => {
                    tracing::info!(server = &*at.server.label, "a task is cancelled: {}", error.message);
                    at.ask(client, &Method::TasksCancel, sent, leg).await?;
                }
            }
        }
    }
}

/// Puts questions to the client concurrently. Returns the answers by key, or the outcome with which the client refused.
async fn put_questions(
    client: &Arc<Client>,
    at: &At,
    driver: &mut Driver,
    open: &Raw,
    leg: &Arc<Mailbox>,
) -> Result<Outcome, NoResult> {
    let stage = Stage {
        client,
        leg,
        server: &at.server,
        upstream: &at.upstream,
        version: at.version,
        method: &Method::TasksResult,
        call: at.connection.next_id(),
        patience: leg.limits().answer,
    };
    match driver.round(&stage, open, &Raw::empty_object()).await {
        Ok(Next::Again(params)) => Ok(Ok(params.member("inputResponses").unwrap_or_else(Raw::empty_object))),
        Ok(Next::Over(outcome)) => Ok(outcome),
        Err(failure) => Err(failure.of(&at.server)),
    }
}

/// Returns the keys of these questions.
fn keys(open: &Raw) -> Vec<String> {
    let requests = open.value_of("inputRequests").and_then(object).unwrap_or_default();
    requests.into_iter().map(|(key, _)| key.into_owned()).collect()
}

/// Returns the questions of a task that the client was not asked before, or `None` if there are none. Each names the
/// task by the id that the client knows.
fn open_questions(told: &Raw, asked: &HashSet<String>, handle: &str) -> Option<Raw> {
    let requests = told.member("inputRequests")?;
    let mut open = Vec::new();
    for (key, entry) in object(requests.as_value()).unwrap_or_default() {
        if asked.contains(&*key) {
            continue;
        }
        let entry = Raw::part(requests.bytes(), entry);
        let params = entry.member("params").unwrap_or_else(Raw::empty_object);
        let entry = entry.with_member("params", task::related(&params, handle).as_bytes());
        open.push(format!("{}:{entry}", Raw::from_value(&*key)));
    }
    let open = (!open.is_empty()).then(|| format!(r#"{{"inputRequests":{{{}}}}}"#, open.join(",")));
    open.map(|open| Raw::trusted(open.into()))
}
