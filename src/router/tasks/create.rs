//! Decides whether a tool call becomes an MCP task, and creates the task.

use std::sync::{Arc, LazyLock, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use memchr::memmem::Finder;

use super::Tasks;
use super::hold::Hold;
use super::registry::TaskPlace;
use crate::adapt::task;
use crate::answered::{Answered, NoResult};
use crate::protocol::{Outcome, ProtocolVersion, Raw};
use crate::registry::{Entry, Kind};
use crate::router::answer::Failure;
use crate::router::client::Client;
use crate::router::forward::Forward;
use crate::router::plan::Plan;
use crate::router::rising::Rising;
use crate::router::route::{Listed, One};
use crate::router::running::Attempt;
use crate::router::toward::Toward;
use crate::upstream::{Connection, Exchange, Upstream};

impl Tasks {
    /// Reports whether it is known how the server lists the tool, or its list need not be waited for.
    pub(in crate::router) fn knows(&self, client: &Client, one: &One) -> bool {
        !matches!(one.listed, Listed::NotYet) || client.is_settled()
    }

    /// Waits for the server's list, if the tool is not known yet. `exposed` is the tool's name as the client knows it.
    pub(in crate::router) async fn get_to_know(&self, client: &Arc<Client>, one: &mut One, exposed: &str) {
        if !self.knows(client, one) {
            let settled = client.settled_view(&self.manager, &self.background).await;
            one.listed = Listed::of(&settled.callable, Kind::Tools, exposed, (&one.server, &one.target));
        }
    }

    /// Decides how a tool call is to run, and edits its params accordingly. `asked` is the params' member `task`.
    pub(in crate::router) fn plan(&self, client: &Client, forward: &mut Forward, asked: Option<&Raw>) {
        let may = self.manager.settings().tasks && client.revision() == ProtocolVersion::V2025_11_25;
        if may && asked.is_some_and(Raw::is_object) {
            forward.task = Plan::Wanted;
            return;
        }
        if asked.is_some() {
            // mcp-host declared no tasks to this client, so the member means nothing.
            forward.params = forward.params.without_member("task");
            forward.reopen();
        }
        // A tool that its server does not list does not run as a task.
        if forward.listed.entry().is_some_and(is_task_only) {
            forward.params = task::wanted(&forward.params);
            forward.reopen();
            let is_known = client.revision().is_modern() && client.declares(task::EXTENSION);
            forward.task = if is_known { Plan::Downward } else { Plan::Hidden };
        }
    }

    /// Returns the client's answer to a call for which the server created a task. `plan` is how the call was to run,
    /// `result` the server's result.
    pub(in crate::router) async fn created(
        &self,
        client: &Arc<Client>,
        (forward, plan): (&Forward, Plan),
        on: (&Arc<Upstream>, &Arc<Connection>),
        toward: &mut Toward<'_>,
        (exchange, result): (&mut Exchange, &Raw),
    ) -> Result<Answered, Attempt> {
        let (upstream, connection) = on;
        let version = connection.peer().map_or(ProtocolVersion::LATEST_HANDSHAKE, |peer| peer.version);
        let nobody = || Attempt::Failed(Failure::malformed("a task that nobody asked for"));
        let made = task::created(result).ok_or_else(nobody)?;
        let id = made.text("taskId").unwrap_or_default();
        if id.len() > task::LONGEST_ID {
            return Err(Attempt::Failed(Failure::malformed("a task whose id is longer than 1 KiB")));
        }
        let session = |progress: Rising| {
            let (connection, progress) = (Arc::downgrade(connection), Mutex::new(progress.detached()));
            TaskPlace::Session {
                lease: upstream.id,
                connection,
                hold: Arc::new(Hold::of(&self.queues.account())),
                progress,
            }
        };
        let is_known = client.revision().is_modern() && client.declares(task::EXTENSION);
        let (place, write): (TaskPlace, fn(&Raw, &str) -> Raw) = match (version.is_modern(), plan) {
            (true, Plan::Upward) => (open(), |made, id| nested(&task::legacy(made, id))),
            (true, _) if is_known => (open(), task::renamed),
            (true, _) => return Err(nobody()),
            (false, Plan::Core) => (session(toward.take_progress()), |made, id| nested(&task::renamed(made, id))),
            (false, Plan::Downward) => {
                (session(Rising::default()), |made, id| task::modern(made, id).with_member("resultType", br#""task""#))
            }
            (false, Plan::Hidden) => return self.run_hidden(client, forward, on, toward, (exchange, made)).await,
            (false, _) => return Ok(Ok(result.clone())),
        };
        let known = self.know(client, &forward.server, &id, place);
        if known.is_ok() {
            exchange.let_last();
        }
        Ok(known.map(|task| write(&made, &task.handle)).map_err(NoResult::from))
    }

    /// Returns the answer to a call that the client wanted as a task and that the server finished at once: a finished
    /// task that mcp-host keeps.
    pub(in crate::router) fn over_at_once(&self, client: &Client, forward: &Forward, outcome: Outcome) -> Answered {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let task = self.know(client, &forward.server, "", TaskPlace::Here { outcome, at })?;
        let TaskPlace::Here { outcome, at } = &task.place else { return Err(super::unknown().into()) };
        Ok(nested(&task::done(&task.handle, outcome, *at)))
    }
}

fn open() -> TaskPlace {
    TaskPlace::Open { asked: tokio::sync::Mutex::default() }
}

/// Returns the result that creates a task in 2025-11-25.
fn nested(task: &Raw) -> Raw {
    Raw::empty_object().with_member("task", task.as_bytes())
}

/// Reports whether the tool declares (2025-11-25) that it runs only as a task.
fn is_task_only(entry: &Entry) -> bool {
    static SUPPORT: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("taskSupport"));
    let definition = entry.definition();
    let is_said = || definition.member("execution").and_then(|execution| execution.text("taskSupport"));
    let may_be = SUPPORT.find(definition.as_bytes()).is_some();
    may_be && is_said().as_deref() == Some("required")
}
