//! Runs a tool that its server runs only as a task, for a client that knows no tasks. mcp-host begins the task, waits
//! for it, and answers as if it were one call. If the call is dropped, the task is cancelled.

use std::sync::Arc;

use tokio::time::Instant;

use super::registry::Task;
use super::{At, Tasks};
use crate::adapt::task::{self, Status};
use crate::answered::{Answered, NoResult};
use crate::protocol::{ErrorObject, Method, Outcome, ProtocolVersion, Raw};
use crate::router::Mailbox;
use crate::router::answer::Failure;
use crate::router::background::Background;
use crate::router::client::Client;
use crate::router::clocks::Clocks;
use crate::router::forward::Forward;
use crate::router::running::{Attempt, Running};
use crate::router::toward::Toward;
use crate::upstream::{Connection, Exchange, Upstream};

impl Tasks {
    /// Waits for a task that the client does not know of, and returns the answer to the client's call.
    pub(super) async fn run_hidden(
        &self,
        client: &Arc<Client>,
        forward: &Forward,
        (upstream, connection): (&Arc<Upstream>, &Arc<Connection>),
        toward: &mut Toward<'_>,
        (exchange, made): (&mut Exchange, Raw),
    ) -> Result<Answered, Attempt> {
        let server = &forward.server;
        let version = connection.peer().map_or(ProtocolVersion::LATEST_HANDSHAKE, |peer| peer.version);
        let at = At { server: server.clone(), upstream: upstream.clone(), connection: connection.clone(), version };
        let sent = task::renamed(&Raw::empty_object(), &made.text("taskId").unwrap_or_default());
        let limit = forward.max_call_time();
        let end = Instant::now() + limit;
        let mut unfinished =
            Unfinished { background: self.background.clone(), client: client.clone(), at, sent, is_over: false };
        let (at, sent) = (&unfinished.at, &unfinished.sent);
        let mut task = made;
        while Status::of(&task) == Status::Working {
            if Instant::now() >= end {
                return Err(Attempt::Failed(Failure::timeout(limit, "maxCallTime")));
            }
            let polled = async {
                tokio::time::sleep(task::poll_interval(&task)).await;
                at.ask(client, &Method::TasksGet, sent, client.mailbox()).await
            };
            match toward.hear_until(server, exchange, polled).await {
                Ok(told) => task = told,
                Err(NoResult::Error(error)) => return Ok(self.finish.adapted(client, forward, version, Err(error))),
                Err(failed @ NoResult::Failed(_)) => return Ok(Err(failed)),
            }
        }
        // The task is over, or asks something. The `tasks/result` request brings either.
        let outcome = self.task_result(client, at, sent, toward, (end, Some(exchange))).await?;
        unfinished.is_over = true;
        let outcome = outcome.map(|result| task::unrelated(&result));
        Ok(self.finish.adapted(client, forward, version, outcome))
    }

    /// Waits for the result of a task at a server with sessions, at most until `end`, however long the server is
    /// silent.
    async fn task_result(
        &self,
        client: &Client,
        at: &At,
        sent: &Raw,
        toward: &mut Toward<'_>,
        (end, call): (Instant, Option<&mut Exchange>),
    ) -> Result<Outcome, Attempt> {
        let id = at.connection.next_id();
        let terms = at.terms(client, client.mailbox());
        let mut exchange = at.connection.open(id, &Method::TasksResult, Some(sent), &terms);
        // The task's progress comes under the progress token of the call that began it.
        if let Some(call) = call {
            call.goes_on_in(&exchange);
        }
        let patience = toward.limits().answer;
        let mut running = Running {
            toward,
            server: &at.server,
            upstream: &at.upstream,
            connection: &at.connection,
            answered: None,
            clocks: Clocks::start(Instant::now(), at.server.config.max_call_time, patience, end),
            most: at.server.config.max_call_time,
            vigil: self.manager.vigil(),
        };
        running.wait(id, &mut exchange).await
    }

    /// Serves `tasks/result` if client and server both speak 2025-11-25.
    pub(super) async fn wait_for_result(
        &self,
        client: &Arc<Client>,
        task: &Task,
        at: &At,
        leg: &Arc<Mailbox>,
    ) -> Answered {
        let end = Instant::now() + at.server.config.max_call_time;
        let sent = task::renamed(&Raw::empty_object(), &task.id);
        let mut toward = Toward::leg(client, leg).about(&task.handle);
        let failure = match self.task_result(client, at, &sent, &mut toward, (end, None)).await {
            Ok(outcome) => return Ok(outcome?),
            Err(Attempt::Failed(failure)) => failure,
            Err(Attempt::Lost(error)) => Failure::lost(&error),
        };
        Err(failure.of(&at.server))
    }
}

/// A task that no client knows. If the call that began it is dropped before the task is over, the task is cancelled.
struct Unfinished {
    background: Background,
    client: Arc<Client>,
    at: At,
    sent: Raw,
    is_over: bool,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if self.is_over || self.at.connection.lost().is_some() {
            return;
        }
        let (client, at, sent) = (self.client.clone(), self.at.clone(), self.sent.clone());
        self.background.spawn(async move {
            if let Err(none) = at.ask(&client, &Method::TasksCancel, &sent, client.mailbox()).await {
                let error = ErrorObject::from(none);
                tracing::debug!(server = &*at.server.label, "a task that nobody waits for: {}", error.message);
            }
        });
    }
}
